package partition

// Explain: for each segment, in words, why it is where it is and what happens to
// it next (plan.Explain).

import (
	"github.com/strandline-io/strandline/remoteindex"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/local"
	"github.com/strandline-io/strandline/tiers/plan"
)

// explaining is what holds for all segments of one list.
type explaining struct {
	facts plan.ExplainFacts
	truth remoteindex.Truth
	from  tiers.Offset // where copying goes on
	ahead int          // segments that were found to be copied so far
}

func (s *state) onExplain() explaining {
	v := s.view
	total, onDisk := s.limits()
	e := explaining{
		facts: plan.ExplainFacts{
			LogStart: v.LogStart, Copied: s.tiered(), Paused: s.bucket && s.config.Remote && s.config.Retention.CopyPaused,
			Limits: total, Local: onDisk, Roll: s.config.rollLimits(), Held: tiers.NoOffset, Unavailable: s.unknown(), Now: s.now(),
		},
		truth: remoteindex.Truth{Lineage: v.Lineage, Start: v.LogStart, Bound: v.LogEnd},
		from:  max(v.RemoteEnd, v.LogStart),
	}
	if v.Held != nil {
		e.facts.Held = v.Held.Base
	}
	totals := s.index.Totals(v.Lineage, v.LogStart, v.LogEnd)
	e.facts.TotalBytes = totals.Bytes
	for _, seg := range s.local.Segments() {
		e.facts.LocalBytes += seg.Size
		if _, where := s.index.Find(seg.Base, e.truth); where != remoteindex.Covered && seg.Next > v.LogStart {
			e.facts.TotalBytes += seg.Size
		}
	}
	return e
}

// why explains one segment: row is nil if it is on disk only, seg if it is in the
// bucket only.
func (s *state) why(e *explaining, row *tiers.RemoteSegment, seg *local.Segment) string {
	var p plan.Placement
	if row != nil {
		from, end := remoteindex.SafeRange(*row, e.truth)
		p = plan.Placement{
			Base: row.Base, Next: row.End, Size: row.Size, MaxTimestamp: row.MaxTimestamp, Created: row.CreatedAt,
			InBucket: row.State == tiers.CopyFinished, Discarded: end <= from && row.End > e.facts.LogStart, Removal: s.removalOf(row.ID),
		}
	}
	if seg != nil {
		p.Base, p.Next, p.Size, p.MaxTimestamp, p.Modified = seg.Base, seg.Next, seg.Size, seg.MaxTimestamp, seg.Modified
		p.OnDisk, p.Active, p.FirstAppend = true, seg.Active, seg.FirstAppend
	}
	if !p.Active && !p.InBucket && seg != nil && s.config.Remote && s.bucket && seg.Next > e.from {
		p.Copy = s.copyOf(*seg, e.ahead)
		e.ahead++
	}
	return plan.Explain(p, e.facts)
}

func (s *state) removalOf(id tiers.SegmentID) *plan.Removal {
	d := s.remove.byID[id]
	if d == nil {
		return nil
	}
	at := d.at
	if at.Before(s.remove.retry.at) {
		at = s.remove.retry.at
	}
	r := &plan.Removal{Marked: d.phase >= marked, Emptied: d.phase == emptied, Since: d.since, At: at, Failures: d.failures}
	if d.err != nil {
		r.Why = d.err.Error()
	}
	return r
}

func (s *state) copyOf(seg local.Segment, ahead int) *plan.Copying {
	c := &plan.Copying{
		Ahead: ahead, Running: s.copying != nil && s.copying.seg.Base == seg.Base, Undecided: seg.Next > s.view.LastStable,
		Failures: s.copyRetry.failures, Next: s.copyRetry.at,
	}
	if s.trouble != nil {
		c.Why = s.trouble.Err.Error()
	}
	return c
}

package partition

// Segments of both tiers: what there is, when the active one ends, how far the
// remote cover reaches.

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/strandline-io/strandline/remoteindex"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/batch"
	"github.com/strandline-io/strandline/tiers/local"
	"github.com/strandline-io/strandline/tiers/plan"
	"github.com/strandline-io/strandline/tiers/remote"
)

// SegmentInfo is a segment in one or both tiers.
type SegmentInfo struct {
	Base, Next   tiers.Offset
	Tier         string // "local", "remote", "both"
	State        string // "active", "closed", "copying", or a tiers.SegmentState
	Bytes        int64
	MaxTimestamp int64
	Epochs       tiers.Lineage
	Key          string // of the records object
	Why          string // why it is still where it is, or what is about to happen to it
}

// Readable reports whether the segment serves records: on disk, or in the bucket
// with a row that readers find.
func (i SegmentInfo) Readable() bool {
	return i.Base < i.Next && (i.Tier != "remote" || i.State == tiers.CopyFinished.String())
}

// Ends reports whether readers lose the whole of the segment, or what the log had
// left of it, when the log start moves.
func (i SegmentInfo) Ends(from, to tiers.Offset) bool {
	return i.Readable() && i.Next > from && i.Next <= to
}

// Segments lists the segments of both tiers, by base.
func (o *Owner) Segments(ctx context.Context) ([]SegmentInfo, error) {
	var out []SegmentInfo
	var failed error
	err := o.do(ctx, "list segments", func(s *state) {
		if failed = s.offline(); failed == nil {
			out = s.onSegments()
		}
	})
	if err != nil {
		return nil, err
	}
	return out, failed
}

func (s *state) onSegments() []SegmentInfo {
	e, onDisk := s.onExplain(), s.local.Segments()
	twins := make(map[[2]tiers.Offset]*local.Segment, len(onDisk))
	for i, seg := range onDisk {
		if !seg.Active {
			twins[[2]tiers.Offset{seg.Base, seg.Next}] = &onDisk[i]
		}
	}
	var out []SegmentInfo
	both := map[tiers.Offset]bool{}
	for row := range s.index.All() {
		info, seg := remoteInfo(row), (*local.Segment)(nil)
		if row.State == tiers.CopyFinished {
			seg = twins[[2]tiers.Offset{row.Base, row.End}]
		}
		if seg != nil {
			info.Tier, both[seg.Base] = "both", true
		}
		info.Why = s.why(&e, &row, seg)
		out = append(out, info)
	}
	for _, seg := range onDisk {
		if !both[seg.Base] {
			info := s.localInfo(s.view, seg)
			info.Why = s.why(&e, nil, &seg)
			out = append(out, info)
		}
	}
	slices.SortStableFunc(out, func(a, b SegmentInfo) int { return cmp.Compare(a.Base, b.Base) })
	return out
}

func remoteInfo(row tiers.RemoteSegment) SegmentInfo {
	return SegmentInfo{
		Base: row.Base, Next: row.End, Tier: "remote", State: row.State.String(), Bytes: row.Size,
		MaxTimestamp: row.MaxTimestamp, Epochs: row.Epochs, Key: remote.SegmentKey(row),
	}
}

func (s *state) localInfo(v *View, seg local.Segment) SegmentInfo {
	info := SegmentInfo{
		Base: seg.Base, Next: seg.Next, Tier: "local", State: "closed", Bytes: seg.Size, MaxTimestamp: seg.MaxTimestamp,
		Epochs: plan.SegmentLineage(v.Lineage, seg.Base, seg.Next),
	}
	switch {
	case seg.Active:
		info.State = "active"
	case s.copying != nil && s.copying.seg.Base == seg.Base:
		info.State, info.Key = "copying", remote.SegmentKey(s.copying.seg)
	}
	return info
}

// localFacts are segments in the words of package plan.
func localFacts(segs []local.Segment) []plan.LocalSegment {
	out := make([]plan.LocalSegment, len(segs))
	for i, seg := range segs {
		out[i] = localFact(seg)
	}
	return out
}

func localFact(seg local.Segment) plan.LocalSegment {
	return plan.LocalSegment{
		Base: seg.Base, Next: seg.Next, Size: seg.Size, IndexSize: seg.IndexSize, MaxTimestamp: seg.MaxTimestamp,
		FirstAppend: seg.FirstAppend, Modified: seg.Modified, Active: seg.Active,
	}
}

func (c Config) rollLimits() plan.RollLimits {
	return plan.RollLimits{Bytes: c.Local.SegmentBytes, Age: c.Local.SegmentAge, IndexBytes: c.Local.IndexBytes}
}

// rollBefore reports whether the active segment ends before h, behind what g has
// gathered for it.
func (s *state) rollBefore(g *gathered, h batch.Header) bool {
	a := localFact(s.local.Active())
	if n := int64(len(g.data)); n > 0 {
		a.Size += n
		a.IndexSize += (n/max(s.config.Local.IndexInterval, 1) + 1) * offsetEntry // at most
	}
	in := plan.Incoming{Bytes: h.Size(), Last: g.next + tiers.Offset(h.LastOffsetDelta)}
	return plan.Roll(a, in, s.config.rollLimits(), s.now()) != plan.Stay
}

// rollAt is when the active segment is old enough to be closed although nothing
// comes, so that the end of a quiet topic gets into the bucket too. Zero: never.
func (s *state) rollAt() time.Time {
	a := s.local.Active()
	if s.config.Local.SegmentAge <= 0 || a.Size == 0 || !s.tiered() {
		return time.Time{}
	}
	first := a.FirstAppend
	if now := s.now(); first.IsZero() || first.After(now) {
		first = a.Modified
	}
	due := first.Add(s.config.Local.SegmentAge)
	if due.Before(s.rollRetry.at) {
		return s.rollRetry.at
	}
	return due
}

// onRollDue closes the active segment if rollAt has come.
func (s *state) onRollDue(now time.Time) {
	if at := s.rollAt(); at.IsZero() || now.Before(at) {
		return
	}
	if plan.Roll(localFact(s.local.Active()), plan.Incoming{}, s.config.rollLimits(), now) != plan.Stay && s.onRoll() == nil {
		s.rollRetry = backoff{}
		return
	}
	s.rollRetry = s.rollRetry.next(now, s.jitter)
}

// cover is the coverage as it was computed last, and what from.
type cover struct {
	index   *remoteindex.Index
	lineage tiers.Lineage
	start   tiers.Offset
	end     tiers.Offset
}

// covered is the end of the remote cover (R5), below the high watermark. It is
// derived, never stored, and may fall.
func (s *state) covered(w tiers.Watermarks) tiers.Offset {
	l, c := s.local.Lineage(), &s.cover
	if c.index != s.index || c.start != w.LogStart || !slices.Equal(c.lineage, l) {
		end := s.index.Coverage(remoteindex.Truth{Lineage: l, Start: w.LogStart, Bound: noLimit})
		*c = cover{s.index, l, w.LogStart, end}
	}
	return max(w.LogStart, min(c.end, w.HighWatermark))
}

// onCopied adds a finished segment to the index.
func (s *state) onCopied(seg tiers.RemoteSegment) {
	began := seg
	began.State = tiers.CopyStarted
	x, err := s.index.Apply(began)
	if err == nil {
		x, err = x.Apply(seg)
	}
	if err != nil {
		s.log.Error("the index refuses a segment that the registry took: the rows are read again", "id", seg.ID, "error", err)
		s.indexOld = true
		return
	}
	s.index = x
}

// onIndex makes the index of the registry's rows.
func (s *state) onIndex(rows []tiers.RemoteSegment) {
	x, err := remoteindex.New(s.id.ID, s.id.Gen, rows)
	s.refused = nil
	if err != nil {
		s.log.Error("rows of remote segments are not used", "error", err)
		s.refused = tiers.E(tiers.StorageFailed, "read rows", s.place, "rows of remote segments cannot be used, so it is not known what the bucket holds: %w", err)
	}
	s.index, s.rested, s.holeTold = x, rested{}, false
}

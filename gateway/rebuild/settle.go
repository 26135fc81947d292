package rebuild

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/plan"
	"github.com/strandline-io/strandline/tiers/remote"
)

// settle turns what was found into the state that is loaded.
func (r *run) settle(finds []*topicFinds) {
	segments := r.state.Segments
	r.state.Segments = nil
	for _, f := range finds {
		for _, o := range f.strays {
			r.report.orphan(o.Key, o.Size, "not the key of a segment of this topic")
		}
		if r.topic(f.id) == nil && !r.revive(f) {
			r.leave(f, segments)
		}
	}
	byTopic := make(map[tiers.TopicID]*topicFinds, len(finds))
	for _, f := range finds {
		byTopic[f.id] = f
	}
	slices.SortFunc(r.state.Topics, func(a, b control.Topic) int { return cmp.Compare(a.Name, b.Name) })
	for i := range r.state.Topics {
		r.settleTopic(&r.state.Topics[i], byTopic[r.state.Topics[i].ID])
	}
	r.report.Restored = len(r.state.Offsets)
}

func (r *run) topic(id tiers.TopicID) *control.Topic {
	for i := range r.state.Topics {
		if r.state.Topics[i].ID == id {
			return &r.state.Topics[i]
		}
	}
	return nil
}

// intact reports whether the journal tells every change: then a topic that it
// does not name was deleted.
func (r *run) intact() bool {
	return r.journal.Snapshot != "" && len(r.journal.Damaged) == 0 && len(r.journal.Missing) == 0
}

// leave reports the objects of a topic that was deleted. Rows that were being
// deleted go on being deleted.
func (r *run) leave(f *topicFinds, rows []tiers.RemoteSegment) {
	for _, s := range rows {
		if s.Partition.Topic == f.id {
			s.State = tiers.DeleteStarted
			r.state.Segments = append(r.state.Segments, s)
		}
	}
	for _, s := range f.segments {
		if !s.row {
			r.report.orphan(remote.SegmentKey(s.segment), s.segment.Size, "of a topic that was deleted")
		}
	}
}

// revive brings a topic back that a damaged journal does not name, under the name
// that its companions tell and with default settings. It reports whether there
// was enough to go by.
func (r *run) revive(f *topicFinds) bool {
	if r.intact() {
		return false
	}
	var newest *finding
	for _, s := range f.segments {
		if s.whole && s.name != "" && (newest == nil || s.segment.CreatedAt.After(newest.segment.CreatedAt)) {
			newest = s
		}
	}
	if newest == nil {
		return false
	}
	name := r.freeName(newest.name, f.id)
	r.state.Rev++
	r.state.Topics = append(r.state.Topics, control.Topic{
		ID: f.id, Name: name, Configs: map[string]string{}, Rev: r.state.Rev, CreatedAt: control.Instant(r.opts.Now()),
	})
	r.report.Note("topic %s (%s) is in no snapshot or change: it is back with default settings", name, f.id)
	return true
}

// freeName makes name one that no other topic has.
func (r *run) freeName(name string, id tiers.TopicID) string {
	taken := func(n string) bool {
		return slices.ContainsFunc(r.state.Topics, func(t control.Topic) bool { return control.ClashKey(t.Name) == control.ClashKey(n) })
	}
	if !taken(name) {
		return name
	}
	return fmt.Sprintf("%.200s-%s", name, id.Hex()[:8])
}

func (r *run) settleTopic(t *control.Topic, f *topicFinds) {
	found := make(map[int32][]*finding)
	if f != nil {
		for _, s := range f.segments {
			found[s.segment.Partition.Index] = append(found[s.segment.Partition.Index], s)
		}
	}
	r.grow(t, found)
	for i := range t.Partitions {
		r.settlePartition(t, &t.Partitions[i], found[int32(i)])
	}
}

// grow adds partitions that only the bucket knows, unless the journal is sure
// that there are none.
func (r *run) grow(t *control.Topic, found map[int32][]*finding) {
	for _, index := range slices.Sorted(maps.Keys(found)) {
		if int(index) < len(t.Partitions) {
			continue
		}
		if r.intact() || int(index) >= control.MaxPartitions || !slices.ContainsFunc(found[index], func(f *finding) bool { return f.whole }) {
			for _, s := range found[index] {
				r.report.orphan(remote.SegmentKey(s.segment), s.segment.Size, "of a partition that the topic does not have")
			}
			continue
		}
		for len(t.Partitions) <= int(index) {
			t.Partitions = append(t.Partitions, control.Partition{Index: int32(len(t.Partitions))})
		}
	}
}

func (r *run) settlePartition(t *control.Topic, p *control.Partition, found []*finding) {
	id := tiers.PartitionID{Topic: t.ID, Index: p.Index}
	facts := plan.RebuildFacts{Partition: id, Gen: p.Gen, LogStart: p.LogStart}
	byID := make(map[tiers.SegmentID]*finding, len(found))
	for _, s := range found {
		byID[s.segment.ID] = s
		facts.Found = append(facts.Found, s.facts())
	}
	res := plan.Rebuild(facts)
	p.Gen, p.LogStart, p.Leader = max(res.Gen, 1), res.LogStart, r.opts.Node
	// Each start raised the epoch by one and the generation by at least one, so
	// this is above every epoch that any node ever had here.
	p.Epoch = max(p.Epoch+tiers.LeaderEpoch(max(0, r.generation-r.journal.SnapshotGeneration))+1, res.MinEpoch)
	rep := PartitionReport{
		Topic: t.Name, ID: t.ID, Index: p.Index, LogStart: res.LogStart, LogEnd: res.LogEnd, Epoch: p.Epoch,
		Gaps: []Gap{}, Problems: []Problem{},
	}
	for _, g := range res.Gaps {
		rep.Gaps = append(rep.Gaps, Gap{g.From, g.End})
	}
	for _, j := range res.Judged {
		r.judged(&rep, byID[j.Segment.ID], j)
	}
	r.clamp(t, id, p.Gen, res)
	r.report.Partitions = append(r.report.Partitions, rep)
}

// facts is the finding as the plan wants it.
func (f *finding) facts() plan.Found {
	out := plan.Found{Segment: f.segment, Lineage: f.lineage, Complete: f.whole}
	if f.row {
		out.Row = f.rowState
	}
	return out
}

// judged writes the row of a segment, if it gets one, and the report of it.
func (r *run) judged(rep *PartitionReport, f *finding, j plan.Judged) {
	row := f.segment
	problem, loss := "", false
	switch j.Verdict {
	case plan.Keep:
		row.State = tiers.CopyFinished
		rep.Segments++
		rep.Bytes += row.Size
		if !f.row || f.rowState == tiers.CopyStarted {
			rep.Adopted++
		}
	case plan.Stranded:
		// A row would say that the log reaches there: it ends, or begins, at the gap.
		row.State, loss = 0, true
		problem = "it lies behind a gap from the longer part of the log; its objects stay in the bucket"
	case plan.Redundant, plan.Discarded:
		if !f.row {
			row.State = 0
		}
		problem = j.Verdict.String()
	case plan.Deleting, plan.Stale:
		// Below the log start nothing is served. The owner deletes what is left of it,
		// and a key of which nothing is left costs it one request.
		row.State = tiers.DeleteStarted
		rep.Doomed++
	case plan.Incomplete:
		// A copy that had not finished promised nothing. One without a row may have
		// finished after the snapshot, if both objects are there.
		if row.State = tiers.DeleteStarted; !f.row {
			row.State, loss = 0, f.damaged
		}
		problem = cmp.Or(f.problem, j.Verdict.String())
	case plan.Missing, plan.Elsewhere, plan.Invalid:
		row.State, loss = 0, true
		problem = cmp.Or(f.problem, j.Verdict.String())
	}
	if row.State != 0 {
		r.state.Segments = append(r.state.Segments, row)
	}
	if problem != "" {
		rep.Problems = append(rep.Problems, Problem{row.ID, row.Base, row.End, problem, loss})
	}
}

// clamp sets committed offsets beyond the end to the end.
func (r *run) clamp(t *control.Topic, id tiers.PartitionID, gen tiers.HistoryGen, res plan.Rebuilt) {
	for i := range r.state.Offsets {
		o := &r.state.Offsets[i]
		if o.Partition != id || o.Gen != gen || o.Offset <= res.LogEnd {
			continue
		}
		r.report.Offsets = append(r.report.Offsets, OffsetReport{Group: o.Group, Topic: t.Name, Index: id.Index, Was: o.Offset, Is: res.LogEnd})
		o.Offset, o.Epoch = res.LogEnd, res.Lineage.Last()
	}
}

// stamp prints a time in reports.
func stamp(at time.Time) string {
	return strings.Replace(at.UTC().Format(time.RFC3339), "T", " ", 1)
}

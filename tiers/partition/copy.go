package partition

// Copy (spec s6.2): a closed segment goes to the bucket as two objects. The work
// is a chain of jobs, so that a test can hold it at each border:
//
//	plan -> startJob (row CopyStarted) -> uploadJob (objects, read back)
//	     -> finishJob (row CopyFinished) -> applyJob -> RemoteEnd moves
//
// A step that fails leads to undo.go, one whose outcome nobody knows to
// settleJob, which asks the registry first (R3).

import (
	"context"
	"time"

	"github.com/strandline-io/strandline/remoteindex"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/plan"
)

// attempt is one try to copy one segment. A retry is another attempt with
// another id (R3).
type attempt struct {
	tokens  tokens
	fence   Fence
	seg     tiers.RemoteSegment
	lineage tiers.Lineage // of the whole log below seg.End
	files   *files        // jobs take a share of their own
	cluster string
	name    tiers.TopicPartition
	began   time.Time
}

func (a attempt) at(point string) Point { return Point{point, a.name, a.seg.Base} }

// rested is what planning has seen when it found nothing to do, so that it need
// not look again at every append.
type rested struct {
	files *files
	index *remoteindex.Index
	until tiers.Offset // the last stable offset that lets the next segment go
}

// tiered reports whether segments are to be copied.
func (s *state) tiered() bool {
	return s.bucket && s.config.Remote && !s.config.Retention.CopyPaused
}

// onPlan decides what workers should do next. The last View is up to date.
func (s *state) onPlan() {
	s.onWaiters()
	if s.closing || s.offline() != nil {
		return
	}
	s.plannedAt = s.now()
	s.onPlanRaise()
	s.onPlanForget()
	s.onPlanRemove()
	s.onPlanRetain()
	if !s.bucket || s.copying != nil || s.reloading || !s.copyRetry.due(s.plannedAt) {
		return
	}
	if s.indexOld {
		if s.remove.marks {
			return // its outcome comes first
		}
		s.reloading = true
		s.todo = append(s.todo, reloadJob{s.tokens(), s.fence(), s.id.Name})
		return
	}
	s.onPlanCopy()
}

// onPlanCopy begins the next copy, if there is one.
func (s *state) onPlanCopy() {
	if !s.tiered() {
		return
	}
	v, r := s.view, s.rested
	if r.files == v.files && r.index == v.index && v.LastStable < r.until {
		return
	}
	seg, until, ok := s.nextCopy(v)
	if !ok {
		s.rested = rested{v.files, v.index, until}
		s.onNothingToCopy(until)
		return
	}
	if !v.files.share() {
		panic("partition: the loop has no share of the files that its View shows")
	}
	a := attempt{
		tokens: s.tokens(), fence: s.fence(), seg: seg, lineage: v.Lineage.TruncateEnd(seg.End), files: v.files,
		cluster: s.cluster, name: s.id.Name, began: s.now(),
	}
	s.copying = &a
	s.todo = append(s.todo, startJob{a})
}

func (s *state) fence() Fence {
	return Fence{Partition: s.id.ID, Gen: s.id.Gen, Epoch: s.id.Epoch}
}

// nextCopy chooses the segment to copy next (R1, R4). If there is none, until is
// the last stable offset that will let the next one go.
func (s *state) nextCopy(v *View) (seg tiers.RemoteSegment, until tiers.Offset, ok bool) {
	copied, hole := v.index.Copied(remoteindex.CopyState{
		Truth: remoteindex.Truth{Lineage: v.Lineage, Start: v.LogStart, Bound: v.LogEnd},
		Log:   v.Lineage, LocalFrom: v.LocalLogStart, LogEnd: v.LogEnd,
	})
	segs := localFacts(s.local.Segments())
	next, ok := plan.Copy(plan.CopyFacts{Segments: segs, Copied: copied, LogStart: v.LogStart, LastStable: v.LastStable, Lineage: v.Lineage})
	if hole || next.Hole > 0 {
		s.onHole(copied, next)
	}
	if !ok {
		return tiers.RemoteSegment{}, undecided(segs, max(copied, v.LogStart)), false
	}
	return tiers.RemoteSegment{
		ID: s.newID(), Partition: s.id.ID, Gen: s.id.Gen, Base: next.Segment.Base, End: next.Segment.Next, Epochs: next.Epochs,
		State: tiers.CopyStarted, MaxTimestamp: next.Segment.MaxTimestamp, CopierEpoch: s.id.Epoch, Copier: s.id.Node, CreatedAt: s.now().UTC(),
	}, 0, true
}

// onHole raises the alarm of R4, once.
func (s *state) onHole(copied tiers.Offset, next plan.CopyNext) {
	if s.holeTold {
		return
	}
	s.holeTold = true
	s.metrics.hole()
	v := s.view
	ends := v.LocalLogStart
	if p, ok := v.index.Next(v.RemoteEnd, v.truth()); ok {
		ends = min(ends, p.From)
	}
	s.log.Error("the remote tier has a hole that no local segment can fill, nothing behind it is copied: restore the objects, or give up what is below hole_ends with `strandline topic trim`",
		"remote_end", v.RemoteEnd, "hole_ends", ends, "copied", copied, "missing", next.Hole, "local_log_start", v.LocalLogStart)
}

// undecided is the end of the first closed segment above at, noLimit if there is
// none.
func undecided(segs []plan.LocalSegment, at tiers.Offset) tiers.Offset {
	for _, seg := range segs {
		if seg.Next > at && !seg.Active {
			return seg.Next
		}
	}
	return noLimit
}

// startJob writes the row.
type startJob struct{ attempt }

func (j startJob) point() Point { return j.at("copy.planned") }

func (j startJob) run(ctx context.Context, t tools) outcome {
	return startDone{j.attempt, t.registry.CopyStarted(ctx, j.fence, j.seg)}
}

type startDone struct {
	attempt
	err error
}

func (r startDone) on(s *state) {
	switch {
	case s.offline() != nil:
		s.onCopyEnded()
	case tiers.KindOf(r.err) == tiers.StaleFence:
		s.onCopyFailed(r.seg, r.err)
	case r.err != nil:
		s.todo = append(s.todo, settleJob{r.attempt, r.err})
	case r.tokens != s.tokens():
		s.onCopyStale(r.attempt)
	default:
		s.todo = append(s.todo, uploadJob{r.attempt})
	}
}

// uploadJob puts the objects and reads them back.
type uploadJob struct{ attempt }

func (j uploadJob) point() Point { return j.at("copy.started") }

type uploadDone struct {
	attempt // with sizes and checksums
	err     error
}

func (r uploadDone) on(s *state) {
	switch {
	case s.offline() != nil:
		s.onCopyEnded()
	case r.err != nil:
		s.onUndo(r.seg)
		s.onCopyFailed(r.seg, r.err)
	case r.tokens != s.tokens():
		s.onCopyStale(r.attempt)
	default:
		s.todo = append(s.todo, finishJob{r.attempt})
	}
}

// finishJob makes the copy count.
type finishJob struct{ attempt }

func (j finishJob) point() Point { return j.at("copy.uploaded") }

func (j finishJob) run(ctx context.Context, t tools) outcome {
	return finishDone{j.attempt, t.registry.CopyFinished(ctx, j.fence, j.seg)}
}

type finishDone struct {
	attempt
	err error
}

func (r finishDone) on(s *state) {
	switch {
	case s.offline() != nil:
		s.onCopyEnded()
	case tiers.KindOf(r.err) == tiers.StaleFence:
		// The row stays in CopyStarted: whoever leads now removes it.
		s.onCopyFailed(r.seg, r.err)
	case r.err != nil:
		s.todo = append(s.todo, settleJob{r.attempt, r.err})
	default:
		s.todo = append(s.todo, applyJob{r.attempt})
	}
}

// applyJob does nothing: it is the border between the commit and the loop's
// knowing of it.
type applyJob struct{ attempt }

func (j applyJob) point() Point { return j.at("copy.finished") }

func (j applyJob) run(context.Context, tools) outcome { return copyDone(j) }

type copyDone struct{ attempt }

// on brings the copy home. If the log was truncated meanwhile, the segment is in
// the bucket all the same, capped by R14; but what it covers is derived anew from
// the rows (F3, F4).
func (r copyDone) on(s *state) {
	if s.offline() != nil {
		s.onCopyEnded()
		return
	}
	if r.tokens == s.tokens() {
		r.seg.State = tiers.CopyFinished
		s.onCopied(r.seg)
	} else {
		s.indexOld = true
	}
	if s.copyRetry.failures > 0 {
		s.log.Info("copying to the bucket works again", "failures", s.copyRetry.failures)
		s.metrics.stalled(-1)
	}
	s.copyRetry, s.trouble = backoff{}, nil
	s.metrics.copied(r.seg.Size, s.now().Sub(r.began))
	s.log.Debug("copied a segment", "base", r.seg.Base, "end", r.seg.End, "bytes", r.seg.Size, "id", r.seg.ID)
	s.onCopyEnded()
	s.onLook() // the disk may be freed of what is in the bucket now
}

// onCopyStale gives up an attempt that was planned on what is no longer so.
func (s *state) onCopyStale(a attempt) {
	s.log.Info("the log changed under a copy: it is undone", "base", a.seg.Base, "end", a.seg.End, "id", a.seg.ID)
	s.onUndo(a.seg)
	s.indexOld = true
	s.onCopyEnded()
}

// onCopyFailed counts a failure. It is told once, not at every try.
func (s *state) onCopyFailed(seg tiers.RemoteSegment, err error) {
	s.onCopyEnded()
	s.copyRetry = s.copyRetry.next(s.now(), s.jitter)
	s.metrics.copyFailed()
	told := s.log.Debug
	if s.copyRetry.failures == 1 {
		s.metrics.stalled(1)
		s.trouble = &CopyTrouble{Since: s.now(), Err: err}
		told = s.log.Warn
	}
	told("a copy to the bucket failed: appends and local reads go on, it is tried again until it works",
		"base", seg.Base, "end", seg.End, "id", seg.ID, "failures", s.copyRetry.failures, "error", err)
	s.onWaitersFailed(tiers.E(copyKind(err), "copy", s.place, "segment [%d,%d): %w", seg.Base, seg.End, err))
}

// onCopyEnded frees the place for the next attempt.
func (s *state) onCopyEnded() {
	if s.copying != nil {
		s.copying.files.drop()
		s.copying = nil
	}
	s.rested = rested{}
}

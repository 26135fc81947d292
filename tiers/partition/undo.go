package partition

// Undo (R3, reports 126 and 127): what a copy left behind goes away, whether the
// copy failed a moment ago or in an earlier life of the node: row to
// DeleteStarted, objects, row gone. It is tried until it works.

import (
	"context"
	"slices"
	"time"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/remote"
)

// undoing is what is still to be removed.
type undoing struct {
	rows  []tiers.RemoteSegment
	busy  bool
	retry backoff
}

// onUndo puts a segment on the list.
func (s *state) onUndo(seg tiers.RemoteSegment) {
	same := func(o tiers.RemoteSegment) bool { return o.ID == seg.ID }
	if !slices.ContainsFunc(s.undo.rows, same) {
		s.undo.rows = append(s.undo.rows, seg)
	}
}

// onRows takes over what the registry holds: finished segments count, all others
// are left over unless the copy under way owns them.
func (s *state) onRows(rows []tiers.RemoteSegment) {
	s.onIndex(rows)
	for _, row := range rows {
		ours := s.copying != nil && s.copying.seg.ID == row.ID
		switch {
		case ours || row.State == tiers.CopyFinished:
		case row.State == tiers.DeleteStarted:
			s.onRemove(row, time.Time{})
		default:
			s.onUndo(row)
		}
	}
}

// onPlanUndo starts the next removal.
func (s *state) onPlanUndo() {
	u := &s.undo
	if !s.bucket || u.busy || len(u.rows) == 0 || !u.retry.due(s.plannedAt) {
		return
	}
	u.busy = true
	s.todo = append(s.todo, undoJob{s.fence(), u.rows[0], s.id.Name})
}

// undoJob removes one segment. It may run again after it stopped anywhere.
type undoJob struct {
	fence Fence
	seg   tiers.RemoteSegment
	name  tiers.TopicPartition
}

func (j undoJob) point() Point { return Point{"copy.undo", j.name, j.seg.Base} }

func (j undoJob) run(ctx context.Context, t tools) outcome { return undoDone{j, j.remove(ctx, t)} }

func (j undoJob) remove(ctx context.Context, t tools) error {
	gone, err := j.markDeleted(ctx, t.registry)
	if err != nil {
		return err
	}
	// A start that took over may have made rows of complete objects.
	if err := t.mayDelete(ctx); err != nil {
		return err
	}
	keys := []string{remote.SegmentKey(j.seg), remote.MetaKey(j.seg)}
	if err := t.cache.Bucket().Delete(ctx, keys...); err != nil {
		return tiers.E(remoteKind(err), "delete objects", keys[0], "%w", err)
	}
	if gone {
		return nil
	}
	return t.registry.DeleteFinished(ctx, j.fence, j.seg.ID)
}

// markDeleted moves the row to DeleteStarted: from then on nobody can finish the
// copy. gone says that there is no row, which is found out by asking.
func (j undoJob) markDeleted(ctx context.Context, registry Registry) (gone bool, err error) {
	err = registry.DeleteStarted(ctx, j.fence, j.seg.ID)
	if tiers.KindOf(err) != tiers.Conflict {
		return false, err
	}
	rows, readErr := registry.Segments(ctx, j.fence.Partition, j.fence.Gen)
	if readErr != nil {
		return false, readErr
	}
	if slices.ContainsFunc(rows, func(row tiers.RemoteSegment) bool { return row.ID == j.seg.ID }) {
		return false, err
	}
	return true, nil
}

// onRemoved takes a removed row out of the picture, if it was in it.
func (s *state) onRemoved(id tiers.SegmentID) {
	for _, to := range []tiers.SegmentState{tiers.DeleteStarted, tiers.DeleteFinished} {
		if x, err := s.index.Move(id, to); err == nil {
			s.index = x
		}
	}
}

type undoDone struct {
	undoJob
	err error
}

func (r undoDone) on(s *state) {
	u := &s.undo
	u.busy = false
	stale := tiers.KindOf(r.err) == tiers.StaleFence
	if r.err == nil || stale { // stale: the segment is somebody else's business now
		u.rows = slices.DeleteFunc(u.rows, func(o tiers.RemoteSegment) bool { return o.ID == r.seg.ID })
		u.retry = backoff{}
		s.onRemoved(r.seg.ID)
		s.log.Debug("removed what a copy left behind", "base", r.seg.Base, "id", r.seg.ID, "stale", stale)
		return
	}
	u.retry = u.retry.next(s.now(), s.jitter)
	// Others may work: the stubborn one goes to the end.
	u.rows = append(slices.DeleteFunc(u.rows, func(o tiers.RemoteSegment) bool { return o.ID == r.seg.ID }), r.seg)
	told := s.log.Debug
	if u.retry.failures == 1 {
		told = s.log.Warn
	}
	s.onRetainAnswer(tiers.E(copyKind(r.err), "remove segment", s.place, "[%d,%d): %w", r.seg.Base, r.seg.End, r.err))
	told("cannot remove what a copy left behind: it is tried again until it works", "base", r.seg.Base, "id", r.seg.ID, "error", r.err)
}

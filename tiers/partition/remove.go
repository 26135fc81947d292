package partition

// Remove (R11): segments that nobody can read any more go from the bucket, many at
// a time:
//
//	onRemove -> markJob (rows DeleteStarted) -> the index and the View without them
//	         -> Retention.Delay, for readers that are on them still (report 047)
//	         -> dropJob (claim, objects, rows gone)
//
// Rows in DeleteStarted are what is to be done, so a crash forgets nothing
// (reports 127, 129). What fails is tried again, with growing pauses; one stubborn
// object does not hold up the others. Only keys that such a row names are ever
// deleted.

import (
	"context"
	"time"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/remote"
)

// removeBatch is how many segments go at once; two keys each stay below S3's 1000
// per request.
const removeBatch = 200

// removing is what is to be removed.
type removing struct {
	list  []removal
	known map[tiers.SegmentID]bool
	busy  bool
	retry backoff
	alone bool // the last batch failed: one by one, to find who is to blame
}

// removal is one segment on its way out.
type removal struct {
	seg    tiers.RemoteSegment
	marked bool      // its row is in DeleteStarted
	at     time.Time // not before
}

// onRemove puts a segment on the list.
func (s *state) onRemove(seg tiers.RemoteSegment, at time.Time) {
	r := &s.remove
	if r.known[seg.ID] {
		return
	}
	if r.known == nil {
		r.known = map[tiers.SegmentID]bool{}
	}
	r.known[seg.ID] = true
	r.list = append(r.list, removal{seg, seg.State == tiers.DeleteStarted, at})
}

// next is the batch that is due, all of the same step.
func (r *removing) next(now time.Time) []removal {
	var batch []removal
	for _, x := range r.list {
		if x.at.After(now) || len(batch) > 0 && x.marked != batch[0].marked {
			continue
		}
		if batch = append(batch, x); len(batch) == removeBatch || r.alone {
			break
		}
	}
	return batch
}

// wakeAt is when the first of the list is due, zero if it is empty.
func (r *removing) wakeAt() (at time.Time) {
	for _, x := range r.list {
		if at.IsZero() || x.at.Before(at) {
			at = x.at
		}
	}
	if !at.IsZero() && at.Before(r.retry.at) {
		return r.retry.at
	}
	return at
}

// onPlanRemove starts the next batch.
func (s *state) onPlanRemove() {
	r := &s.remove
	if !s.bucket || r.busy || len(r.list) == 0 || !r.retry.due(s.plannedAt) {
		return
	}
	batch := r.next(s.plannedAt)
	if len(batch) == 0 {
		return
	}
	r.busy = true
	if batch[0].marked {
		s.todo = append(s.todo, dropJob{s.fence(), batch, s.id.Name})
		return
	}
	s.todo = append(s.todo, markJob{s.fence(), batch, s.id.Name})
}

// markJob moves rows to DeleteStarted.
type markJob struct {
	fence Fence
	batch []removal
	name  tiers.TopicPartition
}

func (j markJob) point() Point { return Point{"remove.mark", j.name, j.batch[0].seg.Base} }

func (j markJob) run(ctx context.Context, t tools) outcome {
	for i, x := range j.batch {
		if err := t.registry.DeleteStarted(ctx, j.fence, x.seg.ID); err != nil {
			return markDone{j, i, err}
		}
	}
	return markDone{j, len(j.batch), nil}
}

type markDone struct {
	markJob
	done int // so many are marked
	err  error
}

func (r markDone) on(s *state) {
	s.remove.busy = false
	if s.offline() != nil {
		return
	}
	at := s.now().Add(s.config.Retention.Delay)
	for _, x := range r.batch[:r.done] {
		s.onMoved(x.seg.ID, tiers.DeleteStarted)
		s.remove.change(x.seg.ID, func(x *removal) { x.marked, x.at = true, at })
	}
	if r.err == nil {
		s.onRemoveWorks()
		return
	}
	// The row may have gone, or moved: what the rows say now decides.
	s.indexOld = true
	s.remove.forget(r.batch[r.done].seg.ID)
	s.onRemoveFailed(r.batch[r.done].seg, r.err)
}

// dropJob removes objects and then their rows.
type dropJob struct {
	fence Fence
	batch []removal
	name  tiers.TopicPartition
}

func (j dropJob) point() Point { return Point{"remove.drop", j.name, j.batch[0].seg.Base} }

func (j dropJob) run(ctx context.Context, t tools) outcome {
	if err := t.mayDelete(ctx); err != nil {
		return dropDone{j, 0, err}
	}
	keys := make([]string, 0, 2*len(j.batch))
	for _, x := range j.batch {
		keys = append(keys, remote.SegmentKey(x.seg), remote.MetaKey(x.seg))
	}
	if err := t.cache.Bucket().Delete(ctx, keys...); err != nil {
		return dropDone{j, 0, tiers.E(remoteKind(err), "delete objects", keys[0], "%w", err)}
	}
	for i, x := range j.batch {
		if err := t.registry.DeleteFinished(ctx, j.fence, x.seg.ID); err != nil {
			return dropDone{j, i, err}
		}
	}
	return dropDone{j, len(j.batch), nil}
}

type dropDone struct {
	dropJob
	done int // so many are gone
	err  error
}

func (r dropDone) on(s *state) {
	s.remove.busy = false
	if s.offline() != nil {
		return
	}
	var bytes int64
	for _, x := range r.batch[:r.done] {
		bytes += x.seg.Size
		s.onMoved(x.seg.ID, tiers.DeleteStarted)
		s.onMoved(x.seg.ID, tiers.DeleteFinished)
		s.remove.forget(x.seg.ID)
	}
	s.metrics.freed("remote", r.done, bytes)
	if r.err == nil {
		s.onRemoveWorks()
		return
	}
	s.remove.last(r.batch[r.done].seg.ID)
	s.remove.alone = true
	s.onRemoveFailed(r.batch[r.done].seg, r.err)
}

// onMoved brings the index in line with a row. The row is the truth: an index that
// does not take it is made anew.
func (s *state) onMoved(id tiers.SegmentID, to tiers.SegmentState) {
	x, err := s.index.Move(id, to)
	if err != nil {
		s.indexOld = true
		return
	}
	s.index = x
}

func (s *state) onRemoveWorks() {
	if s.remove.retry.failures > 0 {
		s.log.Info("removing from the bucket works again", "failures", s.remove.retry.failures)
	}
	s.remove.retry, s.remove.alone = backoff{}, false
}

func (s *state) onRemoveFailed(seg tiers.RemoteSegment, err error) {
	r := &s.remove
	r.retry = r.retry.next(s.now(), s.jitter)
	told := s.log.Debug
	if r.retry.failures == 1 {
		told = s.log.Warn
	}
	told("a segment could not be removed from the bucket: it is tried again until it works", "base", seg.Base, "id", seg.ID, "waiting", len(r.list), "error", err)
	s.metrics.retainFailed()
	s.onRetainAnswer(tiers.E(copyKind(err), "remove segment", s.place, "[%d,%d): %w", seg.Base, seg.End, err))
}

func (r *removing) change(id tiers.SegmentID, f func(*removal)) {
	for i := range r.list {
		if r.list[i].seg.ID == id {
			f(&r.list[i])
			return
		}
	}
}

func (r *removing) forget(id tiers.SegmentID) {
	delete(r.known, id)
	for i := range r.list {
		if r.list[i].seg.ID == id {
			r.list = append(r.list[:i], r.list[i+1:]...)
			return
		}
	}
}

// last puts a segment behind all others.
func (r *removing) last(id tiers.SegmentID) {
	for i := range r.list {
		if x := r.list[i]; x.seg.ID == id {
			r.list = append(append(r.list[:i], r.list[i+1:]...), x)
			return
		}
	}
}

package partition

import (
	"context"
	"slices"
	"time"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/remote"
)

// removeJob takes one step for some segments. It may run again after it stopped
// anywhere.
type removeJob struct {
	fence Fence
	name  tiers.TopicPartition
	phase phase
	alone bool
	segs  []tiers.RemoteSegment
}

func (j removeJob) limit() int {
	if j.alone {
		return removeAlone
	}
	return removeBatch
}

func (j removeJob) point() Point {
	return Point{[...]string{"remove.mark", "remove.drop", "remove.row"}[j.phase], j.name, j.segs[0].Base}
}

// removed is what became of one segment.
type removed struct {
	err   error
	noRow bool
}

// removeDone has a result for each segment that was tried, in order. stop is why
// the others were not.
type removeDone struct {
	removeJob
	results []removed
	stop    error
}

func (j removeJob) run(ctx context.Context, t tools) outcome {
	r := removeDone{removeJob: j}
	switch j.phase {
	case condemned:
		r.stop = r.mark(ctx, t.registry)
	case emptied:
		r.stop = r.forget(ctx, t.registry)
	case marked:
		if r.stop = t.mayDelete(ctx); r.stop == nil {
			r.empty(ctx, t.cache.Bucket())
		}
	}
	return r
}

// mark moves the rows to DeleteStarted: from then on nobody can finish a copy.
func (r *removeDone) mark(ctx context.Context, registry Registry) error {
	var rows []tiers.RemoteSegment
	var read bool
	for _, seg := range r.segs {
		err := registry.DeleteStarted(ctx, r.fence, seg.ID)
		if err != nil && tiers.KindOf(err) != tiers.Conflict {
			return err
		}
		if err != nil && !read {
			var readErr error
			if rows, readErr = registry.Segments(ctx, r.fence.Partition, r.fence.Gen); readErr != nil {
				return readErr
			}
			read = true
		}
		// Without a row there is nothing to mark; that is found out by asking.
		noRow := err != nil && !slices.ContainsFunc(rows, func(row tiers.RemoteSegment) bool { return row.ID == seg.ID })
		if noRow {
			err = nil
		}
		r.results = append(r.results, removed{err, noRow})
	}
	return nil
}

// empty deletes the objects.
func (r *removeDone) empty(ctx context.Context, bucket remote.Bucket) {
	if !r.alone {
		err := deleteObjects(ctx, bucket, r.segs...)
		for range r.segs {
			r.results = append(r.results, removed{err: err})
		}
		return
	}
	failures := 0
	for _, seg := range r.segs {
		err := deleteObjects(ctx, bucket, seg)
		r.results = append(r.results, removed{err: err})
		if err != nil {
			failures++
		}
		if failures == giveUpAfter {
			return
		}
	}
}

func deleteObjects(ctx context.Context, bucket remote.Bucket, segs ...tiers.RemoteSegment) error {
	keys := make([]string, 0, 2*len(segs))
	for _, seg := range segs {
		keys = append(keys, remote.SegmentKey(seg), remote.MetaKey(seg))
	}
	if err := bucket.Delete(ctx, keys...); err != nil {
		return tiers.E(remoteKind(err), "delete objects", keys[0], "of %d segments: %w", len(segs), err)
	}
	return nil
}

// forget removes the rows.
func (r *removeDone) forget(ctx context.Context, registry Registry) error {
	for _, seg := range r.segs {
		err := registry.DeleteFinished(ctx, r.fence, seg.ID)
		if err != nil && tiers.KindOf(err) != tiers.Conflict {
			return err
		}
		r.results = append(r.results, removed{err: err})
	}
	return nil
}

// on brings the step home.
func (r removeDone) on(s *state) {
	q := &s.remove
	q.busy, q.marks, q.dirty = false, false, true
	switch {
	case s.offline() != nil:
		return
	case tiers.KindOf(r.stop) == tiers.StaleFence:
		s.log.Debug("segments are not removed: this node does not lead the partition any more", "segments", len(q.list))
		q.fenced = true
		q.drop(func(*doomed) bool { return true })
		s.onRetainAnswer(tiers.E(tiers.NotLeader, "remove segments", s.place, "%w", r.stop))
		return
	}
	var done []tiers.SegmentID
	err, first := r.stop, r.stop != nil && q.retry.failures == 0
	for i, res := range r.results {
		d := q.byID[r.segs[i].ID]
		if d == nil || d.phase != r.phase {
			continue // the rows that were read meanwhile said more
		}
		if res.err == nil {
			done = append(done, d.seg.ID)
			s.onStep(d, res.noRow)
			continue
		}
		err, first = res.err, first || d.failures == 0
		d.at = backoff{failures: d.failures}.next(s.now(), s.jitter).at
		d.failures, d.err, d.alone = d.failures+1, res.err, r.phase == marked
	}
	s.onMoved(r.phase, done)
	if r.phase == condemned && len(done) < len(r.segs) {
		s.indexOld = true // what was not marked may count still
	}
	switch {
	case len(done) > 0 && q.retry.failures > 0:
		s.log.Info("removing segments from the bucket works again", "failures", q.retry.failures)
		q.retry = backoff{}
	case len(done) == 0:
		q.retry = q.retry.next(s.now(), s.jitter)
	}
	if err != nil {
		s.onRemoveFailed(r.removeJob, first, err)
	}
}

// onRemoveFailed tells, the first time aloud.
func (s *state) onRemoveFailed(j removeJob, first bool, err error) {
	told := s.log.Debug
	if first {
		told = s.log.Warn
	}
	told("cannot remove segments from the bucket: it is tried again until it works",
		"base", j.segs[0].Base, "segments", len(j.segs), "waiting", len(s.remove.list), "step", j.point().Name, "error", err)
	s.metrics.retainFailed()
	s.onRetainAnswer(tiers.E(copyKind(err), "remove segments", s.place, "[%d,%d): %w", j.segs[0].Base, j.segs[0].End, err))
}

// onStep notes that a segment has come one step on.
func (s *state) onStep(d *doomed, noRow bool) {
	now := s.now()
	d.failures, d.err, d.alone, d.at = 0, nil, false, time.Time{}
	switch d.phase {
	case condemned:
		d.phase, d.since, d.noRow = marked, now, noRow
		if d.readable {
			d.at = now.Add(s.config.Retention.Delay)
		}
	case marked:
		d.phase = emptied
		s.metrics.deleted("remote", d.reason, 1, d.seg.Size)
		s.log.Debug("removed the objects of a segment", "base", d.seg.Base, "end", d.seg.End, "id", d.seg.ID, "reason", d.reason)
	case emptied:
	}
}

// onMoved shows in the index what was done, for all of them at once.
func (s *state) onMoved(p phase, done []tiers.SegmentID) {
	all := true
	switch p {
	case condemned:
		s.index, all = s.index.MoveAll(done, tiers.DeleteStarted)
	case marked:
		s.remove.drop(func(d *doomed) bool { return d.phase == emptied && d.noRow })
	case emptied:
		s.index, all = s.index.MoveAll(done, tiers.DeleteFinished)
		gone := make(map[tiers.SegmentID]bool, len(done))
		for _, id := range done {
			gone[id] = true
		}
		s.remove.drop(func(d *doomed) bool { return gone[d.seg.ID] })
	}
	if !all { // the rows are the truth: an index that does not take them is made anew
		s.indexOld = true
	}
}

package partition

// Settle: nobody knows whether a change of a row happened, because the answer got
// lost. Nothing is deleted before the registry was asked (R3).

import (
	"context"
	"slices"

	"github.com/strandline-io/strandline/tiers"
)

// settleJob asks the registry what became of a change whose outcome is unknown.
// Nothing is deleted before the answer.
type settleJob struct {
	attempt
	cause error
}

func (j settleJob) point() Point { return j.at("copy.settle") }

func (j settleJob) run(ctx context.Context, t tools) outcome {
	rows, err := t.registry.Segments(ctx, j.fence.Partition, j.fence.Gen)
	r := settleDone{attempt: j.attempt, cause: j.cause, err: err}
	if i := slices.IndexFunc(rows, func(row tiers.RemoteSegment) bool { return row.ID == j.seg.ID }); i >= 0 {
		r.state = rows[i].State
	}
	return r
}

type settleDone struct {
	attempt
	cause error
	state tiers.SegmentState // zero: there is no row
	err   error
}

func (r settleDone) on(s *state) {
	switch {
	case s.offline() != nil:
		s.onCopyEnded()
	case r.err != nil:
		// Nothing is deleted. The rows are read before the next copy is planned, and
		// say whether this one counts or is left over.
		s.indexOld = true
		s.onCopyFailed(r.seg, r.cause)
	case r.state == tiers.CopyFinished:
		s.todo = append(s.todo, applyJob{r.attempt})
	default:
		// Without a row only objects can be left, under keys that no row will ever
		// name: undo sees to both.
		s.onUndo(r.seg)
		s.onCopyFailed(r.seg, r.cause)
	}
}

// reloadJob reads the rows again.
type reloadJob struct {
	tokens tokens
	fence  Fence
	name   tiers.TopicPartition
}

func (j reloadJob) point() Point { return Point{"index.reload", j.name, tiers.NoOffset} }

func (j reloadJob) run(ctx context.Context, t tools) outcome {
	rows, err := t.registry.Segments(ctx, j.fence.Partition, j.fence.Gen)
	return reloadDone{j.tokens, rows, err}
}

type reloadDone struct {
	tokens tokens
	rows   []tiers.RemoteSegment
	err    error
}

// on replaces the index. The rows are the truth whatever happened to the log, but
// the coverage that is derived from them must not mix two moments: a stale answer
// is asked for again (F4).
func (r reloadDone) on(s *state) {
	s.reloading = false
	switch {
	case s.offline() != nil:
	case r.err != nil:
		s.copyRetry = s.copyRetry.next(s.now(), s.jitter)
		s.log.Debug("cannot read the rows of the remote segments", "error", r.err)
		s.onWaitersFailed(r.err)
		s.onRetainAnswer(tiers.E(copyKind(r.err), "apply retention", s.place, "it is not known what the bucket holds: %w", r.err))
	case r.tokens != s.tokens():
	default:
		s.indexOld, s.remove.dirty = false, true
		s.onRows(r.rows)
		if len(s.retain.waiters) > 0 {
			s.onRetain()
		}
	}
}

package partition

// Trim: the log start moves up, because a client asked for it (DeleteRecords,
// KIP-107) or because retention decided so. Both take the same way:
//
//	want -> raiseJob (control plane and bucket) -> raiseDone: disk, View -> what is below goes
//
// The start is remembered before anybody sees it, and everybody sees it before
// anything is removed (R8, report 049).

import (
	"context"
	"slices"

	"github.com/strandline-io/strandline/tiers"
)

// raising is where the log start is to go.
type raising struct {
	want    tiers.Offset // at or below LogStart: nothing is to be done
	reason  string       // why it is to go there
	busy    bool
	callers []trimCaller
	owed    owed
}

// owed is a start that the control plane has and the bucket does not have for
// certain: a restart would begin there, so this life goes there too. Every pass
// asks for it again, and passes come with growing pauses while that fails.
type owed struct {
	to     tiers.Offset // at or below LogStart: none
	reason string
}

// trimCaller waits for the log start to reach a target.
type trimCaller struct {
	target tiers.Offset
	answer chan<- trimAnswer // has room for one
}

type trimAnswer struct {
	start tiers.Offset
	err   error
}

// DeleteRecords removes what is below upTo, in every tier: LogStart moves there,
// in the middle of a segment too. tiers.NoOffset stands for the high watermark.
// It returns the log start that holds afterwards, which is above upTo if it was so
// before. The new start is remembered in the control plane, in the bucket and on
// disk before it returns, and every reader sees it; files and objects go in the
// background. Above the high watermark it is OffsetOutOfRange and changes nothing
// (B2).
func (o *Owner) DeleteRecords(ctx context.Context, upTo tiers.Offset) (tiers.Offset, error) {
	const op = "delete records"
	answer := make(chan trimAnswer, 1)
	if err := o.do(ctx, op, func(s *state) { s.onDeleteRecords(upTo, answer) }); err != nil {
		return tiers.NoOffset, err
	}
	select {
	case a := <-answer:
		return a.start, a.err
	case <-ctx.Done():
		return tiers.NoOffset, tiers.E(tiers.TimedOut, op, o.place, "the records may still be deleted: %w", context.Cause(ctx))
	}
}

func (s *state) onDeleteRecords(upTo tiers.Offset, answer chan<- trimAnswer) {
	const op = "delete records"
	refuse := func(err error) { answer <- trimAnswer{tiers.NoOffset, err} }
	if err := s.offline(); err != nil {
		refuse(err)
		return
	}
	m := s.marks()
	if upTo == tiers.NoOffset {
		upTo = m.HighWatermark
	}
	switch {
	case upTo < 0:
		refuse(tiers.E(tiers.InvalidRequest, op, s.place, "offset %d: it is negative", upTo))
	case upTo > m.HighWatermark:
		refuse(tiers.E(tiers.OffsetOutOfRange, op, s.place, "offset %d is above the high watermark %d", upTo, m.HighWatermark))
	case upTo <= m.LogStart:
		answer <- trimAnswer{m.LogStart, nil}
	default:
		s.raise.callers = append(s.raise.callers, trimCaller{upTo, answer})
		s.onWantStart(upTo, reasonTrim)
	}
}

// onWantStart has the log start go to o, if it is below.
func (s *state) onWantStart(o tiers.Offset, reason string) {
	if o > s.raise.want {
		s.raise.want, s.raise.reason = o, reason
	}
}

// onWantOwed asks again for a start that is remembered in part.
func (s *state) onWantOwed() {
	if to := min(s.raise.owed.to, s.marks().HighWatermark); to > s.local.LogStart() {
		s.onWantStart(to, s.raise.owed.reason)
	}
}

// onUnwish forgets where retention wants the log start: it decides anew.
func (s *state) onUnwish() {
	s.raise.want = s.local.LogStart()
	for _, c := range s.raise.callers {
		s.onWantStart(c.target, reasonTrim)
	}
}

// onPlanRaise answers those whose target every reader sees, and starts the next
// step up.
func (s *state) onPlanRaise() {
	r := &s.raise
	r.callers = slices.DeleteFunc(r.callers, func(c trimCaller) bool {
		if c.target > s.view.LogStart {
			return false
		}
		c.answer <- trimAnswer{s.view.LogStart, nil}
		return true
	})
	if r.busy || r.want <= s.view.LogStart {
		return
	}
	r.busy = true
	s.todo = append(s.todo, raiseJob{s.tokens(), s.fence(), s.id.Name, r.want, r.reason})
}

// raiseJob has the new start remembered.
type raiseJob struct {
	tokens tokens
	fence  Fence
	name   tiers.TopicPartition
	to     tiers.Offset
	reason string
}

func (j raiseJob) point() Point { return Point{"start.raise", j.name, j.to} }

func (j raiseJob) run(ctx context.Context, t tools) outcome {
	return raiseDone{j, t.registry.RaiseLogStart(ctx, j.fence, j.to)}
}

type raiseDone struct {
	raiseJob
	err error
}

// risen reports whether the control plane has the new start although the raise
// failed: Registry.RaiseLogStart answers RemoteUnavailable then.
func (r raiseDone) risen() bool {
	return r.err == nil || tiers.KindOf(r.err) == tiers.RemoteUnavailable
}

// on brings the new start home. From here on it is remembered, so the local log
// must have it too.
func (r raiseDone) on(s *state) {
	s.raise.busy = false
	if r.risen() && r.to > s.raise.owed.to {
		s.raise.owed = owed{r.to, r.reason}
	}
	switch {
	case s.offline() != nil:
		s.onRaiseFailed(s.offline())
	case r.err != nil:
		s.onRaiseFailed(tiers.E(copyKind(r.err), "raise log start", s.place, "to %d: %w", r.to, r.err))
	case r.tokens != s.tokens():
		s.onRaiseFailed(tiers.E(tiers.NotLeader, "raise log start", s.place, "the log changed while its start moved to %d: try again", r.to))
	default:
		if err := s.local.RaiseLogStart(r.to); err != nil {
			s.onRaiseFailed(s.diskFailed("raise log start", err))
			return
		}
		s.log.Debug("the log start moved", "to", r.to, "reason", r.reason)
		s.holeTold = false // the hole may lie below
		s.remove.note(r.to, r.reason)
		s.onRetained()
		s.onLook()
	}
}

// onTrimsFailed answers everybody who waits for the log start or for retention.
func (s *state) onTrimsFailed(err error) {
	for _, c := range s.raise.callers {
		c.answer <- trimAnswer{tiers.NoOffset, err}
	}
	s.raise.callers = nil
	s.onRetainAnswer(err)
}

// onRaiseFailed answers everybody. Nothing was removed; retention decides anew
// later, with growing pauses, and asks for what is owed.
func (s *state) onRaiseFailed(err error) {
	s.onTrimsFailed(err)
	s.raise.want = s.local.LogStart()
	s.onRetainFailed(err)
}

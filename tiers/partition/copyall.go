package partition

// CopyAll waits for the copier, which goes on by itself.

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/strandline-io/strandline/tiers"
)

// copyWaiter waits for RemoteEnd to reach a target.
type copyWaiter struct {
	target tiers.Offset
	answer chan<- error // has room for one
}

// CopyAll has every closed segment copied, and returns when RemoteEnd has reached
// the end of the last one that was closed at the call, or with the first error.
func (o *Owner) CopyAll(ctx context.Context) error {
	answer := make(chan error, 1)
	if err := o.do(ctx, "copy", func(s *state) { s.onCopyAll(answer) }); err != nil {
		return err
	}
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return tiers.E(tiers.TimedOut, "copy", o.place, "copying goes on: %w", context.Cause(ctx))
	}
}

func (s *state) onCopyAll(answer chan<- error) {
	if err := s.offline(); err != nil {
		answer <- err
		return
	}
	if !s.tiered() {
		answer <- tiers.E(tiers.InvalidConfig, "copy", s.place, "segments are not copied: it takes a bucket, remote.storage.enable=true and remote.log.copy.disable=false")
		return
	}
	segs := s.local.Segments()
	target := segs[len(segs)-1].Base // the last closed one ends where the active one begins
	s.waiters = append(s.waiters, copyWaiter{target, answer})
	s.copyRetry.at = time.Time{}
	s.remove.hurry()
	s.rested = rested{}
}

// onWaiters answers those whose target is reached.
func (s *state) onWaiters() {
	if len(s.waiters) == 0 {
		return
	}
	end := s.view.RemoteEnd
	s.waiters = slices.DeleteFunc(s.waiters, func(w copyWaiter) bool {
		if end < w.target {
			return false
		}
		w.answer <- nil
		return true
	})
}

// onWaitersFailed answers everybody.
func (s *state) onWaitersFailed(err error) {
	for _, w := range s.waiters {
		w.answer <- err
	}
	s.waiters = nil
}

// onNothingToCopy tells those who wait that copying does not bring them on: only a
// client can decide a transaction, and only an operator can fill a hole.
func (s *state) onNothingToCopy(until tiers.Offset) {
	if len(s.waiters) == 0 {
		return
	}
	reason := "nothing is left to copy"
	if until != noLimit {
		reason = fmt.Sprintf("the segment that ends at %d is not decided yet (R1)", until)
	}
	s.onWaitersFailed(tiers.E(tiers.OffsetNotAvailable, "copy", s.place,
		"the remote tier ends at %d, the last stable offset is %d: %s", s.view.RemoteEnd, s.view.LastStable, reason))
}

package partition

// Retention (R6-R10, R13): what is due leaves the local disk, and the log. A pass
// decides (package plan), frees local files of what is safe in the bucket at once,
// and moves the log start by trim.go; what lies below the log start is removed by
// remove.go. Nothing is removed because a pass says so: only because the log
// start, which everybody knows by then, says that nobody can read it.

import (
	"context"
	"slices"
	"time"

	"github.com/strandline-io/strandline/remoteindex"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/plan"
)

// The reasons for which segments go, as metrics have them.
const (
	reasonAge       = "age"
	reasonSize      = "size"
	reasonCopied    = "copied"    // from disk only, the bucket has it (local.retention.*)
	reasonTrim      = "trim"      // DeleteRecords
	reasonDisable   = "disable"   // remote storage was switched off
	reasonLeftover  = "leftover"  // of a copy that failed
	reasonDuplicate = "duplicate" // another copy covers it
	reasonBelow     = "below"     // the log start passed it in an earlier life
)

// Future is a segment with a record that is dated in the future.
type Future = plan.Future

// retainEvery is Kafka's log.retention.check.interval.ms.
const retainEvery = 5 * time.Minute

// retaining is what is kept between two passes.
type retaining struct {
	every    time.Duration
	at       time.Time      // of the next pass; zero: at once
	rolled   bool           // the last pass closed the active segment: the next one does not
	failures int            // in a row
	waiters  []chan<- error // of Retain; each has room for one
	held     *plan.Future   // what a record from the future holds, as it was told; nil: nothing
	dated    tiers.Offset   // segments that end at or below it went by the time of their file, and that was told
}

// Retain runs retention passes now, and returns when what was due at the call is
// gone from both tiers (but for objects that wait out Retention.Delay), or with
// the first error. It has the active segment closed if that is due, and waits for
// the copies that must come first.
func (o *Owner) Retain(ctx context.Context) error {
	// Worst: copy what is older, close the active segment, copy that, delete it. On a
	// busy log with hardly any retention there is always more.
	for range 4 {
		if err := o.retainOnce(ctx); err != nil {
			return err
		}
		var due bool
		if err := o.do(ctx, "apply retention", func(s *state) { due = s.dueOnceCopied() }); err != nil || !due {
			return err
		}
		if err := o.CopyAll(ctx); err != nil {
			return tiers.E(copyKind(err), "apply retention", o.place, "what is due is to be copied first: %w", err)
		}
	}
	return nil
}

// retainOnce runs a pass, and those that follow from it.
func (o *Owner) retainOnce(ctx context.Context) error {
	answer := make(chan error, 1)
	if err := o.do(ctx, "apply retention", func(s *state) { s.onRetainAsked(answer) }); err != nil {
		return err
	}
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return tiers.E(tiers.TimedOut, "apply retention", o.place, "it goes on: %w", context.Cause(ctx))
	}
}

// dueOnceCopied reports whether something is due now, or once closed segments are
// copied. If an open transaction keeps them from that they are not waited for.
func (s *state) dueOnceCopied() bool {
	if s.offline() != nil || s.unknown() || !s.tiered() {
		return false
	}
	f := s.passFacts(slices.Collect(s.index.All()))
	active := f.Total.Local[len(f.Total.Local)-1]
	return active.Base <= s.view.LastStable && plan.DueOnceCopied(f, s.now())
}

func (s *state) onRetainAsked(answer chan<- error) {
	if err := s.offline(); err != nil {
		answer <- err
		return
	}
	s.retain.waiters = append(s.retain.waiters, answer)
	s.remove.hurry()
	s.copyRetry.at = time.Time{} // of reading the rows
	s.onRetain()
}

// onRetainDue runs a pass if its time has come.
func (s *state) onRetainDue(now time.Time) {
	if !now.Before(s.retain.at) {
		s.onRetain()
	}
}

// limits are the total and the local limits that hold now.
func (s *state) limits() (total, onDisk plan.Limits) {
	if r := s.config.Retention; r.On {
		return r.Total, r.Local
	}
	none := plan.Limits{Bytes: plan.Forever, Age: plan.Forever}
	return none, none
}

// onRetain is one pass.
func (s *state) onRetain() {
	if s.closing || s.offline() != nil {
		return
	}
	now, failed := s.now(), s.retain.failures
	s.retain.at = now.Add(s.jitter(s.retain.every))
	var p plan.Pass
	if s.quiet(now) {
		p = s.onlyLocal(now)
	} else {
		p = plan.Retention(s.passFacts(slices.Collect(s.index.All())), now)
	}
	s.onHeld(p.Held)
	s.onDated(p.Dated)
	s.onFree(p.DropBefore)
	s.retain.rolled = p.Roll && !s.retain.rolled && s.onRoll() == nil // an error was told; a later pass tries again
	if s.retain.rolled {
		s.retain.at = now // what was closed may be due itself
	}
	reason := reasonSize
	if p.ByAge {
		reason = reasonAge
	}
	if onDisk := s.local.LocalLogStart(); s.forgetting() && onDisk > p.LogStart {
		p.LogStart, reason = onDisk, reasonDisable
	}
	s.onWantOwed()
	s.onWantStart(p.LogStart, reason)
	if s.raise.want <= s.local.LogStart() && s.retain.failures == failed {
		s.onRetained()
	}
}

// onRetained ends a row of failures.
func (s *state) onRetained() {
	if s.retain.failures > 0 {
		s.log.Info("retention works again", "failures", s.retain.failures)
	}
	s.retain.failures = 0
}

// onLook frees what a copy, or a log start that moved, has made free: the part of
// a pass that costs little. It closes no segment, or a client that trims all that
// it has read would make a segment of each trim.
func (s *state) onLook() { s.onFree(s.onlyLocal(s.now()).DropBefore) }

// onlyLocal decides without the rows: the total limits move nothing.
func (s *state) onlyLocal(now time.Time) plan.Pass {
	f := s.passFacts(nil)
	f.Total.Suspended = true
	return plan.Retention(f, now)
}

// quiet reports whether the total limits certainly move nothing. That is so nearly
// always, and spares the walk over all rows.
func (s *state) quiet(now time.Time) bool {
	total, _ := s.limits()
	if total.Bytes >= 0 {
		_, bytes := s.index.Readable()
		for _, seg := range s.local.Segments() {
			bytes += seg.Size
		}
		if bytes > total.Bytes {
			return false
		}
	}
	if total.Age < 0 {
		return true
	}
	l, start, end := s.local.Lineage(), s.local.LogStart(), s.local.LogEnd()
	for row := range s.index.All() {
		if row.State == tiers.CopyFinished && remoteindex.Within(row, l, start, end) {
			return total.Young(row, now) // the oldest
		}
	}
	return false
}

// passFacts are the facts of now, which the last View need not show yet.
func (s *state) passFacts(rows []tiers.RemoteSegment) plan.PassFacts {
	m := s.marks()
	total, onDisk := s.limits()
	return plan.PassFacts{
		Total: plan.TotalFacts{
			Rows: rows, Local: localFacts(s.local.Segments()), Lineage: s.local.Lineage(),
			Floor: m.LogStart, LogEnd: m.LogEnd, Copying: s.copyingAt(), Limits: total, Suspended: s.unknown(),
		},
		HighWatermark: m.HighWatermark, RemoteEnd: m.RemoteEnd, Copied: s.tiered(), Local: onDisk,
	}
}

// unknown reports whether the rows may not be all that the bucket holds: then
// nothing is due by size or age (report 001).
func (s *state) unknown() bool { return s.indexOld || s.reloading || s.refused != nil }

// copyingAt is where the segment that is being copied begins.
func (s *state) copyingAt() tiers.Offset {
	if s.copying == nil {
		return tiers.NoOffset
	}
	return s.copying.seg.Base
}

// onHeld tells of a segment that would be due but for a record from the future
// (report 110).
func (s *state) onHeld(seg *plan.Future) {
	was := s.retain.held
	if seg == was || seg != nil && was != nil && *seg == *was {
		return
	}
	if seg != nil {
		s.log.Warn("a record dated in the future keeps segments that are older than retention.ms: retention.bytes still counts, and strandline topic trim removes them",
			"base", seg.Base, "end", seg.Next, "newest", time.UnixMilli(seg.MaxTimestamp).UTC())
	}
	s.metrics.held(count(seg != nil) - count(was != nil))
	s.retain.held = seg
}

// onDated tells, once for each, of segments that leave the log by the time of their
// file because that of their records is no age (report 110).
func (s *state) onDated(segs []plan.Future) {
	for _, seg := range segs {
		if seg.Next <= s.retain.dated {
			continue
		}
		s.retain.dated = seg.Next
		s.metrics.outdated()
		s.log.Warn("a segment with a record dated in the future is deleted by the time of its last append: retention.ms has ended since",
			"base", seg.Base, "end", seg.Next, "newest", time.UnixMilli(seg.MaxTimestamp).UTC())
	}
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

// onFree removes the local segments that end at or below o. Readers that are on
// them go on (report 091).
func (s *state) onFree(o tiers.Offset) {
	before := s.local.Segments()
	err := s.local.DropBefore(o)
	after := s.local.Segments()
	if gone := before[:len(before)-len(after)]; len(gone) > 0 {
		var bytes int64
		for _, seg := range gone {
			bytes += seg.Size
			reason := reasonCopied
			if seg.Next <= s.local.LogStart() {
				reason = s.remove.reasonOf(seg.Next)
			}
			s.metrics.deleted("local", reason, 1, seg.Size)
		}
		s.log.Debug("freed local segments", "segments", len(gone), "bytes", bytes, "local_log_start", s.local.LocalLogStart())
	}
	if err != nil {
		s.onRetainFailed(s.diskFailed("free segments", err))
	}
}

// onRetainFailed has the next pass come earlier than usual, but later each time.
func (s *state) onRetainFailed(err error) {
	told := s.log.Debug
	if s.retain.failures == 0 {
		told = s.log.Warn
	}
	told("retention could not be applied: nothing is lost, it is tried again", "failures", s.retain.failures+1, "error", err)
	next := backoff{failures: s.retain.failures}.next(s.now(), s.jitter)
	s.retain.failures, s.retain.at = next.failures, next.at
	s.metrics.retainFailed()
	s.onRetainAnswer(err)
}

// onPlanRetain answers Retain once nothing is left to do. Rows that are not
// understood hold all up until an operator has seen to them.
func (s *state) onPlanRetain() {
	if s.refused != nil && !s.indexOld && !s.reloading {
		s.onRetainAnswer(s.refused)
	}
	if len(s.retain.waiters) == 0 || s.raise.busy || s.raise.want > s.view.LogStart || s.unknown() || !s.remove.idle(s.plannedAt) || s.forget.busy || !s.plannedAt.Before(s.retain.at) {
		return
	}
	s.onRetainAnswer(nil)
}

// onRetainAnswer answers everybody who waits for retention.
func (s *state) onRetainAnswer(err error) {
	for _, w := range s.retain.waiters {
		w <- err
	}
	s.retain.waiters = nil
}

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

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/plan"
)

// retainEvery is Kafka's log.retention.check.interval.ms.
const retainEvery = 5 * time.Minute

// retaining is what is kept between two passes.
type retaining struct {
	every    time.Duration
	at       time.Time       // of the next pass; zero: at once
	failures int             // in a row
	waiters  []chan<- error  // of Retain; each has room for one
	held     tiers.SegmentID // what a record from the future holds, as it was told; zero: nothing
}

// Retain runs a retention pass now, and returns when what was due at the call is
// gone from both tiers (but for objects that wait out Retention.Delay), or with
// the first error.
func (o *Owner) Retain(ctx context.Context) error {
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

func (s *state) onRetainAsked(answer chan<- error) {
	if err := s.offline(); err != nil {
		answer <- err
		return
	}
	s.retain.waiters = append(s.retain.waiters, answer)
	s.remove.retry.at, s.undo.retry.at = time.Time{}, time.Time{}
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
	now := s.now()
	s.retain.at = now.Add(s.jitter(s.retain.every))
	facts := s.passFacts()
	for _, row := range facts.Total.Rows {
		if facts.Total.Gone(row) {
			s.onRemove(row, now)
		}
	}
	p := plan.Retention(facts, now)
	s.onHeld(p.Held)
	s.onFree(p.DropBefore)
	if p.Roll {
		_ = s.onRoll() // the error was told; a later pass tries again
	}
	if s.forgetting() {
		p.LogStart = max(p.LogStart, s.onForget(now))
	}
	s.onWantStart(p.LogStart)
}

// passFacts are the facts of now, which the last View need not show yet.
func (s *state) passFacts() plan.PassFacts {
	m := s.marks()
	total, onDisk := s.limits()
	f := plan.PassFacts{
		Total: plan.TotalFacts{
			Rows: slices.Collect(s.index.All()), Local: localFacts(s.local.Segments()), Lineage: s.local.Lineage(),
			Floor: m.LogStart, LogEnd: m.LogEnd, Copying: tiers.NoOffset, Limits: total,
			Suspended: s.indexOld || s.reloading || s.refused != nil, // report 001: the rows may not be all
		},
		HighWatermark: m.HighWatermark, RemoteEnd: m.RemoteEnd, Copied: s.tiered(), Local: onDisk,
	}
	if s.copying != nil {
		f.Total.Copying = s.copying.seg.Base
	}
	return f
}

// onHeld tells of a segment that would be due but for a record from the future
// (report 110).
func (s *state) onHeld(seg *tiers.RemoteSegment) {
	var id tiers.SegmentID
	if seg != nil {
		id = seg.ID
	}
	if id == s.retain.held {
		return
	}
	if seg != nil {
		s.log.Warn("a record dated in the future keeps segments that are older than retention.ms: retention.bytes still counts, and strandline topic trim removes them",
			"base", seg.Base, "end", seg.End, "newest", time.UnixMilli(seg.MaxTimestamp).UTC())
	}
	s.metrics.held(count(seg != nil) - count(s.retain.held != tiers.SegmentID{}))
	s.retain.held = id
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

// forgetting reports whether the topic's remote storage was switched off with the
// wish that what is in the bucket goes (KIP-950).
func (s *state) forgetting() bool {
	return !s.config.Remote && s.config.Retention.ForgetRemote && !s.indexOld && !s.reloading && s.refused == nil
}

// onForget returns where the log is to start, and once it does, removes what the
// bucket holds: it is all on disk then.
func (s *state) onForget(now time.Time) tiers.Offset {
	onDisk := s.local.LocalLogStart()
	if s.local.LogStart() < onDisk {
		return onDisk
	}
	for row := range s.index.All() {
		if row.State == tiers.CopyFinished && row.End <= s.local.LogEnd() {
			s.onRemove(row, now)
		}
	}
	return onDisk
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
		}
		s.metrics.freed("local", len(gone), bytes)
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

// onPlanRetain answers Retain once nothing is left to do.
func (s *state) onPlanRetain() {
	if s.raise.busy || s.raise.want > s.view.LogStart || s.remove.busy || s.remove.next(s.now()) != nil || s.undo.busy || len(s.undo.rows) > 0 ||
		s.indexOld || s.reloading {
		return
	}
	s.retain.failures = 0
	s.onRetainAnswer(nil)
}

func (s *state) onRetainAnswer(err error) {
	for _, w := range s.retain.waiters {
		w <- err
	}
	s.retain.waiters = nil
}

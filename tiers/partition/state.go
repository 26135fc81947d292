package partition

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/strandline-io/strandline/remoteindex"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/local"
	"github.com/strandline-io/strandline/tiers/remote"
)

// state belongs to the loop goroutine. Nobody else may hold a *state.
type state struct {
	// Never changes.
	id      Identity
	place   string
	cluster string
	bucket  bool // there is one
	now     func() time.Time
	newID   func() tiers.SegmentID
	jitter  func(time.Duration) time.Duration
	log     hclog.Logger
	metrics *Metrics

	// The local tier.
	config      Config
	local       *local.Log
	history     tiers.HistoryID
	incarnation uint64       // of local: another one replaced it (F6)
	committed   tiers.Offset // the high watermark; see marks
	flushAt     time.Time    // of AckInterval: when to sync next; zero: nothing to sync
	rollRetry   backoff      // of a roll by age
	expireAt    time.Time    // when to look for producers to forget; zero: at once
	buffers     *local.Buffers

	// The remote tier.
	index     *remoteindex.Index
	refused   error // rows that index leaves out: nil if none
	indexOld  bool  // the rows may say more than index: read them again
	reloading bool
	copying   *attempt // the copy under way, nil if there is none
	copyRetry backoff
	trouble   *CopyTrouble // why copies fail, nil while they do not
	rested    rested
	remove    removing
	raise     raising
	retain    retaining
	forget    forgetting
	waiters   []copyWaiter
	cover     cover
	plannedAt time.Time // when onPlan looked last
	lagging   int64     // bytes that the gauge holds of this partition
	holeTold  bool

	// Why the doors are shut.
	failed  error // the disk
	fenced  error // replaced
	ended   error // closed
	closing bool

	// What the last step wants of the loop, and what the world has seen.
	todo []job
	view *View // the last one published
}

// tokens tell whether the state that a job was planned on is still the state
// (spec s0.3, H2, F3, F6).
type tokens struct {
	history     tiers.HistoryID
	incarnation uint64
	truncations uint64
	epoch       tiers.LeaderEpoch
}

func (s *state) tokens() tokens {
	return tokens{s.history, s.incarnation, s.local.Truncations(), s.id.Epoch}
}

// tools is what a worker may use. It never changes.
type tools struct {
	cache    *remote.Cache
	registry Registry
	now      func() time.Time
	may      func(context.Context) error // Deps.MayDelete
}

func (o *Owner) tools() tools {
	return tools{cache: o.deps.Cache, registry: o.deps.Registry, now: o.deps.Now, may: o.deps.MayDelete}
}

// mayDelete returns why nothing may be deleted from the bucket now.
func (t tools) mayDelete(ctx context.Context) error {
	if t.may == nil {
		return nil
	}
	return t.may(ctx)
}

// offline is why nothing is served, nil while the partition lives.
func (s *state) offline() error {
	switch {
	case s.ended != nil:
		return s.ended
	case s.fenced != nil:
		return s.fenced
	}
	return s.failed
}

// marks is the ladder of offsets as of now. The high watermark follows what is
// on disk where acknowledged means that, and the log end elsewhere; it never
// goes back except with a truncation.
func (s *state) marks() tiers.Watermarks {
	w := tiers.Watermarks{LogStart: s.local.LogStart(), LocalLogStart: s.local.LocalLogStart(), LogEnd: s.local.LogEnd()}
	safe := w.LogEnd
	if s.config.Ack == AckFsync {
		safe = s.local.Flushed()
	}
	s.committed = min(max(s.committed, safe, w.LogStart), w.LogEnd)
	w.HighWatermark = s.committed
	w.LastStable = max(w.LogStart, min(w.HighWatermark, s.local.FirstUndecided()))
	w.RemoteEnd = min(s.covered(w), max(w.LastStable, w.LogStart))
	return w
}

// sync makes the log durable. The partition is offline if it cannot.
func (s *state) sync() error {
	began := s.now()
	if err := s.local.Sync(); err != nil {
		return s.diskFailed("sync", err)
	}
	s.metrics.synced(s.now().Sub(began))
	s.flushAt = time.Time{}
	return nil
}

// diskFailed turns what the disk said into an error of kind StorageFailed. If
// nobody knows what is on disk now, the partition goes offline until it is
// opened again (report 039).
func (s *state) diskFailed(op string, err error) error {
	failed := tiers.E(tiers.StorageFailed, op, s.place, "%w", err)
	switch {
	case errors.Is(err, local.ErrFull):
		return failed // the disk has told, once for all that would
	case s.local.Broken() == nil:
		s.log.Error("the disk refused: nothing was changed", "op", op, "error", err)
		return failed
	}
	if s.failed == nil {
		s.failed = failed
		s.metrics.disk(1)
		s.onWaitersFailed(failed)
		s.onTrimsFailed(failed)
		s.log.Error("the partition is offline until it is opened again, because nobody knows what its disk holds", "op", op, "error", err)
	}
	return failed
}

// untilWake is how long the loop may sleep if nobody calls. A retry that was due
// when the last plan was made was looked at then: something else is in its way,
// and will wake the loop.
func (s *state) untilWake() time.Duration {
	now, wake := s.now(), time.Hour
	if s.offline() != nil || s.closing {
		return wake
	}
	for _, at := range []time.Time{s.flushAt, s.rollAt(), s.removeAt()} {
		if !at.IsZero() {
			wake = min(wake, at.Sub(now))
		}
	}
	wake = min(wake, s.retain.at.Sub(now))
	if s.local.Producers().Len() > 0 {
		wake = min(wake, s.expireAt.Sub(now))
	}
	for _, at := range []time.Time{s.copyRetry.at, s.forget.again} {
		if at.After(s.plannedAt) {
			wake = min(wake, at.Sub(now))
		}
	}
	return max(wake, 0)
}

// onTick does what is due.
func (s *state) onTick() {
	if s.offline() != nil || s.closing {
		return
	}
	now := s.now()
	if !s.flushAt.IsZero() && !now.Before(s.flushAt) {
		_ = s.sync() // the error is in s.failed, and so in the View
	}
	if !now.Before(s.expireAt) {
		s.local.ExpireProducers()
		s.expireAt = now.Add(expiryInterval)
	}
	s.onRollDue(now)
	s.onRetainDue(now)
}

// expiryInterval is how often producers are looked through, as in Kafka
// (producer.id.expiration.check.interval.ms).
const expiryInterval = 10 * time.Minute

// backoff is when to try again, and how often it failed in a row.
type backoff struct {
	failures int
	at       time.Time // zero: at once
}

// The delays between tries of copies and clean-ups.
const (
	firstDelay = time.Second
	maxDelay   = time.Minute
)

// next is the backoff after one more failure.
func (b backoff) next(now time.Time, jitter func(time.Duration) time.Duration) backoff {
	delay := maxDelay
	if b.failures < 6 {
		delay = min(firstDelay<<b.failures, maxDelay)
	}
	return backoff{failures: b.failures + 1, at: now.Add(jitter(delay))}
}

// due reports whether the next try may begin.
func (b backoff) due(now time.Time) bool { return !now.Before(b.at) }

package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/partition"
	"github.com/strandline-io/strandline/tiers/remote"
)

// How long a partition waits before it is opened again: doubled from the first to
// the last. One that fails again soon after it was opened waits longer each time.
const (
	firstReopen  = 500 * time.Millisecond
	lastReopen   = 30 * time.Second // while the bucket or the machine refuses: that passes
	firstSlow    = 30 * time.Second
	lastSlow     = 5 * time.Minute // anything else: somebody must do something first
	settledAfter = 10 * time.Minute
)

// closeBroken bounds how long the workers of an owner whose disk failed may take
// to end before it is opened again.
const closeBroken = 30 * time.Second

// slot is the place of one partition in the directory.
type slot struct {
	identity partition.Identity
	state    atomic.Pointer[slotState] // what look-ups see

	life  context.Context    //nolint:containedctx // of the attempts to open it: ends with close
	stop  context.CancelFunc // ends life
	tried chan struct{}      // closed after the first attempt
	once  sync.Once          // closes it
	nudge chan struct{}      // ends the pause before the next attempt

	mu       sync.Mutex
	config   partition.Config // what the owner should run with
	closed   bool
	attempts chan struct{} // closed when the attempts under way have ended; nil: there are none
	waiting  []chan error  // for the outcome of the next attempt
	acked    tiers.Offset  // an owner of this process has acknowledged up to here
	started  tiers.Offset  // the log start that the last owner served
	closedAt time.Time     // when the last owner had ended; zero: there was none
	openedAt time.Time     // the last time
	relapse  time.Duration // the pause before the attempts of a partition that failed again
	told     string        // the last reason that was logged

	acceptLoss bool // the next attempt may do without records that were acknowledged
}

// slotState is either an owner or the reason why there is none.
type slotState struct {
	owner   *partition.Owner
	leaving *partition.Owner // closes still; look-ups see err
	err     error
	offline bool // could not be opened, as opposed to not yet or no longer
}

// fence stops whatever owner there is. It waits for nobody: whoever holds a
// slot's lock may be waiting for a disk that hangs.
func (st *slotState) fence(reason error) {
	for _, o := range []*partition.Owner{st.owner, st.leaving} {
		if o != nil {
			o.Fence(reason)
		}
	}
}

func (b *Broker) newSlot(t control.Topic, p control.Partition, c partition.Config) *slot {
	s := &slot{
		identity: partition.Identity{
			ID:       tiers.PartitionID{Topic: t.ID, Index: p.Index},
			Name:     tiers.TopicPartition{Topic: t.Name, Partition: p.Index},
			Gen:      p.Gen,
			Epoch:    p.Epoch,
			Node:     b.o.Node.ID,
			LogStart: p.LogStart,
		},
		tried:  make(chan struct{}),
		nudge:  make(chan struct{}, 1),
		config: c,
	}
	s.life, s.stop = context.WithCancel(b.life)
	s.state.Store(&slotState{err: tiers.E(tiers.NotLeader, "find partition", s.identity.Name.String(), "it is being opened")})
	return s
}

// begin starts the attempts to open the slot's partition, after broken, its last
// owner, is closed; nil if there was none. It does nothing while attempts are
// under way, or once the slot is closed. It is called by tasks of the broker only.
func (b *Broker) begin(s *slot, broken *partition.Owner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.attempts != nil {
		return
	}
	s.attempts = make(chan struct{})
	b.tasks.Go(func() { b.keepOpening(s, broken) })
}

// keepOpening opens the slot's partition, again and again until that succeeds:
// soon while the bucket or the machine refuses, later if somebody must do
// something first.
func (b *Broker) keepOpening(s *slot, broken *partition.Owner) {
	defer s.end()
	if broken != nil && !b.replace(s, broken) {
		return
	}
	for failures := 0; ; failures++ {
		err := b.tryOpen(s)
		if s.life.Err() != nil {
			return
		}
		s.tell(err)
		if err == nil {
			return
		}
		wait := reopenPause(err, failures)
		b.goOffline(s, err, wait)
		s.once.Do(func() { close(s.tried) })
		if !s.rest(wait) {
			return
		}
	}
}

// reopenPause is how long to wait after so many failures in a row.
func reopenPause(err error, failures int) time.Duration {
	first, last := firstSlow, lastSlow
	if passes(err) {
		first, last = firstReopen, lastReopen
	}
	return min(first<<min(failures, 10), last)
}

// passes reports whether the cause of an error can go away by itself: a bucket
// that is away, a disk that is full or does not answer.
func passes(err error) bool {
	if kind := tiers.KindOf(err); kind == tiers.RemoteUnavailable || kind == tiers.TimedOut {
		return true
	}
	_, refused := errors.AsType[syscall.Errno](err)
	return refused || errors.Is(err, remote.ErrChecksum) // it may have been the way here
}

// replace closes an owner whose disk failed, and waits if that happens again and
// again. It reports false if the slot was closed meanwhile.
func (b *Broker) replace(s *slot, broken *partition.Owner) bool {
	v, name := broken.View(), s.identity.Name.String()
	s.mu.Lock()
	s.acked = max(s.acked, v.HighWatermark)
	if b.o.Now().Sub(s.openedAt) > settledAfter {
		s.relapse = 0
	}
	wait := s.relapse
	s.relapse = min(max(2*s.relapse, firstReopen), lastSlow)
	if !s.closed {
		s.state.Store(&slotState{leaving: broken, offline: true, err: tiers.E(tiers.StorageFailed, "find partition", name, "it is offline and being opened again: %w", v.Err)})
	}
	s.mu.Unlock()
	b.o.Log.Warn("a partition whose disk failed is opened again", "partition", name, "after", wait, "acknowledged", v.HighWatermark, "err", v.Err)
	ctx, cancel := context.WithTimeout(s.life, closeBroken)
	defer cancel()
	if err := broken.Close(ctx); err != nil {
		b.o.Log.Debug("closing it", "partition", name, "err", err)
	}
	s.mu.Lock()
	s.closedAt, s.started = b.o.Now(), max(s.started, broken.View().LogStart)
	s.mu.Unlock()
	return wait == 0 || s.rest(wait)
}

// rest waits, less if somebody asks to go on, and reports false if the slot was
// closed meanwhile.
func (s *slot) rest(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.nudge:
	case <-s.life.Done():
		return false
	}
	return s.life.Err() == nil
}

// end lets others begin anew.
func (s *slot) end() {
	s.once.Do(func() { close(s.tried) })
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.attempts)
	s.attempts = nil
}

// tell gives the outcome of an attempt to those who wait for it.
func (s *slot) tell(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.waiting {
		c <- err // there is room for one
	}
	s.waiting = nil
}

func (b *Broker) goOffline(s *slot, err error, wait time.Duration) {
	name := s.identity.Name.String()
	s.state.Store(&slotState{
		offline: true,
		err:     tiers.E(tiers.StorageFailed, "find partition", name, "it is offline: %w", err),
	})
	s.mu.Lock()
	again := s.told == err.Error()
	s.told = err.Error()
	s.mu.Unlock()
	switch {
	case again: // it was told
	case passes(err):
		b.o.Log.Warn("partition is offline, trying again", "partition", name, "after", wait, "err", err)
	default:
		b.o.Log.Error("partition is offline: remove the cause; it is tried again, and at once by `strandline topic reopen`", "partition", name, "after", wait, "err", err)
	}
}

// tryOpen opens the partition once, when its turn comes.
func (b *Broker) tryOpen(s *slot) error {
	ctx := s.life
	select {
	case b.openings <- struct{}{}:
		defer func() { <-b.openings }()
	case <-ctx.Done():
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	id, config, deps, closedAt, started := s.identity, s.config, b.deps(s.identity), s.closedAt, s.started
	deps.Acknowledged, deps.AcceptLoss = s.acked, s.acceptLoss
	s.mu.Unlock()
	if !closedAt.IsZero() { // its owner may have raised the log start
		var err error
		if id.LogStart, err = b.startAgain(ctx, id, closedAt, max(id.LogStart, started)); err != nil {
			return err
		}
	}
	owner, err := partition.Open(ctx, id, config, deps)
	if err != nil {
		return err
	}
	b.serve(ctx, s, owner, config)
	return nil
}

// serve makes the owner visible. What was asked of the slot while it opened is
// done now.
func (b *Broker) serve(ctx context.Context, s *slot, owner *partition.Owner, opened partition.Config) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if was := s.state.Load(); was.offline {
		b.o.Log.Info("partition is back", "partition", s.identity.Name.String(), "log_end", owner.View().LogEnd)
	}
	s.openedAt, s.told, s.acked, s.acceptLoss = b.o.Now(), "", 0, false
	s.state.Store(&slotState{owner: owner})
	// Broker.Fence sets fenced first and then looks at the slots; here the owner
	// is shown first: one of the two sees the other.
	if reason := b.fenced.Load(); reason != nil {
		owner.Fence(reason)
	}
	if s.config != opened {
		if err := owner.Configure(ctx, s.config); err != nil {
			b.o.Log.Error("partition runs with old settings", "partition", s.identity.Name.String(), "err", err)
		}
	}
}

func (b *Broker) deps(id partition.Identity) partition.Deps {
	return partition.Deps{
		FS:          b.o.FS,
		Dir:         PartitionDir(b.o.DataDir, id.ID),
		Disk:        b.o.Disk,
		Cache:       b.o.Cache,
		Registry:    b.registry,
		Scheduler:   b.o.Scheduler,
		MayDelete:   b.mayDelete,
		RetainEvery: b.o.RetainEvery,
		Cluster:     b.o.Node.Cluster,
		Now:         b.o.Now,
		NewID:       b.o.NewID,
		Log:         b.o.Log.Named("partition").With("partition", id.Name.String()),
		Metrics:     b.o.Metrics,
	}
}

// mayDelete is asked before objects that rows name are deleted.
func (b *Broker) mayDelete(ctx context.Context) error {
	if err := b.lost("delete objects", "this node"); err != nil {
		return err
	}
	return b.checkClaim(ctx)
}

// configure changes the settings of the slot's partition, now or once it opens.
func (s *slot) configure(ctx context.Context, c partition.Config) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.config == c {
		return nil
	}
	s.config = c
	if o := s.state.Load().owner; o != nil {
		return o.Configure(ctx, c)
	}
	return nil
}

// close ends the attempts to open the partition and closes its owner.
func (s *slot) close(ctx context.Context) error {
	s.stop()
	s.mu.Lock()
	s.closed = true
	attempts := s.attempts
	s.mu.Unlock()
	if attempts != nil {
		<-attempts
	}
	s.tell(tiers.E(tiers.Closed, "open partition", s.identity.Name.String(), "it is being closed on this node"))
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.state.Load().owner
	s.state.Store(&slotState{leaving: o, err: tiers.E(tiers.NotLeader, "find partition", s.identity.Name.String(), "it is closed")})
	if o == nil {
		return nil
	}
	return o.Close(ctx)
}

// closeSlots closes many partitions at once, a bounded number at a time.
func (b *Broker) closeSlots(ctx context.Context, slots []*slot) error {
	var (
		g    errgroup.Group
		mu   sync.Mutex
		errs []error
	)
	g.SetLimit(max(32, b.o.OpenAtOnce))
	for _, s := range slots {
		g.Go(func() error {
			if err := s.close(ctx); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, fmt.Errorf("close %s: %w", s.identity.Name, err))
			}
			return nil
		})
	}
	_ = g.Wait() // the errors are in errs, all of them
	return errors.Join(errs...)
}

// awaitTried waits until each slot was tried once, or ctx ends.
func awaitTried(ctx context.Context, slots []*slot) {
	for _, s := range slots {
		select {
		case <-s.tried:
		case <-ctx.Done():
			return
		}
	}
}

// pause waits, and reports false if ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

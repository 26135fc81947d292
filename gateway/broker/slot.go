package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/partition"
)

// How long a partition waits before it is opened again when the bucket could not
// be reached: doubled from the first to the last.
const (
	firstReopen = 500 * time.Millisecond
	lastReopen  = 30 * time.Second
)

// slot is the place of one partition in the directory.
type slot struct {
	identity partition.Identity
	state    atomic.Pointer[slotState] // what look-ups see

	stop  context.CancelFunc // ends the attempts to open it
	done  chan struct{}      // closed once nobody tries to open it any more
	tried chan struct{}      // closed after the first attempt

	mu     sync.Mutex
	config partition.Config // what the owner should run with
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
		done:   make(chan struct{}),
		tried:  make(chan struct{}),
		config: c,
	}
	s.state.Store(&slotState{err: tiers.E(tiers.NotLeader, "find partition", s.identity.Name.String(), "it is being opened")})
	return s
}

// keepOpening opens the slot's partition, again and again while the bucket
// cannot be reached. Any other failure needs an operator: it stays offline.
func (b *Broker) keepOpening(ctx context.Context, s *slot) {
	defer close(s.done)
	first := sync.OnceFunc(func() { close(s.tried) })
	defer first()
	for wait := firstReopen; ; wait = min(2*wait, lastReopen) {
		err := b.tryOpen(ctx, s)
		if err == nil || ctx.Err() != nil {
			return
		}
		retry := tiers.KindOf(err) == tiers.RemoteUnavailable
		b.goOffline(s, err, retry, wait)
		first()
		if !retry || !pause(ctx, wait) {
			return
		}
	}
}

func (b *Broker) goOffline(s *slot, err error, retry bool, wait time.Duration) {
	name := s.identity.Name.String()
	s.state.Store(&slotState{
		offline: true,
		err:     tiers.E(tiers.StorageFailed, "find partition", name, "it is offline: %w", err),
	})
	if retry {
		b.o.Log.Warn("partition is offline, trying again", "partition", name, "after", wait, "err", err)
		return
	}
	b.o.Log.Error("partition is offline until the node restarts", "partition", name, "err", err)
}

// tryOpen opens the partition once, when its turn comes.
func (b *Broker) tryOpen(ctx context.Context, s *slot) error {
	select {
	case b.openings <- struct{}{}:
		defer func() { <-b.openings }()
	case <-ctx.Done():
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	config := s.config
	s.mu.Unlock()
	owner, err := partition.Open(ctx, s.identity, config, b.deps(s.identity))
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
		FS:        b.o.FS,
		Dir:       PartitionDir(b.o.DataDir, id.ID),
		Disk:      b.o.Disk,
		Cache:     b.o.Cache,
		Registry:  b.registry,
		Scheduler: b.o.Scheduler,
		Cluster:   b.o.Node.Cluster,
		Now:       b.o.Now,
		NewID:     b.o.NewID,
		Log:       b.o.Log.Named("partition").With("partition", id.Name.String()),
		Metrics:   b.o.Metrics,
	}
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
	<-s.done
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

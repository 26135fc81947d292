package broker

import (
	"context"
	"sync"
	"time"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/partition"
)

// A partition whose disk failed comes back without a restart: its owner is closed
// and opened again, which recovers what is on disk. Nothing that this process has
// acknowledged may be missing then: a log that ends below it stays offline until
// an operator accepts the loss.

// guardEvery is how often the disk and the partitions are looked at.
const guardEvery = time.Second

// guardForEver looks after the disk's room and brings back what failed.
func (b *Broker) guardForEver(ctx context.Context) {
	b.guard()
	t := time.NewTicker(guardEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-b.reopens:
		case <-ctx.Done():
			return
		}
		b.guard()
	}
}

func (b *Broker) guard() {
	b.o.Disk.CheckRoom()
	if err := b.o.Disk.Mend(); err != nil {
		b.o.Log.Debug("the disk stays offline", "err", err)
	}
	if b.fenced.Load() != nil {
		return
	}
	for _, s := range b.Catalog().slots() {
		if o := s.state.Load().owner; o != nil && failed(o) {
			b.begin(s, o)
		}
	}
}

// failed reports whether the owner's disk failed, as opposed to its being closed
// or replaced.
func failed(o *partition.Owner) bool {
	err := o.View().Err
	return err != nil && tiers.KindOf(err) == tiers.StorageFailed
}

// Reopen has a partition that is offline opened at once instead of later, and
// returns the outcome. One that serves is left alone. With acceptLoss it is
// opened although records are gone that this process had acknowledged.
func (b *Broker) Reopen(ctx context.Context, topic string, index int32, acceptLoss bool) error {
	const op = "reopen partition"
	if err := b.lost(op, topic); err != nil {
		return err
	}
	e, ok := b.Catalog().byName[topic]
	if !ok {
		return tiers.E(tiers.UnknownTopicOrPartition, op, topic, "there is no such topic")
	}
	if index < 0 || int(index) >= len(e.slots) {
		return tiers.E(tiers.UnknownTopicOrPartition, op, topic, "partition %d: the topic has %d", index, len(e.slots))
	}
	outcome := e.slots[index].await(acceptLoss)
	if outcome == nil {
		return nil
	}
	b.wake(b.reopens)
	select {
	case err := <-outcome:
		return err
	case <-ctx.Done():
		return tiers.E(tiers.TimedOut, op, topic, "partition %d: it goes on in the background: %w", index, context.Cause(ctx))
	}
}

// await asks for the next attempt now and returns where its outcome comes; nil if
// the partition serves.
func (s *slot) await(acceptLoss bool) <-chan error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.state.Load().owner; o != nil && !failed(o) {
		return nil
	}
	outcome := make(chan error, 1)
	if s.closed {
		outcome <- tiers.E(tiers.Closed, "open partition", s.identity.Name.String(), "it is being closed on this node")
		return outcome
	}
	s.acceptLoss = s.acceptLoss || acceptLoss
	s.waiting = append(s.waiting, outcome)
	select {
	case s.nudge <- struct{}{}:
	default: // it is asked for already
	}
	return outcome
}

// startAgain returns the log start with which a partition is opened again whose
// last owner served one of had. What its row says beyond that counts only once it
// is in the bucket (R8): the raise may be what failed, and below the log start of
// an owner objects go.
func (b *Broker) startAgain(ctx context.Context, id partition.Identity, closedAt time.Time, had tiers.Offset) (tiers.Offset, error) {
	row, err := b.rows.logStart(ctx, b, id.ID, closedAt)
	if err != nil || row <= had {
		return had, err
	}
	rev, err := b.o.Store.LastRev(ctx)
	if err != nil {
		return had, tiers.E(tiers.Other, "open partition", id.Name.String(), "read the last change: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, b.o.ClaimEvery) // others wait for their turn to open
	defer cancel()
	err = b.putChanges(ctx, rev)
	switch {
	case err == nil:
		return row, nil
	case b.fenced.Load() != nil:
		return had, err
	}
	b.wake(b.flushes)
	b.o.Log.Warn("a log start is not known to be in the bucket and is not used yet: the partition starts where it did",
		"partition", id.Name.String(), "log_start", had, "row", row, "err", err)
	return had, nil
}

// rowsAsOf keeps the log starts of all partitions for those that are opened again
// in one go: a disk that fails takes thousands with it.
type rowsAsOf struct {
	mu     sync.Mutex
	read   time.Time // when the reading began
	starts map[tiers.PartitionID]tiers.Offset
}

// logStart returns the log start in the control plane's row as of some moment
// after since. A row that is gone has none: opening the partition says so.
func (r *rowsAsOf) logStart(ctx context.Context, b *Broker, id tiers.PartitionID, since time.Time) (tiers.Offset, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.read.After(since) {
		began := b.o.Now()
		topics, err := b.o.Store.Topics(ctx)
		if err != nil {
			return 0, tiers.E(tiers.Other, "open partition", id.String(), "read its row: %w", err)
		}
		r.read, r.starts = began, map[tiers.PartitionID]tiers.Offset{}
		for _, t := range topics {
			for _, p := range t.Partitions {
				if p.LogStart > 0 {
					r.starts[tiers.PartitionID{Topic: t.ID, Index: p.Index}] = p.LogStart
				}
			}
		}
	}
	return r.starts[id], nil
}

package broker

import (
	"context"
	"time"

	"github.com/strandline-io/strandline/tiers"
)

// every runs f each time the interval has passed, until ctx ends.
func every(ctx context.Context, interval time.Duration, f func(context.Context)) {
	t := time.NewTicker(interval)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			f(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// Fence stops this node from acknowledging or answering anything from now on,
// because its hold on the bucket was lost. Only Close remains.
func (b *Broker) Fence(reason error) {
	e := tiers.E(tiers.NotLeader, "serve", "this node", "it was replaced and acknowledges nothing any more: %w", reason)
	if !b.fenced.CompareAndSwap(nil, e) {
		return
	}
	b.o.Log.Error("FENCED: another start has taken over the bucket. This node stops serving. "+
		"If that was not meant to be, two nodes share one bucket prefix: stop both, then start the one that should stay", "err", reason)
	for _, s := range b.Catalog().slots() {
		s.state.Load().fence(e)
	}
}

func (b *Broker) snapshotForEver(ctx context.Context) {
	every(ctx, b.o.SnapshotEvery, func(ctx context.Context) {
		if b.fenced.Load() != nil {
			return
		}
		err := b.snapshot(ctx)
		switch {
		case err == nil || ctx.Err() != nil:
		case tiers.KindOf(err) == tiers.StaleFence:
			b.Fence(err)
		default:
			b.o.Log.Warn("no snapshot of the control plane in the bucket, trying again later", "after", b.o.SnapshotEvery, "err", err)
		}
	})
}

func (b *Broker) snapshot(ctx context.Context) error {
	if err := b.o.Journal.Snapshot(ctx); err != nil {
		return err
	}
	now := b.o.Now()
	b.snapshotAt.Store(&now)
	return nil
}

// Segments that are closed one after the other must not have the checkpoints
// written without a break: with 10,000 partitions one takes some 70 ms.
const (
	checkpointPause = 250 * time.Millisecond
	checkpointShare = 10 // at most this part of the time is spent on them
)

// checkpointForEver writes the recovery points regularly, and when a segment was
// closed: what is in it is durable, and a crash need not look at it again.
func (b *Broker) checkpointForEver(ctx context.Context) {
	t := time.NewTicker(b.o.CheckpointEvery)
	defer t.Stop()
	var failed bool
	for {
		select {
		case <-t.C:
		case <-b.o.Disk.Due():
		case <-ctx.Done():
			return
		}
		began := b.o.Now()
		err := b.o.Disk.Checkpoint()
		took := b.o.Now().Sub(began)
		if err != nil && !failed {
			b.o.Log.Error("checkpoints were not written: recovery after a crash will read more", "err", err)
		}
		failed = err != nil
		if !pause(ctx, max(checkpointPause, checkpointShare*took)) {
			return
		}
	}
}

package broker

import (
	"context"
	"time"
)

// Parts of an upload that was cut off are paid for and shown by no listing of
// objects. What is a day old is under way no more: an upload takes minutes.
const (
	sweepEvery = 24 * time.Hour
	sweepAge   = 24 * time.Hour
)

// sweepForEver drops uploads that an earlier run left, at once and then daily,
// and objects that no row names daily. Those can wait at the start: they are a
// day old in any case, and a node that starts has other things to ask the bucket.
func (b *Broker) sweepForEver(ctx context.Context) {
	b.dropUploads(ctx)
	every(ctx, sweepEvery, func(ctx context.Context) {
		b.dropUploads(ctx)
		b.dropOrphans(ctx)
	})
}

func (b *Broker) dropUploads(ctx context.Context) {
	if b.fenced.Load() != nil {
		return
	}
	err := b.checkClaim(ctx)
	var dropped int
	if err == nil {
		dropped, err = b.o.Cache.Bucket().AbortStale(ctx, sweepAge)
	}
	if dropped > 0 {
		b.o.Log.Info("dropped uploads that were never finished", "uploads", dropped, "older_than", sweepAge)
	}
	if err != nil && ctx.Err() == nil && b.fenced.Load() == nil {
		b.o.Log.Warn("unfinished uploads in the bucket are left, trying again later", "after", sweepEvery, "err", err)
	}
}

func (b *Broker) dropOrphans(ctx context.Context) {
	rep, err := b.Sweep(ctx, SweepRequest{})
	switch {
	case ctx.Err() != nil || b.fenced.Load() != nil:
	case err != nil:
		b.o.Log.Warn("the bucket was not swept, trying again later", "after", sweepEvery, "err", err)
	case rep.Err != nil:
		b.o.Log.Warn("the bucket was not swept completely, trying again later", "after", sweepEvery, "err", rep.Err)
	case rep.Orphans.Count+rep.Unknown.Count+rep.Foreign.Count > 0:
		b.o.Log.Info("swept the bucket", "orphans", rep.Orphans.Count, "bytes", rep.Orphans.Bytes, "deleted", rep.Deleted, "of_before", rep.Unknown.Count, "foreign", rep.Foreign.Count)
	}
}

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

// sweepForEver drops uploads that an earlier run left: at once, then daily.
func (b *Broker) sweepForEver(ctx context.Context) {
	b.sweep(ctx)
	every(ctx, sweepEvery, b.sweep)
}

func (b *Broker) sweep(ctx context.Context) {
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

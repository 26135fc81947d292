package broker

import (
	"context"
	"slices"
	"time"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/remote"
)

// The rows of a deleted topic's segments stay until their objects are gone, so a
// restart in between forgets nothing (report 129). Keys come from rows only,
// never from a listing: nothing else can be hit.
const (
	buryBatch = 400 // segments; two keys each stay below S3's 1000 per request
	firstBury = time.Second
	lastBury  = time.Minute
)

// buryForEver deletes doomed objects whenever it is woken, again and again while
// the bucket fails.
func (b *Broker) buryForEver(ctx context.Context) {
	for {
		select {
		case <-b.burials:
		case <-ctx.Done():
			return
		}
		for wait := firstBury; ; wait = min(2*wait, lastBury) {
			err := b.bury(ctx)
			if err == nil || ctx.Err() != nil || b.fenced.Load() != nil {
				break
			}
			b.o.Log.Warn("objects of deleted topics are left, trying again", "after", wait, "err", err)
			if !pause(ctx, wait) {
				return
			}
		}
	}
}

// bury deletes the objects of doomed segments until none is left that may go.
func (b *Broker) bury(ctx context.Context) error {
	for limit := buryBatch; ; {
		doomed, err := b.o.Store.Doomed(ctx, limit)
		if err != nil {
			return err
		}
		ready := slices.DeleteFunc(slices.Clone(doomed), b.mustWait)
		if len(ready) == 0 {
			if len(doomed) < limit {
				return nil // the rest is woken for when its topic has retired
			}
			limit *= 2 // look behind those that must wait
			continue
		}
		if err := b.buryBatch(ctx, ready[:min(len(ready), buryBatch)]); err != nil {
			return err
		}
	}
}

// mustWait holds back the segments of a topic that clients still see, because
// its deletion is not in the bucket yet, or whose owners still close.
func (b *Broker) mustWait(s tiers.RemoteSegment) bool {
	// In this order: a topic retires before it leaves the catalog.
	if _, visible := b.Catalog().TopicByID(s.Partition.Topic); visible {
		return true
	}
	return b.retiring.of(s.Partition.Topic) != nil
}

func (b *Broker) buryBatch(ctx context.Context, doomed []tiers.RemoteSegment) error {
	keys := make([]string, 0, 2*len(doomed))
	ids := make([]tiers.SegmentID, len(doomed))
	for i, s := range doomed {
		keys = append(keys, remote.SegmentKey(s), remote.MetaKey(s))
		ids[i] = s.ID
	}
	// Whoever has taken the bucket over may have these segments in its rows, and
	// no delete can be taken back.
	if err := b.mayDelete(ctx); err != nil {
		return err
	}
	if err := b.o.Cache.Bucket().Delete(ctx, keys...); err != nil {
		return tiers.E(tiers.RemoteUnavailable, "delete objects", keys[0], "%w", err)
	}
	if err := b.o.Store.Buried(ctx, b.o.Session, ids...); err != nil {
		return err
	}
	b.o.Log.Info("deleted the objects of deleted topics", "segments", len(doomed))
	return nil
}

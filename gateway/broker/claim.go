package broker

import (
	"context"
	"sync"
	"time"

	"github.com/strandline-io/strandline/tiers"
)

// claimMisses is how many reads of the claim in a row may fail before health
// warns: one is noise, three are half a minute in which nobody would notice a
// second node.
const claimMisses = 3

// claimWatch is what the reads of the claim have shown.
type claimWatch struct {
	mu     sync.Mutex
	at     time.Time // the claim was ours at this time, for certain
	misses int       // reads that failed since
	err    error     // of the last one
}

// note enters the outcome of a read that began at the given time.
func (w *claimWatch) note(began time.Time, err error) (misses int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.misses++
		w.err = err
		return w.misses
	}
	if began.After(w.at) {
		w.at = began
	}
	w.misses, w.err = 0, nil
	return 0
}

// report returns when the claim was last seen to be ours, and why that is not
// known any more once too many reads have failed.
func (w *claimWatch) report() (at time.Time, unread error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.misses < claimMisses {
		return w.at, nil
	}
	return w.at, tiers.E(tiers.RemoteUnavailable, "check claim", "cluster/claim",
		"not read in %d tries in a row, last ours at %s: whether another start has the bucket is not known: %w",
		w.misses, w.at.UTC().Format(time.RFC3339), w.err)
}

// checkClaim reads the claim once, for at most ClaimEvery. One that is somebody
// else's fences this node and is StaleFence; any other error proves nothing, and
// whoever is about to do what cannot be undone must not do it.
func (b *Broker) checkClaim(ctx context.Context) error {
	if b.o.Claim == nil {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, b.o.ClaimEvery)
	defer cancel()
	began := b.o.Now()
	err := b.o.Claim.Check(bounded)
	switch {
	case ctx.Err() != nil && tiers.KindOf(err) != tiers.StaleFence: // the caller left: says nothing of the bucket
		return err
	case tiers.KindOf(err) == tiers.StaleFence:
		b.Fence(err)
		return b.lost("check claim", "this node")
	}
	b.claim.note(began, err)
	return err
}

// watchClaim reads the claim again and again. A bucket that cannot be reached
// proves nothing: only a claim that is somebody else's fences.
func (b *Broker) watchClaim(ctx context.Context) {
	every(ctx, b.o.ClaimEvery, func(ctx context.Context) {
		if err := b.checkClaim(ctx); err != nil && ctx.Err() == nil && b.fenced.Load() == nil {
			b.o.Log.Warn("cannot read the claim", "err", err)
		}
	})
}

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

// last returns why the last read failed, nil if it did not or there was none.
func (w *claimWatch) last() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// checkClaim reads the claim, for at most ClaimEvery. One that is somebody else's
// fences this node and is StaleFence; any other error proves nothing, and whoever
// is about to do what cannot be undone must not do it.
//
// A read says something only to those who asked before it began. All who ask while
// one is under way share the next one, so a pass of retention over thousands of
// partitions reads the claim a few times, not thousands.
func (b *Broker) checkClaim(ctx context.Context) error {
	if b.o.Claim == nil {
		return nil
	}
	r, mine := b.reads.join()
	if mine {
		go b.readClaims(r)
	}
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return tiers.E(tiers.TimedOut, "check claim", "cluster/claim", "%w", ctx.Err())
	}
}

// readClaims reads for r, and then for whoever has asked meanwhile.
func (b *Broker) readClaims(r *claimRead) {
	for ; r != nil; r = b.reads.next() {
		r.err = b.readClaim()
		close(r.done)
	}
}

func (b *Broker) readClaim() error {
	ctx, cancel := context.WithTimeout(b.life, b.o.ClaimEvery)
	defer cancel()
	began := b.o.Now()
	err := b.o.Claim.Check(ctx)
	switch {
	case tiers.KindOf(err) == tiers.StaleFence:
		b.Fence(err)
		return b.lost("check claim", "this node")
	case b.life.Err() != nil: // the node stops: says nothing of the bucket
		return err
	}
	b.claim.note(began, err)
	return err
}

// claimReads are the reads of the claim under way: at most one, and one that waits.
type claimReads struct {
	mu      sync.Mutex
	running bool
	waiting *claimRead
}

type claimRead struct {
	done chan struct{} // closed once err is set
	err  error
}

// join returns the read that has not begun yet. If mine, nobody reads: the caller
// must have it done.
func (c *claimReads) join() (r *claimRead, mine bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.running {
		c.running = true
		return &claimRead{done: make(chan struct{})}, true
	}
	if c.waiting == nil {
		c.waiting = &claimRead{done: make(chan struct{})}
	}
	return c.waiting, false
}

// next takes the read that waits, nil if there is none.
func (c *claimReads) next() *claimRead {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.waiting
	c.waiting, c.running = nil, r != nil
	return r
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

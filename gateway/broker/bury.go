package broker

import (
	"context"
	"errors"
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

// giveUpAfter is how many objects in a row may be refused, one by one, before it
// is taken that the bucket refuses all of them.
const giveUpAfter = 10

// buryForEver deletes doomed objects whenever it is woken, again and again while
// the bucket fails.
func (b *Broker) buryForEver(ctx context.Context) {
	g := newBurial(b)
	for {
		select {
		case <-b.burials:
		case <-ctx.Done():
			return
		}
		for wait := firstBury; ; wait = min(2*wait, lastBury) {
			err := g.round(ctx)
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

// burial is what buryForEver remembers from round to round: an object that cannot
// be deleted, because it is locked say, must not hold up the others.
type burial struct {
	*Broker
	failures map[tiers.SegmentID]int  // of those that were refused
	tried    map[tiers.SegmentID]bool // in this round, in vain
}

func newBurial(b *Broker) *burial {
	return &burial{Broker: b, failures: map[tiers.SegmentID]int{}}
}

// round deletes the objects of doomed segments until none is left that may go and
// was not tried. Its error says what was refused, or why it ended early.
func (g *burial) round(ctx context.Context) (left error) {
	g.tried = map[tiers.SegmentID]bool{}
	for limit := buryBatch; ; {
		doomed, err := g.o.Store.Doomed(ctx, limit)
		if err != nil {
			return err
		}
		next, more := g.pick(doomed), len(doomed) == limit
		switch {
		case more && (len(next) == 0 || g.failures[next[0].ID] > 0):
			limit *= 2 // look behind those that must wait, and those that were refused before
			continue
		case len(next) == 0:
			return left // the rest is woken for when its topic has retired
		}
		refused, err := g.batch(ctx, next)
		if err != nil {
			return err
		}
		left = errors.Join(left, refused)
	}
}

// pick returns the segments to try next: of those that may go now, the ones that
// were refused the fewest times.
func (g *burial) pick(doomed []tiers.RemoteSegment) []tiers.RemoteSegment {
	var next []tiers.RemoteSegment
	for _, s := range doomed {
		if g.tried[s.ID] || g.mustWait(s) {
			continue
		}
		if n := g.failures[s.ID]; len(next) > 0 && n != g.failures[next[0].ID] {
			if n > g.failures[next[0].ID] {
				continue
			}
			next = nil
		}
		next = append(next, s)
	}
	return next[:min(len(next), buryBatch)]
}

// batch deletes the objects of segments together, and one by one if that is
// refused. refused is what the bucket says of some; err ends the round.
func (g *burial) batch(ctx context.Context, segs []tiers.RemoteSegment) (refused, err error) {
	refused, err = g.bury(ctx, segs...)
	switch {
	case refused == nil || err != nil:
		return nil, err
	case len(segs) == 1:
		g.refuse(segs[0])
		return refused, nil
	}
	count, inARow := 0, 0
	var last error
	for _, s := range segs {
		refused, err := g.bury(ctx, s)
		if err != nil {
			return nil, err
		}
		inARow++
		if refused == nil {
			inARow = 0
			continue
		}
		count, last = count+1, refused
		g.refuse(s)
		if inARow == giveUpAfter || ctx.Err() != nil {
			return nil, last
		}
	}
	if count == 0 {
		return nil, nil
	}
	return tiers.E(tiers.RemoteUnavailable, "delete objects", "", "those of %d segments are refused, of others deleted: %w", count, last), nil
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

func (g *burial) refuse(s tiers.RemoteSegment) {
	g.tried[s.ID] = true
	g.failures[s.ID]++
}

// bury deletes the objects of segments in one request, and then their rows.
// refused is what the bucket says to that.
func (g *burial) bury(ctx context.Context, doomed ...tiers.RemoteSegment) (refused, err error) {
	keys := make([]string, 0, 2*len(doomed))
	ids := make([]tiers.SegmentID, len(doomed))
	for i, s := range doomed {
		keys = append(keys, remote.SegmentKey(s), remote.MetaKey(s))
		ids[i] = s.ID
	}
	// Whoever has taken the bucket over may have these segments in its rows, and
	// no delete can be taken back.
	if err := g.mayDelete(ctx); err != nil {
		return nil, err
	}
	if err := g.o.Cache.Bucket().Delete(ctx, keys...); err != nil {
		return tiers.E(tiers.RemoteUnavailable, "delete objects", keys[0], "%w", err), nil
	}
	if err := g.o.Store.Buried(ctx, g.o.Session, ids...); err != nil {
		return nil, err
	}
	for _, id := range ids {
		delete(g.failures, id)
	}
	g.o.Log.Info("deleted the objects of deleted topics", "segments", len(doomed))
	return nil, nil
}

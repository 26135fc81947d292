package broker

import (
	"context"

	"github.com/strandline-io/strandline/tiers"
)

// producerBlock is how many producer ids are reserved at once. A restart loses
// the rest of a block, which is nothing of 2^63.
const producerBlock = 1000

// producerIDs hands out reserved producer ids. Whoever holds the token owns the
// block; a channel is it because waiting for the control plane must end with ctx.
type producerIDs struct {
	turn      chan struct{}
	next, end int64
}

// ProducerID returns a producer id that was never given before.
func (b *Broker) ProducerID(ctx context.Context) (int64, error) {
	const op = "make producer id"
	if err := b.lost(op, ""); err != nil {
		return 0, err
	}
	p := &b.producers
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return 0, tiers.E(tiers.TimedOut, op, "", "%w", ctx.Err())
	}
	if p.next == p.end {
		first, err := b.o.Store.ProducerIDs(ctx, b.o.Session, producerBlock)
		if err != nil {
			return 0, err
		}
		p.next, p.end = first, first+producerBlock
	}
	p.next++
	return p.next - 1, nil
}

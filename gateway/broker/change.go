package broker

import (
	"context"
	"errors"
	"time"

	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/tiers"
)

// How long a change that did not reach the bucket waits for the next try.
const (
	firstFlush = time.Second
	lastFlush  = 30 * time.Second
)

// change makes one change of topics: in the control plane, then in the bucket,
// then visible. If the bucket cannot be reached the answer is a retriable error;
// the change stays in the control plane, is published in the background and
// becomes visible then. decide runs with the token held, when every earlier change is
// visible: it checks the request against the catalog. act makes the change.
func (b *Broker) change(ctx context.Context, op, place string, decide func(*Catalog) error, act func(context.Context) error) error {
	if err := b.enter(ctx, op, place); err != nil {
		return err
	}
	defer b.leave()
	ctx, cancel := b.whileAlive(ctx)
	defer cancel()
	if err := b.flush(ctx, notMade); err != nil {
		return err
	}
	if err := decide(b.Catalog()); err != nil {
		return err
	}
	if err := act(ctx); err != nil {
		b.wake(b.flushes) // it may have happened all the same
		return err
	}
	return b.flush(ctx, notVisible)
}

// What it means for whoever made a change that the bucket did not take one.
const (
	notVisible = "it is not known to be in the bucket yet and becomes visible once it is"
	notMade    = "an earlier change is not in the bucket yet: this one was not made; try again"
)

// errDone is what decide returns if there is nothing to do.
var errDone = errors.New("nothing to do")

// enter takes the operations token.
func (b *Broker) enter(ctx context.Context, op, place string) error {
	if err := b.lost(op, place); err != nil {
		return err
	}
	if b.closing.Load() {
		return tiers.E(tiers.Closed, op, place, "the node is stopping")
	}
	select {
	case b.ops <- struct{}{}:
		return nil
	case <-ctx.Done():
		return tiers.E(tiers.TimedOut, op, place, "nothing was done, another change of topics is under way: %w", ctx.Err())
	case <-b.life.Done():
		return tiers.E(tiers.Closed, op, place, "the node is stopping")
	}
}

func (b *Broker) leave() { <-b.ops }

// whileAlive ends with ctx and with the broker, so that Close waits for no bucket.
func (b *Broker) whileAlive(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	release := context.AfterFunc(b.life, cancel)
	return ctx, func() { release(); cancel() }
}

// lost returns an error if this node's claim was lost.
func (b *Broker) lost(op, place string) error {
	if reason := b.fenced.Load(); reason != nil {
		return tiers.E(tiers.StaleFence, op, place, "%w", reason)
	}
	return nil
}

// flush brings the bucket and then the catalog up to date with the control
// plane. The caller holds the token. If the bucket does not take them the error says
// so in these words.
func (b *Broker) flush(ctx context.Context, says string) error {
	last, err := b.o.Store.LastRev(ctx)
	if err != nil {
		b.wake(b.flushes)
		return tiers.E(tiers.Other, "read changes", "control plane", "%w", err)
	}
	if last == b.seen {
		return nil
	}
	if err = b.publish(ctx, last, says); err != nil {
		return err
	}
	topics, err := b.o.Store.Topics(ctx)
	if err != nil {
		b.wake(b.flushes)
		return tiers.E(tiers.Other, "read topics", "control plane", "%w", err)
	}
	b.seen = last
	b.install(topics)
	return nil
}

func (b *Broker) publish(ctx context.Context, rev control.Rev, says string) error {
	err := b.putChanges(ctx, rev)
	if err == nil {
		b.publishing.Store(nil)
		return nil
	}
	if b.fenced.Load() != nil {
		return err
	}
	unpublished := func(says string) *tiers.Error {
		return tiers.E(tiers.RemoteUnavailable, "publish", "the change of topics", "%s: %w", says, err)
	}
	b.publishing.Store(unpublished(notVisible))
	b.wake(b.flushes)
	return unpublished(says)
}

// putChanges returns nil once the bucket has every change up to rev, for certain:
// a start that took over before the write will not read it.
func (b *Broker) putChanges(ctx context.Context, rev control.Rev) error {
	if b.o.Journal == nil {
		return nil
	}
	err := b.o.Journal.Publish(ctx, rev)
	if err == nil {
		err = b.checkClaim(ctx)
	}
	if tiers.KindOf(err) == tiers.StaleFence {
		b.Fence(err)
		return b.lost("publish", "the change")
	}
	return err
}

// flushOnDemand tries again, with growing pauses, to bring out changes that
// could not be published when they were made.
func (b *Broker) flushOnDemand(ctx context.Context) {
	for {
		select {
		case <-b.flushes:
		case <-ctx.Done():
			return
		}
		for wait := firstFlush; pause(ctx, wait); wait = min(2*wait, lastFlush) {
			if b.flushOnce(ctx) {
				break
			}
		}
	}
}

// flushOnce reports whether there is nothing left to publish.
func (b *Broker) flushOnce(ctx context.Context) bool {
	if err := b.enter(ctx, "publish", "changes"); err != nil {
		return true // stopping or fenced: nobody will ask again
	}
	defer b.leave()
	defer b.drain(b.flushes) // flush itself asked for this
	err := b.flush(ctx, notVisible)
	if err != nil {
		b.o.Log.Warn("changes of topics are not in the bucket yet", "err", err)
	}
	return err == nil
}

func (*Broker) drain(c chan struct{}) {
	select {
	case <-c:
	default:
	}
}

// install swaps the catalog for one of these topics, starts the partitions that
// are new, hands changed settings to the others and retires those that are gone.
// The caller holds the token.
func (b *Broker) install(topics []control.Topic) {
	old := b.Catalog()
	entries := make([]*entry, len(topics))
	var fresh []*slot
	for i, t := range topics {
		e := &entry{topic: t}
		before := old.byID[t.ID]
		config := b.settings.config(t.Configs)
		for _, p := range t.Partitions {
			if before != nil && int(p.Index) < len(before.slots) {
				e.slots = append(e.slots, before.slots[p.Index])
				continue
			}
			s := b.newSlot(t, p, config)
			e.slots = append(e.slots, s)
			fresh = append(fresh, s)
		}
		entries[i] = e
	}
	next := newCatalog(entries)
	gone := b.dropped(old, next)
	b.catalog.Store(next)
	for _, s := range fresh {
		b.begin(s, nil)
	}
	b.reconfigure(old, next)
	for _, e := range gone {
		b.retire(e)
	}
}

// reconfigure hands the settings of topics that changed to their partitions. It
// goes on if the client that asked for them leaves.
func (b *Broker) reconfigure(old, next *Catalog) {
	for _, e := range next.entries {
		before := old.byID[e.topic.ID]
		if before == nil || before.topic.Rev == e.topic.Rev {
			continue
		}
		config := b.settings.config(e.topic.Configs)
		for _, s := range e.slots {
			if err := s.configure(b.life, config); err != nil {
				b.o.Log.Error("partition runs with old settings", "partition", s.identity.Name.String(), "err", err)
			}
		}
	}
}

// dropped returns the entries of topics that are in old and no longer in next.
// They count as retiring before they leave the catalog, so that no moment is
// left in which their objects look free to be deleted.
func (b *Broker) dropped(old, next *Catalog) []*entry {
	var gone []*entry
	for id, e := range old.byID {
		if _, stays := next.byID[id]; !stays {
			b.retiring.begin(id)
			gone = append(gone, e)
		}
	}
	return gone
}

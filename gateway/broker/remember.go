package broker

import (
	"context"

	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/partition"
)

// remember returns nil once a log start that an owner has raised is known wherever
// a rebuild would look (R8): in the bucket, under a claim that is still ours. Until
// then nothing below it may go. It takes no operations token: retention of one
// topic waits for no change of another, beyond what the journal writes in order.
// Error kinds: RemoteUnavailable, to be tried again, and StaleFence.
func (b *Broker) remember(ctx context.Context, f partition.Fence, o tiers.Offset, rev control.Rev) error {
	err := b.putChanges(ctx, rev)
	if err == nil || b.fenced.Load() != nil {
		return err
	}
	b.wake(b.flushes) // its row is there, so a restart begins at it in any case
	return tiers.E(tiers.RemoteUnavailable, "remember log start", f.Partition.String(),
		"that the log starts at %d is not known to be in the bucket: nothing was deleted yet, but what lies below may still go, since the change is tried again: %w", o, err)
}

// trimForEver forgets changes on a node without a bucket: there they are for nobody
// but the log of this process, which reads the topics themselves.
func (b *Broker) trimForEver(ctx context.Context) {
	every(ctx, b.o.SnapshotEvery, func(ctx context.Context) {
		rev, err := b.o.Store.LastRev(ctx)
		if err == nil {
			err = b.o.Store.TrimChanges(ctx, rev)
		}
		if err != nil && ctx.Err() == nil {
			b.o.Log.Warn("old changes stay in the control plane, trying again later", "after", b.o.SnapshotEvery, "err", err)
		}
	})
}

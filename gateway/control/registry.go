package control

import (
	"context"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/partition"
)

// Remember returns once the bucket knows that a log starts at o, which is the case
// when it has every change up to rev. The fence is that of the owner.
type Remember func(ctx context.Context, f partition.Fence, o tiers.Offset, rev Rev) error

// RegistryOf is the store as the partition owners of one session see it: every
// fence gets the session's node epoch, so an owner that an earlier incarnation of
// the node left running is refused. A log start is raised once remember returns
// nil, too; a nil remember is that of a node without a bucket.
func RegistryOf(s Store, session Session, remember Remember) partition.Registry {
	return registry{s, session, remember}
}

type registry struct {
	store    Store
	session  Session
	remember Remember
}

func (r registry) fence(f partition.Fence) partition.Fence {
	f.NodeEpoch = r.session.Epoch
	return f
}

func (r registry) Segments(ctx context.Context, id tiers.PartitionID, gen tiers.HistoryGen) ([]tiers.RemoteSegment, error) {
	return r.store.Segments(ctx, id, gen)
}

func (r registry) CopyStarted(ctx context.Context, f partition.Fence, s tiers.RemoteSegment) error {
	return r.store.CopyStarted(ctx, r.fence(f), s)
}

func (r registry) CopyFinished(ctx context.Context, f partition.Fence, s tiers.RemoteSegment) error {
	return r.store.CopyFinished(ctx, r.fence(f), s)
}

func (r registry) DeleteStarted(ctx context.Context, f partition.Fence, id tiers.SegmentID) error {
	return r.store.DeleteStarted(ctx, r.fence(f), id)
}

func (r registry) DeleteFinished(ctx context.Context, f partition.Fence, id tiers.SegmentID) error {
	return r.store.DeleteFinished(ctx, r.fence(f), id)
}

func (r registry) RaiseLogStart(ctx context.Context, f partition.Fence, o tiers.Offset) error {
	rev, err := r.store.RaiseLogStart(ctx, r.fence(f), o)
	if err != nil || r.remember == nil {
		return err
	}
	return r.remember(ctx, f, o, rev)
}

package control

import (
	"context"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/partition"
)

// RegistryOf is the store as the partition owners of one session see it: every
// fence gets the session's node epoch, so an owner that an earlier incarnation of
// the node left running is refused.
func RegistryOf(s Store, session Session) partition.Registry { return registry{s, session} }

type registry struct {
	store   Store
	session Session
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
	return r.store.RaiseLogStart(ctx, r.fence(f), o)
}

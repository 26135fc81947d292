// Package groups keeps the committed offsets of consumer groups. Membership is
// not part of it: a group here is a name under which a consumer that assigns its
// own partitions commits (generation -1, no member id).
package groups

import (
	"context"

	"github.com/strandline-io/strandline/gateway/broker"
	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/tiers"
)

// Coordinator answers for groups. All methods are safe for concurrent use.
type Coordinator struct{}

// New returns a coordinator over the broker's control plane.
func New(b *broker.Broker, s control.Store, session control.Session) *Coordinator {
	panic("contract")
}

// Commit is one partition of an OffsetCommit request.
type Commit struct {
	Topic    string
	Index    int32
	Offset   tiers.Offset
	Epoch    tiers.LeaderEpoch
	Metadata string
}

// Commit stores offsets for a group. The result has one error, or nil, per
// commit, in order.
func (c *Coordinator) Commit(ctx context.Context, group string, cs []Commit) []error {
	panic("contract")
}

// Fetch returns the group's committed offsets, by topic name and partition. A
// partition without one is absent.
func (c *Coordinator) Fetch(ctx context.Context, group string) (map[tiers.TopicPartition]control.OffsetCommit, error) {
	panic("contract")
}

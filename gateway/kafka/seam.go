package kafka

import (
	"context"

	"github.com/strandline-io/strandline/gateway/broker"
	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/gateway/groups"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/partition"
)

// directory is what the wire asks of the node. *broker.Broker is behind it; the
// tests put a log in memory there.
type directory interface {
	Node() broker.Node
	Topic(name string) (control.Topic, bool)
	TopicByID(id tiers.TopicID) (control.Topic, bool)
	Topics() []control.Topic
	Log(topic string, index int32) (partitionLog, error)
	LogByID(id tiers.TopicID, index int32) (partitionLog, error)
	CreateTopic(ctx context.Context, r broker.CreateTopic) (control.Topic, error)
	AutoCreate(ctx context.Context, name string) (control.Topic, error)
	AddPartitions(ctx context.Context, topic string, n int32, checkOnly bool) (control.Topic, error)
	DeleteTopic(ctx context.Context, id tiers.TopicID) error
	AlterConfigs(ctx context.Context, topic string, ops []broker.ConfigOp, replace, checkOnly bool) error
	TopicConfigs(topic string) ([]broker.ConfigEntry, error)
	NodeConfigs() []broker.ConfigEntry
	ProducerID(ctx context.Context) (int64, error)
}

// partitionLog is what the wire asks of a partition: *partition.Owner.
type partitionLog interface {
	View() *partition.View
	Subscribe(c chan<- struct{}) (cancel func())
	Append(ctx context.Context, r partition.AppendRequest) (partition.AppendResult, error)
	Read(ctx context.Context, r partition.ReadRequest) (partition.ReadResult, error)
	ListOffset(ctx context.Context, ts int64, iso partition.Isolation, current tiers.LeaderEpoch) (partition.OffsetAt, error)
	DeleteRecords(ctx context.Context, upTo tiers.Offset) (tiers.Offset, error)
	EpochEnd(current, q tiers.LeaderEpoch) (partition.EpochEnd, error)
}

// offsetStore is what the wire asks of the groups: *groups.Coordinator.
type offsetStore interface {
	Commit(ctx context.Context, group string, cs []groups.Commit) []error
	Fetch(ctx context.Context, group string) (map[tiers.TopicPartition]control.OffsetCommit, error)
}

// nodeDirectory is the directory that a broker is.
type nodeDirectory struct{ *broker.Broker }

func (d nodeDirectory) Topic(name string) (control.Topic, bool) { return d.Catalog().Topic(name) }

func (d nodeDirectory) TopicByID(id tiers.TopicID) (control.Topic, bool) {
	return d.Catalog().TopicByID(id)
}

func (d nodeDirectory) Topics() []control.Topic { return d.Catalog().Topics() }

func (d nodeDirectory) Log(topic string, index int32) (partitionLog, error) {
	o, err := d.Owner(topic, index)
	if err != nil {
		return nil, err
	}
	return o, nil
}

func (d nodeDirectory) LogByID(id tiers.TopicID, index int32) (partitionLog, error) {
	o, err := d.OwnerByID(id, index)
	if err != nil {
		return nil, err
	}
	return o, nil
}

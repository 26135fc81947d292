// Package broker is the directory of a node: which topics there are, who owns
// each of their partitions, and the operations on topics that the wire, the
// admin interface and the command line share, so that a rule is enforced once
// for all of them.
package broker

import (
	"context"

	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/partition"
)

// Broker is the directory. All methods are safe for concurrent use.
type Broker struct{}

// Catalog is an immutable picture of the topics.
type Catalog struct{}

// Catalog returns the latest picture.
func (b *Broker) Catalog() *Catalog { panic("contract") }

// Topic finds a topic by name.
func (c *Catalog) Topic(name string) (control.Topic, bool) { panic("contract") }

// TopicByID finds a topic by id.
func (c *Catalog) TopicByID(id tiers.TopicID) (control.Topic, bool) { panic("contract") }

// Topics returns all topics by name.
func (c *Catalog) Topics() []control.Topic { panic("contract") }

// Node describes this node to clients.
type Node struct {
	ID      tiers.NodeID
	Cluster string
	Rack    string
}

// Node returns who this node is.
func (b *Broker) Node() Node { panic("contract") }

// Owner returns the owner of a partition: UnknownTopicOrPartition, NotLeader
// while it opens or closes, StorageFailed with the reason while it is offline.
func (b *Broker) Owner(topic string, index int32) (*partition.Owner, error) { panic("contract") }

// OwnerByID is Owner for clients that use topic ids: UnknownTopicID.
func (b *Broker) OwnerByID(id tiers.TopicID, index int32) (*partition.Owner, error) {
	panic("contract")
}

// CreateTopic validates the request (name, count, replication factor, configs)
// and, unless check is set, creates the topic and opens its partitions.
// Partitions -1 and replication factor -1 stand for the defaults.
func (b *Broker) CreateTopic(ctx context.Context, r CreateTopic) (control.Topic, error) {
	panic("contract")
}

// CreateTopic asks for a topic.
type CreateTopic struct {
	Name        string
	Partitions  int32
	Replication int16
	Assignment  map[int32][]tiers.NodeID // by partition; nil: ours
	Configs     map[string]*string       // nil values are absent
	CheckOnly   bool
}

// AutoCreate creates a topic that a client asked for, if the node allows it; else
// UnknownTopicOrPartition.
func (b *Broker) AutoCreate(ctx context.Context, name string) (control.Topic, error) {
	panic("contract")
}

// AddPartitions raises a topic's partition count.
func (b *Broker) AddPartitions(ctx context.Context, topic string, n int32, checkOnly bool) (control.Topic, error) {
	panic("contract")
}

// DeleteTopic closes the partitions, removes the topic and its local files, and
// has its objects deleted in the background.
func (b *Broker) DeleteTopic(ctx context.Context, id tiers.TopicID) error { panic("contract") }

// ConfigOp is one change of a setting.
type ConfigOp struct {
	Name  string
	Op    int8 // 0 set, 1 delete, 2 append, 3 subtract, as on the wire (KIP-339)
	Value *string
}

// AlterConfigs changes settings of a topic; replace first drops all that are set
// (AlterConfigs as opposed to IncrementalAlterConfigs).
func (b *Broker) AlterConfigs(ctx context.Context, topic string, ops []ConfigOp, replace, checkOnly bool) error {
	panic("contract")
}

// ConfigEntry is a setting as DescribeConfigs shows it.
type ConfigEntry struct {
	Name      string
	Value     string
	Source    int8 // ConfigSource on the wire: 1 topic, 4 static broker, 5 default
	ReadOnly  bool
	Sensitive bool
	Type      int8 // ConfigType on the wire: 1 boolean, 2 string, 3 int, 5 long, 7 list
	Doc       string
	Synonyms  []ConfigSynonym
}

// ConfigSynonym is another place where a setting's value could come from.
type ConfigSynonym struct {
	Name, Value string
	Source      int8
}

// TopicConfigs describes a topic's settings, all of them.
func (b *Broker) TopicConfigs(topic string) ([]ConfigEntry, error) { panic("contract") }

// NodeConfigs describes the node's settings, all of them, under Kafka's names
// where it has one. They are read-only.
func (b *Broker) NodeConfigs() []ConfigEntry { panic("contract") }

// ProducerID returns a producer id that was never given before.
func (b *Broker) ProducerID(ctx context.Context) (int64, error) { panic("contract") }

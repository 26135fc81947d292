package broker

import (
	"context"
	"errors"
	"slices"

	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/tiers"
)

// CreateTopic asks for a topic.
type CreateTopic struct {
	Name        string
	Partitions  int32
	Replication int16
	Assignment  map[int32][]tiers.NodeID // by partition; nil: ours
	Configs     map[string]*string       // nil values are absent
	CheckOnly   bool
}

// CreateTopic validates the request (name, count, replication factor, configs)
// and, unless check is set, creates the topic and opens its partitions.
// Partitions -1 and replication factor -1 stand for the defaults. It returns once
// the partitions are open, or when ctx ends: they go on opening then.
func (b *Broker) CreateTopic(ctx context.Context, r CreateTopic) (control.Topic, error) {
	want, err := b.checkCreate(r)
	if err != nil {
		return control.Topic{}, err
	}
	if r.CheckOnly {
		return preview(want), checkFree(b.Catalog(), r.Name)
	}
	return b.create(ctx, want)
}

func preview(n control.NewTopic) control.Topic {
	t := control.Topic{Name: n.Name, Configs: n.Configs}
	for i := range n.Partitions {
		t.Partitions = append(t.Partitions, control.Partition{Index: i})
	}
	return t
}

func (b *Broker) create(ctx context.Context, want control.NewTopic) (control.Topic, error) {
	err := b.change(ctx, "create topic", want.Name,
		func(c *Catalog) error { return checkFree(c, want.Name) },
		func(ctx context.Context) error {
			_, err := b.o.Store.CreateTopic(ctx, b.o.Session, want)
			return err
		})
	if err != nil {
		return control.Topic{}, err
	}
	return b.awaitTopic(ctx, "create topic", want.Name)
}

// awaitTopic waits until the partitions of a topic were tried, and returns it.
func (b *Broker) awaitTopic(ctx context.Context, op, name string) (control.Topic, error) {
	e, ok := b.Catalog().byName[name]
	if !ok { // deleted again meanwhile
		return control.Topic{}, tiers.E(tiers.UnknownTopicOrPartition, op, name, "it was deleted meanwhile")
	}
	awaitTried(ctx, e.slots)
	return e.topic, nil
}

// checkFree returns TopicExists if the name, or one that metrics cannot tell from
// it, is taken.
func checkFree(c *Catalog, name string) error {
	if _, ok := c.Topic(name); ok {
		return control.Clash(name, name)
	}
	if other, ok := c.clash(name); ok {
		return control.Clash(name, other)
	}
	return nil
}

// checkCreate turns a request into what the control plane is asked for.
func (b *Broker) checkCreate(r CreateTopic) (control.NewTopic, error) {
	if err := CheckTopicName(r.Name); err != nil {
		return control.NewTopic{}, err
	}
	n, err := b.partitionCount(r)
	if err != nil {
		return control.NewTopic{}, err
	}
	if err = b.checkReplication(r); err != nil {
		return control.NewTopic{}, err
	}
	configs := make(map[string]string, len(r.Configs))
	for name, v := range r.Configs {
		if v != nil {
			configs[name] = *v
		}
	}
	configs, err = b.settings.check("create topic", r.Name, configs)
	if err != nil {
		return control.NewTopic{}, err
	}
	return control.NewTopic{Name: r.Name, Partitions: n, Configs: configs}, nil
}

func (b *Broker) partitionCount(r CreateTopic) (int32, error) {
	const op = "create topic"
	if r.Assignment != nil {
		if r.Partitions != -1 || r.Replication != -1 {
			return 0, tiers.E(tiers.InvalidRequest, op, r.Name,
				"both an assignment and a count or replication factor are given: leave the numbers at -1")
		}
		return int32(len(r.Assignment)), b.checkAssignment(r.Name, r.Assignment)
	}
	n := r.Partitions
	if n == -1 {
		n = b.o.DefaultPartitions
	}
	if n < 1 || n > control.MaxPartitions {
		return 0, tiers.E(tiers.InvalidPartitions, op, r.Name, "%d partitions: choose 1 to %d, or -1 for the default of %d",
			r.Partitions, control.MaxPartitions, b.o.DefaultPartitions)
	}
	return n, nil
}

func (b *Broker) checkReplication(r CreateTopic) error {
	if b.o.AnyReplication || r.Replication == 1 || r.Replication == -1 {
		return nil
	}
	return tiers.E(tiers.InvalidReplicationFactor, "create topic", r.Name,
		"replication factor %d: a single node holds one copy, plus the one in the bucket; ask for 1 or -1 (or set topics.accept_any_replication)",
		r.Replication)
}

// checkAssignment wants partitions from 0 on without a gap, each on this node.
func (b *Broker) checkAssignment(topic string, a map[int32][]tiers.NodeID) error {
	const op = "create topic"
	if len(a) == 0 || len(a) > control.MaxPartitions {
		return tiers.E(tiers.InvalidPartitions, op, topic, "an assignment of %d partitions: choose 1 to %d", len(a), control.MaxPartitions)
	}
	for i := range int32(len(a)) {
		nodes, ok := a[i]
		if !ok {
			return tiers.E(tiers.InvalidReplicaAssignment, op, topic, "partition %d is missing: number them from 0 on without a gap", i)
		}
		if !slices.Equal(nodes, []tiers.NodeID{b.o.Node.ID}) {
			return tiers.E(tiers.InvalidReplicaAssignment, op, topic, "partition %d on nodes %v: the only node is %d", i, nodes, b.o.Node.ID)
		}
	}
	return nil
}

// AutoCreate creates a topic that a client asked for, if the node allows it; else
// UnknownTopicOrPartition. Requests for the same name at the same time create
// one topic.
func (b *Broker) AutoCreate(ctx context.Context, name string) (control.Topic, error) {
	const op = "auto-create topic"
	if t, ok := b.Catalog().Topic(name); ok {
		return t, nil
	}
	if err := CheckTopicName(name); err != nil {
		return control.Topic{}, err
	}
	if !b.o.AutoCreate {
		return control.Topic{}, tiers.E(tiers.UnknownTopicOrPartition, op, name, "topics.auto_create is off: create it first")
	}
	want, err := b.checkCreate(CreateTopic{Name: name, Partitions: -1, Replication: -1})
	if err != nil {
		return control.Topic{}, err
	}
	t, err := b.create(ctx, want)
	if tiers.KindOf(err) == tiers.TopicExists {
		if there, ok := b.Catalog().Topic(name); ok {
			return there, nil
		}
		// A topic that differs in . and _ only: more tries change nothing.
		return control.Topic{}, tiers.E(tiers.InvalidTopic, op, name, "%w", err)
	}
	return t, err
}

// AddPartitions raises a topic's partition count.
func (b *Broker) AddPartitions(ctx context.Context, topic string, n int32, checkOnly bool) (control.Topic, error) {
	const op = "add partitions"
	var id tiers.TopicID
	decide := func(c *Catalog) error {
		t, ok := c.Topic(topic)
		if !ok {
			return tiers.E(tiers.UnknownTopicOrPartition, op, topic, "there is no such topic")
		}
		id = t.ID
		if err := control.CheckCount(topic, len(t.Partitions), n); err != nil {
			return err
		}
		if checkOnly {
			return errDone
		}
		return nil
	}
	err := b.change(ctx, op, topic, decide, func(ctx context.Context) error {
		_, err := b.o.Store.AddPartitions(ctx, b.o.Session, id, n)
		return err
	})
	if errors.Is(err, errDone) {
		t, _ := b.Catalog().Topic(topic)
		t.Partitions = control.NewPartitions(b.o.Node.ID, 0, n)
		return t, nil
	}
	if err != nil {
		return control.Topic{}, err
	}
	return b.awaitTopic(ctx, op, topic)
}

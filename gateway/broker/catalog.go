package broker

import (
	"slices"
	"strings"

	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/partition"
)

// Catalog is an immutable picture of the topics. What it returns is shared: it
// must not be changed.
type Catalog struct {
	entries []*entry // by name
	byName  map[string]*entry
	byID    map[tiers.TopicID]*entry
}

// entry is a topic with the slots of its partitions, by index.
type entry struct {
	topic control.Topic
	slots []*slot
}

func newCatalog(entries []*entry) *Catalog {
	c := &Catalog{
		entries: entries,
		byName:  make(map[string]*entry, len(entries)),
		byID:    make(map[tiers.TopicID]*entry, len(entries)),
	}
	slices.SortFunc(c.entries, func(a, b *entry) int { return strings.Compare(a.topic.Name, b.topic.Name) })
	for _, e := range entries {
		c.byName[e.topic.Name] = e
		c.byID[e.topic.ID] = e
	}
	return c
}

// Topic finds a topic by name.
func (c *Catalog) Topic(name string) (control.Topic, bool) {
	e, ok := c.byName[name]
	if !ok {
		return control.Topic{}, false
	}
	return e.topic, true
}

// TopicByID finds a topic by id.
func (c *Catalog) TopicByID(id tiers.TopicID) (control.Topic, bool) {
	e, ok := c.byID[id]
	if !ok {
		return control.Topic{}, false
	}
	return e.topic, true
}

// Topics returns all topics by name.
func (c *Catalog) Topics() []control.Topic {
	out := make([]control.Topic, len(c.entries))
	for i, e := range c.entries {
		out[i] = e.topic
	}
	return out
}

// clash finds a topic whose name differs from name only in '.' and '_'. Metric
// names cannot tell such topics apart, so Kafka refuses the second one.
func (c *Catalog) clash(name string) (string, bool) {
	letters := strings.ReplaceAll(name, ".", "_")
	for _, e := range c.entries {
		if e.topic.Name != name && strings.ReplaceAll(e.topic.Name, ".", "_") == letters {
			return e.topic.Name, true
		}
	}
	return "", false
}

func (c *Catalog) slots() []*slot {
	var out []*slot
	for _, e := range c.entries {
		out = append(out, e.slots...)
	}
	return out
}

func (e *entry) owner(index int32) (*partition.Owner, error) {
	if index < 0 || int(index) >= len(e.slots) {
		return nil, tiers.E(tiers.UnknownTopicOrPartition, "find partition", e.topic.Name,
			"partition %d: the topic has %d", index, len(e.slots))
	}
	s := e.slots[index].state.Load()
	if s.owner != nil {
		return s.owner, nil
	}
	return nil, s.err
}

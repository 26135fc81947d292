package broker

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/tiers"
)

// ConfigOp is one change of a setting.
type ConfigOp struct {
	Name  string
	Op    int8 // 0 set, 1 delete, 2 append, 3 subtract, as on the wire (KIP-339)
	Value *string
}

// The operations of ConfigOp.
const (
	OpSet int8 = iota
	OpDelete
	OpAppend
	OpSubtract
)

// AlterConfigs changes settings of a topic; replace first drops all that are set
// (AlterConfigs as opposed to IncrementalAlterConfigs).
func (b *Broker) AlterConfigs(ctx context.Context, topic string, ops []ConfigOp, replace, checkOnly bool) error {
	const op = "alter configs"
	var (
		before control.Topic
		next   map[string]string
	)
	decide := func(c *Catalog) error {
		t, ok := c.Topic(topic)
		if !ok {
			return tiers.E(tiers.UnknownTopicOrPartition, op, topic, "there is no such topic")
		}
		set, err := b.settings.alter(t, ops, replace)
		if err != nil {
			return err
		}
		if checkOnly || maps.Equal(set, t.Configs) {
			return errDone
		}
		before, next = t, set
		return nil
	}
	err := b.change(ctx, op, topic, decide, func(ctx context.Context) error {
		_, err := b.o.Store.SetConfigs(ctx, b.o.Session, before.ID, before.Rev, next)
		return err
	})
	if errors.Is(err, errDone) {
		return nil
	}
	return b.explainSwitchOff(ctx, topic, err)
}

// alter returns the settings that a topic has after the operations.
func (s *topicSettings) alter(t control.Topic, ops []ConfigOp, replace bool) (map[string]string, error) {
	const op = "alter configs"
	next := map[string]string{}
	if !replace {
		next = maps.Clone(t.Configs)
	}
	seen := map[string]bool{}
	for _, o := range ops {
		if seen[o.Name] {
			return nil, tiers.E(tiers.InvalidRequest, op, t.Name, "setting %q is named twice", o.Name)
		}
		seen[o.Name] = true
		setting, err := s.find(op, t.Name, o.Name)
		if err != nil {
			return nil, err
		}
		if err := s.alterOne(t.Name, setting, o, next); err != nil {
			return nil, err
		}
	}
	next, err := s.check(op, t.Name, next)
	if err != nil {
		return nil, err
	}
	return next, s.checkRemoteStays(t, next)
}

func (s *topicSettings) alterOne(place string, t *TopicSetting, o ConfigOp, next map[string]string) error {
	const op = "alter configs"
	if o.Op == OpDelete {
		delete(next, o.Name)
		return nil
	}
	if o.Value == nil {
		return tiers.E(tiers.InvalidRequest, op, place, "setting %q has no value", o.Name)
	}
	switch o.Op {
	case OpSet:
		next[o.Name] = *o.Value
		return nil
	case OpAppend, OpSubtract:
	default:
		return tiers.E(tiers.InvalidRequest, op, place, "setting %q: unknown operation %d", o.Name, o.Op)
	}
	if t.Type != TypeList {
		return tiers.E(tiers.InvalidConfig, op, place, "setting %q is not a list: set it instead", o.Name)
	}
	now, _ := s.value(t, next)
	have := words(now)
	given := words(*o.Value)
	have = slices.DeleteFunc(have, func(w string) bool { return slices.Contains(given, w) })
	if o.Op == OpAppend {
		have = append(have, given...)
	}
	next[o.Name] = strings.Join(have, ",")
	return nil
}

// errSwitchOff is the refusal to switch remote storage off without a word on what
// is in the bucket only.
var errSwitchOff = errors.New("remote.storage.enable cannot be switched off like this")

// checkRemoteStays refuses to switch remote storage off unless the topic says that
// what is in the bucket is to be deleted: older records are there only, and
// forgetting them must be a choice of its own (report 108, KIP-950).
func (s *topicSettings) checkRemoteStays(t control.Topic, next map[string]string) error {
	if !s.remote(t.Configs) || s.remote(next) {
		return nil
	}
	if v, _ := s.value(s.byName["remote.log.delete.on.disable"], next); v == "true" && next[enableRemote] == "false" {
		return nil
	}
	return tiers.E(tiers.InvalidConfig, "alter configs", t.Name, "%w", errSwitchOff)
}

// ConfigEntry is a setting as DescribeConfigs shows it.
type ConfigEntry struct {
	Name      string
	Value     string
	Source    int8 // ConfigSource on the wire: 1 topic, 4 static broker, 5 default
	ReadOnly  bool
	Sensitive bool
	Type      int8 // ConfigType on the wire: 1 boolean, 2 string, 3 int, 5 long, 6 double, 7 list
	Doc       string
	Synonyms  []ConfigSynonym
}

// ConfigSynonym is another place where a setting's value could come from.
type ConfigSynonym struct {
	Name, Value string
	Source      int8
}

// TopicConfigs describes a topic's settings, all of them, by name.
func (b *Broker) TopicConfigs(topic string) ([]ConfigEntry, error) {
	t, ok := b.Catalog().Topic(topic)
	if !ok {
		return nil, tiers.E(tiers.UnknownTopicOrPartition, "describe configs", topic, "there is no such topic")
	}
	return b.settings.describe(t.Configs), nil
}

// describe lists every setting with the places where its value could come from,
// the one that holds first.
func (s *topicSettings) describe(set map[string]string) []ConfigEntry {
	out := make([]ConfigEntry, len(s.list))
	for i := range s.list {
		t := &s.list[i]
		e := ConfigEntry{Name: t.Name, Type: t.Type, Doc: t.Doc, Synonyms: s.synonyms(t)}
		e.Value, e.Source = s.value(t, set)
		if e.Source == SourceTopic {
			e.Synonyms = slices.Insert(e.Synonyms, 0, ConfigSynonym{t.Name, e.Value, SourceTopic})
		}
		out[i] = e
	}
	return out
}

// synonyms are the places of a setting's value below the topic.
func (s *topicSettings) synonyms(t *TopicSetting) []ConfigSynonym {
	name := t.Broker
	if name == "" {
		name = t.Name
	}
	out := make([]ConfigSynonym, 0, 3)
	if v, ok := s.static[t.Name]; ok {
		out = append(out, ConfigSynonym{name, v, SourceStatic})
	}
	return append(out, ConfigSynonym{name, t.Default, SourceDefault})
}

// NodeConfigs describes the node's settings, all of them, under Kafka's names
// where it has one, by name. They are read-only.
func (b *Broker) NodeConfigs() []ConfigEntry {
	out := slices.Clone(b.o.Settings)
	for i := range b.settings.list {
		t := &b.settings.list[i]
		if t.Broker == "" {
			continue
		}
		e := ConfigEntry{Name: t.Broker, Type: t.Type, Doc: t.Doc, ReadOnly: true, Synonyms: b.settings.synonyms(t)}
		e.Value, e.Source = b.settings.value(t, nil)
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b ConfigEntry) int { return strings.Compare(a.Name, b.Name) })
	return out
}

package control

import (
	"crypto/rand"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/partition"
)

// Limits of what a row may hold. They are far above what is sensible: they keep
// a bad request or a damaged row from taking the node's memory.
const (
	MaxTopicName      = 249     // bytes; Kafka's limit, which a folder name needs too
	MaxPartitions     = 100_000 // of one topic
	MaxConfigs        = 1_000   // settings of one topic
	MaxConfigBytes    = 1 << 20 // all keys and values of one topic
	MaxGroupID        = 32_767  // bytes; Kafka's classic strings end there
	MaxOffsetMetadata = 64 << 10
	MaxLineage        = 65_536    // epochs of one segment
	MaxProducerBlock  = 1_000_000 // producer ids of one reservation
)

// ClashKey is equal for names that metrics and file names cannot tell apart:
// a.b and a_b (report row 15).
func ClashKey(name string) string { return strings.ReplaceAll(name, ".", "_") }

// ReservedTopicID reports whether id is one that Kafka keeps for itself: 0 is
// "none", 1 the metadata log.
func ReservedTopicID(id tiers.TopicID) bool {
	last := len(id) - 1
	return id[last] <= 1 && tiers.TopicID(append(slices.Clone(id[:last]), 0)).IsZero()
}

// RandomID draws a random UUID of version 4 from r; nil stands for the operating
// system's. An id never starts with a dash in Kafka's text form, since command
// lines would take it for a flag.
func RandomID(r io.Reader) (tiers.TopicID, error) {
	if r == nil {
		r = rand.Reader
	}
	for range 100 {
		var id tiers.TopicID
		if _, err := io.ReadFull(r, id[:]); err != nil {
			return tiers.TopicID{}, tiers.E(tiers.Other, "make an id", "", "no randomness: %w", err)
		}
		id[6] = id[6]&0x0f | 0x40
		id[8] = id[8]&0x3f | 0x80
		if id.String()[0] != '-' {
			return id, nil
		}
	}
	return tiers.TopicID{}, tiers.E(tiers.Other, "make an id", "", "the source of randomness repeats itself")
}

// Instant is t as rows keep it: milliseconds, UTC.
func Instant(t time.Time) time.Time { return time.UnixMilli(t.UnixMilli()).UTC() }

// Clone returns a topic that shares nothing with t.
func (t Topic) Clone() Topic {
	t.Configs = maps.Clone(t.Configs)
	if t.Configs == nil {
		t.Configs = map[string]string{}
	}
	t.Partitions = slices.Clone(t.Partitions)
	return t
}

// Clone returns a change that shares nothing with c.
func (c Change) Clone() Change {
	if c.Raised != nil {
		c.Raised = new(*c.Raised)
		return c
	}
	c.Topic = c.Topic.Clone()
	return c
}

// Check returns nil if a store may take t.
func (t NewTopic) Check() error {
	const op = "create topic"
	switch {
	case t.Name == "" || len(t.Name) > MaxTopicName:
		return tiers.E(tiers.InvalidTopic, op, t.Name, "a name has 1 to %d characters, this one %d", MaxTopicName, len(t.Name))
	case !t.ID.IsZero() && ReservedTopicID(t.ID):
		return tiers.E(tiers.InvalidRequest, op, t.Name, "topic id %s is reserved: leave it out to have one made", t.ID)
	case t.Partitions < 1 || t.Partitions > MaxPartitions:
		return tiers.E(tiers.InvalidPartitions, op, t.Name, "%d partitions: choose 1 to %d", t.Partitions, MaxPartitions)
	}
	return CheckConfigs(op, t.Name, t.Configs)
}

// CheckConfigs returns nil if the settings of a topic are within the limits. What
// they mean is not the store's business.
func CheckConfigs(op, place string, configs map[string]string) error {
	if len(configs) > MaxConfigs {
		return tiers.E(tiers.InvalidConfig, op, place, "%d settings: at most %d", len(configs), MaxConfigs)
	}
	size := 0
	for k, v := range configs {
		if k == "" {
			return tiers.E(tiers.InvalidConfig, op, place, "a setting has no name")
		}
		size += len(k) + len(v)
	}
	if size > MaxConfigBytes {
		return tiers.E(tiers.InvalidConfig, op, place, "settings of %d bytes: at most %d", size, MaxConfigBytes)
	}
	return nil
}

// CheckCount returns nil if a topic that has some partitions may have n.
func CheckCount(place string, has int, n int32) error {
	if int(n) <= has || n > MaxPartitions {
		return tiers.E(tiers.InvalidPartitions, "add partitions", place, "%d partitions: there are %d, choose more, up to %d", n, has, MaxPartitions)
	}
	return nil
}

// CheckFence compares a fence with the row of its partition and with the node
// epoch of the row's leader, 0 if that never registered. ok says that there is
// a row.
func CheckFence(op string, f partition.Fence, row Partition, ok bool, leaderEpoch int64) error {
	place := f.Partition.String()
	switch {
	case !ok:
		return tiers.E(tiers.StaleFence, op, place, "the partition is gone")
	case f.Gen != row.Gen:
		return tiers.E(tiers.StaleFence, op, place, "history %d was replaced by %d", f.Gen, row.Gen)
	case f.Epoch != row.Epoch:
		return tiers.E(tiers.StaleFence, op, place, "leader epoch %d was replaced by %d", f.Epoch, row.Epoch)
	case f.NodeEpoch == 0:
		return tiers.E(tiers.StaleFence, op, place, "the fence carries no node epoch: use control.RegistryOf")
	case f.NodeEpoch != leaderEpoch:
		return tiers.E(tiers.StaleFence, op, place, "node epoch %d was replaced by %d: node %d was started again", f.NodeEpoch, leaderEpoch, row.Leader)
	}
	return nil
}

// CheckSession compares a session with the node's current epoch, 0 if it never
// registered.
func CheckSession(op string, s Session, epoch int64) error {
	if s.Epoch == 0 || s.Epoch != epoch {
		return tiers.E(tiers.StaleFence, op, "", "session %d of node %d was replaced by %d: the node was started again", s.Epoch, s.Node, epoch)
	}
	return nil
}

// CheckProducerBlock returns nil if n producer ids can be reserved from next on.
func CheckProducerBlock(next, n int64) error {
	const op = "reserve producer ids"
	if n < 1 || n > MaxProducerBlock {
		return tiers.E(tiers.InvalidRequest, op, "", "%d ids: choose 1 to %d", n, MaxProducerBlock)
	}
	if next+n < next {
		return tiers.E(tiers.Other, op, "", "every producer id was given out")
	}
	return nil
}

// CheckCommit returns nil if c is within the limits.
func CheckCommit(op string, c OffsetCommit) error {
	switch {
	case c.Group == "" || len(c.Group) > MaxGroupID:
		return tiers.E(tiers.InvalidRequest, op, c.Partition.String(), "a group id has 1 to %d bytes, this one %d", MaxGroupID, len(c.Group))
	case c.Offset < 0:
		return tiers.E(tiers.InvalidRequest, op, c.Partition.String(), "group %q: offset %d is negative", c.Group, c.Offset)
	case c.Epoch < tiers.NoEpoch:
		return tiers.E(tiers.InvalidRequest, op, c.Partition.String(), "group %q: leader epoch %d", c.Group, c.Epoch)
	case len(c.Metadata) > MaxOffsetMetadata:
		return tiers.E(tiers.InvalidRequest, op, c.Partition.String(), "group %q: metadata of %d bytes, at most %d", c.Group, len(c.Metadata), MaxOffsetMetadata)
	}
	return nil
}

// CheckCommitOf is CheckCommit, and compares c with the row of its partition. ok
// says that there is a row.
func CheckCommitOf(op string, c OffsetCommit, row Partition, ok bool) error {
	if err := CheckCommit(op, c); err != nil {
		return err
	}
	switch {
	case !ok:
		return tiers.E(tiers.UnknownTopicOrPartition, op, c.Partition.String(), "there is no such partition")
	case c.Gen != row.Gen:
		return tiers.E(tiers.StaleFence, op, c.Partition.String(), "history %d was replaced by %d (H11)", c.Gen, row.Gen)
	}
	return nil
}

// NewPartitions are the rows of the partitions [from, to) that node leads.
func NewPartitions(node tiers.NodeID, from, to int32) []Partition {
	out := make([]Partition, 0, max(to-from, 0))
	for i := from; i < to; i++ {
		out = append(out, Partition{Index: i, Gen: 1, Leader: node})
	}
	return out
}

// Clash is the refusal of a name because of another topic's.
func Clash(name, other string) error {
	if name == other {
		return tiers.E(tiers.TopicExists, "create topic", name, "choose another name")
	}
	return tiers.E(tiers.TopicExists, "create topic", name, "topic %q differs only in . and _, which metrics cannot tell apart", other)
}

// NotDoomed is the refusal to bury a segment that is not waiting for it.
func NotDoomed(s tiers.RemoteSegment) error {
	return tiers.E(tiers.Conflict, "bury", "segment "+s.ID.Hex(), "its topic %s exists", s.Partition.Topic)
}

// CheckRev compares a topic's revision with the one that the caller saw.
func CheckRev(op string, t Topic, ifRev Rev) error {
	if ifRev != 0 && ifRev != t.Rev {
		return tiers.E(tiers.Conflict, op, t.Name, "the topic is at revision %d, not %d: read it again", t.Rev, ifRev)
	}
	return nil
}

// CheckRaise returns nil if a log may be said to start at o.
func CheckRaise(op string, f partition.Fence, o tiers.Offset) error {
	if o < 0 {
		return tiers.E(tiers.InvalidRequest, op, f.Partition.String(), "offset %d is negative", o)
	}
	return nil
}

// CheckAfter returns nil if the changes after a revision are there.
func CheckAfter(after, floor, rev Rev) error {
	const op = "changes"
	switch {
	case after < floor:
		return tiers.E(tiers.Conflict, op, "", "changes up to %d are gone: read the topics again", floor)
	case after > rev:
		return tiers.E(tiers.Conflict, op, "", "revision %d was never reached, only %d: this is an older copy of the control plane", after, rev)
	}
	return nil
}

// CheckTrim returns nil if changes up to a revision may be trimmed.
func CheckTrim(upTo, rev Rev) error {
	if upTo < 0 || upTo > rev {
		return tiers.E(tiers.InvalidRequest, "trim changes", "", "revision %d is not in [0,%d]", upTo, rev)
	}
	return nil
}

// CheckLimit returns nil if a listing may have the limit.
func CheckLimit(limit int) error {
	if limit < 1 {
		return tiers.E(tiers.InvalidRequest, "doomed", "", "a limit of %d rows: choose at least 1", limit)
	}
	return nil
}

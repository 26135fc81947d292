package control

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/strandline-io/strandline/tiers"
)

// Sort brings everything in the order that State promises.
func (st *State) Sort() {
	slices.SortFunc(st.Topics, func(a, b Topic) int { return slices.Compare(a.ID[:], b.ID[:]) })
	slices.SortFunc(st.Segments, CompareSegments)
	slices.SortFunc(st.Offsets, CompareOffsets)
}

// CompareOffsets orders by group, partition and gen.
func CompareOffsets(a, b OffsetCommit) int {
	return cmp.Or(strings.Compare(a.Group, b.Group), ComparePartitions(a.Partition, b.Partition), cmp.Compare(a.Gen, b.Gen))
}

// Clone returns a state that shares nothing with st.
func (st State) Clone() State {
	out := st
	out.Topics, out.Segments, out.Offsets = nil, nil, slices.Clone(st.Offsets)
	for _, t := range st.Topics {
		out.Topics = append(out.Topics, t.Clone())
	}
	for _, s := range st.Segments {
		out.Segments = append(out.Segments, CloneSegment(s))
	}
	return out
}

// Valid returns nil if st is what a Store may hold, else an error of kind
// InvalidRequest. The order does not matter. A segment whose topic is gone must
// be in DeleteStarted: that is what Doomed lists.
func (st State) Valid() error {
	if err := st.valid(); err != nil {
		return tiers.E(tiers.InvalidRequest, "check state", "", "%w", err)
	}
	return nil
}

func (st State) valid() error {
	if _, err := tiers.ParseTopicID(st.Cluster); err != nil || len(st.Cluster) != 22 {
		return fmt.Errorf("cluster id %q does not have 22 characters of base64", st.Cluster)
	}
	if st.Rev < 0 || st.NextProducer < 0 {
		return fmt.Errorf("revision %d or next producer id %d is negative", st.Rev, st.NextProducer)
	}
	topics := make(map[tiers.TopicID][]Partition, len(st.Topics))
	names := make(map[string]string, len(st.Topics))
	for _, t := range st.Topics {
		if err := t.valid(st.Rev); err != nil {
			return err
		}
		if _, twice := topics[t.ID]; twice {
			return fmt.Errorf("topic id %s twice", t.ID)
		}
		if other, twice := names[ClashKey(t.Name)]; twice {
			return fmt.Errorf("topics %q and %q cannot be told apart", other, t.Name)
		}
		topics[t.ID], names[ClashKey(t.Name)] = t.Partitions, t.Name
	}
	if err := st.validSegments(topics); err != nil {
		return err
	}
	return st.validOffsets(topics)
}

func (t Topic) valid(rev Rev) error {
	n := len(t.Partitions)
	if n > MaxPartitions {
		return fmt.Errorf("topic %q has %d partitions", t.Name, n)
	}
	if err := (NewTopic{ID: t.ID, Name: t.Name, Partitions: int32(n), Configs: t.Configs}).Check(); err != nil {
		return err
	}
	if ReservedTopicID(t.ID) || t.Rev < 1 || t.Rev > rev {
		return fmt.Errorf("topic %q: id %s, revision %d of %d", t.Name, t.ID, t.Rev, rev)
	}
	for i, p := range t.Partitions {
		if int(p.Index) != i || p.Gen < 1 || p.Epoch < 0 || p.Epoch == math.MaxInt32 || p.LogStart < 0 || p.Leader < 0 {
			return fmt.Errorf("topic %q: entry %d is partition %d with gen %d, leader %d, epoch %d, log start %d",
				t.Name, i, p.Index, p.Gen, p.Leader, p.Epoch, p.LogStart)
		}
	}
	return nil
}

func (st State) validSegments(topics map[tiers.TopicID][]Partition) error {
	ids := make(map[tiers.SegmentID]bool, len(st.Segments))
	for _, s := range st.Segments {
		if ids[s.ID] || s.ID == (tiers.SegmentID{}) {
			return fmt.Errorf("segment id %s is zero or there twice", s.ID)
		}
		ids[s.ID] = true
		if s.State < tiers.CopyStarted || s.State > tiers.DeleteStarted {
			return fmt.Errorf("segment %s in %s", s.ID, s.State)
		}
		if err := s.Valid(); err != nil {
			return err
		}
		if s.Size < 0 || s.MetaSize < 0 || len(s.Epochs) > MaxLineage || s.Gen < 1 || s.Partition.Index < 0 {
			return fmt.Errorf("segment %s: sizes %d and %d, %d epochs, gen %d, %s", s.ID, s.Size, s.MetaSize, len(s.Epochs), s.Gen, s.Partition)
		}
		parts, ok := topics[s.Partition.Topic]
		switch {
		case !ok && s.State != tiers.DeleteStarted:
			return fmt.Errorf("segment %s in %s of topic %s, which is gone", s.ID, s.State, s.Partition.Topic)
		case ok && (int(s.Partition.Index) >= len(parts) || s.Gen > parts[s.Partition.Index].Gen):
			return fmt.Errorf("segment %s of %s gen %d, which is not there", s.ID, s.Partition, s.Gen)
		}
	}
	return nil
}

func (st State) validOffsets(topics map[tiers.TopicID][]Partition) error {
	type key struct {
		group string
		p     tiers.PartitionID
		gen   tiers.HistoryGen
	}
	seen := make(map[key]bool, len(st.Offsets))
	for _, c := range st.Offsets {
		if err := CheckCommit("check state", c); err != nil {
			return err
		}
		parts := topics[c.Partition.Topic]
		i := int(c.Partition.Index)
		if i < 0 || i >= len(parts) || c.Gen < 1 || c.Gen > parts[i].Gen {
			return fmt.Errorf("group %q: offset of %s gen %d, which is not there", c.Group, c.Partition, c.Gen)
		}
		k := key{c.Group, c.Partition, c.Gen}
		if seen[k] {
			return fmt.Errorf("group %q: two offsets of %s gen %d", c.Group, c.Partition, c.Gen)
		}
		seen[k] = true
	}
	return nil
}

// Normal returns st sorted, with the instants that rows can keep and the kinds of
// emptiness that Dump returns: what a Load of st is dumped as.
func (st State) Normal() State {
	out := st.Clone()
	for i := range out.Topics {
		out.Topics[i].CreatedAt = Instant(out.Topics[i].CreatedAt)
	}
	for i := range out.Segments {
		out.Segments[i].CreatedAt = Instant(out.Segments[i].CreatedAt)
	}
	for i := range out.Offsets {
		out.Offsets[i].At = Instant(out.Offsets[i].At)
	}
	if len(out.Offsets) == 0 {
		out.Offsets = nil
	}
	out.Sort()
	return out
}

package controltest

import (
	"strings"
	"time"

	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/tiers"
)

func testProducerIDs(b *bench) {
	next := int64(0)
	for _, n := range []int64{1000, 1, 1000, control.MaxProducerBlock} {
		first, err := b.ProducerIDs(b.ctx, b.ses, n)
		b.must(err)
		equal(b.t, "first id", first, next)
		next += n
		equal(b.t, "next id in the dump", b.dump().NextProducer, next)
	}
	for _, n := range []int64{0, -1, control.MaxProducerBlock + 1} {
		b.unchanged("a refusal", func() {
			_, err := b.ProducerIDs(b.ctx, b.ses, n)
			b.refused(err, tiers.InvalidRequest)
		})
	}
}

func (b *bench) offsets(group string) []control.OffsetCommit {
	b.t.Helper()
	out, err := b.Offsets(b.ctx, group)
	b.must(err)
	return out
}

func (b *bench) groups() []string {
	b.t.Helper()
	out, err := b.Groups(b.ctx)
	b.must(err)
	return out
}

func testOffsets(b *bench) {
	one, two := b.topic("t", 3), b.topic("u", 1)
	if one.ID.Hex() > two.ID.Hex() {
		one, two = two, one
	}
	last := tiers.PartitionID{Topic: two.ID}
	first := tiers.PartitionID{Topic: one.ID}
	odd := "group \x00\xff é"
	at := Start().Add(time.Minute)
	cs := []control.OffsetCommit{
		{Group: odd, Partition: last, Gen: 1, Offset: 1 << 62, Epoch: 7, Metadata: "m\x00\xff", At: at},
		{Group: odd, Partition: first, Gen: 1, Offset: 0, Epoch: tiers.NoEpoch, At: at},
		{Group: "b", Partition: first, Gen: 1, Offset: 5},
	}
	b.must(b.CommitOffsets(b.ctx, b.ses, cs))
	cs[2].At = Start()
	equal(b.t, "offsets", b.offsets(odd), []control.OffsetCommit{cs[1], cs[0]})
	equal(b.t, "offsets", b.offsets("b"), cs[2:])
	equal(b.t, "groups", b.groups(), []string{"b", odd})
	if none := b.offsets("nobody"); len(none) != 0 {
		b.t.Fatalf("offsets of nobody: %v", none)
	}
	// Back is allowed, the last of one call wins, an empty call is nothing.
	again := []control.OffsetCommit{cs[2], cs[2]}
	again[0].Offset, again[1].Offset = 9, 2
	b.must(b.CommitOffsets(b.ctx, b.ses, again))
	equal(b.t, "offset", b.offsets("b"), again[1:])
	b.unchanged("no commits", func() { b.must(b.CommitOffsets(b.ctx, b.ses, nil)) })
}

func testAllOrNone(b *bench) {
	topic := b.topic("t", 1)
	p := tiers.PartitionID{Topic: topic.ID}
	good := control.OffsetCommit{Group: "g", Partition: p, Gen: 1, Offset: 5, At: Start()}
	for name, c := range map[string]struct {
		spoil func(c *control.OffsetCommit)
		kind  tiers.Kind
	}{
		"no such partition":  {func(c *control.OffsetCommit) { c.Partition.Index = 1 }, tiers.UnknownTopicOrPartition},
		"negative partition": {func(c *control.OffsetCommit) { c.Partition.Index = -1 }, tiers.UnknownTopicOrPartition},
		"no such topic":      {func(c *control.OffsetCommit) { c.Partition.Topic[3]++ }, tiers.UnknownTopicOrPartition},
		"older history":      {func(c *control.OffsetCommit) { c.Gen = 0 }, tiers.StaleFence},
		"newer history":      {func(c *control.OffsetCommit) { c.Gen = 2 }, tiers.StaleFence},
		"no group":           {func(c *control.OffsetCommit) { c.Group = "" }, tiers.InvalidRequest},
		"long group":         {func(c *control.OffsetCommit) { c.Group = strings.Repeat("g", control.MaxGroupID+1) }, tiers.InvalidRequest},
		"negative offset":    {func(c *control.OffsetCommit) { c.Offset = -1 }, tiers.InvalidRequest},
		"wrong epoch":        {func(c *control.OffsetCommit) { c.Epoch = -2 }, tiers.InvalidRequest},
		"large metadata": {func(c *control.OffsetCommit) {
			c.Metadata = strings.Repeat("m", control.MaxOffsetMetadata+1)
		}, tiers.InvalidRequest},
	} {
		bad := good
		c.spoil(&bad)
		b.unchanged(name, func() {
			b.refused(b.CommitOffsets(b.ctx, b.ses, []control.OffsetCommit{good, bad, good}), c.kind)
		})
	}
	if gs := b.groups(); len(gs) != 0 {
		b.t.Fatalf("groups %v", gs)
	}
}

// history is a state with a partition whose history was replaced once.
func history(cluster string) (control.State, tiers.PartitionID) {
	p := tiers.PartitionID{Topic: tiers.TopicID{5}}
	return control.State{
		Cluster: cluster, Rev: 4, NextProducer: 2000,
		Topics: []control.Topic{{
			ID: p.Topic, Name: "t", Rev: 3, CreatedAt: Start(), Configs: map[string]string{"k": "v"},
			Partitions: []control.Partition{{Index: 0, Gen: 2, Leader: 1, Epoch: 6, LogStart: 40}},
		}},
		Segments: []tiers.RemoteSegment{
			{ID: tiers.SegmentID{1}, Partition: tiers.PartitionID{Topic: tiers.TopicID{4}, Index: 8}, Gen: 3, Base: 0, End: 5, Epochs: tiers.Lineage{{Epoch: 1, Start: 0}}, State: tiers.DeleteStarted, CreatedAt: Start()},
			{ID: tiers.SegmentID{2}, Partition: p, Gen: 1, Base: 0, End: 5, Epochs: tiers.Lineage{{Epoch: 1, Start: 0}}, State: tiers.CopyFinished, Size: 9, CreatedAt: Start(), CopierEpoch: 1, Copier: 1},
			{ID: tiers.SegmentID{3}, Partition: p, Gen: 2, Base: 7, End: 9, Epochs: tiers.Lineage{{Epoch: 6, Start: 7}}, State: tiers.CopyStarted, CreatedAt: Start(), CopierEpoch: 6, Copier: 1},
		},
		Offsets: []control.OffsetCommit{
			{Group: "both", Partition: p, Gen: 1, Offset: 3, Epoch: 1, Metadata: "old", At: Start()},
			{Group: "both", Partition: p, Gen: 2, Offset: 8, Epoch: 6, Metadata: "new", At: Start()},
			{Group: "old", Partition: p, Gen: 1, Offset: 4, At: Start()},
		},
	}, p
}

func testOldOffsets(b *bench) {
	st, p := history(b.dump().Cluster)
	b.must(b.Load(b.ctx, st))
	equal(b.t, "offsets", b.offsets("both"), st.Offsets[1:2])
	if none := b.offsets("old"); len(none) != 0 {
		b.t.Fatalf("offsets of an old history: %v", none)
	}
	equal(b.t, "groups", b.groups(), []string{"both"})
	b.refused(b.CommitOffsets(b.ctx, b.ses, st.Offsets[:1]), tiers.StaleFence)
	// Rows of the old history may be deleted by the owner of the new one.
	f := b.fence(p)
	equal(b.t, "epoch", f.Epoch, tiers.LeaderEpoch(6))
	b.must(b.DeleteStarted(b.ctx, f, tiers.SegmentID{2}))
	b.must(b.DeleteFinished(b.ctx, f, tiers.SegmentID{2}))
	old, err := b.Segments(b.ctx, p, 1)
	b.must(err)
	if len(old) != 0 {
		b.t.Fatalf("segments of the old history: %v", old)
	}
	b.must(b.DeleteOffsets(b.ctx, b.ses, "old", nil))
	b.must(b.DeleteOffsets(b.ctx, b.ses, "both", []tiers.PartitionID{p}))
	if left := b.dump().Offsets; len(left) != 0 {
		b.t.Fatalf("left %v", left)
	}
}

func testDeleteOffsets(b *bench) {
	topic := b.topic("t", 3)
	var all []control.OffsetCommit
	for _, g := range []string{"g", "h"} {
		for i := range int32(3) {
			all = append(all, control.OffsetCommit{Group: g, Partition: tiers.PartitionID{Topic: topic.ID, Index: i}, Gen: 1, Offset: 5, At: Start()})
		}
	}
	b.must(b.CommitOffsets(b.ctx, b.ses, all))
	b.must(b.DeleteOffsets(b.ctx, b.ses, "g", []tiers.PartitionID{{Topic: topic.ID, Index: 1}, {Topic: topic.ID, Index: 9}}))
	equal(b.t, "one gone", b.offsets("g"), []control.OffsetCommit{all[0], all[2]})
	b.must(b.DeleteOffsets(b.ctx, b.ses, "g", nil))
	equal(b.t, "groups", b.groups(), []string{"h"})
	equal(b.t, "the other group", b.offsets("h"), all[3:])
	b.unchanged("a group that is not there", func() { b.must(b.DeleteOffsets(b.ctx, b.ses, "x", nil)) })
}

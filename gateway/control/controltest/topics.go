package controltest

import (
	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/partition"
)

func testCluster(b *bench) {
	id, err := b.Cluster(b.ctx)
	b.must(err)
	if _, err := tiers.ParseTopicID(id); err != nil || len(id) != 22 {
		b.t.Fatalf("cluster id %q: %v", id, err)
	}
	equal(b.t, "cluster id of the dump", b.dump().Cluster, id)
}

func testOpenSession(b *bench) {
	equal(b.t, "first session", b.ses, control.Session{Node: 1, Epoch: 1})
	mine := b.topic("mine", 2)
	other, err := b.OpenSession(b.ctx, 2)
	b.must(err)
	equal(b.t, "another node's first session", other, control.Session{Node: 2, Epoch: 1})
	theirs, err := b.CreateTopic(b.ctx, other, control.NewTopic{Name: "theirs", Partitions: 1})
	b.must(err)
	b.session()
	equal(b.t, "second session", b.ses, control.Session{Node: 1, Epoch: 2})
	b.session()
	equal(b.t, "third session", b.ses, control.Session{Node: 1, Epoch: 3})
	for _, topic := range b.topics() {
		want := tiers.LeaderEpoch(0)
		if topic.ID == mine.ID {
			want = 2
		}
		for _, p := range topic.Partitions {
			equal(b.t, "epoch of "+topic.Name, p.Epoch, want)
		}
	}
	equal(b.t, "revision", b.dump().Rev, theirs.Rev)
	_, err = b.OpenSession(b.ctx, -1)
	b.refused(err, tiers.InvalidRequest)
}

// mutations are all that carry a session.
func mutations(b *bench, topic control.Topic) map[string]func(ses control.Session) error {
	p := tiers.PartitionID{Topic: topic.ID}
	return map[string]func(ses control.Session) error{
		"CreateTopic": func(ses control.Session) error {
			_, err := b.CreateTopic(b.ctx, ses, control.NewTopic{Name: "new", Partitions: 1})
			return err
		},
		"AddPartitions": func(ses control.Session) error {
			_, err := b.AddPartitions(b.ctx, ses, topic.ID, 9)
			return err
		},
		"SetConfigs": func(ses control.Session) error {
			_, err := b.SetConfigs(b.ctx, ses, topic.ID, 0, nil)
			return err
		},
		"DeleteTopic": func(ses control.Session) error {
			_, err := b.DeleteTopic(b.ctx, ses, topic.ID)
			return err
		},
		"Buried": func(ses control.Session) error { return b.Buried(b.ctx, ses, tiers.SegmentID{1}) },
		"ProducerIDs": func(ses control.Session) error {
			_, err := b.ProducerIDs(b.ctx, ses, 1)
			return err
		},
		"CommitOffsets": func(ses control.Session) error {
			return b.CommitOffsets(b.ctx, ses, []control.OffsetCommit{{Group: "g", Partition: p, Gen: 1, Offset: 9}})
		},
		"DeleteOffsets": func(ses control.Session) error { return b.DeleteOffsets(b.ctx, ses, "g", nil) },
	}
}

func testSessionFence(b *bench) {
	topic := b.topic("t", 1)
	b.must(b.CommitOffsets(b.ctx, b.ses, []control.OffsetCommit{{Group: "g", Partition: tiers.PartitionID{Topic: topic.ID}, Gen: 1}}))
	old := b.ses
	b.session()
	for name, do := range mutations(b, topic) {
		for _, ses := range []control.Session{old, {Node: 1}, {}, {Node: 7}, {Node: 7, Epoch: 1}, {Node: 1, Epoch: b.ses.Epoch + 1}, {Node: 1, Epoch: -1}} {
			b.unchanged(name, func() { b.refused(do(ses), tiers.StaleFence) })
		}
	}
}

func testFence(b *bench) {
	topic := b.topic("t", 1)
	p := tiers.PartitionID{Topic: topic.ID}
	b.session()
	good := b.fence(p)
	started, done := b.segment(good, 10), b.copied(good, 20)
	b.must(b.CopyStarted(b.ctx, good, started))
	doomed := b.copied(good, 30)
	b.must(b.DeleteStarted(b.ctx, good, doomed.ID))
	ops := map[string]func(f partition.Fence) error{
		"CopyStarted": func(f partition.Fence) error {
			s := b.segment(good, 0)
			s.Partition, s.Gen = f.Partition, f.Gen
			return b.CopyStarted(b.ctx, f, s)
		},
		"CopyFinished":   func(f partition.Fence) error { return b.CopyFinished(b.ctx, f, finished(started)) },
		"DeleteStarted":  func(f partition.Fence) error { return b.DeleteStarted(b.ctx, f, done.ID) },
		"DeleteFinished": func(f partition.Fence) error { return b.DeleteFinished(b.ctx, f, doomed.ID) },
		"RaiseLogStart": func(f partition.Fence) error {
			_, err := b.RaiseLogStart(b.ctx, f, 5)
			return err
		},
	}
	bad := map[string]func(f *partition.Fence){
		"older gen":          func(f *partition.Fence) { f.Gen-- },
		"newer gen":          func(f *partition.Fence) { f.Gen++ },
		"older leader epoch": func(f *partition.Fence) { f.Epoch-- },
		"newer leader epoch": func(f *partition.Fence) { f.Epoch++ },
		"older node epoch":   func(f *partition.Fence) { f.NodeEpoch-- },
		"no node epoch":      func(f *partition.Fence) { f.NodeEpoch = 0 },
		"newer node epoch":   func(f *partition.Fence) { f.NodeEpoch++ },
		"no such partition":  func(f *partition.Fence) { f.Partition.Index = 1 },
		"negative partition": func(f *partition.Fence) { f.Partition.Index = -1 },
		"no such topic":      func(f *partition.Fence) { f.Partition.Topic[0]++ },
	}
	for op, do := range ops {
		for why, spoil := range bad {
			f := good
			spoil(&f)
			b.unchanged(op+" with "+why, func() { b.refused(do(f), tiers.StaleFence) })
		}
		if err := do(good); err != nil {
			b.t.Fatalf("%s with the right fence: %v", op, err)
		}
	}
}

// testFenceOfStranger has a fence without a node epoch meet a leader that never
// registered.
func testFenceOfStranger(b *bench) {
	st, p := history(b.dump().Cluster)
	st.Topics[0].Partitions[0].Leader = 7
	b.must(b.Load(b.ctx, st))
	for epoch := range int64(2) {
		_, err := b.RaiseLogStart(b.ctx, partition.Fence{Partition: p, Gen: 2, Epoch: 6, NodeEpoch: epoch}, 50)
		b.refused(err, tiers.StaleFence)
	}
}

func testCreateTopic(b *bench) {
	if ts := b.topics(); len(ts) != 0 {
		b.t.Fatalf("an empty store has topics %v", ts)
	}
	seen := map[tiers.TopicID]bool{}
	for i, name := range []string{"b", "a", "c.x"} {
		got := b.topic(name, 2)
		id := got.ID
		if id.IsZero() || control.ReservedTopicID(id) || id[6]>>4 != 4 || id[8]>>6 != 2 || seen[id] || id.String()[0] == '-' {
			b.t.Fatalf("topic id %s (%s)", id, id.Hex())
		}
		seen[id] = true
		equal(b.t, "topic", got, control.Topic{
			ID: id, Name: name, Configs: map[string]string{"retention.ms": "1"}, Rev: control.Rev(i + 1), CreatedAt: Start(),
			Partitions: []control.Partition{{Index: 0, Gen: 1, Leader: 1}, {Index: 1, Gen: 1, Leader: 1}},
		})
	}
	want := tiers.TopicID{9, 9}
	got, err := b.CreateTopic(b.ctx, b.ses, control.NewTopic{ID: want, Name: "own-id", Partitions: 1})
	b.must(err)
	equal(b.t, "own id", got.ID, want)
	if got.Configs == nil {
		b.t.Fatal("Configs is nil")
	}
	var names []string
	for _, topic := range b.topics() {
		names = append(names, topic.Name)
	}
	equal(b.t, "names", names, []string{"a", "b", "c.x", "own-id"})
	equal(b.t, "a stored topic", b.topics()[3], got)
}

func testCreateTopicRefusals(b *bench) {
	b.topic("t", 1)
	long := string(make([]byte, control.MaxTopicName+1))
	big := map[string]string{"k": string(make([]byte, control.MaxConfigBytes))}
	for name, c := range map[string]struct {
		n    control.NewTopic
		kind tiers.Kind
	}{
		"empty name":          {control.NewTopic{Partitions: 1}, tiers.InvalidTopic},
		"long name":           {control.NewTopic{Name: long, Partitions: 1}, tiers.InvalidTopic},
		"no partition":        {control.NewTopic{Name: "x"}, tiers.InvalidPartitions},
		"negative partitions": {control.NewTopic{Name: "x", Partitions: -1}, tiers.InvalidPartitions},
		"many partitions":     {control.NewTopic{Name: "x", Partitions: control.MaxPartitions + 1}, tiers.InvalidPartitions},
		"same name":           {control.NewTopic{Name: "t", Partitions: 1}, tiers.TopicExists},
		"reserved id":         {control.NewTopic{ID: tiers.TopicID{15: 1}, Name: "x", Partitions: 1}, tiers.InvalidRequest},
		"id in use":           {control.NewTopic{ID: b.topics()[0].ID, Name: "x", Partitions: 1}, tiers.Conflict},
		"setting without key": {control.NewTopic{Name: "x", Partitions: 1, Configs: map[string]string{"": "v"}}, tiers.InvalidConfig},
		"large settings":      {control.NewTopic{Name: "x", Partitions: 1, Configs: big}, tiers.InvalidConfig},
	} {
		b.unchanged(name, func() {
			got, err := b.CreateTopic(b.ctx, b.ses, c.n)
			b.refused(err, c.kind)
			equal(b.t, "answer", got, control.Topic{})
		})
	}
}

func testClash(b *bench) {
	b.topic("a.b_c", 1)
	for _, name := range []string{"a_b_c", "a.b.c", "a_b.c", "a.b_c"} {
		_, err := b.CreateTopic(b.ctx, b.ses, control.NewTopic{Name: name, Partitions: 1})
		b.refused(err, tiers.TopicExists)
	}
	b.topic("a-b-c", 1)
	_, err := b.DeleteTopic(b.ctx, b.ses, b.topics()[1].ID)
	b.must(err)
	b.topic("a_b_c", 1)
}

func testAddPartitions(b *bench) {
	topic := b.topic("t", 2)
	b.session()
	got, err := b.AddPartitions(b.ctx, b.ses, topic.ID, 4)
	b.must(err)
	topic.Rev = 2
	topic.Partitions = []control.Partition{{Index: 0, Gen: 1, Leader: 1, Epoch: 1}, {Index: 1, Gen: 1, Leader: 1, Epoch: 1}, {Index: 2, Gen: 1, Leader: 1}, {Index: 3, Gen: 1, Leader: 1}}
	equal(b.t, "answer", got, topic)
	equal(b.t, "stored", b.topics(), []control.Topic{topic})
	for _, n := range []int32{4, 3, 0, -1, control.MaxPartitions + 1} {
		b.unchanged("a refusal", func() {
			_, err := b.AddPartitions(b.ctx, b.ses, topic.ID, n)
			b.refused(err, tiers.InvalidPartitions)
		})
	}
}

func testSetConfigs(b *bench) {
	topic, other := b.topic("t", 1), b.topic("other", 1)
	got, err := b.SetConfigs(b.ctx, b.ses, topic.ID, topic.Rev, map[string]string{"a": "1", "b": "\xff\x00 é"})
	b.must(err)
	topic.Rev, topic.Configs = 3, map[string]string{"a": "1", "b": "\xff\x00 é"}
	equal(b.t, "answer", got, topic)
	equal(b.t, "stored", b.topics(), []control.Topic{other, topic})
	b.unchanged("a stale revision", func() {
		_, serr := b.SetConfigs(b.ctx, b.ses, topic.ID, 1, nil)
		b.refused(serr, tiers.Conflict)
	})
	b.unchanged("equal settings", func() {
		same, serr := b.SetConfigs(b.ctx, b.ses, topic.ID, 0, topic.Configs)
		b.must(serr)
		equal(b.t, "answer", same, topic)
	})
	b.unchanged("a setting without a name", func() {
		_, serr := b.SetConfigs(b.ctx, b.ses, topic.ID, 0, map[string]string{"": ""})
		b.refused(serr, tiers.InvalidConfig)
	})
	got, err = b.SetConfigs(b.ctx, b.ses, topic.ID, 0, nil)
	b.must(err)
	equal(b.t, "no settings", got.Configs, map[string]string{})
}

func testUnknownTopic(b *bench) {
	topic := b.topic("t", 1)
	_, err := b.DeleteTopic(b.ctx, b.ses, topic.ID)
	b.must(err)
	_, err = b.AddPartitions(b.ctx, b.ses, topic.ID, 2)
	b.refused(err, tiers.UnknownTopicID)
	_, err = b.SetConfigs(b.ctx, b.ses, topic.ID, 0, nil)
	b.refused(err, tiers.UnknownTopicID)
	_, err = b.DeleteTopic(b.ctx, b.ses, topic.ID)
	b.refused(err, tiers.UnknownTopicID)
	_, err = b.Segments(b.ctx, tiers.PartitionID{Topic: topic.ID}, 1)
	b.refused(err, tiers.UnknownTopicOrPartition)
}

func testDeleteTopic(b *bench) {
	topic, other := b.topic("t", 2), b.topic("other", 1)
	p := tiers.PartitionID{Topic: topic.ID, Index: 1}
	f, g := b.fence(p), b.fence(tiers.PartitionID{Topic: other.ID})
	started, deleting := b.segment(f, 0), b.copied(f, 10)
	b.must(b.CopyStarted(b.ctx, f, started))
	done := b.copied(f, 20)
	b.must(b.DeleteStarted(b.ctx, f, deleting.ID))
	kept := b.copied(g, 0)
	for _, id := range []tiers.PartitionID{p, {Topic: other.ID}} {
		b.must(b.CommitOffsets(b.ctx, b.ses, []control.OffsetCommit{{Group: "g", Partition: id, Gen: 1, Offset: 3, At: Start()}}))
	}
	rev, err := b.DeleteTopic(b.ctx, b.ses, topic.ID)
	b.must(err)
	equal(b.t, "revision", rev, control.Rev(3))
	var want []tiers.RemoteSegment
	for _, s := range []tiers.RemoteSegment{started, deleting, done} {
		s.State = tiers.DeleteStarted
		want = append(want, s)
	}
	if b.e.Reopen != nil {
		b.Store = b.e.Reopen(b.t, b.Store)
	}
	doomed, err := b.Doomed(b.ctx, 100)
	b.must(err)
	equal(b.t, "doomed", doomed, want)
	doomed, err = b.Doomed(b.ctx, 2)
	b.must(err)
	equal(b.t, "the first two", doomed, want[:2])
	_, err = b.Doomed(b.ctx, 0)
	b.refused(err, tiers.InvalidRequest)
	st := b.dump()
	equal(b.t, "topics", st.Topics, []control.Topic{other})
	equal(b.t, "offsets", st.Offsets, []control.OffsetCommit{{Group: "g", Partition: tiers.PartitionID{Topic: other.ID}, Gen: 1, Offset: 3, At: Start()}})
	alive, err := b.Segments(b.ctx, g.Partition, 1)
	b.must(err)
	equal(b.t, "segments of the other topic", alive, []tiers.RemoteSegment{kept})

	// The name is free, the id is not while rows carry it.
	if again := b.topic("t", 1); again.ID == topic.ID {
		b.t.Fatal("the topic id came back")
	}
	_, err = b.CreateTopic(b.ctx, b.ses, control.NewTopic{ID: topic.ID, Name: "x", Partitions: 1})
	b.refused(err, tiers.Conflict)
}

func testBuried(b *bench) {
	topic, other := b.topic("t", 1), b.topic("other", 1)
	f := b.fence(tiers.PartitionID{Topic: topic.ID})
	one, two := b.copied(f, 0), b.copied(f, 10)
	g := b.fence(tiers.PartitionID{Topic: other.ID})
	alive := b.copied(g, 0)
	b.must(b.DeleteStarted(b.ctx, g, alive.ID))
	_, err := b.DeleteTopic(b.ctx, b.ses, topic.ID)
	b.must(err)
	b.unchanged("a segment that is not doomed", func() { b.refused(b.Buried(b.ctx, b.ses, one.ID, alive.ID), tiers.Conflict) })
	b.must(b.Buried(b.ctx, b.ses, one.ID, tiers.SegmentID{200}))
	left, err := b.Doomed(b.ctx, 10)
	b.must(err)
	two.State = tiers.DeleteStarted
	equal(b.t, "left", left, []tiers.RemoteSegment{two})
	b.must(b.Buried(b.ctx, b.ses, one.ID, two.ID, two.ID))
	b.unchanged("burying again", func() { b.must(b.Buried(b.ctx, b.ses, one.ID, two.ID)) })
	left, err = b.Doomed(b.ctx, 10)
	b.must(err)
	if len(left) != 0 {
		b.t.Fatalf("left %v", left)
	}
	// Nothing carries the id any more.
	_, err = b.CreateTopic(b.ctx, b.ses, control.NewTopic{ID: topic.ID, Name: "x", Partitions: 1})
	b.must(err)
}

func testChanges(b *bench) {
	first := b.topic("t", 1)
	second, err := b.SetConfigs(b.ctx, b.ses, first.ID, 0, map[string]string{"k": "v"})
	b.must(err)
	b.session()
	third, err := b.AddPartitions(b.ctx, b.ses, first.ID, 3)
	b.must(err)
	_, err = b.DeleteTopic(b.ctx, b.ses, first.ID)
	b.must(err)
	last := third
	last.Rev = 4
	fifth := b.topic("t", 1)
	want := []control.Change{{Rev: 1, Topic: first}, {Rev: 2, Topic: second}, {Rev: 3, Topic: third}, {Rev: 4, Topic: last, Deleted: true}, {Rev: 5, Topic: fifth}}
	for after := control.Rev(0); after <= 5; after++ {
		got, err := b.Changes(b.ctx, after)
		b.must(err)
		if len(got) == 0 {
			got = []control.Change{}
		}
		equal(b.t, "changes", got, want[after:])
	}
	for _, after := range []control.Rev{-1, 6} {
		_, err := b.Changes(b.ctx, after)
		b.refused(err, tiers.Conflict)
	}
}

func testTrim(b *bench) {
	for _, name := range []string{"a", "b", "c"} {
		b.topic(name, 1)
	}
	b.must(b.TrimChanges(b.ctx, 2))
	b.must(b.TrimChanges(b.ctx, 1)) // Lower: nothing.
	for _, after := range []control.Rev{0, 1} {
		_, err := b.Changes(b.ctx, after)
		b.refused(err, tiers.Conflict)
	}
	got, err := b.Changes(b.ctx, 2)
	b.must(err)
	if len(got) != 1 || got[0].Rev != 3 {
		b.t.Fatalf("changes after the trim: %v", got)
	}
	for _, upTo := range []control.Rev{-1, 4} {
		b.refused(b.TrimChanges(b.ctx, upTo), tiers.InvalidRequest)
	}
	b.must(b.TrimChanges(b.ctx, 3))
	if got, err := b.Changes(b.ctx, 3); err != nil || len(got) != 0 {
		b.t.Fatalf("changes after trimming all: %v, %v", got, err)
	}
	if d := b.topic("d", 1); d.Rev != 4 {
		b.t.Fatalf("revision %d after a trim", d.Rev)
	}
}

func testRaiseLogStart(b *bench) {
	topic := b.topic("t", 2)
	p := tiers.PartitionID{Topic: topic.ID, Index: 1}
	f := b.fence(p)
	for _, c := range []struct {
		raise, want tiers.Offset
		rev         control.Rev
	}{{5, 5, 2}, {3, 5, 2}, {5, 5, 2}, {0, 5, 2}, {1 << 62, 1 << 62, 3}} {
		rev, err := b.RaiseLogStart(b.ctx, f, c.raise)
		b.must(err)
		equal(b.t, "revision", rev, c.rev)
		got := b.topics()[0]
		equal(b.t, "log start", got.Partitions[1].LogStart, c.want)
		equal(b.t, "log start of the other partition", got.Partitions[0].LogStart, tiers.Offset(0))
		equal(b.t, "the topic's own revision", got.Rev, topic.Rev)
	}
	b.unchanged("a negative offset", func() {
		_, err := b.RaiseLogStart(b.ctx, f, -1)
		b.refused(err, tiers.InvalidRequest)
	})
	last, err := b.LastRev(b.ctx)
	b.must(err)
	equal(b.t, "last revision", last, control.Rev(3))
	// What is not raised says up to where the changes before must be known.
	other := b.topic("other", 1)
	rev, err := b.RaiseLogStart(b.ctx, f, 7)
	b.must(err)
	equal(b.t, "revision of a raise that was not needed", rev, other.Rev)
	cs, err := b.Changes(b.ctx, 1)
	b.must(err)
	equal(b.t, "changes", cs, []control.Change{
		{Rev: 2, Raised: &control.Raised{Partition: p, Gen: 1, LogStart: 5}},
		{Rev: 3, Raised: &control.Raised{Partition: p, Gen: 1, LogStart: 1 << 62}},
		{Rev: 4, Topic: other},
	})
	cs[0].Raised.LogStart = 99 // What comes out is the caller's.
	again, err := b.Changes(b.ctx, 1)
	b.must(err)
	equal(b.t, "log start of the change", again[0].Raised.LogStart, tiers.Offset(5))
	// A topic keeps what was raised, in what is told of it, too.
	changed, err := b.SetConfigs(b.ctx, b.ses, topic.ID, topic.Rev, nil)
	b.must(err)
	equal(b.t, "log start after a change of settings", changed.Partitions[1].LogStart, tiers.Offset(1<<62))
	b.must(b.TrimChanges(b.ctx, 3))
	_, err = b.Changes(b.ctx, 2)
	b.refused(err, tiers.Conflict)
}

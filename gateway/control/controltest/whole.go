package controltest

import (
	"context"
	"fmt"
	"math"
	"sync"

	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/tiers"
)

// fill writes something of everything.
func (b *bench) fill() {
	b.t.Helper()
	gone, topic := b.topic("gone", 1), b.topic("t.u", 2)
	b.copied(b.fence(tiers.PartitionID{Topic: gone.ID}), 0)
	_, err := b.DeleteTopic(b.ctx, b.ses, gone.ID)
	b.must(err)
	b.session()
	f := b.fence(tiers.PartitionID{Topic: topic.ID, Index: 1})
	b.copied(f, 10)
	b.must(b.CopyStarted(b.ctx, f, b.segment(f, 20)))
	_, err = b.RaiseLogStart(b.ctx, f, 15)
	b.must(err)
	b.must(b.CommitOffsets(b.ctx, b.ses, []control.OffsetCommit{{Group: "g", Partition: f.Partition, Gen: 1, Offset: 17, Epoch: 1, Metadata: "m", At: Start()}}))
	_, err = b.ProducerIDs(b.ctx, b.ses, 1000)
	b.must(err)
}

func testDumpLoad(b *bench) {
	b.fill()
	st := b.dump()
	b.must(st.Valid())
	other := open(b.t, b.e)
	_, err := other.ProducerIDs(other.ctx, other.ses, 1)
	other.must(err)
	other.must(other.Load(other.ctx, st))
	equal(b.t, "dump of the loaded store", other.dump(), st)
	id, err := other.Cluster(other.ctx)
	other.must(err)
	equal(b.t, "cluster id", id, st.Cluster)
	doomed, err := other.Doomed(other.ctx, 9)
	other.must(err)
	equal(b.t, "doomed", doomed, []tiers.RemoteSegment{func() tiers.RemoteSegment {
		for _, s := range st.Segments {
			if s.State == tiers.DeleteStarted {
				return s
			}
		}
		return tiers.RemoteSegment{}
	}()})

	// The history of changes starts after it, without a gap in the numbers.
	_, err = other.Changes(other.ctx, st.Rev-1)
	other.refused(err, tiers.Conflict)
	if cs, err := other.Changes(other.ctx, st.Rev); err != nil || len(cs) != 0 {
		b.t.Fatalf("changes after the load: %v, %v", cs, err)
	}
	equal(b.t, "next revision", other.topic("new", 1).Rev, st.Rev+1)
	// A session after it raises the loaded leader epochs.
	other.session()
	for _, topic := range other.topics() {
		if topic.Name == "t.u" {
			equal(b.t, "epoch", topic.Partitions[0].Epoch, tiers.LeaderEpoch(2))
		}
	}
	b.unchanged("loading a store that is not empty", func() { b.refused(b.Load(b.ctx, st), tiers.Conflict) })

	// Order does not matter.
	shuffled, _ := history(st.Cluster)
	sorted := shuffled.Normal()
	for i, j := 0, len(shuffled.Segments)-1; i < j; i, j = i+1, j-1 {
		shuffled.Segments[i], shuffled.Segments[j] = shuffled.Segments[j], shuffled.Segments[i]
		shuffled.Offsets[i], shuffled.Offsets[j] = shuffled.Offsets[j], shuffled.Offsets[i]
	}
	third := open(b.t, b.e)
	third.must(third.Load(third.ctx, shuffled))
	equal(b.t, "dump of a shuffled state", third.dump(), sorted)
}

func testLoadRefusals(b *bench) {
	for name, spoil := range map[string]func(st *control.State){
		"cluster id":         func(st *control.State) { st.Cluster = "x" },
		"revision":           func(st *control.State) { st.Rev = -1 },
		"producer id":        func(st *control.State) { st.NextProducer = -1 },
		"topic name":         func(st *control.State) { st.Topics[0].Name = "" },
		"topic id":           func(st *control.State) { st.Topics[0].ID = tiers.TopicID{} },
		"topic's revision":   func(st *control.State) { st.Topics[0].Rev = 5 },
		"topic twice":        func(st *control.State) { st.Topics = append(st.Topics, st.Topics[0]) },
		"no partition":       func(st *control.State) { st.Topics[0].Partitions = nil },
		"partition index":    func(st *control.State) { st.Topics[0].Partitions[0].Index = 1 },
		"gen":                func(st *control.State) { st.Topics[0].Partitions[0].Gen = 0 },
		"leader epoch":       func(st *control.State) { st.Topics[0].Partitions[0].Epoch = -1 },
		"last leader epoch":  func(st *control.State) { st.Topics[0].Partitions[0].Epoch = math.MaxInt32 },
		"log start":          func(st *control.State) { st.Topics[0].Partitions[0].LogStart = -1 },
		"segment twice":      func(st *control.State) { st.Segments = append(st.Segments, st.Segments[0]) },
		"segment state":      func(st *control.State) { st.Segments[0].State = tiers.DeleteFinished },
		"segment's gen":      func(st *control.State) { st.Segments[1].Gen = 3 },
		"segment without id": func(st *control.State) { st.Segments[1].ID = tiers.SegmentID{} },
		"segment's facts":    func(st *control.State) { st.Segments[1].End = 0 },
		"segment's topic":    func(st *control.State) { st.Segments[1].Partition.Topic[0]++ },
		"segment's index":    func(st *control.State) { st.Segments[1].Partition.Index = 1 },
		"offset":             func(st *control.State) { st.Offsets[0].Offset = -1 },
		"offset's gen":       func(st *control.State) { st.Offsets[0].Gen = 3 },
		"offset's topic":     func(st *control.State) { st.Offsets[0].Partition.Topic[0]++ },
		"offset twice":       func(st *control.State) { st.Offsets = append(st.Offsets, st.Offsets[0]) },
		"clashing names": func(st *control.State) {
			c := st.Topics[0].Clone()
			c.ID[9]++
			st.Topics[0].Name, c.Name = "a.b", "a_b"
			st.Topics = append(st.Topics, c)
		},
	} {
		st, _ := history(b.dump().Cluster)
		spoil(&st)
		b.unchanged("a wrong "+name, func() { b.refused(b.Load(b.ctx, st), tiers.InvalidRequest) })
	}
	st, _ := history(b.dump().Cluster)
	b.must(b.Load(b.ctx, st))
}

func testLoadProducers(b *bench) {
	for range 3 {
		_, err := b.ProducerIDs(b.ctx, b.ses, 1000)
		b.must(err)
	}
	st, _ := history(b.dump().Cluster)
	b.must(b.Load(b.ctx, st)) // It says 2000.
	first, err := b.ProducerIDs(b.ctx, b.ses, 1)
	b.must(err)
	equal(b.t, "first id", first, int64(3000))
	other := open(b.t, b.e)
	st.NextProducer = math.MaxInt64 - 5
	other.must(other.Load(other.ctx, st))
	other.unchanged("no ids left", func() {
		_, err := other.ProducerIDs(other.ctx, other.ses, 6)
		other.refused(err, tiers.Other)
	})
}

func testContexts(b *bench) {
	topic := b.topic("t", 1)
	ctx, cancel := context.WithCancel(b.ctx)
	cancel()
	b.unchanged("an ended context", func() {
		ok := b.ctx
		b.ctx = ctx
		for _, do := range mutations(b, topic) {
			b.refused(do(b.ses), tiers.TimedOut)
		}
		_, err := b.Topics(ctx)
		b.refused(err, tiers.TimedOut)
		_, err = b.Dump(ctx)
		b.refused(err, tiers.TimedOut)
		b.ctx = ok
	})
}

func testClosed(b *bench) {
	topic := b.topic("t", 1)
	b.must(b.Close())
	b.must(b.Close())
	for _, do := range mutations(b, topic) {
		b.refused(do(b.ses), tiers.Closed)
	}
	_, err := b.Topics(b.ctx)
	b.refused(err, tiers.Closed)
	_, err = b.Dump(b.ctx)
	b.refused(err, tiers.Closed)
	_, err = b.OpenSession(b.ctx, 1)
	b.refused(err, tiers.Closed)
}

// testNothingShared changes everything that went in and came out.
func testNothingShared(b *bench) {
	configs := map[string]string{"k": "v"}
	topic, err := b.CreateTopic(b.ctx, b.ses, control.NewTopic{Name: "t", Partitions: 1, Configs: configs})
	b.must(err)
	f := b.fence(tiers.PartitionID{Topic: topic.ID})
	s := b.segment(f, 0)
	b.must(b.CopyStarted(b.ctx, f, s))
	b.unchanged("a caller's change", func() {
		configs["k"] = "x"
		topic.Configs["k"] = "x"
		topic.Partitions[0].Epoch = 99
		s.Epochs[0].Epoch = 99
		b.topics()[0].Configs["k"] = "x"
		b.topics()[0].Partitions[0].Gen = 99
		b.segments(f.Partition)[0].Epochs[0].Epoch = 99
		st := b.dump()
		st.Topics[0].Configs["k"] = "x"
		st.Segments[0].Epochs[0].Epoch = 99
		cs, err := b.Changes(b.ctx, 0)
		b.must(err)
		cs[0].Topic.Configs["k"] = "x"
		cs, err = b.Changes(b.ctx, 0)
		b.must(err)
		equal(b.t, "change", cs[0].Topic.Configs, map[string]string{"k": "v"})
	})
}

// testConcurrent has 64 callers commit, copy and create at once.
func testConcurrent(b *bench) {
	const callers, rounds = 64, 10
	topic := b.topic("t", callers)
	fences := make([]int, callers)
	var mu sync.Mutex
	blocks := map[int64]bool{}
	var wg sync.WaitGroup
	for i := range fences {
		p := tiers.PartitionID{Topic: topic.ID, Index: int32(i)}
		f := b.fence(p)
		wg.Go(func() {
			for n := range rounds {
				err := b.CommitOffsets(b.ctx, b.ses, []control.OffsetCommit{{Group: fmt.Sprintf("g%02d", i), Partition: p, Gen: 1, Offset: tiers.Offset(n)}})
				if err != nil {
					b.t.Errorf("commit: %v", err)
				}
				// One in two is refused, and must not undo its neighbours.
				if err = b.CommitOffsets(b.ctx, b.ses, []control.OffsetCommit{{Group: "x", Partition: p, Gen: 1}, {Group: "x", Partition: p, Gen: 2}}); tiers.KindOf(err) != tiers.StaleFence {
					b.t.Errorf("a commit of another history: %v", err)
				}
				first, err := b.ProducerIDs(b.ctx, b.ses, 10)
				if err != nil {
					b.t.Errorf("producer ids: %v", err)
				}
				mu.Lock()
				if blocks[first] || first%10 != 0 {
					b.t.Errorf("block %d twice", first)
				}
				blocks[first] = true
				mu.Unlock()
				if _, err := b.Offsets(b.ctx, "g00"); err != nil {
					b.t.Errorf("offsets: %v", err)
				}
			}
			s := tiers.RemoteSegment{ID: tiers.SegmentID{byte(i), 1}, Partition: p, Gen: 1, End: 9, Epochs: tiers.Lineage{{}}, Size: 1}
			if err := b.CopyStarted(b.ctx, f, s); err != nil {
				b.t.Errorf("start copy: %v", err)
			}
			if err := b.CopyFinished(b.ctx, f, s); err != nil {
				b.t.Errorf("finish copy: %v", err)
			}
			if _, err := b.CreateTopic(b.ctx, b.ses, control.NewTopic{Name: fmt.Sprintf("c%02d", i), Partitions: 1}); err != nil {
				b.t.Errorf("create topic: %v", err)
			}
		})
	}
	wg.Wait()
	st := b.dump()
	b.must(st.Valid())
	if len(st.Offsets) != callers || len(st.Segments) != callers || len(st.Topics) != callers+1 || st.Rev != callers+1 || st.NextProducer != callers*rounds*10 {
		b.t.Fatalf("%d offsets, %d segments, %d topics, revision %d, next producer id %d", len(st.Offsets), len(st.Segments), len(st.Topics), st.Rev, st.NextProducer)
	}
	for _, c := range st.Offsets {
		equal(b.t, c.Group, c.Offset, tiers.Offset(rounds-1))
	}
	cs, err := b.Changes(b.ctx, 0)
	b.must(err)
	for i, c := range cs {
		equal(b.t, "revision without a gap", c.Rev, control.Rev(i+1))
	}
}

func testReopen(b *bench) {
	b.fill()
	before := b.dump()
	changes, err := b.Changes(b.ctx, 0)
	b.must(err)
	old := b.ses
	b.Store = b.e.Reopen(b.t, b.Store)
	equal(b.t, "dump", b.dump(), before)
	again, err := b.Changes(b.ctx, 0)
	b.must(err)
	equal(b.t, "changes", again, changes)
	b.session()
	if b.ses.Epoch != old.Epoch+1 {
		b.t.Fatalf("node epoch %d after %d", b.ses.Epoch, old.Epoch)
	}
	first, err := b.ProducerIDs(b.ctx, b.ses, 1)
	b.must(err)
	equal(b.t, "producer ids go on", first, before.NextProducer)
	equal(b.t, "revisions go on", b.topic("later", 1).Rev, before.Rev+1)
	b.must(b.TrimChanges(b.ctx, 2))
	b.Store = b.e.Reopen(b.t, b.Store)
	_, err = b.Changes(b.ctx, 1)
	b.refused(err, tiers.Conflict)
}

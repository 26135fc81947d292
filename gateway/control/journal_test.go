package control_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/gateway/control/model"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/partition"
	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

// node is a store with its session, claim and journal, as a start makes them.
type node struct {
	*control.Journal
	store   control.Store
	session control.Session
	bucket  *memory.Bucket
}

func begin(t *testing.T, b *memory.Bucket, s control.Store) *node {
	t.Helper()
	id, err := s.Cluster(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	o := claimOptions(fmt.Sprint(t.Name(), len(b.Calls(memory.OpPut, "claim"))))
	o.Cluster = id
	claim, err := control.AcquireClaim(t.Context(), b, o)
	if err != nil {
		t.Fatal(err)
	}
	session, err := s.OpenSession(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	n := &node{control.NewJournal(b, s, claim, hclog.NewNullLogger()), s, session, b}
	n.snapshot(t)
	return n
}

func (n *node) snapshot(t *testing.T) {
	t.Helper()
	if err := n.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (n *node) create(t *testing.T, name string) control.Topic {
	t.Helper()
	topic, err := n.store.CreateTopic(t.Context(), n.session, control.NewTopic{Name: name, Partitions: 2, Configs: map[string]string{"segment.bytes": "1024"}})
	if err != nil {
		t.Fatal(err)
	}
	n.publish(t, topic.Rev)
	return topic
}

func (n *node) publish(t *testing.T, rev control.Rev) {
	t.Helper()
	if err := n.Publish(t.Context(), rev); err != nil {
		t.Fatal(err)
	}
}

// same compares what the bucket says with what the store holds.
func (n *node) same(t *testing.T) control.JournalReport {
	t.Helper()
	want, err := n.store.Dump(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got, rep, err := control.ReadJournal(t.Context(), n.bucket)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Topics) == 0 {
		got.Topics = want.Topics[:0]
	}
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		t.Fatalf("the bucket says\n%+v\nthe store holds\n%+v", got, want)
	}
	return rep
}

func TestJournalEveryChangeIsInTheBucketBeforeTheAnswer(t *testing.T) {
	n := begin(t, memory.New(), model.New(model.Options{Now: clock}))
	a := n.create(t, "orders")
	n.same(t)
	b := n.create(t, "payments")
	n.same(t)
	a, err := n.store.SetConfigs(t.Context(), n.session, a.ID, 0, map[string]string{"segment.bytes": "2048"})
	if err != nil {
		t.Fatal(err)
	}
	n.publish(t, a.Rev)
	n.same(t)
	rev, err := n.store.DeleteTopic(t.Context(), n.session, b.ID)
	if err != nil {
		t.Fatal(err)
	}
	n.publish(t, rev)
	if rep := n.same(t); rep.Changes != 4 || len(rep.Damaged)+len(rep.Missing)+len(rep.Ignored) != 0 {
		t.Fatalf("%+v", rep)
	}
}

func TestJournalSnapshotHoldsEverything(t *testing.T) {
	n := begin(t, memory.New(), model.New(model.Options{Now: clock}))
	topic := n.create(t, "orders")
	p := tiers.PartitionID{Topic: topic.ID, Index: 1}
	seg := tiers.RemoteSegment{
		ID: tiers.SegmentID{1}, Partition: p, Gen: 1, Base: 0, End: 10, Epochs: tiers.Lineage{{Epoch: 0, Start: 0}},
		Size: 100, MetaSize: 50, CRC32C: 7, MaxTimestamp: 5, CreatedAt: clock(),
	}
	reg := control.RegistryOf(n.store, n.session, nil)
	f := partition.Fence{Partition: p, Gen: 1, Epoch: topic.Partitions[1].Epoch}
	if err := errors.Join(reg.CopyStarted(t.Context(), f, seg), reg.CopyFinished(t.Context(), f, seg)); err != nil {
		t.Fatal(err)
	}
	if err := n.store.CommitOffsets(t.Context(), n.session, []control.OffsetCommit{{
		Group: "billing", Partition: p, Gen: 1, Offset: 7, Epoch: 0, Metadata: "host-1", At: clock(),
	}}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.store.ProducerIDs(t.Context(), n.session, 1000); err != nil {
		t.Fatal(err)
	}
	n.snapshot(t)
	n.same(t)
}

func TestJournalKeepsThreeSnapshots(t *testing.T) {
	n := begin(t, memory.New(), model.New(model.Options{Now: clock}))
	for i := range 6 {
		n.create(t, fmt.Sprint("topic-", i))
		n.snapshot(t)
		n.same(t)
	}
	if got := len(n.bucket.Keys("cluster/snapshot/")); got != 3 {
		t.Fatal(got, "snapshots")
	}
	if got := len(n.bucket.Keys("cluster/change/")); got != 2 {
		t.Fatal(got, "changes, want those after the oldest snapshot")
	}
}

// TestJournalBrokenListingRemovesNothing: report 104, no deletion is based on a
// partial listing.
func TestJournalBrokenListingRemovesNothing(t *testing.T) {
	n := begin(t, memory.New(), model.New(model.Options{Now: clock}))
	n.snapshot(t)
	n.snapshot(t)
	n.bucket.Add(memory.Fault{Ops: memory.OpList, Sticky: true, Err: remote.ErrUnavailable})
	n.snapshot(t)
	n.snapshot(t)
	if got := len(n.bucket.Keys("cluster/snapshot/")); got != 5 {
		t.Fatal(got, "snapshots are left")
	}
	if len(n.bucket.Calls(memory.OpDelete, "")) != 0 {
		t.Fatal("something was deleted")
	}
}

func TestJournalDamagedSnapshotFallsBack(t *testing.T) {
	n := begin(t, memory.New(), model.New(model.Options{Now: clock}))
	n.create(t, "orders")
	n.snapshot(t)
	n.create(t, "payments")
	n.snapshot(t)
	keys := n.bucket.Keys("cluster/snapshot/")
	if err := n.bucket.FlipBit(keys[len(keys)-1], 50); err != nil {
		t.Fatal(err)
	}
	rep := n.same(t)
	if rep.Snapshot != keys[len(keys)-2] || len(rep.Damaged) != 1 || rep.Changes != 1 {
		t.Fatalf("%+v", rep)
	}
}

func TestJournalMissingAndDamagedChanges(t *testing.T) {
	n := begin(t, memory.New(), model.New(model.Options{Now: clock}))
	for i := range 4 {
		n.create(t, fmt.Sprint("topic-", i))
	}
	keys := n.bucket.Keys("cluster/change/")
	if err := errors.Join(n.bucket.Delete(t.Context(), keys[1]), n.bucket.FlipBit(keys[2], 40)); err != nil {
		t.Fatal(err)
	}
	st, rep, err := control.ReadJournal(t.Context(), n.bucket)
	if err != nil {
		t.Fatal(err)
	}
	if len(st.Topics) != 2 || len(rep.Damaged) != 1 || !reflect.DeepEqual(rep.Missing, []control.Rev{2, 3}) {
		t.Fatalf("%d topics, %+v", len(st.Topics), rep)
	}
}

// TestJournalLateWriteOfAReplacedNode: node A was replaced by B, which started
// from the same rows (a cloned disk). What A publishes afterwards does not count,
// whether it comes before or after B's own changes.
func TestJournalLateWriteOfAReplacedNode(t *testing.T) {
	bucket := memory.New()
	s := model.New(model.Options{Now: clock})
	a := begin(t, bucket, s)
	a.create(t, "orders")
	st, err := s.Dump(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	clone := model.New(model.Options{Now: clock})
	if err := clone.Load(t.Context(), st); err != nil {
		t.Fatal(err)
	}
	b := begin(t, bucket, clone)
	a.create(t, "late-1")
	b.create(t, "payments")
	a.create(t, "late-2")
	rep := b.same(t)
	if len(rep.Ignored) != 2 || rep.Generation != 2 {
		t.Fatalf("%+v", rep)
	}
	for _, key := range rep.Ignored {
		if !strings.HasSuffix(key, "-0000000001") {
			t.Error("ignored", key)
		}
	}
	// The same when B's snapshots are damaged: their names still say where B began.
	for _, key := range bucket.Keys("cluster/snapshot/0000000002-") {
		if err := bucket.FlipBit(key, 50); err != nil {
			t.Fatal(err)
		}
	}
	got, rep, err := control.ReadJournal(t.Context(), bucket)
	if err != nil || len(rep.Ignored) != 2 || len(got.Topics) != 2 {
		t.Fatalf("%d topics, %+v, %v", len(got.Topics), rep, err)
	}
}

// TestJournalReplacedNodeRemovesNothing: its snapshot is late, too.
func TestJournalReplacedNodeRemovesNothing(t *testing.T) {
	bucket := memory.New()
	s := model.New(model.Options{Now: clock})
	a := begin(t, bucket, s)
	b := begin(t, bucket, s)
	for range 5 {
		a.snapshot(t)
	}
	b.same(t)
	if got := len(bucket.Keys("cluster/snapshot/0000000002-")); got != 1 {
		t.Fatal("the snapshot of the newer generation is gone")
	}
	if n := len(bucket.Calls(memory.OpDelete, "")); n != 0 {
		t.Fatal(n, "deletions")
	}
}

func TestJournalPublishIsSharedAndOrdered(t *testing.T) {
	n := begin(t, memory.New(), model.New(model.Options{Now: clock}))
	const topics = 40
	var wg sync.WaitGroup
	for i := range topics {
		wg.Go(func() {
			topic, err := n.store.CreateTopic(t.Context(), n.session, control.NewTopic{Name: fmt.Sprint("t", i), Partitions: 1, Configs: map[string]string{}})
			if err == nil {
				err = n.Publish(t.Context(), topic.Rev)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	calls := n.bucket.Calls(memory.OpPut, "cluster/change/")
	if len(calls) != topics {
		t.Fatal(len(calls), "writes for", topics, "changes")
	}
	for i := 1; i < len(calls); i++ {
		if calls[i].Key <= calls[i-1].Key {
			t.Fatal("out of order:", calls[i-1].Key, calls[i].Key)
		}
	}
	n.same(t)
}

func TestJournalPublishFailsAndIsRepeated(t *testing.T) {
	n := begin(t, memory.New(), model.New(model.Options{Now: clock}))
	n.bucket.Add(memory.Fault{Ops: memory.OpPut, Key: "change", Err: remote.ErrUnavailable})
	topic, err := n.store.CreateTopic(t.Context(), n.session, control.NewTopic{Name: "orders", Partitions: 1, Configs: map[string]string{}})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Publish(t.Context(), topic.Rev); tiers.KindOf(err) != tiers.RemoteUnavailable {
		t.Fatal(err)
	}
	n.publish(t, topic.Rev)
	n.same(t)
	if err := n.Publish(t.Context(), topic.Rev+1); tiers.KindOf(err) != tiers.InvalidRequest {
		t.Fatal("a revision that does not exist was published:", err)
	}
}

// TestJournalSnapshotBesidePublish: a snapshot overtakes a Publish that is under
// way and trims what it read. Whatever becomes of that Publish, the next one goes
// on from the snapshot.
func TestJournalSnapshotBesidePublish(t *testing.T) {
	n := begin(t, memory.New(), model.New(model.Options{Now: clock}))
	hold, reached := make(chan struct{}), make(chan memory.Call)
	n.bucket.Add(memory.Fault{Ops: memory.OpPut, Key: "cluster/change/", Hold: hold, Reached: reached})
	n.bucket.Add(memory.Fault{Ops: memory.OpPut, Key: "cluster/change/", Err: remote.ErrUnavailable})
	var last control.Rev
	for i := range 3 {
		topic, err := n.store.CreateTopic(t.Context(), n.session, control.NewTopic{Name: fmt.Sprint("t", i), Partitions: 1, Configs: map[string]string{}})
		if err != nil {
			t.Fatal(err)
		}
		last = topic.Rev
	}
	done := make(chan error, 1)
	go func() { done <- n.Publish(t.Context(), last) }()
	<-reached
	n.snapshot(t)
	close(hold)
	if err := <-done; tiers.KindOf(err) != tiers.RemoteUnavailable {
		t.Fatal("the second write was to fail:", err)
	}
	n.create(t, "after")
	n.same(t)
}

// raise moves the log start of a partition up, without a word to the bucket.
func (n *node) raise(t *testing.T, id tiers.TopicID, index int32, o tiers.Offset) control.Rev {
	t.Helper()
	f := partition.Fence{Partition: tiers.PartitionID{Topic: id, Index: index}, Gen: 1, NodeEpoch: n.session.Epoch}
	rev, err := n.store.RaiseLogStart(t.Context(), f, o)
	if err != nil {
		t.Fatal(err)
	}
	return rev
}

// TestReport025LogStartsAreInTheBucket: after each step the bucket tells the same
// log start as the store, through changes, changes of the topic and the rotation of
// snapshots.
func TestReport025LogStartsAreInTheBucket(t *testing.T) {
	n := begin(t, memory.New(), model.New(model.Options{Now: clock}))
	topic := n.create(t, "orders")
	n.publish(t, n.raise(t, topic.ID, 1, 500))
	rep := n.same(t)
	if rep.LogStarts != 1 || rep.Changes != 1 || len(rep.Damaged)+len(rep.Missing)+len(rep.Ignored) != 0 {
		t.Fatalf("%+v", rep)
	}
	changed, err := n.store.SetConfigs(t.Context(), n.session, topic.ID, 0, map[string]string{"segment.bytes": "2048"})
	if err != nil {
		t.Fatal(err)
	}
	n.publish(t, changed.Rev)
	n.same(t)
	for range 5 { // more than are kept
		n.snapshot(t)
		n.same(t)
	}
	n.publish(t, n.raise(t, topic.ID, 1, 600))
	n.snapshot(t)
	n.publish(t, n.raise(t, topic.ID, 0, 7))
	if rep := n.same(t); rep.LogStarts != 1 {
		t.Fatalf("%+v", rep)
	}
	// A damaged snapshot: the one before it and the changes since tell the same.
	keys := n.bucket.Keys("cluster/snapshot/")
	if err := n.bucket.FlipBit(keys[len(keys)-1], 50); err != nil {
		t.Fatal(err)
	}
	if rep := n.same(t); rep.LogStarts != 2 {
		t.Fatalf("%+v", rep)
	}
}

// TestLogStartsShareObjects: a pass of retention over many partitions costs one
// write, not one per partition; topics between them keep their places.
func TestLogStartsShareObjects(t *testing.T) {
	n := begin(t, memory.New(), model.New(model.Options{Now: clock}))
	topic := n.create(t, "orders")
	before := len(n.bucket.Calls(memory.OpPut, "cluster/change/"))
	for o := range tiers.Offset(1500) {
		n.raise(t, topic.ID, int32(o%2), o+1)
	}
	other, err := n.store.CreateTopic(t.Context(), n.session, control.NewTopic{Name: "payments", Partitions: 1, Configs: map[string]string{}})
	if err != nil {
		t.Fatal(err)
	}
	n.raise(t, other.ID, 0, 3)
	last := n.raise(t, topic.ID, 0, 9999)
	n.publish(t, last)
	calls := n.bucket.Calls(memory.OpPut, "cluster/change/")[before:]
	if len(calls) != 4 { // 1000 log starts, 500, the topic, 2
		t.Fatal(len(calls), "writes, want 4")
	}
	if rep := n.same(t); rep.LogStarts != 1502 || rep.Changes != 2 || len(rep.Missing) != 0 {
		t.Fatalf("%+v", rep)
	}
}

// TestLogStartThatWasWrittenTwice: the answer of the first write was lost, the
// second one carries it again with those that came meanwhile.
func TestLogStartThatWasWrittenTwice(t *testing.T) {
	n := begin(t, memory.New(), model.New(model.Options{Now: clock}))
	topic := n.create(t, "orders")
	n.raise(t, topic.ID, 0, 5)
	rev := n.raise(t, topic.ID, 1, 6)
	n.bucket.Add(memory.Fault{Ops: memory.OpPut, Key: "cluster/change/", Applied: true, Err: remote.ErrUnavailable})
	if err := n.Publish(t.Context(), rev); tiers.KindOf(err) != tiers.RemoteUnavailable {
		t.Fatal(err)
	}
	n.publish(t, n.raise(t, topic.ID, 0, 8))
	if got := len(n.bucket.Keys("cluster/change/")); got != 3 {
		t.Fatal(got, "changes, want the topic and two of log starts")
	}
	if rep := n.same(t); rep.LogStarts != 3 || len(rep.Missing) != 0 {
		t.Fatalf("%+v", rep)
	}
}

// TestLogStartOfWhatIsGone: a late change of a deleted topic, of a partition or
// history that is not there changes nothing, and one that is lower neither.
func TestLogStartOfWhatIsGone(t *testing.T) {
	n := begin(t, memory.New(), model.New(model.Options{Now: clock}))
	gone, topic := n.create(t, "gone"), n.create(t, "orders")
	n.raise(t, gone.ID, 0, 5)
	n.publish(t, n.raise(t, topic.ID, 1, 6))
	rev, err := n.store.DeleteTopic(t.Context(), n.session, gone.ID)
	if err != nil {
		t.Fatal(err)
	}
	n.publish(t, rev)
	n.same(t)
	st, err := n.store.Dump(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range []control.Raised{
		{Partition: tiers.PartitionID{Topic: gone.ID}, Gen: 1, LogStart: 50},
		{Partition: tiers.PartitionID{Topic: topic.ID, Index: 2}, Gen: 1, LogStart: 50},
		{Partition: tiers.PartitionID{Topic: topic.ID, Index: 1}, Gen: 2, LogStart: 50},
		{Partition: tiers.PartitionID{Topic: topic.ID, Index: 1}, Gen: 1, LogStart: 5},
	} {
		if err := control.PutChanges(t.Context(), n.bucket, 1, control.Change{Rev: rev + 1 + control.Rev(i), Raised: &r}); err != nil {
			t.Fatal(err)
		}
	}
	got, rep, err := control.ReadJournal(t.Context(), n.bucket)
	if err != nil || rep.LogStarts != 6 {
		t.Fatalf("%+v, %v", rep, err)
	}
	got.Rev = st.Rev
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", st) {
		t.Fatalf("got\n%+v, want\n%+v", got, st)
	}
}

func TestJournalEmptyBucket(t *testing.T) {
	st, rep, err := control.ReadJournal(t.Context(), memory.New())
	if err != nil || st.Cluster != "" || rep.Snapshot != "" || rep.Generation != 0 {
		t.Fatal(st, rep, err)
	}
}

func TestJournalUnreachableBucketIsAnError(t *testing.T) {
	n := begin(t, memory.New(), model.New(model.Options{Now: clock}))
	n.create(t, "orders")
	for _, op := range []memory.Op{memory.OpGet, memory.OpList} {
		b := n.bucket.Clone()
		b.Add(memory.Fault{Ops: op, Key: "cluster/", Skip: 1, Sticky: true, Err: remote.ErrUnavailable})
		if _, _, err := control.ReadJournal(t.Context(), b); tiers.KindOf(err) != tiers.RemoteUnavailable {
			t.Errorf("op %s: %v", op, err)
		}
	}
}

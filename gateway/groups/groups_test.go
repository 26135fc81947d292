package groups

import (
	"context"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/strandline-io/strandline/gateway/broker"
	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/gateway/control/model"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/fsys/mem"
	"github.com/strandline-io/strandline/tiers/local"
	"github.com/strandline-io/strandline/tiers/partition"
)

type rig struct {
	*Coordinator
	t      *testing.T
	broker *broker.Broker
	store  control.Store
}

func newRig(t *testing.T) *rig {
	t.Helper()
	ctx, disk, store := t.Context(), mem.New(), model.New(model.Options{})
	d, err := local.OpenDisk(disk, "/data", hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	session, err := store.OpenSession(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	b, err := broker.Open(ctx, broker.Options{
		Node: broker.Node{ID: 1}, Session: session, Store: store, FS: disk, DataDir: "/data", Disk: d, Scheduler: partition.NewPool(1),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(context.WithoutCancel(ctx)); err != nil {
			t.Errorf("close: %v", err)
		}
		if err := d.Close(); err != nil {
			t.Errorf("close disk: %v", err)
		}
	})
	return &rig{New(b, store, session), t, b, store}
}

func (r *rig) create(name string) control.Topic {
	r.t.Helper()
	t, err := r.broker.CreateTopic(r.t.Context(), broker.CreateTopic{Name: name, Partitions: 2, Replication: 1})
	if err != nil {
		r.t.Fatal(err)
	}
	return t
}

func (r *rig) fetch(group string) map[tiers.TopicPartition]control.OffsetCommit {
	r.t.Helper()
	got, err := r.Fetch(r.t.Context(), group)
	if err != nil {
		r.t.Fatal(err)
	}
	return got
}

// commit commits for the group g.
func (r *rig) commit(cs ...Commit) []error {
	r.t.Helper()
	errs := r.Commit(r.t.Context(), "g", cs)
	if len(errs) != len(cs) {
		r.t.Fatalf("%d results for %d commits", len(errs), len(cs))
	}
	return errs
}

func TestCommitAndFetch(t *testing.T) {
	r := newRig(t)
	r.create("orders")
	r.create("other")
	for i, err := range r.commit(Commit{"orders", 1, 7, 3, "note"}, Commit{"other", 0, 9, tiers.NoEpoch, ""}) {
		if err != nil {
			t.Errorf("commit %d: %v", i, err)
		}
	}
	got := r.fetch("g")
	o := got[tiers.TopicPartition{Topic: "orders", Partition: 1}]
	if len(got) != 2 || o.Offset != 7 || o.Epoch != 3 || o.Metadata != "note" || o.At.IsZero() {
		t.Errorf("got %+v", got)
	}
	if o := got[tiers.TopicPartition{Topic: "other", Partition: 0}]; o.Offset != 9 || o.Epoch != tiers.NoEpoch {
		t.Errorf("got %+v", o)
	}
	if got := r.fetch("nobody"); got == nil || len(got) != 0 {
		t.Errorf("a group without offsets: %+v", got)
	}
	r.commit(Commit{"orders", 1, 5, 3, ""}) // an operator may go back
	if o := r.fetch("g")[tiers.TopicPartition{Topic: "orders", Partition: 1}]; o.Offset != 5 || o.Metadata != "" {
		t.Errorf("after going back: %+v", o)
	}
}

func TestRefusedCommitsKeepNoOtherFromBeingStored(t *testing.T) {
	r := newRig(t)
	r.create("orders")
	long := strings.Repeat("x", MaxMetadata)
	errs := r.commit(
		Commit{"orders", 0, 1, tiers.NoEpoch, long},
		Commit{"orders", 1, 1, tiers.NoEpoch, long + "x"},
		Commit{"orders", 2, 1, tiers.NoEpoch, ""},
		Commit{"orders", -1, 1, tiers.NoEpoch, ""},
		Commit{"other", 0, 1, tiers.NoEpoch, ""},
		Commit{"orders", 1, -1, tiers.NoEpoch, ""},
	)
	want := []tiers.Kind{0, tiers.OffsetMetadataTooLarge, tiers.UnknownTopicOrPartition, tiers.UnknownTopicOrPartition, tiers.UnknownTopicOrPartition, tiers.InvalidRequest}
	for i, err := range errs {
		if (err == nil) != (want[i] == 0) || tiers.KindOf(err) != want[i] {
			t.Errorf("commit %d: got %v, want %v", i, err, want[i])
		}
	}
	if got := r.fetch("g"); len(got) != 1 || got[tiers.TopicPartition{Topic: "orders"}].Metadata != long {
		t.Errorf("stored %+v", got)
	}
}

// TestDeletionUnderWayFailsNoOtherCommit: a topic that is deleted in the control
// plane stays in the catalog until the bucket knows it.
func TestDeletionUnderWayFailsNoOtherCommit(t *testing.T) {
	r := newRig(t)
	gone := r.create("gone")
	r.create("orders")
	if _, err := r.store.DeleteTopic(t.Context(), r.session, gone.ID); err != nil {
		t.Fatal(err)
	}
	errs := r.commit(
		Commit{"gone", 0, 1, tiers.NoEpoch, ""}, Commit{"orders", 0, 2, tiers.NoEpoch, ""},
		Commit{"gone", 1, 3, tiers.NoEpoch, ""}, Commit{"orders", 1, 4, tiers.NoEpoch, ""},
		Commit{"gone", 0, 5, tiers.NoEpoch, ""}, Commit{"orders", 1, 6, tiers.NoEpoch, ""})
	for i, err := range errs {
		if lost := i%2 == 0; lost != (tiers.KindOf(err) == tiers.UnknownTopicOrPartition) || lost != (err != nil) {
			t.Errorf("commit %d: %v", i, err)
		}
	}
	got := r.fetch("g")
	if len(got) != 2 || got[tiers.TopicPartition{Topic: "orders"}].Offset != 2 || got[tiers.TopicPartition{Topic: "orders", Partition: 1}].Offset != 6 {
		t.Errorf("stored %+v", got)
	}
	if errs := r.commit(Commit{"gone", 0, 1, tiers.NoEpoch, ""}); tiers.KindOf(errs[0]) != tiers.UnknownTopicOrPartition {
		t.Errorf("nothing else to store: %v", errs[0])
	}
}

// TestReplacedSessionFailsEveryCommit: what is refused is the whole request.
func TestReplacedSessionFailsEveryCommit(t *testing.T) {
	r := newRig(t)
	r.create("orders")
	if _, err := r.store.OpenSession(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	for i, err := range r.commit(Commit{"orders", 0, 1, tiers.NoEpoch, ""}, Commit{"orders", 1, 2, tiers.NoEpoch, ""}) {
		if tiers.KindOf(err) != tiers.StaleFence {
			t.Errorf("commit %d: %v", i, err)
		}
	}
}

func TestLastOfSeveralCommitsCounts(t *testing.T) {
	r := newRig(t)
	r.create("orders")
	r.commit(Commit{"orders", 0, 1, tiers.NoEpoch, ""}, Commit{"orders", 1, 2, tiers.NoEpoch, ""}, Commit{"orders", 0, 3, tiers.NoEpoch, ""})
	got := r.fetch("g")
	if len(got) != 2 || got[tiers.TopicPartition{Topic: "orders"}].Offset != 3 {
		t.Errorf("stored %+v", got)
	}
}

func TestNewTopicOfTheSameNameStartsWithoutOffsets(t *testing.T) {
	r := newRig(t)
	old := r.create("orders")
	r.commit(Commit{"orders", 0, 1, tiers.NoEpoch, ""})
	if err := r.broker.DeleteTopic(t.Context(), old.ID); err != nil {
		t.Fatal(err)
	}
	r.create("orders")
	if got := r.fetch("g"); len(got) != 0 {
		t.Errorf("the dead topic's offsets came back: %+v", got)
	}
}

func TestFailingStoreFailsWhatItWasAsked(t *testing.T) {
	r := newRig(t)
	r.create("orders")
	if err := r.store.Close(); err != nil {
		t.Fatal(err)
	}
	errs := r.commit(Commit{"orders", 0, 1, tiers.NoEpoch, ""}, Commit{"other", 0, 1, tiers.NoEpoch, ""})
	if tiers.KindOf(errs[0]) != tiers.Closed || tiers.KindOf(errs[1]) != tiers.UnknownTopicOrPartition {
		t.Errorf("got %v", errs)
	}
	if _, err := r.Fetch(t.Context(), "g"); tiers.KindOf(err) != tiers.Closed {
		t.Errorf("fetch: %v", err)
	}
}

func TestFencedNodeAnswersNothing(t *testing.T) {
	r := newRig(t)
	r.create("orders")
	r.broker.Fence(tiers.E(tiers.StaleFence, "check claim", "bucket", "node 2 took it over"))
	errs := r.commit(Commit{"orders", 0, 1, tiers.NoEpoch, ""})
	if errs[0] == nil || !strings.Contains(errs[0].Error(), "node 2 took it over") {
		t.Errorf("commit: %v", errs[0])
	}
	if _, err := r.Fetch(t.Context(), "g"); err == nil {
		t.Error("fetch was answered")
	}
}

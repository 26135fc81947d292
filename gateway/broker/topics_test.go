package broker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

func TestCreateTopicOpensItsPartitions(t *testing.T) {
	n := newRig(t).start()
	topic := n.create("orders", 3, "segment.bytes", "4096")
	if topic.ID.IsZero() || len(topic.Partitions) != 3 || topic.Configs["segment.bytes"] != "4096" {
		t.Fatalf("got %+v", topic)
	}
	for i := range int32(3) {
		o := n.owner("orders", i)
		if id := o.Identity(); id.ID != (tiers.PartitionID{Topic: topic.ID, Index: i}) || id.Node != 1 {
			t.Errorf("partition %d is owned as %+v", i, id)
		}
		same, err := n.OwnerByID(topic.ID, i)
		if err != nil || same != o {
			t.Errorf("by id: %v, %v", same, err)
		}
		if at, err := n.append("orders", i, "v"); err != nil || at != 0 {
			t.Errorf("append: %d, %v", at, err)
		}
	}
	if got, ok := n.Catalog().TopicByID(topic.ID); !ok || got.Name != "orders" {
		t.Errorf("catalog: %+v, %v", got, ok)
	}
	n.create("a-first", 1)
	if ts := n.Catalog().Topics(); len(ts) != 2 || ts[0].Name != "a-first" {
		t.Errorf("topics are not by name: %+v", ts)
	}
}

func TestOwnerOfNothing(t *testing.T) {
	n := newRig(t).start()
	topic := n.create("orders", 1)
	_, err := n.Owner("other", 0)
	wantKind(t, "no topic", err, tiers.UnknownTopicOrPartition)
	for _, i := range []int32{-1, 1} {
		_, err = n.Owner("orders", i)
		wantKind(t, "no partition", err, tiers.UnknownTopicOrPartition)
		_, err = n.OwnerByID(topic.ID, i)
		wantKind(t, "no partition by id", err, tiers.UnknownTopicOrPartition)
	}
	_, err = n.OwnerByID(tiers.TopicID{1}, 0)
	wantKind(t, "no id", err, tiers.UnknownTopicID)
}

func TestCreateTopicRefusals(t *testing.T) {
	n := newRig(t).start()
	n.create("a.b", 1)
	node := []tiers.NodeID{1}
	for name, c := range map[string]struct {
		r     CreateTopic
		kind  tiers.Kind
		words []string
	}{
		"name":            {CreateTopic{Name: "../x", Partitions: 1, Replication: 1}, tiers.InvalidTopic, nil},
		"exists":          {CreateTopic{Name: "a.b", Partitions: 1, Replication: 1}, tiers.TopicExists, nil},
		"clash":           {CreateTopic{Name: "a_b", Partitions: 1, Replication: 1}, tiers.TopicExists, []string{"a.b"}},
		"no partitions":   {CreateTopic{Name: "t", Partitions: 0, Replication: 1}, tiers.InvalidPartitions, []string{"1 to 100000"}},
		"too many":        {CreateTopic{Name: "t", Partitions: 100_001, Replication: 1}, tiers.InvalidPartitions, nil},
		"below -1":        {CreateTopic{Name: "t", Partitions: -2, Replication: 1}, tiers.InvalidPartitions, nil},
		"three copies":    {CreateTopic{Name: "t", Partitions: 1, Replication: 3}, tiers.InvalidReplicationFactor, []string{"a single node holds one copy, plus the one in the bucket"}},
		"no copy":         {CreateTopic{Name: "t", Partitions: 1, Replication: 0}, tiers.InvalidReplicationFactor, nil},
		"config":          {CreateTopic{Name: "t", Partitions: 1, Replication: 1, Configs: map[string]*string{"segment.byte": new("1")}}, tiers.InvalidConfig, []string{"segment.bytes"}},
		"both":            {CreateTopic{Name: "t", Partitions: 1, Replication: -1, Assignment: map[int32][]tiers.NodeID{0: node}}, tiers.InvalidRequest, nil},
		"empty":           {CreateTopic{Name: "t", Partitions: -1, Replication: -1, Assignment: map[int32][]tiers.NodeID{}}, tiers.InvalidPartitions, nil},
		"gap":             {CreateTopic{Name: "t", Partitions: -1, Replication: -1, Assignment: map[int32][]tiers.NodeID{0: node, 2: node}}, tiers.InvalidReplicaAssignment, []string{"partition 1 is missing"}},
		"another node":    {CreateTopic{Name: "t", Partitions: -1, Replication: -1, Assignment: map[int32][]tiers.NodeID{0: {2}}}, tiers.InvalidReplicaAssignment, []string{"the only node is 1"}},
		"two nodes":       {CreateTopic{Name: "t", Partitions: -1, Replication: -1, Assignment: map[int32][]tiers.NodeID{0: {1, 2}}}, tiers.InvalidReplicaAssignment, nil},
		"check only, too": {CreateTopic{Name: "a.b", Partitions: 1, Replication: 1, CheckOnly: true}, tiers.TopicExists, nil},
		"check clash":     {CreateTopic{Name: "a_b", Partitions: 1, Replication: 1, CheckOnly: true}, tiers.TopicExists, nil},
	} {
		_, err := n.CreateTopic(t.Context(), c.r)
		wantKind(t, name, err, c.kind, c.words...)
	}
	if ts := n.Catalog().Topics(); len(ts) != 1 {
		t.Errorf("something was created: %+v", ts)
	}
}

func TestCreateTopicDefaultsAndCheckOnly(t *testing.T) {
	r := newRig(t)
	r.change = func(o *Options) { o.DefaultPartitions, o.AnyReplication = 5, true }
	n := r.start()
	checked, err := n.CreateTopic(t.Context(), CreateTopic{Name: "t", Partitions: -1, Replication: -1, CheckOnly: true, Configs: map[string]*string{"segment.ms": nil}})
	if err != nil || len(checked.Partitions) != 5 || len(checked.Configs) != 0 {
		t.Errorf("check only: %+v, %v", checked, err)
	}
	if _, ok := n.Catalog().Topic("t"); ok {
		t.Error("check only created the topic")
	}
	topic, err := n.CreateTopic(t.Context(), CreateTopic{Name: "t", Partitions: -1, Replication: 3})
	if err != nil || len(topic.Partitions) != 5 {
		t.Errorf("any replication factor: %+v, %v", topic, err)
	}
	topic, err = n.CreateTopic(t.Context(), CreateTopic{Name: "u", Partitions: -1, Replication: -1, Assignment: map[int32][]tiers.NodeID{0: {1}, 1: {1}}})
	if err != nil || len(topic.Partitions) != 2 {
		t.Errorf("by assignment: %+v, %v", topic, err)
	}
}

func TestTopicsAndRecordsSurviveARestart(t *testing.T) {
	r := newRig(t)
	n := r.start()
	topic := n.create("orders", 2)
	for range 10 {
		if _, err := n.append("orders", 1, "v"); err != nil {
			t.Fatal(err)
		}
	}
	n.end()
	n = r.start()
	got, ok := n.Catalog().Topic("orders")
	if !ok || got.ID != topic.ID {
		t.Fatalf("after the restart: %+v, %v", got, ok)
	}
	awaitTried(t.Context(), n.Catalog().slots())
	if v := n.owner("orders", 1).View(); v.LogEnd != 10 || v.Epoch != 1 {
		t.Errorf("log end %d, epoch %d, want 10 and 1", v.LogEnd, v.Epoch)
	}
}

func TestAutoCreate(t *testing.T) {
	n := newRig(t).start()
	var wg sync.WaitGroup
	ids := make([]tiers.TopicID, 20)
	for i := range ids {
		wg.Go(func() {
			topic, err := n.AutoCreate(t.Context(), "made")
			if err != nil {
				t.Error(err)
			}
			ids[i] = topic.ID
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id != ids[0] || id.IsZero() {
			t.Fatalf("more than one topic was made: %v", ids)
		}
	}
	if topic, _ := n.Catalog().Topic("made"); len(topic.Partitions) != 1 {
		t.Errorf("%d partitions", len(topic.Partitions))
	}
	_, err := n.AutoCreate(t.Context(), "not/legal")
	wantKind(t, "bad name", err, tiers.InvalidTopic)
	n.create("x.y", 1)
	_, err = n.AutoCreate(t.Context(), "x_y")
	wantKind(t, "clash", err, tiers.InvalidTopic)
}

func TestAutoCreateMayBeOff(t *testing.T) {
	r := newRig(t)
	r.change = func(o *Options) { o.AutoCreate = false }
	n := r.start()
	_, err := n.AutoCreate(t.Context(), "made")
	wantKind(t, "off", err, tiers.UnknownTopicOrPartition)
	_, err = n.AutoCreate(t.Context(), "not/legal")
	wantKind(t, "bad name", err, tiers.InvalidTopic)
	n.create("there", 1)
	if _, err := n.AutoCreate(t.Context(), "there"); err != nil {
		t.Error(err)
	}
}

func TestAddPartitions(t *testing.T) {
	n := newRig(t).start()
	n.create("orders", 2)
	for _, bad := range []int32{-1, 0, 1, 2, 100_001} {
		_, err := n.AddPartitions(t.Context(), "orders", bad, false)
		wantKind(t, fmt.Sprint(bad), err, tiers.InvalidPartitions)
	}
	_, err := n.AddPartitions(t.Context(), "other", 3, false)
	wantKind(t, "no topic", err, tiers.UnknownTopicOrPartition)
	kept := n.owner("orders", 1)
	if checked, cerr := n.AddPartitions(t.Context(), "orders", 4, true); cerr != nil || len(checked.Partitions) != 4 {
		t.Errorf("check only: %+v, %v", checked, cerr)
	}
	if topic, _ := n.Catalog().Topic("orders"); len(topic.Partitions) != 2 {
		t.Errorf("check only added partitions: %+v", topic)
	}
	topic, err := n.AddPartitions(t.Context(), "orders", 4, false)
	if err != nil || len(topic.Partitions) != 4 {
		t.Fatalf("got %+v, %v", topic, err)
	}
	if n.owner("orders", 1) != kept {
		t.Error("an old partition was opened anew")
	}
	if _, err := n.append("orders", 3, "v"); err != nil {
		t.Error(err)
	}
}

func TestAlterConfigsReachesThePartitions(t *testing.T) {
	r := newRig(t)
	n := r.start()
	n.create("orders", 2)
	alter := func(name, v string) error {
		return n.AlterConfigs(t.Context(), "orders", []ConfigOp{{name, OpSet, &v}}, false, false)
	}
	if _, err := n.append("orders", 1, "v"); err != nil {
		t.Fatal(err)
	}
	if err := alter("max.message.bytes", "10"); err != nil {
		t.Fatal(err)
	}
	_, err := n.append("orders", 1, "v")
	wantKind(t, "append after the limit fell", err, tiers.MessageTooLarge)

	if err = n.AlterConfigs(t.Context(), "orders", []ConfigOp{{"max.message.bytes", OpDelete, nil}}, false, true); err != nil {
		t.Error(err)
	}
	if topic, _ := n.Catalog().Topic("orders"); topic.Configs["max.message.bytes"] != "10" {
		t.Errorf("check only changed something: %+v", topic)
	}
	n.end()
	n = r.start()
	awaitTried(t.Context(), n.Catalog().slots())
	_, err = n.append("orders", 1, "v")
	wantKind(t, "append after a restart", err, tiers.MessageTooLarge)
	if err = n.AlterConfigs(t.Context(), "orders", nil, true, false); err != nil {
		t.Fatal(err)
	}
	if _, err = n.append("orders", 1, "v"); err != nil {
		t.Error(err)
	}
	err = n.AlterConfigs(t.Context(), "other", nil, true, false)
	wantKind(t, "no topic", err, tiers.UnknownTopicOrPartition)
	_, err = n.TopicConfigs("other")
	wantKind(t, "describe no topic", err, tiers.UnknownTopicOrPartition)
}

func TestNodeConfigsAreReadOnlyAndSorted(t *testing.T) {
	r := newRig(t)
	r.change = func(o *Options) {
		o.Settings = []ConfigEntry{{Name: "node.id", Value: "1", ReadOnly: true}}
		o.Defaults = map[string]string{"segment.bytes": "5000"}
	}
	var last string
	found := map[string]ConfigEntry{}
	for _, e := range r.start().NodeConfigs() {
		if e.Name <= last || !e.ReadOnly {
			t.Errorf("%s after %s, read only %v", e.Name, last, e.ReadOnly)
		}
		last = e.Name
		found[e.Name] = e
	}
	if e := found["log.segment.bytes"]; e.Value != "5000" || e.Source != SourceStatic {
		t.Errorf("log.segment.bytes: %+v", e)
	}
	if found["node.id"].Value != "1" || found["log.retention.ms"].Source != SourceDefault {
		t.Errorf("found %+v", found)
	}
}

func TestChangesAreInTheBucketBeforeTheAnswer(t *testing.T) {
	r := newRig(t)
	n := r.start()
	read := func() map[string]control.Topic {
		t.Helper()
		st, _, err := control.ReadJournal(t.Context(), r.bucket.Clone())
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]control.Topic{}
		for _, topic := range st.Topics {
			out[topic.Name] = topic
		}
		return out
	}
	topic := n.create("orders", 1)
	if got := read()["orders"]; got.ID != topic.ID {
		t.Errorf("create: the bucket has %+v", got)
	}
	if err := n.AlterConfigs(t.Context(), "orders", []ConfigOp{{"segment.ms", OpSet, new("5")}}, false, false); err != nil {
		t.Fatal(err)
	}
	if got := read()["orders"]; got.Configs["segment.ms"] != "5" {
		t.Errorf("alter: the bucket has %+v", got)
	}
	if _, err := n.AddPartitions(t.Context(), "orders", 3, false); err != nil {
		t.Fatal(err)
	}
	if got := read()["orders"]; len(got.Partitions) != 3 {
		t.Errorf("add partitions: the bucket has %+v", got)
	}
	if err := n.DeleteTopic(t.Context(), topic.ID); err != nil {
		t.Fatal(err)
	}
	if got := read(); len(got) != 0 {
		t.Errorf("delete: the bucket has %+v", got)
	}
}

// TestUnpublishedChangeIsInvisibleUntilItIsInTheBucket: the answer is retriable,
// the change is brought out in the background, and a retry finds it.
func TestUnpublishedChangeIsInvisibleUntilItIsInTheBucket(t *testing.T) {
	n := newRig(t)
	b := n.start()
	hits := n.bucket.Add(memory.Fault{Ops: memory.OpPut, Key: "cluster/change", Sticky: true, Err: remote.ErrUnavailable})
	_, err := b.CreateTopic(t.Context(), CreateTopic{Name: "orders", Partitions: 1, Replication: 1})
	wantKind(t, "create", err, tiers.RemoteUnavailable, "becomes visible once it is")
	if _, ok := b.Catalog().Topic("orders"); ok {
		t.Error("the topic is visible before it is in the bucket")
	}
	if b.Health().Publishing == nil {
		t.Error("health does not tell")
	}
	_, err = b.AutoCreate(t.Context(), "orders")
	wantKind(t, "auto-create while the bucket is away", err, tiers.RemoteUnavailable)
	// The next change is not made: to say of it that it becomes visible would be a lie.
	_, err = b.CreateTopic(t.Context(), CreateTopic{Name: "others", Partitions: 1, Replication: 1})
	wantKind(t, "another", err, tiers.RemoteUnavailable, "an earlier change is not in the bucket yet: this one was not made; try again")
	if strings.Contains(err.Error(), "becomes visible") || !strings.Contains(b.Health().Publishing.Error(), "becomes visible") {
		t.Errorf("%v; health %v", err, b.Health().Publishing)
	}
	if hits() < 2 {
		t.Errorf("only %d tries", hits())
	}
	n.bucket.Clear()
	eventually(t, "the topic becomes visible", func() bool { _, ok := b.Catalog().Topic("orders"); return ok })
	topic, err := b.AutoCreate(t.Context(), "orders")
	if err != nil || topic.ID.IsZero() {
		t.Errorf("after the bucket is back: %+v, %v", topic, err)
	}
	if _, ok := b.Catalog().Topic("others"); ok {
		t.Error("a change that was refused was made")
	}
	eventually(t, "health recovers", func() bool { return b.Health().Publishing == nil })
}

// TestUnpublishedDeletionKeepsTheObjects: until the deletion is in the bucket a
// rebuild would bring the topic back, and must find its objects.
func TestUnpublishedDeletionKeepsTheObjects(t *testing.T) {
	r := newRig(t)
	n := r.start()
	topic := n.create("orders", 1)
	n.fill("orders", 0, 3)
	r.bucket.Add(memory.Fault{Ops: memory.OpPut, Key: "cluster/change", Sticky: true, Err: remote.ErrUnavailable})
	err := n.DeleteTopic(t.Context(), topic.ID)
	wantKind(t, "delete", err, tiers.RemoteUnavailable)
	n.wake(n.burials)
	if err := newBurial(n.Broker).round(t.Context()); err != nil {
		t.Fatal(err)
	}
	if keys := r.bucket.Keys(remote.TopicPrefix(topic.ID)); len(keys) != 2 {
		t.Errorf("keys %v: objects went before the deletion was in the bucket", keys)
	}
	r.bucket.Clear()
	eventually(t, "the objects go", func() bool { return len(r.bucket.Keys(remote.TopicPrefix(topic.ID))) == 0 })
	if _, ok := n.Catalog().Topic("orders"); ok {
		t.Error("the topic is still there")
	}
}

func TestDeleteTopic(t *testing.T) {
	r := newRig(t)
	n := r.start()
	topic, other := n.create("orders", 2), n.create("other", 1)
	n.fill("orders", 0, 3)
	n.fill("other", 0, 3)
	owner := n.owner("orders", 0)
	if err := n.DeleteTopic(t.Context(), topic.ID); err != nil {
		t.Fatal(err)
	}
	_, err := n.Owner("orders", 0)
	wantKind(t, "owner", err, tiers.UnknownTopicOrPartition)
	_, err = n.OwnerByID(topic.ID, 0)
	wantKind(t, "owner by id", err, tiers.UnknownTopicID)
	if owner.View().Err == nil {
		t.Error("the owner is still open")
	}
	for i := range int32(2) {
		if _, err := r.disk.Stat(PartitionDir(dataDir, tiers.PartitionID{Topic: topic.ID, Index: i})); err == nil {
			t.Errorf("the folder of partition %d is left", i)
		}
	}
	eventually(t, "the objects go", func() bool { return len(r.bucket.Keys(remote.TopicPrefix(topic.ID))) == 0 })
	if keys := r.bucket.Keys(remote.TopicPrefix(other.ID)); len(keys) != 2 {
		t.Errorf("the neighbour has %v", keys)
	}
	if files, _ := r.disk.ReadDir(dataDir); containsSuffix(files, removalSuffix) {
		t.Error("the note of the deletion is left")
	}
	wantKind(t, "again", n.DeleteTopic(t.Context(), topic.ID), tiers.UnknownTopicID)
	again := n.create("orders", 1)
	if again.ID == topic.ID {
		t.Error("the new topic has the old id")
	}
	if at, err := n.append("orders", 0, "v"); err != nil || at != 0 {
		t.Errorf("the new topic begins at %d, %v", at, err)
	}
}

// TestReport129DeletionIsNotForgottenByARestart: the bucket refuses deletes, the
// node dies, and the next start finishes.
func TestReport129DeletionIsNotForgottenByARestart(t *testing.T) {
	r := newRig(t)
	n := r.start()
	topic, other := n.create("orders", 2), n.create("other", 1)
	n.fill("orders", 0, 3)
	n.fill("orders", 1, 3)
	n.fill("other", 0, 3)
	hits := r.bucket.Add(memory.Fault{Ops: memory.OpDelete, Key: topic.ID.Hex(), Sticky: true, Err: remote.ErrUnavailable})
	if err := n.DeleteTopic(t.Context(), topic.ID); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a delete is tried", func() bool { return hits() > 0 })
	n.end()
	if keys := r.bucket.Keys(remote.TopicPrefix(topic.ID)); len(keys) != 4 {
		t.Fatalf("keys %v before the restart", keys)
	}
	r.bucket.Clear()
	r.start()
	eventually(t, "the objects go", func() bool { return len(r.bucket.Keys(remote.TopicPrefix(topic.ID))) == 0 })
	eventually(t, "the rows go", func() bool { d, err := r.store.Doomed(t.Context(), 10); return err == nil && len(d) == 0 })
	if keys := r.bucket.Keys(remote.TopicPrefix(other.ID)); len(keys) != 2 {
		t.Errorf("the neighbour has %v", keys)
	}
}

func TestCrashInTheMiddleOfADeletionIsFinishedAtTheNextStart(t *testing.T) {
	r := newRig(t)
	n := r.start()
	topic, kept := n.create("orders", 2), n.create("kept", 1)
	if _, err := n.append("kept", 0, "v"); err != nil {
		t.Fatal(err)
	}
	r.faulty.Add(fsys.Fault{Kinds: fsys.OpRemoveAll, Name: topic.ID.Hex(), Sticky: true, Err: errors.New("the disk is gone")})
	if err := n.DeleteTopic(t.Context(), topic.ID); err != nil {
		t.Fatal(err)
	}
	n.end()
	dir := PartitionDir(dataDir, tiers.PartitionID{Topic: topic.ID, Index: 1})
	if _, err := r.disk.Stat(dir); err != nil {
		t.Fatalf("the fault did not strike: %v", err)
	}
	r.faulty.Clear()
	n = r.start()
	if _, err := r.disk.Stat(dir); err == nil {
		t.Error("the folder is left")
	}
	if files, _ := r.disk.ReadDir(dataDir); containsSuffix(files, removalSuffix) {
		t.Error("the note is left")
	}
	awaitTried(t.Context(), n.Catalog().slots())
	if v := n.owner("kept", 0).View(); v.LogEnd != 1 {
		t.Errorf("%s ends at %d", kept.Name, v.LogEnd)
	}
}

// TestIntentOfADeletionAloneDeletesNothing: the note is written before the row
// goes, so a crash in between leaves a topic that is whole.
func TestIntentOfADeletionAloneDeletesNothing(t *testing.T) {
	r := newRig(t)
	n := r.start()
	topic := n.create("orders", 1)
	if _, err := n.append("orders", 0, "v"); err != nil {
		t.Fatal(err)
	}
	if err := n.noteRemoval(topic.ID); err != nil {
		t.Fatal(err)
	}
	n.end()
	n = r.start()
	awaitTried(t.Context(), n.Catalog().slots())
	if v := n.owner("orders", 0).View(); v.LogEnd != 1 {
		t.Errorf("log end %d", v.LogEnd)
	}
	if files, _ := r.disk.ReadDir(dataDir); containsSuffix(files, removalSuffix) {
		t.Error("the note is left")
	}
}

func TestFoldersOfNoTopicStay(t *testing.T) {
	r := newRig(t)
	stray := PartitionDir(dataDir, tiers.PartitionID{Topic: tiers.TopicID{9}, Index: 0})
	if err := r.disk.MkdirAll(stray, 0o755); err != nil {
		t.Fatal(err)
	}
	r.start()
	if _, err := r.disk.Stat(stray); err != nil {
		t.Errorf("a folder that nobody deleted is gone: %v", err)
	}
}

func TestPartitionsOfAnotherNodeAreRefused(t *testing.T) {
	r := newRig(t)
	n := r.start()
	n.create("orders", 1)
	n.end()
	r.change = func(o *Options) { o.Node.ID = 2 }
	_, err := r.tryStart()
	wantKind(t, "start as node 2", err, tiers.InvalidConfig, "start with node.id 1")
}

func TestProducerIDsAreNeverGivenTwice(t *testing.T) {
	r := newRig(t)
	seen := map[int64]bool{}
	for range 3 {
		n := r.start()
		var (
			wg sync.WaitGroup
			mu sync.Mutex
		)
		for range 4 {
			wg.Go(func() {
				for range producerBlock/4 + 100 {
					id, err := n.ProducerID(t.Context())
					mu.Lock()
					if err != nil || seen[id] {
						t.Errorf("id %d, %v", id, err)
					}
					seen[id] = true
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		n.end()
	}
}

func TestEndedContextsChangeNothing(t *testing.T) {
	n := newRig(t).start()
	if err := n.enter(t.Context(), "test", ""); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := n.CreateTopic(ctx, CreateTopic{Name: "orders", Partitions: 1, Replication: 1})
	wantKind(t, "while another change is under way", err, tiers.TimedOut, "nothing was done")
	n.leave()
	n.end()
	_, err = n.CreateTopic(t.Context(), CreateTopic{Name: "orders", Partitions: 1, Replication: 1})
	wantKind(t, "after Close", err, tiers.Closed)
}

func containsSuffix[T interface{ Name() string }](files []T, suffix string) bool {
	for _, f := range files {
		if name := f.Name(); len(name) >= len(suffix) && name[len(name)-len(suffix):] == suffix {
			return true
		}
	}
	return false
}

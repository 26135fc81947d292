package broker

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

// TestClaimThatIsNotReadIsToldOf: a bucket that hangs is not taken for one that
// says that all is well.
func TestClaimThatIsNotReadIsToldOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		taken := time.Now()
		r.change = func(o *Options) { o.ClaimAt = taken }
		n := r.start()
		if h := n.Health(); !h.ClaimAt.Equal(taken) || h.Unclaimed != nil {
			t.Errorf("at first: %v, %v", h.ClaimAt, h.Unclaimed)
		}
		time.Sleep(11 * time.Second)
		synctest.Wait()
		read := n.Health().ClaimAt
		if read.Sub(taken) != 10*time.Second {
			t.Errorf("read at %v, taken at %v", read, taken)
		}
		r.bucket.Add(memory.Fault{Ops: memory.OpGet, Key: "cluster/claim", Sticky: true, Hold: make(chan struct{})})
		time.Sleep(25 * time.Second) // it is asked for twice, and none of them has ended for long enough
		synctest.Wait()
		if h := n.Health(); h.Unclaimed != nil || !h.ClaimAt.Equal(read) {
			t.Errorf("after one or two misses: %v, %v", h.ClaimAt, h.Unclaimed)
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		h := n.Health()
		wantKind(t, "after three misses", h.Unclaimed, tiers.RemoteUnavailable, "in a row", read.UTC().Format(time.RFC3339))
		if !h.ClaimAt.Equal(read) || h.Fenced != nil {
			t.Errorf("last read %v, fenced %v", h.ClaimAt, h.Fenced)
		}
		r.bucket.Clear()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if h := n.Health(); h.Unclaimed != nil || !h.ClaimAt.After(read) {
			t.Errorf("after the bucket came back: %v, %v", h.ClaimAt, h.Unclaimed)
		}
		n.end()
	})
}

// TestHungDiskKeepsNoOtherPartitionFromBeingFenced, neither one that takes new
// settings nor one that closes.
func TestHungDiskKeepsNoOtherPartitionFromBeingFenced(t *testing.T) {
	for name, block := range map[string]func(*node, *slot){
		"new settings": func(n *node, _ *slot) {
			_ = n.AlterConfigs(context.WithoutCancel(n.t.Context()), "orders", []ConfigOp{{"max.message.bytes", OpSet, new("1000")}}, false, false)
		},
		"closing": func(n *node, s *slot) { _ = s.close(context.WithoutCancel(n.t.Context())) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			n := r.start()
			topic := n.create("orders", 2)
			awaitTried(t.Context(), n.Catalog().slots())
			hold, reached := make(chan struct{}), make(chan fsys.Op, 1)
			r.faulty.Add(fsys.Fault{Kinds: fsys.OpSync | fsys.OpSyncData, Name: topic.ID.Hex() + "-0", Hold: hold, Reached: reached})
			hung := n.Catalog().slots()[0]
			answered, blocked := make(chan error, 1), make(chan struct{})
			go func() { _, err := n.append("orders", 0, "v"); answered <- err }()
			<-reached
			go func() { block(n, hung); close(blocked) }()
			eventually(t, "the slot is held", func() bool {
				if hung.mu.TryLock() {
					hung.mu.Unlock()
					return false
				}
				return true
			})
			fenced := make(chan struct{})
			go func() { n.Fence(errors.New("somebody else")); close(fenced) }()
			eventually(t, "the other partition is fenced", func() bool {
				_, err := n.append("orders", 1, "v")
				return tiers.KindOf(err) == tiers.NotLeader
			})
			close(hold)
			<-fenced
			<-blocked
			wantKind(t, "the append under way", <-answered, tiers.NotLeader, "somebody else")
		})
	}
}

// TestReplacedNodeDeletesNoObjects: what it calls deleted may be alive in the
// rows of the node that replaced it.
func TestReplacedNodeDeletesNoObjects(t *testing.T) {
	r := newRig(t)
	n := r.start()
	topic := n.create("orders", 1)
	n.fill("orders", 0, 3)
	hits := r.bucket.Add(memory.Fault{Ops: memory.OpDelete, Key: topic.ID.Hex(), Sticky: true, Err: remote.ErrUnavailable})
	if err := n.DeleteTopic(t.Context(), topic.ID); err != nil {
		t.Fatal(err)
	}
	eventually(t, "both deletes are tried", func() bool { return hits() >= 2 })
	takeOver(t, n)
	r.bucket.Clear()
	wantKind(t, "delete objects", newBurial(n.Broker).round(t.Context()), tiers.StaleFence, "took it over")
	if n.Fenced() == nil {
		t.Error("the node does not know that it was replaced")
	}
	n.end()
	if keys := r.bucket.Keys(remote.TopicPrefix(topic.ID)); len(keys) != 2 {
		t.Errorf("the bucket has %v, want both objects", keys)
	}
}

// TestClaimThatIsNotReadKeepsTheObjects until it is.
func TestClaimThatIsNotReadKeepsTheObjects(t *testing.T) {
	r := newRig(t)
	n := r.start()
	topic := n.create("orders", 1)
	n.fill("orders", 0, 3)
	hits := r.bucket.Add(memory.Fault{Ops: memory.OpDelete, Key: topic.ID.Hex(), Sticky: true, Err: remote.ErrUnavailable})
	if err := n.DeleteTopic(t.Context(), topic.ID); err != nil {
		t.Fatal(err)
	}
	eventually(t, "both deletes are tried", func() bool { return hits() >= 2 })
	r.bucket.Add(memory.Fault{Ops: memory.OpGet, Key: "cluster/claim", Sticky: true, Err: remote.ErrUnavailable})
	before := hits()
	wantKind(t, "delete objects", newBurial(n.Broker).round(t.Context()), tiers.RemoteUnavailable)
	if after := hits(); after != before {
		t.Errorf("%d deletes were asked for although the claim was not read", after-before)
	}
	r.bucket.Clear()
	eventually(t, "the objects go", func() bool { return len(r.bucket.Keys(remote.TopicPrefix(topic.ID))) == 0 })
}

// TestReplacedNodeConfirmsNoChange: the change is written where no start looks
// any more, so it must not be answered, nor may files be removed for it.
func TestReplacedNodeConfirmsNoChange(t *testing.T) {
	r := newRig(t)
	n := r.start()
	topic := n.create("orders", 1)
	n.fill("orders", 0, 3)
	takeOver(t, n)
	wantKind(t, "delete", n.DeleteTopic(t.Context(), topic.ID), tiers.StaleFence, "took it over")
	n.end()
	if keys := r.bucket.Keys(remote.TopicPrefix(topic.ID)); len(keys) != 2 {
		t.Errorf("the bucket has %v, want both objects", keys)
	}
	if _, err := r.disk.Stat(PartitionDir(dataDir, tiers.PartitionID{Topic: topic.ID})); err != nil {
		t.Errorf("the local files: %v", err)
	}
}

// TestChangeIsConfirmedOnceTheClaimIsRead: whether the bucket is ours still is
// part of the answer.
func TestChangeIsConfirmedOnceTheClaimIsRead(t *testing.T) {
	n := newRig(t).start()
	bucket := n.cache.Bucket().(*memory.Bucket)
	bucket.Add(memory.Fault{Ops: memory.OpGet, Key: "cluster/claim", Sticky: true, Err: remote.ErrUnavailable})
	_, err := n.CreateTopic(t.Context(), CreateTopic{Name: "orders", Partitions: 1, Replication: 1})
	wantKind(t, "create", err, tiers.RemoteUnavailable)
	if _, ok := n.Catalog().Topic("orders"); ok {
		t.Error("the topic is visible")
	}
	bucket.Clear()
	eventually(t, "the topic becomes visible", func() bool { _, ok := n.Catalog().Topic("orders"); return ok })
}

// takeOver is another start on the rig's bucket.
func takeOver(t *testing.T, n *node) {
	t.Helper()
	o := control.ClaimOptions{Cluster: n.Node().Cluster, Node: 1, Instance: "clone", Now: time.Now}
	if _, err := control.AcquireClaim(t.Context(), n.cache.Bucket(), o); err != nil {
		t.Fatal(err)
	}
}

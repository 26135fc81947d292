package broker

import (
	"context"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/partition"
	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

// fence is what the owner of a partition says.
func (n *node) fence(topic control.Topic, index int32) partition.Fence {
	id := n.owner(topic.Name, index).Identity()
	return partition.Fence{Partition: id.ID, Gen: id.Gen, Epoch: id.Epoch}
}

// rowStart is the log start that the control plane has.
func (n *node) rowStart(topic control.Topic, index int32) tiers.Offset {
	n.t.Helper()
	topics, err := n.o.Store.Topics(n.t.Context())
	if err != nil {
		n.t.Fatal(err)
	}
	for _, t := range topics {
		if t.ID == topic.ID {
			return t.Partitions[index].LogStart
		}
	}
	n.t.Fatal("the topic is gone")
	return 0
}

// bucketStart is the log start that the bucket alone tells.
func (r *rig) bucketStart(topic control.Topic, index int32) tiers.Offset {
	r.t.Helper()
	st, _, err := control.ReadJournal(r.t.Context(), r.bucket)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, t := range st.Topics {
		if t.ID == topic.ID {
			return t.Partitions[index].LogStart
		}
	}
	r.t.Fatal("the bucket does not know the topic")
	return 0
}

// TestReport049LogStartIsInTheBucketBeforeItIsAnswered, and while it is not the
// owner is told so: nothing below it may go then.
func TestReport049LogStartIsInTheBucketBeforeItIsAnswered(t *testing.T) {
	r := newRig(t)
	n := r.start()
	topic := n.create("orders", 2)
	awaitTried(t.Context(), n.Catalog().slots())
	f := n.fence(topic, 1)
	if err := n.registry.RaiseLogStart(t.Context(), f, 5); err != nil {
		t.Fatal(err)
	}
	if got := r.bucketStart(topic, 1); got != 5 {
		t.Errorf("the bucket says %d", got)
	}
	away := r.bucket.Add(memory.Fault{Ops: memory.OpPut, Key: "cluster/change/", Sticky: true, Err: remote.ErrUnavailable})
	wantKind(t, "raise", n.registry.RaiseLogStart(t.Context(), f, 6), tiers.RemoteUnavailable, "not known to be in the bucket", "may still go")
	if got := r.bucketStart(topic, 1); got != 5 {
		t.Errorf("the bucket says %d", got)
	}
	// The row says it already. That does not make it known where a rebuild looks.
	if got := n.rowStart(topic, 1); got != 6 {
		t.Errorf("the control plane says %d", got)
	}
	wantKind(t, "the same again", n.registry.RaiseLogStart(t.Context(), f, 6), tiers.RemoteUnavailable)
	if away() < 2 {
		t.Error("the second try asked nobody")
	}
	r.bucket.Clear()
	if err := n.registry.RaiseLogStart(t.Context(), f, 6); err != nil {
		t.Fatal(err)
	}
	if got := r.bucketStart(topic, 1); got != 6 {
		t.Errorf("the bucket says %d", got)
	}
}

// TestLogStartWaitsForNoChangeOfTopics: the operations token is somebody else's.
func TestLogStartWaitsForNoChangeOfTopics(t *testing.T) {
	r := newRig(t)
	n := r.start()
	topic := n.create("orders", 1)
	f := n.fence(topic, 0)
	if err := n.enter(t.Context(), "test", ""); err != nil {
		t.Fatal(err)
	}
	defer n.leave()
	if err := n.registry.RaiseLogStart(t.Context(), f, 5); err != nil {
		t.Fatal(err)
	}
	if got := r.bucketStart(topic, 0); got != 5 {
		t.Errorf("the bucket says %d", got)
	}
}

// TestReplacedNodeRemembersNoLogStart: it writes where no start looks any more, so
// it must delete nothing for it.
func TestReplacedNodeRemembersNoLogStart(t *testing.T) {
	r := newRig(t)
	n := r.start()
	topic := n.create("orders", 1)
	f := n.fence(topic, 0)
	takeOver(t, n)
	wantKind(t, "raise", n.registry.RaiseLogStart(t.Context(), f, 5), tiers.StaleFence)
	if n.Fenced() == nil {
		t.Error("the node does not know that it was replaced")
	}
}

// TestLogStartIsNotAnsweredWhileTheClaimIsNotRead.
func TestLogStartIsNotAnsweredWhileTheClaimIsNotRead(t *testing.T) {
	r := newRig(t)
	n := r.start()
	topic := n.create("orders", 1)
	f := n.fence(topic, 0)
	r.bucket.Add(memory.Fault{Ops: memory.OpGet, Key: "cluster/claim", Sticky: true, Err: remote.ErrUnavailable})
	wantKind(t, "raise", n.registry.RaiseLogStart(t.Context(), f, 5), tiers.RemoteUnavailable)
	r.bucket.Clear()
	if err := n.registry.RaiseLogStart(t.Context(), f, 5); err != nil {
		t.Fatal(err)
	}
}

// TestReport025LogStartSurvivesRestartsAndSnapshots.
func TestReport025LogStartSurvivesRestartsAndSnapshots(t *testing.T) {
	r := newRig(t)
	n := r.start()
	topic := n.create("orders", 1)
	if err := n.registry.RaiseLogStart(t.Context(), n.fence(topic, 0), 5); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if err := n.snapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	n.end()
	for range 2 {
		n = r.start()
		if got, bucket := n.rowStart(topic, 0), r.bucketStart(topic, 0); got != 5 || bucket != 5 {
			t.Errorf("the row says %d, the bucket %d", got, bucket)
		}
		n.Settle(t.Context())
		if v := n.owner("orders", 0).View(); v.LogStart != 5 {
			t.Errorf("the log starts at %d", v.LogStart)
		}
		n.end()
	}
}

// TestLogStartsWithoutABucket are in the control plane, whose log of changes does
// not grow for ever.
func TestLogStartsWithoutABucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.bucket = nil
		n := r.start()
		topic := n.create("orders", 1)
		for o := range tiers.Offset(10) {
			if err := n.registry.RaiseLogStart(t.Context(), n.fence(topic, 0), o); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(6 * time.Minute)
		synctest.Wait()
		if got := n.rowStart(topic, 0); got != 9 {
			t.Errorf("the row says %d", got)
		}
		_, err := r.store.Changes(t.Context(), 9)
		wantKind(t, "changes", err, tiers.Conflict, "are gone")
		n.create("payments", 1) // what was trimmed is missed by nobody
		n.end()
	})
}

// slowClaim answers when it is told to.
type slowClaim struct {
	began atomic.Int64
	let   chan error
}

func (c *slowClaim) Check(ctx context.Context) error {
	c.began.Add(1)
	select {
	case err := <-c.let:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TestReadsOfTheClaimAreShared by all who asked before they began, and by nobody
// who asked later.
func TestReadsOfTheClaimAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		claim := &slowClaim{let: make(chan error)}
		r.change = func(o *Options) { o.Claim, o.ClaimEvery = claim, time.Hour }
		n := r.start()
		synctest.Wait() // what reads at the start is under way
		for claim.began.Load() > 0 && n.reads.busy() {
			claim.let <- nil
			synctest.Wait()
		}
		claim.began.Store(0)

		var wg sync.WaitGroup
		var first error
		var later [100]error
		wg.Go(func() { first = n.checkClaim(t.Context()) })
		synctest.Wait()
		for i := range later {
			wg.Go(func() { later[i] = n.checkClaim(t.Context()) })
		}
		synctest.Wait()
		if got := claim.began.Load(); got != 1 {
			t.Fatalf("%d reads at once", got)
		}
		claim.let <- nil
		synctest.Wait()
		if got := claim.began.Load(); got != 2 {
			t.Fatalf("%d reads for 101 askers", got)
		}
		refused := tiers.E(tiers.RemoteUnavailable, "read", "claim", "away")
		claim.let <- refused
		wg.Wait()
		if first != nil {
			t.Error(first)
		}
		for _, err := range later {
			wantKind(t, "one who asked while a read was under way", err, tiers.RemoteUnavailable)
		}
		if got := claim.began.Load(); got != 2 {
			t.Errorf("%d reads, want no more than were asked for", got)
		}
		// Who leaves waits no longer.
		ctx, leave := context.WithCancel(t.Context())
		leave()
		wantKind(t, "somebody who left", n.checkClaim(ctx), tiers.TimedOut)
		n.end()
	})
}

// busy reports whether a read is under way.
func (c *claimReads) busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running
}

// TestReopenUsesNoUnrememberedStart: the raise failed because the bucket did not
// take it, and then the disk failed. Its row must not have the next owner delete
// what a rebuild would still look for; once the bucket knows it, the raise counts.
func TestReopenUsesNoUnrememberedStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.change = quiet
		n := r.start()
		topic := n.create("orders", 1, "remote.storage.enable", "true")
		for range 4 {
			n.fill("orders", 0, 1)
		}
		objects := len(r.bucket.Keys("topics/"))
		r.bucket.Add(memory.Fault{Ops: memory.OpPut, Key: "cluster/change/", Sticky: true, Err: remote.ErrUnavailable})
		_, err := n.owner("orders", 0).DeleteRecords(t.Context(), 3)
		wantKind(t, "trim", err, tiers.RemoteUnavailable, "may still go")
		breakDisk := func() tiers.Offset {
			r.faulty.Add(fsys.Fault{Kinds: fsys.OpSyncData, Name: topic.ID.Hex(), Err: syscall.EIO})
			if _, err := n.append("orders", 0, "x"); err == nil {
				t.Fatal("the disk did not fail")
			}
			if time.Sleep(5 * time.Second); !n.serves("orders", 2*time.Minute) {
				t.Fatal("it did not come back")
			}
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			return n.owner("orders", 0).View().LogStart
		}
		if row, start := n.rowStart(topic, 0), breakDisk(); row != 3 || start != 0 {
			t.Errorf("the row says %d, the owner starts at %d", row, start)
		}
		if left := len(r.bucket.Keys("topics/")); left != objects {
			t.Errorf("%d of %d objects are left below a log start that the bucket does not know", left, objects)
		}
		r.bucket.Clear()
		if start := breakDisk(); start != 3 || r.bucketStart(topic, 0) != 3 {
			t.Errorf("the owner starts at %d, the bucket says %d", start, r.bucketStart(topic, 0))
		}
		n.end()
	})
}

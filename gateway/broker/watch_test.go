package broker

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

// claimTwin answers as it is told.
type claimTwin struct {
	answer atomic.Pointer[error]
	reads  atomic.Int32
}

func (c *claimTwin) Check(context.Context) error {
	c.reads.Add(1)
	if e := c.answer.Load(); e != nil {
		return *e
	}
	return nil
}

func (c *claimTwin) say(err error) { c.answer.Store(&err) }

func TestLostClaimFencesEveryPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		claim := &claimTwin{}
		r := newRig(t)
		r.change = func(o *Options) { o.Claim = claim }
		n := r.start()
		n.create("orders", 3)
		if _, err := n.append("orders", 0, "v"); err != nil {
			t.Fatal(err)
		}
		claim.say(tiers.E(tiers.RemoteUnavailable, "check claim", "bucket", "it is away"))
		time.Sleep(time.Minute)
		synctest.Wait()
		if claim.reads.Load() < 5 || n.Fenced() != nil {
			t.Fatalf("%d reads, fenced %v: a bucket that is away proves nothing", claim.reads.Load(), n.Fenced())
		}
		if _, err := n.append("orders", 0, "v"); err != nil {
			t.Fatal(err)
		}
		claim.say(tiers.E(tiers.StaleFence, "check claim", "bucket", "node 2 took it over"))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n.Fenced() == nil || n.Health().Fenced == nil {
			t.Fatal("the lost claim was not seen within its interval")
		}
		for i := range int32(3) {
			_, err := n.append("orders", i, "v")
			wantKind(t, "append", err, tiers.NotLeader, "node 2 took it over")
		}
		_, err := n.CreateTopic(t.Context(), CreateTopic{Name: "new", Partitions: 1, Replication: 1})
		wantKind(t, "create", err, tiers.StaleFence, "node 2 took it over")
		topic, _ := n.Catalog().Topic("orders")
		wantKind(t, "delete", n.DeleteTopic(t.Context(), topic.ID), tiers.StaleFence)
		_, err = n.ProducerID(t.Context())
		wantKind(t, "producer id", err, tiers.StaleFence)
		before := len(r.bucket.Calls(memory.OpPut, "cluster/"))
		time.Sleep(time.Hour)
		n.end()
		if after := len(r.bucket.Calls(memory.OpPut, "cluster/")); after != before {
			t.Errorf("a fenced node wrote to the bucket %d times", after-before)
		}
	})
}

// TestSecondStartFencesTheFirst: two nodes on one bucket, with the real claim.
func TestSecondStartFencesTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		n := r.start()
		n.create("orders", 1)
		clone, err := control.AcquireClaim(t.Context(), r.bucket, control.ClaimOptions{Cluster: n.Node().Cluster, Node: 1, Instance: "clone", Now: time.Now})
		if err != nil || clone.Generation() != 2 {
			t.Fatal(clone, err)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		_, err = n.append("orders", 0, "v")
		wantKind(t, "append", err, tiers.NotLeader)
		n.end()
	})
}

func TestSnapshotsGoToTheBucketRegularlyAndAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		n := r.start()
		count := func() int { return len(r.bucket.Calls(memory.OpPut, "cluster/snapshot")) }
		if count() != 1 || !n.Health().SnapshotAt.IsZero() {
			t.Fatalf("%d snapshots at the start, last %v", count(), n.Health().SnapshotAt)
		}
		n.create("orders", 1)
		time.Sleep(5*time.Minute + time.Second)
		synctest.Wait()
		if count() != 2 || n.Health().SnapshotAt.IsZero() {
			t.Errorf("%d snapshots after 5 minutes, want 2", count())
		}
		r.bucket.Add(memory.Fault{Ops: memory.OpPut, Key: "cluster/snapshot", Err: remote.ErrUnavailable})
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if count() != 4 {
			t.Errorf("%d tries after 15 minutes, want 4", count())
		}
		n.end()
		if count() != 5 {
			t.Errorf("%d snapshots after the end, want 5", count())
		}
		st, report, err := control.ReadJournal(t.Context(), r.bucket)
		if err != nil || len(st.Topics) != 1 || report.Snapshot == "" {
			t.Errorf("the bucket has %+v, %+v, %v", st.Topics, report, err)
		}
	})
}

func TestCheckpointsAreWrittenRegularly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		n := r.start()
		topic := n.create("orders", 1)
		if _, err := n.append("orders", 0, "v"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		raw, err := fsys.ReadFile(r.disk, dataDir+"/recovery-point-offset-checkpoint")
		if err != nil || !strings.Contains(string(raw), topic.ID.Hex()+" 0 1") && !strings.Contains(string(raw), topic.ID.String()+" 0 1") {
			t.Errorf("checkpoint %q, %v", raw, err)
		}
		n.end()
	})
}

// TestChangesAreTriedAgainWithGrowingPauses: a bucket that is away for long is
// not hammered.
func TestChangesAreTriedAgainWithGrowingPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		n := r.start()
		hits := r.bucket.Add(memory.Fault{Ops: memory.OpPut, Key: "cluster/change", Sticky: true, Err: remote.ErrUnavailable})
		_, err := n.CreateTopic(t.Context(), CreateTopic{Name: "orders", Partitions: 1, Replication: 1})
		wantKind(t, "create", err, tiers.RemoteUnavailable)
		time.Sleep(4 * time.Minute)
		synctest.Wait()
		if got := hits(); got < 8 || got > 16 {
			t.Errorf("%d tries in 4 minutes", got)
		}
		r.bucket.Clear()
		time.Sleep(31 * time.Second)
		synctest.Wait()
		if _, err := n.append("orders", 0, "v"); err != nil {
			t.Error(err)
		}
		n.end()
	})
}

// TestSnapshotMayOvertakeAChange: the snapshot holds the change and trims it, so
// the broker must not look for it among the changes.
func TestSnapshotMayOvertakeAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		n := r.start()
		r.bucket.Add(memory.Fault{Ops: memory.OpPut, Key: "cluster/change", Err: remote.ErrUnavailable})
		_, err := n.CreateTopic(t.Context(), CreateTopic{Name: "orders", Partitions: 1, Replication: 1})
		wantKind(t, "create", err, tiers.RemoteUnavailable)
		if err := n.snapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := r.store.Changes(t.Context(), 0); tiers.KindOf(err) != tiers.Conflict {
			t.Fatalf("the change was not trimmed, this test shows nothing: %v", err)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if _, err := n.append("orders", 0, "v"); err != nil {
			t.Error(err)
		}
		n.end()
	})
}

func TestPartitionThatCannotBeOpenedIsOfflineAlone(t *testing.T) {
	r := newRig(t)
	n := r.start()
	bad, good := n.create("bad", 1), n.create("good", 1)
	for _, topic := range []string{"bad", "good"} {
		if _, err := n.append(topic, 0, "v"); err != nil {
			t.Fatal(err)
		}
	}
	n.end()
	r.faulty.Add(fsys.Fault{Kinds: fsys.OpOpen, Name: bad.ID.Hex(), Sticky: true, Err: errors.New("bad sector")})
	n = r.start()
	awaitTried(t.Context(), n.Catalog().slots())
	_, err := n.Owner("bad", 0)
	wantKind(t, "bad", err, tiers.StorageFailed, "offline", "bad sector")
	if v := n.owner("good", 0).View(); v.LogEnd != 1 {
		t.Errorf("%s: log end %d", good.Name, v.LogEnd)
	}
	h := n.Health()
	if len(h.Offline) != 1 || !strings.Contains(h.Offline[0], "bad-0") || h.Opening != 0 || h.Partitions != 2 {
		t.Errorf("health %+v", h)
	}
	if err := n.AlterConfigs(t.Context(), "bad", []ConfigOp{{"segment.ms", OpSet, new("1")}}, false, false); err != nil {
		t.Errorf("its settings can still change: %v", err)
	}
	if err := n.DeleteTopic(t.Context(), bad.ID); err != nil {
		t.Errorf("it can still be deleted: %v", err)
	}
}

// TestLostDiskWaitsForTheBucket: a partition whose log is only in the bucket is
// opened again and again until the bucket answers.
func TestLostDiskWaitsForTheBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		n := r.start()
		n.create("orders", 1)
		n.fill("orders", 0, 5)
		topic, _ := n.Catalog().Topic("orders")
		n.end()
		if err := r.disk.RemoveAll(PartitionDir(dataDir, tiers.PartitionID{Topic: topic.ID})); err != nil {
			t.Fatal(err)
		}
		r.bucket.Add(memory.Fault{Ops: memory.OpRead, Key: "topics/", Sticky: true, Err: remote.ErrUnavailable})
		n = r.start()
		awaitTried(t.Context(), n.Catalog().slots())
		_, err := n.Owner("orders", 0)
		wantKind(t, "while the bucket is away", err, tiers.StorageFailed, "offline")
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		_, err = n.Owner("orders", 0)
		wantKind(t, "much later", err, tiers.StorageFailed, "offline")
		r.bucket.Clear()
		time.Sleep(lastReopen)
		synctest.Wait()
		if v := n.owner("orders", 0).View(); v.LogEnd != 5 {
			t.Errorf("log end %d after the bucket came back, want 5", v.LogEnd)
		}
		n.end()
	})
}

// TestFenceDuringOpening: a partition that opens after the claim was lost does
// not serve either.
func TestFenceDuringOpening(t *testing.T) {
	r := newRig(t)
	n := r.start()
	topic := n.create("orders", 1)
	n.end()
	hold, reached := make(chan struct{}), make(chan fsys.Op, 1)
	r.faulty.Add(fsys.Fault{Kinds: fsys.OpReadDir, Name: topic.ID.Hex(), Hold: hold, Reached: reached})
	n = r.start()
	<-reached
	_, err := n.Owner("orders", 0)
	wantKind(t, "while it opens", err, tiers.NotLeader, "being opened")
	if h := n.Health(); h.Opening != 1 {
		t.Errorf("health %+v", h)
	}
	if err = n.AlterConfigs(t.Context(), "orders", []ConfigOp{{"max.message.bytes", OpSet, new("1")}}, false, false); err != nil {
		t.Error(err)
	}
	n.Fence(errors.New("somebody else"))
	close(hold)
	awaitTried(t.Context(), n.Catalog().slots())
	_, err = n.append("orders", 0, "v")
	wantKind(t, "append", err, tiers.NotLeader, "somebody else")
}

// TestSettingsThatChangeDuringOpening reach the partition once it is open.
func TestSettingsThatChangeDuringOpening(t *testing.T) {
	r := newRig(t)
	n := r.start()
	topic := n.create("orders", 1)
	n.end()
	hold, reached := make(chan struct{}), make(chan fsys.Op, 1)
	r.faulty.Add(fsys.Fault{Kinds: fsys.OpReadDir, Name: topic.ID.Hex(), Hold: hold, Reached: reached})
	n = r.start()
	<-reached
	if err := n.AlterConfigs(t.Context(), "orders", []ConfigOp{{"max.message.bytes", OpSet, new("1")}}, false, false); err != nil {
		t.Error(err)
	}
	close(hold)
	awaitTried(t.Context(), n.Catalog().slots())
	_, err := n.append("orders", 0, "v")
	wantKind(t, "append", err, tiers.MessageTooLarge)
}

// TestCloseWaitsForNoBucket: a change that hangs in the bucket ends with the
// broker, and is brought out at the next start.
func TestCloseWaitsForNoBucket(t *testing.T) {
	r := newRig(t)
	n := r.start()
	reached := make(chan memory.Call, 1)
	r.bucket.Add(memory.Fault{Ops: memory.OpPut, Key: "cluster/change", Hold: make(chan struct{}), Reached: reached})
	answered := make(chan error, 1)
	go func() {
		_, err := n.CreateTopic(t.Context(), CreateTopic{Name: "orders", Partitions: 1, Replication: 1})
		answered <- err
	}()
	<-reached
	n.end()
	wantKind(t, "the change under way", <-answered, tiers.RemoteUnavailable)
	r.bucket.Clear()
	n = r.start()
	if _, ok := n.Catalog().Topic("orders"); !ok {
		t.Error("the change is forgotten")
	}
}

// TestClientThatLeavesDoesNotKeepSettingsFromThePartitions.
func TestClientThatLeavesDoesNotKeepSettingsFromThePartitions(t *testing.T) {
	r := newRig(t)
	n := r.start()
	n.create("orders", 1)
	hold, reached := make(chan struct{}), make(chan memory.Call, 1)
	r.bucket.Add(memory.Fault{Ops: memory.OpPut, Key: "cluster/change", Hold: hold, Reached: reached})
	ctx, cancel := context.WithCancel(t.Context())
	answered := make(chan error, 1)
	go func() {
		answered <- n.AlterConfigs(ctx, "orders", []ConfigOp{{"max.message.bytes", OpSet, new("1")}}, false, false)
	}()
	<-reached
	cancel()
	if err := <-answered; err == nil {
		t.Error("a change that is not in the bucket was confirmed")
	}
	close(hold)
	eventually(t, "the partition has the setting", func() bool {
		_, err := n.append("orders", 0, "v")
		return tiers.KindOf(err) == tiers.MessageTooLarge
	})
}

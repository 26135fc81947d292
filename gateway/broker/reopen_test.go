package broker

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/batch"
	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/partition"
)

// ledger is what producers were told.
type ledger struct {
	acked   map[tiers.Offset]string
	unsure  map[string]bool // an error was answered that leaves the outcome open
	refused int             // errors that promise that nothing was written
	n       int
}

// produce tries to write one record.
func (g *ledger) produce(n *node, topic string) {
	value := fmt.Sprintf("%s %d", topic, g.n)
	g.n++
	at, err := n.append(topic, 0, value)
	if err == nil {
		if g.acked == nil {
			g.acked = map[tiers.Offset]string{}
		}
		g.acked[at] = value
		return
	}
	if g.unsure == nil {
		g.unsure = map[string]bool{}
	}
	g.unsure[value] = true
	g.refused++
}

// values reads a partition from its start, offset by offset.
func (n *node) values(topic string) map[tiers.Offset]string {
	n.t.Helper()
	o := n.owner(topic, 0)
	out := map[tiers.Offset]string{}
	for from := o.View().LogStart; from < o.View().HighWatermark; {
		res, err := o.Read(n.t.Context(), partition.ReadRequest{From: from, CurrentEpoch: tiers.NoEpoch, FetchedEpoch: tiers.NoEpoch, MaxBytes: 1 << 20, MinOne: true})
		if err != nil {
			n.t.Fatalf("read %s at %d: %v", topic, from, err)
		}
		if len(res.Records) == 0 {
			n.t.Fatalf("nothing at %s, %d", topic, from)
		}
		for one := range batch.Split(res.Records) {
			err := batch.NewDecoder(0).Records(one.Bytes, func(r batch.Record) bool {
				out[r.Offset] = string(r.Value)
				return true
			})
			if err != nil {
				n.t.Fatal(err)
			}
			from = one.Header.Next()
		}
	}
	return out
}

// check compares what is readable with what was promised.
func (g *ledger) check(t *testing.T, when string, got map[tiers.Offset]string) {
	t.Helper()
	for o, v := range g.acked {
		if got[o] != v {
			t.Errorf("%s: %q was acknowledged at %d, there is %q", when, v, o, got[o])
		}
	}
	for o, v := range got {
		if g.acked[o] != v && !g.unsure[v] {
			t.Errorf("%s: %q at %d was never written", when, v, o)
		}
	}
}

// exact is check without records of an open outcome.
func (g *ledger) exact(t *testing.T, when string, got map[tiers.Offset]string) {
	t.Helper()
	if !maps.Equal(got, g.acked) {
		t.Errorf("%s: acknowledged %v\nreadable %v", when, g.acked, got)
	}
}

// quiet keeps everything away from the disk that is not asked for.
func quiet(o *Options) {
	o.ClaimEvery, o.SnapshotEvery = 24*time.Hour, 24*time.Hour
}

// serves waits in fake time until a partition takes records.
func (n *node) serves(topic string, within time.Duration) bool {
	for range int(within / time.Second) {
		if o, err := n.Owner(topic, 0); err == nil && o.View().Err == nil && n.disk.Full() == nil {
			return true
		}
		time.Sleep(time.Second)
	}
	return false
}

// TestReport039FailedSyncComesBack: a fsync that fails takes one partition
// offline, for a moment; what was acknowledged is readable afterwards, nothing
// else is, and the others have not noticed.
func TestReport039FailedSyncComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.change = quiet
		n := r.start()
		bad := n.create("bad", 1)
		n.create("good", 1)
		var b, g ledger
		for range 3 {
			b.produce(n, "bad")
			g.produce(n, "good")
		}
		before := n.owner("bad", 0)
		r.faulty.Add(fsys.Fault{Kinds: fsys.OpSyncData, Name: bad.ID.Hex(), Err: syscall.EIO})
		b.produce(n, "bad")
		if b.refused != 1 {
			t.Fatal("a record was acknowledged that was not synced")
		}
		b.produce(n, "bad")
		if h := n.Health(); b.refused != 2 || len(h.Offline) != 1 || !strings.Contains(h.Offline[0], "bad-0") {
			t.Errorf("%d refused, %q", b.refused, h.Offline)
		}
		g.produce(n, "good")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if after := n.owner("bad", 0); after == before || after.View().Err != nil || len(n.Health().Offline) != 0 {
			t.Fatalf("it did not come back: %v", n.Health().Offline)
		}
		b.exact(t, "after it came back", n.values("bad"))
		b.produce(n, "bad")
		b.exact(t, "and goes on", n.values("bad"))
		g.exact(t, "the other one", n.values("good"))
		if g.refused != 0 {
			t.Error("the other partition refused a record")
		}
		n.end()
		r.disk = r.disk.SyncedCopy()
		r.faulty = fsys.NewFaulty(r.disk)
		n = r.start()
		awaitTried(t.Context(), n.Catalog().slots())
		b.exact(t, "after a power loss", n.values("bad"))
		n.end()
	})
}

// TestReport039FaultAtEveryFileOperation: each change of the disk fails once,
// refused, torn or applied and reported as failed. The node comes back by itself,
// and what was acknowledged is what can be read.
func TestReport039FaultAtEveryFileOperation(t *testing.T) {
	t.Parallel()
	work := func(n *node, g *ledger) {
		for i := range 6 {
			g.produce(n, "orders")
			if o, err := n.Owner("orders", 0); err == nil && i%2 == 1 {
				_ = o.Roll(n.t.Context()) // the fault may strike here
			}
			_ = n.disk.Checkpoint()
		}
	}
	run := func(t *testing.T, f fsys.Fault) (struck int, ops []fsys.Op) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			r.change, r.bucket = quiet, nil
			n := r.start()
			n.create("orders", 1)
			synctest.Wait()
			var g ledger
			g.produce(n, "orders")
			begin := len(r.faulty.Ops(fsys.OpMutation))
			hits := r.faulty.Add(f)
			work(n, &g)
			ops = r.faulty.Ops(fsys.OpMutation)[begin:]
			when := fmt.Sprintf("%+v", f)
			if !n.serves("orders", time.Minute) {
				t.Fatalf("%s: it did not come back: %q, %v", when, n.Health().Offline, n.disk.Full())
			}
			r.faulty.Clear()
			g.check(t, when, n.values("orders"))
			work(n, &g)
			g.check(t, when+", later", n.values("orders"))
			if g.refused > 0 && len(g.acked) < 7 {
				t.Errorf("%s: %d acknowledged, %d refused", when, len(g.acked), g.refused)
			}
			synced := r.disk.SyncedCopy()
			n.end()
			r.disk, r.faulty = synced, fsys.NewFaulty(synced)
			n = r.start()
			awaitTried(t.Context(), n.Catalog().slots())
			g.check(t, when+", after a power loss", n.values("orders"))
			struck = hits()
			n.end()
		})
		return struck, ops
	}
	_, ops := run(t, fsys.Fault{Kinds: fsys.OpLock})
	if len(ops) < 60 {
		t.Fatalf("only %d operations", len(ops))
	}
	for i := range ops {
		faults := []fsys.Fault{{Err: syscall.EIO}, {Err: syscall.ENOSPC}, {Err: syscall.EIO, Applied: true}, {Err: syscall.EIO, Times: 3}}
		if ops[i].Kind == fsys.OpWrite {
			faults = append(faults, fsys.Fault{Err: syscall.ENOSPC, Short: 30})
		}
		for _, f := range faults {
			f.Kinds, f.Skip = fsys.OpMutation, i
			if struck, _ := run(t, f); struck == 0 {
				t.Errorf("operation %d: %+v did not strike", i, f)
			}
			if t.Failed() {
				return
			}
		}
	}
}

// TestReport039FullDisk: a disk that is full makes its partitions read-only, with
// the reason, and takes records again once there is room.
func TestReport039FullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.change = quiet
		n := r.start()
		n.create("orders", 1)
		n.create("copied", 1)
		var g ledger
		g.produce(n, "orders")
		n.fill("copied", 0, 3)
		free, _, err := r.disk.Free(dataDir)
		if err != nil {
			t.Fatal(err)
		}
		used := int64(1<<40) - free
		r.disk.SetCapacity(used + 2000)
		for range 40 {
			g.produce(n, "orders")
		}
		if g.refused == 0 || len(g.acked) < 3 {
			t.Fatalf("%d acknowledged, %d refused", len(g.acked), g.refused)
		}
		h := n.Health()
		if h.Full == nil || len(h.Offline) != 0 || !strings.Contains(h.Full.Error(), "no space left") {
			t.Errorf("health: %v, offline %q", h.Full, h.Offline)
		}
		g.exact(t, "on the full disk", n.values("orders"))
		if len(n.values("copied")) != 3 {
			t.Error("the other partition cannot be read")
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if n.Health().Full == nil {
			t.Error("it took records without room")
		}
		r.disk.SetCapacity(0)
		if !n.serves("orders", time.Minute) {
			t.Fatal("it did not come back")
		}
		g.produce(n, "orders")
		g.exact(t, "with room again", n.values("orders"))
		n.end()
		r.disk = r.disk.SyncedCopy()
		r.faulty = fsys.NewFaulty(r.disk)
		n = r.start()
		awaitTried(t.Context(), n.Catalog().slots())
		g.exact(t, "after a power loss", n.values("orders"))
		n.end()
	})
}

// TestLostAcknowledgedRecordsStayOffline: a disk that forgets what it had synced
// is not papered over.
func TestLostAcknowledgedRecordsStayOffline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.change = quiet
		n := r.start()
		topic := n.create("orders", 1)
		var g ledger
		for range 3 {
			g.produce(n, "orders")
		}
		r.faulty.Add(fsys.Fault{Kinds: fsys.OpSyncData, Name: topic.ID.Hex(), Err: syscall.EIO})
		g.produce(n, "orders")
		log := fmt.Sprintf("%s/h1/%020d.log", PartitionDir(dataDir, tiers.PartitionID{Topic: topic.ID}), 0)
		f, err := r.disk.OpenFile(log, syscall.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Truncate(0); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		time.Sleep(time.Hour)
		synctest.Wait()
		_, err = n.Owner("orders", 0)
		wantKind(t, "after the loss", err, tiers.StorageFailed, "ACKNOWLEDGED RECORDS ARE GONE", "--accept-loss", "[0,3)")
		wantKind(t, "reopen", n.Reopen(t.Context(), "orders", 0, false), tiers.StorageFailed, "ACKNOWLEDGED")
		if err := n.Reopen(t.Context(), "orders", 0, true); err != nil {
			t.Fatal(err)
		}
		if v := n.owner("orders", 0).View(); v.LogStart != 3 || v.LogEnd != 3 || v.Err != nil {
			t.Errorf("log [%d,%d), %v", v.LogStart, v.LogEnd, v.Err)
		}
		if at, err := n.append("orders", 0, "other"); at != 3 || err != nil { // never an offset that names something else
			t.Errorf("a new record is at %d, %v", at, err)
		}
		if err := n.Reopen(t.Context(), "orders", 0, false); err != nil {
			t.Errorf("reopen of one that serves: %v", err)
		}
		wantKind(t, "no partition", n.Reopen(t.Context(), "orders", 1, false), tiers.UnknownTopicOrPartition)
		wantKind(t, "no topic", n.Reopen(t.Context(), "other", 0, false), tiers.UnknownTopicOrPartition)
		n.end()
		wantKind(t, "after the end", n.Reopen(t.Context(), "orders", 0, false), tiers.Closed)
	})
}

// TestReopenAtOnce: an operator does not wait for the next attempt.
func TestReopenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.change = quiet
		n := r.start()
		topic := n.create("orders", 1)
		n.end()
		r.faulty.Add(fsys.Fault{Kinds: fsys.OpReadDir, Name: topic.ID.Hex(), Sticky: true})
		n = r.start()
		time.Sleep(time.Hour)
		synctest.Wait()
		if h := n.Health(); len(h.Offline) != 1 {
			t.Fatal(h.Offline)
		}
		r.faulty.Clear()
		began := time.Now()
		if err := n.Reopen(t.Context(), "orders", 0, false); err != nil || time.Since(began) > time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		n.end()
	})
}

// TestDiskThatFailsAgainAndAgain: the pauses grow, the log is not flooded, and
// closing does not wait for a pause.
func TestDiskThatFailsAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			said strings.Builder
			pen  sync.Mutex
		)
		r := newRig(t)
		r.change = quiet
		r.log = hclog.New(&hclog.LoggerOptions{Output: &said, Mutex: &pen, Level: hclog.Info})
		n := r.start()
		topic := n.create("orders", 1)
		hits := r.faulty.Add(fsys.Fault{Kinds: fsys.OpSyncData, Name: topic.ID.Hex(), Err: syscall.EIO, Sticky: true})
		var g ledger
		for range 3600 {
			g.produce(n, "orders")
			time.Sleep(time.Second)
		}
		if len(g.acked) != 0 || hits() < 10 || hits() > 30 {
			t.Errorf("%d acknowledged, %d times synced in an hour", len(g.acked), hits())
		}
		pen.Lock()
		if lines := strings.Count(said.String(), "\n"); lines > 150 {
			t.Errorf("%d lines in the log", lines)
		}
		pen.Unlock()
		r.faulty.Clear()
		if !n.serves("orders", 10*time.Minute) {
			t.Fatal("it did not come back")
		}
		g.produce(n, "orders")
		g.exact(t, "at last", n.values("orders"))
		n.end()
	})
}

// TestWholeDiskComesBack: the recovery points could not be lowered, so the disk
// went offline with all of its partitions; it mends, and they are opened again.
func TestWholeDiskComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.change = quiet
		n := r.start()
		var g ledger
		n.create("orders", 1)
		n.create("others", 1)
		for range 3 {
			g.produce(n, "orders")
		}
		n.end()
		// The next start finds the log shorter than its recovery point, and lowers it.
		topic, _ := n.Catalog().Topic("orders")
		if err := r.disk.RemoveAll(PartitionDir(dataDir, tiers.PartitionID{Topic: topic.ID})); err != nil {
			t.Fatal(err)
		}
		r.faulty.Add(fsys.Fault{Kinds: fsys.OpWrite, Name: "recovery-point", Err: syscall.EIO})
		r.faulty.Add(fsys.Fault{Kinds: fsys.OpAnySync, Name: "probe", Err: syscall.EIO, Times: 5})
		n = r.start()
		awaitTried(t.Context(), n.Catalog().slots())
		if n.disk.Failed() == nil {
			t.Fatal("the disk did not go offline")
		}
		for _, topic := range []string{"orders", "others"} {
			if !n.serves(topic, time.Minute) {
				t.Errorf("%s did not come back: %q", topic, n.Health().Offline)
			}
		}
		n.end()
	})
}

// TestReopenSeesTheRaisedLogStart: the log start of the row, not the one that the
// slot was made with.
func TestReopenSeesTheRaisedLogStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.change = quiet
		n := r.start()
		topic := n.create("orders", 1)
		var g ledger
		for range 4 {
			g.produce(n, "orders")
		}
		f := partition.Fence{Partition: tiers.PartitionID{Topic: topic.ID}, Gen: 1, Epoch: topic.Partitions[0].Epoch}
		if err := n.registry.RaiseLogStart(t.Context(), f, 2); err != nil {
			t.Fatal(err)
		}
		r.faulty.Add(fsys.Fault{Kinds: fsys.OpSyncData, Name: topic.ID.Hex(), Err: syscall.EIO})
		g.produce(n, "orders")
		if time.Sleep(5 * time.Second); !n.serves("orders", time.Minute) {
			t.Fatal("it did not come back")
		}
		if v := n.owner("orders", 0).View(); v.LogStart != 2 {
			t.Errorf("log start %d, the row says 2", v.LogStart)
		}
		n.end()
	})
}

// TestFullDiskStarts: a node on a disk without a byte left starts and serves.
func TestFullDiskStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.change = func(o *Options) { quiet(o); o.Disk.KeepFree(64 << 20) }
		n := r.start()
		n.create("orders", 1)
		var g ledger
		for range 3 {
			g.produce(n, "orders")
		}
		n.end()
		free, total, err := r.disk.Free(dataDir)
		if err != nil {
			t.Fatal(err)
		}
		r.disk.SetCapacity(total - free - 500)
		n = r.start()
		awaitTried(t.Context(), n.Catalog().slots())
		g.exact(t, "on the full disk", n.values("orders"))
		r.disk.SetCapacity(0)
		if !n.serves("orders", time.Minute) {
			t.Fatal("it did not come back")
		}
		g.produce(n, "orders")
		g.exact(t, "with room", n.values("orders"))
		n.end()
	})
}

// TestDamagedLogStartHidesNothing: log-start-offset-checkpoint has no checksum, as
// in Kafka; the row of the partition knows better, for both tiers.
func TestDamagedLogStartHidesNothing(t *testing.T) {
	for _, tier := range []string{"local", "remote"} {
		r := newRig(t)
		n := r.start()
		topic := n.create("orders", 1)
		n.fill("orders", 0, 5)
		if tier == "remote" {
			n.end()
			if err := r.disk.RemoveAll(PartitionDir(dataDir, tiers.PartitionID{Topic: topic.ID})); err != nil {
				t.Fatal(err)
			}
			n = r.start()
			awaitTried(t.Context(), n.Catalog().slots())
		}
		n.end()
		file := dataDir + "/log-start-offset-checkpoint"
		line := fmt.Sprintf("0\n1\n%s 0 5\n", topic.ID.Hex())
		if err := fsys.WriteFileAtomic(r.disk, file, []byte(line), 0o644); err != nil {
			t.Fatal(err)
		}
		n = r.start()
		awaitTried(t.Context(), n.Catalog().slots())
		if v := n.owner("orders", 0).View(); v.LogStart != 0 || v.LogEnd != 5 {
			t.Errorf("%s: log [%d,%d)", tier, v.LogStart, v.LogEnd)
		}
		if got := n.values("orders"); len(got) != 5 {
			t.Errorf("%s: %d records", tier, len(got))
		}
		n.end()
	}
}

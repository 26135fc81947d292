package sqlite_test

import (
	"fmt"
	"io"
	"io/fs"
	"reflect"
	"strings"
	"testing"

	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/gateway/control/controltest"
	"github.com/strandline-io/strandline/gateway/control/model"
	"github.com/strandline-io/strandline/gateway/control/sqlite"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/fsys/mem"
	"github.com/strandline-io/strandline/tiers/partition"
)

// step is one mutation of the short workload.
type step func(s control.Store) error

// workload is a list of mutations that touches every table. ses is that of node
// 1, whose first session is step 0.
func workload(t *testing.T) []step {
	t.Helper()
	ctx := t.Context()
	ses := control.Session{Node: 1, Epoch: 1}
	id := func(i int) tiers.TopicID { return tiers.TopicID{7, byte(i)} }
	out := []step{func(s control.Store) error {
		_, err := s.OpenSession(ctx, 1)
		return err
	}}
	add := func(f step) { out = append(out, f) }
	for i := range 4 {
		p := tiers.PartitionID{Topic: id(i), Index: 1}
		f := partition.Fence{Partition: p, Gen: 1, NodeEpoch: 1}
		seg := tiers.RemoteSegment{ID: tiers.SegmentID{byte(i), 1}, Partition: p, Gen: 1, End: 9, Epochs: tiers.Lineage{{}}, Size: 5, CRC32C: 8}
		add(func(s control.Store) error {
			_, err := s.CreateTopic(ctx, ses, control.NewTopic{ID: id(i), Name: fmt.Sprint("t", i), Partitions: 40, Configs: map[string]string{"k": fmt.Sprint(i)}})
			return err
		})
		add(func(s control.Store) error { return s.CopyStarted(ctx, f, seg) })
		add(func(s control.Store) error { return s.CopyFinished(ctx, f, seg) })
		add(func(s control.Store) error {
			return s.CommitOffsets(ctx, ses, []control.OffsetCommit{{Group: "g", Partition: p, Gen: 1, Offset: tiers.Offset(i), Metadata: string(make([]byte, 5000))}})
		})
		add(func(s control.Store) error {
			_, err := s.RaiseLogStart(ctx, f, tiers.Offset(i+1))
			return err
		})
		add(func(s control.Store) error {
			_, err := s.ProducerIDs(ctx, ses, 1000)
			return err
		})
		if i == 2 {
			add(func(s control.Store) error {
				_, err := s.DeleteTopic(ctx, ses, id(0))
				return err
			})
			add(func(s control.Store) error { return s.Buried(ctx, ses, tiers.SegmentID{0, 1}) })
			add(func(s control.Store) error { return s.TrimChanges(ctx, 2) })
		}
	}
	return out
}

// expected returns what the store holds after each number of steps.
func expected(t *testing.T, steps []step) []control.State {
	t.Helper()
	o := controltest.NewOptions(3)
	s := model.New(model.Options{Now: o.Now, Rand: o.Rand})
	out := []control.State{dump(t, s)}
	for _, f := range steps {
		if err := f(s); err != nil {
			t.Fatal(err)
		}
		out = append(out, dump(t, s))
	}
	return out
}

func dump(t *testing.T, s control.Store) control.State {
	t.Helper()
	st, err := s.Dump(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func options(checkpoints int64) sqlite.Options {
	o := controltest.NewOptions(3)
	return sqlite.Options{Now: o.Now, Rand: o.Rand, QuickCheck: true}.WithCheckpoints(checkpoints)
}

// crash is a copy of the disk and what was acknowledged when it was taken; -1 if
// the first Open had not returned.
type crash struct {
	op    fsys.Op
	acked int
	fs    *mem.FS
	kind  string
}

// check opens a copy and returns how many steps it holds: those that were
// acknowledged, and perhaps the one that ran.
func (c crash) check(t *testing.T, want []control.State) {
	t.Helper()
	s, err := sqlite.Open(c.fs, "/control.db", options(0))
	if err != nil {
		t.Fatalf("%s at %+v after %d steps: %v", c.kind, c.op, c.acked, err)
	}
	defer s.Close()
	got := dump(t, s)
	if c.acked < 0 {
		if got.Rev != 0 || len(got.Cluster) != 22 {
			t.Fatalf("%s at %+v, before the first Open returned: %+v", c.kind, c.op, got)
		}
		return
	}
	for n := c.acked; n <= c.acked+1 && n < len(want); n++ {
		if reflect.DeepEqual(got, want[n]) {
			return
		}
	}
	t.Fatalf("%s at %+v after %d steps: neither these nor these and the next, but\n%+v", c.kind, c.op, c.acked, got)
}

// TestCrashAtEveryOperation cuts the power after every file operation of the
// short workload, with a checkpoint every few transactions: no acknowledged
// mutation is lost, no other is there but the one that ran, nothing is corrupt.
func TestCrashAtEveryOperation(t *testing.T) {
	steps := workload(t)
	want := expected(t, steps)
	fs := mem.New()
	acked := -1
	var crashes []crash
	fs.OnOp(func(op fsys.Op) {
		crashes = append(
			crashes, crash{op, acked, fs.SyncedCopy(), "the least"}, crash{op, acked, fs.CrashCopy(uint64(op.Seq)), "torn"},
			crash{op, acked, fs.CrashCopy(uint64(op.Seq) + 1<<32), "torn otherwise"}, crash{op, acked, fs.KillCopy(), "killed"},
		)
	})
	s, err := sqlite.Open(fs, "/control.db", options(12))
	if err != nil {
		t.Fatal(err)
	}
	acked = 0
	for _, f := range steps {
		if err := f(s); err != nil {
			t.Fatal(err)
		}
		acked++
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if len(crashes) < 400 {
		t.Fatalf("only %d copies", len(crashes))
	}
	t.Logf("%d copies", len(crashes))
	for i := 0; i < len(crashes); i += stride {
		crashes[i].check(t, want)
	}
}

// TestKilledWithoutClose opens what a killed process leaves.
func TestKilledWithoutClose(t *testing.T) {
	steps := workload(t)
	want := expected(t, steps)
	fs := mem.New()
	s, err := sqlite.Open(fs, "/control.db", options(0)) // No checkpoint: all is in the log.
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i, f := range steps {
		if err := f(s); err != nil {
			t.Fatal(err)
		}
		crash{acked: i + 1, fs: fs.KillCopy(), kind: "killed"}.check(t, want[:i+2])
		crash{acked: i + 1, fs: fs.SyncedCopy(), kind: "the least"}.check(t, want[:i+2])
	}
	if st, err := fs.Stat("/control.db-wal"); err != nil || st.Size() == 0 {
		t.Fatalf("the log: %v, %v", st, err)
	}
}

// TestFaultAtEveryOperation has each file operation of the short workload fail
// once, refused and applied but reported failed. Whatever is acknowledged is
// there afterwards; after an error that leaves the file in doubt, nothing is
// acknowledged or answered any more.
func TestFaultAtEveryOperation(t *testing.T) {
	steps := workload(t)
	want := expected(t, steps)
	// How many of each kind there are at least, so that a fault that never strikes
	// is noticed.
	for kind, least := range map[fsys.Kind]int{
		fsys.OpWrite: 20, fsys.OpSyncData: 15, fsys.OpSyncDir: 0, fsys.OpTruncate: 1, fsys.OpRemove: 1, fsys.OpRead: 3, fsys.OpCreate: 2,
	} {
		for _, applied := range []bool{false, true} {
			struck := 0
			for skip := 0; faultAt(t, steps, want, fsys.Fault{Kinds: kind, Name: "control.db", Skip: skip, Applied: applied, Short: 100}); skip += stride + skip/8 {
				struck++
			}
			if struck < least/stride {
				t.Errorf("%s failed %d times only", kind, struck)
			}
		}
	}
}

// faultAt runs the workload with one fault and reports whether it struck.
func faultAt(t *testing.T, steps []step, want []control.State, fault fsys.Fault) bool {
	t.Helper()
	disk := mem.New()
	fs := fsys.NewFaulty(disk)
	hits := fs.Add(fault)
	s, err := sqlite.Open(fs, "/control.db", options(12))
	if err != nil {
		if tiers.KindOf(err) != tiers.StorageFailed {
			t.Fatalf("%+v: Open: %v", fault, err)
		}
		crash{acked: -1, fs: disk.SyncedCopy(), kind: fmt.Sprint(fault)}.check(t, want)
		return true
	}
	acked, failed := 0, error(nil)
	for _, f := range steps {
		err := f(s)
		switch {
		case failed == nil && err == nil:
			acked++
		case failed == nil:
			failed = err
		case err == nil:
			t.Fatalf("%+v: acknowledged after %v", fault, failed)
		}
		if err != nil && tiers.KindOf(err) != tiers.StorageFailed {
			t.Fatalf("%+v: %v", fault, err)
		}
	}
	if failed != nil {
		if _, err := s.Topics(t.Context()); tiers.KindOf(err) != tiers.StorageFailed {
			t.Fatalf("%+v: read after %v: %v", fault, failed, err)
		}
	}
	crash{acked: acked, fs: disk.SyncedCopy(), kind: fmt.Sprint(fault)}.check(t, want)
	_ = s.Close() // It may report what failed.
	crash{acked: acked, fs: disk.KillCopy(), kind: fmt.Sprint(fault)}.check(t, want)
	return hits() > 0
}

// TestDiskFull fills the disk: mutations are refused, nothing is lost, and once
// there is room the store goes on.
func TestDiskFull(t *testing.T) {
	fs := mem.New()
	s, err := sqlite.Open(fs, "/control.db", options(12))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx := t.Context()
	ses, err := s.OpenSession(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	create := func(i int) error {
		_, cerr := s.CreateTopic(ctx, ses, control.NewTopic{Name: fmt.Sprint("t", i), Partitions: 100})
		return cerr
	}
	for i := range 5 {
		if err = create(i); err != nil {
			t.Fatal(err)
		}
	}
	st, err := fs.Stat("/control.db")
	if err != nil {
		t.Fatal(err)
	}
	wal, err := fs.Stat("/control.db-wal")
	if err != nil {
		t.Fatal(err)
	}
	fs.SetCapacity(st.Size() + wal.Size() + 20_000)
	n := 5
	for ; err == nil; n++ {
		err = create(n)
	}
	if tiers.KindOf(err) != tiers.StorageFailed {
		t.Fatalf("a full disk: %v", err)
	}
	if !strings.Contains(err.Error(), "free space") {
		t.Fatalf("the error does not say what to do: %v", err)
	}
	before := dump(t, s)
	if len(before.Topics) != n-1 {
		t.Fatalf("%d topics after %d were acknowledged", len(before.Topics), n-1)
	}
	fs.SetCapacity(0)
	if err := create(n); err != nil {
		t.Fatalf("after there was room: %v", err)
	}
	if got := dump(t, s); len(got.Topics) != n || got.Rev != control.Rev(n) {
		t.Fatalf("%d topics, revision %d", len(got.Topics), got.Rev)
	}
}

// badDisk fails every fsync of the database itself, not of its log.
type badDisk struct {
	fsys.FS
	bad bool
}

type badFile struct {
	fsys.File
	disk *badDisk
}

func (d *badDisk) OpenFile(name string, flag int, perm fs.FileMode) (fsys.File, error) {
	f, err := d.FS.OpenFile(name, flag, perm)
	if err == nil && name == "/control.db" {
		f = badFile{f, d}
	}
	return f, err
}

func (f badFile) SyncData() error {
	if f.disk.bad {
		return io.ErrUnexpectedEOF
	}
	return f.File.SyncData()
}

// TestFsyncOfCheckpointFails shows that the store ends when a checkpoint cannot
// sync the database, although SQLite reports the commit before it as done: the
// kernel may have dropped the pages that it could not write.
func TestFsyncOfCheckpointFails(t *testing.T) {
	disk := &badDisk{FS: mem.New()}
	s, err := sqlite.Open(disk, "/control.db", options(12))
	if err != nil {
		t.Fatal(err)
	}
	disk.bad = true
	failed := false
	for i, f := range workload(t) {
		err := f(s)
		if err != nil && tiers.KindOf(err) != tiers.StorageFailed || err == nil && failed {
			t.Fatalf("step %d: %v", i, err)
		}
		failed = failed || err != nil
	}
	if !failed {
		t.Fatal("no checkpoint failed")
	}
	_ = s.Close() // It cannot checkpoint either.
}

// TestReport119LogStaysSmall commits 24 MB while snapshots are read all the time.
func TestReport119LogStaysSmall(t *testing.T) {
	fs := mem.New()
	s, err := sqlite.Open(fs, "/control.db", options(0))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ses, err := s.OpenSession(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	topic, err := s.CreateTopic(t.Context(), ses, control.NewTopic{Name: "t", Partitions: 1})
	if err != nil {
		t.Fatal(err)
	}
	stop, dumps := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		for ; ; n++ {
			select {
			case <-stop:
				dumps <- n
				return
			default:
			}
			if _, derr := s.Dump(t.Context()); derr != nil {
				t.Error(derr)
			}
		}
	}()
	large := int64(0)
	for i := range 600 {
		c := control.OffsetCommit{
			Group: fmt.Sprint("g", i%50), Partition: tiers.PartitionID{Topic: topic.ID}, Gen: 1, Offset: tiers.Offset(i),
			Metadata: strings.Repeat("m", 40_000),
		}
		if err = s.CommitOffsets(t.Context(), ses, []control.OffsetCommit{c}); err != nil {
			t.Fatal(err)
		}
		st, serr := fs.Stat("/control.db-wal")
		if serr != nil {
			t.Fatal(serr)
		}
		large = max(large, st.Size())
	}
	close(stop)
	if n := <-dumps; n == 0 {
		t.Error("no snapshot was read")
	}
	if large > 8<<20 {
		t.Errorf("the log grew to %d bytes", large)
	}
}

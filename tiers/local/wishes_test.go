package local

import (
	"errors"
	"path"
	"runtime"
	"syscall"
	"testing"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/fsys/mem"
)

// raisable are logs on one disk, each with a few records.
func raisable(t *testing.T, n *node, count int32) (logs []*Log) {
	t.Helper()
	n.open()
	for i := range count {
		l := n.log
		if i > 0 {
			m := *n
			m.index = i
			var err error
			l, _, err = Open(m.options())
			must(t, err)
		}
		add(t, l, 1, 4)
		must(t, l.Sync())
		logs = append(logs, l)
	}
	must(t, n.disk.Checkpoint())
	return logs
}

// counted is a fault that only counts the times that a file is replaced.
func counted(name string) fsys.Fault {
	hold := make(chan struct{})
	close(hold)
	return fsys.Fault{Kinds: fsys.OpRename, Name: name, Sticky: true, Hold: hold}
}

// TestRaisesShareAWrite: those that come while one is being written take the next
// one together, of the one file that changes, and none is true before it is there.
func TestRaisesShareAWrite(t *testing.T) {
	for name, broken := range map[string]error{"all is well": nil, "the second write fails": syscall.EIO} {
		faulty := fsys.NewFaulty(mem.New())
		n := newNode(t, faulty)
		logs := raisable(t, n, 20)
		hold, reached := make(chan struct{}), make(chan fsys.Op, 1)
		faulty.Add(fsys.Fault{Kinds: fsys.OpRename, Name: logStartFile, Hold: hold, Reached: reached})
		results := make(chan error, len(logs))
		go func() { results <- logs[0].RaiseLogStart(2) }()
		<-reached
		second := counted(logStartFile)
		if broken != nil {
			second.Hold, second.Err = nil, broken
		}
		writes, others := faulty.Add(second), faulty.Add(counted(recoveryPointFile))
		for _, l := range logs[1:] {
			go func() { results <- l.RaiseLogStart(2) }()
		}
		for waiting := 0; waiting < len(logs)-1; runtime.Gosched() {
			n.disk.wishes.mu.Lock()
			waiting = len(n.disk.wishes.raises)
			n.disk.wishes.mu.Unlock()
		}
		for _, l := range logs {
			if l.LogStart() != 0 {
				t.Fatalf("%s: raised before it was written", name)
			}
		}
		close(hold)
		failures := 0
		for range logs {
			if err := <-results; errors.Is(err, syscall.EIO) {
				failures++
			} else {
				must(t, err)
			}
		}
		if writes() != 1 || others() != 0 {
			t.Errorf("%s: %d writes for 19 raises, %d of a file that does not change", name, writes(), others())
		}
		want := tiers.Offset(2)
		if broken != nil {
			want = 0
		}
		if failures > 0 != (broken != nil) || failures > 0 && failures != len(logs)-1 {
			t.Errorf("%s: %d failures", name, failures)
		}
		for i, l := range logs[1:] {
			if l.LogStart() != want || line(t, faulty, logStartFile, partitionID(int32(i+1))) != want {
				t.Errorf("%s: log %d starts at %d, want %d", name, i+1, l.LogStart(), want)
			}
		}
		if logs[0].LogStart() != 2 || line(t, faulty, logStartFile, partitionID(0)) != 2 {
			t.Errorf("%s: the first one was lost", name)
		}
		faulty.Clear()
	}
}

// TestForgetMany takes one write of each file, and none of them comes back.
func TestForgetMany(t *testing.T) {
	faulty := fsys.NewFaulty(mem.New())
	n := newNode(t, faulty)
	logs := raisable(t, n, 5)
	var ids []tiers.PartitionID
	for i := range int32(4) {
		ids = append(ids, partitionID(i))
	}
	writes := faulty.Add(counted("-checkpoint"))
	must(t, n.disk.Forget(ids...))
	if writes() > 3 {
		t.Errorf("%d files were written", writes())
	}
	must(t, logs[0].RaiseLogStart(1))
	must(t, logs[4].RaiseLogStart(3))
	must(t, n.disk.Checkpoint())
	for _, name := range []string{recoveryPointFile, logStartFile, replicationFile} {
		for _, id := range ids {
			if got := line(t, faulty, name, id); got != tiers.NoOffset {
				t.Errorf("%s: %s is back with %d", name, id, got)
			}
		}
	}
	if got := line(t, faulty, logStartFile, partitionID(4)); got != 3 {
		t.Errorf("the other one is lost: %d", got)
	}
}

// TestFullDiskRaise: a trim makes room on a disk that has none, since the reserve
// is for that; it is made again afterwards, and without one the trim says why.
func TestFullDiskRaise(t *testing.T) {
	disk := mem.New()
	n := newNode(t, disk)
	logs := raisable(t, n, 2)
	n.disk.KeepFree(64 << 20)
	must(t, logs[0].Roll())
	reserve := path.Join(root, reserveFile)
	if st, err := disk.Stat(reserve); err != nil || st.Size() != reserveSize {
		t.Fatal("there is no reserve", err)
	}
	free, _, err := disk.Free(root)
	must(t, err)
	disk.SetCapacity(1<<40 - free) // not a byte
	must(t, logs[0].RaiseLogStart(4))
	must(t, logs[0].DropBefore(4))
	if _, err := disk.Stat(reserve); !isNotExist(err) {
		t.Error("the reserve was not needed", err)
	}
	wantFull(t, "append", put(logs[0], build(t, plain(1), 4, 1)))
	free, _, err = disk.Free(root)
	must(t, err)
	hog := create(t, disk, "/hog", free)
	if err := logs[1].RaiseLogStart(2); !errors.Is(err, syscall.ENOSPC) || logs[1].LogStart() != 0 {
		t.Errorf("without a reserve: %v, starts at %d", err, logs[1].LogStart())
	}
	must(t, hog.Truncate(0))
	disk.SetCapacity(1 << 40)
	for range maxProbePause + 2 {
		n.disk.CheckRoom()
	}
	if st, err := disk.Stat(reserve); err != nil || st.Size() != reserveSize {
		t.Error("there is room and no reserve", err)
	}
	must(t, logs[1].RaiseLogStart(2))
	add(t, logs[0], 1, 1)
}

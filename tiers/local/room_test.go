package local

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/fsys/mem"
)

// watched is a node whose log can be read.
func watched(t *testing.T, fs fsys.FS) (*node, *bytes.Buffer) {
	t.Helper()
	n, said := newNode(t, fs), &bytes.Buffer{}
	n.out = hclog.New(&hclog.LoggerOptions{Output: said, Level: hclog.Info})
	return n, said
}

func wantFull(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, ErrFull) || tiers.KindOf(err) != tiers.StorageFailed {
		t.Errorf("%s: %v", what, err)
	}
}

// TestAppendsStopBeforeTheDiskIsFull: what must go on has room left, and appends
// go on by themselves, once, not to and fro.
func TestAppendsStopBeforeTheDiskIsFull(t *testing.T) {
	disk := mem.New()
	n, said := watched(t, disk)
	l := n.open()
	other := n.second()
	kept := add(t, l, 1, 2)
	must(t, l.Sync())
	free, _, err := disk.Free(root)
	must(t, err)
	used := int64(1<<40) - free
	const floor = 10_000
	disk.SetCapacity(used + 20*floor)
	n.disk.KeepFree(floor)
	if r := n.disk.Room(); r.Full != nil || r.Floor != floor || r.Free != 20*floor {
		t.Fatalf("%+v", r)
	}
	disk.SetCapacity(19 * floor)
	n.disk.CheckRoom()
	if r := n.disk.Room(); r.Floor != 19*floor/20 {
		t.Errorf("the floor is more than a twentieth of the disk: %+v", r)
	}
	disk.SetCapacity(used + 20*floor)

	hog := create(t, disk, "/hog", 19*floor+1)
	n.disk.CheckRoom()
	for _, log := range []*Log{l, other} {
		wantFull(t, "append", put(log, build(t, plain(1), log.LogEnd(), 1)))
		if log.Broken() != nil {
			t.Error("a full disk broke the log")
		}
	}
	must(t, l.Roll()) // what frees room goes on
	must(t, n.disk.Checkpoint())
	must(t, l.DropBefore(l.LogEnd()))
	must(t, hog.Truncate(18*floor+9_000)) // a little more than the floor: not enough
	n.disk.CheckRoom()
	wantFull(t, "append at the border", put(l, build(t, plain(1), l.LogEnd(), 1)))
	must(t, hog.Truncate(10*floor))
	n.disk.CheckRoom()
	add(t, l, 1, 3)
	must(t, l.Sync())
	if l.LogEnd() != 5 || len(kept) == 0 {
		t.Error(l.LogEnd())
	}
	if strings.Count(said.String(), "takes no records") != 1 || strings.Count(said.String(), "has room again") != 1 {
		t.Errorf("the log says:\n%s", said)
	}
}

func create(t *testing.T, fs fsys.FS, name string, size int64) fsys.File {
	t.Helper()
	f, err := fs.OpenFile(name, openCreate, filePerm)
	must(t, err)
	_, err = f.Write(make([]byte, size))
	must(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// TestReport039NoSpaceThatDoesNotShow: a quota refuses a write although there is
// free space. Nothing is acknowledged, nothing is lost, and a probe with growing
// pauses finds out when it is over.
func TestReport039NoSpaceThatDoesNotShow(t *testing.T) {
	for _, no := range []error{syscall.ENOSPC, syscall.EDQUOT} {
		faulty := fsys.NewFaulty(mem.New())
		n, said := watched(t, faulty)
		l := n.open()
		want := add(t, l, 1, 2)
		must(t, l.Sync())
		quota := fsys.Fault{Kinds: fsys.OpWrite, Err: no, Sticky: true, Short: 50}
		hits := faulty.Add(quota)
		for range 5 {
			if err := put(l, build(t, plain(1), 2, 2)); tiers.KindOf(err) != tiers.StorageFailed || l.LogEnd() != 2 || l.Broken() != nil {
				t.Fatalf("%v, end %d, broken %v", err, l.LogEnd(), l.Broken())
			}
		}
		if hits() != 1 {
			t.Errorf("%d writes were tried on a full disk", hits())
		}
		for range 100 {
			n.disk.CheckRoom()
		}
		if hits() < 4 || hits() > 10 {
			t.Errorf("%d probes in 100 looks", hits()-1)
		}
		wantFull(t, "append", put(l, build(t, plain(1), 2, 2)))
		faulty.Clear()
		looks := 0
		for ; n.disk.Full() != nil && looks < 100; looks++ {
			n.disk.CheckRoom()
		}
		if looks > maxProbePause+1 {
			t.Errorf("%d looks until it went on", looks)
		}
		want = append(want, add(t, l, 1, 2)...)
		if !bytes.Equal(content(t, l), want) || strings.Count(said.String(), "[ERROR]") != 1 {
			t.Errorf("%s", said)
		}
	}
}

// TestStartOnAFullDisk: the reserve is given up to start, and made again.
func TestStartOnAFullDisk(t *testing.T) {
	disk := mem.New()
	n := newNode(t, disk)
	l := n.open()
	n.disk.KeepFree(64 << 20)
	want := add(t, l, 1, 2)
	must(t, l.Sync())
	n.close()
	st, err := disk.Stat(path.Join(root, reserveFile))
	if err != nil || st.Size() != reserveSize {
		t.Fatal("there is no reserve", err)
	}
	free, _, err := disk.Free(root)
	must(t, err)
	disk.SetCapacity(1<<40 - free + 100)

	l = n.open()
	if _, err := disk.Stat(path.Join(root, reserveFile)); !isNotExist(err) {
		t.Errorf("the reserve is still there: %v", err)
	}
	n.disk.KeepFree(64 << 20)
	if r := n.disk.Room(); r.Full != nil {
		t.Logf("a disk of %d bytes has a floor of %d", r.Total, r.Floor)
	}
	if !bytes.Equal(content(t, l), want) {
		t.Error("records are gone")
	}
	must(t, l.Assign(7, l.LogEnd())) // there is room for what a start writes
	disk.SetCapacity(0)
	n.disk.CheckRoom()
	n.disk.CheckRoom()
	if st, err := disk.Stat(path.Join(root, reserveFile)); err != nil || st.Size() != reserveSize {
		t.Error("the reserve was not made again", err)
	}
	n.close()
}

// TestMendDisk: a disk that could not lower its recovery points comes back, with
// the values that hold then, and nothing was cut.
func TestMendDisk(t *testing.T) {
	disk := mem.New()
	faulty := fsys.NewFaulty(disk)
	n, said := watched(t, faulty)
	l := n.open()
	other := n.second()
	want := add(t, l, 1, 4)
	want = append(want, add(t, l, 1, 4)...)
	must(t, l.Sync())
	must(t, n.disk.Checkpoint())
	must(t, n.disk.Mend()) // nothing to mend
	faulty.Add(fsys.Fault{Kinds: fsys.OpWrite, Name: recoveryPointFile, Err: syscall.EIO})
	if l.TruncateTo(4) == nil || n.disk.Failed() == nil {
		t.Fatal("the disk did not go offline")
	}
	faulty.Add(fsys.Fault{Kinds: fsys.OpAnySync, Name: probeFile, Err: syscall.EIO})
	if n.disk.Mend() == nil || n.disk.Failed() == nil {
		t.Fatal("a disk whose probe failed came back")
	}
	faulty.Add(fsys.Fault{Kinds: fsys.OpRename, Name: logStartFile, Err: syscall.EIO})
	faulty.Add(fsys.Fault{Kinds: fsys.OpRename, Name: recoveryPointFile, Err: syscall.EIO})
	if n.disk.Mend() == nil || n.disk.Failed() == nil || put(other, build(t, plain(1), 0, 1)) == nil {
		t.Fatal("a disk whose checkpoints cannot be written came back")
	}
	faulty.Clear()
	must(t, n.disk.Mend())
	if n.disk.Failed() != nil || !bytes.Equal(content(t, l), want) || !strings.Contains(said.String(), "the disk is back") {
		t.Errorf("%v\n%s", n.disk.Failed(), said)
	}
	if p := point(t, disk.SyncedCopy(), partitionID(0)); p != 8 {
		t.Errorf("recovery point %d", p)
	}
	must(t, l.TruncateTo(4))
	add(t, other, 1, 1)
	must(t, other.Close())
	n.close()
}

// TestCheckpointIsDueWhenASegmentCloses, once for many.
func TestCheckpointIsDueWhenASegmentCloses(t *testing.T) {
	n := newNode(t, mem.New())
	l := n.open()
	select {
	case <-n.disk.Due():
		t.Fatal("nothing was closed")
	default:
	}
	for range 3 {
		add(t, l, 1, 1)
		must(t, l.Roll())
	}
	select {
	case <-n.disk.Due():
	default:
		t.Fatal("nobody asked for a checkpoint")
	}
	must(t, n.disk.Checkpoint())
	select {
	case <-n.disk.Due():
		t.Error("due twice")
	default:
	}
	n.losePower()
	if n.rec.Scanned != 1 {
		t.Errorf("%d segments were scanned, want the active one", n.rec.Scanned)
	}
	flipByte(t, n.fs, n.file(0, logSuffix), 70)
	l = n.crash()
	if l.LogEnd() != 3 || n.rec.TruncatedAt != tiers.NoOffset {
		t.Errorf("damage in a closed segment cut the log: %+v, end %d", n.rec, l.LogEnd())
	}
}

// TestReport039OpenedAgainAfterAFailedSync: what was acknowledged is on disk
// afterwards, really: after a fsync that failed Linux calls the pages clean, so
// they can be read and are never written unless somebody writes them again. What
// was not acknowledged is gone.
func TestReport039OpenedAgainAfterAFailedSync(t *testing.T) {
	for _, acked := range []tiers.Offset{2, 4, 6} {
		t.Run(fmt.Sprint(acked), func(t *testing.T) {
			disk := mem.New()
			faulty := fsys.NewFaulty(disk)
			n := newNode(t, faulty)
			l := n.open()
			want := add(t, l, 1, 2)
			must(t, l.Sync())
			want = append(want, add(t, l, 1, 2)...)
			want = append(want, add(t, l, 1, 2)...)
			l.SetHighWatermark(acked)
			faulty.Add(fsys.Fault{Kinds: fsys.OpSyncData, Err: syscall.EIO})
			if l.Sync() == nil || l.Broken() == nil {
				t.Fatal("the sync went well")
			}
			_ = l.Close() // it tells of the same error
			before := len(faulty.Ops(fsys.OpWrite))
			var err error
			l, n.rec, err = Open(n.options())
			must(t, err)
			size := len(want) / 3
			want = want[:size*int(acked)/2]
			if l.LogEnd() != acked || !bytes.Equal(content(t, l), want) {
				t.Errorf("end %d, want %d", l.LogEnd(), acked)
			}
			again := 0
			for _, op := range faulty.Ops(fsys.OpWrite)[before:] {
				if strings.HasSuffix(op.Name, logSuffix) {
					if op.Off > int64(size) {
						t.Errorf("written again from %d on: %d bytes were not synced", op.Off, len(want)-size)
					}
					again += op.Len
				}
			}
			if again < len(want)-size {
				t.Errorf("%d bytes were written again, %d were acknowledged and not synced", again, len(want)-size)
			}
			want = append(want, add(t, l, 1, 1)...)
			must(t, l.Sync())
			must(t, l.Close())
			must(t, n.disk.Close())
			n.fs = disk.SyncedCopy()
			if l := n.open(); !bytes.Equal(content(t, l), want) {
				t.Error("not all of it is on disk")
			}
		})
	}
}

// TestDoubtEndsWithAGoodOpen: only the first open after the failure cuts.
func TestDoubtEndsWithAGoodOpen(t *testing.T) {
	faulty := fsys.NewFaulty(mem.New())
	n := newNode(t, faulty)
	l := n.open()
	add(t, l, 1, 2)
	l.SetHighWatermark(2)
	add(t, l, 1, 2)
	faulty.Add(fsys.Fault{Kinds: fsys.OpSyncData, Err: syscall.EIO})
	_ = l.Sync()
	_ = l.Close()
	faulty.Add(fsys.Fault{Kinds: fsys.OpOpen, Name: logSuffix, Err: syscall.EIO})
	if _, _, err := Open(n.options()); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	l, _, err := Open(n.options())
	must(t, err)
	if l.LogEnd() != 2 {
		t.Fatalf("end %d: the failed open made the doubt forgotten, or lost what was acknowledged", l.LogEnd())
	}
	must(t, l.Sync())
	add(t, l, 1, 2) // not acknowledged: the high watermark stays
	must(t, l.Close())
	l, _, err = Open(n.options())
	must(t, err)
	if l.LogEnd() != 4 {
		t.Errorf("end %d after a clean close", l.LogEnd())
	}
	n.log = l
	n.close()
}

// TestFullIsReadWithoutALock while the disk changes its mind: of use under the race
// detector.
func TestFullIsReadWithoutALock(t *testing.T) {
	n := newNode(t, mem.New())
	n.open()
	n.disk.KeepFree(1000)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 2000 {
				if err := n.disk.Full(); err != nil && !errors.Is(err, ErrFull) {
					t.Error(err)
				}
			}
		})
	}
	for range 500 {
		n.disk.noRoom(syscall.ENOSPC)
		n.disk.CheckRoom()
	}
	wg.Wait()
	n.close()
}

package local

import (
	"bytes"
	"errors"
	"path"
	"syscall"
	"testing"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/fsys/mem"
)

// Report 117: the file is the only one that knows the epochs of what is in the
// bucket alone. No crash while another epoch begins may cost them.
func TestReport117EpochsOfTheBucketSurviveACrash(t *testing.T) {
	disk := mem.New()
	n := newNode(t, disk)
	n.empty = Start{At: 40, Lineage: tiers.Lineage{{Epoch: 1, Start: 0}, {Epoch: 2, Start: 20}}}
	l := n.open()
	add(t, l, 2, 3)
	must(t, l.Sync())
	must(t, n.disk.Checkpoint())
	var left []*mem.FS
	disk.OnOp(func(op fsys.Op) {
		left = append(left, disk.SyncedCopy(), disk.KillCopy())
		for seed := range uint64(8) {
			left = append(left, disk.CrashCopy(uint64(op.Seq)*10+seed))
		}
	})
	add(t, l, 3, 3)
	must(t, l.Sync())
	disk.OnOp(nil)
	if len(left) < 40 {
		t.Fatalf("only %d crashes", len(left))
	}
	n.empty = Start{}
	for i, fs := range left {
		n.fs = fs
		l = n.open()
		if e := l.Lineage().EpochFor(0); e != 1 || l.Lineage().EpochFor(20) != 2 {
			t.Fatalf("crash %d: lineage %s", i, l.Lineage())
		}
	}
}

// An append of a new epoch whose entry cannot be written leaves no bytes that a
// crash could bring back.
func TestFailedEpochLeavesNoRecords(t *testing.T) {
	disk := mem.New()
	faulty := fsys.NewFaulty(disk)
	n := newNode(t, faulty)
	l := n.open()
	want := add(t, l, 1, 2)
	must(t, l.Sync())
	faulty.Add(fsys.Fault{Kinds: fsys.OpMutation, Name: epochFile, Err: syscall.EIO})
	if err := put(l, build(t, plain(2), 2, 2)); tiers.KindOf(err) != tiers.StorageFailed || l.LogEnd() != 2 {
		t.Fatalf("%v, end %d", err, l.LogEnd())
	}
	n.fs = disk.KillCopy()
	if l = n.open(); l.LogEnd() != 2 || !bytes.Equal(content(t, l), want) {
		t.Errorf("end %d, lineage %s", l.LogEnd(), l.Lineage())
	}
}

// C6: a log start that could not be written is not true.
func TestC6LogStartThatIsNotWritten(t *testing.T) {
	faulty := fsys.NewFaulty(mem.New())
	n := newNode(t, faulty)
	l := n.open()
	add(t, l, 1, 4)
	must(t, l.Sync())
	faulty.Add(fsys.Fault{Kinds: fsys.OpMutation, Name: logStartFile, Err: syscall.EIO})
	if err := l.RaiseLogStart(3); !errors.Is(err, syscall.EIO) || l.LogStart() != 0 || l.Lineage().String() != "{1:0}" {
		t.Errorf("%v: log start %d, lineage %s", err, l.LogStart(), l.Lineage())
	}
	faulty.Clear()
	must(t, l.RaiseLogStart(3))
	if l.LogStart() != 3 {
		t.Errorf("log start %d", l.LogStart())
	}
	n.close()
}

// A marker is good for one start: a log that broke since is not in the next one,
// though it ends where it did.
func TestCleanMarkerIsUsedUp(t *testing.T) {
	disk := mem.New()
	n := newNode(t, disk)
	add(t, n.open(), 1, 1)
	add(t, n.log, 1, 2)
	n.close()
	faulty := fsys.NewFaulty(disk)
	n.fs = faulty
	l := n.open()
	must(t, l.TruncateTo(1))
	faulty.Add(fsys.Fault{Kinds: fsys.OpSyncData, Err: syscall.EIO})
	add(t, l, 1, 2)
	if l.Close() == nil || l.LogEnd() != 3 {
		t.Fatalf("the log closed, or ends at %d", l.LogEnd())
	}
	must(t, n.disk.Close())
	b, err := fsys.ReadFile(disk, path.Join(root, cleanFile))
	must(t, err)
	if clean, err := decodeOffsets(b); err != nil || len(clean) != 0 {
		t.Errorf("marked clean: %v, %v", clean, err)
	}
	n.fs = disk
	if n.open(); n.rec.Clean || n.rec.Scanned != 1 {
		t.Errorf("%+v", n.rec)
	}
	n.close()
}

// An epoch that owns no record is not in the lineage of the next start (B5).
func TestEpochWithoutRecordsEndsWithTheStart(t *testing.T) {
	n := newNode(t, mem.New())
	l := n.open()
	add(t, l, 1, 3)
	must(t, l.Assign(2, 3))
	n.close()
	if l = n.open(); !n.rec.Clean || l.Lineage().String() != "{1:0}" {
		t.Errorf("lineage %s, %+v", l.Lineage(), n.rec)
	}
	n.close()
}

// Report 041, R1: a hole at the end of a segment belongs to it, and a read in it
// goes on with the next one.
func TestReport041HoleAtTheEndOfASegment(t *testing.T) {
	l := newNode(t, mem.New()).open()
	must(t, put(l, build(t, plain(1), 0, 5)))
	l.end = 12 // What compaction leaves where it removes the last batches.
	must(t, l.Roll())
	must(t, put(l, build(t, plain(1), 12, 2)))
	if s := l.Segments(); len(s) != 2 || s[0].Base != 0 || s[0].Next != 12 || s[1].Base != 12 {
		t.Errorf("%+v", s)
	}
	s := l.Snapshot()
	defer s.Release()
	for _, from := range []tiers.Offset{5, 11} {
		if b, err := s.Read(from, l.LogEnd(), 1, true, nil); err != nil || len(b) == 0 || headers(b)[0].BaseOffset != 12 {
			t.Errorf("read %d: %d bytes, %v", from, len(b), err)
		}
	}
}

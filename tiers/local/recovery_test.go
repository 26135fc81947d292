package local

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"strings"
	"syscall"
	"testing"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/fsys/mem"
)

// flipByte damages one byte of a file; a negative position counts from the end.
func flipByte(tb testing.TB, fs fsys.FS, name string, at int) {
	tb.Helper()
	b, err := fsys.ReadFile(fs, name)
	must(tb, err)
	if at < 0 {
		at += len(b)
	}
	b[at] ^= 0x40
	must(tb, fsys.WriteFileAtomic(fs, name, b, 0o644))
}

// TV-C3: recovery begins with the segment that holds the checkpoint. A damaged
// batch above it ends the log, one below it is found when it is read.
func TestTVC3(t *testing.T) {
	build := func(checkpoint bool) *node {
		n := newNode(t, mem.New())
		l := n.open()
		add(t, l, 1, 1)
		must(t, l.Roll())
		add(t, l, 1, 9)
		must(t, l.Sync())
		if checkpoint {
			must(t, n.disk.Checkpoint())
		}
		return n
	}
	n := build(true)
	n.losePower()
	if n.rec.Scanned != 1 {
		t.Errorf("checkpoint 10: scanned %d segments, want the last", n.rec.Scanned)
	}
	n = build(false)
	n.losePower()
	if n.rec.Scanned != 2 {
		t.Errorf("no checkpoint: scanned %d segments, want both", n.rec.Scanned)
	}

	n = build(false)
	flipByte(t, n.fs, n.file(0, logSuffix), 70)
	l := n.crash()
	if l.LogEnd() != 0 || len(l.segs) != 1 || n.rec.TruncatedAt != 0 || n.rec.LostSegments != 1 {
		t.Errorf("damage above the checkpoint: end %d, %d segments, %+v", l.LogEnd(), len(l.segs), n.rec)
	}
	if _, err := n.fs.Stat(n.file(1, logSuffix)); !isNotExist(err) {
		t.Errorf("the segment behind the damage: %v", err)
	}

	n = build(true)
	flipByte(t, n.fs, n.file(0, logSuffix), 70)
	l = n.crash()
	s := l.Snapshot()
	defer s.Release()
	if _, err := s.Read(0, l.LogEnd(), 1<<20, true, nil); l.LogEnd() != 10 || tiers.KindOf(err) != tiers.CorruptMessage {
		t.Errorf("damage below the checkpoint: end %d, read: %v", l.LogEnd(), err)
	}
	if b, err := s.Read(1, l.LogEnd(), 1<<20, true, nil); err != nil || len(b) == 0 {
		t.Errorf("behind the damage: %d bytes, %v", len(b), err)
	}
}

// Damage below the recovery point in a segment that is scanned stays where it
// is: batches around it are read, the damaged one is an error, nothing is given
// its offsets again.
func TestDamageBelowRecoveryPoint(t *testing.T) {
	cases := []struct {
		name    string
		at      int // in the batch
		batch   int
		from    tiers.Offset // of the damage
		to, end tiers.Offset
	}{
		{"records of the first batch", 70, 0, 0, 2, 8},
		{"records in the middle", 70, 1, 2, 4, 8},
		{"length in the middle", 8, 1, 2, 4, 8},
		{"magic in the middle", 16, 2, 4, 6, 8},
		{"base offset in the middle", 0, 2, 4, 6, 8},
		{"records of the last batch", 70, 3, 6, 8, 8},
		{"length of the last batch", 8, 3, 6, 8, 8},
	}
	for _, c := range cases {
		n := newNode(t, mem.New())
		l := n.open()
		size := 0
		for range 4 {
			size = len(add(t, l, 1, 2))
		}
		must(t, l.Sync())
		must(t, n.disk.Checkpoint())
		flipByte(t, n.fs, n.file(0, logSuffix), c.batch*size+c.at)
		for i := range 2 { // what recovery leaves is stable
			l = n.crash()
			if i == 0 && (len(n.rec.Damage) != 1 || n.rec.Damage[0].Offsets != (Range{c.from, c.to})) || n.rec.TruncatedAt != tiers.NoOffset || l.LogEnd() != c.end {
				t.Errorf("%s: %+v, end %d", c.name, n.rec, l.LogEnd())
			}
			s := l.Snapshot()
			for o := range c.end {
				b, err := s.Read(o, l.LogEnd(), 1, true, nil)
				damaged := o >= c.from && o < c.to
				if damaged && tiers.KindOf(err) != tiers.CorruptMessage || !damaged && (err != nil || headers(b)[0].BaseOffset > o || headers(b)[0].Last() < o) {
					t.Errorf("%s: read %d: %d bytes, %v", c.name, o, len(b), err)
				}
			}
			s.Release()
			must(t, l.Sync())
			must(t, n.disk.Checkpoint())
			add(t, l, 1, 2)
			must(t, l.TruncateTo(c.end))
		}
		n.close()
	}
}

// Report 027: what recovery found is synced before it is served, and the
// checkpoint moves last.
func TestReport027RecoveredIsSyncedFirst(t *testing.T) {
	n := newNode(t, mem.New())
	l := n.open()
	add(t, l, 1, 3)
	must(t, l.Roll())
	want := content(t, l)
	want = append(want, add(t, l, 1, 3)...) // never synced

	faulty := fsys.NewFaulty(n.fs.(*mem.FS).KillCopy())
	n.fs = faulty
	l = n.open()
	if l.LogEnd() != 6 || !bytes.Equal(content(t, l), want) {
		t.Fatalf("end %d", l.LogEnd())
	}
	must(t, n.disk.Checkpoint())
	synced, moved := map[string]int{}, 0
	for _, op := range faulty.Ops(fsys.OpAnySync | fsys.OpRename) {
		if op.Kind != fsys.OpRename {
			synced[path.Base(op.Name)] = op.Seq
		} else if path.Base(op.NewName) == recoveryPointFile {
			moved = op.Seq
		}
	}
	for _, base := range []tiers.Offset{0, 3} {
		if at := synced[fileName(base, logSuffix)]; at == 0 || at > moved {
			t.Errorf("segment %d was synced by operation %d, the checkpoint moved by %d", base, at, moved)
		}
	}
	// The power fails now: everything that was served is there.
	n.fs = faulty.Under().(*mem.FS).SyncedCopy()
	if l = n.open(); !bytes.Equal(content(t, l), want) {
		t.Errorf("after the power loss the log ends at %d", l.LogEnd())
	}
}

// Report 039: after a failed fsync nothing is acknowledged until the log is
// opened again; a full disk fails appends and breaks nothing.
func TestReport039FailedSync(t *testing.T) {
	for _, applied := range []bool{false, true} {
		faulty := fsys.NewFaulty(mem.New())
		n := newNode(t, faulty)
		l := n.open()
		want := add(t, l, 1, 3)
		must(t, l.Sync())
		faulty.Add(fsys.Fault{Kinds: fsys.OpSyncData, Err: syscall.EIO, Applied: applied})
		add(t, l, 1, 3)
		if err := l.Sync(); tiers.KindOf(err) != tiers.StorageFailed || !errors.Is(err, syscall.EIO) {
			t.Fatalf("sync: %v", err)
		}
		faulty.Clear()
		for i, err := range []error{l.Sync(), put(l, build(t, plain(1), l.LogEnd(), 1)), l.Roll(), l.TruncateTo(3), l.Restart(Start{}), l.RaiseLogStart(1), l.Close()} {
			if tiers.KindOf(err) != tiers.StorageFailed {
				t.Errorf("call %d after the failed sync: %v", i, err)
			}
		}
		if l.Flushed() != 3 || l.Broken() == nil {
			t.Errorf("flushed %d, broken %v", l.Flushed(), l.Broken())
		}
		must(t, n.disk.Close())
		n.fs = faulty.Under().(*mem.FS).SyncedCopy()
		l = n.open()
		if !bytes.HasPrefix(content(t, l), want) || n.rec.Clean {
			t.Errorf("acknowledged records are gone: end %d, %+v", l.LogEnd(), n.rec)
		}
		n.close()
	}
}

func TestReport039DiskFull(t *testing.T) {
	fs := mem.New()
	n := newNode(t, fs)
	l := n.open()
	want := add(t, l, 1, 3)
	fs.SetCapacity(4000)
	var err error
	for err == nil {
		b := build(t, plain(1), l.LogEnd(), 5)
		if err = put(l, b); err == nil {
			want = append(want, b...)
		}
	}
	if tiers.KindOf(err) != tiers.StorageFailed || !errors.Is(err, syscall.ENOSPC) || l.Broken() != nil {
		t.Fatalf("append to a full disk: %v; broken: %v", err, l.Broken())
	}
	must(t, l.Sync())
	fs.SetCapacity(0)
	n.disk.CheckRoom()
	want = append(want, add(t, l, 1, 1)...)
	must(t, l.Sync())
	if l = n.losePower(); !bytes.Equal(content(t, l), want) {
		t.Errorf("acknowledged and readable differ: end %d", l.LogEnd())
	}
}

// Report 039: a hole between segments is reported with its offsets.
func TestReport039HoleIsReported(t *testing.T) {
	n := newNode(t, mem.New())
	l := n.open()
	for range 3 {
		add(t, l, 1, 4)
		must(t, l.Roll())
	}
	must(t, n.fs.Remove(n.file(4, logSuffix)))
	l = n.crash()
	if len(n.rec.Holes) != 1 || n.rec.Holes[0] != (Range{4, 8}) || l.LogEnd() != 12 {
		t.Errorf("%+v, end %d", n.rec, l.LogEnd())
	}
}

// threeSegments is a log whose first two segments are below the recovery point.
func threeSegments(tb testing.TB) (*node, []byte) {
	tb.Helper()
	n := newNode(tb, mem.New())
	l := n.open()
	var all []byte
	for range 3 {
		for range 8 {
			all = append(all, add(tb, l, 1, 2)...)
		}
		if l.LogEnd() < 48 {
			must(tb, l.Roll())
		}
	}
	must(tb, l.Sync())
	must(tb, n.disk.Checkpoint())
	return n, all
}

// Report 116: an index that does not fit is made again; offsets and times are
// found as before.
func TestReport116DamagedIndex(t *testing.T) {
	for _, clean := range []bool{false, true} {
		for _, suffix := range []string{indexSuffix, timeSuffix, txnSuffix} {
			for _, how := range []string{"missing", "empty", "zeroed", "cut", "cut by an entry", "extended by zeros", "extended by garbage"} {
				name := fmt.Sprintf("%s %s, clean %t", suffix, how, clean)
				n, all := threeSegments(t)
				if clean {
					n.close()
				}
				for _, base := range []tiers.Offset{0, 32} { // a closed segment and the active one
					if base == 32 && !clean || suffix == txnSuffix {
						if !strings.HasPrefix(how, "extended") {
							continue
						}
						must(t, fsys.WriteFileAtomic(n.fs, n.file(base, suffix), nil, 0o644))
					}
					spoil(t, n.fs, n.file(base, suffix), how)
				}
				l := n.crash()
				if !bytes.Equal(content(t, l), all) {
					t.Errorf("%s: %d bytes of %d", name, len(content(t, l)), len(all))
				}
				checkIndexed(t, l, all, name)
				n.close()
				l = n.open()
				checkIndexed(t, l, all, name+", opened again")
				if !n.rec.Clean {
					t.Errorf("%s: opened again: %+v", name, n.rec)
				}
			}
		}
	}
}

// Indexes that are in order and say what is not so.
func TestReport116IndexThatLies(t *testing.T) {
	n, all := threeSegments(t)
	shift := func(base tiers.Offset) {
		b, err := fsys.ReadFile(n.fs, n.file(base, indexSuffix))
		must(t, err)
		e, err := decodeOffsetIndex(b, 1<<31)
		must(t, err)
		for i := range len(e) - 1 {
			e[i].pos = e[i+1].pos // each names the batch behind the right one
		}
		must(t, fsys.WriteFileAtomic(n.fs, n.file(base, indexSuffix), encodeOffsetIndex(e[:len(e)-1]), 0o644))
	}
	n.log.segs[0].index.close()
	shift(0)
	s := n.log.Snapshot()
	for o := range n.log.LogEnd() {
		if b, err := s.Read(o, n.log.LogEnd(), 1, true, nil); err != nil || headers(b)[0].BaseOffset > o || headers(b)[0].Last() < o {
			t.Errorf("read %d: %v", o, err)
		}
	}
	s.Release()

	n.crash()
	if n.rec.RebuiltIndexes != 1 {
		t.Errorf("offsets: %+v", n.rec)
	}
	must(t, n.disk.Checkpoint())
	for _, wrong := range []timeEntry{{1_700_000_099_999, 15}, {1_700_000_000_141, 14}} {
		b, err := fsys.ReadFile(n.fs, n.file(0, timeSuffix))
		must(t, err)
		b = wrong.append(b[:len(b)-timeEntrySize])
		must(t, fsys.WriteFileAtomic(n.fs, n.file(0, timeSuffix), b, 0o644))
		l := n.crash()
		if n.rec.RebuiltIndexes != 1 {
			t.Errorf("%+v: %+v", wrong, n.rec)
		}
		checkIndexed(t, l, all, "after the wrong time")
		must(t, n.disk.Checkpoint())
	}
}

// An index that was damaged while the log is open is passed over.
func TestDamagedIndexWhileOpen(t *testing.T) {
	for _, how := range []string{"missing", "empty", "zeroed", "cut", "extended by garbage"} {
		n, all := threeSegments(t)
		l := n.log
		for _, base := range []tiers.Offset{0, 16} {
			l.segs[l.current.floor(base)].index.close()
			spoil(t, n.fs, n.file(base, indexSuffix), how)
		}
		if !bytes.Equal(content(t, l), all) {
			t.Errorf("%s: the log cannot be read", how)
		}
		s := l.Snapshot()
		for o := range l.LogEnd() {
			if b, err := s.Read(o, l.LogEnd(), 1, true, nil); err != nil || headers(b)[0].Last() < o {
				t.Errorf("%s: read %d: %v", how, o, err)
			}
		}
		s.Release()
	}
}

// Report 117: a damaged epoch checkpoint is made again from the batches.
func TestReport117EpochCheckpoint(t *testing.T) {
	for _, how := range []string{"missing", "empty", "zeroed", "cut", "count"} {
		for _, clean := range []bool{false, true} {
			n := newNode(t, mem.New())
			l := n.open()
			for e := range tiers.LeaderEpoch(4) {
				add(t, l, e*2, 3)
				must(t, l.Roll())
			}
			add(t, l, 9, 2)
			must(t, l.Sync())
			must(t, n.disk.Checkpoint())
			want := l.Lineage().String()
			if clean {
				n.close()
			}
			name := path.Join(path.Dir(n.file(0, logSuffix)), epochFile)
			if how == "count" {
				b, err := fsys.ReadFile(n.fs, name)
				must(t, err)
				must(t, fsys.WriteFileAtomic(n.fs, name, bytes.Replace(b, []byte("\n5\n"), []byte("\n7\n"), 1), 0o644))
			} else {
				spoil(t, n.fs, name, how)
			}
			l = n.crash()
			if l.Lineage().String() != want || want != "{0:0, 2:3, 4:6, 6:9, 9:12}" {
				t.Errorf("%s, clean %t: lineage %s, want %s", how, clean, l.Lineage(), want)
			}
			if b, err := fsys.ReadFile(n.fs, name); err != nil || string(b) != string(encodeEpochs(l.Lineage())) {
				t.Errorf("%s, clean %t: the file has %q, %v", how, clean, b, err)
			}
		}
	}
}

// Report 117, where the first epochs are only in the bucket: they come from what
// the caller knows of the whole log, else from what the file still tells.
func TestReport117EpochsBelowLocalStart(t *testing.T) {
	for _, known := range []bool{true, false} {
		n := newNode(t, mem.New())
		l := n.open()
		for e := range tiers.LeaderEpoch(4) {
			add(t, l, e, 3)
			must(t, l.Roll())
		}
		must(t, l.DropBefore(6))
		if known {
			n.empty.Lineage = l.Lineage().TruncateEnd(6)
		}
		name := path.Join(path.Dir(n.file(6, logSuffix)), epochFile)
		b, err := fsys.ReadFile(n.fs, name)
		must(t, err)
		must(t, fsys.WriteFileAtomic(n.fs, name, b[:len(b)-3], 0o644)) // half of the last line
		if l = n.crash(); l.Lineage().String() != "{0:0, 1:3, 2:6, 3:9}" {
			t.Errorf("known %t: lineage %s", known, l.Lineage())
		}
	}
}

// Report 138: after a crash only the segments from the recovery point on are
// read, and the one whose index is damaged.
func TestReport138OnlyTheTailIsRead(t *testing.T) {
	n := newNode(t, mem.New())
	n.conf.IndexInterval = 4096
	l := n.open()
	big := func() {
		b, err := plain(1).Build(recs(l.LogEnd(), 4, 10_000, 1_700_000_000_000+int64(l.LogEnd())))
		must(t, err)
		must(t, put(l, b))
	}
	for i := range 200 {
		for range 5 {
			big()
		}
		if i < 199 {
			must(t, l.Roll())
		}
		if i == 197 {
			must(t, n.disk.Checkpoint())
		}
	}
	must(t, l.Sync())
	var total int64
	for _, s := range l.Segments() {
		total += s.Size
	}
	l = n.crash()
	t.Logf("%d of %d bytes were read", n.rec.Bytes, total)
	if n.rec.Scanned != 2 || n.rec.Bytes > 2*l.segs[0].size+400*hopWindow || l.LogEnd() != 4000 {
		t.Errorf("%+v of %d bytes, end %d", n.rec, total, l.LogEnd())
	}
	read := n.rec.Bytes
	spoil(t, n.fs, n.file(0, indexSuffix), "zeroed")
	l = n.crash()
	if n.rec.Scanned != 2 || n.rec.RebuiltIndexes != 1 || n.rec.Bytes > read+l.segs[0].size || l.LogEnd() != 4000 {
		t.Errorf("with a damaged index: %+v, before %d bytes", n.rec, read)
	}
}

// Segments whose batches belong to an older epoch than what they follow, as
// records of another history would, end the log.
func TestEpochsMustNotFall(t *testing.T) {
	n := newNode(t, mem.New())
	l := n.open()
	add(t, l, 5, 2)
	must(t, l.Sync())
	stale := build(t, plain(3), 2, 2)
	size, _ := l.active().extent()
	h, err := l.active().log.acquire()
	must(t, err)
	_, err = h.WriteAt(stale, size)
	must(t, err)
	h.release()
	if l = n.crash(); l.LogEnd() != 2 || n.rec.TruncatedAt != 2 {
		t.Errorf("end %d, %+v", l.LogEnd(), n.rec)
	}
}

// The CRC does not cover the base offset of a batch: one that reaches beyond its
// segment is damage.
func TestBaseOffsetBeyondSegment(t *testing.T) {
	n := newNode(t, mem.New())
	l := n.open()
	want := add(t, l, 1, 4)
	add(t, l, 1, 4)
	must(t, l.Roll())
	add(t, l, 1, 4)
	must(t, l.Sync())
	flipByte(t, n.fs, n.file(0, logSuffix), len(want)+7) // base offset 4 becomes 68
	if l = n.crash(); l.LogEnd() != 4 || n.rec.TruncatedAt != 4 || n.rec.LostSegments != 1 || !bytes.Equal(content(t, l), want) {
		t.Errorf("end %d, %+v", l.LogEnd(), n.rec)
	}
}

// A log whose start lies behind its end begins again there (s1.5).
func TestLogStartBehindEnd(t *testing.T) {
	n := newNode(t, mem.New())
	l := n.open()
	add(t, l, 1, 4)
	must(t, l.RaiseLogStart(4)) // nothing of it is synced
	l = n.losePower()
	if l.LogEnd() != 4 || l.LogStart() != 4 || l.LocalLogStart() != 4 || n.rec.LostSegments != 1 {
		t.Fatalf("end %d, start %d, %+v", l.LogEnd(), l.LogStart(), n.rec)
	}
	want := add(t, l, 2, 1)
	must(t, l.Sync())
	if l = n.losePower(); !bytes.Equal(content(t, l), want) {
		t.Errorf("end %d", l.LogEnd())
	}
}

// A log that was lost while its segments are in the bucket starts where it is
// told, with the lineage and the producers of the last segment.
func TestOpenEmptyAtRemoteEnd(t *testing.T) {
	n := newNode(t, mem.New())
	l := n.open()
	b := plain(1)
	b.ProducerID = 7
	must(t, put(l, build(t, b, 0, 4)))
	must(t, l.Roll())
	must(t, n.disk.Checkpoint())
	s := l.Snapshot()
	f, err := s.Files(0)
	must(t, err)
	n.empty = Start{LogStart: 1, At: 4, Lineage: tiers.Lineage{{Epoch: 1, Start: 1}}, Producers: f.Producers}
	s.Release()
	n.fs = n.fs.(*mem.FS).KillCopy()
	must(t, n.fs.RemoveAll(n.options().Dir))
	for range 2 {
		l = n.open()
		if l.LogEnd() != 4 || l.LogStart() != 1 || l.LocalLogStart() != 4 || l.Lineage().String() != "{1:1}" {
			t.Fatalf("end %d, start %d, local start %d, lineage %s", l.LogEnd(), l.LogStart(), l.LocalLogStart(), l.Lineage())
		}
		if base, dup, err := l.Producers().Check(idempotent(7, 0, 0, 0, 4), nil); !dup || base != 0 || err != nil {
			t.Errorf("the batch again: %d, %t, %v", base, dup, err)
		}
		n.fs = n.fs.(*mem.FS).SyncedCopy()
	}
}

func TestOpenRefuses(t *testing.T) {
	n := newNode(t, mem.New())
	n.open()
	o := n.options()
	if _, _, err := Open(o); tiers.KindOf(err) != tiers.Conflict {
		t.Errorf("opened twice: %v", err)
	}
	if _, err := OpenDisk(n.fs, root, n.out); !errors.Is(err, fsys.ErrLocked) || !strings.Contains(err.Error(), root) {
		t.Errorf("disk opened twice: %v", err)
	}
	n.close()
	n.disk, _ = OpenDisk(n.fs, root, n.out)
	o = n.options()
	o.ID.Topic[0]++
	if _, _, err := Open(o); tiers.KindOf(err) != tiers.InconsistentTopicID {
		t.Errorf("folder of another topic: %v", err)
	}
	o = n.options()
	o.Gen = 2
	l, _, err := Open(o)
	must(t, err)
	must(t, l.Close())
	o.Gen = 1
	if _, _, err := Open(o); tiers.KindOf(err) != tiers.StaleFence {
		t.Errorf("history 1 after 2: %v", err)
	}
	for _, bad := range []func(*Options){
		func(o *Options) { o.FS = nil }, func(o *Options) { o.Gen = 0 }, func(o *Options) { o.Config.SegmentBytes = 0 },
		func(o *Options) { o.Gen, o.Empty = 3, Start{LogStart: 5, At: 4} },
	} {
		o := n.options()
		bad(&o)
		if _, _, err := Open(o); err == nil {
			t.Errorf("%+v was accepted", o.Config)
		}
	}
	must(t, n.disk.Close())
	if _, _, err := Open(n.options()); tiers.KindOf(err) != tiers.Closed {
		t.Errorf("open on a closed disk: %v", err)
	}
}

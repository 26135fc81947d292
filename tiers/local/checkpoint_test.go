package local

import (
	"bytes"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/fsys/mem"
)

// point is a partition's recovery point in the file, NoOffset if there is none.
func point(tb testing.TB, fs fsys.FS, id tiers.PartitionID) tiers.Offset {
	tb.Helper()
	return line(tb, fs, recoveryPointFile, id)
}

func line(tb testing.TB, fs fsys.FS, name string, id tiers.PartitionID) tiers.Offset {
	tb.Helper()
	b, err := fsys.ReadFile(fs, path.Join(root, name))
	must(tb, err)
	m, err := decodeOffsets(b)
	must(tb, err)
	if o, ok := m[id]; ok {
		return o
	}
	return tiers.NoOffset
}

// second opens another log, of partition 1, on the disk of n.
func (n *node) second() *Log {
	n.t.Helper()
	m := *n
	m.index = 1
	l, _, err := Open(m.options())
	must(n.t, err)
	return l
}

// pausedCheckpoint runs a checkpoint that has sampled and waits before its file
// is replaced. The function that it returns lets it go on and waits for its end.
func pausedCheckpoint(tb testing.TB, n *node, faulty *fsys.Faulty) (resume func()) {
	tb.Helper()
	hold, reached, done := make(chan struct{}), make(chan fsys.Op), make(chan error)
	faulty.Add(fsys.Fault{Kinds: fsys.OpRename, Name: recoveryPointFile, Hold: hold, Reached: reached})
	go func() { done <- n.disk.Checkpoint() }()
	<-reached
	return func() {
		close(hold)
		must(tb, <-done)
	}
}

// blocked starts f, shows that it waits while the checkpoint is paused, and
// returns how to wait for its end.
func blocked(tb testing.TB, n *node, f func() error) (wait func()) {
	tb.Helper()
	if n.disk.mu.TryLock() {
		n.disk.mu.Unlock()
		tb.Fatal("the checkpoint holds no lock")
	}
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		tb.Fatalf("it did not wait for the checkpoint: %v", err)
	default:
	}
	return func() { must(tb, <-done) }
}

// TV-C1, TV-C2: a truncation waits for a checkpoint that has sampled, and its
// lower value is the one that stays.
func TestTVC1C2TruncationWaitsForSampler(t *testing.T) {
	for name, cut := range map[string]func(*Log) error{
		"truncate": func(l *Log) error { return l.TruncateTo(0) },
		"restart":  func(l *Log) error { return l.Restart(Start{}) },
	} {
		faulty := fsys.NewFaulty(mem.New())
		n := newNode(t, faulty)
		l := n.open()
		add(t, l, 1, 10)
		must(t, l.Sync())
		resume := pausedCheckpoint(t, n, faulty)
		wait := blocked(t, n, func() error { return cut(l) })
		if end := l.LogEnd(); end != 10 {
			t.Errorf("%s: cut under the sampler: end %d", name, end)
		}
		resume()
		wait()
		if got := point(t, faulty, partitionID(0)); got != 0 || l.Flushed() != 0 || l.LogEnd() != 0 {
			t.Errorf("%s: the file has %d, flushed %d, end %d", name, got, l.Flushed(), l.LogEnd())
		}
		add(t, l, 2, 1)
		must(t, l.Sync())
		n.close()
	}
}

// TV-C4: the recovery point that a truncation lowered rises only with a sync of
// what was appended since.
func TestTVC4SyncAfterTruncation(t *testing.T) {
	n := newNode(t, mem.New())
	l := n.open()
	add(t, l, 1, 10)
	must(t, l.Sync())
	must(t, l.TruncateTo(0))
	add(t, l, 2, 3)
	if l.Flushed() != 0 {
		t.Errorf("flushed %d before the sync", l.Flushed())
	}
	must(t, n.disk.Checkpoint())
	if got := point(t, n.fs, partitionID(0)); got != 0 {
		t.Errorf("the file has %d", got)
	}
	must(t, l.Sync())
	must(t, n.disk.Checkpoint())
	if got := point(t, n.fs, partitionID(0)); got != 3 {
		t.Errorf("after the sync the file has %d", got)
	}
	n.close()
}

// TV-C5: two partitions of a disk.
func TestTVC5TwoPartitions(t *testing.T) {
	faulty := fsys.NewFaulty(mem.New())
	n := newNode(t, faulty)
	p := n.open()
	q := n.second()
	add(t, p, 1, 10)
	must(t, p.Sync())
	add(t, q, 1, 5)
	must(t, q.Sync())
	resume := pausedCheckpoint(t, n, faulty)
	add(t, q, 1, 4)
	must(t, q.Sync())
	wait := blocked(t, n, func() error { return p.TruncateTo(0) })
	resume()
	wait()
	if a, b := point(t, faulty, partitionID(0)), point(t, faulty, partitionID(1)); a != 0 || b < 5 {
		t.Errorf("the file has %d and %d", a, b)
	}
	must(t, q.Close())
	n.close()
}

// TV-C6: a partition that is forgotten stays forgotten, whatever its log still
// does.
func TestTVC6Forget(t *testing.T) {
	faulty := fsys.NewFaulty(mem.New())
	n := newNode(t, faulty)
	l := n.open()
	add(t, l, 1, 10)
	must(t, l.Sync())
	resume := pausedCheckpoint(t, n, faulty)
	wait := blocked(t, n, func() error { return n.disk.Forget(partitionID(0)) })
	resume()
	wait()
	must(t, l.RaiseLogStart(1))
	must(t, l.TruncateTo(4))
	must(t, l.Restart(Start{LogStart: 2, At: 3}))
	must(t, n.disk.Checkpoint())
	must(t, l.Close())
	must(t, n.disk.Close())
	for _, name := range []string{recoveryPointFile, logStartFile, replicationFile, cleanFile} {
		if got := line(t, faulty, name, partitionID(0)); got != tiers.NoOffset {
			t.Errorf("%s has %d", name, got)
		}
	}
}

// TV-C7: killed between the lower write and the cut, the log recovers from the
// low value.
func TestTVC7KilledBeforeTheCut(t *testing.T) {
	fs := mem.New()
	n := newNode(t, fs)
	l := n.open()
	add(t, l, 1, 4)
	must(t, l.Roll())
	add(t, l, 1, 6)
	must(t, l.Sync())
	must(t, n.disk.Checkpoint())
	var lowered *mem.FS
	fs.OnOp(func(op fsys.Op) {
		if op.Kind == fsys.OpRename && path.Base(op.NewName) == recoveryPointFile && lowered == nil {
			lowered = fs.KillCopy()
		}
	})
	must(t, l.TruncateTo(0))
	n.fs = lowered
	if got := point(t, n.fs, partitionID(0)); got != 0 {
		t.Fatalf("the file has %d", got)
	}
	if l = n.open(); n.rec.Scanned != 2 || l.LogEnd() != 10 {
		t.Errorf("%+v, end %d", n.rec, l.LogEnd())
	}
}

// TV-C8: if the lower write fails nothing is cut, and the disk with all its logs
// is offline.
func TestTVC8LowerWriteFails(t *testing.T) {
	for name, cut := range map[string]func(*Log) error{
		"truncate": func(l *Log) error { return l.TruncateTo(4) },
		"restart":  func(l *Log) error { return l.Restart(Start{}) },
		"below the first segment": func(l *Log) error {
			must(t, l.Roll())
			must(t, l.DropBefore(l.LogEnd()))
			return l.TruncateTo(4)
		},
	} {
		faulty := fsys.NewFaulty(mem.New())
		n := newNode(t, faulty)
		l := n.open()
		other := n.second()
		add(t, l, 1, 5)
		add(t, l, 2, 5)
		must(t, l.Sync())
		faulty.Add(fsys.Fault{Kinds: fsys.OpWrite, Name: recoveryPointFile, Err: syscall.EIO})
		lineage := l.Lineage().String()
		if err := cut(l); tiers.KindOf(err) != tiers.StorageFailed {
			t.Errorf("%s: %v", name, err)
		}
		if l.LogEnd() != 10 || l.Lineage().String() != lineage || l.Truncations() != 0 || l.Flushed() != 10 {
			t.Errorf("%s: end %d, lineage %s, %d truncations", name, l.LogEnd(), l.Lineage(), l.Truncations())
		}
		for _, o := range []*Log{l, other} {
			if err := put(o, build(t, plain(9), o.LogEnd(), 1)); tiers.KindOf(err) != tiers.StorageFailed || o.Broken() == nil {
				t.Errorf("%s: append on an offline disk: %v", name, err)
			}
		}
		if n.disk.Failed() == nil || n.disk.Checkpoint() == nil {
			t.Errorf("%s: the disk is not offline", name)
		}
	}
}

// C7: a damaged recovery file is no recovery point; a damaged start file is the
// first segment.
func TestC7DamagedCheckpoints(t *testing.T) {
	for _, how := range []string{"missing", "empty", "zeroed", "cut", "extended by garbage"} {
		n, all := threeSegments(t)
		must(t, n.log.RaiseLogStart(5))
		spoil(t, n.fs, path.Join(root, recoveryPointFile), how)
		spoil(t, n.fs, path.Join(root, logStartFile), how)
		l := n.crash()
		if n.rec.Scanned != 3 || !bytes.Equal(content(t, l), all) || l.LogStart() != 5 {
			t.Errorf("%s: %+v, start %d", how, n.rec, l.LogStart())
		}
	}
}

// Without a marker nothing is trusted, with one only the logs that it names: a log
// that was not opened since a crash is recovered, however cleanly others closed.
func TestCleanMarkerNamesLogs(t *testing.T) {
	n := newNode(t, mem.New())
	n.open()
	other := n.second()
	add(t, other, 1, 3)
	must(t, other.Sync())
	add(t, n.log, 1, 3)
	n.crash() // the second log is not opened this time
	n.close()
	n.open()
	if !n.rec.Clean {
		t.Errorf("the log that was closed cleanly: %+v", n.rec)
	}
	m := *n
	m.index = 1
	l, rec, err := Open(m.options())
	must(t, err)
	if rec.Clean || rec.Scanned != 1 || l.LogEnd() != 3 {
		t.Errorf("the log that was not closed: %+v, end %d", rec, l.LogEnd())
	}
	if err := n.disk.Close(); err == nil || !strings.Contains(err.Error(), partitionID(1).String()) {
		t.Errorf("closed a disk under its logs: %v", err)
	}
	if _, err := n.fs.Stat(path.Join(root, cleanFile)); err == nil {
		t.Error("a marker was written although logs were open")
	}
}

// The marker is gone, durably, before anything is written.
func TestCleanMarkerGoesFirst(t *testing.T) {
	n := newNode(t, mem.New())
	n.open()
	add(t, n.log, 1, 3)
	n.close()
	faulty := fsys.NewFaulty(n.fs)
	n.fs = faulty
	n.open()
	ops := faulty.Ops(fsys.OpMutation)
	removed := slices.IndexFunc(ops, func(op fsys.Op) bool { return op.Kind == fsys.OpRemove && path.Base(op.Name) == cleanFile })
	written := slices.IndexFunc(ops, func(op fsys.Op) bool { return op.Kind&(fsys.OpWrite|fsys.OpCreate) != 0 })
	if removed < 0 || ops[removed+1].Kind != fsys.OpSyncDir || written >= 0 && written < removed {
		t.Errorf("operations %v", ops)
	}
	n.close()
}

// An end that is not where the marker says is not trusted.
func TestCleanMarkerIsChecked(t *testing.T) {
	n := newNode(t, mem.New())
	want := add(t, n.open(), 1, 3)
	n.close()
	b, err := fsys.ReadFile(n.fs, n.file(0, logSuffix))
	must(t, err)
	must(t, fsys.WriteFileAtomic(n.fs, n.file(0, logSuffix), append(b, b[:70]...), 0o644))
	l := n.open()
	if n.rec.Clean || n.rec.TruncatedAt != 3 || !bytes.Equal(content(t, l), want) {
		t.Errorf("%+v, end %d", n.rec, l.LogEnd())
	}
	n.close()
}

// A log that is shorter than the marker says has lost acknowledged records: it
// opens, without them, and the recovery point follows.
func TestCleanMarkerShorterLog(t *testing.T) {
	n := newNode(t, mem.New())
	l := n.open()
	want := add(t, l, 1, 3)
	add(t, l, 1, 3)
	n.close()
	must(t, fsys.WriteFileAtomic(n.fs, n.file(0, logSuffix), want, 0o644))
	must(t, fsys.WriteFileAtomic(n.fs, n.file(0, indexSuffix), nil, 0o644)) // so that nothing but the end tells
	l = n.open()
	if n.rec.Clean || l.LogEnd() != 3 || !bytes.Equal(content(t, l), want) {
		t.Errorf("%+v, end %d", n.rec, l.LogEnd())
	}
	if got := point(t, n.fs, partitionID(0)); got != 3 {
		t.Errorf("the recovery point is %d", got)
	}
	n.close()
}

func TestHighWatermarkInCheckpoint(t *testing.T) {
	n := newNode(t, mem.New())
	l := n.open()
	add(t, l, 1, 5)
	l.SetHighWatermark(4)
	l.SetHighWatermark(9)
	if l.HighWatermark() != 5 {
		t.Errorf("above the end: %d", l.HighWatermark())
	}
	l.SetHighWatermark(4)
	n.close()
	if l = n.open(); l.HighWatermark() != 4 || line(t, n.fs, replicationFile, partitionID(0)) != 4 {
		t.Errorf("reopened: %d", l.HighWatermark())
	}
	must(t, l.TruncateTo(0))
	if l.HighWatermark() != 0 || line(t, n.fs, replicationFile, partitionID(0)) != 0 {
		t.Errorf("truncated: %d", l.HighWatermark())
	}
	n.close()
}

// T8: what a truncation does to everything that is derived.
func TestT8Truncate(t *testing.T) {
	n := newNode(t, mem.New())
	l := n.open()
	for e := range tiers.LeaderEpoch(3) {
		add(t, l, e, 2)
		add(t, l, e, 2)
		must(t, l.Roll())
	}
	must(t, l.Assign(7, l.LogEnd()))
	if l.Lineage().String() != "{0:0, 1:4, 2:8, 7:12}" {
		t.Fatalf("lineage %s", l.Lineage())
	}
	must(t, l.TruncateTo(12)) // nothing is cut, the entry without records goes
	if l.Lineage().String() != "{0:0, 1:4, 2:8}" || l.Truncations() != 0 {
		t.Errorf("at the end: lineage %s, %d truncations", l.Lineage(), l.Truncations())
	}
	must(t, l.TruncateTo(7)) // in the middle of a batch
	if l.LogEnd() != 6 || l.Truncations() != 1 || l.Lineage().String() != "{0:0, 1:4}" || len(l.Segments()) != 2 || l.Flushed() != 6 {
		t.Errorf("end %d, %d truncations, lineage %s, segments %+v", l.LogEnd(), l.Truncations(), l.Lineage(), l.Segments())
	}
	must(t, l.RaiseLogStart(5))
	must(t, l.TruncateTo(4))
	if l.LogStart() != 4 || l.LogEnd() != 4 || l.LocalLogStart() != 4 {
		t.Errorf("below the log start: start %d, end %d", l.LogStart(), l.LogEnd())
	}
	add(t, l, 9, 1)
	must(t, l.Roll())
	must(t, l.DropBefore(5))
	must(t, l.TruncateTo(2)) // below what is on disk
	if l.LogStart() != 2 || l.LogEnd() != 2 || l.LocalLogStart() != 2 || len(l.Segments()) != 1 {
		t.Errorf("below the first segment: start %d, local start %d, end %d", l.LogStart(), l.LocalLogStart(), l.LogEnd())
	}
	if err := l.TruncateTo(-1); tiers.KindOf(err) != tiers.InvalidRequest {
		t.Errorf("negative: %v", err)
	}
	n.close()
}

func TestRestart(t *testing.T) {
	n := newNode(t, mem.New())
	l := n.open()
	b := plain(1)
	b.ProducerID = 7
	must(t, put(l, build(t, b, 0, 3)))
	must(t, l.Roll())
	producers := l.Producers()
	snapshot := producers.snapshot()
	must(t, l.Restart(Start{LogStart: 10, At: 20, Lineage: tiers.Lineage{{Epoch: 0, Start: 10}, {Epoch: 2, Start: 15}}, Producers: snapshot}))
	check := func(when string) {
		t.Helper()
		if l.LogStart() != 10 || l.LocalLogStart() != 20 || l.LogEnd() != 20 || l.Flushed() != 20 || l.Lineage().String() != "{0:10, 2:15}" {
			t.Errorf("%s: start %d, local start %d, end %d, lineage %s", when, l.LogStart(), l.LocalLogStart(), l.LogEnd(), l.Lineage())
		}
		if _, dup, err := l.Producers().Check(idempotent(7, 0, 0, 0, 3), nil); !dup {
			t.Errorf("%s: the producer is not known: %v", when, err)
		}
	}
	check("restarted")
	l = n.losePower()
	check("after a power loss")
	for _, bad := range []Start{{LogStart: 2, At: 1}, {LogStart: -1}, {At: 5, Lineage: tiers.Lineage{{Epoch: 2, Start: 0}, {Epoch: 1, Start: 3}}}, {At: 5, Lineage: tiers.Lineage{{Epoch: 2, Start: 6}}}} {
		if err := l.Restart(bad); tiers.KindOf(err) != tiers.InvalidRequest {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	n.close()
}

func TestRaiseLogStart(t *testing.T) {
	n := newNode(t, mem.New())
	l := n.open()
	add(t, l, 1, 4)
	must(t, l.Roll())
	add(t, l, 2, 4)
	must(t, l.Sync())
	if err := l.RaiseLogStart(9); tiers.KindOf(err) != tiers.OffsetOutOfRange {
		t.Errorf("above the end: %v", err)
	}
	must(t, l.RaiseLogStart(5))
	must(t, l.RaiseLogStart(3)) // lower: nothing
	if l.LogStart() != 5 || l.LocalLogStart() != 5 || l.Lineage().String() != "{2:5}" {
		t.Errorf("start %d, local start %d, lineage %s", l.LogStart(), l.LocalLogStart(), l.Lineage())
	}
	if l = n.losePower(); l.LogStart() != 5 || l.Lineage().String() != "{2:5}" {
		t.Errorf("after a power loss: start %d, lineage %s", l.LogStart(), l.Lineage())
	}
	n.close()
}

func TestAppendRefuses(t *testing.T) {
	n := newNode(t, mem.New())
	l := n.open()
	want := add(t, l, 3, 4)
	b := build(t, plain(3), 4, 2)
	torn := append(bytes.Clone(b), 1)
	old := build(t, plain(2), 4, 2)
	for name, err := range map[string]error{
		"below the end":    put(l, build(t, plain(3), 3, 2)),
		"above the end":    put(l, build(t, plain(3), 5, 2)),
		"bytes behind":     l.Append(torn, headers(b)),
		"missing bytes":    l.Append(b[:80], headers(b)),
		"missing headers":  l.Append(b, nil),
		"out of order":     put(l, b, build(t, plain(3), 5, 1)),
		"B3: given twice":  put(l, build(t, plain(-1), 4, 2), build(t, plain(-1), 5, 1)),
		"B7: older epoch":  put(l, old),
		"far apart":        put(l, b, build(t, plain(3), 1<<40, 1)),
		"bad control data": put(l, damagedMarker(t, 4)),
	} {
		if err == nil || l.Broken() != nil {
			t.Errorf("%s: %v, broken %v", name, err, l.Broken())
		}
	}
	if tiers.KindOf(put(l, old)) != tiers.FencedLeaderEpoch {
		t.Errorf("B7: %v", put(l, old))
	}
	must(t, l.Append(nil, nil))
	if l.LogEnd() != 4 || !bytes.Equal(content(t, l), want) {
		t.Errorf("end %d", l.LogEnd())
	}
	n.close()
	if err := put(l, b); tiers.KindOf(err) != tiers.Closed {
		t.Errorf("append to a closed log: %v", err)
	}
}

// damagedMarker is a control batch whose record does not parse.
func damagedMarker(tb testing.TB, at tiers.Offset) []byte {
	tb.Helper()
	b := endTxn(tb, 8, at, true)
	clear(b[len(b)-8:])
	b[61] = 0x7f
	return b
}

// Offsets too far from the base of a segment make a new one.
func TestAppendRollsBeforeOverflow(t *testing.T) {
	n := newNode(t, mem.New())
	l := n.open()
	add(t, l, 1, 1)
	l.end = maxRelative + 1 // as after a hole
	b := add(t, l, 1, 1)
	if segs := l.Segments(); len(segs) != 2 || segs[1].Base != maxRelative+1 {
		t.Fatalf("%+v", segs)
	}
	s := l.Snapshot()
	defer s.Release()
	if got, err := s.Read(1, l.LogEnd(), 1<<20, true, nil); err != nil || !bytes.Equal(got, b) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	n.close()
}

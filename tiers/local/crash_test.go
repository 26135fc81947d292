package local

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/batch"
	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/fsys/mem"
)

// expectation is what a crash at some moment may leave. An operation that is
// under way widens it before it begins and narrows it when it has returned.
type expectation struct {
	batches  [][]byte       // all that may be there, in offset order
	least    tiers.Offset   // end of what was acknowledged
	starts   []tiers.Offset // where the local log may start
	logStart []tiers.Offset
	doing    string
}

func (e expectation) clone() expectation {
	e.batches, e.starts, e.logStart = slices.Clone(e.batches), slices.Clone(e.starts), slices.Clone(e.logStart)
	return e
}

// script is a workload that keeps its expectation. It ends with the first error.
type script struct {
	n      *node
	e      expectation
	failed error
}

func newScript(n *node) *script {
	return &script{n: n, e: expectation{starts: []tiers.Offset{0}, logStart: []tiers.Offset{0}, doing: "open"}}
}

// step runs f, which says what it does, unless something failed before.
func (s *script) step(doing string, f func() error) bool {
	if s.failed != nil {
		return false
	}
	s.e.doing = doing
	s.failed = f()
	return s.failed == nil
}

func (s *script) append(epoch tiers.LeaderEpoch, n int, b batch.Builder) {
	if s.failed != nil {
		return
	}
	b.LeaderEpoch = epoch
	one := build(s.n.t, b, s.n.log.LogEnd(), n)
	s.e.batches = append(s.e.batches, one)
	s.step("append", func() error { return put(s.n.log, one) })
}

func (s *script) sync() {
	if s.step("sync", func() error { return s.n.log.Sync() }) {
		s.e.least = s.n.log.LogEnd()
	}
}

func (s *script) roll() {
	if s.step("roll", func() error { return s.n.log.Roll() }) {
		s.e.least = s.n.log.LogEnd()
	}
}

func (s *script) checkpoint() {
	s.step("checkpoint", func() error { return s.n.disk.Checkpoint() })
}

func (s *script) truncate(o tiers.Offset) {
	if s.failed != nil {
		return
	}
	kept := slices.DeleteFunc(slices.Clone(s.e.batches), func(b []byte) bool { return headers(b)[0].Next() > o })
	s.e.least = min(s.e.least, headers(kept[len(kept)-1])[0].Next())
	if s.step("truncate", func() error { return s.n.log.TruncateTo(o) }) {
		s.e.batches, s.e.least = kept, s.n.log.LogEnd()
	}
}

// drop may stop between two segments.
func (s *script) drop(o tiers.Offset) {
	if s.failed != nil {
		return
	}
	for _, seg := range s.n.log.Segments() {
		if seg.Base <= o {
			s.e.starts = append(s.e.starts, seg.Base)
		}
	}
	if s.step("drop", func() error { return s.n.log.DropBefore(o) }) {
		s.e.starts = []tiers.Offset{s.n.log.segs[0].base}
	}
}

func (s *script) raise(o tiers.Offset) {
	s.e.logStart = append(s.e.logStart, o)
	if s.step("raise", func() error { return s.n.log.RaiseLogStart(o) }) {
		s.e.logStart = []tiers.Offset{o}
	}
}

func (s *script) assign(epoch tiers.LeaderEpoch) {
	s.step("assign", func() error { return s.n.log.Assign(epoch, s.n.log.LogEnd()) })
}

func (s *script) reopen() {
	s.step("close", func() error { return errors.Join(s.n.log.Close(), s.n.disk.Close()) })
	s.step("open", func() error {
		err := s.n.tryOpen()
		if err == nil && !s.n.rec.Clean {
			s.n.t.Fatalf("not clean: %+v", s.n.rec)
		}
		return err
	})
}

func (s *script) restart(at, logStart tiers.Offset) {
	if s.failed != nil {
		return
	}
	s.e.least = 0
	s.e.starts = append(s.e.starts, at, 0) // 0: the folder is empty, and the next Open is told to begin there
	s.e.logStart = append(s.e.logStart, min(logStart, s.n.log.LogStart()), logStart, 0)
	if s.step("restart", func() error { return s.n.log.Restart(Start{LogStart: logStart, At: at}) }) {
		s.e.batches, s.e.least, s.e.starts, s.e.logStart = nil, at, []tiers.Offset{at}, []tiers.Offset{logStart}
	}
}

// life is a short life of a partition that uses every operation.
func life(s *script) {
	p := batch.Builder{ProducerID: 7}
	s.append(1, 2, plain(0))
	s.sync()
	s.append(1, 3, p)
	p.BaseSequence = 3
	s.append(1, 2, p)
	s.roll()
	s.append(2, 40, plain(0))
	s.append(2, 3, plain(0))
	s.sync()
	s.checkpoint()
	s.append(2, 1, plain(0))
	s.roll()
	s.assign(3)
	s.append(3, 30, plain(0))
	s.sync()
	s.checkpoint()
	s.append(3, 5, plain(0))
	s.truncate(60) // in the middle of a batch of the last segment
	s.append(4, 9, plain(0))
	s.roll()
	s.append(4, 2, plain(0))
	s.roll()
	s.append(4, 2, plain(0))
	s.sync()
	s.truncate(12) // across segments
	s.append(5, 6, plain(0))
	s.append(5, 6, plain(0))
	s.roll()
	s.append(6, 4, plain(0))
	s.roll()
	s.append(6, 4, plain(0))
	s.sync()
	s.checkpoint()
	s.raise(9)
	s.drop(12)
	s.reopen()
	s.append(7, 2, plain(0))
	s.sync()
	s.restart(100, 50)
	s.append(8, 2, plain(0))
	s.sync()
}

// moment is a crash at an operation.
type moment struct {
	op    fsys.Op
	e     expectation
	disks []*mem.FS
	names []string
}

func TestCrashAtEveryOperation(t *testing.T) {
	fs := mem.New()
	n := newNode(t, fs)
	s := newScript(n)
	var moments []moment
	fs.OnOp(func(op fsys.Op) {
		m := moment{op: op, e: s.e.clone(), disks: []*mem.FS{fs.SyncedCopy(), fs.KillCopy()}, names: []string{"synced", "killed"}}
		for seed := range uint64(4) {
			m.disks = append(m.disks, fs.CrashCopy(uint64(op.Seq)*10+seed))
			m.names = append(m.names, fmt.Sprintf("crash %d", uint64(op.Seq)*10+seed))
		}
		moments = append(moments, m)
	})
	n.open()
	life(s)
	must(t, s.failed)
	n.close()
	fs.OnOp(nil)
	if len(moments) < 150 {
		t.Fatalf("only %d operations", len(moments))
	}
	when := ""
	t.Cleanup(func() { t.Log(when) })
	for _, m := range moments {
		for i, disk := range m.disks {
			when = fmt.Sprintf("%s, operation %d (%s %s) during %s", m.names[i], m.op.Seq, m.op.Kind, m.op.Name, m.e.doing)
			checkCrash(t, disk, m.e, when)
			if t.Failed() {
				return
			}
		}
	}
}

// A crash while recovery cuts a damaged log: the next start finds the same end,
// and no hole.
func TestCrashDuringRecovery(t *testing.T) {
	n := newNode(t, mem.New())
	l := n.open()
	var want []byte
	for i := range 5 {
		b := add(t, l, 1, 4)
		if i < 2 {
			want = append(want, b...)
		}
		if i != 1 {
			must(t, l.Roll())
		}
	}
	size := len(want) / 2
	flipByte(t, n.fs, n.file(4, logSuffix), size+70) // the third batch of the log; nothing is checkpointed
	fs := n.fs.(*mem.FS).KillCopy()
	n.fs = fs
	var disks []*mem.FS
	fs.OnOp(func(op fsys.Op) {
		disks = append(disks, fs.SyncedCopy(), fs.KillCopy())
		for seed := range uint64(4) {
			disks = append(disks, fs.CrashCopy(uint64(op.Seq)*10+seed))
		}
	})
	n.open()
	fs.OnOp(nil)
	if len(disks) < 60 {
		t.Fatalf("only %d crashes", len(disks))
	}
	for i, disk := range disks {
		n.fs = disk
		l = n.open()
		if !bytes.Equal(content(t, l), want) || l.LogEnd() != 8 || len(n.rec.Holes) > 0 {
			t.Fatalf("crash %d: end %d, %+v, want 8", i, l.LogEnd(), n.rec)
		}
	}
}

// checkCrash opens what a crash left, twice, and writes on.
func checkCrash(t *testing.T, disk *mem.FS, e expectation, when string) {
	t.Helper()
	n := newNode(t, disk)
	if err := n.tryOpen(); err != nil {
		t.Errorf("%s: open: %v", when, err)
		return
	}
	first := checkOpened(t, n, e, when)
	if len(n.rec.Damage) > 0 || len(n.rec.Holes) > 0 {
		t.Errorf("%s: %+v", when, n.rec)
	}
	end, start, lineage := n.log.LogEnd(), n.log.LogStart(), n.log.Lineage().String()

	n.fs = disk.SyncedCopy() // the power fails again: all that was served is durable (report 027)
	if err := n.tryOpen(); err != nil {
		t.Errorf("%s: second open: %v", when, err)
		return
	}
	second := checkOpened(t, n, e, when+", opened twice")
	if !bytes.Equal(first, second) || n.log.LogEnd() != end || n.log.LogStart() != start || n.log.Lineage().String() != lineage || n.rec.TruncatedAt != tiers.NoOffset {
		t.Errorf("%s: the second open differs: end %d and %d, start %d and %d, lineage %s and %s, %+v", when, end, n.log.LogEnd(), start, n.log.LogStart(), lineage, n.log.Lineage(), n.rec)
	}
	more := add(t, n.log, 50, 2)
	must(t, n.log.Sync())
	n.fs = n.fs.(*mem.FS).SyncedCopy()
	n.open()
	if got := content(t, n.log); !bytes.Equal(got, append(second, more...)) {
		t.Errorf("%s: what was written after the crash is not there", when)
	}
}

// checkOpened compares a log with what is allowed, and all ways to read it with
// each other. It returns the content.
func checkOpened(t *testing.T, n *node, e expectation, when string) []byte {
	t.Helper()
	l := n.log
	got := content(t, l)
	base := l.segs[0].base
	var want []byte
	lineage := tiers.Lineage{}
	for _, b := range e.batches {
		h := headers(b)[0]
		if h.Next() <= l.LogEnd() {
			lineage = lineage.Assign(h.LeaderEpoch, max(h.BaseOffset, l.LogStart()))
			if h.BaseOffset >= base {
				want = append(want, b...)
			}
		}
	}
	if !bytes.Equal(got, want) && (e.doing != "restart" || len(got) > 0) {
		t.Errorf("%s: %d bytes from %d to %d, want %d", when, len(got), base, l.LogEnd(), len(want))
	}
	if l.LogEnd() < e.least || l.Flushed() != l.LogEnd() {
		t.Errorf("%s: the log ends at %d, flushed %d, acknowledged was %d", when, l.LogEnd(), l.Flushed(), e.least)
	}
	if !slices.Contains(e.starts, base) || !slices.Contains(e.logStart, l.LogStart()) {
		t.Errorf("%s: local start %d, log start %d, allowed are %v and %v", when, base, l.LogStart(), e.starts, e.logStart)
	}
	if e.doing != "restart" && len(got) > 0 && l.LogStart() <= base && l.Lineage().Slice(base, l.LogEnd()).String() != lineage.Slice(base, l.LogEnd()).String() {
		t.Errorf("%s: lineage %s, want %s", when, l.Lineage(), lineage)
	}
	if err := l.Lineage().Valid(); err != nil {
		t.Errorf("%s: %v", when, err)
	}
	checkIndexed(t, l, got, when)
	return got
}

// checkIndexed reads each offset on its own and finds each timestamp, and
// compares the indexes with those that a scan makes.
func checkIndexed(t *testing.T, l *Log, all []byte, when string) {
	t.Helper()
	s := l.Snapshot()
	defer s.Release()
	for one := range batch.Split(all) {
		for _, o := range []tiers.Offset{one.BaseOffset, one.Last()} {
			if b, err := s.Read(o, l.LogEnd(), 1, true, nil); err != nil || !bytes.Equal(b, one.Bytes) {
				t.Errorf("%s: read at %d: %d bytes, %v", when, o, len(b), err)
			}
		}
		o, at, ok, err := s.FindTime(one.MaxTimestamp, s.Start(), l.LogEnd())
		if err != nil || !ok || at < one.MaxTimestamp || o > one.Last() {
			t.Errorf("%s: find %d: %d at %d, %t, %v", when, one.MaxTimestamp, o, at, ok, err)
		}
	}
	for i, seg := range s.segs {
		fresh := &segment{base: seg.base, next: seg.base, newest: -1, newestAt: seg.base}
		size, _ := seg.extent()
		_, err := fresh.refill(newWalker(seg.log, size, l.nextOf(i), hopWindow), l.nextOf(i), l.o.Config.IndexInterval)
		must(t, err)
		if !seg.closed {
			if !slices.Equal(fresh.offsets, seg.offsets) {
				t.Errorf("%s: index of %d in memory is %v, want %v", when, seg.base, seg.offsets, fresh.offsets)
			}
			continue
		}
		fresh.addTime()
		offsets, err := fsys.ReadFile(l.o.FS, seg.path(indexSuffix))
		must(t, err)
		times, err := fsys.ReadFile(l.o.FS, seg.path(timeSuffix))
		must(t, err)
		if !bytes.Equal(offsets, encodeOffsetIndex(fresh.offsets)) || !bytes.Equal(times, encodeTimeIndex(fresh.times)) {
			t.Errorf("%s: index files of %d: %x and %x, want %x and %x", when, seg.base, offsets, times, encodeOffsetIndex(fresh.offsets), encodeTimeIndex(fresh.times))
		}
		if f, err := s.Files(seg.base); err != nil || !bytes.Equal(f.OffsetIndex, offsets) || !bytes.Equal(f.TimeIndex, times) {
			t.Errorf("%s: the copier gets %+v of %d, %v", when, f, seg.base, err)
		}
	}
}

package local

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/batch"
	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/fsys/mem"
)

// holes is a log of two segments whose batches are [0,9] [10,19] | [30,39], and
// [60,69] in the active one: what compaction leaves.
func holes(tb testing.TB) *Log {
	tb.Helper()
	n := newNode(tb, mem.New())
	l := n.open()
	must(tb, put(l, build(tb, plain(1), 0, 10), build(tb, plain(1), 10, 10), build(tb, plain(1), 30, 10)))
	must(tb, l.Roll())
	must(tb, put(l, build(tb, plain(1), 40, 1), build(tb, plain(1), 60, 10)))
	return l
}

func TestReport041HoleGivesNextBatch(t *testing.T) {
	l := holes(t)
	s := l.Snapshot()
	defer s.Release()
	for from, want := range map[tiers.Offset]tiers.Offset{0: 0, 9: 0, 10: 10, 19: 10, 20: 30, 25: 30, 39: 30, 40: 40, 41: 60, 55: 60, 69: 60} {
		b, err := s.Read(from, l.LogEnd(), 1, true, nil)
		if err != nil || len(b) == 0 || headers(b)[0].BaseOffset != want {
			t.Errorf("read %d: %d bytes, %v, want the batch at %d", from, len(b), err, want)
		}
	}
	if b, err := s.Read(70, l.LogEnd(), 1, true, nil); err != nil || len(b) != 0 {
		t.Errorf("read at the end: %d bytes, %v", len(b), err)
	}
	// A segment that ends with a hole: the next segment's first batch.
	l2 := newNode(t, mem.New()).open()
	must(t, put(l2, build(t, plain(1), 0, 5)))
	must(t, l2.Roll())
	l2.segs[1].next, l2.end = 5, 5
	must(t, put(l2, build(t, plain(1), 5, 1), build(t, plain(1), 8, 1)))
	must(t, l2.Roll())
	must(t, put(l2, build(t, plain(1), 9, 1)))
	s2 := l2.Snapshot()
	defer s2.Release()
	if b, err := s2.Read(6, 10, 1, true, nil); err != nil || headers(b)[0].BaseOffset != 8 {
		t.Errorf("read 6: %d bytes, %v", len(b), err)
	}
}

func TestReport089FirstBatchLargerThanLimit(t *testing.T) {
	l := newNode(t, mem.New()).open()
	one, two := add(t, l, 1, 5), add(t, l, 1, 5)
	s := l.Snapshot()
	defer s.Release()
	cases := []struct {
		max    int
		minOne bool
		end    tiers.Offset
		want   []byte
	}{
		{len(one) - 1, true, 10, one},
		{len(one) - 1, false, 10, nil},
		{0, true, 10, one},
		{0, false, 10, nil},
		{len(one), false, 10, one},
		{len(one) + len(two) - 1, false, 10, one}, // never a part
		{len(one) + len(two), false, 10, slices.Concat(one, two)},
		{1 << 20, true, 10, slices.Concat(one, two)},
		{1 << 20, true, 9, one}, // nothing that ends above end
		{1 << 20, true, 4, nil},
		{1 << 20, true, 0, nil},
	}
	for _, c := range cases {
		asked := 0
		b, err := s.Read(0, c.end, c.max, c.minOne, func(n int) []byte { asked = n; return make([]byte, n) })
		if err != nil || !bytes.Equal(b, c.want) || asked > max(c.max, len(one)) {
			t.Errorf("max %d, minOne %t, end %d: %d bytes in %d, %v", c.max, c.minOne, c.end, len(b), asked, err)
		}
	}
	if _, err := s.Read(-1, 10, 1, true, nil); tiers.KindOf(err) != tiers.OffsetOutOfRange {
		t.Errorf("read below the start: %v", err)
	}
}

// Report 091: readers go on in segments that were dropped; the files go with the
// last of them.
func TestReport091DropUnderReader(t *testing.T) {
	n := newNode(t, mem.New())
	l := n.open()
	var all []byte
	for range 3 {
		all = append(all, add(t, l, 1, 4)...)
		must(t, l.Roll())
	}
	early := l.Snapshot()
	if early.segs[0].log.h != nil {
		early.segs[0].log.close() // opened only after the drop
	}
	must(t, l.DropBefore(11))
	if l.LocalLogStart() != 8 || l.LogStart() != 0 || len(l.Segments()) != 2 {
		t.Fatalf("local start %d, log start %d", l.LocalLogStart(), l.LogStart())
	}
	if got := readAll(t, early, 0, 12, 100); !bytes.Equal(got, all) {
		t.Errorf("the reader got %d bytes of %d", len(got), len(all))
	}
	late := l.Snapshot()
	if _, err := late.Read(3, 12, 100, true, nil); tiers.KindOf(err) != tiers.OffsetOutOfRange {
		t.Errorf("a later snapshot at 3: %v", err)
	}
	if got := leftovers(t, n); len(got) == 0 {
		t.Error("the files went under the reader")
	}
	early.Retain()
	early.Release()
	if got := leftovers(t, n); len(got) == 0 {
		t.Error("the files went with the first of two references")
	}
	early.Release()
	if got := leftovers(t, n); len(got) != 0 {
		t.Errorf("left are %v", got)
	}
	late.Release()
	must(t, l.DropBefore(100))
	if len(l.Segments()) != 1 {
		t.Error("the active segment stays, the others go")
	}
	n.close()
	if l = n.open(); l.LocalLogStart() != 12 || l.LogEnd() != 12 || !n.rec.Clean {
		t.Errorf("reopened: local start %d, end %d, %+v", l.LocalLogStart(), l.LogEnd(), n.rec)
	}
}

// leftovers are the files that wait for readers.
func leftovers(tb testing.TB, n *node) []string {
	tb.Helper()
	list, err := n.fs.ReadDir(genDir(n.options().Dir, 1))
	must(tb, err)
	var out []string
	for _, e := range list {
		if strings.HasSuffix(e.Name(), deletedSuffix) {
			out = append(out, e.Name())
		}
	}
	return out
}

// A truncation ends what an older snapshot reads, and no byte of the new history
// shows in it, not even where a segment is made again under the same name.
func TestTruncationUnderReader(t *testing.T) {
	n := newNode(t, mem.New())
	l := n.open()
	var old [][]byte
	for range 3 {
		old = append(old, add(t, l, 1, 4), add(t, l, 1, 4))
		must(t, l.Roll())
	}
	s := l.Snapshot()
	must(t, l.TruncateTo(12))
	for range 3 {
		add(t, l, 2, 4)
		must(t, l.Roll())
	}
	if got, want := readAll(t, s, 0, 24, 1<<20), slices.Concat(old[0], old[1], old[2]); !bytes.Equal(got, want) {
		t.Errorf("the old snapshot reads %d bytes, want the %d that were not cut", len(got), len(want))
	}
	if _, _, ok, err := s.FindTime(headers(old[5])[0].FirstTimestamp, 12, 24); ok || err != nil {
		t.Errorf("the old snapshot finds a time behind the cut: %v", err)
	}
	must(t, l.DropBefore(24)) // the segment that was shortened is dropped in its turn
	s.segs[1].log.close()
	if b, err := s.Read(8, 24, 1, true, nil); err != nil || !bytes.Equal(b, old[2]) {
		t.Errorf("the old snapshot at 8: %d bytes, %v", len(b), err)
	}
	must(t, l.TruncateTo(0))
	for range 3 {
		add(t, l, 3, 4)
		add(t, l, 3, 4)
		must(t, l.Roll())
	}
	s.Release()
	if got := leftovers(t, n); len(got) != 0 {
		t.Errorf("left are %v", got)
	}
	for _, base := range []tiers.Offset{0, 8, 16} {
		for _, suffix := range []string{logSuffix, indexSuffix, timeSuffix} {
			if _, err := n.fs.Stat(n.file(base, suffix)); err != nil {
				t.Errorf("the old reader took a file of the new history with it: %v", err)
			}
		}
	}
	n.close()
}

func TestSnapshotMisuse(t *testing.T) {
	n := newNode(t, mem.New())
	s := n.open().Snapshot()
	must(t, n.log.Close())
	s.Release()
	for i, f := range []func(){s.Release, s.Retain} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("misuse %d of a released snapshot went unnoticed", i)
				}
			}()
			f()
		}()
	}
	must(t, n.disk.Close())
}

// Report 105: side files that are missing or damaged do not keep a segment from
// being copied.
func TestReport105SideFilesAreMadeAgain(t *testing.T) {
	n := newNode(t, mem.New())
	l := n.open()
	p := batch.Builder{LeaderEpoch: 1, ProducerID: 7}
	txn := batch.Builder{LeaderEpoch: 1, ProducerID: 8, Transactional: true}
	for range 3 {
		for range 4 {
			must(t, put(l, build(t, p, l.LogEnd(), 2)))
			p.BaseSequence += 2
			must(t, put(l, build(t, txn, l.LogEnd(), 1)))
			txn.BaseSequence++
		}
		must(t, put(l, endTxn(t, 8, l.LogEnd(), true)))
		must(t, l.Roll())
	}
	s := l.Snapshot()
	defer s.Release()
	var want []*SegmentFiles
	for _, seg := range l.Segments()[:3] {
		f, err := s.Files(seg.Base)
		must(t, err)
		if f.Segment != seg || !seg.HasAborted || len(f.TxnIndex) != txnEntrySize || len(f.OffsetIndex) == 0 || len(f.TimeIndex) == 0 {
			t.Fatalf("%+v", f)
		}
		want = append(want, f)
	}
	if _, err := s.Files(l.Active().Base); err == nil {
		t.Error("the active segment was given to the copier")
	}
	if _, err := s.Files(1); err == nil {
		t.Error("a segment that is none was given to the copier")
	}
	for _, how := range []string{"missing", "empty", "zeroed", "cut"} {
		for _, seg := range l.Segments()[:3] {
			for _, suffix := range []string{indexSuffix, timeSuffix} {
				restoreOr(t, n.fs, n.file(seg.Base, suffix), how)
			}
			restoreOr(t, n.fs, n.file(seg.Next, snapshotSuffix), how)
		}
		for i, seg := range l.Segments()[:3] {
			f, err := s.Files(seg.Base)
			must(t, err)
			w := want[i]
			if !bytes.Equal(f.OffsetIndex, w.OffsetIndex) || !bytes.Equal(f.TimeIndex, w.TimeIndex) || !bytes.Equal(f.TxnIndex, w.TxnIndex) || !bytes.Equal(f.Producers, w.Producers) {
				t.Errorf("%s: segment %d: %x %x %x %x, want %x %x %x %x", how, seg.Base, f.OffsetIndex, f.TimeIndex, f.TxnIndex, f.Producers, w.OffsetIndex, w.TimeIndex, w.TxnIndex, w.Producers)
			}
			b, err := io.ReadAll(io.NewSectionReader(f.Log, 0, f.Segment.Size))
			if err != nil || !bytes.Equal(b, readAll(t, s, seg.Base, seg.Next, 1<<20)) {
				t.Errorf("%s: the log of segment %d has %d bytes, %v", how, seg.Base, len(b), err)
			}
		}
	}
}

// A damaged segment is reported rather than copied.
func TestReport105DamagedSegmentIsNotCopied(t *testing.T) {
	for _, at := range []int{8, 70, -1} {
		n, _ := threeSegments(t)
		s := n.log.Snapshot()
		n.log.segs[0].log.close()
		flipByte(t, n.fs, n.file(0, logSuffix), at)
		if _, err := s.Files(0); tiers.KindOf(err) != tiers.CorruptMessage {
			t.Errorf("byte %d: %v", at, err)
		}
		if _, err := s.Files(16); err != nil {
			t.Errorf("the next segment: %v", err)
		}
		s.Release()
	}
}

// restoreOr spoils a file that may be gone already.
func restoreOr(tb testing.TB, fsy fsys.FS, name, how string) {
	tb.Helper()
	if _, err := fsy.Stat(name); errors.Is(err, fs.ErrNotExist) {
		must(tb, fsys.WriteFileAtomic(fsy, name, []byte("0123456789"), 0o644))
	}
	spoil(tb, fsy, name, how)
}

// endTxn is the marker that ends the transaction of a producer.
func endTxn(tb testing.TB, id int64, at tiers.Offset, abort bool) []byte {
	tb.Helper()
	kind := byte(1)
	if abort {
		kind = 0
	}
	b := batch.Builder{LeaderEpoch: 1, ProducerID: id, BaseSequence: -1, Transactional: true, Control: true}
	out, err := b.Build([]batch.Record{{Offset: at, Timestamp: 1_700_000_000_000, Key: []byte{0, 0, 0, kind}, Value: []byte{0, 0, 0, 0, 0, 3}}})
	must(tb, err)
	return out
}

// stamped is a batch whose records have these timestamps.
func stamped(tb testing.TB, base tiers.Offset, codec batch.Codec, ts ...int64) []byte {
	tb.Helper()
	var rs []batch.Record
	for i, at := range ts {
		rs = append(rs, batch.Record{Offset: base + tiers.Offset(i), Timestamp: at, Value: make([]byte, 40)})
	}
	out, err := batch.Builder{LeaderEpoch: 1, ProducerID: -1, Codec: codec}.Build(rs)
	must(tb, err)
	return out
}

// times is a log of three segments whose timestamps are not in order.
func times(tb testing.TB) (*Log, []int64) {
	tb.Helper()
	l := newNode(tb, mem.New()).open()
	groups := [][]int64{{10, 30, 20}, {25, 5}, {40}, nil, {35, 36}, {50, 50, 45}, {1}, nil, {48}, {60, 2}, {60}}
	var all []int64
	for i, g := range groups {
		if g == nil {
			must(tb, l.Roll())
			continue
		}
		must(tb, put(l, stamped(tb, l.LogEnd(), batch.Codec(i%5), g...)))
		all = append(all, g...)
	}
	return l, all
}

func TestFindTime(t *testing.T) {
	l, all := times(t)
	s := l.Snapshot()
	defer s.Release()
	for ts := int64(0); ts <= 62; ts++ {
		for from := range tiers.Offset(len(all) + 1) {
			for end := from; end <= tiers.Offset(len(all)); end++ {
				want := slices.IndexFunc(all[from:end], func(at int64) bool { return at >= ts })
				o, at, ok, err := s.FindTime(ts, from, end)
				if err != nil || ok != (want >= 0) || ok && (o != from+tiers.Offset(want) || at != all[o]) {
					t.Fatalf("find %d in [%d,%d): %d at %d, %t, %v, want index %d", ts, from, end, o, at, ok, err, want)
				}
			}
		}
	}
}

func TestMaxTimestamp(t *testing.T) {
	l, all := times(t)
	s := l.Snapshot()
	defer s.Release()
	for from := range tiers.Offset(len(all) + 1) {
		for end := from; end <= tiers.Offset(len(all)); end++ {
			var newest int64
			var first tiers.Offset
			for o := from; o < end; o++ {
				if all[o] > newest {
					newest, first = all[o], o
				}
			}
			o, at, ok, err := s.MaxTimestamp(from, end)
			if err != nil || ok != (from < end) || ok && (o != first || at != newest) {
				t.Fatalf("newest in [%d,%d): %d at %d, %t, %v, want %d at %d", from, end, o, at, ok, err, first, newest)
			}
		}
	}
}

// Topics that stamp the append time, and records without a timestamp.
func TestTimesOfSpecialBatches(t *testing.T) {
	l := newNode(t, mem.New()).open()
	must(t, put(l, stamped(t, 0, batch.None, -1, -1)))
	s := l.Snapshot()
	defer s.Release()
	if _, _, ok, err := s.MaxTimestamp(0, 2); ok || err != nil {
		t.Errorf("a timestamp where none is: %v", err)
	}
	b := stamped(t, 2, batch.Gzip, 10, 20)
	batch.StampAppendTime(b, 77)
	must(t, put(l, b))
	if o, at, ok, err := s.FindTime(30, 0, 4); o != 2 || at != 77 || !ok || err != nil {
		t.Errorf("found %d at %d, %t, %v", o, at, ok, err)
	}
	if o, at, ok, err := s.MaxTimestamp(0, 4); o != 2 || at != 77 || !ok || err != nil {
		t.Errorf("newest is %d at %d, %t, %v", o, at, ok, err)
	}
	if f := l.Active(); f.MaxTimestamp != 77 {
		t.Errorf("newest of the segment is %d", f.MaxTimestamp)
	}
}

func TestAborted(t *testing.T) {
	n := newNode(t, mem.New())
	l := n.open()
	txn := func(id int64, seq int32) {
		must(t, put(l, build(t, batch.Builder{LeaderEpoch: 1, ProducerID: id, BaseSequence: seq, Transactional: true}, l.LogEnd(), 2)))
	}
	txn(1, 0)                              // 0,1
	txn(2, 0)                              // 2,3
	must(t, put(l, endTxn(t, 1, 4, true))) // [0,4] aborted, stable 2
	txn(1, 2)                              // 5,6
	must(t, l.Roll())
	must(t, put(l, endTxn(t, 2, 7, true)))  // [2,7] aborted, stable 5
	must(t, put(l, endTxn(t, 1, 8, false))) // [5,8] committed
	txn(3, 0)                               // 9,10
	must(t, l.Roll())
	must(t, put(l, endTxn(t, 3, 11, true))) // [9,11] aborted, stable 12
	txn(4, 0)                               // 12,13 open
	one, two, three := AbortedTxn{1, 0, 4, 2}, AbortedTxn{2, 2, 7, 5}, AbortedTxn{3, 9, 11, 12}
	cases := []struct {
		from, end tiers.Offset
		want      []AbortedTxn
	}{
		{0, 14, []AbortedTxn{one, two, three}},
		{0, 2, []AbortedTxn{one}},
		{5, 9, []AbortedTxn{two}},
		{8, 9, nil},
		{8, 12, []AbortedTxn{three}},
		{12, 14, nil},
		{4, 5, []AbortedTxn{one, two}},
	}
	check := func(when string) {
		t.Helper()
		s := l.Snapshot()
		defer s.Release()
		for _, c := range cases {
			got, err := s.Aborted(c.from, c.end)
			if err != nil || !slices.Equal(got, c.want) {
				t.Errorf("%s: aborted in [%d,%d): %+v, %v, want %+v", when, c.from, c.end, got, err, c.want)
			}
		}
		if l.FirstUndecided() != 12 {
			t.Errorf("%s: first undecided %d", when, l.FirstUndecided())
		}
	}
	check("written")
	must(t, l.Sync())
	l = n.losePower()
	check("recovered")
	n.close()
	l = n.open()
	check("reopened")
	n.close()
	spoil(t, n.fs, n.file(7, txnSuffix), "zeroed")
	spoil(t, n.fs, n.file(11, txnSuffix), "cut")
	l = n.open()
	check("with damaged indexes")
	must(t, l.TruncateTo(11))
	if l.FirstUndecided() != 9 {
		t.Errorf("after the marker was cut: first undecided %d", l.FirstUndecided())
	}
	n.close()
}

// Whatever bytes are in a log, reading ends and gives sound batches or an error.
func FuzzRead(f *testing.F) {
	one := build(f, plain(1), 0, 3)
	f.Add(one, int64(0))
	f.Add(slices.Concat(one, build(f, plain(1), 3, 2)), int64(3))
	f.Add(append(bytes.Clone(one), 1, 2, 3), int64(5))
	f.Fuzz(func(t *testing.T, data []byte, from int64) {
		n := newNode(t, mem.New())
		l := n.open()
		defer n.close()
		s := l.active()
		h, err := s.log.acquire()
		must(t, err)
		_, err = h.WriteAt(data, 0)
		must(t, err)
		h.release()
		s.size, s.next = int64(len(data)), 1<<31
		b, err := l.current.Read(tiers.Offset(from), 1<<31, 1<<20, true, nil)
		if err != nil && len(b) > 0 {
			t.Errorf("%d bytes and %v", len(b), err)
		}
		for one, err := range batch.Split(b) {
			if err != nil || !batch.VerifyCRC(one.Bytes) {
				t.Errorf("not a batch: %v", err)
			}
		}
		_, _, _, _ = l.current.FindTime(0, 0, 1<<31)
		s.size, s.next = 0, 0
	})
}

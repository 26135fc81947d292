package remoteindex

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/strandline-io/strandline/tiers"
)

func in(s tiers.RemoteSegment, st tiers.SegmentState) tiers.RemoteSegment {
	s.State = st
	return s
}

// s6.1: from each state to each, and what a first row may be.
func TestApplyKeepsTheLifecycle(t *testing.T) {
	states := []tiers.SegmentState{tiers.CopyStarted, tiers.CopyFinished, tiers.DeleteStarted, tiers.DeleteFinished}
	s := seg(1, 0, 9, lin(1, 0))
	for _, to := range states {
		x, err := index(t).Apply(in(s, to))
		if (err == nil) != (to == tiers.CopyStarted || to == tiers.DeleteFinished) {
			t.Errorf("first %s: %v", to, err)
		}
		if want := to == tiers.CopyStarted; (x.Rows() == 1) != want {
			t.Errorf("first %s: %d rows", to, x.Rows())
		}
	}
	for _, from := range states[:3] {
		for _, to := range states {
			was := index(t, in(s, from))
			x, err := was.Apply(in(s, to))
			if (err == nil) != from.CanMove(to) {
				t.Errorf("%s to %s: %v", from, to, err)
			}
			if err != nil && tiers.KindOf(err) != tiers.Conflict {
				t.Errorf("%s to %s: kind %s", from, to, tiers.KindOf(err))
			}
			if (err != nil || from == to) && x != was {
				t.Errorf("%s to %s: the index changed", from, to)
			}
			got, there := x.Get(s.ID)
			if want := err != nil || to != tiers.DeleteFinished; there != want {
				t.Errorf("%s to %s: the row is there: %v", from, to, there)
			} else if there && err == nil && got.State != to {
				t.Errorf("%s to %s: it is %s", from, to, got.State)
			}
			_, readable := x.ByEpochOffset(1, 5)
			if want := there && got.State == tiers.CopyFinished; readable != want {
				t.Errorf("%s to %s: readable %v", from, to, readable)
			}
			if n, bytes := x.Readable(); (n == 1) != readable || (bytes == 100) != readable {
				t.Errorf("%s to %s: %d readable, %d bytes", from, to, n, bytes)
			}
		}
	}
}

func TestApplyRefusesOtherFacts(t *testing.T) {
	s := seg(1, 0, 9, lin(1, 0))
	x := index(t, in(s, tiers.CopyStarted))
	for name, bend := range map[string]func(*tiers.RemoteSegment){
		"another partition": func(s *tiers.RemoteSegment) { s.Partition.Index++ },
		"another topic id":  func(s *tiers.RemoteSegment) { s.Partition.Topic[0]++ },
		"another history":   func(s *tiers.RemoteSegment) { s.Gen++ },
		"another end":       func(s *tiers.RemoteSegment) { s.End++ },
		"another lineage":   func(s *tiers.RemoteSegment) { s.Epochs = lin(2, 0) },
		"no size":           func(s *tiers.RemoteSegment) { s.Size = 0 },
		"no state":          func(s *tiers.RemoteSegment) { s.State = 0 },
		"a state too many":  func(s *tiers.RemoteSegment) { s.State = 5 },
	} {
		bad := s
		bend(&bad)
		if y, err := x.Apply(bad); tiers.KindOf(err) != tiers.Conflict || y != x {
			t.Errorf("%s: %v", name, err)
		}
	}
	if y, err := x.Apply(s); err != nil || y == x {
		t.Errorf("the right row: %v", err)
	}
}

func TestMove(t *testing.T) {
	s := seg(1, 0, 9, lin(1, 0))
	x := index(t, in(s, tiers.CopyStarted))
	x, err := x.Move(s.ID, tiers.CopyFinished)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := x.ByEpochOffset(1, 9); !ok {
		t.Fatal("not readable")
	}
	if _, err := x.Move(s.ID, tiers.DeleteFinished); tiers.KindOf(err) != tiers.Conflict {
		t.Fatal(err)
	}
	if _, err := x.Move(tiers.SegmentID{9}, tiers.DeleteStarted); tiers.KindOf(err) != tiers.Conflict {
		t.Fatal(err)
	}
	if _, err := x.Move(tiers.SegmentID{9}, tiers.DeleteFinished); err != nil {
		t.Fatal(err)
	}
}

func TestNewLeavesBadRowsOutAndNamesThem(t *testing.T) {
	good, other, torn := seg(1, 0, 9, lin(1, 0)), seg(2, 10, 19, lin(1, 10)), seg(3, 20, 29, nil)
	other.Gen = 2
	x, err := New(partition(), 1, []tiers.RemoteSegment{torn, good, other, good, in(seg(4, 40, 49, lin(1, 40)), tiers.DeleteFinished)})
	if x.Rows() != 1 {
		t.Fatalf("%d rows", x.Rows())
	}
	for _, want := range []string{"history 2", "does not fit", "two rows"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
	if _, ok := x.ByEpochOffset(1, 9); !ok {
		t.Fatal("the good row is not readable")
	}
}

func TestListsNameEveryState(t *testing.T) {
	x := index(t, seg(1, 0, 9, lin(1, 0)), in(seg(2, 10, 19, lin(1, 10, 2, 15)), tiers.CopyStarted), in(seg(3, 20, 29, lin(2, 20)), tiers.DeleteStarted))
	bases := func(seq func(func(tiers.RemoteSegment) bool)) (out []tiers.Offset) {
		for s := range seq {
			out = append(out, s.Base)
		}
		return out
	}
	if got := bases(x.All()); !slices.Equal(got, []tiers.Offset{0, 10, 20}) {
		t.Errorf("all: %v", got)
	}
	if got := bases(x.OfEpoch(2)); !slices.Equal(got, []tiers.Offset{10, 20}) {
		t.Errorf("epoch 2: %v", got)
	}
	if got := bases(x.OfEpoch(7)); got != nil {
		t.Errorf("epoch 7: %v", got)
	}
	for range x.All() {
		break
	}
	for _, o := range []tiers.Offset{12, 25} {
		for e := range tiers.LeaderEpoch(3) {
			if s, ok := x.ByEpochOffset(e, o); ok {
				t.Errorf("offset %d of epoch %d is read from a segment that is %s", o, e, s.State)
			}
		}
	}
}

func TestByEpochOffsetEndsWithTheEpoch(t *testing.T) {
	x := index(t, seg(1, 50, 119, lin(0, 50, 2, 80, 3, 100)))
	for _, c := range []struct {
		e    tiers.LeaderEpoch
		o    tiers.Offset
		want bool
	}{{0, 49, false}, {0, 50, true}, {0, 79, true}, {0, 80, false}, {2, 79, false}, {2, 80, true}, {2, 99, true}, {2, 100, false}, {3, 119, true}, {3, 120, false}, {1, 60, false}} {
		if _, ok := x.ByEpochOffset(c.e, c.o); ok != c.want {
			t.Errorf("(%d,%d): %v", c.e, c.o, ok)
		}
	}
}

// Highest counts what was readable once, deleted or not, but nothing that was
// only begun.
func TestHighestRemembersWhatWasDeleted(t *testing.T) {
	s := seg(1, 0, 9, lin(1, 0, 2, 5))
	x := index(t, s, in(seg(2, 10, 19, lin(2, 10)), tiers.CopyStarted))
	for _, st := range []tiers.SegmentState{tiers.DeleteStarted, tiers.DeleteFinished} {
		var err error
		if x, err = x.Move(s.ID, st); err != nil {
			t.Fatal(err)
		}
	}
	if end, ok := x.Highest(2); !ok || end != 10 {
		t.Errorf("epoch 2: %d, %v", end, ok)
	}
	if end, ok := x.Highest(1); !ok || end != 5 {
		t.Errorf("epoch 1: %d, %v", end, ok)
	}
	if _, ok := x.Highest(3); ok {
		t.Error("epoch 3 was never readable")
	}
	late := seg(3, 40, 59, lin(4, 40))
	x = index(t, seg(4, 20, 39, lin(4, 20)), in(late, tiers.DeleteStarted))
	if end, ok := x.Highest(4); !ok || end != 60 {
		t.Errorf("epoch 4, of which an earlier segment is left: %d, %v", end, ok)
	}
}

// Rows that contradict log matching (B4) do not hide good ones: the larger segment
// reaches as far in epoch 2, but what it holds before is not the log's.
func TestFindLooksBehindARowThatIsNotTheLogs(t *testing.T) {
	x := index(t, seg(1, 0, 19, lin(1, 0, 2, 10)), seg(2, 10, 14, lin(2, 10)))
	p, w := x.Find(12, Truth{lin(0, 0, 2, 10), 0, 100})
	if w != Covered || p.Segment.Base != 10 || p.End != 15 {
		t.Fatalf("%d, segment %d to %d", w, p.Segment.Base, p.End)
	}
}

func TestSafeRangeBeginsWithTheLog(t *testing.T) {
	for _, c := range []struct {
		s          tiers.RemoteSegment
		truth      Truth
		start, end tiers.Offset
	}{
		{seg(1, 20, 59, lin(0, 20)), Truth{lin(0, 0), 40, 100}, 40, 60},
		{seg(1, 20, 59, lin(0, 20, 2, 40)), Truth{lin(1, 0, 2, 40), 40, 100}, 40, 60}, // What lies below the start may differ.
		{seg(1, 20, 59, lin(0, 20)), Truth{lin(0, 30), 0, 100}, 30, 60},
		{seg(1, 20, 59, lin(0, 20)), Truth{lin(0, 0), 0, 10}, 20, 20},
		{seg(1, 20, 59, lin(0, 20)), Truth{nil, 0, 100}, 20, 20},
		{seg(1, 20, 59, lin(0, 20)), Truth{lin(0, 0), 70, 100}, 70, 70},
	} {
		if start, end := SafeRange(c.s, c.truth); start != c.start || end != c.end {
			t.Errorf("%s in %+v: [%d,%d), want [%d,%d)", c.s.Epochs, c.truth, start, end, c.start, c.end)
		}
	}
}

// Report 037: two copies overlap in one epoch, 0-100 and 0-200. Reads at 95 and
// 150 use the live one, in whatever order they came; deleting the loser changes
// nothing for readers, deleting the winner leaves what the loser holds.
func TestReport037_DeletingTheLoserNeverHidesTheWinner(t *testing.T) {
	short, long := seg(1, 0, 99, lin(1, 0)), seg(2, 0, 199, lin(1, 0))
	inner := seg(3, 50, 120, lin(1, 50)) // A floor by start alone would lead here and end at 120.
	for _, segs := range [][]tiers.RemoteSegment{{short, long, inner}, {long, short, inner}, {inner, long, short}, {inner, short, long}} {
		x := index(t, segs...)
		reads := func(x *Index, want tiers.SegmentID, offsets ...tiers.Offset) {
			t.Helper()
			for _, o := range offsets {
				if s, ok := x.ByEpochOffset(1, o); !ok || s.ID != want {
					t.Errorf("offset %d is read from [%d,%d), %v", o, s.Base, s.End, ok)
				}
			}
		}
		reads(x, long.ID, 0, 95, 110, 121, 150, 199)
		lost := x.Unreferenced()
		if len(lost) != 2 || lost[0].ID != short.ID || lost[1].ID != inner.ID {
			t.Fatalf("unreferenced: %v", lost)
		}
		without := x
		for _, l := range lost {
			for _, st := range []tiers.SegmentState{tiers.DeleteStarted, tiers.DeleteFinished} {
				var err error
				if without, err = without.Move(l.ID, st); err != nil {
					t.Fatal(err)
				}
			}
			reads(without, long.ID, 0, 95, 110, 121, 150, 199)
		}
		back, err := x.Move(long.ID, tiers.DeleteStarted)
		if err != nil {
			t.Fatal(err)
		}
		reads(back, short.ID, 0, 49)
		reads(back, inner.ID, 100, 120)
		if _, ok := back.ByEpochOffset(1, 121); ok {
			t.Error("offset 121 is read from a deleted segment")
		}
	}
}

func TestOfEqualCopiesTheLaterIsRead(t *testing.T) {
	a, b := seg(1, 0, 99, lin(1, 0)), seg(2, 0, 99, lin(1, 0))
	a.CopierEpoch = 7 // A later leader than b's, with an earlier clock.
	for _, segs := range [][]tiers.RemoteSegment{{a, b}, {b, a}} {
		if s, _ := index(t, segs...).ByEpochOffset(1, 5); s.ID != a.ID {
			t.Errorf("read from %s", s.ID)
		}
	}
}

func TestTotalsCountWhatIsInTheLineage(t *testing.T) {
	a, b, foreign, below := seg(1, 40, 59, lin(0, 40)), seg(2, 60, 99, lin(0, 60)), seg(3, 60, 99, lin(1, 60)), seg(4, 0, 39, lin(0, 0))
	a.MaxTimestamp, b.MaxTimestamp, b.Size = 9, 5, 50
	x := index(t, a, b, foreign, below, in(seg(5, 100, 109, lin(0, 100)), tiers.CopyStarted), seg(6, 100, 209, lin(0, 100)))
	if got := x.Totals(lin(0, 0), 40, 200); got != (Totals{Segments: 2, Bytes: 150, Newest: 9}) {
		t.Fatalf("%+v", got)
	}
	if got := index(t).Totals(lin(0, 0), 0, 10); got != (Totals{Newest: -1}) {
		t.Fatalf("%+v", got)
	}
}

// R12: agreement per offset; report 125: an epoch that the lineage has forgotten
// does not keep a segment for ever.
func TestReport125_Within(t *testing.T) {
	for _, c := range []struct {
		name  string
		s     tiers.RemoteSegment
		l     tiers.Lineage
		start tiers.Offset
		end   tiers.Offset
		want  bool
	}{
		{"whole", seg(1, 0, 99, lin(1, 0, 2, 50)), lin(1, 0, 2, 50), 0, 200, true},
		{"its first epoch began earlier", seg(1, 20, 99, lin(1, 20, 2, 50)), lin(1, 0, 2, 50), 0, 200, true},
		{"its last epoch ends later", seg(1, 0, 69, lin(1, 0, 2, 50)), lin(1, 0, 2, 50, 3, 90), 0, 200, true},
		{"straddles a forgotten epoch", seg(1, 0, 99, lin(1, 0, 2, 50)), lin(2, 60), 60, 200, true},
		{"another start of an epoch", seg(1, 0, 99, lin(1, 0, 2, 50)), lin(1, 0, 2, 51), 0, 200, false},
		{"an epoch too many", seg(1, 0, 99, lin(1, 0, 2, 50, 3, 60)), lin(1, 0, 2, 50), 0, 200, false},
		{"an epoch too few", seg(1, 0, 99, lin(1, 0)), lin(1, 0, 2, 50), 0, 200, false},
		{"ends behind the log", seg(1, 0, 99, lin(1, 0)), lin(1, 0), 0, 99, false},
		{"ends with the log", seg(1, 0, 99, lin(1, 0)), lin(1, 0), 0, 100, true},
		{"below the log", seg(1, 0, 49, lin(1, 0)), lin(1, 50), 50, 100, false},
	} {
		if got := Within(c.s, c.l, c.start, c.end); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// world is rows in any state, of any shape, and a lineage.
type world struct {
	rows  []tiers.RemoteSegment
	truth Truth
	end   tiers.Offset
}

func drawLineage(t *rapid.T, name string, from tiers.Offset, n int) tiers.Lineage {
	var l tiers.Lineage
	e, o := tiers.LeaderEpoch(rapid.IntRange(0, 2).Draw(t, name+" epoch")), from
	for range n {
		l = append(l, tiers.EpochStart{Epoch: e, Start: o})
		e += tiers.LeaderEpoch(rapid.IntRange(1, 2).Draw(t, name+" epoch"))
		o += tiers.Offset(rapid.IntRange(1, 12).Draw(t, name+" start"))
	}
	return l
}

func drawWorld(t *rapid.T) world {
	var w world
	w.end = tiers.Offset(rapid.IntRange(0, 45).Draw(t, "log end"))
	w.truth = Truth{
		Lineage: drawLineage(t, "auth", tiers.Offset(rapid.IntRange(0, 10).Draw(t, "auth from")), rapid.IntRange(0, 4).Draw(t, "auth entries")),
		Start:   tiers.Offset(rapid.IntRange(0, 20).Draw(t, "start")),
		Bound:   tiers.Offset(rapid.IntRange(0, 50).Draw(t, "bound")),
	}
	for i := range rapid.IntRange(0, 9).Draw(t, "rows") {
		base := tiers.Offset(rapid.IntRange(0, 35).Draw(t, "base"))
		end := base + tiers.Offset(rapid.IntRange(1, 15).Draw(t, "len"))
		epochs := w.truth.Lineage.Slice(base, end)
		if len(epochs) == 0 || epochs[0].Start != base || rapid.IntRange(0, 2).Draw(t, "own") == 0 {
			epochs = drawLineage(t, "seg", base, rapid.IntRange(1, 3).Draw(t, "entries")).TruncateEnd(end)
		}
		s := seg(i+1, base, end-1, epochs)
		s.State = rapid.SampledFrom([]tiers.SegmentState{tiers.CopyStarted, tiers.CopyFinished, tiers.CopyFinished, tiers.CopyFinished, tiers.DeleteStarted}).Draw(t, "state")
		s.CreatedAt = time.Unix(int64(rapid.IntRange(0, 3).Draw(t, "created")), 0)
		w.rows = append(w.rows, s)
	}
	return w
}

// holds looks at each offset alone: whether the segment holds o as the log has it.
func (w world) holds(s tiers.RemoteSegment, o tiers.Offset) bool {
	return s.State == tiers.CopyFinished && o >= s.Base && o < s.End && o >= w.truth.Start && o < w.truth.Bound &&
		w.truth.Lineage.EpochFor(o) != tiers.NoEpoch && s.Epochs.EpochFor(o) == w.truth.Lineage.EpochFor(o)
}

// readable is holds, and the same for all offsets of the segment before o that
// are in the log (R14).
func (w world) readable(s tiers.RemoteSegment, o tiers.Offset) bool {
	if len(w.truth.Lineage) == 0 {
		return false
	}
	for p := max(s.Base, w.truth.Start, w.truth.Lineage[0].Start); p <= o; p++ {
		if !w.holds(s, p) {
			return false
		}
	}
	return w.holds(s, o)
}

func (w world) served(o tiers.Offset) bool {
	return slices.ContainsFunc(w.rows, func(s tiers.RemoteSegment) bool { return w.readable(s, o) })
}

// Every answer agrees with a model that looks at one offset of one segment at a
// time.
func TestLookUpAgreesWithEachOffset(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		x, err := New(partition(), 1, w.rows)
		if err != nil {
			t.Fatal(err)
		}
		for o := range tiers.Offset(55) {
			w.find(t, x, o)
			for e := range tiers.LeaderEpoch(8) {
				_, got := x.ByEpochOffset(e, o)
				want := slices.ContainsFunc(w.rows, func(s tiers.RemoteSegment) bool {
					return s.State == tiers.CopyFinished && o >= s.Base && o < s.End && s.Epochs.EpochFor(o) == e
				})
				if got != want {
					t.Fatalf("byEpochOffset(%d,%d): %v, want %v", e, o, got, want)
				}
			}
		}
		c := w.truth.Start
		for w.served(c) {
			c++
		}
		if got := x.Coverage(w.truth); got != c {
			t.Fatalf("coverage %d, want %d of %+v", got, c, w)
		}
		want := tiers.NoOffset
		if c > w.truth.Start && w.end > w.truth.Start {
			want = min(c, w.end) - 1
		}
		if got := x.HighestRemote(w.truth, w.end); got != want {
			t.Fatalf("highest remote %d, want %d", got, want)
		}
	})
}

func (w world) find(t *rapid.T, x *Index, o tiers.Offset) {
	p, where := x.Find(o, w.truth)
	want := NoCover
	switch {
	case o < w.truth.Start:
		want = BelowStart
	case w.served(o):
		want = Covered
	}
	if where != want {
		t.Fatalf("offset %d: %d, want %d of %+v", o, where, want, w)
	}
	if where != Covered {
		return
	}
	if p.From != o || p.End <= o {
		t.Fatalf("offset %d: [%d,%d)", o, p.From, p.End)
	}
	for q := o; q < p.End; q++ {
		if !w.readable(p.Segment, q) {
			t.Fatalf("offset %d: [%d,%d) has %d, which is not the log's", o, p.From, p.End, q)
		}
	}
	if w.readable(p.Segment, p.End) {
		t.Fatalf("offset %d: the segment could be read beyond %d", o, p.End)
	}
	if next, ok := x.Next(o, w.truth); ok && (next.From <= o || !w.readable(next.Segment, next.From)) {
		t.Fatalf("next after %d: [%d,%d)", o, next.From, next.End)
	}
}

// The rows tell the index: not their order, nor whether they came one by one.
func TestIndexIsAFunctionOfItsRows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		a, err := New(partition(), 1, w.rows)
		if err != nil {
			t.Fatal(err)
		}
		b, err := New(partition(), 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range rapid.Permutation(w.rows).Draw(t, "order") {
			was, kept := b, describe(b)
			for _, st := range []tiers.SegmentState{tiers.CopyStarted, tiers.CopyFinished, tiers.DeleteStarted} {
				if st == tiers.CopyFinished && s.State == tiers.DeleteStarted {
					continue
				}
				if st <= s.State {
					if b, err = b.Apply(in(s, st)); err != nil {
						t.Fatal(err)
					}
				}
			}
			if describe(was) != kept {
				t.Fatal("an index changed under its reader")
			}
		}
		if describe(a) != describe(b) {
			t.Fatalf("%s\n%s", describe(a), describe(b))
		}
		for _, s := range a.Unreferenced() {
			if a, err = a.Move(s.ID, tiers.DeleteStarted); err != nil {
				t.Fatal(err)
			}
			if a, err = a.Move(s.ID, tiers.DeleteFinished); err != nil {
				t.Fatal(err)
			}
		}
		if spans(a) != spans(b) {
			t.Fatal("deleting what is not referenced changed a look-up")
		}
	})
}

// Many rows that move at once end where they would one by one.
func TestMoveAllIsMoveOfEach(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		x, err := New(partition(), 1, w.rows)
		if err != nil {
			t.Fatal(err)
		}
		kept := describe(x)
		to := rapid.SampledFrom([]tiers.SegmentState{tiers.CopyFinished, tiers.DeleteStarted, tiers.DeleteFinished}).Draw(t, "to")
		ids := []tiers.SegmentID{{99}} // is not there
		want, all := x, true
		for _, s := range w.rows {
			if !rapid.Bool().Draw(t, "move") {
				continue
			}
			ids = append(ids, s.ID)
			if next, err := want.Move(s.ID, to); err == nil {
				want = next
			} else {
				all = false
			}
		}
		got, moved := x.MoveAll(ids, to)
		if describe(got) != describe(want) || moved != all {
			t.Fatalf("%v\n%s\nwant %v\n%s", moved, describe(got), all, describe(want))
		}
		if describe(x) != kept {
			t.Fatal("an index changed under its reader")
		}
	})
}

func describe(x *Index) string {
	s := fmt.Sprint(spans(x), x.count, x.bytes, x.highest)
	for r := range x.All() {
		s += fmt.Sprint(r)
	}
	return s
}

func spans(x *Index) string {
	var s strings.Builder
	for e := range tiers.LeaderEpoch(12) {
		for _, sp := range x.epochs[e] {
			fmt.Fprintf(&s, "%d:[%d,%d)%s ", e, sp.start, sp.end, sp.seg.ID)
		}
	}
	return s.String()
}

// The copied cursor is never above what the log has, and never in the middle of
// the cover while the disk could close a hole.
func TestCopiedNeverSkipsWhatTheDiskHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		x, err := New(partition(), 1, w.rows)
		if err != nil {
			t.Fatal(err)
		}
		s := CopyState{Truth: w.truth, Log: w.truth.Lineage.TruncateEnd(w.end), LocalFrom: tiers.Offset(rapid.IntRange(0, 45).Draw(t, "local from")), LogEnd: w.end}
		end, hole := x.Copied(s)
		if end < 0 || end > w.end {
			t.Fatalf("copied end %d of a log that ends at %d", end, w.end)
		}
		w.truth.Bound = w.end
		for o := max(w.truth.Start, s.LocalFrom); o < end; o++ {
			if !w.served(o) && !hole && o >= s.LocalFrom && x.Coverage(w.truth) >= s.LocalFrom {
				t.Fatalf("copied end %d, but %d is in no segment", end, o)
			}
		}
		if hole && (end <= x.Coverage(w.truth) || s.LocalFrom <= x.Coverage(w.truth) && x.Coverage(w.truth) < w.end) {
			t.Fatalf("alarm without a hole: copied end %d, coverage %d", end, x.Coverage(w.truth))
		}
	})
}

func BenchmarkFind(b *testing.B) {
	rows := make([]tiers.RemoteSegment, 10_000)
	for i := range rows {
		rows[i] = seg(i+1, tiers.Offset(i*1000), tiers.Offset(i*1000+999), lin(int64(i/100), int64(i*1000)))
	}
	x, err := New(partition(), 1, rows)
	if err != nil {
		b.Fatal(err)
	}
	var l tiers.Lineage
	for i := range 100 {
		l = append(l, tiers.EpochStart{Epoch: tiers.LeaderEpoch(i), Start: tiers.Offset(i * 100_000)})
	}
	truth := Truth{l, 0, 10_000_000}
	b.Run("find", func(b *testing.B) {
		b.ReportAllocs()
		o := tiers.Offset(0)
		for b.Loop() {
			if _, w := x.Find(o, truth); w != Covered {
				b.Fatal(o)
			}
			o = (o + 7_654_321) % 10_000_000
		}
	})
	b.Run("coverage", func(b *testing.B) {
		for b.Loop() {
			if x.Coverage(truth) != 10_000_000 {
				b.Fatal("hole")
			}
		}
	})
	b.Run("apply", func(b *testing.B) {
		b.ReportAllocs()
		s := in(seg(20_000, 10_000_000, 10_000_999, lin(99, 10_000_000)), tiers.CopyStarted)
		for b.Loop() {
			y, err := x.Apply(s)
			if err != nil {
				b.Fatal(err)
			}
			if _, err = y.Move(s.ID, tiers.CopyFinished); err != nil {
				b.Fatal(err)
			}
		}
	})
}

package tiers

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func lin(pairs ...int64) Lineage {
	var l Lineage
	for i := 0; i < len(pairs); i += 2 {
		l = append(l, EpochStart{LeaderEpoch(pairs[i]), Offset(pairs[i+1])})
	}
	return l
}

func TestTVB1_AssignDropsWhatItOvertakes(t *testing.T) {
	got := lin(1, 0).Assign(2, 8).Assign(3, 8)
	if want := lin(1, 0, 3, 8); !slices.Equal(got, want) {
		t.Fatalf("%s, want %s", got, want)
	}
}

func TestAssign(t *testing.T) {
	for _, c := range []struct {
		from Lineage
		e    LeaderEpoch
		s    Offset
		want Lineage
	}{
		{nil, 4, 7, lin(4, 7)},
		{lin(1, 0, 3, 10), 3, 10, lin(1, 0, 3, 10)},
		{lin(1, 0, 3, 10), 3, 12, lin(1, 0, 3, 10)}, // Already the last epoch.
		{lin(1, 0, 3, 10), 3, 9, lin(1, 0, 3, 9)},   // It starts earlier.
		{lin(1, 0, 3, 10), 2, 12, lin(1, 0, 2, 12)},
		{lin(1, 0, 3, 10), 5, 0, lin(5, 0)},
		{lin(1, 0, 3, 10), 1, 20, lin(1, 20)}, // Kafka's cache moves the entry; B7 is why appends do not use Assign.
	} {
		before := slices.Clone(c.from)
		if got := c.from.Assign(c.e, c.s); !slices.Equal(got, c.want) {
			t.Errorf("%s assign(%d,%d) = %s, want %s", c.from, c.e, c.s, got, c.want)
		}
		if !slices.Equal(c.from, before) {
			t.Errorf("assign changed its receiver %s to %s", before, c.from)
		}
	}
}

func TestTVB2_Truncate(t *testing.T) {
	l := lin(1, 0, 3, 10, 5, 20)
	for _, c := range []struct {
		name      string
		got, want Lineage
	}{
		{"truncateEnd(10)", l.TruncateEnd(10), lin(1, 0)},
		{"truncateEnd(0)", l.TruncateEnd(0), nil},
		{"truncateEnd(11)", l.TruncateEnd(11), lin(1, 0, 3, 10)},
		{"truncateEnd(21)", l.TruncateEnd(21), l},
		{"truncateStart(12)", l.TruncateStart(12), lin(3, 12, 5, 20)},
		{"truncateStart(20)", l.TruncateStart(20), lin(5, 20)},
		{"truncateStart(0)", l.TruncateStart(0), l},
		{"truncateStart(99)", l.TruncateStart(99), lin(5, 99)},
		{"truncateStart before the first", lin(1, 5).TruncateStart(3), lin(1, 5)},
		{"truncateStart of nothing", Lineage(nil).TruncateStart(3), nil},
		{"slice [5,15)", l.Slice(5, 15), lin(1, 5, 3, 10)},
		{"slice [10,20)", l.Slice(10, 20), lin(3, 10)},
		{"slice of an empty range", l.Slice(10, 10), nil},
		{"slice before the log", lin(2, 10).Slice(5, 15), lin(2, 10)},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s: %s, want %s", c.name, c.got, c.want)
		}
	}
	if !slices.Equal(l, lin(1, 0, 3, 10, 5, 20)) {
		t.Fatalf("the receiver became %s", l)
	}
}

func TestTVB3_EndFor(t *testing.T) {
	for _, c := range []struct {
		l    Lineage
		end  Offset
		q, e LeaderEpoch
		want Offset
		ok   bool
	}{
		{lin(1, 0, 3, 10), 12, 2, 1, 10, true},
		{lin(1, 0, 3, 10), 12, 3, 3, 12, true},
		{lin(1, 0, 3, 10), 12, 7, NoEpoch, NoOffset, false},
		{lin(1, 0, 3, 10), 12, 0, 0, 0, true},
		{lin(1, 0, 3, 10), 12, 1, 1, 10, true},
		{lin(1, 0, 3, 10), 12, NoEpoch, NoEpoch, NoOffset, false},
		{nil, 12, 3, NoEpoch, NoOffset, false},
		{lin(4, 50), 60, 2, 2, 50, true},
		// The answers that TV-T1, T4, T5, T7 and T8 build on.
		{lin(1, 0, 3, 4, 6, 10), 12, 5, 3, 10, true},
		{lin(1, 0, 2, 4, 4, 6, 5, 8), 9, 3, 2, 6, true},
		{lin(1, 0, 4, 5), 9, 3, 1, 5, true},
		{lin(1, 0, 2, 5), 9, 7, NoEpoch, NoOffset, false},
		{lin(2, 0, 4, 6), 9, 3, 2, 6, true},
		{lin(3, 0), 4, 2, 2, 0, true},
	} {
		if e, end, ok := c.l.EndFor(c.q, c.end); e != c.e || end != c.want || ok != c.ok {
			t.Errorf("%s log end %d: endFor(%d) = (%d,%d,%v), want (%d,%d,%v)", c.l, c.end, c.q, e, end, ok, c.e, c.want, c.ok)
		}
	}
}

// TV-L4 of the specification's s11: a leader epoch that was recorded and owns no
// record gives way, and E_d keeps its start.
func TestTVL4_B7_AppendKeepsTheStartOfAnEpoch(t *testing.T) {
	recorded := lin(0, 0, 2, 80, 3, 100, 5, 150) // Epoch 5 was recorded at election.
	got, err := recorded.Append(3, 150, 150)
	if err != nil {
		t.Fatal(err)
	}
	if want := lin(0, 0, 2, 80, 3, 100); !slices.Equal(got, want) {
		t.Fatalf("%s, want %s", got, want)
	}
	if e := got.EpochFor(120); e != 3 {
		t.Fatalf("epochFor(120) = %d, want 3", e)
	}
	if upstream := lin(0, 0, 2, 80, 3, 100).Assign(5, 150).Assign(3, 150); !slices.Equal(upstream, lin(0, 0, 2, 80, 3, 150)) {
		t.Fatalf("the vector's other side: upstream gives %s", upstream)
	}
}

func TestB7_Append(t *testing.T) {
	for _, c := range []struct {
		from         Lineage
		e            LeaderEpoch
		base, logEnd Offset
		want         Lineage
		fails        bool
	}{
		{nil, 2, 0, 0, lin(2, 0), false},
		{lin(2, 0), 2, 10, 10, lin(2, 0), false},
		{lin(2, 0), 3, 10, 10, lin(2, 0, 3, 10), false},
		{lin(2, 0, 3, 10), 3, 10, 10, lin(2, 0, 3, 10), false}, // Recorded at election, now used.
		{lin(2, 0, 3, 10), 4, 10, 10, lin(2, 0, 4, 10), false}, // Epoch 3 wrote nothing.
		{lin(2, 0, 3, 10), 2, 10, 10, lin(2, 0), false},
		{lin(2, 0, 3, 10), 2, 11, 11, lin(2, 0, 3, 10), true}, // Epoch 3 owns record 10.
		{lin(2, 0, 3, 10, 4, 12), 5, 10, 10, lin(2, 0, 5, 10), false},
		{lin(2, 0, 3, 10, 4, 12), 4, 10, 10, lin(2, 0, 4, 10), false},
		{lin(2, 0, 3, 10), 3, 14, 10, lin(2, 0, 3, 10), false}, // Never forward.
		{lin(2, 0), 3, 9, 10, lin(2, 0), true},                 // Below the end of the log.
		{lin(2, 0), -1, 10, 10, lin(2, 0), true},
	} {
		before := slices.Clone(c.from)
		got, err := c.from.Append(c.e, c.base, c.logEnd)
		if (err != nil) != c.fails || !slices.Equal(got, c.want) {
			t.Errorf("%s append(%d, %d) at end %d = %s, %v; want %s, fails %v", c.from, c.e, c.base, c.logEnd, got, err, c.want, c.fails)
		}
		if !slices.Equal(c.from, before) {
			t.Errorf("append changed its receiver %s to %s", before, c.from)
		}
	}
}

func TestB5_Valid(t *testing.T) {
	for _, l := range []Lineage{nil, lin(0, 0), lin(1, 5, 2, 6)} {
		if err := l.Valid(); err != nil {
			t.Errorf("%s: %v", l, err)
		}
	}
	for _, l := range []Lineage{lin(1, 0, 1, 5), lin(2, 0, 1, 5), lin(1, 5, 2, 5), lin(1, 5, 2, 4), lin(-1, 0), lin(1, -5)} {
		if err := l.Valid(); err == nil {
			t.Errorf("%s passes", l)
		}
	}
}

func TestLineageString(t *testing.T) {
	if s := lin(1, 0, 3, 10).String(); s != "{1:0, 3:10}" {
		t.Fatal(s)
	}
}

// naive is a lineage as a list of the epoch of each offset.
type naive struct {
	start  Offset
	epochs []LeaderEpoch
}

func (n naive) end() Offset { return n.start + Offset(len(n.epochs)) }

func (n naive) epochFor(o Offset) LeaderEpoch {
	if o < n.start || len(n.epochs) == 0 {
		return NoEpoch
	}
	return n.epochs[min(o, n.end()-1)-n.start]
}

// endFor looks at the records one by one: the last one that is not above q tells
// the epoch, the first one above q where that ends.
func (n naive) endFor(q LeaderEpoch) (LeaderEpoch, Offset, bool) {
	if len(n.epochs) == 0 || q > n.epochs[len(n.epochs)-1] {
		return NoEpoch, NoOffset, false
	}
	if q == n.epochs[len(n.epochs)-1] {
		return q, n.end(), true
	}
	e := q
	for i, have := range n.epochs {
		if have > q {
			return e, n.start + Offset(i), true
		}
		e = have
	}
	return e, n.end(), true
}

// The life of a log: appends in rising epochs, truncations at both ends. Lineage
// agrees with the list at each step, B5 holds, and nobody's copy changes.
func TestLineageAgreesWithRecords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := naive{start: Offset(rapid.IntRange(0, 5).Draw(t, "start"))}
		var l Lineage
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			before, kept := l, slices.Clone(l)
			switch rapid.IntRange(0, 3).Draw(t, "op") {
			case 0, 1:
				e := max(n.epochFor(n.end()), 0) + LeaderEpoch(rapid.IntRange(0, 2).Draw(t, "later"))
				var err error
				if l, err = l.Append(e, n.end(), n.end()); err != nil {
					t.Fatal(err)
				}
				for range rapid.IntRange(1, 4).Draw(t, "records") {
					n.epochs = append(n.epochs, e)
				}
			case 2:
				o := n.start + Offset(rapid.IntRange(0, len(n.epochs)).Draw(t, "end"))
				l, n.epochs = l.TruncateEnd(o), slices.Clone(n.epochs[:o-n.start])
			case 3:
				if len(n.epochs) == 0 {
					continue
				}
				o := n.start + Offset(rapid.IntRange(0, len(n.epochs)-1).Draw(t, "newStart"))
				l, n.epochs, n.start = l.TruncateStart(o), n.epochs[o-n.start:], o
			}
			if !slices.Equal(before, kept) {
				t.Fatalf("%s became %s under its reader", kept, before)
			}
			agree(t, l, n)
		}
	})
}

func agree(t *rapid.T, l Lineage, n naive) {
	if err := l.Valid(); err != nil {
		t.Fatal(err)
	}
	for o := n.start; o < n.end(); o++ {
		if got, want := l.EpochFor(o), n.epochFor(o); got != want {
			t.Fatalf("%s: epochFor(%d) = %d, want %d of %v", l, o, got, want, n)
		}
	}
	for q := range LeaderEpoch(60) {
		e, end, ok := l.EndFor(q, n.end())
		we, wend, wok := n.endFor(q)
		if e != we || end != wend || ok != wok {
			t.Fatalf("%s: endFor(%d) = (%d,%d,%v), want (%d,%d,%v) of %v", l, q, e, end, ok, we, wend, wok, n)
		}
	}
	for a := n.start; a < n.end(); a++ {
		s := l.Slice(a, n.end())
		if err := s.Valid(); err != nil || len(s) == 0 || s[0].Start != a || s.Last() != l.Last() {
			t.Fatalf("%s: slice from %d is %s: %v", l, a, s, err)
		}
	}
}

// Any sequence of operations with any arguments keeps B5.
func TestLineageKeepsB5(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l Lineage
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			e := LeaderEpoch(rapid.IntRange(0, 8).Draw(t, "epoch"))
			o := Offset(rapid.IntRange(0, 40).Draw(t, "offset"))
			was := l
			switch rapid.IntRange(0, 3).Draw(t, "op") {
			case 0:
				l = l.Assign(e, o)
				if l.Last() != e || l.EpochFor(max(o, l[len(l)-1].Start)) != e {
					t.Fatalf("%s assign(%d,%d) = %s", was, e, o, l)
				}
			case 1:
				next, err := l.Append(e, o, o)
				if err != nil && !slices.Equal(next, l) {
					t.Fatalf("a refused append made %s of %s", next, l)
				}
				if err == nil && next.EpochFor(o) != e {
					t.Fatalf("%s append(%d,%d) = %s", was, e, o, next)
				}
				l = next
			case 2:
				l = l.TruncateEnd(o)
			case 3:
				l = l.TruncateStart(o)
			}
			if err := l.Valid(); err != nil {
				t.Fatalf("from %s: %v", was, err)
			}
		}
	})
}

func FuzzLineage(f *testing.F) {
	f.Add([]byte{1, 0, 3, 10}, int32(2), int64(12))
	f.Fuzz(func(t *testing.T, raw []byte, q int32, end int64) {
		var l Lineage
		for i := 0; i+1 < len(raw); i += 2 {
			l = l.Assign(LeaderEpoch(raw[i]), Offset(raw[i+1]))
		}
		if err := l.Valid(); err != nil {
			t.Fatal(err)
		}
		if e, _, ok := l.EndFor(LeaderEpoch(q), Offset(end)); ok && e > LeaderEpoch(q) {
			t.Fatalf("%s: endFor(%d) names the later epoch %d", l, q, e)
		}
	})
}

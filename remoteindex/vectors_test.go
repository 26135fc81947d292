package remoteindex

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/strandline-io/strandline/tiers"
)

func partition() tiers.PartitionID {
	return tiers.PartitionID{Topic: tiers.TopicID{1}, Index: 3}
}

// seg is a readable segment with the spec's inclusive end.
func seg(n int, base, last tiers.Offset, epochs tiers.Lineage) tiers.RemoteSegment {
	s := tiers.RemoteSegment{
		Partition: partition(), Gen: 1, Base: base, End: last + 1, Epochs: epochs, State: tiers.CopyFinished, Size: 100, MaxTimestamp: -1,
		CreatedAt: time.Unix(int64(n), 0).UTC(),
	}
	binary.BigEndian.PutUint64(s.ID[:], uint64(n))
	return s
}

func index(tb testing.TB, segs ...tiers.RemoteSegment) *Index {
	tb.Helper()
	x, err := New(partition(), 1, nil)
	if err != nil {
		tb.Fatal(err)
	}
	for _, s := range segs {
		x = put(tb, x, s)
	}
	return x
}

// put applies the whole way to the state of s.
func put(tb testing.TB, x *Index, s tiers.RemoteSegment) *Index {
	tb.Helper()
	for _, st := range map[tiers.SegmentState][]tiers.SegmentState{
		tiers.CopyStarted:   {tiers.CopyStarted},
		tiers.CopyFinished:  {tiers.CopyStarted, tiers.CopyFinished},
		tiers.DeleteStarted: {tiers.CopyStarted, tiers.CopyFinished, tiers.DeleteStarted},
	}[s.State] {
		var err error
		s.State = st
		if x, err = x.Apply(s); err != nil {
			tb.Fatal(err)
		}
	}
	return x
}

func lin(pairs ...int64) tiers.Lineage {
	var l tiers.Lineage
	for i := 0; i < len(pairs); i += 2 {
		l = append(l, tiers.EpochStart{Epoch: tiers.LeaderEpoch(pairs[i]), Start: tiers.Offset(pairs[i+1])})
	}
	return l
}

func TestTVR1_CopiedIsClampedByTheEndOfTheEpoch(t *testing.T) {
	x := index(t, seg(1, 50, 119, lin(2, 50, 3, 100)))
	for _, c := range []struct {
		lineage tiers.Lineage
		logEnd  tiers.Offset
		copied  tiers.Offset // inclusive
	}{
		{lin(2, 50), 100, 99},
		{lin(2, 50, 3, 100), 120, 119},
	} {
		end, hole := x.Copied(CopyState{Truth: Truth{c.lineage, 50, 100}, Log: c.lineage, LocalFrom: 50, LogEnd: c.logEnd})
		if end-1 != c.copied || hole {
			t.Errorf("lineage %s, log end %d: copied %d, hole %v; want %d", c.lineage, c.logEnd, end-1, hole, c.copied)
		}
	}
	if end, hole := index(t).Copied(CopyState{Truth: Truth{lin(2, 50), 50, 100}, Log: lin(2, 50), LocalFrom: 50, LogEnd: 100}); end != 0 || hole {
		t.Errorf("nothing copied: %d, %v", end, hole)
	}
}

func TestTVR9_CopiedStopsAtAHoleThatLocalSegmentsFill(t *testing.T) {
	x := index(t, seg(1, 0, 39, lin(0, 0)), seg(2, 60, 99, lin(0, 60)))
	for _, c := range []struct {
		localFrom, copied tiers.Offset
		alarm             bool
	}{{0, 39, false}, {40, 39, false}, {41, 99, true}, {60, 99, true}} {
		end, hole := x.Copied(CopyState{Truth: Truth{lin(0, 0), 0, 100}, Log: lin(0, 0), LocalFrom: c.localFrom, LogEnd: 100})
		if end-1 != c.copied || hole != c.alarm {
			t.Errorf("local start %d: copied %d, alarm %v; want %d, %v", c.localFrom, end-1, hole, c.copied, c.alarm)
		}
	}
}

// Report 013: the tail of epoch 1 was copied, then discarded. Copying resumes at
// the end that epoch 1 has now.
func TestReport013_DiscardedTailIsCopiedAgain(t *testing.T) {
	x := index(t, seg(1, 0, 99, lin(1, 0)))
	l := lin(1, 0, 2, 60)
	if end, hole := x.Copied(CopyState{Truth: Truth{l, 0, 200}, Log: l, LocalFrom: 0, LogEnd: 200}); end != 60 || hole {
		t.Fatalf("copying resumes at %d, want 60", end)
	}
	// Before the new epoch has a record there is nothing to copy, and no hole.
	if end, hole := x.Copied(CopyState{Truth: Truth{l, 0, 60}, Log: l, LocalFrom: 0, LogEnd: 60}); end != 60 || hole {
		t.Fatalf("right after the cut: copying resumes at %d, hole %v; want 60", end, hole)
	}
	if p, w := x.Find(59, Truth{l, 0, 200}); w != Covered || p.End != 60 {
		t.Fatalf("offset 59: %v, cap %d", w, p.End)
	}
	if _, w := x.Find(60, Truth{l, 0, 200}); w != NoCover {
		t.Fatal("the discarded record at 60 is found")
	}
}

func TestTVR2_CoverageEndsAtTheFirstHoleOrForeignEpoch(t *testing.T) {
	a, b := seg(1, 0, 49, lin(0, 0)), seg(2, 50, 99, lin(0, 50, 2, 80))
	sealed := lin(0, 0, 2, 80, 3, 100) // Recorded lineage and {E_d: seal}.
	for _, c := range []struct {
		name string
		segs []tiers.RemoteSegment
		auth tiers.Lineage
		want tiers.Offset
	}{
		{"hole at 100", []tiers.RemoteSegment{a, b, seg(3, 110, 119, lin(3, 110))}, sealed, 100},
		{"no hole", []tiers.RemoteSegment{a, b, seg(3, 100, 119, lin(3, 100))}, sealed, 120},
		{"crossing segment with a discarded epoch", []tiers.RemoteSegment{a, seg(3, 50, 119, lin(0, 50, 2, 80, 3, 100))}, lin(0, 0, 2, 80, 5, 100), 100},
	} {
		if got := index(t, c.segs...).Coverage(Truth{c.auth, 0, 150}); got != c.want {
			t.Errorf("%s: c=%d, want %d", c.name, got, c.want)
		}
	}
}

func TestTVR7_CoverageComparesOffsetsNotEntries(t *testing.T) {
	segs := []tiers.RemoteSegment{seg(1, 20, 59, lin(0, 20)), seg(2, 60, 79, lin(0, 60)), seg(3, 80, 99, lin(2, 80))}
	for _, auth := range []tiers.Lineage{lin(0, 0, 2, 80), lin(0, 40, 2, 80)} {
		truth := Truth{auth, 40, 100}
		if c := index(t, segs...).Coverage(truth); c != 100 {
			t.Errorf("lineage %s: c=%d, want 100", auth, c)
		}
		for _, s := range segs {
			if c := Classify(s, truth); c != InLineage {
				t.Errorf("lineage %s: [%d,%d) is %s", auth, s.Base, s.End, c)
			}
		}
	}
}

func TestTVR8_HighestRemoteNeedsALogBeyondItsStart(t *testing.T) {
	x := index(t, seg(1, 40, 119, lin(0, 40)))
	truth := Truth{lin(0, 40), 40, 120}
	for _, c := range []struct {
		x            *Index
		logEnd, want tiers.Offset
	}{{x, 40, -1}, {x, 120, 119}, {x, 100, 99}, {x, 130, 119}, {index(t), 120, -1}} {
		if got := c.x.HighestRemote(truth, c.logEnd); got != c.want {
			t.Errorf("log end %d: %d, want %d", c.logEnd, got, c.want)
		}
	}
}

func TestTVR5_SafeEnd(t *testing.T) {
	rec := lin(0, 0, 2, 80, 5, 100) // Recorded {0:0,2:80}, seal 100, E_d 5; 3 is a discarded classic epoch.
	for _, c := range []struct {
		s    tiers.RemoteSegment
		auth tiers.Lineage
		want tiers.Offset
		cls  Class
	}{
		{seg(1, 50, 119, lin(0, 50, 2, 80, 3, 100)), rec, 100, Partial},
		{seg(1, 50, 119, lin(2, 50)), lin(2, 0, 5, 100), 100, Partial},
		{seg(1, 0, 119, lin(0, 0, 1, 80)), rec, 80, Partial},
		{seg(1, 50, 99, lin(0, 50, 2, 80)), rec, 100, InLineage},
		{seg(1, 100, 119, lin(3, 100)), rec, 100, Foreign},
	} {
		truth := Truth{c.auth, 0, 150} // Bound: max(walEnd 150, seal).
		if _, end := SafeRange(c.s, truth); end != c.want {
			t.Errorf("[%d,%d)%s in %s: safe end %d, want %d", c.s.Base, c.s.End, c.s.Epochs, c.auth, end, c.want)
		}
		if got := Classify(c.s, truth); got != c.cls {
			t.Errorf("[%d,%d)%s in %s: %s, want %s", c.s.Base, c.s.End, c.s.Epochs, c.auth, got, c.cls)
		}
	}
}

// L6: what the bound cuts is not foreign, what the start has passed is nobody's.
func TestClassify(t *testing.T) {
	s := seg(1, 50, 99, lin(0, 50, 2, 80))
	for _, c := range []struct {
		name  string
		truth Truth
		want  Class
	}{
		{"whole", Truth{lin(0, 0, 2, 80), 0, 100}, InLineage},
		{"start inside", Truth{lin(0, 60, 2, 80), 60, 100}, InLineage},
		{"cut by the bound", Truth{lin(0, 0, 2, 80), 0, 90}, Undecided},
		{"bound below it", Truth{lin(0, 0, 2, 80), 0, 40}, Undecided},
		{"no lineage", Truth{nil, 0, 100}, Undecided},
		{"lineage starts behind it", Truth{lin(2, 100), 0, 200}, Undecided},
		{"below the start", Truth{lin(2, 100), 100, 200}, Below},
		{"epoch cuts before the bound", Truth{lin(0, 0, 1, 70), 0, 90}, Partial},
		{"epoch cuts at once", Truth{lin(1, 0), 0, 90}, Foreign},
	} {
		if got := Classify(s, c.truth); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// L7: records behind the seal are not served from a crossing segment.
func TestTVL7_CrossingSegmentIsCappedAtTheSeal(t *testing.T) {
	x := index(t, seg(1, 50, 119, lin(2, 50, 3, 100)))
	truth := Truth{lin(2, 0, 5, 100), 0, 150}
	p, w := x.Find(95, truth)
	if w != Covered || p.From != 95 || p.End != 100 {
		t.Fatalf("offset 95: %v [%d,%d)", w, p.From, p.End)
	}
	if _, w := x.Find(100, truth); w != NoCover {
		t.Fatalf("offset 100 of the discarded epoch 3: %v", w)
	}
}

// L4: with the lineage that B7 keeps, progress is 99 and offset 120 is of E_d.
func TestTVL4_ProgressWithTheKeptLineage(t *testing.T) {
	x := index(t, seg(1, 50, 119, lin(0, 50, 2, 80)))
	kept, spoiled := lin(0, 0, 2, 80, 3, 100), lin(0, 0, 2, 80, 3, 150)
	state := func(l tiers.Lineage) CopyState {
		return CopyState{Truth: Truth{l, 50, 150}, Log: l, LocalFrom: 100, LogEnd: 151}
	}
	if end, _ := x.Copied(state(kept)); end-1 != 99 {
		t.Errorf("copied %d, want 99", end-1)
	}
	if end, _ := x.Copied(state(spoiled)); end-1 != 119 {
		t.Errorf("the spoiled lineage of the report gives %d, not 119", end-1)
	}
}

// R15: holes inside a segment are the segment's; behind its end the next one is
// looked up.
func TestReport041_HolesLeadOn(t *testing.T) {
	x := index(t, seg(1, 0, 99, lin(0, 0)), seg(2, 100, 149, lin(0, 100)), seg(3, 180, 199, lin(0, 180)))
	truth := Truth{lin(0, 0), 0, 200}
	p, w := x.Find(45, truth)
	if w != Covered || p.End != 100 {
		t.Fatalf("offset 45: %v, cap %d", w, p.End)
	}
	if p, w = x.Find(p.End, truth); w != Covered || p.Segment.Base != 100 {
		t.Fatalf("offset 100: %v, segment %d", w, p.Segment.Base)
	}
	if _, w = x.Find(150, truth); w != NoCover {
		t.Fatalf("offset 150: %v", w)
	}
	if p, ok := x.Next(150, truth); !ok || p.From != 180 || p.End != 200 {
		t.Fatalf("after the hole: %v [%d,%d)", ok, p.From, p.End)
	}
	if _, ok := x.Next(180, truth); ok {
		t.Fatal("there is nothing behind the last segment")
	}
	var got []tiers.Offset
	for p := range x.Pieces(20, 190, truth) {
		got = append(got, p.From, p.End)
	}
	if len(got) != 4 || got[0] != 20 || got[1] != 100 || got[2] != 100 || got[3] != 150 {
		t.Fatalf("pieces %v", got)
	}
}

func TestFindSaysWhyNot(t *testing.T) {
	x := index(t, seg(1, 0, 99, lin(0, 0)))
	for _, c := range []struct {
		o     tiers.Offset
		truth Truth
		want  Where
	}{
		{39, Truth{lin(0, 40), 40, 100}, BelowStart},
		{40, Truth{lin(0, 40), 40, 100}, Covered},
		{99, Truth{lin(0, 40), 40, 100}, Covered},
		{99, Truth{lin(0, 40), 40, 99}, NoCover},
		{100, Truth{lin(0, 40), 40, 200}, NoCover},
		{50, Truth{lin(0, 60), 40, 200}, NoCover},
		{50, Truth{nil, 40, 200}, NoCover},
	} {
		if _, got := x.Find(c.o, c.truth); got != c.want {
			t.Errorf("offset %d in %+v: %d, want %d", c.o, c.truth, got, c.want)
		}
	}
}

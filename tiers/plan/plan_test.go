package plan

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/strandline-io/strandline/remoteindex"
	"github.com/strandline-io/strandline/tiers"
)

func lin(pairs ...int64) tiers.Lineage {
	var l tiers.Lineage
	for i := 0; i < len(pairs); i += 2 {
		l = append(l, tiers.EpochStart{Epoch: tiers.LeaderEpoch(pairs[i]), Start: tiers.Offset(pairs[i+1])})
	}
	return l
}

func noon() time.Time { return time.UnixMilli(1_700_000_000_000) }

// local is closed segments of the given size that end at ends, and an active one
// up to logEnd.
func local(base tiers.Offset, size int64, logEnd tiers.Offset, ends ...tiers.Offset) []LocalSegment {
	var out []LocalSegment
	for _, e := range append(ends, logEnd) {
		out = append(out, LocalSegment{Base: base, Next: e, Size: size, MaxTimestamp: noon().Add(-time.Hour).UnixMilli(), FirstAppend: noon().Add(-time.Hour), Modified: noon().Add(-time.Hour)})
		base = e
	}
	last := &out[len(out)-1]
	last.Active = true
	if last.Base == last.Next {
		last.Size = 0
	}
	return out
}

func TestRoll(t *testing.T) {
	limits := RollLimits{Bytes: 1000, Age: time.Hour, IndexBytes: 80}
	a := LocalSegment{Base: 100, Next: 200, Size: 900, IndexSize: 72, FirstAppend: noon().Add(-time.Minute), Modified: noon(), Active: true}
	for _, c := range []struct {
		name string
		bend func(*LocalSegment, *Incoming, *RollLimits)
		want Reason
	}{
		{"fits to the byte", func(*LocalSegment, *Incoming, *RollLimits) {}, Stay},
		{"a byte too many", func(_ *LocalSegment, in *Incoming, _ *RollLimits) { in.Bytes++ }, Full},
		{"empty, however large the batch is", func(a *LocalSegment, in *Incoming, _ *RollLimits) { a.Size = 0; in.Bytes = 5000 }, Stay},
		{"empty, however old it is", func(a *LocalSegment, _ *Incoming, _ *RollLimits) { a.Size = 0; a.FirstAppend = time.Time{} }, Stay},
		{"the index is full", func(a *LocalSegment, _ *Incoming, _ *RollLimits) { a.IndexSize = 80 }, IndexFull},
		{"the index has room for less than an entry", func(a *LocalSegment, _ *Incoming, _ *RollLimits) { a.IndexSize = 73 }, IndexFull},
		{"no limit for the index", func(a *LocalSegment, _ *Incoming, l *RollLimits) { a.IndexSize, l.IndexBytes = 1<<20, 0 }, Stay},
		{"the last relative offset", func(_ *LocalSegment, in *Incoming, _ *RollLimits) { in.Last = 100 + math.MaxInt32 }, Stay},
		{"report 006: an offset beyond 32 bits", func(_ *LocalSegment, in *Incoming, _ *RollLimits) { in.Last = 101 + math.MaxInt32 }, OffsetsTooFar},
		{"one nanosecond young", func(a *LocalSegment, _ *Incoming, _ *RollLimits) { a.FirstAppend = noon().Add(-time.Hour + 1) }, Stay},
		{"old", func(a *LocalSegment, _ *Incoming, _ *RollLimits) { a.FirstAppend = noon().Add(-time.Hour) }, Old},
		{"old, and nothing comes", func(a *LocalSegment, in *Incoming, _ *RollLimits) {
			a.FirstAppend = noon().Add(-time.Hour)
			*in = Incoming{}
		}, Old},
		{"no limit of age", func(a *LocalSegment, _ *Incoming, l *RollLimits) {
			a.FirstAppend, l.Age = noon().Add(-time.Hour), Forever
		}, Stay},
		{"the limit was lowered", func(_ *LocalSegment, in *Incoming, l *RollLimits) { *in, l.Bytes = Incoming{}, 800 }, Full},
		{"no time is known", func(a *LocalSegment, _ *Incoming, _ *RollLimits) {
			a.FirstAppend, a.Modified = time.Time{}, time.Time{}
		}, Stay},
	} {
		seg, in, l := a, Incoming{Bytes: 100, Last: 209}, limits
		c.bend(&seg, &in, &l)
		if got := Roll(seg, in, l, noon()); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// Report 110: a first record from the future does not hold the segment, and no
// record makes each append roll.
func TestReport110_FutureTimestampsNeitherHoldNorStorm(t *testing.T) {
	limits := RollLimits{Bytes: 1 << 30, Age: time.Hour}
	future := LocalSegment{Base: 0, Next: 9, Size: 9, FirstAppend: noon().AddDate(10, 0, 0), MaxTimestamp: noon().AddDate(10, 0, 0).UnixMilli(), Modified: noon().Add(-2 * time.Hour), Active: true}
	if got := Roll(future, Incoming{}, limits, noon()); got != Old {
		t.Errorf("a segment whose first record is from the future: %s", got)
	}
	fresh := LocalSegment{Base: 9, Next: 10, Size: 9, FirstAppend: noon().Add(-time.Second), MaxTimestamp: noon().AddDate(10, 0, 0).UnixMilli(), Modified: noon(), Active: true}
	if got := Roll(fresh, Incoming{Bytes: 9, Last: 10}, limits, noon()); got != Stay {
		t.Errorf("a young segment with a record from the future: %s", got)
	}
	fresh.MaxTimestamp = 0
	if got := Roll(fresh, Incoming{Bytes: 9, Last: 10}, limits, noon()); got != Stay {
		t.Errorf("a young segment with a record of 1970: %s", got)
	}
}

func TestR1_Copy(t *testing.T) {
	segs := local(0, 50, 120, 40, 60, 100) // [0,40) [40,60) [60,100) and active [100,120).
	l := lin(1, 0, 2, 50)
	for _, c := range []struct {
		name string
		f    CopyFacts
		base tiers.Offset
		ok   bool
		hole tiers.Offset
	}{
		{"from the start", CopyFacts{Segments: segs, LastStable: 120, Lineage: l}, 0, true, 0},
		{"the one that holds the copied end", CopyFacts{Segments: segs, Copied: 41, LastStable: 120, Lineage: l}, 40, true, 0},
		{"the next one", CopyFacts{Segments: segs, Copied: 40, LastStable: 120, Lineage: l}, 40, true, 0},
		{"the one that holds the log start", CopyFacts{Segments: segs, LogStart: 59, LastStable: 120, Lineage: l.TruncateStart(59)}, 40, true, 0},
		{"not below the log start", CopyFacts{Segments: segs, Copied: 10, LogStart: 60, LastStable: 120, Lineage: l}, 60, true, 0},
		{"all committed", CopyFacts{Segments: segs, Copied: 60, LastStable: 100, Lineage: l}, 60, true, 0},
		{"not all committed or decided", CopyFacts{Segments: segs, Copied: 60, LastStable: 99, Lineage: l}, 0, false, 0},
		{"in order: a later one does not overtake", CopyFacts{Segments: segs, Copied: 0, LastStable: 39, Lineage: l}, 0, false, 0},
		{"the active one is not copied", CopyFacts{Segments: segs, Copied: 100, LastStable: 120, Lineage: l}, 0, false, 0},
		{"everything is copied", CopyFacts{Segments: segs, Copied: 120, LastStable: 120, Lineage: l}, 0, false, 0},
		{"no segments", CopyFacts{Copied: 10, LastStable: 20, Lineage: l}, 0, false, 0},
		{"behind a hole", CopyFacts{Segments: segs[2:], Copied: 40, LastStable: 120, Lineage: l}, 60, true, 20},
		{"no lineage", CopyFacts{Segments: segs, LastStable: 120}, 0, false, 0},
	} {
		got, ok := Copy(c.f)
		if ok != c.ok || got.Segment.Base != c.base || got.Hole != c.hole {
			t.Errorf("%s: segment %d, %v, hole %d; want %d, %v, %d", c.name, got.Segment.Base, ok, got.Hole, c.base, c.ok, c.hole)
		}
	}
}

// TV-R9 goes on with what remoteindex derives: [40,60) is uploaded next, and where
// no local segment holds it the alarm does not stop the rest.
func TestTVR9_TheHoleIsCopiedNext(t *testing.T) {
	x := readable(t, remote(1, 0, 39, lin(0, 0)), remote(2, 60, 99, lin(0, 60)))
	segs := local(0, 50, 130, 40, 60, 100, 120)
	for _, c := range []struct {
		from  tiers.Offset
		next  tiers.Offset
		alarm bool
	}{{0, 40, false}, {60, 100, true}} {
		i := slices.IndexFunc(segs, func(s LocalSegment) bool { return s.Base == c.from })
		copied, alarm := x.Copied(remoteindex.CopyState{Truth: remoteindex.Truth{Lineage: lin(0, 0), Bound: 100}, Log: lin(0, 0), LocalFrom: c.from, LogEnd: 130})
		got, ok := Copy(CopyFacts{Segments: segs[i:], Copied: copied, LastStable: 130, Lineage: lin(0, 0)})
		if alarm != c.alarm || !ok || got.Segment.Base != c.next {
			t.Errorf("local start %d: segment %d, %v, alarm %v; want %d, %v", c.from, got.Segment.Base, ok, alarm, c.next, c.alarm)
		}
	}
}

func TestSegmentLineageStartsAtTheSegment(t *testing.T) {
	for _, c := range []struct {
		l          tiers.Lineage
		base, next tiers.Offset
		want       tiers.Lineage
	}{
		{lin(1, 0, 2, 50), 40, 60, lin(1, 40, 2, 50)},
		{lin(1, 0, 2, 50), 50, 60, lin(2, 50)},
		{lin(2, 55, 3, 58), 40, 60, lin(2, 40, 3, 58)}, // The log begins inside the segment.
		{lin(2, 60), 40, 60, nil},
		{nil, 40, 60, nil},
	} {
		before := slices.Clone(c.l)
		if got := SegmentLineage(c.l, c.base, c.next); !slices.Equal(got, c.want) {
			t.Errorf("%s in [%d,%d): %s, want %s", c.l, c.base, c.next, got, c.want)
		}
		if !slices.Equal(before, c.l) {
			t.Errorf("%s became %s", before, c.l)
		}
	}
}

// What Copy proposes makes a valid row.
func TestCopyMakesValidRows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ends := []tiers.Offset{}
		at := tiers.Offset(rapid.IntRange(0, 5).Draw(t, "base"))
		base := at
		var l tiers.Lineage
		for e := range tiers.LeaderEpoch(rapid.IntRange(1, 6).Draw(t, "segments")) {
			if e == 0 || rapid.Bool().Draw(t, "epoch") {
				l = l.Assign(e, at)
			}
			at += tiers.Offset(rapid.IntRange(1, 9).Draw(t, "len"))
			ends = append(ends, at)
		}
		start := tiers.Offset(rapid.IntRange(0, int(at)).Draw(t, "log start"))
		f := CopyFacts{
			Segments: local(base, 50, at+3, ends...), LogStart: start, LastStable: at, Lineage: l.TruncateStart(start),
			Copied: tiers.Offset(rapid.IntRange(0, int(at)).Draw(t, "copied")),
		}
		for {
			next, ok := Copy(f)
			if !ok {
				break
			}
			row := tiers.RemoteSegment{Base: next.Segment.Base, End: next.Segment.Next, Epochs: next.Epochs, State: tiers.CopyFinished, Size: next.Segment.Size}
			if err := row.Valid(); err != nil {
				t.Fatal(err)
			}
			if row.End <= f.Copied || row.End <= start || row.Base > max(f.Copied, start, base) {
				t.Fatalf("[%d,%d) after %d, log start %d", row.Base, row.End, f.Copied, start)
			}
			for o := max(row.Base, start); o < row.End; o++ {
				if row.Epochs.EpochFor(o) != f.Lineage.EpochFor(o) {
					t.Fatalf("offset %d: epoch %d in %s, %d in %s", o, row.Epochs.EpochFor(o), row.Epochs, f.Lineage.EpochFor(o), f.Lineage)
				}
			}
			f.Copied = row.End
		}
		if f.Copied < at && start < at {
			t.Fatalf("copying stopped at %d of %d", f.Copied, at)
		}
	})
}

func view() FetchFacts {
	return FetchFacts{
		Watermarks: tiers.Watermarks{LogStart: 40, LocalLogStart: 100, RemoteEnd: 120, LastStable: 130, HighWatermark: 140, LogEnd: 150},
		Lineage:    lin(1, 40, 3, 110), LeaderEpoch: 3,
	}
}

func TestT2_Fetch(t *testing.T) {
	const none = tiers.NoEpoch
	for _, c := range []struct {
		name string
		ask  FetchAsk
		want FetchPlan
		kind tiers.Kind
	}{
		{"remote", FetchAsk{40, none, none, false, false}, FetchPlan{Source: Remote, From: 40, End: 140}, 0},
		{"remote, read_committed", FetchAsk{99, none, none, true, false}, FetchPlan{Source: Remote, From: 99, End: 130}, 0},
		{"local", FetchAsk{100, 3, none, false, false}, FetchPlan{Source: Local, From: 100, End: 140}, 0},
		{"last visible", FetchAsk{139, none, none, false, false}, FetchPlan{Source: Local, From: 139, End: 140}, 0},
		{"at the high watermark", FetchAsk{140, none, none, false, false}, FetchPlan{Source: Wait, From: 140, End: 140}, 0},
		{"undecided", FetchAsk{135, none, none, true, false}, FetchPlan{Source: Wait, From: 135, End: 130}, 0},
		{"between high watermark and end", FetchAsk{145, none, none, false, false}, FetchPlan{Source: Wait, From: 145, End: 140}, 0},
		{"at the end", FetchAsk{150, none, none, false, false}, FetchPlan{Source: Wait, From: 150, End: 140}, 0},
		{"behind the end", FetchAsk{151, none, none, false, false}, FetchPlan{}, tiers.OffsetOutOfRange},
		{"below the start", FetchAsk{39, none, none, false, false}, FetchPlan{}, tiers.OffsetOutOfRange},
		{"negative", FetchAsk{-1, none, none, false, false}, FetchPlan{}, tiers.OffsetOutOfRange},
		{"74", FetchAsk{100, 2, none, false, false}, FetchPlan{}, tiers.FencedLeaderEpoch},
		{"75", FetchAsk{100, 4, none, false, false}, FetchPlan{}, tiers.UnknownLeaderEpoch},
		{"74 comes before out of range", FetchAsk{999, 2, none, false, false}, FetchPlan{}, tiers.FencedLeaderEpoch},
		{"replica, local", FetchAsk{145, 3, 3, false, true}, FetchPlan{Source: Local, From: 145, End: 150}, 0},
		{"replica, tiered", FetchAsk{60, 3, 1, false, true}, FetchPlan{Source: Moved, From: 60, End: 150}, 0},
		{"replica at the end", FetchAsk{150, 3, 3, false, true}, FetchPlan{Source: Wait, From: 150, End: 150}, 0},
		{"the epoch agrees", FetchAsk{110, none, 1, false, false}, FetchPlan{Source: Local, From: 110, End: 140}, 0},
		{"the epoch ended before", FetchAsk{111, none, 1, false, false}, FetchPlan{Source: Diverging, From: 111, End: 110, Epoch: 1}, 0},
		{"an epoch that the log has not", FetchAsk{105, none, 2, false, false}, FetchPlan{Source: Diverging, From: 105, End: 110, Epoch: 1}, 0},
		{"diverging, behind the end", FetchAsk{160, none, 3, false, false}, FetchPlan{Source: Diverging, From: 160, End: 150, Epoch: 3}, 0},
		{"diverging, below the start", FetchAsk{39, none, 2, false, false}, FetchPlan{}, tiers.OffsetOutOfRange},
		{"undefined", FetchAsk{105, none, 7, false, false}, FetchPlan{}, tiers.OffsetOutOfRange},
	} {
		got, err := Fetch(view(), c.ask)
		if tiers.KindOf(err) != c.kind || (err != nil) != (c.kind != 0) || got != c.want {
			t.Errorf("%s: %+v, %v; want %+v, %s", c.name, got, err, c.want, c.kind)
		}
	}
}

// The leader's side of s3.2: what it answers to each fetch.
func TestTVT_Diverging(t *testing.T) {
	leader := func(l tiers.Lineage, start, end tiers.Offset) FetchFacts {
		return FetchFacts{Watermarks: tiers.Watermarks{LogStart: start, LocalLogStart: start, RemoteEnd: start, LastStable: end, HighWatermark: end, LogEnd: end}, Lineage: l, LeaderEpoch: l.Last()}
	}
	b := leader(lin(1, 0, 3, 10), 0, 12)
	four := leader(lin(1, 0, 3, 4, 6, 10), 0, 12)
	for _, c := range []struct {
		name   string
		f      FetchFacts
		offset tiers.Offset
		last   tiers.LeaderEpoch
		source Source
		epoch  tiers.LeaderEpoch
		end    tiers.Offset
		kind   tiers.Kind
	}{
		{"TV-T1, first", b, 10, 2, Diverging, 1, 10, 0},
		{"TV-T1, then", b, 8, 1, Local, 0, 12, 0},
		{"TV-T2", b, 10, 3, Local, 0, 12, 0},
		{"TV-T3", b, 10, 1, Local, 0, 12, 0},
		{"TV-T4, first", four, 9, 5, Diverging, 3, 10, 0},
		{"TV-T4, second", four, 6, 2, Diverging, 1, 4, 0},
		{"TV-T4, then", four, 4, 1, Local, 0, 12, 0},
		{"TV-T5", leader(lin(1, 0, 4, 5), 0, 9), 8, 3, Diverging, 1, 5, 0},
		{"T2, an epoch that went on after it had ended here", b, 11, 1, Diverging, 1, 10, 0},
		{"TV-T6", leader(lin(5, 20), 20, 30), 8, 1, 0, 0, 0, tiers.OffsetOutOfRange},
		{"TV-T7", leader(lin(1, 0, 2, 5), 0, 9), 9, 7, 0, 0, 0, tiers.OffsetOutOfRange},
		{"TV-T8", leader(lin(2, 0, 4, 6), 0, 9), 4, 3, Diverging, 2, 6, 0},
		{"TV-T9, empty follower", b, 0, tiers.NoEpoch, Local, 0, 12, 0},
		{"TV-T9, beyond", b, 13, tiers.NoEpoch, 0, 0, 0, tiers.OffsetOutOfRange},
	} {
		got, err := Fetch(c.f, FetchAsk{c.offset, tiers.NoEpoch, c.last, false, true})
		if tiers.KindOf(err) != c.kind || got.Source != c.source || got.Epoch != c.epoch || got.End != c.end {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
	}
}

// A fetch reads what is in the tier that it names, and never what its reader may
// not see.
func TestFetchNamesATierThatHasIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string, from, to tiers.Offset) tiers.Offset {
			return tiers.Offset(rapid.IntRange(int(from), int(to)).Draw(t, name))
		}
		var w tiers.Watermarks
		w.LogStart = draw("start", 0, 10)
		w.LogEnd = draw("end", w.LogStart, 40)
		w.HighWatermark = draw("hw", w.LogStart, w.LogEnd)
		w.LastStable = draw("lso", w.LogStart, w.HighWatermark)
		w.RemoteEnd = draw("remote", w.LogStart, w.LastStable)
		w.LocalLogStart = draw("local", w.LogStart, w.RemoteEnd)
		if err := w.Valid(); err != nil {
			t.Fatal(err)
		}
		ask := FetchAsk{draw("offset", 0, 45), tiers.NoEpoch, tiers.NoEpoch, rapid.Bool().Draw(t, "committed"), rapid.Bool().Draw(t, "replica")}
		p, err := Fetch(FetchFacts{Watermarks: w}, ask)
		if (err != nil) != (ask.Offset < w.LogStart || ask.Offset > w.LogEnd) {
			t.Fatalf("%+v %+v: %v", w, ask, err)
		}
		if err != nil {
			return
		}
		limit := w.HighWatermark
		switch {
		case ask.Replica:
			limit = w.LogEnd
		case ask.Committed:
			limit = w.LastStable
		}
		ok := false
		switch p.Source {
		case Wait:
			ok = ask.Offset >= limit
		case Local:
			ok = ask.Offset >= w.LocalLogStart && ask.Offset < limit
		case Remote:
			ok = ask.Offset < w.LocalLogStart && ask.Offset < w.RemoteEnd && !ask.Replica
		case Moved:
			ok = ask.Offset < w.LocalLogStart && ask.Replica
		case Diverging:
			ok = false // The request names no epoch.
		}
		if !ok || p.End != limit {
			t.Fatalf("%+v %+v: %+v", w, ask, p)
		}
	})
}

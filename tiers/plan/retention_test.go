package plan

import (
	"encoding/binary"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/strandline-io/strandline/remoteindex"
	"github.com/strandline-io/strandline/tiers"
)

// remote is a readable segment with the specification's inclusive end.
func remote(n int, base, last tiers.Offset, epochs tiers.Lineage) tiers.RemoteSegment {
	s := tiers.RemoteSegment{
		Partition: tiers.PartitionID{Index: 3}, Gen: 1, Base: base, End: last + 1, Epochs: epochs, State: tiers.CopyFinished, Size: 100,
		MaxTimestamp: noon().Add(-time.Hour).UnixMilli(), CreatedAt: noon(), CopierEpoch: epochs.Last(),
	}
	binary.BigEndian.PutUint64(s.ID[:], uint64(n))
	return s
}

func readable(tb testing.TB, segs ...tiers.RemoteSegment) *remoteindex.Index {
	tb.Helper()
	x, err := remoteindex.New(tiers.PartitionID{Index: 3}, 1, segs)
	if err != nil {
		tb.Fatal(err)
	}
	return x
}

func none() Limits { return Limits{Bytes: Forever, Age: Forever} }

func TestTVR3_SizeRuleNeverGoesBelowTheLimit(t *testing.T) {
	rows := []tiers.RemoteSegment{remote(1, 0, 9, lin(0, 0)), remote(2, 10, 19, lin(0, 10)), remote(3, 20, 29, lin(0, 20)), remote(4, 30, 39, lin(0, 30))}
	for _, c := range []struct {
		limit int64
		gone  int
		left  int64
	}{{300, 1, 350}, {250, 2, 250}, {251, 1, 350}, {450, 0, 450}, {449, 0, 450}, {0, 4, 50}, {Forever, 0, 450}} {
		d := TotalRetention(TotalFacts{Rows: rows, Lineage: lin(0, 0), LogEnd: 45, Local: local(40, 50, 45), Copying: tiers.NoOffset, Limits: Limits{c.limit, Forever}}, noon())
		if len(d.Delete) != c.gone || 450-100*int64(len(d.Delete)) != c.left || d.Floor != tiers.Offset(10*c.gone) {
			t.Errorf("limit %d: %d deleted, floor %d; want %d", c.limit, len(d.Delete), d.Floor, c.gone)
		}
	}
}

func TestTVR4_OneSizeRule(t *testing.T) {
	wal := []int64{10, 20, 30, 40}
	for _, c := range []struct {
		limit int64
		gone  int
	}{{70, 2}, {69, 2}, {40, 3}, {39, 3}, {100, 0}, {99, 0}, {90, 1}, {0, 4}, {Forever, 0}} {
		if got := DropOldest(wal, 100, c.limit); got != c.gone {
			t.Errorf("limit %d: %d go, want %d", c.limit, got, c.gone)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.Int64Range(1, 50), 0, 8).Draw(t, "sizes")
		rest, limit := rapid.Int64Range(0, 60).Draw(t, "rest"), rapid.Int64Range(0, 300).Draw(t, "limit")
		total := rest
		for _, s := range sizes {
			total += s
		}
		n := DropOldest(sizes, total, limit)
		left := total
		for _, s := range sizes[:n] {
			left -= s
		}
		if n > 0 && left < limit {
			t.Fatalf("%d go, %d left of a limit of %d", n, left, limit)
		}
		if n < len(sizes) && left-sizes[n] >= limit {
			t.Fatalf("%d go, the next could too: %d left, limit %d", n, left, limit)
		}
	})
}

func TestR6_LocalRetention(t *testing.T) {
	closed := func(f LocalFacts) LocalFacts {
		f.Segments = local(0, 100, 50, 10, 20, 30, 40)
		return f
	}
	all := Limits{0, Forever}
	for _, c := range []struct {
		name   string
		f      LocalFacts
		before tiers.Offset
		start  tiers.Offset
		roll   bool
	}{
		{"no limits", closed(LocalFacts{HighWatermark: 50, RemoteEnd: 50, Copied: true, Limits: none()}), 0, 0, false},
		{"by size", closed(LocalFacts{HighWatermark: 50, RemoteEnd: 50, Copied: true, Limits: Limits{300, Forever}}), 20, 0, false},
		{"by size, never below it", closed(LocalFacts{HighWatermark: 50, RemoteEnd: 50, Copied: true, Limits: Limits{301, Forever}}), 10, 0, false},
		{"by age", closed(LocalFacts{HighWatermark: 50, RemoteEnd: 50, Copied: true, Limits: Limits{Forever, time.Hour}}), 40, 0, true},
		{"not old enough", closed(LocalFacts{HighWatermark: 50, RemoteEnd: 50, Copied: true, Limits: Limits{Forever, time.Hour + 1}}), 0, 0, false},
		{"not in the bucket", closed(LocalFacts{HighWatermark: 50, RemoteEnd: 29, Copied: true, Limits: all}), 20, 0, false},
		{"report 012: nothing is in the bucket", closed(LocalFacts{HighWatermark: 50, Copied: true, Limits: all}), 0, 0, false},
		{"not committed", closed(LocalFacts{HighWatermark: 29, RemoteEnd: 50, Copied: true, Limits: all}), 20, 0, false},
		{"committed to its end", closed(LocalFacts{HighWatermark: 30, RemoteEnd: 50, Copied: true, Limits: all}), 30, 0, false},
		{"the active one is rolled first", closed(LocalFacts{HighWatermark: 50, RemoteEnd: 50, Copied: true, Limits: all}), 40, 0, true},
		{"below the log start, in no bucket and not due", closed(LocalFacts{HighWatermark: 50, LogStart: 25, Copied: true, Limits: none()}), 20, 25, false},
		{"report 108: not copied, the log start moves", closed(LocalFacts{HighWatermark: 50, Limits: Limits{300, Forever}}), 20, 20, false},
		{"not copied, the log start is higher already", closed(LocalFacts{HighWatermark: 50, LogStart: 35, Limits: Limits{300, Forever}}), 30, 35, false},
		{"no segments", LocalFacts{LogStart: 7, HighWatermark: 50, Limits: all}, 0, 7, false},
	} {
		got := LocalRetention(c.f, noon())
		if !reflect.DeepEqual(got, LocalDrop{Before: c.before, LogStart: c.start, Roll: c.roll}) {
			t.Errorf("%s: %+v, want before %d, start %d, roll %v", c.name, got, c.before, c.start, c.roll)
		}
	}
	empty := LocalFacts{Segments: local(0, 100, 10, 10), HighWatermark: 10, RemoteEnd: 10, Copied: true, Limits: all}
	if got := LocalRetention(empty, noon()); !reflect.DeepEqual(got, LocalDrop{Before: 10}) {
		t.Errorf("an empty active segment: %+v", got)
	}
}

// Report 110: a record of the year after next, in the first of the segments, all
// of which are in the bucket. Age falls back to the file's time.
func TestReport110_FutureTimestampDoesNotPinLocalSegments(t *testing.T) {
	segs := local(0, 100, 50, 10, 20)
	segs[0].MaxTimestamp = noon().AddDate(2, 0, 0).UnixMilli()
	segs[1].MaxTimestamp = -1
	f := LocalFacts{Segments: segs, HighWatermark: 50, RemoteEnd: 20, Copied: true, Limits: Limits{Forever, time.Minute}}
	if got := LocalRetention(f, noon()); got.Before != 20 {
		t.Errorf("%+v", got)
	}
	rows := []tiers.RemoteSegment{remote(1, 0, 9, lin(0, 0)), remote(2, 10, 19, lin(0, 10))}
	rows[0].MaxTimestamp = segs[0].MaxTimestamp
	total := TotalFacts{Rows: rows, Lineage: lin(0, 0), LogEnd: 50, Copying: tiers.NoOffset, Limits: Limits{Forever, time.Minute}}
	if d := TotalRetention(total, noon()); len(d.Delete) != 0 || d.Held == nil {
		t.Errorf("total retention keeps it and warns: %+v", d)
	}
	total.Limits.Bytes = 100
	if d := TotalRetention(total, noon()); len(d.Delete) != 1 || d.Held != nil {
		t.Errorf("size retention still works: %+v", d)
	}
	rows[0].MaxTimestamp, rows[0].CreatedAt, total.Limits.Bytes = -1, noon().Add(-time.Hour), Forever
	if d := TotalRetention(total, noon()); len(d.Delete) != 2 || d.Held != nil {
		t.Errorf("no record carries a time: %+v", d)
	}
	rows[0].CreatedAt = noon()
	if d := TotalRetention(total, noon()); len(d.Delete) != 0 {
		t.Errorf("no record carries a time, copied just now: %+v", d)
	}
}

// Report 110, where nothing is copied: what goes by the time of its file although a
// record in it is dated in the future, and what stays by it before something that is
// due, is named. What size or a trim takes is not, nor what is in the bucket.
func TestReport110_WhatTheFilesTimeDecidesIsNamed(t *testing.T) {
	later := noon().AddDate(10, 0, 0).UnixMilli()
	for _, c := range []struct {
		name  string
		bend  func(*LocalFacts)
		dated []Future
		held  *Future
	}{
		{"its file is old", func(*LocalFacts) {}, []Future{{10, 20, later}}, nil},
		{"its file is new, what follows is old", func(f *LocalFacts) { f.Segments[1].Modified = noon() }, nil, &Future{10, 20, later}},
		{"its file is new, the active one is old", func(f *LocalFacts) {
			f.Segments[1].Modified, f.Segments[2].MaxTimestamp = noon(), noon().UnixMilli()
		}, nil, &Future{10, 20, later}},
		{"its file is new, and so is what follows", func(f *LocalFacts) {
			f.Segments[1].Modified, f.Segments[2].MaxTimestamp, f.Segments[3].MaxTimestamp = noon(), noon().UnixMilli(), noon().UnixMilli()
		}, nil, nil},
		{"what stays is not dated in the future", func(f *LocalFacts) { f.Segments[1].MaxTimestamp = noon().UnixMilli() }, nil, nil},
		{"a record of this moment is none of the future", func(f *LocalFacts) {
			f.Segments[1].MaxTimestamp, f.Limits.Age = noon().UnixMilli(), 0
		}, nil, nil},
		{"no record carries a time", func(f *LocalFacts) { f.Segments[1].MaxTimestamp = -1 }, nil, nil},
		{"by size", func(f *LocalFacts) { f.Limits.Bytes = 0 }, nil, nil},
		{"below the log start already", func(f *LocalFacts) { f.LogStart = 20 }, nil, nil},
		{"no limit of age", func(f *LocalFacts) { f.Limits.Age = Forever }, nil, nil},
		{"it is in the bucket", func(f *LocalFacts) { f.Copied, f.RemoteEnd = true, 50 }, nil, nil},
		{"it is in the bucket, and its file is new", func(f *LocalFacts) {
			f.Copied, f.RemoteEnd, f.Segments[1].Modified = true, 50, noon()
		}, nil, nil},
	} {
		f := LocalFacts{Segments: local(0, 100, 50, 10, 20, 30), HighWatermark: 50, Limits: Limits{Forever, time.Minute}}
		f.Segments[1].MaxTimestamp = later
		c.bend(&f)
		if d := LocalRetention(f, noon()); !reflect.DeepEqual(d.Dated, c.dated) || !reflect.DeepEqual(d.Held, c.held) {
			t.Errorf("%s: %+v, held %+v; want %+v, %+v", c.name, d.Dated, d.Held, c.dated, c.held)
		}
	}
}

// Report 001: a restart forgets how much is remote. No offset counts twice.
func TestReport001_NoOffsetCountsTwice(t *testing.T) {
	segs := local(20, 100, 50, 30, 40)
	for end, want := range map[tiers.Offset]int64{0: 300, 20: 300, 30: 200, 35: 100, 40: 100, 50: 0} {
		f := TotalFacts{Local: segs, Lineage: lin(0, 0), LogEnd: 50, Copying: tiers.NoOffset}
		if end > 0 {
			f.Rows = []tiers.RemoteSegment{remote(1, 0, end-1, lin(0, 0))}
		}
		if got := f.live().local; got != want {
			t.Errorf("remote end %d: %d bytes only local, want %d", end, got, want)
		}
	}
	rows := []tiers.RemoteSegment{remote(1, 0, 9, lin(0, 0)), remote(2, 10, 19, lin(0, 10))}
	f := TotalFacts{Rows: rows, Local: segs, Lineage: lin(0, 0), LogEnd: 50, Copying: tiers.NoOffset, Limits: Limits{200, time.Second}, Suspended: true}
	if d := TotalRetention(f, noon()); len(d.Delete) != 0 || d.Floor != 0 || d.Left != 2 {
		t.Errorf("size or age drop something while progress is not known: %+v", d)
	}
	// A copy that was tried again covers the same offsets: 200 bytes, not 400, and
	// half of the third lies within the second.
	twice := append(rows, remote(3, 0, 19, lin(0, 0)), remote(4, 15, 24, lin(0, 15)))
	slices.SortFunc(twice, func(a, b tiers.RemoteSegment) int { return int(a.Base - b.Base) })
	g := TotalFacts{Rows: twice, Lineage: lin(0, 0), LogEnd: 50, Copying: tiers.NoOffset, Limits: Limits{250, Forever}}
	if d := TotalRetention(g, noon()); len(d.Delete) != 0 {
		t.Errorf("%d go although the offsets have 250 bytes", len(d.Delete))
	}
	// Behind a hole in the bucket's cover that the disk fills the rows still count,
	// and what is on disk of them counts once.
	h := TotalFacts{
		Rows: []tiers.RemoteSegment{remote(1, 0, 9, lin(0, 0)), remote(2, 20, 29, lin(0, 20))}, Local: local(0, 100, 40, 10, 20, 30),
		Lineage: lin(0, 0), LogEnd: 40, Copying: tiers.NoOffset,
	}
	if l := h.live(); l.local != 200 || len(l.rows) != 2 || l.ready != 1 {
		t.Errorf("[0,10) and [20,30) in both, [10,20) and [30,40) on disk only: %+v", l)
	}
}

// What only the disk holds is older than the rows behind it: they wait until it
// was copied. A hole that nobody can fill holds nothing.
func TestRetentionDoesNotPassWhatIsOnDiskOnly(t *testing.T) {
	rows := []tiers.RemoteSegment{remote(1, 0, 9, lin(0, 0)), remote(2, 20, 29, lin(0, 20))}
	all := TotalFacts{Rows: rows, Lineage: lin(0, 0), LogEnd: 40, Copying: tiers.NoOffset, Limits: Limits{0, time.Minute}}
	for _, c := range []struct {
		name  string
		local []LocalSegment
		gone  []tiers.Offset
	}{
		{"the disk has the hole", local(0, 100, 40, 10, 20, 30), []tiers.Offset{0}},
		{"a part of it", local(15, 100, 40, 20, 30), []tiers.Offset{0}},
		{"in one segment with more", local(0, 100, 40, 30), []tiers.Offset{0}},
		{"not there any more", local(20, 100, 40, 30), []tiers.Offset{0, 20}},
		{"an empty active segment does not count", local(10, 100, 10), []tiers.Offset{0, 20}},
	} {
		f := all
		f.Local = c.local
		if got := bases(TotalRetention(f, noon()).Delete); !slices.Equal(got, c.gone) {
			t.Errorf("%s: %v, want %v", c.name, got, c.gone)
		}
	}
}

// Report 125: whatever epochs a segment is of, below the log start it goes.
func TestReport125_StraddlingSegmentsGo(t *testing.T) {
	straddles := remote(1, 0, 29, lin(1, 0, 2, 20))
	newer := remote(2, 5, 24, lin(1, 5, 7, 20)) // its last epoch is of a log that was discarded
	f := TotalFacts{Rows: []tiers.RemoteSegment{straddles, newer}, LogEnd: 50, Copying: tiers.NoOffset, Limits: none()}
	for start, want := range map[tiers.Offset][]tiers.Offset{20: nil, 29: {5}, 30: {0, 5}, 50: {0, 5}} {
		f.Floor, f.Lineage = start, lin(2, int64(start))
		if got := bases(TotalRetention(f, noon()).Delete); !slices.Equal(got, want) {
			t.Errorf("the log starts at %d in epoch 2: %v go, want %v", start, got, want)
		}
	}
}

func TestR7_TotalRetention(t *testing.T) {
	rows := func(bend func([]tiers.RemoteSegment)) []tiers.RemoteSegment {
		out := []tiers.RemoteSegment{remote(1, 0, 9, lin(1, 0)), remote(2, 10, 19, lin(1, 10)), remote(3, 20, 29, lin(2, 20)), remote(4, 30, 39, lin(2, 30))}
		if bend != nil {
			bend(out)
		}
		return out
	}
	young := func(i int) func([]tiers.RemoteSegment) {
		return func(r []tiers.RemoteSegment) { r[i].MaxTimestamp = noon().UnixMilli() }
	}
	base := TotalFacts{Lineage: lin(1, 0, 2, 20), LogEnd: 45, Copying: tiers.NoOffset, Limits: Limits{Forever, time.Hour}}
	for _, c := range []struct {
		name  string
		rows  []tiers.RemoteSegment
		bend  func(*TotalFacts)
		gone  []tiers.Offset
		floor tiers.Offset
		retry int
	}{
		{"all are due", rows(nil), nil, []tiers.Offset{0, 10, 20, 30}, 40, 0},
		{"stops at the first that is not", rows(young(1)), nil, []tiers.Offset{0}, 10, 0},
		{"no limits", rows(nil), func(f *TotalFacts) { f.Limits = none() }, nil, 0, 0},
		{"not what is being copied, nor behind it", rows(nil), func(f *TotalFacts) { f.Copying = 20 }, []tiers.Offset{0, 10}, 20, 0},
		{"start breach", rows(nil), func(f *TotalFacts) { f.Lineage, f.Floor, f.Limits = lin(1, 15, 2, 20), 15, none() }, []tiers.Offset{0}, 15, 0},
		{"R10: forgotten epochs, whatever their offsets are", rows(nil), func(f *TotalFacts) { f.Lineage, f.Floor, f.Limits = lin(2, 5), 5, none() }, []tiers.Offset{0, 10}, 5, 0},
		{"out of the lineage, neither forgotten nor due", rows(func(r []tiers.RemoteSegment) { r[0].Epochs = lin(7, 0) }), nil, []tiers.Offset{10, 20, 30}, 40, 0},
		{"behind the end of the log", rows(nil), func(f *TotalFacts) { f.LogEnd = 39 }, []tiers.Offset{0, 10, 20}, 30, 0},
		{"leftovers come first", rows(func(r []tiers.RemoteSegment) { r[0].State = tiers.DeleteStarted }), nil, []tiers.Offset{10, 20, 30}, 40, 1},
		{"a copy that is under way is nobody's", rows(func(r []tiers.RemoteSegment) { r[3].State = tiers.CopyStarted }), nil, []tiers.Offset{0, 10, 20}, 30, 0},
		{"an empty lineage forgets nothing", rows(nil), func(f *TotalFacts) { f.Lineage = nil }, nil, 0, 0},
	} {
		f := base
		f.Rows = c.rows
		if c.bend != nil {
			c.bend(&f)
		}
		d := TotalRetention(f, noon())
		if got := bases(d.Delete); !slices.Equal(got, c.gone) || d.Floor != c.floor || len(d.Retry) != c.retry {
			t.Errorf("%s: %v, floor %d, retry %d; want %v, %d, %d", c.name, got, d.Floor, len(d.Retry), c.gone, c.floor, c.retry)
		}
	}
}

func bases(rows []tiers.RemoteSegment) (out []tiers.Offset) {
	for _, r := range rows {
		out = append(out, r.Base)
	}
	return out
}

func TestTVN8_RetentionGuard(t *testing.T) {
	f := TotalFacts{Rows: []tiers.RemoteSegment{remote(1, 0, 39, lin(0, 0)), remote(2, 40, 99, lin(1, 40))}, Lineage: lin(5, 100), Floor: 40, LogEnd: 100, Copying: tiers.NoOffset, Limits: none()}
	if got := bases(TotalRetention(f, noon()).Delete); !slices.Equal(got, []tiers.Offset{0, 40}) {
		t.Errorf("classic: %v", got)
	}
	f.Switched = true
	if got := bases(TotalRetention(f, noon()).Delete); !slices.Equal(got, []tiers.Offset{0}) {
		t.Errorf("switched: %v", got)
	}
}

func TestTVN9_GuardWhileTheLogIsEmpty(t *testing.T) {
	for _, l := range []tiers.Lineage{nil, lin(7, 0)} {
		f := TotalFacts{
			Rows: []tiers.RemoteSegment{
				remote(1, 0, 39, lin(0, 0)), remote(2, 40, 69, lin(2, 40)), remote(3, 70, 99, lin(3, 70)), remote(4, 100, 149, lin(5, 100)),
			},
			Lineage: l, Floor: 40, Copying: tiers.NoOffset, Switched: true, Limits: Limits{0, 0},
		}
		for _, rebuilding := range []bool{true, false} {
			f.Suspended = rebuilding
			if got := bases(TotalRetention(f, noon()).Delete); !slices.Equal(got, []tiers.Offset{0}) {
				t.Errorf("lineage %s, rebuilding %v: %v", l, rebuilding, got)
			}
		}
	}
}

// Whatever the facts are: no record goes that is in no other tier, unless the log
// start has passed it, and what goes is a prefix.
func TestLocalRetentionLosesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var ends []tiers.Offset
		at := tiers.Offset(0)
		for range rapid.IntRange(0, 6).Draw(t, "closed") {
			at += tiers.Offset(rapid.IntRange(1, 9).Draw(t, "len"))
			ends = append(ends, at)
		}
		end := at + tiers.Offset(rapid.IntRange(0, 9).Draw(t, "active"))
		segs := local(0, 100, end, ends...)
		for i := range segs {
			segs[i].MaxTimestamp = noon().Add(-time.Duration(rapid.IntRange(-5, 100).Draw(t, "age")) * time.Minute).UnixMilli()
		}
		f := LocalFacts{
			Segments: segs, LogStart: tiers.Offset(rapid.IntRange(0, int(end)).Draw(t, "start")), HighWatermark: tiers.Offset(rapid.IntRange(0, int(end)).Draw(t, "hw")),
			RemoteEnd: tiers.Offset(rapid.IntRange(0, int(end)).Draw(t, "remote")), Copied: rapid.Bool().Draw(t, "copied"),
			Limits: Limits{rapid.Int64Range(-1, 600).Draw(t, "bytes"), time.Duration(rapid.IntRange(-1, 90).Draw(t, "minutes")) * time.Minute},
		}
		d := LocalRetention(f, noon())
		if d.Before > at || d.Before > f.HighWatermark && d.Before > 0 || d.LogStart < f.LogStart {
			t.Fatalf("%+v of %+v", d, f)
		}
		if f.Copied && (d.LogStart != f.LogStart || d.Before > f.RemoteEnd && d.Before > f.LogStart) {
			t.Fatalf("offsets below %d leave the disk, the bucket ends at %d: %+v", d.Before, f.RemoteEnd, d)
		}
		if !f.Copied && d.Before > d.LogStart {
			t.Fatalf("offsets below %d go, the log starts at %d", d.Before, d.LogStart)
		}
		if d.Before > 0 && !slices.Contains(ends, d.Before) {
			t.Fatalf("%d is no border of segments", d.Before)
		}
		if f.Limits.Bytes < 0 && f.Limits.Age < 0 && d.Before > f.LogStart {
			t.Fatalf("without limits %d is dropped, the log starts at %d", d.Before, f.LogStart)
		}
	})
}

package plan

import (
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/strandline-io/strandline/tiers"
)

// Both tiers: [0,20) in the bucket only, [20,30) in both, [30,40) on disk only,
// [40,50) active.
func both() PassFacts {
	return PassFacts{
		Total: TotalFacts{
			Rows:  []tiers.RemoteSegment{remote(1, 0, 9, lin(0, 0)), remote(2, 10, 19, lin(0, 10)), remote(3, 20, 29, lin(0, 20))},
			Local: local(20, 100, 50, 30, 40), Lineage: lin(0, 0), LogEnd: 50, Copying: tiers.NoOffset, Limits: none(),
		},
		HighWatermark: 50, RemoteEnd: 30, Copied: true, Local: none(),
	}
}

func TestRetentionPass(t *testing.T) {
	hour := Limits{Forever, time.Hour}
	for _, c := range []struct {
		name string
		bend func(*PassFacts)
		want Pass
	}{
		{"no limits", func(*PassFacts) {}, Pass{DropBefore: 20}},
		{"local limits drop what is in the bucket", func(f *PassFacts) { f.Local = hour }, Pass{DropBefore: 30}},
		{"total limits keep what is not copied", func(f *PassFacts) { f.Total.Limits = hour }, Pass{LogStart: 30, DropBefore: 20, ByAge: true}},
		{"by size", func(f *PassFacts) { f.Total.Limits = Limits{400, Forever} }, Pass{LogStart: 10, DropBefore: 20}},
		{"report 108: not copied, but the bucket's are not all due", func(f *PassFacts) { f.Copied, f.Total.Limits = false, Limits{400, Forever} }, Pass{LogStart: 10, DropBefore: 20}},
		{"report 108: not copied, one limit over both tiers", func(f *PassFacts) { f.Copied, f.Total.Limits = false, Limits{100, Forever} }, Pass{LogStart: 40, DropBefore: 20}},
		{"report 108: not copied, the local limits do not hold", func(f *PassFacts) { f.Copied, f.Local = false, hour }, Pass{DropBefore: 20}},
		{"not copied, all is due", func(f *PassFacts) { f.Copied, f.Total.Limits = false, hour }, Pass{LogStart: 40, DropBefore: 20, Roll: true, ByAge: true}},
		{"not copied, a record from the future holds the bucket's", func(f *PassFacts) {
			f.Copied, f.Total.Limits = false, hour
			f.Total.Rows[1].MaxTimestamp = noon().Add(time.Hour).UnixMilli()
		}, Pass{LogStart: 10, DropBefore: 20, ByAge: true, Held: &Future{10, 20, noon().Add(time.Hour).UnixMilli()}}},
		{"report 110: not copied, a record from the future on disk", func(f *PassFacts) {
			f.Copied, f.Total.Limits, f.Total.Local[1].MaxTimestamp = false, hour, noon().Add(time.Hour).UnixMilli()
		}, Pass{LogStart: 40, DropBefore: 20, Roll: true, ByAge: true, Dated: []Future{{30, 40, noon().Add(time.Hour).UnixMilli()}}}},
		{"report 110: and its file is new", func(f *PassFacts) {
			f.Copied, f.Total.Limits, f.Total.Local[1].MaxTimestamp, f.Total.Local[1].Modified = false, hour, noon().Add(time.Hour).UnixMilli(), noon()
		}, Pass{LogStart: 30, DropBefore: 20, ByAge: true, Held: &Future{30, 40, noon().Add(time.Hour).UnixMilli()}}},
		{"report 001: rows that are not known hold all", func(f *PassFacts) { f.Copied, f.Total.Limits, f.Total.Suspended = false, hour, true }, Pass{DropBefore: 20}},
		{"local retention goes on by what is known", func(f *PassFacts) { f.Local, f.Total.Limits, f.Total.Suspended = hour, hour, true }, Pass{DropBefore: 30}},
		{"below the log start", func(f *PassFacts) { f.Total.Floor, f.Total.Lineage = 35, lin(0, 35) }, Pass{LogStart: 35, DropBefore: 30}},
		{"nothing in the bucket", func(f *PassFacts) {
			f.Total.Rows, f.Copied, f.RemoteEnd, f.Total.Floor, f.Total.Lineage, f.Total.Limits = nil, false, 20, 20, lin(0, 20), Limits{200, Forever}
		}, Pass{LogStart: 30, DropBefore: 20}},
	} {
		f := both()
		c.bend(&f)
		got := Retention(f, noon())
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v (held %+v), want %+v (held %+v)", c.name, got, got.Held, c.want, c.want.Held)
		}
	}
}

// Whatever the facts are, each offset that was in a tier and is at or above the
// published log start is in one afterwards, and the log start passes nothing that
// is not in a tier, or not due.
func TestNoPassLosesAnOffset(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawBoth(t)
		now := noon()
		p := Retention(f, now)
		segs, start := f.Total.Local, f.Total.Floor
		if p.DropBefore > max(start, f.RemoteEnd) && p.DropBefore > segs[0].Base {
			t.Fatalf("drops below %d: the log starts at %d, the bucket ends at %d", p.DropBefore, start, f.RemoteEnd)
		}
		if !f.Copied && p.DropBefore > start && p.DropBefore > segs[0].Base {
			t.Fatalf("nothing is copied, and what is above the log start %d goes: %d", start, p.DropBefore)
		}
		if p.LogStart < start || p.LogStart > f.HighWatermark && p.LogStart > start {
			t.Fatalf("the log start goes from %d to %d, the high watermark is %d", start, p.LogStart, f.HighWatermark)
		}
		if f.Total.Suspended && p.LogStart != start {
			t.Fatal("the log start moves although the rows are not known")
		}
		for _, s := range segs {
			covered := s.Next <= f.RemoteEnd
			if f.Copied && !covered && s.Next > start && s.Base < p.LogStart && s.Base >= f.RemoteEnd {
				t.Fatalf("[%d,%d) is not in the bucket, and the log start passes it: %d", s.Base, s.Next, p.LogStart)
			}
		}
		if f.Total.Limits == none() && p.LogStart != start {
			t.Fatal("no limit, and the log start moves")
		}
	})
}

// drawBoth is a log in both tiers: rows up to RemoteEnd without a hole, the disk
// from somewhere in there on.
func drawBoth(t *rapid.T) PassFacts {
	f := PassFacts{Total: TotalFacts{Lineage: lin(0, 0), Copying: tiers.NoOffset}}
	age := func() int64 {
		return noon().Add(-time.Duration(rapid.IntRange(-5, 100).Draw(t, "age")) * time.Minute).UnixMilli()
	}
	borders := []tiers.Offset{0}
	for range rapid.IntRange(1, 7).Draw(t, "segments") {
		borders = append(borders, borders[len(borders)-1]+tiers.Offset(rapid.IntRange(1, 9).Draw(t, "len")))
	}
	last := len(borders) - 1
	rows := rapid.IntRange(0, last).Draw(t, "rows")
	for i := range rows {
		r := remote(i+1, borders[i], borders[i+1]-1, lin(0, int64(borders[i])))
		r.MaxTimestamp = age()
		f.Total.Rows = append(f.Total.Rows, r)
	}
	f.RemoteEnd = borders[rows]
	for i := rapid.IntRange(0, rows).Draw(t, "on disk from"); i < last; i++ {
		s := LocalSegment{Base: borders[i], Next: borders[i+1], Size: int64(rapid.IntRange(1, 200).Draw(t, "size")), MaxTimestamp: age(), Modified: noon()}
		f.Total.Local = append(f.Total.Local, s)
	}
	end := borders[last]
	active := LocalSegment{Base: end, Next: end + tiers.Offset(rapid.IntRange(0, 5).Draw(t, "active")), MaxTimestamp: age(), Modified: noon(), Active: true}
	active.Size = int64(active.Next - active.Base)
	f.Total.Local = append(f.Total.Local, active)
	f.Total.LogEnd = active.Next
	f.HighWatermark = tiers.Offset(rapid.Int64Range(int64(f.RemoteEnd), int64(active.Next)).Draw(t, "high watermark"))
	f.Total.Floor = tiers.Offset(rapid.Int64Range(0, int64(f.HighWatermark)).Draw(t, "log start"))
	f.Total.Lineage = lin(0, int64(f.Total.Floor))
	f.RemoteEnd = max(f.RemoteEnd, f.Total.Floor)
	limits := func(name string) Limits {
		return Limits{rapid.Int64Range(-1, 900).Draw(t, name+" bytes"), time.Duration(rapid.IntRange(-1, 90).Draw(t, name+" minutes")) * time.Minute}
	}
	f.Total.Limits, f.Local = limits("total"), limits("local")
	for _, l := range []*Limits{&f.Total.Limits, &f.Local} {
		if l.Age < 0 {
			l.Age = Forever
		}
	}
	f.Copied, f.Total.Suspended = rapid.Bool().Draw(t, "copied"), rapid.IntRange(0, 4).Draw(t, "suspended") == 0
	return f
}

// TestSettle: passes go on until nothing is due, and nothing of what they were told
// changes by that.
func TestSettle(t *testing.T) {
	hour := Limits{Forever, time.Hour}
	for name, c := range map[string]struct {
		bend func(*PassFacts)
		want tiers.Offset
	}{
		"no limits":                      {func(*PassFacts) {}, 0},
		"the local tier alone":           {func(f *PassFacts) { f.Local = hour }, 0},
		"all, once it is copied":         {func(f *PassFacts) { f.Local, f.Total.Limits = hour, hour }, 50},
		"the active one is not due":      {func(f *PassFacts) { f.Total.Limits = hour }, 40},
		"by size":                        {func(f *PassFacts) { f.Total.Limits = Limits{200, Forever} }, 30},
		"not copied, all":                {func(f *PassFacts) { f.Copied, f.Total.Limits = false, hour }, 50},
		"not copied, no byte":            {func(f *PassFacts) { f.Copied, f.Total.Limits = false, Limits{0, Forever} }, 50},
		"not committed":                  {func(f *PassFacts) { f.Copied, f.Total.Limits, f.HighWatermark = false, hour, 45 }, 40},
		"an active one without a record": {func(f *PassFacts) { f.Total.Limits, f.Total.Local[2].Size = hour, 0 }, 40},
	} {
		f, before := both(), both()
		c.bend(&f)
		c.bend(&before)
		if got := Settle(f, noon()); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
		if !reflect.DeepEqual(f, before) {
			t.Errorf("%s: the facts changed", name)
		}
	}
}

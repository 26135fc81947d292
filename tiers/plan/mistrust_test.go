package plan_test

import (
	"testing"

	"github.com/strandline-io/strandline/remoteindex"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/plan"
)

func TestMistrust(t *testing.T) {
	lin := tiers.Lineage{{Epoch: 0, Start: 0}}
	row := func(base, end tiers.Offset, size int64) tiers.RemoteSegment {
		return tiers.RemoteSegment{ID: tiers.SegmentID{byte(base), 1}, Base: base, End: end, Size: size, State: tiers.CopyFinished, Epochs: lin.Slice(base, end)}
	}
	rows := []tiers.RemoteSegment{row(0, 10, 100), row(10, 20, 100), row(20, 30, 100)}
	seg := func(base, next tiers.Offset, size int64) plan.LocalSegment {
		return plan.LocalSegment{Base: base, Next: next, Size: size}
	}
	active := plan.LocalSegment{Base: 40, Next: 45, Size: 7, Active: true}
	truth := remoteindex.Truth{Lineage: lin, Bound: 45}
	for name, c := range map[string]struct {
		segs []plan.LocalSegment
		rows []tiers.RemoteSegment
		want tiers.Offset
	}{
		"all there":                {[]plan.LocalSegment{seg(0, 10, 100), seg(10, 20, 100), seg(20, 30, 100), seg(30, 40, 1), active}, rows, 0},
		"a middle one is gone":     {[]plan.LocalSegment{seg(0, 20, 100), seg(20, 30, 100), seg(30, 40, 1), active}, rows, 20},
		"the first ones are gone":  {[]plan.LocalSegment{seg(20, 30, 100), seg(30, 40, 1), active}, rows, 0},
		"one was emptied":          {[]plan.LocalSegment{seg(0, 10, 100), seg(10, 20, 0), seg(20, 30, 100), active}, rows, 20},
		"one was replaced":         {[]plan.LocalSegment{seg(0, 10, 101), seg(10, 20, 100), seg(20, 30, 100), active}, rows, 10},
		"the last copied is gone":  {[]plan.LocalSegment{seg(0, 10, 100), seg(10, 30, 100), seg(30, 40, 1), active}, rows, 30},
		"a copy of a lost history": {[]plan.LocalSegment{seg(0, 10, 100), seg(10, 20, 55), active}, []tiers.RemoteSegment{{ID: tiers.SegmentID{9}, Base: 10, End: 30, Size: 9, State: tiers.CopyFinished, Epochs: tiers.Lineage{{Epoch: 3, Start: 10}}}}, 0},
		"a copy under way":         {[]plan.LocalSegment{seg(0, 10, 100), active}, []tiers.RemoteSegment{{ID: tiers.SegmentID{9}, Base: 0, End: 10, Size: 0, State: tiers.CopyStarted, Epochs: lin}}, 0},
	} {
		if got, why := plan.Mistrust(c.segs, c.rows, truth); got != c.want || (got > 0) != (why != "") {
			t.Errorf("%s: below %d (%s), want %d", name, got, why, c.want)
		}
	}
}

package broker

import (
	"testing"
	"time"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/partition"
	"github.com/strandline-io/strandline/tiers/plan"
)

// info is a segment of 100 bytes whose newest record is an hour per ten offsets
// old at offset 100.
func info(base, next tiers.Offset, tier, state string) partition.SegmentInfo {
	return partition.SegmentInfo{
		Base: base, Next: next, Tier: tier, State: state, Bytes: 100, Epochs: tiers.Lineage{{Epoch: 0, Start: base}},
		MaxTimestamp: noon.Add(-time.Duration(100-next) * 6 * time.Minute).UnixMilli(),
	}
}

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) //nolint:gochecknoglobals // the time of these tests

// TestEffects: what a change of settings deletes, by the rules of both tiers.
func TestEffects(t *testing.T) {
	const done = "copy-finished"
	tiered := holdings{
		marks:   tiers.Watermarks{LogStart: 0, LocalLogStart: 20, RemoteEnd: 60, LastStable: 100, HighWatermark: 100, LogEnd: 100},
		lineage: tiers.Lineage{{Epoch: 0, Start: 0}},
		segments: []partition.SegmentInfo{
			info(0, 10, "remote", done), info(10, 20, "remote", done), info(20, 40, "both", done), info(40, 60, "both", done),
			info(60, 80, "local", "closed"), info(80, 100, "local", "active"),
		},
	}
	plain := holdings{
		marks:    tiers.Watermarks{LogStart: 0, LocalLogStart: 0, LastStable: 100, HighWatermark: 100, LogEnd: 100},
		lineage:  tiers.Lineage{{Epoch: 0, Start: 0}},
		segments: []partition.SegmentInfo{info(0, 40, "local", "closed"), info(40, 80, "local", "closed"), info(80, 100, "local", "active")},
	}
	none := plan.Limits{Bytes: -1, Age: -1}
	limits := func(size int64, age time.Duration) partition.Retention {
		return partition.Retention{On: true, Total: plan.Limits{Bytes: size, Age: age}, Local: none}
	}
	for name, c := range map[string]struct {
		h      holdings
		c      partition.Config
		start  tiers.Offset
		count  int
		local  int64
		remote int64
	}{
		"no limit":                        {tiered, partition.Config{Remote: true, Retention: limits(-1, -1)}, 0, 0, 0, 0},
		"size":                            {tiered, partition.Config{Remote: true, Retention: limits(450, -1)}, 10, 1, 0, 100},
		"each byte counts once":           {tiered, partition.Config{Remote: true, Retention: limits(600, -1)}, 0, 0, 0, 0},
		"age":                             {tiered, partition.Config{Remote: true, Retention: limits(-1, 5*time.Hour)}, 40, 3, 100, 300},
		"what is not copied stays":        {tiered, partition.Config{Remote: true, Retention: limits(0, 0)}, 60, 4, 200, 400},
		"but not while copying is paused": {tiered, partition.Config{Remote: true, Retention: partition.Retention{On: true, Total: plan.Limits{Bytes: -1, Age: 90 * time.Minute}, CopyPaused: true}}, 80, 5, 300, 400},
		"switched off":                    {tiered, partition.Config{Retention: partition.Retention{On: true, Total: none, ForgetRemote: true}}, 20, 2, 0, 400},
		"local disk alone, by age":        {plain, partition.Config{Retention: limits(-1, 90*time.Minute)}, 80, 2, 200, 0},
		"local disk alone, by size":       {plain, partition.Config{Retention: limits(200, -1)}, 40, 1, 100, 0},
	} {
		got := c.h.effect(3, c.c, noon)
		want := Effect{Partition: 3, NewStart: c.start, Segments: c.count, LocalBytes: c.local, RemoteBytes: c.remote}
		if got != want {
			t.Errorf("%s:\n got %+v\nwant %+v", name, got, want)
		}
	}
}

func TestDeletesMore(t *testing.T) {
	with := func(size int64, age time.Duration, forget bool) partition.Config {
		return partition.Config{Retention: partition.Retention{Total: plan.Limits{Bytes: size, Age: age}, ForgetRemote: forget}}
	}
	for name, c := range map[string]struct {
		before, after partition.Config
		want          bool
	}{
		"the same":      {with(5, 5, false), with(5, 5, false), false},
		"less bytes":    {with(5, 5, false), with(4, 5, false), true},
		"a limit":       {with(-1, -1, false), with(-1, 9, false), true},
		"more":          {with(5, 5, false), with(6, 9, false), false},
		"no limit":      {with(5, 5, false), with(-1, -1, false), false},
		"switching off": {with(5, 5, false), with(5, 5, true), true},
		"off already":   {with(5, 5, true), with(5, 5, true), false},
	} {
		if got := deletesMore(c.before, c.after); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

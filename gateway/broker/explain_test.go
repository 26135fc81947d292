package broker

import (
	"reflect"
	"testing"
	"time"

	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/partition"
	"github.com/strandline-io/strandline/tiers/plan"
)

// TestWhatRetentionDoesNext, in words.
func TestWhatRetentionDoesNext(t *testing.T) {
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	seg := func(base, next tiers.Offset, tier, state string, newest time.Time) partition.SegmentInfo {
		return partition.SegmentInfo{Base: base, Next: next, Tier: tier, State: state, Bytes: 100, MaxTimestamp: newest.UnixMilli()}
	}
	old := seg(0, 10, "remote", "copy-finished", noon.Add(-3*time.Hour))
	leaving := seg(0, 5, "remote", "delete-started", noon.Add(-3*time.Hour))
	timeless := partition.SegmentInfo{Base: 0, Next: 10, Tier: "local", State: "closed", Bytes: 100, MaxTimestamp: -1}
	active := seg(10, 20, "local", "active", noon)
	with := func(size int64, age time.Duration) partition.Config {
		return partition.Config{Remote: true, Retention: partition.Retention{On: true, Total: plan.Limits{Bytes: size, Age: age}}}
	}
	for name, c := range map[string]struct {
		segments []partition.SegmentInfo
		start    tiers.Offset
		forecast partition.Forecast
		c        partition.Config
		want     []string
	}{
		"no limit": {[]partition.SegmentInfo{old, active}, 0, partition.Forecast{}, with(-1, -1), []string{
			"by age: retention.ms sets no limit", "by size: retention.bytes sets no limit",
		}},
		"later": {[]partition.SegmentInfo{leaving, old, active}, 0, partition.Forecast{}, with(1000, 4*time.Hour), []string{
			"by age: the oldest segment, [0,10), is due at 2026-03-01T13:00:00.000Z", "by size: 200 bytes of retention.bytes=1000",
		}},
		"size, with an active one": {[]partition.SegmentInfo{active}, 10, partition.Forecast{}, with(50, -1), []string{
			"by age: retention.ms sets no limit", "by size: 100 bytes of retention.bytes=50, 100 of them in the active segment, which stays until it is closed",
		}},
		"below the start": {[]partition.SegmentInfo{leaving, old, active}, 5, partition.Forecast{LogStart: 5, NewStart: 5}, with(-1, 4*time.Hour), []string{
			"by age: the oldest segment, [0,10), is due at 2026-03-01T13:00:00.000Z", "by size: retention.bytes sets no limit",
		}},
		"now": {[]partition.SegmentInfo{old, active}, 0, partition.Forecast{NewStart: 10, Segments: 1, RemoteBytes: 100}, with(-1, time.Hour), []string{
			"the next passes move the log start from 0 to 10: 1 segments go, 0 bytes on disk and 100 in the bucket", "by size: retention.bytes sets no limit",
		}},
		"from the future": {[]partition.SegmentInfo{seg(0, 10, "both", "copy-finished", noon.Add(time.Hour)), active}, 0, partition.Forecast{}, with(-1, time.Hour), []string{
			"by age: the oldest segment, [0,10), is held by a record from the future, 2026-03-01T13:00:00.000Z", "by size: retention.bytes sets no limit",
		}},
		"without times": {[]partition.SegmentInfo{timeless, active}, 0, partition.Forecast{}, with(-1, time.Hour), []string{
			"by age: the oldest segment, [0,10), has no timestamps and ages from its copy or file on", "by size: retention.bytes sets no limit",
		}},
		"only the active one": {[]partition.SegmentInfo{active}, 10, partition.Forecast{}, with(-1, time.Hour), []string{
			"by age: the oldest records are in the active segment, which is closed first", "by size: retention.bytes sets no limit",
		}},
		"empty": {nil, 0, partition.Forecast{}, with(0, time.Hour), []string{"by age: there are no records", "by size: 0 bytes of retention.bytes=0"}},
	} {
		h := holdings{marks: tiers.Watermarks{LogStart: c.start}, segments: c.segments}
		if got := h.next(c.forecast, c.c, noon); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\n got %q\nwant %q", name, got, c.want)
		}
	}
}

// TestSumsCountEachByteOnce, and what is copied alone can lag.
func TestSumsCountEachByteOnce(t *testing.T) {
	segments := []partition.SegmentInfo{
		{Tier: "remote", State: "copy-finished", Bytes: 1},
		{Tier: "both", State: "copy-finished", Bytes: 10},
		{Tier: "local", State: "closed", Bytes: 100},
		{Tier: "local", State: "copying", Bytes: 1000},
		{Tier: "local", State: "active", Bytes: 10_000},
	}
	b := &Broker{settings: settingsOf(t, true, nil)}
	got := b.SumOf(control.Topic{}, segments)
	if want := (Sums{Local: 11_110, Remote: 11, Both: 10, CopyLag: 1100}); got != want || got.Total() != 11_111 {
		t.Errorf("%+v, total %d", got, got.Total())
	}
	if got = b.SumOf(control.Topic{Configs: map[string]string{"remote.storage.enable": "false"}}, segments); got.CopyLag != 0 {
		t.Errorf("a topic that is not copied lags by %d bytes", got.CopyLag)
	}
}

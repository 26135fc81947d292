package plan

import (
	"testing"
	"time"

	"github.com/strandline-io/strandline/tiers"
)

// R6: local retention ends at the first segment that is not due, whatever lies
// behind it.
func TestR6_LocalRetentionPassesNothingOver(t *testing.T) {
	segs := local(0, 100, 50, 10, 20, 30)
	segs[1].MaxTimestamp = noon().Add(-time.Minute).UnixMilli()
	for _, copied := range []bool{true, false} {
		f := LocalFacts{Segments: segs, HighWatermark: 50, RemoteEnd: 30, Copied: copied, Limits: Limits{Forever, time.Hour}}
		d := LocalRetention(f, noon())
		if d.Before != 10 || d.Roll || copied && d.LogStart != 0 || !copied && d.LogStart != 10 {
			t.Errorf("copied %v: %+v", copied, d)
		}
	}
}

// Report 110: a segment whose records carry no time is as old as its file, not as
// old as time itself.
func TestReport110_NoTimestampIsNotOld(t *testing.T) {
	segs := local(0, 100, 50, 10, 20)
	segs[0].MaxTimestamp, segs[0].Modified = -1, noon().Add(-time.Minute)
	f := LocalFacts{Segments: segs, HighWatermark: 50, RemoteEnd: 20, Copied: true, Limits: Limits{Forever, time.Hour}}
	if d := LocalRetention(f, noon()); d.Before != 0 {
		t.Errorf("written a minute ago: %+v", d)
	}
	segs[0].Modified = noon().Add(-time.Hour)
	if d := LocalRetention(f, noon()); d.Before != tiers.Offset(20) {
		t.Errorf("written an hour ago: %+v", d)
	}
}

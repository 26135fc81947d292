package partition

import (
	"time"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/local"
)

// Lag is what of a partition is on this disk only and should be in the bucket too:
// its closed segments that are not copied. The active segment is no lag.
type Lag struct {
	Bytes    int64
	Segments int
	Oldest   time.Time // when the oldest of them was last written to; zero if there is none
}

// Lag is how far the copies are behind. It takes no step of the loop.
func (o *Owner) Lag() Lag { return o.view.Load().lag }

// onLag is the lag that goes with v, computed anew only if v differs from the last
// View in what it depends on. A partition whose copies are paused lags too: that is
// what a pause costs.
func (s *state) onLag(v *View) Lag {
	v.lagged = s.bucket && s.config.Remote
	if !v.lagged {
		return Lag{}
	}
	if old := s.view; old != nil && old.lagged && old.files == v.files && old.RemoteEnd == v.RemoteEnd && old.LogStart == v.LogStart {
		return old.lag
	}
	return lagOf(s.local.Segments(), max(v.RemoteEnd, v.LogStart))
}

// lagOf sums up the closed segments that end above at.
func lagOf(segs []local.Segment, at tiers.Offset) (l Lag) {
	for _, seg := range segs {
		if seg.Next <= at || seg.Active {
			continue
		}
		if l.Segments++; l.Segments == 1 {
			l.Oldest = seg.Modified
		}
		l.Bytes += seg.Size
	}
	return l
}

package partition

// Forecast: what retention would do under other settings, for whoever must know
// before the settings change. Nothing is done.

import (
	"context"
	"slices"
	"time"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/plan"
)

// Forecast is what the next passes of retention delete, until one finds nothing
// that is due: the active segment too, which one of them closes, and what is copied
// first. Records that come meanwhile, and time, change it.
type Forecast struct {
	LogStart    tiers.Offset // now
	NewStart    tiers.Offset // then
	Segments    int          // readable ones that end between the two, each counted once
	LocalBytes  int64        // of files that go
	RemoteBytes int64        // of objects that go
}

// Forecast applies the rules of retention (R6-R10) to what there is, as they are
// under c.
func (o *Owner) Forecast(ctx context.Context, c Config) (Forecast, error) {
	var out Forecast
	var failed error
	err := o.do(ctx, "forecast retention", func(s *state) {
		if failed = s.offline(); failed == nil {
			out = forecast(s.forecastFacts(c), s.onSegments(), s.view.LogStart, c.forgets(), s.now())
		}
	})
	if err != nil {
		return Forecast{}, err
	}
	return out, failed
}

// forgets reports whether everything that is in the bucket goes.
func (c Config) forgets() bool { return c.Retention.ForgetRemote && !c.Remote }

func (s *state) forecastFacts(c Config) plan.PassFacts {
	v := s.view
	floor, limits, rows := v.LogStart, c.Retention.Total, slices.Collect(v.index.All())
	if !c.Retention.On {
		limits = plan.Limits{Bytes: plan.Forever, Age: plan.Forever}
	}
	if c.forgets() {
		floor, rows = max(floor, v.LocalLogStart), nil
	}
	return plan.PassFacts{
		Total: plan.TotalFacts{
			Rows: rows, Local: localFacts(s.local.Segments()), Lineage: v.Lineage.TruncateStart(floor),
			Floor: floor, LogEnd: v.LogEnd, Copying: tiers.NoOffset, Limits: limits,
		},
		HighWatermark: v.HighWatermark, RemoteEnd: max(v.RemoteEnd, floor), Copied: c.Remote && !c.Retention.CopyPaused, Local: c.Retention.Local,
	}
}

// forecast counts the segments that readers have now and do not have once passes
// have settled, and what is forgotten besides.
func forecast(f plan.PassFacts, segments []SegmentInfo, start tiers.Offset, forgets bool, now time.Time) Forecast {
	out := Forecast{LogStart: start, NewStart: plan.Settle(f, now)}
	for _, s := range segments {
		goes := s.Ends(start, out.NewStart)
		if goes {
			out.Segments++
		}
		if goes && s.Tier != "remote" {
			out.LocalBytes += s.Bytes
		}
		if (goes || forgets && s.Readable()) && s.Tier != "local" {
			out.RemoteBytes += s.Bytes
		}
	}
	return out
}

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

// Forecast is what the next passes of retention delete: whole segments below a
// start. Records that come meanwhile change it.
type Forecast struct {
	LogStart    tiers.Offset // now
	NewStart    tiers.Offset // then
	Segments    int          // below it, each counted once
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
			out = forecast(s.forecastFacts(c), s.onSegments(), c.forgets(), s.now())
			out.LogStart = s.view.LogStart
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
	floor, limits := v.LogStart, c.Retention.Total
	if !c.Retention.On {
		limits = plan.Limits{Bytes: plan.Forever, Age: plan.Forever}
	}
	if c.forgets() {
		floor = max(floor, v.LocalLogStart)
	}
	return plan.PassFacts{
		Total: plan.TotalFacts{
			Rows: slices.Collect(v.index.All()), Local: localFacts(s.local.Segments()), Lineage: v.Lineage.TruncateStart(floor),
			Floor: floor, LogEnd: v.LogEnd, Copying: tiers.NoOffset, Limits: limits,
		},
		HighWatermark: v.HighWatermark, RemoteEnd: max(v.RemoteEnd, floor), Copied: c.Remote && !c.Retention.CopyPaused, Local: c.Retention.Local,
	}
}

// forecast counts what lies below the start that a pass leads to, and what is
// forgotten besides.
func forecast(f plan.PassFacts, segments []SegmentInfo, forgets bool, now time.Time) Forecast {
	out := Forecast{NewStart: plan.Retention(f, now).LogStart}
	for _, s := range segments {
		below := s.Next <= out.NewStart
		if below {
			out.Segments++
		}
		if below && s.Tier != "remote" {
			out.LocalBytes += s.Bytes
		}
		if (below || forgets) && s.Tier != "local" {
			out.RemoteBytes += s.Bytes
		}
	}
	return out
}

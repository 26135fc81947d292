package partition

import (
	"testing"
	"time"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/batch"
	"github.com/strandline-io/strandline/tiers/plan"
	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

// bytesOf adds up a tier.
func (d *driven) bytesOf(except string) (n int64) {
	for _, s := range d.s.onSegments() {
		if s.Tier != except {
			n += s.Bytes
		}
	}
	return n
}

// stampedOpen appends two records to the active segment.
func (d *driven) stampedOpen(at time.Time) {
	d.t.Helper()
	for range 2 {
		d.must(build(batch.Builder{ProducerID: -1}, at.UnixMilli(), "open"))
	}
}

func (d *driven) forecast(c Config) Forecast {
	return forecast(d.s.forecastFacts(c), d.s.onSegments(), d.View().LogStart, c.forgets(), d.s.now())
}

// TestForecastIsWhatRetentionDoes: what is announced under other settings is what
// goes once they hold, in each tier, and announcing it changes nothing.
func TestForecastIsWhatRetentionDoes(t *testing.T) {
	limits := func(size int64, age time.Duration) func(*Retention) {
		return func(r *Retention) { r.Total = plan.Limits{Bytes: size, Age: age} }
	}
	both := func(age time.Duration) func(*Retention) {
		return func(r *Retention) { limits(-1, age)(r); r.Local.Age = age }
	}
	for name, c := range map[string]struct {
		copied int // of four closed segments; the active one holds records, too
		remote bool
		change func(*Retention)
		goes   bool
	}{
		"nothing":                            {4, true, func(*Retention) {}, false},
		"age":                                {4, true, limits(-1, 150*time.Minute), true},
		"age, all of it":                     {4, true, limits(-1, 0), true},
		"size":                               {4, true, limits(300, -1), true},
		"size, enough":                       {4, true, limits(1<<30, -1), false},
		"size 0":                             {4, true, limits(0, -1), true},
		"half is copied, and the rest first": {2, true, limits(0, 0), true},
		"nothing copied":                     {0, true, limits(0, 0), true},
		"on disk and in the bucket":          {4, true, both(0), true},
		"on disk and in the bucket, by size": {2, true, func(r *Retention) { both(-1)(r); r.Total.Bytes, r.Local.Bytes = 0, 0 }, true},
		"never copied, all of it":            {0, false, limits(-1, 0), true},
		"never copied, no byte may stay":     {0, false, limits(0, -1), true},
		"paused, all of it":                  {2, true, func(r *Retention) { limits(-1, 0)(r); r.CopyPaused = true }, true},
		"switched off, all of it":            {4, false, func(r *Retention) { limits(-1, 0)(r); r.ForgetRemote = true }, true},
		"paused":                             {2, true, func(r *Retention) { limits(-1, 90*time.Minute)(r); r.CopyPaused = true }, true},
		"paused, the bucket's are not due":   {2, true, func(r *Retention) { limits(-1, 210*time.Minute)(r); r.CopyPaused = true }, true},
		"never copied":                       {0, false, limits(-1, 90*time.Minute), true},
		"never copied, by size":              {0, false, limits(300, -1), true},
		"switched off":                       {4, false, func(r *Retention) { r.ForgetRemote = true }, true},
		"switched off, and kept":             {4, false, func(*Retention) {}, false},
		"switched off, some on disk only":    {2, false, func(r *Retention) { r.ForgetRemote = true }, true},
		"switched off and by age besides":    {4, false, func(r *Retention) { limits(-1, 90*time.Minute)(r); r.ForgetRemote = true }, true},
		"retention is off":                   {4, true, func(r *Retention) { limits(0, 0)(r); r.On = false }, false},
		"deleting is said, copying goes on":  {4, true, func(r *Retention) { r.ForgetRemote = true }, false},
	} {
		t.Run(name, func(t *testing.T) {
			var clock time.Time
			w := clocked(t, &clock, keep(func(r *Retention) { r.Local.Age = 3 * time.Hour })) // the first segment leaves the disk
			w.config.Remote = c.copied > 0 || c.remote
			d := w.drive()
			if c.copied < 4 {
				w.bucket.Add(memory.Fault{Key: "topics/", Ops: memory.OpPut, Skip: 2 * c.copied, Sticky: true, Err: remote.ErrUnavailable})
			}
			for i := range 4 {
				d.stamped(hour.Add(time.Duration(i-4)*time.Hour), 2)
			}
			d.runAll()
			_ = d.retain() // tells that what is not copied waits for it
			d.stampedOpen(hour)
			next := w.config
			next.Remote, next.Retention = c.remote, keep(c.change)
			before, local, bucket := d.View().Watermarks, d.bytesOf("remote"), d.bytesOf("local")
			f := d.forecast(next)
			if d.View().Watermarks != before || d.bytesOf("remote") != local || d.bytesOf("local") != bucket {
				t.Fatal("a forecast changed something")
			}
			if f.LogStart != before.LogStart || (f.NewStart > f.LogStart || f.RemoteBytes > 0) != c.goes || (f.Segments > 0) != (f.NewStart > f.LogStart) {
				t.Errorf("%+v of %+v", f, before)
			}
			if err := d.s.onConfigure(next); err != nil {
				t.Fatal(err)
			}
			w.bucket.Clear() // what waits for its copy is copied before it goes
			for range 4 {
				clock = clock.Add(time.Second) // a copy that failed is tried again
				_ = d.retain()
			}
			after := d.View()
			if after.LogStart != f.NewStart {
				t.Fatalf("the log starts at %d, %+v was announced", after.LogStart, f)
			}
			if gone := local - d.bytesOf("remote"); gone != f.LocalBytes {
				t.Errorf("%d local bytes went, %+v was announced", gone, f)
			}
			if gone := bucket - d.bytesOf("local"); gone != f.RemoteBytes {
				t.Errorf("%d bytes of the bucket went, %+v was announced", gone, f)
			}
		})
	}
}

// TestSegmentsThatEnd: only what readers have now and do not have then counts.
func TestSegmentsThatEnd(t *testing.T) {
	finished, leaving := tiers.CopyFinished.String(), tiers.DeleteStarted.String()
	for name, c := range map[string]struct {
		seg  SegmentInfo
		want bool
	}{
		"between":                     {SegmentInfo{Base: 10, Next: 20, Tier: "remote", State: finished}, true},
		"the log starts in it":        {SegmentInfo{Base: 0, Next: 11, Tier: "both", State: finished}, true},
		"on disk, being copied":       {SegmentInfo{Base: 10, Next: 20, Tier: "local", State: "copying"}, true},
		"it stays in part":            {SegmentInfo{Base: 10, Next: 21, Tier: "local", State: "closed"}, false},
		"behind":                      {SegmentInfo{Base: 20, Next: 30, Tier: "local", State: "closed"}, false},
		"below the log start already": {SegmentInfo{Base: 0, Next: 10, Tier: "remote", State: finished}, false},
		"being deleted":               {SegmentInfo{Base: 10, Next: 20, Tier: "remote", State: leaving}, false},
		"not copied to its end":       {SegmentInfo{Base: 10, Next: 20, Tier: "remote", State: tiers.CopyStarted.String()}, false},
		"empty":                       {SegmentInfo{Base: 20, Next: 20, Tier: "local", State: "active"}, false},
	} {
		if got := c.seg.Ends(10, 20); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

package partition

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/strandline-io/strandline/tiers"
)

// TestReport110Future: a record from the future neither keeps its segment on disk
// nor keeps a size limit from working; by age it holds, and that is told.
func TestReport110Future(t *testing.T) {
	var clock time.Time
	w := clocked(t, &clock, keep(func(r *Retention) { r.Total.Age, r.Local.Age = 2*time.Hour, time.Hour }))
	w.config.TimestampAfter = 0
	d := w.drive()
	d.stamped(hour.Add(24*365*10*time.Hour), 1)
	d.stamped(hour.Add(-5*time.Hour), 1)
	d.runAll()
	clock = hour.Add(48 * time.Hour)
	d.mustRetain()
	d.mustRetain()
	if v := d.View(); v.LogStart != 0 || v.LocalLogStart != 4 {
		t.Fatalf("%+v", v.Watermarks)
	}
	if n := strings.Count(w.noise.String(), "dated in the future"); n != 1 || d.View().Held == nil || d.View().Held.Base != 0 {
		t.Fatalf("told %d times, shown %v\n%s", n, d.View().Held, w.noise)
	}
	d.step(func(s *state) { s.config.Retention.Total.Bytes = 1 })
	d.mustRetain()
	if v := d.View(); v.LogStart == 0 || v.Held != nil || d.s.retain.held != nil {
		t.Fatalf("%+v", v.Watermarks)
	}
	d.end()
}

// TestReport110FutureOnDiskOnly: without the bucket a segment with a record from the
// future goes by the time of its file. That is told once for each, counted, and the
// log goes on behind it. While the file is new, and what follows is due, it holds that,
// which is told, shown and counted too.
func TestReport110FutureOnDiskOnly(t *testing.T) {
	for name, mode := range map[string]func(*Config){
		"no remote storage": func(c *Config) { c.Remote = false },
		"copies are paused": func(c *Config) { c.Retention.CopyPaused = true },
	} {
		t.Run(name, func(t *testing.T) {
			var clock time.Time
			w := clocked(t, &clock, keep(func(r *Retention) { r.Total.Age = 2 * time.Hour }))
			w.config.TimestampAfter = 0
			mode(&w.config)
			m := NewMetrics(nil)
			w.tweak = func(d *Deps) { d.Metrics = m }
			w.fs.SetClock(func() time.Time { return clock })
			d := w.drive()
			d.stamped(hour.Add(24*365*10*time.Hour), 1)
			d.stamped(hour.Add(24*365*20*time.Hour), 1)
			d.stamped(hour.Add(-5*time.Hour), 1)
			count := func(held, gone int, start tiers.Offset, shown bool) {
				t.Helper()
				for range 3 {
					d.mustRetain()
				}
				v, noise := d.View(), w.noise.String()
				if v.LogStart != start || (v.Held != nil) != shown {
					t.Fatalf("%+v, held %+v", v.Watermarks, v.Held)
				}
				if a, b := strings.Count(noise, "keeps segments"), strings.Count(noise, "deleted by the time of its last append"); a != held || b != gone {
					t.Fatalf("told %d and %d times, want %d and %d\n%s", a, b, held, gone, noise)
				}
				if got := testutil.ToFloat64(m.datedGone); got != float64(gone) {
					t.Fatalf("%v counted", got)
				}
				if got := testutil.ToFloat64(m.heldByFuture); (got == 1) != shown {
					t.Fatalf("the gauge is %v", got)
				}
			}
			count(1, 0, 0, true)
			clock = hour.Add(3 * time.Hour)
			count(1, 2, 6, false)
			d.end()
		})
	}
}

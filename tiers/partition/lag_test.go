package partition

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

// TestLag: closed segments that are not in the bucket, however long a copy takes,
// whether copies fail or are paused, and nothing of a topic that is not copied.
func TestLag(t *testing.T) {
	w := newWorld(t)
	clock := time.Unix(1000, 0)
	w.now = func() time.Time { return clock }
	w.fs.SetClock(w.now)
	m := NewMetrics(nil)
	w.tweak = func(d *Deps) { d.Metrics = m }
	d := w.drive()
	size := int64(2 * len(one("record 0")))
	want := func(when string, segments int, oldest time.Time) {
		t.Helper()
		if got := d.Lag(); got != (Lag{int64(segments) * size, segments, oldest}) {
			t.Errorf("%s: %+v, want %d segments of %d bytes since %s", when, got, segments, size, oldest)
		}
		if got := testutil.ToFloat64(m.copyLag); got != float64(int64(segments)*size) {
			t.Errorf("%s: the gauge is %v", when, got)
		}
	}
	want("new", 0, time.Time{})
	d.fill(2)
	want("active segment", 0, time.Time{})
	first := clock
	d.roll()
	want("closed", 1, first)
	clock = clock.Add(time.Minute)
	d.fill(2)
	d.roll()
	want("a second one, while the first is copied", 2, first)
	w.bucket.Add(memory.Fault{Ops: memory.OpPut, Err: remote.ErrUnavailable})
	d.runAll()
	want("copies fail", 2, first)
	c := w.config
	c.Retention.CopyPaused = true
	d.step(func(s *state) { _ = s.onConfigure(c) })
	clock = clock.Add(time.Hour)
	d.step((*state).onTick)
	d.runAll()
	want("copies are paused", 2, first)
	d.step(func(s *state) { _ = s.onConfigure(w.config) })
	d.step((*state).onTick)
	d.runAll()
	want("all is copied", 0, time.Time{})
	d.fill(2)
	d.roll()
	c = w.config
	c.Remote = false
	d.step(func(s *state) { _ = s.onConfigure(c) })
	want("the topic is not copied", 0, time.Time{})
	d.step(func(s *state) { _ = s.onConfigure(w.config) })
	want("it is again", 1, clock)
	d.end()
	if got := testutil.ToFloat64(m.copyLag); got != 0 {
		t.Errorf("closed, and the gauge is %v", got)
	}
}

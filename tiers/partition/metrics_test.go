package partition

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

// TestMetrics: what owners count, summed up over all of them, and gauges that go
// back when the owner is closed.
func TestMetrics(t *testing.T) {
	w := newWorld(t)
	clock := time.Unix(1000, 0)
	w.now = func() time.Time { return clock }
	reg := prometheus.NewRegistry()
	m := NewMetrics(reg)
	w.tweak = func(d *Deps) { d.Metrics = m }
	d := w.drive()
	d.fill(2)
	want := func(when string, stalled, lag float64) {
		t.Helper()
		if got := testutil.ToFloat64(m.copiesStalled); got != stalled {
			t.Errorf("%s: %v stalled, want %v", when, got, stalled)
		}
		if got := testutil.ToFloat64(m.copyLag); got != lag {
			t.Errorf("%s: lag %v, want %v", when, got, lag)
		}
	}
	size := float64(2 * len(one("record 0")))
	w.bucket.Add(memory.Fault{Ops: memory.OpPut, Times: 2, Err: remote.ErrUnavailable})
	d.roll()
	want("rolled", 0, size)
	for range 2 {
		d.runAll()
		want("failed", 1, size)
		clock = clock.Add(time.Minute)
		d.step((*state).onTick)
	}
	d.runAll()
	want("copied", 0, 0)
	w.bucket.Add(memory.Fault{Ops: memory.OpPut, Err: remote.ErrUnavailable})
	d.fill(2)
	d.roll()
	d.runAll()
	want("failed again", 1, size)
	d.dropLocal(2)
	mustRead(t, d.Owner, read(0))
	mustRead(t, d.Owner, read(2))
	d.end()
	want("closed", 0, 0)
	for name, want := range map[string]float64{
		"ok": testutil.ToFloat64(m.copies.WithLabelValues("ok")) - 1, "failed": testutil.ToFloat64(m.copies.WithLabelValues("failed")) - 3,
		"local": testutil.ToFloat64(m.reads.WithLabelValues("local")) - 1, "remote": testutil.ToFloat64(m.reads.WithLabelValues("remote")) - 1,
	} {
		if want != 0 {
			t.Errorf("%s is off by %v", name, want)
		}
	}
	all, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if !strings.HasPrefix(f.GetName(), "strandline_") || f.GetHelp() == "" {
			t.Errorf("collector %s, help %q", f.GetName(), f.GetHelp())
		}
	}
	problems, err := testutil.GatherAndLint(reg)
	if err != nil || len(problems) > 0 {
		t.Fatal(problems, err)
	}
	w.bucket.Clear()
	var none *Metrics // counts nothing
	none.appended(1, 1)
	none.synced(1)
	none.copied(1, 1)
	none.copyFailed()
	none.stalled(1)
	none.read(true, 1)
	none.hole()
	none.disk(1)
}

package partition

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/batch"
	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/fsys/mem"
)

// recordRetention lives a life in which records leave both tiers: by local and
// total limits, by trims into the middle of a batch and to the end, by a
// switch-off. Each file operation, call of the registry and border between jobs is
// a moment.
func recordRetention(t *testing.T) *recorder {
	t.Helper()
	w := newWorld(t)
	clock := hour
	w.now = func() time.Time { return clock }
	w.config.Local.SegmentBytes = 250
	w.config.Retention = keep(func(r *Retention) { r.Local.Bytes, r.Total.Bytes = 300, 1200 })
	d := w.drive()
	r := &recorder{w: w}
	w.fs.OnOp(func(op fsys.Op) { r.take(fmt.Sprintf("%s %s", op.Kind, op.Name)) })
	w.rows.fault = func(op string) (bool, error) { r.take("before row " + op); return false, nil }
	produce := func(n int) {
		for range n {
			r.sent += 2
			d.must(build(batch.Builder{ProducerID: -1}, hour.UnixMilli(), fmt.Sprintf("value %d", r.sent-2), fmt.Sprintf("value %d", r.sent-1)))
			r.acked = r.sent
		}
	}
	settle := func() {
		for len(d.jobs) > 0 {
			d.run(d.jobs[0].point().Name)
			r.take("a job")
			r.start = max(r.start, d.View().LogStart)
		}
	}
	trim := func(to tiers.Offset) {
		answer := d.ask(to)
		settle()
		if a := <-answer; a.err != nil || a.start < to {
			t.Fatal(a)
		}
	}
	for range 4 {
		produce(5)
		settle()
	}
	for range 2 {
		d.step((*state).onRetain)
		settle()
	}
	trim(d.View().LogStart + 3) // the middle of a batch
	produce(3)
	d.step((*state).onRetain)
	d.run(d.jobs[0].point().Name)
	trim(d.View().HighWatermark - 1)
	produce(4)
	trim(tiers.NoOffset)
	produce(6)
	settle()
	d.step(func(s *state) {
		c := s.config
		c.Remote, c.Retention.ForgetRemote = false, true
		if err := s.onConfigure(c); err != nil {
			t.Fatal(err)
		}
		s.onRetain()
	})
	settle()
	d.end()
	w.fs.OnOp(nil)
	w.rows.fault = nil
	w.stop()
	return r
}

// outlive starts a process on what is left, and checks it.
func (m moment) outlive(t *testing.T, w *world, left *mem.FS) {
	t.Helper()
	w.fs, w.files, w.bucket = left, left, m.bucket.Clone()
	w.rows.byID, w.rows.start = m.rowsLeft(), m.remembered
	w.id.Epoch, w.id.LogStart = 2, m.remembered
	w.start()
	d := w.drive()
	v := d.View()
	switch {
	case v.LogStart < m.start:
		t.Fatalf("log start %d, readers have seen %d", v.LogStart, m.start)
	case v.LogStart != m.remembered:
		t.Fatalf("log start %d, %d was remembered", v.LogStart, m.remembered)
	case int(v.LogEnd) < m.acked || int(v.LogEnd) > m.sent:
		t.Fatalf("log end %d, %d were acknowledged, %d sent", v.LogEnd, m.acked, m.sent)
	}
	check := func(when string) {
		t.Helper()
		v := d.View()
		got := readAll(t, d.Owner, ReadUncommitted)
		for o := v.LogStart; o < v.LogEnd; o++ {
			if got[o] != fmt.Sprintf("value %d", o) {
				t.Fatalf("%s: offset %d of [%d,%d): %q", when, o, v.LogStart, v.LogEnd, got[o])
			}
		}
		at, err := d.ListOffset(t.Context(), 0, ReadUncommitted, tiers.NoEpoch)
		if want := v.LogStart; err != nil || at.Offset != want && v.LogStart < v.LogEnd {
			t.Fatalf("%s: the first record by time: %+v, %v, want %d", when, at, err, want)
		}
	}
	check("at the start")
	d.runAll()
	for range 3 {
		d.mustRetain()
	}
	check("after retention")
	if keys := w.bucket.Keys(""); !slices.Equal(keys, w.rows.keysOf()) {
		t.Fatalf("keys %s\nrows %v", strings.Join(keys, "\n"), w.rows.list())
	}
	start := d.View().LogStart
	for _, row := range w.rows.byID {
		if row.State != tiers.CopyFinished || row.End <= start {
			t.Fatalf("row [%d,%d) %s is left, the log starts at %d", row.Base, row.End, row.State, start)
		}
	}
	d.end()
	w.stop()
}

// TestReport049CrashCopies ends the process at every moment of a life in which
// records leave. The next one starts exactly where was remembered, which is never
// below what readers have seen; every record from there on is there, in one of the
// tiers; what was to go goes; no object is without a row in the end, and no row
// without a reason.
func TestReport049CrashCopies(t *testing.T) {
	r := recordRetention(t)
	seen := map[string]bool{}
	for _, m := range r.moments {
		seen[m.after] = true
	}
	for _, row := range []string{"raise-log-start", "copy-started", "copy-finished", "delete-started", "delete-finished"} {
		if !seen["before row "+row] {
			t.Fatalf("nothing of this life came to %s", row)
		}
	}
	for i, m := range r.moments {
		for how, left := range m.left {
			ok := t.Run(fmt.Sprintf("%d %s, %s", i, m.after, how), func(t *testing.T) {
				r.w.t = t
				m.outlive(t, r.w, left)
			})
			if !ok {
				return
			}
		}
	}
}

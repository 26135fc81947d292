package partition

import (
	"slices"
	"testing"
	"time"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/remote"
)

// TestRetainWhileCopying: nothing at or behind the segment that is being copied
// goes, in either order.
func TestRetainWhileCopying(t *testing.T) {
	for _, point := range []string{"copy.planned", "copy.started", "copy.uploaded", "copy.finished"} {
		var clock time.Time
		w := clocked(t, &clock, keep(func(r *Retention) { r.Total.Age, r.Local.Age = time.Hour, time.Hour }))
		d := w.drive()
		d.stamped(hour.Add(-2*time.Hour), 1)
		for len(d.jobs) > 0 && d.jobs[0].point().Name != point {
			d.run(d.jobs[0].point().Name)
		}
		held := d.take(point)
		d.step((*state).onRetain)
		d.runAll()
		if v := d.View(); v.LogStart != 0 || v.LocalLogStart != 0 {
			t.Fatalf("%s: %+v", point, v.Watermarks)
		}
		d.step(held.run(t.Context(), d.tools()).on)
		d.runAll()
		d.mustRetain()
		if v := d.View(); v.LogStart != 2 {
			t.Fatalf("%s: %+v", point, v.Watermarks)
		}
		w.wantBucket(t, 0)
		d.end()
	}
}

// TestRetainBehindACopy: a hole in the bucket is being filled again, a trim goes past it
// and past the segment behind it: that one stays until the copy has ended, and what is
// before the copy goes at once.
func TestRetainBehindACopy(t *testing.T) {
	for _, point := range []string{"copy.planned", "copy.started", "copy.uploaded", "copy.finished"} {
		var clock time.Time
		w, d := inBoth(t, &clock, 3, func(*Retention) {})
		w.punch(d, 2)
		for d.jobs[0].point().Name != point {
			d.run(d.jobs[0].point().Name)
		}
		held := d.take(point)
		answer := d.ask(6)
		d.runAll()
		if a := <-answer; a.err != nil || a.start != 6 {
			t.Fatalf("%s: %+v", point, a)
		}
		if got := w.finished(); !slices.Contains(got, 4) || slices.Contains(got, 0) {
			t.Fatalf("%s: rows at %d", point, got)
		}
		d.step(held.run(t.Context(), d.tools()).on)
		d.runAll()
		d.mustRetain()
		w.wantBucket(t, 0)
		d.end()
	}
}

// punch takes the row at base and its objects away from below the owner.
func (w *world) punch(d *driven, base tiers.Offset) {
	w.t.Helper()
	var rows []tiers.RemoteSegment
	for row := range d.s.index.All() {
		if row.Base != base {
			rows = append(rows, row)
			continue
		}
		delete(w.rows.byID, row.ID)
		if err := w.bucket.Delete(w.t.Context(), remote.SegmentKey(row), remote.MetaKey(row)); err != nil {
			w.t.Fatal(err)
		}
	}
	d.step(func(s *state) { s.onIndex(rows) })
}

// finished are the bases of the rows that are read.
func (w *world) finished() (bases []tiers.Offset) {
	for _, row := range w.rows.byID {
		if row.State == tiers.CopyFinished {
			bases = append(bases, row.Base)
		}
	}
	return bases
}

package partition

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

// whys are the reasons of all segments, by base.
func (d *driven) whys() (out []string) {
	for _, s := range d.s.onSegments() {
		out = append(out, fmt.Sprintf("[%d,%d) %s: %s", s.Base, s.Next, s.Tier, s.Why))
	}
	return out
}

func (d *driven) wantWhys(want ...string) {
	d.t.Helper()
	if got := d.whys(); !slices.Equal(got, want) {
		d.t.Errorf("got\n%q\nwant\n%q", got, want)
	}
}

// TestSegmentsSayWhy: each segment says why it is where it is, at every step of
// its way.
func TestSegmentsSayWhy(t *testing.T) {
	var clock time.Time
	w := clocked(t, &clock, keep(func(r *Retention) { r.Total.Age, r.Local.Age, r.Delay = 10*time.Hour, 2*time.Hour, time.Minute }))
	d := w.drive()
	hits := w.bucket.Add(memory.Fault{Ops: memory.OpPut, Err: remote.ErrDenied})
	d.stamped(hour.Add(-time.Hour), 1)
	d.stamped(hour.Add(-time.Millisecond), 1) // its newest record is of now
	d.fill(1)
	// The record in it is from 1970.
	const active = "[4,5) local: active: closes at the next pass once all older ones may leave the disk (local.retention.ms has ended)"
	const forTen, forNine = "; kept for 10h 0m more (retention.ms)", "; kept for 9h 0m more (retention.ms)"
	d.run("copy.planned")
	d.wantWhys("[0,2) local: being copied to the bucket"+forNine, "[2,4) local: waiting to be copied behind 1 others"+forTen, active)
	d.run("copy.started")
	if got, want := d.whys()[0], "[0,2) local: its copy failed 1 times: "; hits() != 1 || len(got) < len(want) || got[:len(want)] != want {
		t.Errorf("%q", got)
	}
	clock = clock.Add(time.Second)
	d.step((*state).onTick)
	d.runAll()
	d.wantWhys("[0,2) both: on disk too, for 59m 59s more (local.retention.ms); kept for 8h 59m more (retention.ms)",
		"[2,4) both: on disk too, for 1h 59m more (local.retention.ms); kept for 9h 59m more (retention.ms)", active)
	clock = hour.Add(90 * time.Minute)
	d.mustRetain()
	d.wantWhys("[0,2) remote: kept for 7h 30m more (retention.ms)",
		"[2,4) both: on disk too, for 30m 0s more (local.retention.ms); kept for 8h 30m more (retention.ms)", active)
	answer := d.ask(3)
	d.run("start.raise")
	<-answer
	if got := d.whys()[0]; got != "[0,2) remote: leaves the bucket: its row is marked next" {
		t.Errorf("%q", got)
	}
	d.run("remove.mark")
	if got, want := d.whys()[0], "[0,2) remote: being deleted since "+clock.UTC().Format("2006-01-02 15:04 UTC")+": its objects go in 1m 0s, readers may be on them"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	clock = clock.Add(time.Minute)
	d.step((*state).onTick)
	d.run("remove.drop")
	if got := d.whys()[0]; got != "[0,2) remote: its objects are gone, its row goes next" {
		t.Errorf("%q", got)
	}
	d.run("remove.row")
	if got := d.whys(); len(got) != 2 {
		t.Errorf("%q", got)
	}
	d.end()
}

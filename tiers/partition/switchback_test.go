package partition

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/strandline-io/strandline/tiers"
)

// configure changes the settings in one step of the loop.
func (d *driven) configure(change func(*Config)) {
	d.t.Helper()
	d.step(func(s *state) {
		c := s.config
		change(&c)
		if err := s.onConfigure(c); err != nil {
			d.t.Fatal(err)
		}
	})
}

// TestSwitchBackWhileMarking: a switch-off is taken back, with a small disk, while
// the job that marks rows is under way. What is being marked covers nothing any
// more, so the disk keeps it until it is copied again.
func TestSwitchBackWhileMarking(t *testing.T) {
	var clock time.Time
	w, d := inBoth(t, &clock, 3, func(r *Retention) { r.ForgetRemote = true })
	d.switchOff()
	d.step((*state).onTick)
	d.run("forget.check")
	mark := d.take("remove.mark")
	d.configure(func(c *Config) { c.Remote, c.Retention.ForgetRemote, c.Retention.Local.Bytes = true, false, 0 })
	d.step((*state).onTick)
	if v := d.View(); v.LocalLogStart != 0 {
		t.Fatalf("the disk gave up what is being removed from the bucket: %+v", v.Watermarks)
	}
	d.step(mark.run(t.Context(), d.tools()).on)
	d.runAll()
	d.later(&clock, time.Minute)
	d.later(&clock, 10*time.Minute)
	if got := readAll(t, d.Owner, ReadUncommitted); len(got) != 6 {
		t.Fatalf("%d records of 6, rows %v", len(got), w.rows.list())
	}
	w.wantBucket(t, 3)
	d.end()
}

// TestLooksOfAnEarlierSwitchOff: what was seen on disk during one switch-off says
// nothing in the next: in between it may have left the disk.
func TestLooksOfAnEarlierSwitchOff(t *testing.T) {
	var clock time.Time
	_, d := inBoth(t, &clock, 2, func(r *Retention) { r.ForgetRemote = true })
	d.switchOff()
	d.step((*state).onTick)
	look := d.take("forget.check").run(t.Context(), d.tools())
	d.configure(func(c *Config) { c.Remote, c.Retention.Local.Bytes = true, 0 })
	d.step((*state).onTick)
	d.switchOff()
	d.step(look.on)
	if slices.Contains(d.points(), "remove.mark@0") || len(d.s.forget.sound) > 0 {
		t.Fatalf("an old look counts: %v", d.points())
	}
	d.end()
}

// TestRowsAreNotReadWhileTheyAreMarked: rows that were read before a mark and came
// home after it would count as cover what is being removed.
func TestRowsAreNotReadWhileTheyAreMarked(t *testing.T) {
	var clock time.Time
	w, d := inBoth(t, &clock, 2, func(r *Retention) { r.ForgetRemote = true })
	d.switchOff()
	d.step((*state).onTick)
	d.run("forget.check")
	d.step(func(s *state) { s.indexOld = true })
	if !slices.Contains(d.points(), "remove.mark@0") || slices.Contains(d.points(), "index.reload@-1") {
		t.Fatalf("jobs %v", d.points())
	}
	d.run("remove.mark")
	reload := d.take("index.reload")
	answer := d.ask(4)
	d.run("start.raise")
	<-answer
	d.run("remove.drop")
	d.run("remove.row")
	if slices.Contains(d.points(), "remove.mark@2") {
		t.Fatalf("rows are marked while they are read: %v", d.points())
	}
	d.step(reload.run(t.Context(), d.tools()).on)
	d.runAll()
	w.wantBucket(t, 0)
	d.end()
}

// TestRemovalDoesNotSpin: while a removal is under way, or was refused because the
// partition is somebody else's, the loop sleeps.
func TestRemovalDoesNotSpin(t *testing.T) {
	var clock time.Time
	w, d := inBoth(t, &clock, 2, func(*Retention) {})
	answer := d.ask(4)
	d.run("start.raise")
	<-answer
	sleeps := func(when string) {
		t.Helper()
		if wake := d.s.untilWake(); wake < time.Second {
			t.Fatalf("%s the loop wakes after %s", when, wake)
		}
	}
	sleeps("while rows are marked")
	d.run("remove.mark")
	sleeps("while objects are removed")
	w.rows.fault = func(op string) (bool, error) {
		return false, tiers.E(tiers.StaleFence, op, place, "another node leads")
	}
	d.run("remove.drop")
	d.run("remove.row")
	sleeps("after a refusal")
	d.step((*state).onTick)
	sleeps("after a refusal and a tick")
	d.end()
}

// TestFailedMarkIsReadAgain: a mark whose answer is an error leaves it to the rows
// what became of the segment.
func TestFailedMarkIsReadAgain(t *testing.T) {
	for _, applied := range []bool{false, true} {
		var clock time.Time
		w, d := inBoth(t, &clock, 3, func(*Retention) {})
		answer := d.ask(2)
		d.run("start.raise")
		<-answer
		w.rows.failNext("delete-started", 1, applied, errors.New("answer lost"))
		d.run("remove.mark")
		d.runAll()
		d.later(&clock, time.Minute)
		d.later(&clock, time.Minute)
		w.wantBucket(t, 2)
		if v := d.View(); v.RemoteEnd != 6 {
			t.Fatalf("applied %v: %+v", applied, v.Watermarks)
		}
		d.end()
	}
}

// TestStartBeyondCopies: the log start is remembered beyond all that was copied, and
// the disk has lost its tail: nothing is missing, so the log starts there.
func TestStartBeyondCopies(t *testing.T) {
	var clock time.Time
	w, d := inBoth(t, &clock, 3, func(*Retention) {})
	d.end()
	w.stop()
	w.rows.start, w.id.LogStart = 6, 6
	for _, base := range []int{2, 4, 6} {
		for _, kind := range []string{"log", "index", "timeindex", "snapshot", "txnindex"} {
			_ = w.fs.Remove(fmt.Sprintf("/data/orders-0/h1/%020d.%s", base, kind))
		}
	}
	w.id.Epoch++
	w.start()
	d = w.drive()
	if v := d.View(); v.LogStart != 6 || v.LogEnd != 6 {
		t.Fatalf("%+v", v.Watermarks)
	}
	d.fill(1)
	d.end()
}

// switchOff switches remote storage off.
func (d *driven) switchOff() {
	d.t.Helper()
	d.configure(func(c *Config) { c.Remote = false })
}

package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

// ask begins a trim.
func (d *driven) ask(to tiers.Offset) <-chan trimAnswer {
	d.t.Helper()
	answer := make(chan trimAnswer, 1)
	d.step(func(s *state) { s.onDeleteRecords(to, answer) })
	return answer
}

// trim deletes records, and everything that follows from it.
func (d *driven) trim(to tiers.Offset) tiers.Offset {
	d.t.Helper()
	answer := d.ask(to)
	d.runAll()
	a := <-answer
	if a.err != nil {
		d.t.Fatal(a.err)
	}
	return a.start
}

// TestB2DeleteRecords: what may be asked, and what is answered.
func TestB2DeleteRecords(t *testing.T) {
	w := newWorld(t)
	d := w.drive()
	d.fill(10)
	for to, kind := range map[tiers.Offset]tiers.Kind{11: tiers.OffsetOutOfRange, -2: tiers.InvalidRequest} {
		select {
		case a := <-d.ask(to):
			wantKind(t, a.err, kind)
		default:
			t.Fatalf("%d was taken", to)
		}
		if len(d.jobs) != 0 {
			t.Fatal(d.points())
		}
	}
	for _, c := range []struct{ to, want tiers.Offset }{{0, 0}, {4, 4}, {3, 4}, {4, 4}, {tiers.NoOffset, 10}, {10, 10}} {
		if got := d.trim(c.to); got != c.want || d.View().LogStart != c.want || w.rows.start != c.want {
			t.Fatalf("to %d: %d, view %d, remembered %d; want %d", c.to, got, d.View().LogStart, w.rows.start, c.want)
		}
	}
	d.fill(1)
	if got := readAll(t, d.Owner, ReadUncommitted); len(got) != 1 || got[10] == "" {
		t.Fatalf("records %v", got)
	}
	d.end()
}

// TestTrimReachesEveryTier: local segments, copied or not, and objects below the
// start go; the segment that holds it stays whole, and everybody agrees on the
// start, also after a restart and on an empty disk.
func TestTrimReachesEveryTier(t *testing.T) {
	w := newWorld(t)
	d := w.drive()
	for range 3 {
		d.fill(4)
		d.roll()
	}
	d.runAll()
	d.fill(4)
	d.roll()
	if got := d.trim(6); got != 6 {
		t.Fatal(got)
	}
	w.wantBucket(t, 3) // one of the four is gone
	check := func() {
		t.Helper()
		if v := d.View(); v.LogStart != 6 || d.on() < 4 && v.LocalLogStart < v.LogStart {
			t.Fatalf("%+v", v.Watermarks)
		}
		at, err := d.ListOffset(t.Context(), Earliest, ReadUncommitted, tiers.NoEpoch)
		if err != nil || at.Offset != 6 {
			t.Fatal(at, err)
		}
		at, err = d.ListOffset(t.Context(), 0, ReadUncommitted, tiers.NoEpoch)
		if err != nil || at.Offset != 6 {
			t.Fatal(at, err)
		}
		_, err = d.Read(t.Context(), read(5))
		wantKind(t, err, tiers.OffsetOutOfRange)
		if got := readAll(t, d.Owner, ReadUncommitted); len(got) != 10 || got[6] == "" {
			t.Fatalf("records %v", got)
		}
	}
	check()
	d.end()
	w.stop()
	w.id.LogStart = w.rows.start
	w.id.Epoch++
	w.start()
	d = w.drive()
	d.runAll()
	check()
	d.end()
	w.stop()
	w.lose()
	w.id.Epoch++
	w.start()
	d = w.drive()
	check()
	d.end()
}

// TestReport025TrimSurvivesTheCheckpoint: the start that the control plane knows
// holds, whatever the disk's checkpoint says.
func TestReport025TrimSurvivesTheCheckpoint(t *testing.T) {
	w := newWorld(t)
	d := w.drive()
	d.fill(10)
	d.trim(5)
	if err := w.disk.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	d.end()
	w.stop()
	if err := w.fs.Remove("/data/log-start-offset-checkpoint"); err != nil {
		t.Fatal(err)
	}
	w.id.LogStart = w.rows.start
	w.id.Epoch++
	w.start()
	d = w.drive()
	if v := d.View(); v.LogStart != 5 {
		t.Fatalf("%+v", v.Watermarks)
	}
	_, err := d.Read(t.Context(), read(4))
	wantKind(t, err, tiers.OffsetOutOfRange)
	d.end()
}

// TestTrimBeforeCopy: what is trimmed before it was copied never gets to the
// bucket, and copying goes on with the segment that holds the start.
func TestTrimBeforeCopy(t *testing.T) {
	w := newWorld(t)
	d := w.drive()
	for range 3 {
		d.fill(4)
		d.roll()
	}
	d.jobs = nil // nobody copies
	d.s.onCopyEnded()
	d.s.copyRetry.at = w.now().Add(time.Hour)
	d.trim(9)
	d.s.copyRetry.at = time.Time{}
	d.s.rested = rested{}
	d.step(func(*state) {})
	d.runAll()
	if got := w.rows.list(); !slices.Equal(got, []string{"[8,12) CopyFinished"}) && len(got) != 1 {
		t.Fatalf("rows %v", got)
	}
	if v := d.View(); v.RemoteEnd != 12 || v.LogStart != 9 {
		t.Fatalf("%+v", v.Watermarks)
	}
	w.wantBucket(t, 1)
	d.end()
}

// TestTrimWhileCopying: a trim past a segment that is being copied, at each step of
// the copy: nothing is left behind.
func TestTrimWhileCopying(t *testing.T) {
	for _, point := range []string{"copy.planned", "copy.started", "copy.uploaded", "copy.finished"} {
		for _, first := range []string{"copy", "trim"} {
			w := newWorld(t)
			d := w.drive()
			d.fill(4)
			d.roll()
			d.fill(4)
			for d.jobs[0].point().Name != point {
				d.run(d.jobs[0].point().Name)
			}
			held := d.take(point)
			answer := d.ask(6)
			if first == "trim" {
				d.runAll()
				d.step(held.run(t.Context(), d.tools()).on)
			} else {
				d.step(held.run(t.Context(), d.tools()).on)
			}
			d.runAll()
			d.mustRetain()
			if a := <-answer; a.err != nil || a.start != 6 {
				t.Fatal(a)
			}
			d.roll()
			d.runAll()
			d.mustRetain()
			w.wantBucket(t, 1)
			if v := d.View(); v.LogStart != 6 || v.RemoteEnd != 8 {
				t.Fatalf("%s, %s first: %+v", point, first, v.Watermarks)
			}
			d.end()
		}
	}
}

// TestTrimPastAHole is the way out of TV-R9: offsets that no tier has are given up,
// and copying goes on behind them.
func TestTrimPastAHole(t *testing.T) {
	w := newWorld(t)
	d := w.drive()
	for range 3 {
		d.fill(2)
		d.roll()
	}
	d.runAll()
	if err := d.s.local.DropBefore(4); err != nil {
		t.Fatal(err)
	}
	var rows []tiers.RemoteSegment
	for id, row := range w.rows.byID {
		if row.Base == 2 {
			delete(w.rows.byID, id)
		} else {
			rows = append(rows, row)
		}
	}
	answer := make(chan trimAnswer, 1)
	d.s.onIndex(rows)
	d.publish(d.s) // the View is not sound: offsets are in no tier
	d.s.onDeleteRecords(4, answer)
	d.s.onPlan()
	d.jobs, d.s.todo = d.s.todo, nil
	d.runAll()
	if a := <-answer; a.err != nil || a.start != 4 {
		t.Fatal(a)
	}
	d.fill(2)
	d.roll()
	d.runAll()
	if v := d.View(); v.RemoteEnd != 8 || v.LogStart != 4 {
		t.Fatalf("%+v", v.Watermarks)
	}
	if got := readAll(t, d.Owner, ReadUncommitted); len(got) != 4 {
		t.Fatalf("records %v", got)
	}
	d.end()
}

// TestTrimIsNotRemembered: an answer of the registry that is an error, or that got
// lost, moves nothing here and is told.
func TestTrimIsNotRemembered(t *testing.T) {
	for _, applied := range []bool{false, true} {
		w := newWorld(t)
		d := w.drive()
		d.fill(10)
		w.rows.failNext("raise-log-start", 1, applied, fmt.Errorf("the bucket is away"))
		answer := d.ask(5)
		d.runAll()
		a := <-answer
		wantKind(t, a.err, tiers.RemoteUnavailable)
		if v := d.View(); v.LogStart != 0 {
			t.Fatalf("%+v", v.Watermarks)
		}
		if got := d.trim(5); got != 5 {
			t.Fatal(got)
		}
		d.end()
	}
}

// TestTrimIsRememberedInPart: the row has risen, and the bucket does not know it yet.
// The caller is told so; the node comes to where its next start would begin as soon
// as the bucket knows it, with nobody asking and whatever the settings become.
// Where nothing was written nothing moves later.
func TestTrimIsRememberedInPart(t *testing.T) {
	away := tiers.E(tiers.RemoteUnavailable, "remember log start", "orders-0", "the bucket is away")
	for name, c := range map[string]struct {
		err  error
		want tiers.Offset
	}{
		"the row has risen":    {away, 5},
		"nothing was written":  {tiers.E(tiers.StorageFailed, "raise log start", "control plane", "disk full"), 0},
		"nobody knows of what": {errors.New("no"), 0},
	} {
		var clock time.Time
		w := clocked(t, &clock, keep(func(*Retention) {}))
		d := w.drive()
		d.fill(10)
		w.rows.failNext("raise-log-start", 4, true, c.err)
		answer := d.ask(5)
		d.runAll()
		if a := <-answer; a.err == nil {
			t.Fatal(name, a)
		}
		later := func(n int) {
			for range n {
				clock = clock.Add(maxDelay)
				d.step((*state).onTick)
				d.runAll()
			}
		}
		later(2)
		d.configure(func(c *Config) { c.Retention.Total.Age = 1000 * time.Hour }) // has retention decide anew
		if v := d.View(); v.LogStart != 0 || v.LogEnd != 10 {
			t.Fatalf("%s: %+v while it is away", name, v.Watermarks)
		}
		later(6)
		if v := d.View(); v.LogStart != c.want {
			t.Fatalf("%s: the log starts at %d, want %d", name, v.LogStart, c.want)
		}
		w.rows.failNext("raise-log-start", 0, false, nil)
		if got := d.trim(6); got != 6 {
			t.Fatal(name, got)
		}
		d.end()
	}
}

// TestTrimUnderARead: a read that began before a trim never answers what is below
// the new start.
func TestTrimUnderARead(t *testing.T) {
	w := newWorld(t)
	d := w.drive()
	d.fill(4)
	d.roll()
	d.runAll()
	d.fill(1)
	d.dropLocal(4)
	hold, reached := make(chan struct{}), make(chan memory.Call, 1)
	w.cache.Close()
	w.cache = remote.NewCache(w.bucket, remote.CacheOptions{})
	d.deps.Cache = w.cache
	w.bucket.Add(memory.Fault{Ops: memory.OpRead, Hold: hold, Reached: reached})
	failed := make(chan error, 1)
	go func() {
		_, err := d.Read(context.Background(), read(1))
		failed <- err
	}()
	<-reached
	d.trim(4)
	close(hold)
	wantKind(t, <-failed, tiers.OffsetOutOfRange)
	d.end()
}

// TestTrimByMany: callers at once move the start to the highest target, and each is
// answered with at least its own.
func TestTrimByMany(t *testing.T) {
	w := newWorld(t)
	o := w.open()
	for i := range 50 {
		if _, err := o.Append(t.Context(), AppendRequest{Batch: one(fmt.Sprint(i))}); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			to := tiers.Offset(1 + i*7%50)
			if got, err := o.DeleteRecords(t.Context(), to); err != nil || got < to {
				t.Errorf("to %d: %d, %v", to, got, err)
			}
		})
	}
	wg.Wait()
	if v := o.View(); v.LogStart != 50 {
		t.Errorf("%+v", v.Watermarks)
	}
	w.close(o)
	if _, err := o.DeleteRecords(t.Context(), 50); tiers.KindOf(err) != tiers.Closed {
		t.Error(err)
	}
	w.stop()
}

// TestTrimAnsweredAtTheEnd: a fence, a failed disk and a close answer those who wait.
func TestTrimAnsweredAtTheEnd(t *testing.T) {
	for name, end := range map[string]func(*driven){
		"fence": func(d *driven) { d.step(func(s *state) { s.onFence(errors.New("replaced")) }) },
		"close": func(d *driven) { d.step(func(s *state) { s.onEnd(true) }) },
	} {
		w := newWorld(t)
		d := w.drive()
		d.fill(4)
		trim, retain := d.ask(2), make(chan error, 1)
		d.step(func(s *state) { s.onRetainAsked(retain) })
		held := d.take("start.raise")
		end(d)
		if a := <-trim; a.err == nil {
			t.Errorf("%s: %v", name, a)
		}
		if err := <-retain; err == nil {
			t.Errorf("%s: retention was answered well", name)
		}
		d.step(held.run(t.Context(), d.tools()).on)
		if v := d.View(); v.LogStart != 0 {
			t.Errorf("%s: %+v", name, v.Watermarks)
		}
	}
}

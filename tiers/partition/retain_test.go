package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/batch"
	"github.com/strandline-io/strandline/tiers/plan"
	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

// keep are retention settings for tests: forever, unless changed.
func keep(change func(*Retention)) Retention {
	none := plan.Limits{Bytes: plan.Forever, Age: plan.Forever}
	r := Retention{On: true, Total: none, Local: none}
	change(&r)
	return r
}

// hour is the clock of the tests of this file; records are stamped relative to it.
// Files get the machine's time, so it is near that.
var hour = time.Now().Truncate(time.Millisecond)

// clocked is a world with a clock that stands still.
func clocked(t *testing.T, clock *time.Time, r Retention) *world {
	t.Helper()
	w := newWorld(t)
	*clock = hour
	w.now = func() time.Time { return *clock }
	w.config.Retention = r
	return w
}

// stamped appends a segment of n records with this time and closes it.
func (d *driven) stamped(at time.Time, n int) {
	d.t.Helper()
	for i := range n {
		d.must(build(batch.Builder{ProducerID: -1}, at.UnixMilli(), fmt.Sprintf("record %d", int(d.View().LogEnd)), "x"+strings.Repeat("y", i)))
	}
	d.roll()
}

// retain runs a pass and everything that follows from it.
func (d *driven) retain() error {
	d.t.Helper()
	answer := make(chan error, 1)
	d.step(func(s *state) { s.onRetainAsked(answer) })
	d.runAll()
	for range 10 {
		if d.s.untilWake() > 0 {
			break
		}
		d.step((*state).onTick)
		d.runAll()
	}
	select {
	case err := <-answer:
		return err
	default:
		d.t.Fatal("retention was not answered")
		return nil
	}
}

func (d *driven) mustRetain() {
	d.t.Helper()
	if err := d.retain(); err != nil {
		d.t.Fatal(err)
	}
}

// on is where the disk begins, regardless of the log start.
func (d *driven) on() tiers.Offset { return d.s.local.Segments()[0].Base }

func (w *world) wantBucket(t *testing.T, segments int) {
	t.Helper()
	if keys := w.bucket.Keys(""); !slices.Equal(keys, w.rows.keysOf()) || len(keys) != 2*segments {
		t.Fatalf("%d keys in the bucket, want %d segments: %v\nrows %v", len(keys), segments, keys, w.rows.list())
	}
}

// TestR6LocalRetention: what is in the bucket and over the local limit leaves the
// disk; what is not in the bucket stays; the log start stays, and so does every
// record.
func TestR6LocalRetention(t *testing.T) {
	var clock time.Time
	w := clocked(t, &clock, keep(func(r *Retention) { r.Local.Age = time.Hour }))
	d := w.drive()
	d.stamped(hour.Add(-3*time.Hour), 2)
	d.stamped(hour.Add(-2*time.Hour), 2)
	w.bucket.Add(memory.Fault{Key: "topics/", Ops: memory.OpPut, Skip: 2, Sticky: true, Err: remote.ErrUnavailable})
	d.runAll() // one segment is copied
	d.mustRetainOr(remote.ErrUnavailable)
	if v := d.View(); v.LocalLogStart != 4 || v.LogStart != 0 || v.RemoteEnd != 4 {
		t.Fatalf("%+v", v.Watermarks)
	}
	if got := readAll(t, d.Owner, ReadUncommitted); len(got) != 8 {
		t.Fatalf("%d records", len(got))
	}
	w.bucket.Clear()
	clock = clock.Add(time.Minute)
	d.step((*state).onTick)
	d.runAll() // a copy that ends has the disk freed
	if v := d.View(); v.LocalLogStart != 8 || v.LogStart != 0 || v.RemoteEnd != 8 {
		t.Fatalf("%+v", v.Watermarks)
	}
	if got := readAll(t, d.Owner, ReadUncommitted); len(got) != 8 {
		t.Fatalf("%d records", len(got))
	}
	d.end()
}

// mustRetainOr runs a pass that may leave undone what fails for this reason.
func (d *driven) mustRetainOr(reason error) {
	d.t.Helper()
	if err := d.retain(); err != nil && !errors.Is(err, reason) {
		d.t.Fatal(err)
	}
}

// TestR6ActiveSegment: a quiet topic's active segment is closed when it is due, gets
// into the bucket and leaves the disk in a later pass.
func TestR6ActiveSegment(t *testing.T) {
	var clock time.Time
	w := clocked(t, &clock, keep(func(r *Retention) { r.Local.Age = time.Hour }))
	d := w.drive()
	d.must(build(batch.Builder{ProducerID: -1}, hour.Add(-2*time.Hour).UnixMilli(), "a", "b"))
	d.mustRetain()
	d.mustRetain()
	if v := d.View(); v.LocalLogStart != 2 || v.LogStart != 0 || v.RemoteEnd != 2 {
		t.Fatalf("%+v", v.Watermarks)
	}
	d.end()
}

// TestR6OneRollPerPass: where everything is always due, what comes while a pass is
// under way does not make a segment of each batch.
func TestR6OneRollPerPass(t *testing.T) {
	var clock time.Time
	w := clocked(t, &clock, keep(func(r *Retention) { r.Local.Bytes = 0 }))
	d := w.drive()
	clock = clock.Add(retainEvery)
	for range 10 {
		d.fill(1)
		d.step((*state).onTick)
		d.runAll()
	}
	w.wantBucket(t, 1)
	clock = clock.Add(retainEvery)
	d.step((*state).onTick)
	d.runAll()
	w.wantBucket(t, 2)
	d.end()
}

// TestR7TotalByAge: what is older than retention.ms goes from both tiers, in order,
// and the first segment that is not due ends it.
func TestR7TotalByAge(t *testing.T) {
	var clock time.Time
	w := clocked(t, &clock, keep(func(r *Retention) { r.Total.Age = 2 * time.Hour }))
	d := w.drive()
	for _, age := range []int{5, 3, 1, 4} {
		d.stamped(hour.Add(-time.Duration(age)*time.Hour), 1)
	}
	d.runAll()
	d.mustRetain()
	if v := d.View(); v.LogStart != 4 || v.LocalLogStart != 4 || d.on() != 4 || w.rows.start != 4 {
		t.Fatalf("%+v, remembered %d", v.Watermarks, w.rows.start)
	}
	w.wantBucket(t, 2)
	_, err := d.Read(t.Context(), read(3))
	wantKind(t, err, tiers.OffsetOutOfRange)
	d.end()
}

// TestTVR3AtTheOwner: the size rule, with each byte counted once: four segments in
// the bucket, all of which are on disk too, and the active one, which is only there.
// A limit of nothing has that closed, copied and deleted as well.
func TestTVR3AtTheOwner(t *testing.T) {
	for _, c := range []struct {
		limit float64 // in segments
		start tiers.Offset
		left  int
	}{{5, 0, 4}, {4.5, 0, 4}, {4, 2, 3}, {3.5, 2, 3}, {3, 4, 2}, {0, 10, 0}} {
		var clock time.Time
		w := clocked(t, &clock, keep(func(*Retention) {}))
		d := w.drive()
		for range 4 {
			d.stamped(hour, 1)
		}
		d.runAll()
		size := d.s.local.Segments()[0].Size
		d.must(build(batch.Builder{ProducerID: -1}, hour.UnixMilli(), "record 8", "x"))
		d.s.config.Retention.Total.Bytes = int64(c.limit * float64(size))
		d.s.config.Retention.Local.Bytes = d.s.config.Retention.Total.Bytes
		d.mustRetain()
		if v := d.View(); v.LogStart != c.start || v.LogEnd != 10 {
			t.Errorf("limit %.1f segments: log [%d,%d), want a start of %d", c.limit, v.LogStart, v.LogEnd, c.start)
		}
		w.wantBucket(t, c.left)
		d.end()
	}
}

// TestReport001SizeIsCountedOnce: while it is not known what the bucket holds, no
// size pass runs; once it is, local copies of what the bucket holds do not count.
func TestReport001SizeIsCountedOnce(t *testing.T) {
	var clock time.Time
	w := clocked(t, &clock, keep(func(*Retention) {}))
	d := w.drive()
	for range 6 {
		d.stamped(hour, 1)
	}
	d.runAll()
	size := d.s.local.Segments()[0].Size
	d.s.config.Retention.Total.Bytes = 7 * size
	d.end()
	w.config.Retention = d.s.config.Retention
	w.stop()
	w.id.Epoch++
	w.start()
	d = w.drive()
	d.step(func(s *state) { s.indexOld = true })
	hold := d.take("index.reload")
	d.s.config.Retention.Total.Bytes = size
	d.step((*state).onRetain)
	if len(d.jobs) != 0 || d.View().LogStart != 0 {
		t.Fatalf("a size pass ran without knowing the rows: %v", d.points())
	}
	d.s.config.Retention.Total.Bytes = 7 * size
	d.step(hold.run(t.Context(), d.tools()).on)
	for range 3 {
		d.mustRetain()
	}
	if v := d.View(); v.LogStart != 0 {
		t.Fatalf("%+v", v.Watermarks)
	}
	w.wantBucket(t, 6)
	d.end()
}

// TestReport001HoleInTheCover: bytes behind a hole are counted once too.
func TestReport001HoleInTheCover(t *testing.T) {
	var clock time.Time
	w := clocked(t, &clock, keep(func(*Retention) {}))
	d := w.drive()
	for range 6 {
		d.stamped(hour, 1)
	}
	d.runAll()
	size := d.s.local.Segments()[0].Size
	var rows []tiers.RemoteSegment
	for row := range d.s.index.All() {
		if row.Base != 2 {
			rows = append(rows, row)
		} else {
			delete(w.rows.byID, row.ID)
		}
	}
	d.s.onIndex(rows)
	d.s.config.Retention.Total.Bytes, d.s.config.Remote = 6*size, false
	d.step((*state).onRetain)
	if v := d.View(); v.LogStart != 0 || d.s.raise.want > 0 {
		t.Fatalf("%+v, wants %d", v.Watermarks, d.s.raise.want)
	}
	d.end()
}

// TestReport049StartBeforeDelete: the log start is remembered and seen by readers
// before the first object goes; at every step a reader at the start is served.
func TestReport049StartBeforeDelete(t *testing.T) {
	var clock time.Time
	w := clocked(t, &clock, keep(func(r *Retention) { r.Total.Age = time.Hour }))
	d := w.drive()
	for range 5 {
		d.stamped(hour, 1)
	}
	d.runAll()
	d.stamped(hour.Add(2*time.Hour), 1)
	d.runAll()
	clock = hour.Add(2 * time.Hour)
	d.step((*state).onRetain)
	if got := d.points(); !slices.Equal(got, []string{"start.raise@10"}) {
		t.Fatalf("jobs %v", got)
	}
	wantStart := func(want tiers.Offset, objects int) {
		t.Helper()
		if v := d.View(); v.LogStart != want || len(w.bucket.Keys("")) != 2*objects {
			t.Fatalf("log start %d with %d objects", v.LogStart, len(w.bucket.Keys("")))
		}
		res, err := d.Read(t.Context(), read(want))
		if err != nil || len(res.Records) == 0 {
			t.Fatalf("read at %d: %v", want, err)
		}
	}
	wantStart(0, 6)
	d.run("start.raise")
	wantStart(10, 6)
	if w.rows.start != 10 {
		t.Fatalf("remembered %d", w.rows.start)
	}
	d.run("remove.mark")
	wantStart(10, 6)
	d.run("remove.drop")
	wantStart(10, 1)
	w.wantBucket(t, 1)
	d.end()
}

// TestR8NotRemembered: a start that cannot be remembered removes nothing, and is
// tried again.
func TestR8NotRemembered(t *testing.T) {
	var clock time.Time
	w := clocked(t, &clock, keep(func(r *Retention) { r.Total.Age = time.Hour }))
	d := w.drive()
	d.stamped(hour.Add(-2*time.Hour), 1)
	d.runAll()
	w.rows.failNext("raise-log-start", 2, false, errors.New("the bucket is away"))
	if err := d.retain(); err == nil || !strings.Contains(err.Error(), "bucket is away") {
		t.Fatal(err)
	}
	if v := d.View(); v.LogStart != 0 || d.on() != 0 {
		t.Fatalf("%+v", v.Watermarks)
	}
	w.wantBucket(t, 1)
	for range 4 {
		clock = clock.Add(d.s.untilWake())
		d.step((*state).onTick)
		d.runAll()
	}
	if v := d.View(); v.LogStart != 2 {
		t.Fatalf("%+v", v.Watermarks)
	}
	w.wantBucket(t, 0)
	d.end()
}

// TestReport047DeleteWaitsForReaders: objects stay for the delay after their rows
// went, so a reader that began before ends well.
func TestReport047DeleteWaitsForReaders(t *testing.T) {
	var clock time.Time
	w := clocked(t, &clock, keep(func(r *Retention) { r.Total.Age, r.Delay = time.Hour, time.Minute }))
	d := w.drive()
	d.stamped(hour.Add(-2*time.Hour), 1)
	d.runAll()
	d.step((*state).onRetain)
	d.run("start.raise")
	d.run("remove.mark")
	if len(d.jobs) != 0 || len(w.bucket.Keys("")) != 2 {
		t.Fatalf("jobs %v, %d objects", d.points(), len(w.bucket.Keys("")))
	}
	if wake := d.s.untilWake(); wake != time.Minute {
		t.Fatalf("wakes after %s", wake)
	}
	clock = clock.Add(time.Minute)
	d.step((*state).onTick)
	d.run("remove.drop")
	w.wantBucket(t, 0)
	d.end()
}

// TestR11LeftoversAfterARestart: whatever step a removal was cut off at, the next
// life ends it, and leaves the others alone.
func TestR11LeftoversAfterARestart(t *testing.T) {
	for _, steps := range [][]string{{"start.raise"}, {"start.raise", "remove.mark"}} {
		for _, op := range []string{"", "delete-started", "delete-finished"} {
			var clock time.Time
			w := clocked(t, &clock, keep(func(r *Retention) { r.Total.Age, r.Delay = time.Hour, time.Minute }))
			d := w.drive()
			d.stamped(hour, 1)
			d.stamped(hour, 1)
			d.stamped(hour.Add(2*time.Hour), 1)
			d.runAll()
			clock = hour.Add(2 * time.Hour)
			d.step((*state).onRetain)
			for _, s := range steps {
				d.run(s)
			}
			if op != "" {
				w.rows.failNext(op, 1, true, errors.New("answer lost"))
				clock = clock.Add(time.Minute)
				d.step((*state).onTick)
				if len(d.jobs) > 0 {
					d.run(d.jobs[0].point().Name)
				}
			}
			w.rows.failNext("", 0, false, nil)
			w.id.LogStart = w.rows.start
			w.crash(w.fs.KillCopy())
			d = w.drive()
			d.mustRetain()
			clock = clock.Add(time.Minute)
			d.mustRetain()
			if v := d.View(); v.LogStart != 4 {
				t.Fatalf("%+v", v.Watermarks)
			}
			w.wantBucket(t, 1)
			d.end()
		}
	}
}

// TestReport127DeletesAreRetried: a bucket that refuses deletes is asked again
// until it does not; one key that it refuses for good does not keep the others.
func TestReport127DeletesAreRetried(t *testing.T) {
	var clock time.Time
	w := clocked(t, &clock, keep(func(r *Retention) { r.Total.Age = time.Hour }))
	d := w.drive()
	for range 4 {
		d.stamped(hour, 1)
	}
	d.runAll()
	clock = hour.Add(2 * time.Hour)
	stubborn := w.bucket.Keys("")[2]
	w.bucket.Add(memory.Fault{Ops: memory.OpDelete, Key: stubborn, Sticky: true, Err: remote.ErrDenied})
	if err := d.retain(); !errors.Is(err, remote.ErrDenied) {
		t.Fatal(err)
	}
	for range 12 {
		clock = clock.Add(time.Minute)
		d.step((*state).onTick)
		d.runAll()
	}
	if n := len(w.bucket.Keys("")); n > 2 {
		t.Fatalf("%d objects are left", n)
	}
	w.bucket.Clear()
	for range 2 {
		clock = clock.Add(time.Minute)
		d.step((*state).onTick)
		d.runAll()
	}
	w.wantBucket(t, 0)
	if len(w.rows.byID) != 0 || len(d.s.remove.list) != 0 {
		t.Fatalf("rows %v", w.rows.list())
	}
	d.end()
}

// TestMayDeleteIsAsked: without the claim nothing is deleted.
func TestMayDeleteIsAsked(t *testing.T) {
	var clock time.Time
	lost := errors.New("the claim is somebody else's")
	w := clocked(t, &clock, keep(func(r *Retention) { r.Total.Age = time.Hour }))
	w.tweak = func(d *Deps) { d.MayDelete = func(context.Context) error { return lost } }
	d := w.drive()
	d.stamped(hour.Add(-2*time.Hour), 1)
	d.runAll()
	if err := d.retain(); !errors.Is(err, lost) {
		t.Fatal(err)
	}
	if len(w.bucket.Keys("")) != 2 {
		t.Fatalf("objects %v", w.bucket.Keys(""))
	}
	d.end()
}

// TestReport108CopyPaused: while copies are paused, local segments follow the total
// limits, what is in the bucket stays readable until it is due, and copying goes on
// where it was.
func TestReport108CopyPaused(t *testing.T) {
	var clock time.Time
	w := clocked(t, &clock, keep(func(r *Retention) { r.Total.Age, r.Local.Age = 10*time.Hour, time.Hour }))
	d := w.drive()
	d.stamped(hour.Add(-5*time.Hour), 1)
	d.runAll()
	d.mustRetain()
	d.step(func(s *state) { s.config.Retention.CopyPaused = true })
	d.stamped(hour.Add(-5*time.Hour), 1)
	d.stamped(hour.Add(-5*time.Hour), 1)
	d.mustRetain()
	if v := d.View(); v.LogStart != 0 || v.LocalLogStart != 2 || v.RemoteEnd != 2 || len(d.jobs) != 0 {
		t.Fatalf("%+v %v", v.Watermarks, d.points())
	}
	if got := readAll(t, d.Owner, ReadUncommitted); len(got) != 6 {
		t.Fatalf("%d records", len(got))
	}
	d.step(func(s *state) { s.config.Retention.CopyPaused = false })
	d.runAll()
	if v := d.View(); v.RemoteEnd != 6 || v.LogStart != 0 || v.LocalLogStart != 6 {
		t.Fatalf("%+v", v.Watermarks)
	}
	d.step(func(s *state) { s.config.Retention.CopyPaused = true })
	d.stamped(hour, 1)
	clock = hour.Add(6 * time.Hour)
	d.mustRetain()
	if v := d.View(); v.LogStart != 6 || v.LocalLogStart != 6 {
		t.Fatalf("%+v", v.Watermarks)
	}
	w.wantBucket(t, 0)
	d.end()
}

// TestReport108PausedDiskKeepsOrder: a disk that nothing is copied from does not
// lose what is older than what the bucket is to keep.
func TestReport108PausedDiskKeepsOrder(t *testing.T) {
	var clock time.Time
	w := clocked(t, &clock, keep(func(r *Retention) { r.Total.Age, r.Local.Age = 3*time.Hour, time.Hour }))
	d := w.drive()
	d.stamped(hour.Add(-2*time.Hour), 1)
	d.runAll()
	d.step(func(s *state) { s.config.Retention.CopyPaused = true })
	d.stamped(hour.Add(-5*time.Hour), 1) // older than what is before it
	d.mustRetain()
	if v := d.View(); v.LogStart != 0 {
		t.Fatalf("%+v", v.Watermarks)
	}
	if got := readAll(t, d.Owner, ReadUncommitted); len(got) != 4 {
		t.Fatalf("%d records", len(got))
	}
	d.end()
}

// TestReport108SwitchedOff: remote storage that is switched off keeps what is in
// the bucket readable, unless the topic says that it goes: then the log starts
// where the disk does, and the bucket is emptied.
func TestReport108SwitchedOff(t *testing.T) {
	var clock time.Time
	w := clocked(t, &clock, keep(func(r *Retention) { r.Local.Age = time.Hour }))
	d := w.drive()
	d.stamped(hour.Add(-2*time.Hour), 1)
	d.stamped(hour, 1)
	d.runAll()
	d.step(func(s *state) { s.config.Remote = false })
	d.mustRetain()
	if got := readAll(t, d.Owner, ReadUncommitted); len(got) != 4 || d.View().LocalLogStart != 2 {
		t.Fatalf("%d records, %+v", len(got), d.View().Watermarks)
	}
	d.step(func(s *state) { s.config.Retention.ForgetRemote = true })
	d.mustRetain()
	d.mustRetain()
	if v := d.View(); v.LogStart != 2 || w.rows.start != 2 {
		t.Fatalf("%+v", v.Watermarks)
	}
	if got := readAll(t, d.Owner, ReadUncommitted); len(got) != 2 || got[2] == "" {
		t.Fatalf("records %v", got)
	}
	w.wantBucket(t, 0)
	d.end()
}

// TestReport125StraddlingSegment: a segment of an epoch that the log start has passed
// goes with the others.
func TestReport125StraddlingSegment(t *testing.T) {
	var clock time.Time
	w := clocked(t, &clock, keep(func(*Retention) {}))
	d := w.drive()
	d.must(one("a"), one("b"))
	d.end()
	w.stop()
	w.id.Epoch = 2
	w.start()
	d = w.drive()
	d.must(one("c"), one("d"))
	d.roll()
	d.runAll()
	d.trim(3)
	if got := d.View().Lineage; len(got) != 1 || got[0].Epoch != 2 {
		t.Fatalf("lineage %s", got)
	}
	w.wantBucket(t, 1)
	d.trim(4)
	d.mustRetain()
	w.wantBucket(t, 0)
	d.end()
}

// TestReport012EnableOnALiveTopic: remote storage that is switched on with a tiny
// local limit frees nothing before it is in the bucket.
func TestReport012EnableOnALiveTopic(t *testing.T) {
	var clock time.Time
	w := clocked(t, &clock, keep(func(*Retention) {}))
	w.config.Remote = false
	d := w.drive()
	for range 5 {
		d.stamped(hour, 1)
	}
	w.bucket.Add(memory.Fault{Sticky: true, Err: remote.ErrThrottled})
	d.step(func(s *state) {
		c := s.config
		c.Remote, c.Retention.Local.Bytes = true, 1
		if err := s.onConfigure(c); err != nil {
			t.Fatal(err)
		}
	})
	for range 3 {
		d.runAll()
		_ = d.retain() // leftovers of the copies cannot be removed
		clock = clock.Add(10 * time.Minute)
		d.step((*state).onTick)
	}
	if v := d.View(); v.LogStart != 0 || v.LocalLogStart != 0 {
		t.Fatalf("%+v", v.Watermarks)
	}
	if got := readAll(t, d.Owner, ReadUncommitted); len(got) != 10 {
		t.Fatalf("%d records", len(got))
	}
	w.bucket.Clear()
	for range 8 {
		clock = clock.Add(10 * time.Minute)
		d.step((*state).onTick)
		d.runAll()
	}
	if v := d.View(); v.LogStart != 0 || v.LocalLogStart != 8 { // R9: not below the limit
		t.Fatalf("%+v", v.Watermarks)
	}
	if got := readAll(t, d.Owner, ReadUncommitted); len(got) != 10 {
		t.Fatalf("%d records", len(got))
	}
	d.end()
}

// TestReport131NoPartitionIsForgotten: segments that close after the start are
// freed like all others, also when copies fail now and then.
func TestReport131NoPartitionIsForgotten(t *testing.T) {
	var clock time.Time
	w := clocked(t, &clock, keep(func(r *Retention) { r.Local.Bytes = 1000 }))
	d := w.drive()
	for i := range 60 {
		d.stamped(hour, 1)
		if i%7 == 3 {
			w.bucket.Add(memory.Fault{Ops: memory.OpPut, Err: remote.ErrUnavailable})
		}
		d.runAll()
		clock = clock.Add(6 * time.Minute)
		d.step((*state).onTick)
		d.runAll()
		var size, waiting int64
		for _, seg := range d.s.local.Segments() {
			size += seg.Size
			if seg.Next > d.View().RemoteEnd {
				waiting += seg.Size
			}
		}
		if size > 1000+200+waiting {
			t.Fatalf("round %d: %d bytes on disk, %d wait for a copy", i, size, waiting)
		}
	}
	if got := readAll(t, d.Owner, ReadUncommitted); len(got) != 120 {
		t.Fatalf("%d records", len(got))
	}
	d.end()
}

// TestRetainIsOffByDefault: the zero value of Retention keeps everything.
func TestRetainIsOffByDefault(t *testing.T) {
	w := newWorld(t)
	d := w.drive()
	d.stamped(time.UnixMilli(5), 3)
	d.runAll()
	d.mustRetain()
	if v := d.View(); v.LogStart != 0 || v.LocalLogStart != 0 {
		t.Fatalf("%+v", v.Watermarks)
	}
	w.wantBucket(t, 1)
	d.end()
}

// TestReport001RefusedRows: rows that nobody understands hold retention up, which is
// told to whoever asks; what is certain goes on.
func TestReport001RefusedRows(t *testing.T) {
	var clock time.Time
	w, d := inBoth(t, &clock, 3, func(r *Retention) { r.Total.Age, r.Local.Age = time.Hour, time.Hour })
	d.dropLocal(2)
	bad := tiers.RemoteSegment{ID: w.newID(), Partition: w.id.ID, Gen: 1, Base: 9, End: 3}
	w.rows.byID[bad.ID] = bad
	clock = hour.Add(2 * time.Hour)
	d.step(func(s *state) { s.indexOld = true })
	if err := d.retain(); err == nil || !strings.Contains(err.Error(), "cannot be used") {
		t.Fatal(err)
	}
	if v := d.View(); v.LogStart != 0 || v.LocalLogStart != 6 {
		t.Fatalf("%+v", v.Watermarks)
	}
	delete(w.rows.byID, bad.ID)
	w.rows.failNext("segments", 1, false, errors.New("the database is locked"))
	d.step(func(s *state) { s.indexOld = true })
	if err := d.retain(); err == nil || !strings.Contains(err.Error(), "is locked") {
		t.Fatal(err)
	}
	d.mustRetain()
	if v := d.View(); v.LogStart != 6 {
		t.Fatalf("%+v", v.Watermarks)
	}
	d.end()
}

// TestRetentionIsTakenBack: retention waits behind a trim that is under way; then the
// limit is lifted. What it wanted does not count any more, the trim does.
func TestRetentionIsTakenBack(t *testing.T) {
	var clock time.Time
	w, d := inBoth(t, &clock, 3, func(r *Retention) { r.Total.Age = time.Hour })
	clock = hour.Add(2 * time.Hour)
	first, second := d.ask(1), d.ask(2)
	d.step((*state).onRetain)
	d.step(func(s *state) {
		c := s.config
		c.Retention.Total.Age = plan.Forever
		if err := s.onConfigure(c); err != nil {
			t.Fatal(err)
		}
	})
	d.runAll()
	if a, b := <-first, <-second; a.err != nil || b.err != nil || b.start != 2 {
		t.Fatal(a, b)
	}
	d.mustRetain()
	if v := d.View(); v.LogStart != 2 {
		t.Fatalf("%+v", v.Watermarks)
	}
	w.wantBucket(t, 2)
	d.end()
}

// TestRetainEndsWhatIsDue: one call closes the active segment, has it copied if
// segments are, and returns when all of it is gone; local limits only empty the disk.
func TestRetainEndsWhatIsDue(t *testing.T) {
	for name, c := range map[string]struct {
		remote bool
		change func(*Retention)
		start  tiers.Offset
	}{
		"copied":           {true, func(r *Retention) { r.Total.Age, r.Local.Age = time.Hour, time.Hour }, 4},
		"by size":          {true, func(r *Retention) { r.Total.Bytes, r.Local.Bytes = 0, 0 }, 4},
		"from disk only":   {true, func(r *Retention) { r.Local.Age = time.Hour }, 0},
		"on disk only":     {false, func(r *Retention) { r.Total.Age = time.Hour }, 4},
		"on disk, by size": {false, func(r *Retention) { r.Total.Bytes = 0 }, 4},
	} {
		w := newWorld(t)
		w.config.Remote, w.config.Retention = c.remote, keep(c.change)
		o := w.open()
		for i := range 4 {
			old := build(batch.Builder{ProducerID: -1}, hour.Add(-2*time.Hour).UnixMilli(), fmt.Sprint(i))
			if _, err := o.Append(t.Context(), AppendRequest{Batch: old}); err != nil {
				t.Fatal(err)
			}
			if i == 1 {
				if err := o.Roll(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := o.Retain(t.Context()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if v := o.View(); v.LogStart != c.start || v.LocalLogStart != 4 || v.LogEnd != 4 {
			t.Errorf("%s: %+v", name, v.Watermarks)
		}
		w.close(o)
		w.stop()
	}
}

// TestRetainSaysWhatWaitsForItsCopy.
func TestRetainSaysWhatWaitsForItsCopy(t *testing.T) {
	w := newWorld(t)
	w.config.Retention = keep(func(r *Retention) { r.Total.Bytes, r.Local.Bytes = 0, 0 })
	w.bucket.Add(memory.Fault{Key: "topics/", Ops: memory.OpPut, Sticky: true, Err: remote.ErrUnavailable})
	o := w.open()
	if _, err := o.Append(t.Context(), AppendRequest{Batch: one("a")}); err != nil {
		t.Fatal(err)
	}
	err := o.Retain(t.Context())
	wantKind(t, err, tiers.RemoteUnavailable)
	if !strings.Contains(err.Error(), "to be copied first") || o.View().LogStart != 0 {
		t.Errorf("%v; %+v", err, o.View().Watermarks)
	}
	w.bucket.Clear()
	if err := o.Retain(t.Context()); err != nil || o.View().LogStart != 1 {
		t.Errorf("%v; %+v", err, o.View().Watermarks)
	}
	w.close(o)
	w.stop()
}

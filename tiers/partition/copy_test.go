package partition

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

// TestCopyInSteps walks through a copy border by border (R2): what is true at
// each, and that RemoteEnd moves with the last one only.
func TestCopyInSteps(t *testing.T) {
	w := newWorld(t)
	d := w.drive()
	d.fill(3)
	d.roll()
	for _, c := range []struct {
		at      string
		rows    string
		objects int
	}{
		{"copy.planned", "[]", 0},
		{"copy.started", "[[0,3) copy-started]", 0},
		{"copy.uploaded", "[[0,3) copy-started]", 2},
		{"copy.finished", "[[0,3) copy-finished]", 2},
	} {
		if got := d.points(); !slices.Equal(got, []string{c.at + "@0"}) {
			t.Fatalf("jobs %v, want %s", got, c.at)
		}
		if rows, objects := fmt.Sprint(w.rows.list()), len(w.bucket.Keys("")); rows != c.rows || objects != c.objects {
			t.Fatalf("at %s: rows %s, %d objects", c.at, rows, objects)
		}
		if end := d.View().RemoteEnd; end != 0 {
			t.Fatalf("at %s: remote end %d", c.at, end)
		}
		d.run(c.at)
	}
	if v := d.View(); v.RemoteEnd != 3 || len(d.jobs) != 0 {
		t.Fatalf("remote end %d, jobs %v", v.RemoteEnd, d.points())
	}
	// The row says what the objects are.
	var row tiers.RemoteSegment
	for row = range d.View().index.All() {
	}
	object, _ := w.bucket.Bytes(remote.SegmentKey(row))
	if row.Size != int64(len(object)) || row.CRC32C != remote.CRC32C(object) || row.MaxTimestamp != 1000 || row.Copier != 7 || row.CopierEpoch != 1 {
		t.Fatalf("row %+v for an object of %d bytes", row, len(object))
	}
	companion, _ := w.bucket.Bytes(remote.MetaKey(row))
	meta, err := remote.DecodeMeta(companion)
	if err != nil || meta.TopicName != "orders" || meta.Cluster != "test-cluster" || meta.Lineage.String() != "{1:0}" || row.MetaSize != int64(len(companion)) {
		t.Fatalf("companion %+v, error %v", meta, err)
	}
	d.end()
}

// TestCopyInOrder: one at a time, in offset order, only closed segments below the
// last stable offset (R1).
func TestCopyInOrder(t *testing.T) {
	w := newWorld(t)
	d := w.drive()
	for range 3 {
		d.fill(2)
		d.roll()
	}
	d.fill(1)
	for _, want := range []tiers.Offset{2, 4, 6} {
		if len(d.jobs) != 1 {
			t.Fatalf("%d jobs at once: %v", len(d.jobs), d.points())
		}
		for range 4 {
			d.run(d.jobs[0].point().Name)
		}
		if end := d.View().RemoteEnd; end != want {
			t.Fatalf("remote end %d, want %d", end, want)
		}
	}
	if len(d.jobs) != 0 {
		t.Fatalf("the active segment is copied: %v", d.points())
	}
	d.end()
}

// replaceTail is what a truncation by a new leader epoch does to the log (T8, T6):
// the log is cut at o, and the node leads on in another epoch.
func (d *driven) replaceTail(o tiers.Offset, records int) {
	d.t.Helper()
	d.step(func(s *state) {
		if err := s.local.TruncateTo(o); err != nil {
			d.t.Fatal(err)
		}
		s.id.Epoch++
		if err := s.local.Assign(s.id.Epoch, o); err != nil {
			d.t.Fatal(err)
		}
	})
	d.fill(records)
}

// TestI11 is interleaving I11 of the specification as far as a classic log goes: a
// computed remote end is dropped if the log was truncated before it came home.
func TestI11(t *testing.T) {
	w := newWorld(t)
	d := w.drive()
	d.fill(120)
	d.roll()
	for _, at := range []string{"copy.planned", "copy.started", "copy.uploaded"} {
		d.run(at)
	}
	d.replaceTail(100, 50) // to 150, beyond the stale end 120
	d.run("copy.finished")
	if v := d.View(); v.RemoteEnd != 0 {
		t.Fatalf("a stale outcome moved the remote end to %d", v.RemoteEnd)
	}
	d.run("index.reload")
	if v := d.View(); v.RemoteEnd != 100 || v.LogEnd != 150 {
		t.Fatalf("remote end %d, log end %d: want what R14 leaves of [0,120)", v.RemoteEnd, v.LogEnd)
	}
	d.end()
}

// TestI12 is interleaving I12: truncation while objects are up and FINISHED is not
// written yet.
func TestI12(t *testing.T) {
	held := func(t *testing.T) (*world, *driven) {
		t.Helper()
		w := newWorld(t)
		d := w.drive()
		d.fill(50)
		d.roll()
		d.runAll()
		d.fill(70)
		d.roll()
		d.run("copy.planned")
		d.run("copy.started")
		d.replaceTail(100, 30)
		return w, d
	}
	t.Run("finished is accepted", func(t *testing.T) {
		w, d := held(t)
		d.roll()
		d.run("copy.uploaded")
		d.run("copy.finished")
		d.run("index.reload")
		if v := d.View(); v.RemoteEnd != 100 {
			t.Fatalf("remote end %d, want 100 (R14)", v.RemoteEnd)
		}
		w.rows.epoch = d.s.id.Epoch
		d.runAll()
		// Without a roll at 100 the next upload holds [50,130), and covers all.
		if v := d.View(); v.RemoteEnd != 130 {
			t.Fatalf("remote end %d, rows %v", v.RemoteEnd, w.rows.list())
		}
		d.end()
	})
	t.Run("finished is refused", func(t *testing.T) {
		w, d := held(t)
		w.rows.epoch = d.s.id.Epoch // the control plane knows the new epoch
		d.run("copy.uploaded")
		if rows := fmt.Sprint(w.rows.list()); rows != "[[0,50) copy-finished [50,120) copy-started]" {
			t.Fatal(rows)
		}
		if len(d.jobs) != 0 {
			t.Fatalf("a stale copier goes on: %v", d.points())
		}
		if len(w.bucket.Keys("")) != 4 {
			t.Fatal("a stale copier removed objects: the row is not its any more")
		}
		if v := d.View(); v.RemoteEnd != 50 {
			t.Fatalf("remote end %d", v.RemoteEnd)
		}
		d.end()
	})
	t.Run("noticed after the row", func(t *testing.T) {
		w := newWorld(t)
		d := w.drive()
		d.fill(10)
		d.roll()
		d.replaceTail(5, 1)
		d.run("copy.planned")
		if got := d.points(); !slices.Contains(got, "remove.mark@0") || slices.Contains(got, "copy.started@0") {
			t.Fatalf("jobs %v", got)
		}
		d.end()
	})
	t.Run("noticed after the objects", func(t *testing.T) {
		w := newWorld(t)
		d := w.drive()
		d.fill(10)
		d.roll()
		d.run("copy.planned")
		d.replaceTail(5, 1)
		w.rows.epoch = d.s.id.Epoch
		d.take("copy.started") // it was planned on the old log: its outcome is stale
		d.step(uploadDone{attempt: *d.s.copying}.on)
		d.run("remove.mark")
		d.run("remove.drop")
		d.run("remove.row")
		if rows := w.rows.list(); len(rows) != 0 {
			t.Fatal(rows)
		}
		d.end()
	})
}

// TestReport126: a failure at any call of a copy, and of what cleans up after it,
// ends with exactly one complete set of objects for each segment, every key of
// which a row names.
func TestReport126CopyLeavesNothingBehind(t *testing.T) {
	type failure struct {
		name string
		set  func(w *world)
	}
	var failures []failure
	for _, op := range []memory.Op{memory.OpPut, memory.OpStat, memory.OpReadAt, memory.OpDelete} {
		for skip := range 2 {
			for _, applied := range []bool{false, true} {
				failures = append(failures, failure{fmt.Sprintf("%s %d applied %t", op, skip, applied), func(w *world) {
					w.bucket.Add(memory.Fault{Ops: op, Skip: skip, Applied: applied, Err: remote.ErrUnavailable})
					if op == memory.OpDelete {
						w.bucket.Add(memory.Fault{Ops: memory.OpPut, Skip: 1, Err: remote.ErrDenied})
					}
				}})
			}
		}
	}
	lost := errors.New("connection reset")
	for _, op := range []string{"copy-started", "copy-finished", "delete-started", "delete-finished", "segments"} {
		for _, applied := range []bool{false, true} {
			failures = append(failures, failure{fmt.Sprintf("%s applied %t", op, applied), func(w *world) {
				w.rows.failNext(op, 1, applied, lost)
				if op != "copy-started" && op != "copy-finished" {
					w.bucket.Add(memory.Fault{Ops: memory.OpPut, Skip: 1, Err: remote.ErrDenied})
				}
			}})
		}
	}
	for _, f := range failures {
		t.Run(f.name, func(t *testing.T) {
			w := newWorld(t)
			clock := time.Unix(1000, 0)
			w.now = func() time.Time { return clock }
			d := w.drive()
			f.set(w)
			d.fill(2)
			d.roll()
			d.fill(2)
			d.roll()
			for range 10 { // tries, a minute apart
				d.runAll()
				clock = clock.Add(time.Minute)
				d.step((*state).onTick)
			}
			if rows := w.rows.list(); fmt.Sprint(rows) != "[[0,2) copy-finished [2,4) copy-finished]" {
				t.Errorf("rows %v", rows)
			}
			if keys := w.bucket.Keys(""); !slices.Equal(keys, w.rows.keysOf()) {
				t.Errorf("keys %v\nrows %v", keys, w.rows.keysOf())
			}
			if v := d.View(); v.RemoteEnd != 4 {
				t.Errorf("remote end %d", v.RemoteEnd)
			}
			d.end()
		})
	}
}

// TestR3UnknownOutcome: CopyFinished was written and its answer got lost. Nothing
// is deleted; the registry is asked, as often as it takes.
func TestR3UnknownOutcome(t *testing.T) {
	w := newWorld(t)
	clock := time.Unix(1000, 0)
	w.now = func() time.Time { return clock }
	d := w.drive()
	d.fill(2)
	d.roll()
	d.run("copy.planned")
	d.run("copy.started")
	w.rows.failNext("copy-finished", 1, true, io.ErrUnexpectedEOF)
	d.run("copy.uploaded")
	w.rows.failNext("segments", 1, false, io.ErrUnexpectedEOF)
	d.run("copy.settle")
	if len(d.jobs) != 0 {
		t.Fatalf("jobs %v while nobody knows what happened", d.points())
	}
	clock = clock.Add(2 * time.Second)
	d.step((*state).onTick)
	d.run("index.reload")
	if v := d.View(); v.RemoteEnd != 2 || len(d.jobs) != 0 {
		t.Fatalf("remote end %d, jobs %v", v.RemoteEnd, d.points())
	}
	if slices.Contains(w.rows.calls, "delete-started") || len(w.bucket.Keys("")) != 2 {
		t.Fatalf("calls %v", w.rows.calls)
	}
	d.end()
}

// TestR3AnswerLost: CopyFinished was written, its answer got lost, the registry says
// so when asked: the copy counts and nothing is removed.
func TestR3AnswerLost(t *testing.T) {
	w := newWorld(t)
	d := w.drive()
	d.fill(2)
	d.roll()
	w.rows.failNext("copy-finished", 1, true, io.ErrUnexpectedEOF)
	d.runAll()
	if v := d.View(); v.RemoteEnd != 2 || slices.Contains(w.rows.calls, "delete-started") || len(w.bucket.Calls(memory.OpDelete, "")) != 0 {
		t.Fatalf("remote end %d, calls %v", v.RemoteEnd, w.rows.calls)
	}
	d.end()
}

// TestB9RemoteEnd: rows of the bucket do not lift the remote end above what is
// decided.
func TestB9RemoteEnd(t *testing.T) {
	w := newWorld(t)
	d := w.drive()
	d.must(one("0"), txn(0, "1"), one("2"))
	d.step(func(s *state) {
		s.onCopied(tiers.RemoteSegment{
			ID: tiers.SegmentID{1}, Partition: w.id.ID, Gen: 1, Base: 0, End: 3, Epochs: tiers.Lineage{{Epoch: 1}}, State: tiers.CopyFinished, Size: 1,
		})
	})
	if v := d.View(); v.RemoteEnd != 1 {
		t.Fatalf("%+v", v.Watermarks)
	}
	d.end()
}

// TestBackoffBounds: however often it fails, the delay is one that a clock can
// wait for.
func TestBackoffBounds(t *testing.T) {
	var b backoff
	now := time.Unix(1000, 0)
	for range 200 {
		b = b.next(now, someOf)
		if d := b.at.Sub(now); d < firstDelay/2 || d > maxDelay {
			t.Fatalf("delay %s after %d failures", d, b.failures)
		}
	}
}

// TestR3RetryHasNewID: the key of a failed copy is never written again.
func TestR3RetryHasNewID(t *testing.T) {
	w := newWorld(t)
	clock := time.Unix(1000, 0)
	w.now = func() time.Time { return clock }
	d := w.drive()
	w.bucket.Add(memory.Fault{Ops: memory.OpPut, Skip: 1, Err: remote.ErrUnavailable})
	d.fill(2)
	d.roll()
	d.run("copy.planned")
	first := d.s.copying.seg.ID
	d.runAll()
	clock = clock.Add(time.Minute)
	d.step((*state).onTick)
	if d.s.copying == nil || d.s.copying.seg.ID == first {
		t.Fatal("the retry has the same id, or there is none")
	}
	d.runAll()
	d.end()
}

// TestUndoWithoutRow: the row of a failed copy is gone. The registry is asked, and
// the objects go.
func TestUndoWithoutRow(t *testing.T) {
	w := newWorld(t)
	d := w.drive()
	d.fill(2)
	d.roll()
	d.run("copy.planned")
	w.bucket.Add(memory.Fault{Ops: memory.OpPut, Skip: 1, Err: remote.ErrDenied})
	d.run("copy.started")
	clear(w.rows.byID)
	if len(w.bucket.Keys("")) != 1 {
		t.Fatal("no object is left to remove")
	}
	d.run("remove.mark")
	d.run("remove.drop")
	if len(w.bucket.Keys("")) != 0 || len(d.s.remove.list) != 0 {
		t.Fatalf("left: %v, %v", w.bucket.Keys(""), d.s.remove.list)
	}
	d.end()
}

// TestStaleReload: rows that were read before the log was truncated are read again
// (F4).
func TestStaleReload(t *testing.T) {
	w := newWorld(t)
	d := w.drive()
	d.fill(4)
	d.step(func(s *state) { s.indexOld = true })
	stale := d.take("index.reload").run(t.Context(), d.tools())
	d.replaceTail(2, 1)
	d.step(stale.on)
	d.run("index.reload")
	if len(d.jobs) != 0 {
		t.Fatal(d.points())
	}
	d.end()
}

// TestReport127: what an earlier life left in CopyStarted or DeleteStarted is
// removed after a restart, however long the bucket refuses.
func TestReport127LeftoversAreRetried(t *testing.T) {
	w := newWorld(t)
	clock := time.Unix(1000, 0)
	w.now = func() time.Time { return clock }
	d := w.drive()
	d.fill(2)
	d.roll()
	d.run("copy.planned")
	d.run("copy.started") // objects are up, the row is in CopyStarted
	d.end()
	w.stop()

	w.id.Epoch++
	w.start()
	hits := w.bucket.Add(memory.Fault{Ops: memory.OpDelete, Times: 5, Err: remote.ErrUnavailable})
	d = w.drive()
	if !slices.Contains(d.points(), "remove.mark@0") {
		t.Fatalf("jobs %v", d.points())
	}
	for range 8 {
		d.runAll()
		clock = clock.Add(time.Minute)
		d.step((*state).onTick)
	}
	if hits() != 5 {
		t.Fatalf("%d deletes failed, want 5", hits())
	}
	if keys := w.bucket.Keys(""); !slices.Equal(keys, w.rows.keysOf()) || len(keys) != 2 {
		t.Fatalf("keys %v, rows %v", keys, w.rows.list())
	}
	if n := strings.Count(w.noise.String(), "cannot remove"); n != 1 {
		t.Fatalf("%d warnings for one episode:\n%s", n, w.noise)
	}
	d.end()
}

// TestP6BucketDown: a bucket that cannot be reached delays copies; appends and
// local reads go on. Tries are spaced out, and told of once.
func TestP6BucketDown(t *testing.T) {
	w := newWorld(t)
	clock := time.Unix(1000, 0)
	w.now = func() time.Time { return clock }
	d := w.drive()
	w.bucket.Add(memory.Fault{Sticky: true, Err: remote.ErrUnavailable})
	d.fill(2)
	d.roll()
	var waits []time.Duration
	for range 9 {
		d.runAll()
		at := d.s.copyRetry.at
		waits = append(waits, at.Sub(clock))
		clock = at.Add(-1)
		d.step((*state).onTick)
		if d.s.copying != nil {
			t.Fatal("it is tried again before its time")
		}
		clock = at
		d.step((*state).onTick)
		d.fill(1)
	}
	const s = time.Second
	if want := []time.Duration{s, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 60 * s, 60 * s, 60 * s}; !slices.Equal(waits, want) {
		t.Fatalf("waits %v, want %v", waits, want)
	}
	if got := readAll(t, d.Owner, ReadUncommitted); len(got) != 11 {
		t.Fatalf("%d records", len(got))
	}
	if n := strings.Count(w.noise.String(), "a copy to the bucket failed"); n != 1 || !strings.Contains(w.noise.String(), "cannot be reached") {
		t.Fatalf("%d warnings for one episode:\n%s", n, w.noise)
	}
	w.bucket.Clear()
	for range 3 {
		d.runAll()
		clock = clock.Add(time.Minute)
		d.step((*state).onTick)
	}
	if v := d.View(); v.RemoteEnd != 2 {
		t.Fatalf("remote end %d after the bucket came back", v.RemoteEnd)
	}
	d.end()
}

func mustRead(t *testing.T, o *Owner, r ReadRequest) ReadResult {
	t.Helper()
	res, err := o.Read(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// TestTVR9HoleIsAlarmed: the coverage is derived from rows and lineage, so a hole
// in the rows shows (R5), and is told of once if no local segment can fill it (R4,
// TV-R9).
func TestTVR9HoleIsAlarmed(t *testing.T) {
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
	for row := range d.s.index.All() {
		if row.Base != 2 {
			rows = append(rows, row)
		}
	}
	d.s.onIndex(rows)
	d.publish(d.s)
	d.s.onPlan()
	d.s.rested = rested{}
	d.s.onPlan()
	if n := strings.Count(w.noise.String(), "has a hole"); n != 1 {
		t.Fatalf("%d alarms:\n%s", n, w.noise)
	}
	if !strings.Contains(w.noise.String(), "strandline topic trim") || !strings.Contains(w.noise.String(), "hole_ends=4") {
		t.Fatalf("the way out is not named:\n%s", w.noise)
	}
	if v := d.View(); v.RemoteEnd != 2 {
		t.Fatalf("remote end %d", v.RemoteEnd)
	}
	_, err := d.Read(t.Context(), read(2))
	wantKind(t, err, tiers.NotLeader) // R15: never out of range
	d.end()
}

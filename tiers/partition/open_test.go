package partition

import (
	"fmt"
	"strings"
	"testing"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/batch"
	"github.com/strandline-io/strandline/tiers/fsys/mem"
	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

// restart stops the process and starts the next; change comes in between.
func (w *world) restart(change func()) {
	w.t.Helper()
	w.stop()
	change()
	w.id.Epoch++
	w.start()
}

// lose is what takes the disk away.
func (w *world) lose() {
	w.fs = mem.New()
	w.files = w.fs
}

// copied is a world whose log is [0,6), copied up to 4, and closed.
func copied(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	d := w.drive()
	d.must(idempotent(5, 0, 0, "0"), one("1"))
	d.roll()
	d.must(idempotent(5, 0, 1, "2"), one("3"))
	d.roll()
	d.runAll()
	d.must(one("4"), one("5"))
	d.end()
	return w
}

// TestReopen: everything is there, in the next leader epoch (T6).
func TestReopen(t *testing.T) {
	w := copied(t)
	w.restart(func() {})
	d := w.drive()
	v := d.View()
	if v.LogEnd != 6 || v.HighWatermark != 6 || v.RemoteEnd != 4 || v.Lineage.String() != "{1:0, 2:6}" || v.Epoch != 2 {
		t.Fatalf("%+v %s", v.Watermarks, v.Lineage)
	}
	if got := readAll(t, d.Owner, ReadUncommitted); len(got) != 6 {
		t.Fatal(got)
	}
	d.must(idempotent(5, 0, 2, "6"))
	d.end()
}

// TestReport021: the disk is lost: the log goes on where the bucket's cover ends,
// with its epochs and its producers; the records are served from the bucket.
func TestReport021LostDisk(t *testing.T) {
	w := copied(t)
	w.restart(w.lose)
	d := w.drive()
	v := d.View()
	if v.LogStart != 0 || v.LocalLogStart != 4 || v.LogEnd != 4 || v.RemoteEnd != 4 || v.Lineage.String() != "{1:0, 2:4}" {
		t.Fatalf("%+v %s", v.Watermarks, v.Lineage)
	}
	calls := d.append(idempotent(5, 0, 1, "2"), idempotent(5, 0, 2, "new"), idempotent(5, 0, 9, "x"))
	if calls[0].err != nil || calls[0].result.Base != 2 {
		t.Errorf("a duplicate of what is in the bucket: %+v, %v", calls[0].result, calls[0].err)
	}
	if calls[1].err != nil || calls[1].result.Base != 4 {
		t.Errorf("the producer goes on: %+v, %v", calls[1].result, calls[1].err)
	}
	wantKind(t, calls[2].err, tiers.OutOfOrderSequence)
	if got := fmt.Sprint(readAll(t, d.Owner, ReadUncommitted)); got != "map[0:0 1:1 2:2 3:3 4:new]" {
		t.Error(got)
	}
	d.roll()
	d.runAll()
	if v := d.View(); v.RemoteEnd != 5 {
		t.Errorf("remote end %d", v.RemoteEnd)
	}
	d.end()
}

// TestReport021Offline: the disk is lost and the bucket cannot say where the log
// ended: an explicit error, never a silent restart at 0.
func TestReport021Offline(t *testing.T) {
	for _, c := range []struct {
		name string
		set  func(w *world)
		kind tiers.Kind
	}{
		{"bucket down", func(w *world) {
			w.bucket.Add(memory.Fault{Ops: memory.OpAny, Sticky: true, Err: remote.ErrUnavailable})
		}, tiers.RemoteUnavailable},
		{"no bucket", func(w *world) { w.tweak = func(d *Deps) { d.Cache = nil } }, tiers.RemoteUnavailable},
		{"registry down", func(w *world) {
			w.rows.failNext("segments", 1, false, tiers.E(tiers.StorageFailed, "query", "", "locked"))
		}, tiers.StorageFailed},
		{"a segment is missing", func(w *world) {
			for id, row := range w.rows.byID {
				if row.Base == 0 {
					row.End = 1
					w.rows.byID[id] = row
				}
			}
		}, tiers.StorageFailed},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := copied(t)
			w.restart(w.lose)
			c.set(w)
			_, err := Open(t.Context(), w.id, w.config, w.deps(NewPool(1)))
			wantKind(t, err, c.kind)
			if c.name == "a segment is missing" && !strings.Contains(err.Error(), "[1,2)") {
				t.Fatal("the error does not name the hole:", err)
			}
			w.cache.Close()
		})
	}
}

// TestReport057: the log start is what the rows say, with a disk that knows less
// and with none.
func TestReport057LogStart(t *testing.T) {
	expire := func(w *world) { // the first segment is gone from the bucket
		for id, row := range w.rows.byID {
			if row.Base == 0 {
				delete(w.rows.byID, id)
			}
		}
	}
	t.Run("no disk", func(t *testing.T) {
		w := copied(t)
		w.restart(func() { w.lose(); expire(w) })
		d := w.drive()
		if v := d.View(); v.LogStart != 2 || v.LogEnd != 4 || v.Lineage.String() != "{1:2, 2:4}" {
			t.Fatalf("%+v %s", v.Watermarks, v.Lineage)
		}
		d.end()
	})
	t.Run("disk that knows less", func(t *testing.T) {
		w := newWorld(t)
		d := w.drive()
		for range 2 {
			d.fill(2)
			d.roll()
		}
		d.runAll()
		d.dropLocal(2)
		d.end()
		w.restart(func() { expire(w) })
		d = w.drive()
		if v := d.View(); v.LogStart != 2 || v.LocalLogStart != 2 {
			t.Fatalf("%+v", v.Watermarks)
		}
		d.end()
	})
	t.Run("the partition's row", func(t *testing.T) {
		w := copied(t)
		w.id.LogStart = 3
		w.restart(func() {})
		d := w.drive()
		if v := d.View(); v.LogStart != 3 || v.LogEnd != 6 {
			t.Fatalf("%+v", v.Watermarks)
		}
		_, err := d.Read(t.Context(), read(2))
		wantKind(t, err, tiers.OffsetOutOfRange)
		d.end()
		w.id.LogStart = 9 // above everything
		w.restart(func() {})
		d = w.drive()
		if v := d.View(); v.LogStart != 9 || v.LogEnd != 9 {
			t.Fatalf("%+v", v.Watermarks)
		}
		d.fill(1)
		d.end()
		w.restart(w.lose)
		d = w.drive()
		if v := d.View(); v.LogStart != 9 || v.LogEnd != 9 {
			t.Fatalf("no disk and nothing above the start: %+v", v.Watermarks)
		}
		d.end()
	})
}

// TestLostTail: a disk that was restored from an old copy ends below the bucket's
// cover. Nothing is appended in the middle of it.
func TestLostTail(t *testing.T) {
	w := newWorld(t)
	d := w.drive()
	d.must(one("0"), one("1"))
	old := w.fs.SyncedCopy()
	d.roll()
	d.must(one("2"), one("3"))
	d.roll()
	d.runAll()
	d.must(one("lost"))
	d.end()
	w.stop()
	w.id.Epoch++
	w.fs, w.files = old, old
	w.start()
	d = w.drive()
	if v := d.View(); v.LogEnd != 4 || v.LocalLogStart != 4 || v.LogStart != 0 || v.RemoteEnd != 4 {
		t.Fatalf("%+v", v.Watermarks)
	}
	if !strings.Contains(w.noise.String(), "LOST ITS TAIL") {
		t.Fatal("nobody is told")
	}
	d.must(one("4"))
	if got := fmt.Sprint(readAll(t, d.Owner, ReadUncommitted)); got != "map[0:0 1:1 2:2 3:3 4:4]" {
		t.Fatal(got)
	}
	d.end()
}

// TestLostTailOffline: the same without the bucket is an error, not an append in
// the middle.
func TestLostTailOffline(t *testing.T) {
	w := newWorld(t)
	d := w.drive()
	d.fill(1)
	old := w.fs.SyncedCopy()
	d.fill(1)
	d.roll()
	d.runAll()
	d.end()
	w.stop()
	w.id.Epoch++
	w.fs, w.files = old, old
	w.start()
	w.bucket.Add(memory.Fault{Ops: memory.OpAny, Sticky: true, Err: remote.ErrUnavailable})
	_, err := Open(t.Context(), w.id, w.config, w.deps(NewPool(1)))
	wantKind(t, err, tiers.RemoteUnavailable)
	w.bucket.Clear()
	d = w.drive()
	if v := d.View(); v.LogEnd != 2 {
		t.Fatalf("%+v", v.Watermarks)
	}
	d.end()
}

// TestLostTailAboveAHole: the disk ends below the bucket's cover and holds what the
// bucket has not: starting anew would lose it, so it is refused.
func TestLostTailAboveAHole(t *testing.T) {
	w := newWorld(t)
	d := w.drive()
	d.fill(2)
	old := w.fs.SyncedCopy()
	d.roll()
	d.fill(2)
	d.roll()
	d.runAll()
	d.end()
	w.stop()
	for id, row := range w.rows.byID {
		if row.Base == 0 {
			delete(w.rows.byID, id)
		}
	}
	w.id.Epoch++
	w.fs, w.files = old, old
	w.start()
	_, err := Open(t.Context(), w.id, w.config, w.deps(NewPool(1)))
	wantKind(t, err, tiers.StorageFailed)
	if !strings.Contains(err.Error(), "strandline rebuild") {
		t.Fatal(err)
	}
	w.id.LogStart = 2 // as the error says
	d = w.drive()
	if v := d.View(); v.LogStart != 2 || v.LogEnd != 4 {
		t.Fatalf("%+v", v.Watermarks)
	}
	d.end()
}

// TestDiscardedTail: the bucket goes on above the log, in an older leader epoch: a
// tail that was discarded. The log stays, the cap of R14 hides the rest (TV-R1).
func TestTVR1DiscardedTail(t *testing.T) {
	w := newWorld(t)
	d := w.drive()
	d.fill(10)
	d.roll()
	d.runAll()
	w.id.Epoch = 2
	w.rows.epoch = 2
	d.replaceTail(6, 2) // {1:0, 2:6} up to 8, the bucket holds [0,10)
	d.end()
	w.restart(func() {})
	d = w.drive()
	if v := d.View(); v.LogEnd != 8 || v.RemoteEnd != 6 || strings.Contains(w.noise.String(), "LOST") {
		t.Fatalf("%+v\n%s", v.Watermarks, w.noise)
	}
	d.end()
}

// TestOpenRefusals: what no partition can run with.
func TestOpenRefusals(t *testing.T) {
	w := newWorld(t)
	for _, change := range []func(*Config){
		func(c *Config) { c.Local.SegmentBytes = 0 },
		func(c *Config) { c.Ack = 9 },
		func(c *Config) { c.Ack = AckInterval },
	} {
		c := w.config
		change(&c)
		_, err := Open(t.Context(), w.id, c, w.deps(NewPool(1)))
		wantKind(t, err, tiers.InvalidConfig)
		o := w.open()
		wantKind(t, o.Configure(t.Context(), c), tiers.InvalidConfig)
		w.close(o)
	}
	w.id.Epoch = 5
	o := w.open()
	o.mustAppend(t, "a")
	w.close(o)
	w.id.Epoch = 4
	_, err := Open(t.Context(), w.id, w.config, w.deps(NewPool(1)))
	wantKind(t, err, tiers.StaleFence)
	w.id.Epoch = 6
	w.close(w.open())
	w.stop()
}

// TestReport105: a topic whose segments were closed before tiering was switched on,
// with side files missing: all are copied, in order.
func TestReport105OldSegments(t *testing.T) {
	w := newWorld(t)
	w.config.Remote = false
	o := w.open()
	for range 3 {
		for range 2 {
			if _, err := o.Append(t.Context(), AppendRequest{Batch: idempotent(3, 0, int32(o.View().LogEnd), "x")}); err != nil {
				t.Fatal(err)
			}
		}
		if err := o.Roll(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	wantKind(t, o.CopyAll(t.Context()), tiers.InvalidConfig)
	for _, name := range []string{"00000000000000000002.snapshot", "00000000000000000002.index"} {
		if err := w.fs.Remove("/data/orders-0/h1/" + name); err != nil {
			t.Fatal(err)
		}
	}
	c := w.config
	c.Remote = true
	if err := o.Configure(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if err := o.CopyAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(w.rows.list()); got != "[[0,2) copy-finished [2,4) copy-finished [4,6) copy-finished]" {
		t.Fatal(got)
	}
	w.close(o)
	w.config = c
	w.restart(w.lose)
	o = w.open()
	if got := readAll(t, o, ReadUncommitted); len(got) != 6 {
		t.Fatal(got)
	}
	_, err := o.Append(t.Context(), AppendRequest{Batch: build(batch.Builder{ProducerID: 3, BaseSequence: 6}, 1000, "next")})
	if err != nil {
		t.Fatal("the producer's state is not what the bucket has:", err)
	}
	w.close(o)
}

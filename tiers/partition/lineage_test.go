package partition

import (
	"fmt"
	"testing"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

const epochFile = "/data/orders-0/h1/leader-epoch-checkpoint"

// aboveTheBucket is a closed world whose log is [0,4) in the bucket only and
// [4,5) on disk, like one that was rebuilt.
func aboveTheBucket(t *testing.T) *world {
	t.Helper()
	w := copied(t)
	w.restart(w.lose)
	d := w.drive()
	d.must(one("new"))
	if v := d.View(); v.LogStart != 0 || v.LocalLogStart != 4 || v.RemoteEnd != 4 {
		t.Fatalf("%+v", v.Watermarks)
	}
	d.end()
	return w
}

// spoil changes the leader epoch checkpoint.
func (w *world) spoil(how string) {
	w.t.Helper()
	var err error
	switch how {
	case "missing":
		err = w.fs.Remove(epochFile)
	case "garbage":
		err = fsys.WriteFileAtomic(w.fs, epochFile, []byte("\x00garbage"), 0o600)
	case "too short": // sound, and begins where the disk does
		err = fsys.WriteFileAtomic(w.fs, epochFile, []byte("0\n1\n2 4\n"), 0o600)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// TestReport117RemoteLineage: a leader epoch checkpoint that is damaged or gone
// does not hide the bucket: what the disk cannot tell, a companion does.
func TestReport117RemoteLineage(t *testing.T) {
	for _, how := range []string{"missing", "garbage"} {
		t.Run(how, func(t *testing.T) {
			w := aboveTheBucket(t)
			w.restart(func() { w.spoil(how) })
			for range 2 { // what was mended stays
				d := w.drive()
				v := d.View()
				if v.LogStart != 0 || v.LocalLogStart != 4 || v.RemoteEnd != 4 || v.Lineage.EpochFor(0) != 1 || v.Lineage.EpochFor(4) != 2 {
					t.Fatalf("%+v %s", v.Watermarks, v.Lineage)
				}
				if got := fmt.Sprint(readAll(t, d.Owner, ReadUncommitted)); got != "map[0:0 1:1 2:2 3:3 4:new]" {
					t.Fatal(got)
				}
				d.end()
				w.restart(func() {})
			}
		})
	}
}

// TestReport117ShortLineage: a sound lineage that begins above the log start is
// not all of it.
func TestReport117ShortLineage(t *testing.T) {
	w := copied(t)
	w.id.LogStart = 1
	w.restart(w.lose)
	d := w.drive()
	d.must(one("new"))
	d.end()
	w.restart(func() { w.spoil("too short") })
	d = w.drive()
	if v := d.View(); v.LogStart != 1 || v.RemoteEnd != 4 || len(readAll(t, d.Owner, ReadUncommitted)) != 4 {
		t.Fatalf("%+v %s", v.Watermarks, v.Lineage)
	}
	d.end()
}

// TestReport117Offline: while the companion cannot be read the partition is
// offline, and nothing is written that would hide the bucket later.
func TestReport117Offline(t *testing.T) {
	for _, c := range []struct {
		name string
		set  func(w *world)
	}{
		{"bucket down", func(w *world) {
			w.bucket.Add(memory.Fault{Ops: memory.OpAny, Sticky: true, Err: remote.ErrUnavailable})
		}},
		{"no bucket", func(w *world) { w.tweak = func(d *Deps) { d.Cache = nil } }},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := aboveTheBucket(t)
			w.restart(func() { w.spoil("garbage") })
			c.set(w)
			_, err := Open(t.Context(), w.id, w.config, w.deps(NewPool(1)))
			wantKind(t, err, tiers.RemoteUnavailable)
			w.bucket.Clear()
			w.tweak = nil
			w.restart(func() {})
			d := w.drive()
			if v := d.View(); v.LogStart != 0 || len(readAll(t, d.Owner, ReadUncommitted)) != 5 {
				t.Fatalf("%+v", v.Watermarks)
			}
			d.end()
		})
	}
}

// TestRefusedRowRaisesNothing: while a row cannot be understood nobody knows
// whether its offsets are gone, so the log start stays.
func TestRefusedRowRaisesNothing(t *testing.T) {
	spoiled := func(w *world) (undo func()) {
		for id, row := range w.rows.byID {
			if row.Base == 0 {
				bad := row
				bad.Epochs = nil
				w.rows.byID[id] = bad
				return func() { w.rows.byID[id] = row }
			}
		}
		panic("no such row")
	}
	t.Run("with a disk", func(t *testing.T) {
		w := aboveTheBucket(t)
		var undo func()
		w.restart(func() { undo = spoiled(w) })
		_, err := Open(t.Context(), w.id, w.config, w.deps(NewPool(1)))
		wantKind(t, err, tiers.StorageFailed)
		w.restart(undo)
		d := w.drive()
		if got := readAll(t, d.Owner, ReadUncommitted); len(got) != 5 {
			t.Fatal(got)
		}
		d.end()
	})
	t.Run("without", func(t *testing.T) {
		w := copied(t)
		w.restart(func() { w.lose(); spoiled(w) })
		_, err := Open(t.Context(), w.id, w.config, w.deps(NewPool(1)))
		wantKind(t, err, tiers.StorageFailed)
		w.cache.Close()
	})
}

package partition

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/fsys/mem"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

// moment is what the world was right after a file operation or a call of the
// registry.
type moment struct {
	after  string
	left   map[string]*mem.FS // by how the process ended
	acked  int
	sent   int
	start  tiers.Offset // log start that was acknowledged
	bucket *memory.Bucket
	rows   map[tiers.SegmentID]tiers.RemoteSegment

	remembered tiers.Offset // log start in the control plane
}

func (m moment) rowsLeft() map[tiers.SegmentID]tiers.RemoteSegment { return maps.Clone(m.rows) }

// recorder takes a moment after each operation.
type recorder struct {
	w           *world
	acked, sent int
	start       tiers.Offset
	moments     []moment
}

// take is called with the rows locked, or by the only goroutine there is.
func (r *recorder) take(after string) {
	r.moments = append(r.moments, moment{
		after: after, acked: r.acked, sent: r.sent, start: r.start, bucket: r.w.bucket.Clone(), rows: maps.Clone(r.w.rows.byID),
		remembered: r.w.rows.start,
		left: map[string]*mem.FS{
			"power loss, least": r.w.fs.SyncedCopy(),
			"power loss, mixed": r.w.fs.CrashCopy(uint64(len(r.moments))),
			"kill":              r.w.fs.KillCopy(),
		},
	})
}

// record lives a short life with rolls, copies, and segments that leave the disk.
func record(t *testing.T, ack Ack) *recorder {
	t.Helper()
	w := newWorld(t)
	w.config.Local.SegmentBytes, w.config.Ack, w.config.FlushEvery = 250, ack, time.Second
	d := w.drive()
	r := &recorder{w: w}
	w.fs.OnOp(func(op fsys.Op) { r.take(fmt.Sprintf("%s %s", op.Kind, op.Name)) })
	w.rows.fault = func(op string) (bool, error) { r.take("before row " + op); return false, nil }
	for step := range 6 {
		var batches [][]byte
		for range 1 + step%3 {
			batches = append(batches, many(fmt.Sprintf("value %d", r.sent), fmt.Sprintf("value %d", r.sent+1)))
			r.sent += 2
		}
		d.must(batches...)
		r.acked = r.sent
		if step%2 == 1 {
			d.runAll()
		}
		if step == 3 {
			d.dropLocal(d.View().RemoteEnd)
			d.step(func(s *state) {
				if err := s.local.RaiseLogStart(1); err != nil {
					t.Fatal(err)
				}
			})
			r.start = 1
		}
	}
	d.end()
	w.fs.OnOp(nil)
	w.rows.fault = nil
	w.stop()
	return r
}

// resume starts a process on what is left, and checks it.
func (m moment) resume(t *testing.T, w *world, left *mem.FS, lossy bool) {
	t.Helper()
	w.fs, w.files, w.bucket = left, left, m.bucket.Clone()
	w.rows.byID = m.rowsLeft()
	w.id.Epoch = 2
	w.start()
	d := w.drive()
	v := d.View()
	end := int(v.LogEnd)
	switch {
	case end > m.sent:
		t.Fatalf("log end %d, only %d were sent", end, m.sent)
	case !lossy && end < m.acked:
		t.Fatalf("log end %d, %d were acknowledged", end, m.acked)
	case v.LogStart > max(m.start, 1):
		t.Fatalf("log start %d", v.LogStart)
	}
	d.must(one(fmt.Sprintf("value %d", end)))
	got := readAll(t, d.Owner, ReadUncommitted)
	for o := int(v.LogStart); o <= end; o++ {
		if got[tiers.Offset(o)] != fmt.Sprintf("value %d", o) {
			t.Fatalf("offset %d: %q", o, got[tiers.Offset(o)])
		}
	}
	at, err := d.ListOffset(t.Context(), 0, ReadUncommitted, tiers.NoEpoch)
	if err != nil || at.Offset != v.LogStart {
		t.Fatalf("the first record by time: %+v, %v", at, err)
	}
	d.roll()
	d.runAll()
	if v := d.View(); v.RemoteEnd != v.LogEnd {
		t.Fatalf("remote end %d of %d", v.RemoteEnd, v.LogEnd)
	}
	if keys := w.bucket.Keys(""); !slices.Equal(keys, w.rows.keysOf()) {
		t.Fatalf("keys %v\nrows %v", keys, w.rows.list())
	}
	d.end()
	w.stop()
}

// TestCrashCopies ends the process at every file operation and every call of the
// registry in a short life. What was acknowledged is there after, dense and with
// the right records; the log takes more; the bucket holds finished segments and
// nothing else in the end. In the weaker ack modes a power loss may take the tail,
// but not below what is in the bucket, and never the middle.
func TestCrashCopies(t *testing.T) {
	for name, ack := range map[string]Ack{"fsync": AckFsync, "interval": AckInterval, "os": AckOS} {
		t.Run(name, func(t *testing.T) {
			r := record(t, ack)
			if len(r.moments) < 50 {
				t.Fatalf("only %d operations", len(r.moments))
			}
			for i, m := range r.moments {
				for how, left := range m.left {
					ok := t.Run(fmt.Sprintf("%d %s, %s", i, m.after, how), func(t *testing.T) {
						r.w.t = t
						m.resume(t, r.w, left, how != "kill" && ack != AckFsync)
					})
					if !ok {
						return
					}
				}
			}
		})
	}
}

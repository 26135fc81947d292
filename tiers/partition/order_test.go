package partition

// Retention, trims, copies and deletions in each order, and what look-ups see of
// it.

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/batch"
	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

// TestReport082NewestInTheBucket: the newest timestamp of a log lies in the bucket;
// of several records that carry it the first one counts. So it is after a restart
// on an empty disk too, and never below the log start.
func TestReport082NewestInTheBucket(t *testing.T) {
	w := newWorld(t)
	d := w.drive()
	plain := func(ts int64, vs ...string) []byte { return build(batch.Builder{ProducerID: -1}, ts, vs...) }
	d.must(plain(900, "0"), plain(700, "1"))
	d.roll()
	d.must(plain(100, "2"), plain(900, "3"))
	d.roll()
	d.must(plain(200, "4"))
	d.roll()
	d.runAll()
	check := func(want string) {
		t.Helper()
		if got := look(t, d.Owner, MaxTimestamp, ReadUncommitted); !strings.HasPrefix(got, want) {
			t.Errorf("newest %s, want %s", got, want)
		}
	}
	check("0@900/")
	d.dropLocal(5)
	check("0@900/")
	again := func() {
		d.end()
		w.restart(func() { w.lose(); w.id.LogStart = w.rows.start })
		d = w.drive()
	}
	again()
	check("0@900/")
	d.trim(1)
	check("3@900/")
	again()
	check("3@900/")
	d.trim(4)
	check("4@200/")
	again()
	d.runAll()
	check("4@200/")
	d.trim(5)
	check("-1@-1/")
	d.end()
}

// TestReport078TrimmedAndNotDeleted: records were trimmed, up to the middle of a
// batch, and no object can be deleted. Look-ups never show what is hidden, and
// find what is not.
func TestReport078TrimmedAndNotDeleted(t *testing.T) {
	w := newWorld(t)
	d := w.drive()
	times := map[tiers.Offset]int64{}
	for i := range int64(5) {
		for _, b := range []struct {
			at     int64
			values []string
		}{{1000 * i, []string{"a"}}, {1000*i + 11, []string{"b", "c"}}, {1000*i + 13, []string{"d"}}} {
			for j := range b.values {
				times[d.View().LogEnd+tiers.Offset(j)] = b.at + int64(j)
			}
			d.must(build(batch.Builder{ProducerID: -1}, b.at, b.values...))
		}
		d.roll()
	}
	d.runAll()
	d.dropLocal(16)
	w.bucket.Add(memory.Fault{Ops: memory.OpDelete, Sticky: true, Err: remote.ErrDenied})
	for start := tiers.Offset(1); start < 20; start++ {
		answer := d.ask(start)
		d.runAll()
		if a := <-answer; a.err != nil || a.start != start {
			t.Fatal(a)
		}
		for ts := int64(0); ts < 4100; ts += 7 {
			want := "-1@-1/-1"
			for o := start; o < 20; o++ {
				if times[o] >= ts {
					want = fmt.Sprintf("%d@%d/1", o, times[o])
					break
				}
			}
			if got := look(t, d.Owner, ts, ReadUncommitted); got != want {
				t.Fatalf("trimmed to %d, time %d: %s, want %s", start, ts, got, want)
			}
		}
		_, err := d.Read(t.Context(), read(start-1))
		wantKind(t, err, tiers.OffsetOutOfRange)
	}
	if len(w.bucket.Keys("")) != 10 {
		t.Fatal("objects were deleted")
	}
	d.end()
}

// TestReport091ReaderOnADroppedSegment: a reader is on a local segment; it leaves the
// disk. The reader goes on at its position, from the files that it holds and then
// from the bucket.
func TestReport091ReaderOnADroppedSegment(t *testing.T) {
	var clock time.Time
	w, d := inBoth(t, &clock, 3, func(r *Retention) { r.Local.Age = time.Hour })
	v, drop := d.pinned()
	d.later(&clock, 2*time.Hour)
	if got := d.View(); got.LocalLogStart != 6 || v.LocalLogStart != 0 {
		t.Fatalf("%+v, the reader has %+v", got.Watermarks, v.Watermarks)
	}
	gets := len(w.bucket.Calls(memory.OpRead, ""))
	held, err := d.readUnder(t.Context(), v, read(1))
	if err != nil || len(values(t, held.Records)) == 0 || held.Remote || len(w.bucket.Calls(memory.OpRead, "")) != gets {
		t.Fatalf("%v, from the bucket %t", err, held.Remote)
	}
	drop()
	left, err := w.fs.ReadDir("/data/orders-0/h1")
	if err != nil || slices.ContainsFunc(left, func(e fs.DirEntry) bool { return strings.HasSuffix(e.Name(), ".deleted") }) {
		t.Fatalf("files are left although nobody holds them: %v, %v", left, err)
	}
	if res := mustRead(t, d.Owner, read(1)); !res.Remote || len(values(t, res.Records)) == 0 {
		t.Fatalf("%+v", res)
	}
	if got := readAll(t, d.Owner, ReadUncommitted); len(got) != 6 {
		t.Fatalf("%d records", len(got))
	}
	d.end()
}

// TestRetainAndTrim: retention and a client move the log start at the same time, in
// either order. It ends at the higher one, and both are answered.
func TestRetainAndTrim(t *testing.T) {
	for _, to := range []tiers.Offset{3, 7} { // retention goes to 4
		for _, first := range []string{"retain", "trim"} {
			t.Run(fmt.Sprintf("%s first, to %d", first, to), func(t *testing.T) {
				var clock time.Time
				w, d := inBoth(t, &clock, 2, func(r *Retention) { r.Total.Age = time.Hour })
				clock = hour.Add(2 * time.Hour)
				d.stamped(clock, 1)
				d.stamped(clock, 1)
				d.runAll()
				retain := make(chan error, 1)
				var trim <-chan trimAnswer
				ask := func(s *state) { s.onRetainAsked(retain) }
				if first == "trim" {
					trim = d.ask(to)
					d.step(ask)
				} else {
					d.step(ask)
					trim = d.ask(to)
				}
				held := d.take("start.raise") // of the first one
				if slices.Contains(d.points(), "start.raise") {
					t.Fatal("two at a time")
				}
				d.step(held.run(t.Context(), d.tools()).on)
				d.runAll()
				if a := <-trim; a.err != nil || a.start < to {
					t.Fatal(a)
				}
				if err := <-retain; err != nil {
					t.Fatal(err)
				}
				if v := d.View(); v.LogStart != max(to, 4) || w.rows.start != v.LogStart {
					t.Fatalf("%+v, remembered %d", v.Watermarks, w.rows.start)
				}
				d.mustRetain()
				w.wantBucket(t, 4-int(max(to, 4))/2)
				d.end()
			})
		}
	}
}

// TestTrimToTheEnd: a trim of all there is closes no segment, so that a client that
// trims what it has read does not make one each time; a pass does, and the file
// goes. The log goes on where it was, also after a crash.
func TestTrimToTheEnd(t *testing.T) {
	var clock time.Time
	w := clocked(t, &clock, keep(func(*Retention) {}))
	d := w.drive()
	for range 5 {
		d.fill(2)
		if got := d.trim(tiers.NoOffset); got != d.View().LogEnd {
			t.Fatal(got)
		}
	}
	if n := len(d.s.local.Segments()); n != 1 || d.s.local.Segments()[0].Size == 0 {
		t.Fatalf("%d segments", n)
	}
	d.mustRetain()
	if seg := d.s.local.Segments()[0]; seg.Base != 10 || seg.Size != 0 {
		t.Fatalf("%+v", seg)
	}
	w.wantBucket(t, 0)
	for _, lost := range []bool{false, true} {
		left := w.fs.KillCopy()
		if lost {
			left = w.fs.SyncedCopy()
		}
		w.id.LogStart = w.rows.start
		w.crash(left)
		d = w.drive()
		if v := d.View(); v.LogStart != 10 || v.LogEnd != 10 {
			t.Fatalf("%+v", v.Watermarks)
		}
	}
	d.fill(1)
	if got := readAll(t, d.Owner, ReadUncommitted); len(got) != 1 || got[10] == "" {
		t.Fatal(got)
	}
	d.end()
}

// TestTrimOnADiskThatRefuses: the control plane remembers the start, the disk cannot
// write it down. The client is told, nothing is deleted, and the next try, or the
// next life, has it.
func TestTrimOnADiskThatRefuses(t *testing.T) {
	w := newWorld(t)
	f := w.useFaults()
	d := w.drive()
	d.fill(4)
	d.roll()
	d.fill(4)
	d.runAll()
	f.Add(fsys.Fault{Kinds: fsys.OpRename, Name: "log-start-offset-checkpoint", Err: errDisk})
	answer := d.ask(4)
	d.runAll()
	a := <-answer
	wantKind(t, a.err, tiers.StorageFailed)
	if v := d.View(); v.LogStart != 0 || d.on() != 0 || w.rows.start != 4 {
		t.Fatalf("%+v, remembered %d", v.Watermarks, w.rows.start)
	}
	w.wantBucket(t, 1)
	if got := d.trim(4); got != 4 {
		t.Fatal(got)
	}
	w.wantBucket(t, 0)
	d.end()
}

// TestSettingsTakeEffectAtOnce: limits that are changed hold with the next
// step, not minutes later.
func TestSettingsTakeEffectAtOnce(t *testing.T) {
	var clock time.Time
	w, d := inBoth(t, &clock, 3, func(*Retention) {})
	clock = hour.Add(2 * time.Hour)
	d.step(func(s *state) {
		c := s.config
		c.Retention.Total.Age = time.Hour
		if err := s.onConfigure(c); err != nil {
			t.Fatal(err)
		}
	})
	if wake := d.s.untilWake(); wake != 0 {
		t.Fatalf("wakes after %s", wake)
	}
	d.later(&clock, 0)
	if v := d.View(); v.LogStart != 6 {
		t.Fatalf("%+v", v.Watermarks)
	}
	w.wantBucket(t, 0)
	d.end()
}

// TestPassesAreSpread: the passes of many partitions do not come together, and
// nothing wakes a partition where nothing is due before its pass is.
func TestPassesAreSpread(t *testing.T) {
	w := newWorld(t)
	now := hour
	w.now = func() time.Time { return now }
	share := time.Duration(0)
	w.tweak = func(d *Deps) {
		d.RetainEvery = time.Minute
		d.Jitter = func(d time.Duration) time.Duration { share += d / 8; return share }
	}
	d := w.drive()
	var waits []time.Duration
	for range 3 {
		d.step((*state).onTick)
		wake := d.s.untilWake()
		waits, now = append(waits, wake), now.Add(wake)
	}
	if want := []time.Duration{7500 * time.Millisecond, 15 * time.Second, 22500 * time.Millisecond}; !slices.Equal(waits, want) {
		t.Fatalf("%v, want %v", waits, want)
	}
	d.end()
}

package partition

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

// inBoth is a log of n closed segments of two records each, all of them in both
// tiers, with a clock that stands still.
func inBoth(t *testing.T, clock *time.Time, n int, change func(*Retention)) (*world, *driven) {
	t.Helper()
	w := clocked(t, clock, keep(change))
	d := w.drive()
	for range n {
		d.stamped(hour, 1)
		d.runAll()
	}
	return w, d
}

// later moves the clock and lets everything happen that is due then.
func (d *driven) later(clock *time.Time, by time.Duration) {
	d.t.Helper()
	*clock = clock.Add(by)
	d.step((*state).onTick)
	d.runAll()
}

// TestR11Batches: many segments go in few steps, none of which asks the bucket for
// more than a store takes in one request; copies go on meanwhile.
func TestR11Batches(t *testing.T) {
	var clock time.Time
	w, d := inBoth(t, &clock, 450, func(*Retention) {})
	answer := d.ask(900)
	d.run("start.raise")
	<-answer
	steps := map[string]int{}
	for len(d.jobs) > 0 {
		point := d.jobs[0].point().Name
		steps[point]++
		if j, ok := d.jobs[0].(removeJob); ok && len(j.segs) > removeBatch {
			t.Fatalf("%d segments at once", len(j.segs))
		}
		d.run(point)
		d.fill(1)
	}
	if steps["remove.mark"] != 3 || steps["remove.drop"] != 3 || steps["remove.row"] != 3 {
		t.Fatalf("steps %v", steps)
	}
	if len(w.rows.byID) != 0 {
		t.Fatalf("rows %v", w.rows.list())
	}
	w.wantBucket(t, 0)
	d.end()
}

// TestReport127StubbornKey: a key that cannot be deleted holds up no other, however
// many there are, and is tried until it can, alone.
func TestReport127StubbornKey(t *testing.T) {
	var clock time.Time
	w, d := inBoth(t, &clock, 50, func(*Retention) {})
	var stubborn []string
	for _, i := range []int{4, 5, 40, 99} { // of three segments
		stubborn = append(stubborn, w.bucket.Keys("")[i])
	}
	for _, key := range stubborn {
		w.bucket.Add(memory.Fault{Ops: memory.OpDelete, Key: key, Sticky: true, Err: remote.ErrDenied})
	}
	answer := d.ask(100)
	d.runAll()
	if a := <-answer; a.err != nil {
		t.Fatal("a trim waits for objects:", a.err)
	}
	for range 4 {
		d.later(&clock, 3*time.Second)
	}
	if n := len(w.rows.byID); n != 3 {
		t.Fatalf("%d segments are left, three cannot go", n)
	}
	calls := len(w.bucket.Calls(memory.OpDelete, ""))
	d.later(&clock, time.Hour)
	if n := len(w.bucket.Calls(memory.OpDelete, "")) - calls; n == 0 || n > 6 {
		t.Fatalf("%d deletes of three segments", n)
	}
	if n := strings.Count(w.noise.String(), "cannot remove"); n == 0 || n > 4 {
		t.Fatalf("told %d times:\n%s", n, w.noise)
	}
	w.bucket.Clear()
	d.later(&clock, time.Hour)
	w.wantBucket(t, 0)
	if len(w.rows.byID) != 0 || len(d.s.remove.list) != 0 {
		t.Fatalf("rows %v", w.rows.list())
	}
	d.end()
}

// TestR11BucketDown: a bucket that is away gets few requests, however much waits.
func TestR11BucketDown(t *testing.T) {
	var clock time.Time
	w, d := inBoth(t, &clock, 40, func(*Retention) {})
	d.trim(1)
	w.bucket.Add(memory.Fault{Ops: memory.OpDelete, Sticky: true, Err: remote.ErrUnavailable})
	d.ask(80)
	d.runAll()
	calls := len(w.bucket.Calls(memory.OpDelete, ""))
	for range 60 {
		d.later(&clock, time.Second)
	}
	if n := len(w.bucket.Calls(memory.OpDelete, "")) - calls; n < 3 || n > 2*6*giveUpAfter {
		t.Fatalf("%d requests in a minute", n)
	}
	w.bucket.Clear()
	for range 5 {
		d.later(&clock, time.Minute)
	}
	w.wantBucket(t, 0)
	d.end()
}

// TestR11Fenced: a node that leads no more deletes nothing and stops asking.
func TestR11Fenced(t *testing.T) {
	var clock time.Time
	w, d := inBoth(t, &clock, 4, func(*Retention) {})
	answer := d.ask(4)
	d.run("start.raise")
	<-answer
	w.rows.epoch++
	retain := make(chan error, 1)
	d.step(func(s *state) { s.onRetainAsked(retain) })
	d.run("remove.mark")
	wantKind(t, <-retain, tiers.NotLeader)
	d.later(&clock, time.Hour)
	if len(d.jobs) != 0 || len(w.bucket.Keys("")) != 8 || len(w.rows.byID) != 4 {
		t.Fatalf("jobs %v, rows %v", d.points(), w.rows.list())
	}
	d.end()
}

// TestR11ClaimIsAskedRightBefore: the claim may be lost between any two batches.
func TestR11ClaimIsAskedRightBefore(t *testing.T) {
	var clock time.Time
	lost := errors.New("the claim is somebody else's")
	var claim error
	w := clocked(t, &clock, keep(func(*Retention) {}))
	w.tweak = func(d *Deps) { d.MayDelete = func(context.Context) error { return claim } }
	d := w.drive()
	for range 2 {
		d.stamped(hour, 1)
	}
	d.runAll()
	answer := d.ask(4)
	d.run("start.raise")
	<-answer
	d.run("remove.mark")
	claim = lost
	d.run("remove.drop")
	d.later(&clock, time.Minute)
	if len(w.bucket.Keys("")) != 4 {
		t.Fatal("objects were deleted without the claim")
	}
	claim = nil
	d.later(&clock, time.Minute)
	w.wantBucket(t, 0)
	d.end()
}

// TestReport047AfterAReload: the answer to DeleteStarted got lost. The rows tell
// that it happened; those who read under the View of before still have their time.
func TestReport047AfterAReload(t *testing.T) {
	var clock time.Time
	w, d := inBoth(t, &clock, 2, func(r *Retention) { r.Delay = time.Minute })
	answer := d.ask(2)
	d.run("start.raise")
	<-answer
	w.rows.failNext("delete-started", 1, true, errors.New("answer lost"))
	d.run("remove.mark")
	d.step(func(s *state) { s.indexOld = true })
	d.run("index.reload")
	d.later(&clock, 10*time.Second) // the pause after the failure is over
	if len(w.bucket.Keys("")) != 4 {
		t.Fatal("objects went under readers")
	}
	d.later(&clock, time.Minute)
	d.later(&clock, time.Minute)
	w.wantBucket(t, 1)
	d.end()
}

// TestReport047SlowRead: a reader whose objects go while it reads goes on, as often
// as that happens, and is told what became of its offset.
func TestReport047SlowRead(t *testing.T) {
	for name, call := range map[string]func(context.Context, *driven) (any, error){
		"read": func(ctx context.Context, d *driven) (any, error) {
			r, err := d.Read(ctx, read(0))
			return len(r.Records), err
		},
		"time": func(ctx context.Context, d *driven) (any, error) {
			at, err := d.ListOffset(ctx, hour.UnixMilli(), ReadUncommitted, tiers.NoEpoch)
			return at.Offset, err
		},
		"newest": func(ctx context.Context, d *driven) (any, error) {
			at, err := d.ListOffset(ctx, MaxTimestamp, ReadUncommitted, tiers.NoEpoch)
			return at.Offset, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			var clock time.Time
			w, d := inBoth(t, &clock, 3, func(*Retention) {})
			d.dropLocal(6)
			hold, reached := make(chan struct{}), make(chan memory.Call, 9)
			w.bucket.Add(memory.Fault{Ops: memory.OpRead, Hold: hold, Reached: reached})
			type answer struct {
				got any
				err error
			}
			answers := make(chan answer)
			go func() {
				got, err := call(t.Context(), d)
				answers <- answer{got, err}
			}()
			<-reached
			d.trim(2)
			w.wantBucket(t, 2)
			close(hold)
			a := <-answers
			if name == "read" {
				wantKind(t, a.err, tiers.OffsetOutOfRange)
			} else if a.err != nil || a.got.(tiers.Offset) < 2 {
				t.Fatalf("%v, %v", a.got, a.err)
			}
			d.end()
		})
	}
}

// TestDuplicatesGo: of two complete copies of a segment, which a start that took
// over may find, one stays; nothing that is read is touched.
func TestDuplicatesGo(t *testing.T) {
	var clock time.Time
	w, d := inBoth(t, &clock, 3, func(*Retention) {})
	d.dropLocal(6)
	d.end()
	w.stop()
	var twin tiers.RemoteSegment
	for _, row := range w.rows.byID {
		if row.Base == 2 {
			twin = row
		}
	}
	first := twin
	twin.ID = w.newID()
	for _, key := range []func(tiers.RemoteSegment) string{remote.SegmentKey, remote.MetaKey} {
		b, ok := w.bucket.Bytes(key(first))
		if !ok {
			t.Fatal("no object")
		}
		if _, err := w.bucket.Put(t.Context(), key(twin), remote.BytesBody(b), remote.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	w.rows.byID[twin.ID] = twin
	w.id.Epoch++
	w.start()
	d = w.drive()
	d.runAll()
	w.wantBucket(t, 3)
	if _, ok := w.rows.byID[first.ID]; ok {
		t.Fatal("the older one stays, the later one is read")
	}
	if v := d.View(); v.RemoteEnd != 6 || v.LogStart != 0 {
		t.Fatalf("%+v", v.Watermarks)
	}
	d.end()
}

// TestReport108DiskIsHeldAgainstCopies: what is in the bucket goes after a switch-off
// only if the disk has the same; a segment that has not keeps its copy, which is
// told, and goes once the disk has it again.
func TestReport108DiskIsHeldAgainstCopies(t *testing.T) {
	var clock time.Time
	w, d := inBoth(t, &clock, 3, func(r *Retention) { r.ForgetRemote = true })
	const name = "/data/orders-0/h1/00000000000000000002.log"
	flip := func() { // the last byte, so the batch's checksum fails
		t.Helper()
		f, err := w.fs.OpenFile(name, fsys.ReadWrite, 0)
		if err != nil {
			t.Fatal(err)
		}
		info, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		var b [1]byte
		if _, err = f.ReadAt(b[:], info.Size()-1); err == nil {
			b[0] ^= 1
			_, err = f.WriteAt(b[:], info.Size()-1)
		}
		if err = errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	flip()
	d.step(func(s *state) {
		c := s.config
		c.Remote = false
		if err := s.onConfigure(c); err != nil {
			t.Fatal(err)
		}
	})
	d.later(&clock, time.Second)
	if got := fmt.Sprint(w.rows.list()); got != "[[2,4) copy-finished]" {
		t.Fatal(got)
	}
	w.wantBucket(t, 1)
	if n := strings.Count(w.noise.String(), "its copy stays"); n != 1 {
		t.Fatalf("told %d times\n%s", n, w.noise)
	}
	if got := readAll(t, d.Owner, ReadUncommitted); len(got) != 6 {
		t.Fatalf("%d records", len(got))
	}
	flip()
	d.later(&clock, recheckAfter)
	w.wantBucket(t, 0)
	if v := d.View(); v.LogStart != 0 || v.LogEnd != 6 {
		t.Fatalf("%+v", v.Watermarks)
	}
	d.end()
}

// TestReport108SwitchedOnAgain: a switch-off that is taken back stops what has not
// gone yet; what has gone is copied anew.
func TestReport108SwitchedOnAgain(t *testing.T) {
	var clock time.Time
	w, d := inBoth(t, &clock, 3, func(r *Retention) { r.ForgetRemote, r.Delay = true, time.Minute })
	set := func(on bool) {
		d.step(func(s *state) {
			c := s.config
			c.Remote = on
			if err := s.onConfigure(c); err != nil {
				t.Fatal(err)
			}
		})
	}
	set(false)
	d.step((*state).onTick)
	d.run("forget.check")
	for _, p := range []string{"remove.mark", "forget.check"} {
		d.run(p)
	}
	set(true)
	d.runAll()
	for range 3 {
		d.later(&clock, time.Minute)
	}
	if v := d.View(); v.RemoteEnd != 6 || v.LogStart != 0 {
		t.Fatalf("%+v, rows %v", v.Watermarks, w.rows.list())
	}
	w.wantBucket(t, 3)
	if got := readAll(t, d.Owner, ReadUncommitted); len(got) != 6 {
		t.Fatalf("%d records", len(got))
	}
	d.end()
}

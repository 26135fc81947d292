package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/batch"
	"github.com/strandline-io/strandline/tiers/fsys"
)

// held is a Scheduler that runs a job when the test says so.
type held struct {
	mu   sync.Mutex
	jobs []heldJob
	came chan string
}

type heldJob struct {
	p Point
	f func()
}

func newHeld() *held { return &held{came: make(chan string, 100)} }

func (h *held) Go(p Point, f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.jobs = append(h.jobs, heldJob{p, f})
	h.came <- p.Name
}

// reached waits for a job at the point and hands it out.
func (h *held) reached(t *testing.T, name string) func() {
	t.Helper()
	if got := <-h.came; got != name {
		t.Fatalf("reached %s, want %s", got, name)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	j := h.jobs[0]
	h.jobs = h.jobs[1:]
	return j.f
}

func (o *Owner) mustAppend(t *testing.T, values ...string) {
	t.Helper()
	for _, v := range values {
		if _, err := o.Append(t.Context(), AppendRequest{Batch: one(v)}); err != nil {
			t.Fatal(err)
		}
	}
}

func mustRoll(t *testing.T, o *Owner) {
	t.Helper()
	if err := o.Roll(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestFence: from the return of Fence on nothing is acknowledged, answered or
// copied; a copy that was held changes nothing.
func TestFence(t *testing.T) {
	w := newWorld(t)
	h := newHeld()
	o := w.openOn(h)
	o.mustAppend(t, "a", "b")
	mustRoll(t, o)
	h.reached(t, "copy.planned")()
	upload := h.reached(t, "copy.started")
	woken := make(chan struct{}, 1)
	defer o.Subscribe(woken)()
	waiting := make(chan error)
	go func() { waiting <- o.CopyAll(t.Context()) }()
	synced := func() { // a step behind CopyAll's
		if _, err := o.Segments(t.Context()); err != nil {
			t.Error(err)
		}
	}
	synced()

	reason := errors.New("the bucket belongs to another cluster now")
	o.Fence(reason)
	o.Fence(errors.New("a second reason does not count"))
	_, appendErr := o.Append(t.Context(), AppendRequest{Batch: one("c")})
	_, readErr := o.Read(t.Context(), read(0))
	_, listErr := o.ListOffset(t.Context(), Latest, ReadUncommitted, tiers.NoEpoch)
	_, endErr := o.EpochEnd(tiers.NoEpoch, 1)
	_, segErr := o.Segments(t.Context())
	for i, err := range []error{appendErr, readErr, listErr, endErr, segErr, o.Roll(t.Context()), o.CopyAll(t.Context()), o.Configure(t.Context(), w.config)} {
		if tiers.KindOf(err) != tiers.NotLeader || !errors.Is(err, reason) {
			t.Errorf("call %d: %v", i, err)
		}
	}
	<-woken
	if err := <-waiting; tiers.KindOf(err) != tiers.NotLeader {
		t.Errorf("a waiting CopyAll: %v", err)
	}
	if v := o.View(); tiers.KindOf(v.Err) != tiers.NotLeader || v.RemoteEnd != 0 {
		t.Errorf("view %+v", v)
	}
	upload()
	w.close(o)
	if n := len(h.came); n != 0 {
		t.Errorf("%d more jobs after the fence", n)
	}
	if keys := w.rows.keysOf(); len(keys) != 0 {
		t.Errorf("finished after the fence: %v", keys)
	}
}

// TestFenceBeforeTheAck: an append that was on its way to the disk when the fence
// came is not acknowledged, and nothing is written after it.
func TestFenceBeforeTheAck(t *testing.T) {
	w := newWorld(t)
	f := w.useFaults()
	o := w.open()
	hold, reached := make(chan struct{}), make(chan fsys.Op)
	f.Add(fsys.Fault{Kinds: fsys.OpAnySync, Name: ".log", Hold: hold, Reached: reached})
	got := make(chan error)
	go func() {
		_, err := o.Append(t.Context(), AppendRequest{Batch: one("a")})
		got <- err
	}()
	<-reached
	o.Fence(errors.New("replaced"))
	close(hold)
	wantKind(t, <-got, tiers.NotLeader)
	w.close(o)
	d := w.drive()
	end := d.View().LogEnd
	d.step(func(s *state) { s.onFence(tiers.E(tiers.NotLeader, "own", place, "replaced")) })
	wantKind(t, d.append(one("b"))[0].err, tiers.NotLeader)
	if d.s.local.LogEnd() != end {
		t.Fatal("written after the fence")
	}
	d.end()
}

// TestClose: workers end first, then the log is closed cleanly; callers are told,
// waiting fetches woken.
func TestClose(t *testing.T) {
	w := newWorld(t)
	h := newHeld()
	o := w.openOn(h)
	o.mustAppend(t, "a")
	mustRoll(t, o)
	first := h.reached(t, "copy.planned")
	woken := make(chan struct{}, 1)
	defer o.Subscribe(woken)()
	closed := make(chan error)
	go func() { closed <- o.Close(context.Background()) }()
	<-o.closing
	_, err := o.Append(t.Context(), AppendRequest{Batch: one("b")})
	wantKind(t, err, tiers.Closed)
	wantKind(t, o.Roll(t.Context()), tiers.Closed)
	select {
	case <-closed:
		t.Fatal("closed while a worker has a job")
	default:
	}
	first()
	for _, at := range []string{"copy.started", "copy.uploaded", "copy.finished"} {
		h.reached(t, at)()
	}
	if err = <-closed; err != nil {
		t.Fatal(err)
	}
	if err = o.Close(t.Context()); err != nil {
		t.Fatal("a second Close:", err)
	}
	<-woken
	if v := o.View(); tiers.KindOf(v.Err) != tiers.Closed {
		t.Fatalf("view %+v", v)
	}
	_, err = o.Read(t.Context(), read(0))
	wantKind(t, err, tiers.Closed)
	if got := fmt.Sprint(w.rows.list()); got != "[[0,1) copy-finished]" {
		t.Fatal(got)
	}
	w.stop()
	w.id.Epoch++
	w.start()
	d := w.drive()
	if d.View().RemoteEnd != 1 {
		t.Fatal("the copy that ended during Close is not there")
	}
	d.end()
}

// TestCloseGivesUp: Close does not wait for workers beyond its context. A job that
// had not begun never does, and the next life cleans up.
func TestCloseGivesUp(t *testing.T) {
	w := newWorld(t)
	h := newHeld()
	o := w.openOn(h)
	o.mustAppend(t, "a")
	mustRoll(t, o)
	h.reached(t, "copy.planned")()
	upload := h.reached(t, "copy.started")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := o.Close(ctx); err != nil {
		t.Fatal(err)
	}
	upload()
	if keys := w.bucket.Keys(""); len(keys) != 0 {
		t.Fatalf("a job ran after Close: %v", keys)
	}
	w.stop()
	w.id.Epoch++
	w.start()
	d := w.drive()
	d.runAll()
	if got := fmt.Sprint(w.rows.list()); got != "[[0,1) copy-finished]" {
		t.Fatal(got)
	}
	d.end()
}

// TestSubscribe: a waiting fetch is woken by records that it may see, and by
// nothing once it left.
func TestSubscribe(t *testing.T) {
	w := newWorld(t)
	o := w.open()
	c := make(chan struct{}, 1)
	cancel := o.Subscribe(c)
	o.mustAppend(t, "a", "b", "c") // a full channel is not waited for
	<-c
	select {
	case <-c:
		t.Fatal("woken twice by what one value tells")
	default:
	}
	mustRoll(t, o)
	select {
	case <-c:
		t.Fatal("woken by a roll")
	default:
	}
	cancel()
	cancel()
	o.mustAppend(t, "d")
	select {
	case <-c:
		t.Fatal("woken after it left")
	default:
	}
	w.close(o)
}

// TestSegmentAge: the active segment of a quiet, tiered topic is closed by the
// clock, and copied.
func TestSegmentAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.fs.SetClock(time.Now)
		w.config.Local.SegmentAge = time.Hour
		o := w.open()
		time.Sleep(10 * time.Hour)
		o.mustAppend(t, "a")
		time.Sleep(time.Hour - 1)
		synctest.Wait()
		if v := o.View(); v.RemoteEnd != 0 {
			t.Fatal("too early")
		}
		time.Sleep(2 * time.Nanosecond)
		synctest.Wait()
		if v := o.View(); v.RemoteEnd != 1 {
			t.Fatalf("%+v", v.Watermarks)
		}
		time.Sleep(100 * time.Hour)
		synctest.Wait()
		segs, err := o.Segments(t.Context())
		if err != nil || len(segs) != 2 {
			t.Fatalf("%v, %v: an empty segment was closed", segs, err)
		}
		w.close(o)
		w.cache.Close()
	})
}

// TestBackOff: a copy that fails is tried again by the clock alone.
func TestBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		o := w.open()
		w.rows.failNext("copy-started", 3, false, errors.New("the database is locked"))
		o.mustAppend(t, "a")
		mustRoll(t, o)
		began := time.Now()
		for o.View().RemoteEnd == 0 && time.Since(began) < time.Minute {
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
		}
		if took := time.Since(began); took < 7*time.Second || took > 8*time.Second {
			t.Fatalf("copied after %s, want 1 s + 2 s + 4 s", took)
		}
		w.close(o)
		w.cache.Close()
	})
}

// TestCopyAll: it returns when all that was closed at the call is covered.
func TestCopyAll(t *testing.T) {
	w := newWorld(t)
	o := w.open()
	if err := o.CopyAll(t.Context()); err != nil {
		t.Fatal("nothing to copy:", err)
	}
	for range 5 {
		o.mustAppend(t, "a", "b")
		mustRoll(t, o)
	}
	o.mustAppend(t, "tail")
	if err := o.CopyAll(t.Context()); err != nil || o.View().RemoteEnd != 10 {
		t.Fatalf("remote end %d, %v", o.View().RemoteEnd, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantKind(t, o.CopyAll(ctx), tiers.TimedOut)
	w.close(o)
	wantKind(t, o.CopyAll(t.Context()), tiers.Closed)
}

// TestCopyAllFails: it returns the first failure, and the next call does not wait
// for the back-off.
func TestCopyAllFails(t *testing.T) {
	w := newWorld(t)
	clock := time.Unix(1000, 0)
	w.now = func() time.Time { return clock }
	d := w.drive()
	d.fill(1)
	d.roll()
	answer := make(chan error, 1)
	d.step(func(s *state) { s.onCopyAll(answer) })
	reason := errors.New("no space left")
	w.rows.failNext("copy-finished", 1, false, reason)
	d.runAll()
	if err := <-answer; !errors.Is(err, reason) {
		t.Fatal(err)
	}
	if len(d.jobs) != 0 {
		t.Fatalf("tried again at once: %v", d.points())
	}
	d.step(func(s *state) { s.onCopyAll(answer) })
	if len(d.jobs) != 1 {
		t.Fatal("the next call waits for the back-off")
	}
	d.runAll()
	if err := <-answer; err != nil || d.View().RemoteEnd != 1 {
		t.Fatalf("remote end %d, %v", d.View().RemoteEnd, err)
	}
	d.end()
}

// TestCopyAllUndecided: an open transaction keeps its segment out of the bucket
// (R1), and CopyAll says so instead of waiting for ever.
func TestCopyAllUndecided(t *testing.T) {
	w := newWorld(t)
	d := w.drive()
	d.must(build(batch.Builder{ProducerID: 4, Transactional: true}, 1000, "open"))
	d.roll()
	answer := make(chan error, 1)
	d.step(func(s *state) { s.onCopyAll(answer) })
	wantKind(t, <-answer, tiers.OffsetNotAvailable)
	if len(d.jobs) != 0 {
		t.Fatal(d.points())
	}
	d.mark(4, true)
	if got := d.points(); !slices.Equal(got, []string{"copy.planned@0"}) {
		t.Fatalf("the commit lets it go, but %v", got)
	}
	d.end()
}

// TestSegments lists both tiers.
func TestSegments(t *testing.T) {
	w := newWorld(t)
	d := w.drive()
	for range 3 {
		d.fill(2)
		d.roll()
	}
	d.fill(1)
	for range 4 {
		d.run(d.jobs[0].point().Name)
	}
	for range 4 {
		d.run(d.jobs[0].point().Name)
	}
	d.dropLocal(2)
	var got []string
	for _, s := range d.s.onSegments() {
		got = append(got, fmt.Sprintf("[%d,%d) %s %s %s", s.Base, s.Next, s.Tier, s.State, s.Epochs))
		if (s.Tier == "local" && s.State != "copying") != (s.Key == "") || s.Bytes == 0 {
			t.Errorf("%+v", s)
		}
	}
	want := []string{
		"[0,2) remote copy-finished {1:0}", "[2,4) both copy-finished {1:2}", "[4,6) local copying {1:4}", "[6,7) local active {1:6}",
	}
	if !slices.Equal(got, want) {
		t.Fatalf("%q\nwant %q", got, want)
	}
	d.end()
}

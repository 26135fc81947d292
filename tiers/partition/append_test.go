package partition

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/batch"
	"github.com/strandline-io/strandline/tiers/fsys"
)

// useFaults puts a fault schedule between the owner and its files.
func (w *world) useFaults() *fsys.Faulty {
	w.t.Helper()
	w.stop()
	f := fsys.NewFaulty(w.fs)
	w.files = f
	w.start()
	return f
}

var errDisk = errors.New("input/output error")

// TestGroupCommit: what has gathered is written with one write and one sync, and
// the offsets are dense in the order of arrival.
func TestGroupCommit(t *testing.T) {
	w := newWorld(t)
	f := w.useFaults()
	d := w.drive()
	before := len(f.Ops(fsys.OpWrite | fsys.OpAnySync))
	calls := d.append(many("a", "b"), one("c"), many("d", "e", "f"))
	for i, want := range []tiers.Offset{0, 2, 3} {
		if c := calls[i]; c.err != nil || c.result.Base != want || c.result.AppendTime != -1 {
			t.Fatalf("batch %d: %+v, error %v", i, c.result, c.err)
		}
	}
	logWrites, syncs := 0, 0
	for _, op := range f.Ops(fsys.OpWrite | fsys.OpAnySync)[before:] {
		if strings.HasSuffix(op.Name, ".log") && op.Kind == fsys.OpWrite {
			logWrites++
		}
		if strings.HasSuffix(op.Name, ".log") && op.Kind&fsys.OpAnySync != 0 {
			syncs++
		}
	}
	if logWrites != 1 || syncs != 1 {
		t.Fatalf("%d writes and %d syncs of the log for one group", logWrites, syncs)
	}
	if v := d.View(); v.HighWatermark != 6 || v.LogEnd != 6 {
		t.Fatalf("%+v", v.Watermarks)
	}
	d.end()
}

// TestRollWithinGroup: a batch that does not fit begins a new segment, also in the
// middle of a group.
func TestRollWithinGroup(t *testing.T) {
	w := newWorld(t)
	size := int64(len(one("a")))
	w.config.Local.SegmentBytes = 2 * size
	d := w.drive()
	for _, c := range d.append(one("a"), one("b"), one("c"), one("d"), one("e")) {
		if c.err != nil {
			t.Fatal(c.err)
		}
	}
	var got []string
	for _, s := range d.s.local.Segments() {
		got = append(got, fmt.Sprintf("[%d,%d)", s.Base, s.Next))
	}
	if fmt.Sprint(got) != "[[0,2) [2,4) [4,5)]" {
		t.Fatal(got)
	}
	d.end()
}

func idempotent(pid int64, epoch int16, seq int32, vs ...string) []byte {
	return build(batch.Builder{ProducerID: pid, ProducerEpoch: epoch, BaseSequence: seq}, 1000, vs...)
}

// TestProducerChecksInGroup: the checks of idempotent producers see the batches
// of the same group.
func TestProducerChecksInGroup(t *testing.T) {
	w := newWorld(t)
	d := w.drive()
	calls := d.append(
		idempotent(5, 0, 0, "a", "b"),
		idempotent(5, 0, 2, "c"),
		idempotent(5, 0, 2, "c"), // sent twice
		idempotent(5, 0, 9, "x"), // a batch is missing
		idempotent(5, 0, 3, "d"),
	)
	for i, want := range []tiers.Offset{0, 2, 2, -1, 3} {
		c := calls[i]
		if want < 0 {
			wantKind(t, c.err, tiers.OutOfOrderSequence)
			continue
		}
		if c.err != nil || c.result.Base != want {
			t.Fatalf("batch %d: base %d, error %v, want %d", i, c.result.Base, c.err, want)
		}
	}
	again := d.append(idempotent(5, 0, 0, "a", "b"), idempotent(5, 1, 0, "n"), idempotent(5, 0, 4, "old"))
	if again[0].err != nil || again[0].result.Base != 0 {
		t.Fatalf("a duplicate of an earlier group: %+v, %v", again[0].result, again[0].err)
	}
	if again[1].err != nil || again[1].result.Base != 4 {
		t.Fatalf("a new epoch: %+v, %v", again[1].result, again[1].err)
	}
	wantKind(t, again[2].err, tiers.InvalidProducerEpoch)
	d.end()
}

// TestReport039: once an fsync failed nothing is acknowledged until the partition
// was opened again, and what was not acknowledged is not visible.
func TestReport039FailedSyncEndsThePartition(t *testing.T) {
	w := newWorld(t)
	f := w.useFaults()
	d := w.drive()
	d.fill(2)
	f.Add(fsys.Fault{Kinds: fsys.OpAnySync, Name: ".log", Err: errDisk})
	calls := d.append(one("lost"), one("lost too"))
	for _, c := range calls {
		wantKind(t, c.err, tiers.StorageFailed)
	}
	v := d.View()
	if v.Err == nil || tiers.KindOf(v.Err) != tiers.StorageFailed || v.HighWatermark != 2 {
		t.Fatalf("view %+v", v)
	}
	wantKind(t, d.append(one("later"))[0].err, tiers.StorageFailed)
	_, err := d.Read(t.Context(), read(0))
	wantKind(t, err, tiers.StorageFailed)
	_, err = d.ListOffset(t.Context(), Earliest, ReadUncommitted, tiers.NoEpoch)
	wantKind(t, err, tiers.StorageFailed)
	_, err = d.EpochEnd(tiers.NoEpoch, 1)
	wantKind(t, err, tiers.StorageFailed)
	d.step(func(s *state) { wantKind(t, s.onRoll(), tiers.StorageFailed) })
	d.step(func(s *state) { wantKind(t, s.onConfigure(w.config), tiers.StorageFailed) })
	d.s.onEnd(false)
	d.publish(d.s)
	if err := d.s.onClose(); err != nil {
		t.Fatal("the failure was told before, closing tells it again:", err)
	}

	w.crash(w.fs.SyncedCopy())
	d = w.drive()
	if got := readAll(t, d.Owner, ReadUncommitted); len(got) != 2 {
		t.Fatalf("records %v after the crash", got)
	}
	d.fill(1)
	d.end()
}

// TestP2Unsynced: what was written and is not on disk yet is not shown.
func TestP2Unsynced(t *testing.T) {
	w := newWorld(t)
	d := w.drive()
	d.fill(1)
	g := gathered{start: 1, next: 1}
	c := &appendCall{data: one("x"), done: make(chan struct{})}
	h, err := batch.Parse(c.data)
	if err != nil {
		t.Fatal(err)
	}
	c.header = h
	d.step(func(s *state) {
		s.onGather(&g, c)
		s.onWrite(&g)
	})
	if v := d.View(); v.LogEnd != 2 || v.HighWatermark != 1 {
		t.Fatalf("%+v", v.Watermarks)
	}
	d.step(func(s *state) { s.onCommit(&g) })
	if v := d.View(); v.HighWatermark != 2 || c.err != nil {
		t.Fatalf("%+v, %v", v.Watermarks, c.err)
	}
	d.end()
}

// TestFailedGroup: a duplicate of a batch that could not be written is not a
// success.
func TestFailedGroup(t *testing.T) {
	w := newWorld(t)
	f := w.useFaults()
	d := w.drive()
	f.Add(fsys.Fault{Kinds: fsys.OpWrite, Name: ".log", Err: errDisk})
	for _, c := range d.append(idempotent(5, 0, 0, "a"), idempotent(5, 0, 0, "a")) {
		wantKind(t, c.err, tiers.StorageFailed)
	}
	again := d.append(idempotent(5, 0, 0, "a"), idempotent(5, 0, 0, "a"))
	for _, c := range again {
		if c.err != nil || c.result.Base != 0 {
			t.Fatalf("%+v, %v", c.result, c.err)
		}
	}
	d.end()
}

// TestReport039DiskFull: a write that is refused is told to those that it was for;
// the partition lives on.
func TestReport039DiskFull(t *testing.T) {
	w := newWorld(t)
	f := w.useFaults()
	d := w.drive()
	d.fill(1)
	f.Add(fsys.Fault{Kinds: fsys.OpWrite, Name: ".log", Err: errDisk, Short: 7})
	for _, c := range d.append(one("x"), one("y")) {
		wantKind(t, c.err, tiers.StorageFailed)
	}
	if v := d.View(); v.Err != nil || v.LogEnd != 1 {
		t.Fatalf("view %+v", v)
	}
	d.fill(2)
	if got := readAll(t, d.Owner, ReadUncommitted); len(got) != 3 {
		t.Fatalf("records %v", got)
	}
	d.end()
}

// TestAppendRefusals: what is wrong with a batch by itself is told by the door.
func TestAppendRefusals(t *testing.T) {
	w := newWorld(t)
	now := time.UnixMilli(10_000_000)
	w.now = func() time.Time { return now }
	w.config.MaxMessageBytes = 500
	w.config.TimestampBefore, w.config.TimestampAfter = time.Hour, time.Minute
	o := w.open()
	plain := func(ts int64, vs ...string) []byte { return build(batch.Builder{ProducerID: -1}, ts, vs...) }
	const ms = 10_000_000
	corrupt := plain(ms, "a")
	corrupt[len(corrupt)-1] ^= 1
	for _, c := range []struct {
		name  string
		batch []byte
		kind  tiers.Kind
	}{
		{"nothing", nil, tiers.CorruptMessage},
		{"corrupt", corrupt, tiers.CorruptMessage},
		{"too large", plain(ms, strings.Repeat("x", 600)), tiers.MessageTooLarge},
		{"too old", plain(ms-3_600_001, "a"), tiers.InvalidTimestamp},
		{"too new", plain(ms+60_001, "a"), tiers.InvalidTimestamp},
		{"zstd", build(batch.Builder{ProducerID: -1, Codec: batch.Zstd}, ms, "a"), tiers.UnsupportedCompression},
		{"transactional", build(batch.Builder{ProducerID: 4, Transactional: true}, ms, "a"), tiers.InvalidRequest},
		{"control", build(batch.Builder{ProducerID: 4, Control: true}, ms, "a"), tiers.InvalidRecord},
	} {
		_, err := o.Append(t.Context(), AppendRequest{Batch: c.batch})
		if err == nil || tiers.KindOf(err) != c.kind {
			t.Errorf("%s: error %v, want kind %v", c.name, err, c.kind)
		}
	}
	for _, b := range [][]byte{plain(ms-3_599_999, "a"), plain(ms+59_000, "b"), plain(-1, "no time")} {
		if _, err := o.Append(t.Context(), AppendRequest{Batch: b}); err != nil {
			t.Error(err)
		}
	}
	if _, err := o.Append(t.Context(), AppendRequest{Batch: build(batch.Builder{ProducerID: -1, Codec: batch.Zstd}, ms, "z"), AllowZstd: true}); err != nil {
		t.Error(err)
	}
	w.close(o)
	_, err := o.Append(t.Context(), AppendRequest{Batch: plain(ms, "a")})
	wantKind(t, err, tiers.Closed)
}

// TestLogAppendTime: the broker's clock replaces the producer's, whose bounds do
// not count then.
func TestLogAppendTime(t *testing.T) {
	w := newWorld(t)
	w.now = func() time.Time { return time.UnixMilli(77_000) }
	w.config.LogAppendTime, w.config.TimestampBefore = true, time.Second
	o := w.open()
	res, err := o.Append(t.Context(), AppendRequest{Batch: many("a", "b")})
	if err != nil || res.AppendTime != 77_000 {
		t.Fatalf("%+v, %v", res, err)
	}
	h, err := batch.Parse(mustRead(t, o, read(0)).Records)
	if err != nil || h.MaxTimestamp != 77_000 || !h.LogAppendTime() {
		t.Fatalf("%+v, %v", h, err)
	}
	values(t, mustRead(t, o, read(0)).Records) // the CRC is new
	w.close(o)
}

// TestAckInterval: acknowledged and visible at once, on disk one interval after
// the first write that is not, with one sync for all.
func TestAckInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		f := w.useFaults()
		w.config.Ack, w.config.FlushEvery, w.config.Remote = AckInterval, 100*time.Millisecond, false
		o := w.open()
		syncs := func() (n int) {
			for _, op := range f.Ops(fsys.OpAnySync) {
				if strings.HasSuffix(op.Name, ".log") {
					n++
				}
			}
			return n
		}
		before := syncs()
		for range 3 {
			if _, err := o.Append(t.Context(), AppendRequest{Batch: one("x")}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Millisecond)
		}
		if v := o.View(); v.HighWatermark != 3 || syncs() != before {
			t.Fatalf("high watermark %d, %d syncs before the interval", v.HighWatermark, syncs()-before)
		}
		time.Sleep(50 * time.Millisecond)
		synctest.Wait()
		if syncs() != before+1 {
			t.Fatalf("%d syncs after the interval", syncs()-before)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if syncs() != before+1 {
			t.Fatalf("%d syncs although nothing was written", syncs()-before)
		}
		f.Add(fsys.Fault{Kinds: fsys.OpAnySync, Name: ".log", Err: errDisk})
		woken := make(chan struct{}, 1)
		defer o.Subscribe(woken)()
		if _, err := o.Append(t.Context(), AppendRequest{Batch: one("y")}); err != nil {
			t.Fatal(err)
		}
		<-woken
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		<-woken // by the end
		if v := o.View(); tiers.KindOf(v.Err) != tiers.StorageFailed {
			t.Fatalf("view %+v after a failed sync", v)
		}
		w.close(o)
		w.cache.Close()
	})
}

// TestAckOS: nothing is synced but what a roll and the end sync.
func TestAckOS(t *testing.T) {
	w := newWorld(t)
	f := w.useFaults()
	w.config.Ack = AckOS
	d := w.drive()
	before := len(f.Ops(fsys.OpAnySync))
	d.fill(5)
	if n := len(f.Ops(fsys.OpAnySync)) - before; n != 0 || d.View().HighWatermark != 5 {
		t.Fatalf("%d syncs, high watermark %d", n, d.View().HighWatermark)
	}
	// Stricter from now on: what is visible must be on disk first.
	c := w.config
	c.Ack = AckFsync
	d.step(func(s *state) {
		if err := s.onConfigure(c); err != nil {
			t.Fatal(err)
		}
	})
	if d.s.local.Flushed() != 5 || d.View().HighWatermark != 5 {
		t.Fatalf("flushed %d, high watermark %d", d.s.local.Flushed(), d.View().HighWatermark)
	}
	d.end()
}

// TestManyProducers runs appends, reads and rolls at once; the race detector
// watches. Every batch has offsets of its own and is read back.
func TestManyProducers(t *testing.T) {
	w := newWorld(t)
	w.config.Local.SegmentBytes = 4000
	o := w.open()
	const producers, each = 8, 60
	var mu sync.Mutex
	want := map[tiers.Offset]string{}
	var group sync.WaitGroup
	for p := range producers {
		group.Go(func() {
			for i := range each {
				v := fmt.Sprintf("%d/%d", p, i)
				res, err := o.Append(t.Context(), AppendRequest{Batch: idempotent(int64(p), 0, int32(i), v)})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				want[res.Base] = v
				mu.Unlock()
			}
		})
	}
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					if _, err := o.Read(t.Context(), read(o.View().LogStart)); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	group.Wait()
	close(stop)
	readers.Wait()
	if err := o.CopyAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := readAll(t, o, ReadUncommitted)
	if len(got) != producers*each || len(want) != len(got) {
		t.Fatalf("%d records read, %d acknowledged", len(got), len(want))
	}
	for off, v := range want {
		if got[off] != v {
			t.Fatalf("offset %d: %q, want %q", off, got[off], v)
		}
	}
	w.close(o)
}

// TestTiersAtOnce reads all of the log again and again while it grows, rolls, is
// copied and leaves the disk; the race detector watches. A reader finds every
// record wherever it is by then.
func TestTiersAtOnce(t *testing.T) {
	w := newWorld(t)
	w.config.Local.SegmentBytes = 1000
	o := w.open()
	stop := make(chan struct{})
	var others sync.WaitGroup
	for range 2 {
		others.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				for off, v := range readAll(t, o, ReadCommitted) {
					if v != fmt.Sprintf("value %d", off) {
						t.Errorf("offset %d: %q", off, v)
						return
					}
				}
				if _, err := o.ListOffset(t.Context(), 1000, ReadUncommitted, tiers.NoEpoch); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	others.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			err := o.do(t.Context(), "drop", func(s *state) {
				if err := s.local.DropBefore(s.view.RemoteEnd); err != nil {
					t.Error(err)
				}
			})
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	for i := range 300 {
		o.mustAppend(t, fmt.Sprintf("value %d", i))
	}
	if err := o.CopyAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	close(stop)
	others.Wait()
	if got := readAll(t, o, ReadUncommitted); len(got) != 300 {
		t.Fatalf("%d records", len(got))
	}
	w.close(o)
}

// TestAppendTimesOut: a caller may leave; what it sent may land, and the room that
// it took is free again.
func TestAppendTimesOut(t *testing.T) {
	w := newWorld(t)
	f := w.useFaults()
	w.tweak = func(d *Deps) { d.QueueBytes = 100 }
	o := w.open()
	hold, reached := make(chan struct{}), make(chan fsys.Op)
	f.Add(fsys.Fault{Kinds: fsys.OpWrite, Name: ".log", Hold: hold, Reached: reached})
	ctx, cancel := context.WithCancelCause(t.Context())
	first := make(chan error)
	go func() {
		_, err := o.Append(ctx, AppendRequest{Batch: one("in the loop")})
		first <- err
	}()
	<-reached
	second := make(chan error)
	go func() {
		_, err := o.Append(ctx, AppendRequest{Batch: one("at the door")})
		second <- err
	}()
	cancel(errors.New("the client hung up"))
	for _, c := range []chan error{first, second} {
		err := <-c
		wantKind(t, err, tiers.TimedOut)
		if !strings.Contains(err.Error(), "the client hung up") {
			t.Fatal(err)
		}
	}
	close(hold)
	if _, err := o.Append(t.Context(), AppendRequest{Batch: one("next")}); err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, o, ReadUncommitted); fmt.Sprint(got) != "map[0:in the loop 1:next]" {
		t.Fatal(got)
	}
	w.close(o)
}

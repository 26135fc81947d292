package partition

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/strandline-io/strandline/remoteindex"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/batch"
	"github.com/strandline-io/strandline/tiers/local"
	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

// dropLocal removes the closed segments below o from disk, as retention will.
func (d *driven) dropLocal(o tiers.Offset) {
	d.t.Helper()
	d.step(func(s *state) {
		if err := s.local.DropBefore(o); err != nil {
			d.t.Fatal(err)
		}
	})
}

// tiered is a log of five segments of two batches each: [0,6) in the bucket only,
// [6,8) in both tiers, [8,10) active.
func tiered(t *testing.T) (*world, *driven) {
	t.Helper()
	w := newWorld(t)
	d := w.drive()
	for range 4 {
		d.fill(2)
		d.roll()
	}
	d.fill(2)
	d.runAll()
	d.dropLocal(6)
	if v := d.View(); v.RemoteEnd != 8 || v.LocalLogStart != 6 || v.LogEnd != 10 {
		t.Fatalf("%+v", v.Watermarks)
	}
	return w, d
}

// TestReadTiers: every offset is read from the tier that holds it, as whole
// batches from the one that holds the offset on, and reading on from there gets
// all of the log.
func TestReadTiers(t *testing.T) {
	_, d := tiered(t)
	for from := range tiers.Offset(10) {
		res := mustRead(t, d.Owner, read(from))
		got := values(t, res.Records)
		if got[from] != fmt.Sprintf("record %d", from) || res.Remote != (from < 6) {
			t.Fatalf("read at %d: %v, remote %t", from, got, res.Remote)
		}
		if lowest := slices.Min(slices.Collect(maps.Keys(got))); lowest != from {
			t.Fatalf("read at %d begins at %d", from, lowest)
		}
	}
	if all := readAll(t, d.Owner, ReadUncommitted); len(all) != 10 {
		t.Fatalf("%d records: %v", len(all), all)
	}
	if res := mustRead(t, d.Owner, ReadRequest{From: 2, CurrentEpoch: -1, FetchedEpoch: -1, MaxBytes: 1000, LocalOnly: true}); len(res.Records) != 0 {
		t.Fatal("a local read went to the bucket")
	}
	d.end()
}

// TestReadLimits: KIP-74 in both tiers.
func TestReadLimits(t *testing.T) {
	_, d := tiered(t)
	size := len(one("record 0"))
	for _, from := range []tiers.Offset{2, 6} {
		for _, c := range []struct {
			max    int
			minOne bool
			want   int
		}{{size - 1, false, 0}, {size - 1, true, 1}, {0, true, 1}, {0, false, 0}, {2*size - 1, true, 1}, {2 * size, false, 2}} {
			var asked []int
			r := read(from)
			r.MaxBytes, r.MinOne = c.max, c.minOne
			r.Alloc = func(n int) []byte { asked = append(asked, n); return make([]byte, n) }
			if got := len(mustRead(t, d.Owner, r).Records); got != c.want*size {
				t.Errorf("from %d, max %d, min one %t: %d bytes, want %d batches", from, c.max, c.minOne, got, c.want)
			}
			if len(asked) > 1 {
				t.Errorf("memory was asked for %d times: %v", len(asked), asked)
			}
		}
	}
	d.end()
}

// TestReadRefusals: fences 74 and 75, the range, divergence.
func TestReadRefusals(t *testing.T) {
	w := newWorld(t)
	w.id.Epoch = 3
	d := w.drive()
	d.fill(10)
	d.replaceTail(6, 4) // {3:0, 4:6}
	for _, c := range []struct {
		name          string
		from          tiers.Offset
		current, last tiers.LeaderEpoch
		kind          tiers.Kind
	}{
		{"74", 0, 3, -1, tiers.FencedLeaderEpoch},
		{"75", 0, 5, -1, tiers.UnknownLeaderEpoch},
		{"above the end", 11, 4, -1, tiers.OffsetOutOfRange},
		{"below the start", -1, 4, -1, tiers.OffsetOutOfRange},
		{"an epoch that nobody knows", 10, 4, 9, tiers.OffsetOutOfRange},
	} {
		res, err := d.Read(t.Context(), ReadRequest{From: c.from, CurrentEpoch: c.current, FetchedEpoch: c.last, MaxBytes: 100})
		if tiers.KindOf(err) != c.kind || err == nil || res.View == nil || res.Records != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	res, err := d.Read(t.Context(), ReadRequest{From: 8, CurrentEpoch: 4, FetchedEpoch: 3, MaxBytes: 100})
	if err != nil || res.Diverging == nil || *res.Diverging != (EpochEnd{3, 6}) || len(res.Records) != 0 {
		t.Fatalf("%+v, %v", res, err)
	}
	res, err = d.Read(t.Context(), ReadRequest{From: 10, CurrentEpoch: 4, FetchedEpoch: 4, MaxBytes: 100})
	if err != nil || len(res.Records) != 0 || res.Diverging != nil {
		t.Fatalf("at the end: %+v, %v", res, err)
	}
	for q, want := range map[tiers.LeaderEpoch]EpochEnd{1: {1, 0}, 3: {3, 6}, 4: {4, 10}, 9: {-1, -1}} {
		var end EpochEnd
		if end, err = d.EpochEnd(tiers.NoEpoch, q); err != nil || end != want {
			t.Errorf("epoch end of %d: %+v, %v", q, end, err)
		}
	}
	_, err = d.EpochEnd(2, 3)
	wantKind(t, err, tiers.FencedLeaderEpoch)
	d.end()
}

// TestR14SafeEnd: a segment is served up to where its epochs agree with the log's,
// and the rest comes from the tier that owns it.
func TestR14SafeEnd(t *testing.T) {
	w := newWorld(t)
	d := w.drive()
	d.fill(10)
	d.roll()
	d.runAll() // [0,10) of epoch 1
	d.step(func(s *state) {
		if err := s.local.TruncateTo(6); err != nil {
			t.Fatal(err)
		}
		s.id.Epoch = 2
		if err := s.local.Assign(2, 6); err != nil {
			t.Fatal(err)
		}
	})
	w.rows.epoch = 2
	for i := range 4 {
		d.append(one(fmt.Sprintf("new %d", 6+i)))
	}
	d.roll()
	if v := d.View(); v.RemoteEnd != 6 {
		t.Fatalf("remote end %d", v.RemoteEnd)
	}
	d.runAll() // [0,10) again: one segment that covers all
	d.append(one("tail"))
	d.dropLocal(10)
	got := readAll(t, d.Owner, ReadUncommitted)
	for o, v := range got {
		want := fmt.Sprintf("record %d", o)
		if o >= 6 {
			want = fmt.Sprintf("new %d", o)
		}
		if o < 10 && v != want {
			t.Errorf("offset %d: %q, want %q", o, v, want)
		}
	}
	if len(got) != 11 {
		t.Fatal(got)
	}
	d.end()
}

// txn is a transactional batch of producer 9.
func txn(seq int32, vs ...string) []byte {
	return build(batch.Builder{ProducerID: 9, BaseSequence: seq, Transactional: true}, 1000, vs...)
}

// mark ends the transaction of pid, as a coordinator will.
func (d *driven) mark(pid int64, commit bool) {
	d.t.Helper()
	kind := byte(0)
	if commit {
		kind = 1
	}
	b, err := batch.Builder{ProducerID: pid, BaseSequence: -1, Transactional: true, Control: true}.Build([]batch.Record{{
		Timestamp: 1000, Key: []byte{0, 0, 0, kind}, Value: []byte{0, 0, 0, 0, 0, 0},
	}})
	if err != nil {
		d.t.Fatal(err)
	}
	d.step(func(s *state) {
		batch.Stamp(b, s.local.LogEnd(), s.id.Epoch)
		h, err := batch.Parse(b)
		if err != nil {
			d.t.Fatal(err)
		}
		if err := errors.Join(s.local.Append(b, []batch.Header{h}), s.sync()); err != nil {
			d.t.Fatal(err)
		}
	})
}

func (d *driven) must(batches ...[]byte) {
	d.t.Helper()
	for _, c := range d.append(batches...) {
		if c.err != nil {
			d.t.Fatal(c.err)
		}
	}
}

// aborted is what a read_committed client would be told, as pid:first-last.
func aborted(txns []local.AbortedTxn) (out []string) {
	for _, a := range txns {
		out = append(out, fmt.Sprintf("%d:%d-%d", a.ProducerID, a.First, a.Last))
	}
	return out
}

// straddling is a log with an aborted transaction [1,4) whose marker lies in the
// next segment, another one in [6,7), and one that is open from 8 on.
func straddling(t *testing.T) (*world, *driven) {
	t.Helper()
	w := newWorld(t)
	d := w.drive()
	d.must(one("0"), txn(0, "1"))
	d.roll()
	d.must(one("2"), txn(1, "3"))
	d.mark(9, false)
	d.must(one("5")) // 2 3 4 5
	d.roll()
	d.must(txn(2, "6"))
	d.mark(9, false) // 6 7
	d.roll()
	d.must(txn(3, "8"), one("9"))
	d.runAll()
	return w, d
}

// TestReport017: the abort list comes from the tiers that served the batches, also
// at the seam between them and where the marker is in a later segment (R16).
// TestReport085: read_uncommitted gets none.
func TestReport017AbortListAtTheSeam(t *testing.T) {
	_, d := straddling(t)
	if v := d.View(); v.LastStable != 8 || v.HighWatermark != 10 || v.RemoteEnd != 8 {
		t.Fatalf("%+v", v.Watermarks)
	}
	for _, drop := range []tiers.Offset{0, 2, 6, 8} {
		d.dropLocal(drop)
		for _, c := range []struct {
			from tiers.Offset
			want string
		}{
			{0, "[9:1-4]"}, {1, "[9:1-4]"}, {2, "[9:1-4]"}, {3, "[9:1-4]"}, {5, "[]"}, {6, "[9:6-7]"},
		} {
			r := read(c.from)
			r.Isolation = ReadCommitted
			res := mustRead(t, d.Owner, r)
			if got := fmt.Sprint(aborted(res.Aborted)); got != c.want || res.Remote != (c.from < drop) {
				t.Errorf("local from %d, read at %d: aborted %s, want %s (remote %t)", drop, c.from, got, c.want, res.Remote)
			}
			if res := mustRead(t, d.Owner, read(c.from)); res.Aborted != nil {
				t.Errorf("read_uncommitted at %d is told of %v (report 085)", c.from, res.Aborted)
			}
		}
		r := read(8)
		r.Isolation = ReadCommitted
		if res := mustRead(t, d.Owner, r); len(res.Records) != 0 {
			t.Error("read_committed sees records that are not decided")
		}
	}
	d.end()
}

// TestR16TwoAbortsInOneSegment: the one that was decided first does not hide the
// other.
func TestR16TwoAbortsInOneSegment(t *testing.T) {
	w := newWorld(t)
	d := w.drive()
	other := build(batch.Builder{ProducerID: 11, Transactional: true}, 1000, "1")
	d.must(txn(0, "0"), other)
	d.mark(9, false)
	d.must(one("3"))
	d.mark(11, false)
	d.roll()
	d.runAll()
	for _, drop := range []tiers.Offset{0, 5} {
		d.dropLocal(drop)
		r := read(0)
		r.Isolation = ReadCommitted
		if got := fmt.Sprint(aborted(mustRead(t, d.Owner, r).Aborted)); got != "[9:0-2 11:1-4]" {
			t.Errorf("local from %d: %s", drop, got)
		}
	}
	d.end()
}

// TestReport134: companions of segments without aborted transactions are not
// fetched to look for some.
func TestReport134NoWalkOverSegmentsWithoutAborts(t *testing.T) {
	w := newWorld(t)
	d := w.drive()
	for range 30 {
		d.fill(1)
		d.roll()
	}
	d.runAll()
	d.dropLocal(30)
	w.bucket.Clear()
	before := len(w.bucket.Calls(memory.OpRead, ".meta"))
	r := read(0)
	r.Isolation = ReadCommitted
	mustRead(t, d.Owner, r)
	metas := len(w.bucket.Calls(memory.OpRead, ".meta")) - before
	if metas > 1 {
		t.Fatalf("%d companions were fetched for one segment", metas)
	}
	d.end()
}

// TestReport060: a read whose caller leaves is an error that says retry and
// blames nobody; the download goes on for the next one.
func TestReport060SlowBucket(t *testing.T) {
	for name, leave := range map[string]func(context.Context) (context.Context, context.CancelFunc){
		"cancelled": context.WithCancel,
		"deadline": func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, end := context.WithCancelCause(ctx)
			return ended{ctx}, func() { end(nil) }
		},
	} {
		t.Run(name, func(t *testing.T) { slowBucket(t, leave) })
	}
}

// ended is a context that says of its end that it was a deadline.
type ended struct{ context.Context }

func (e ended) Err() error {
	if e.Context.Err() != nil {
		return context.DeadlineExceeded
	}
	return nil
}

func slowBucket(t *testing.T, leave func(context.Context) (context.Context, context.CancelFunc)) {
	t.Helper()
	w, d := tiered(t)
	w.cache.Close()
	cache := remote.NewCache(w.bucket, remote.CacheOptions{ReadAhead: -1})
	d.Owner.deps.Cache, w.cache = cache, cache
	hold, reached := make(chan struct{}), make(chan memory.Call, 10)
	w.bucket.Add(memory.Fault{Ops: memory.OpRead, Key: ".log", Hold: hold, Reached: reached})
	ctx, cancel := leave(t.Context())
	failed := make(chan error)
	go func() {
		_, err := d.Read(ctx, read(0))
		failed <- err
	}()
	<-reached
	cancel()
	wantKind(t, <-failed, tiers.TimedOut)
	close(hold)
	if got := values(t, mustRead(t, d.Owner, read(0)).Records); got[0] != "record 0" {
		t.Fatal(got)
	}
	n := 0
	for _, c := range w.bucket.Calls(memory.OpRead, ".log") {
		if strings.Contains(c.Key, "/00000000000000000000-") {
			n++
		}
	}
	if n != 1 {
		t.Fatalf("the chunk was fetched %d times", n)
	}
	d.end()
}

// TestRemoteReadErrors: what the bucket does wrong has a kind and a reason; the
// next read is well again.
func TestRemoteReadErrors(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault memory.Fault
		kind  tiers.Kind
	}{
		{"down", memory.Fault{Ops: memory.OpRead, Sticky: true, Err: remote.ErrUnavailable}, tiers.RemoteUnavailable},
		{"denied", memory.Fault{Ops: memory.OpRead, Sticky: true, Err: remote.ErrDenied}, tiers.RemoteUnavailable},
		{"throttled", memory.Fault{Ops: memory.OpRead, Sticky: true, Err: remote.ErrThrottled}, tiers.RemoteUnavailable},
		{"the cache's own timeout", memory.Fault{Ops: memory.OpRead, Sticky: true, Err: context.DeadlineExceeded}, tiers.RemoteUnavailable},
		{"flipped", memory.Fault{Ops: memory.OpRead, Sticky: true, Key: ".log", Flip: true, FlipAt: 70}, tiers.StorageFailed},
		{"companion flipped", memory.Fault{Ops: memory.OpRead, Sticky: true, Key: ".meta", Flip: true, FlipAt: 70}, tiers.StorageFailed},
		{"gone", memory.Fault{Ops: memory.OpRead, Sticky: true, Err: remote.ErrNotFound}, tiers.StorageFailed},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, d := tiered(t)
			w.bucket.Add(c.fault)
			_, err := d.Read(t.Context(), read(1))
			wantKind(t, err, c.kind)
			if _, err := d.Read(t.Context(), read(6)); err != nil {
				t.Fatal("a local read failed with the bucket:", err)
			}
			w.bucket.Clear()
			mustRead(t, d.Owner, read(1))
			d.end()
		})
	}
}

// TestR17: a read is compared with the newest View after it was made. What was
// removed or bound anew meanwhile is not answered.
func TestR17ValidatedAfterTheRead(t *testing.T) {
	for _, c := range []struct {
		name   string
		during func(d *driven)
		kind   tiers.Kind
	}{
		{"log start", func(d *driven) {
			d.step(func(s *state) {
				if err := s.local.RaiseLogStart(4); err != nil {
					d.t.Fatal(err)
				}
			})
		}, tiers.OffsetOutOfRange},
		{"history", func(d *driven) { d.step(func(s *state) { s.history++ }) }, tiers.NotLeader},
		{"epoch", func(d *driven) { d.step(func(s *state) { s.id.Epoch++ }) }, tiers.FencedLeaderEpoch},
		{"fence", func(d *driven) { d.Fence(errors.New("another node has the bucket")) }, tiers.NotLeader},
		{"disk", func(d *driven) { d.step(func(s *state) { s.failed = tiers.E(tiers.StorageFailed, "sync", place, "") }) }, tiers.StorageFailed},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, d := tiered(t)
			hold, reached := make(chan struct{}), make(chan memory.Call)
			w.bucket.Add(memory.Fault{Ops: memory.OpRead, Hold: hold, Reached: reached})
			failed := make(chan error)
			go func() {
				r := read(0)
				r.CurrentEpoch = 1
				_, err := d.Read(t.Context(), r)
				failed <- err
			}()
			<-reached
			c.during(d)
			close(hold)
			wantKind(t, <-failed, c.kind)
			d.s.failed = nil
			d.end()
		})
	}
}

// TestDeletedUnderTheRead: a segment that goes away while it is read is looked up
// again under the newest View.
func TestDeletedUnderTheRead(t *testing.T) {
	w, d := tiered(t)
	// A second segment for [0,2) takes over: same bytes, another id.
	first, _ := d.View().index.Find(0, d.View().truth())
	again := first.Segment
	again.ID, again.CopierEpoch = tiers.SegmentID{99}, 1
	for _, of := range []func(tiers.RemoteSegment) string{remote.SegmentKey, remote.MetaKey} {
		b, _ := w.bucket.Bytes(of(first.Segment))
		if strings.HasSuffix(of(again), ".meta") {
			meta, err := remote.DecodeMeta(b)
			if err != nil {
				t.Fatal(err)
			}
			meta.Segment.ID = again.ID
			if b, err = remote.EncodeMeta(meta); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := w.bucket.Put(t.Context(), of(again), remote.BytesBody(b), remote.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	hold, reached := make(chan struct{}), make(chan memory.Call)
	w.bucket.Add(memory.Fault{Ops: memory.OpRead, Hold: hold, Reached: reached})
	type answer struct {
		res ReadResult
		err error
	}
	got := make(chan answer)
	go func() {
		res, err := d.Read(t.Context(), read(0))
		got <- answer{res, err}
	}()
	<-reached
	if err := w.bucket.Delete(t.Context(), remote.SegmentKey(first.Segment), remote.MetaKey(first.Segment)); err != nil {
		t.Fatal(err)
	}
	d.step(func(s *state) {
		var rows []tiers.RemoteSegment
		for row := range s.index.All() {
			if row.ID != first.Segment.ID {
				rows = append(rows, row)
			}
		}
		x, err := remoteindex.New(s.id.ID, s.id.Gen, append(rows, again))
		if err != nil {
			t.Fatal(err)
		}
		s.index = x
	})
	close(hold)
	a := <-got
	if a.err != nil || values(t, a.res.Records)[0] != "record 0" {
		t.Fatalf("%v", a.err)
	}
	d.end()
}

// TestFilesHandOver: a reader that has loaded a View just before the loop gave up
// its files takes the newer View instead.
func TestFilesHandOver(t *testing.T) {
	w := newWorld(t)
	d := w.drive()
	d.fill(1)
	old := d.View()
	if !old.files.share() {
		t.Fatal("no share of the files of the View that is out")
	}
	d.roll()
	if d.View().files == old.files {
		t.Fatal("a roll changes the files")
	}
	if old.files.shares.Load() != 1 {
		t.Fatalf("%d shares, want the reader's", old.files.shares.Load())
	}
	if _, err := old.files.Read(0, 1, 100, true, nil); err != nil {
		t.Fatal("a share keeps the files readable:", err)
	}
	old.files.drop()
	if old.files.share() {
		t.Fatal("a share of files that were released")
	}
	v, drop := d.pinned()
	if v == old {
		t.Fatal("the old View was pinned")
	}
	drop()
	d.end()
	if v, drop := d.pinned(); v.Err == nil || v.files != nil {
		t.Fatal("a closed owner has files")
	} else {
		drop()
	}
}

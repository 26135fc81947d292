package partition

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/batch"
	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

// The log of dated: segments of about 2 MiB, batches of 16 KiB, a record per
// second.
const (
	datedSegments = 6
	datedBatches  = 128 // of a segment
	datedRecords  = 16  // of a batch
)

// dated is a partition whose records are in the bucket but for the last segment.
// Record o has the timestamp 1000*o.
func dated(tb testing.TB) (*world, *driven) {
	tb.Helper()
	w := newWorld(tb)
	w.config.Local.SegmentBytes, w.config.Local.IndexInterval = 64<<20, 4096
	d := w.drive()
	at := int64(0)
	for range datedSegments {
		for range datedBatches {
			recs := make([]batch.Record, datedRecords)
			for i := range recs {
				recs[i] = batch.Record{Offset: tiers.Offset(i), Timestamp: 1000 * at, Value: []byte(strings.Repeat(fmt.Sprint(at%10), 1000))}
				at++
			}
			b, err := batch.Builder{ProducerID: -1}.Build(recs)
			if err != nil {
				tb.Fatal(err)
			}
			d.must(b)
		}
		d.roll()
		d.runAll()
	}
	d.dropLocal((datedSegments - 1) * datedBatches * datedRecords)
	return w, d
}

// fresh gives the owner an empty cache.
func (w *world) fresh(d *driven) {
	w.cache.Close()
	w.cache = remote.NewCache(w.bucket, remote.CacheOptions{})
	d.Owner.deps.Cache = w.cache
}

// TestReport123LookUpsByTimeAreSmall: with nothing in memory, a look-up by time
// costs one companion and one or two chunks, wherever it leads, and however many
// segments there are before.
func TestReport123LookUpsByTimeAreSmall(t *testing.T) {
	w, d := dated(t)
	remoteRecords := int64((datedSegments - 1) * datedBatches * datedRecords)
	rng := rand.New(rand.NewPCG(1, 1))
	for range 40 {
		w.fresh(d)
		before := len(w.bucket.Calls(memory.OpRead, ""))
		want := rng.Int64N(remoteRecords)
		at, err := d.ListOffset(t.Context(), 1000*want-rng.Int64N(1000), ReadUncommitted, tiers.NoEpoch)
		if err != nil || at.Offset != tiers.Offset(want) || at.Timestamp != 1000*want {
			t.Fatalf("%+v, %v, want %d", at, err, want)
		}
		w.cache.Close() // waits for what is under way, if anything is
		metas, bytes := 0, int64(0)
		for _, c := range w.bucket.Calls(memory.OpRead, "")[before:] {
			if strings.HasSuffix(c.Key, ".meta") {
				metas++
				continue
			}
			bytes += c.Len
		}
		if metas != 1 || bytes > 2*remote.ChunkSize {
			t.Fatalf("record %d: %d companions and %d bytes of records were read", want, metas, bytes)
		}
	}
	w.fresh(d)
	before := len(w.bucket.Calls(memory.OpRead, ""))
	if at, err := d.ListOffset(t.Context(), 1000*(remoteRecords+5), ReadUncommitted, tiers.NoEpoch); err != nil || at.Offset != tiers.Offset(remoteRecords+5) {
		t.Fatal(at, err)
	}
	if n := len(w.bucket.Calls(memory.OpRead, "")) - before; n != 0 {
		t.Errorf("a time that is on disk cost %d requests", n)
	}
	d.end()
}

// TestReport123LookUpsEndWithTheirCaller: who leaves gets no more requests made.
func TestReport123LookUpsEndWithTheirCaller(t *testing.T) {
	w, d := dated(t)
	w.fresh(d)
	hold, reached := make(chan struct{}), make(chan memory.Call, 1)
	w.bucket.Add(memory.Fault{Ops: memory.OpRead, Key: ".meta", Hold: hold, Reached: reached})
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error)
	go func() {
		_, err := d.ListOffset(ctx, 500_000, ReadUncommitted, tiers.NoEpoch)
		failed <- err
	}()
	<-reached
	cancel()
	wantKind(t, <-failed, tiers.TimedOut)
	close(hold)
	w.cache.Close() // waits for what is under way
	if n := len(w.bucket.Calls(memory.OpRead, ".log")); n != 0 {
		t.Errorf("%d requests for nobody", n)
	}
	d.end()
}

// TestLookUpsOnDiskDoNotWaitForTheBucket: however many others wait for it.
func TestLookUpsOnDiskDoNotWaitForTheBucket(t *testing.T) {
	w, d := dated(t)
	w.fresh(d)
	hold, reached := make(chan struct{}), make(chan memory.Call, 100)
	w.bucket.Add(memory.Fault{Ops: memory.OpRead, Key: ".log", Hold: hold, Reached: reached, Sticky: true})
	done := make(chan error, 8)
	for i := range int64(4) {
		go func() {
			_, err := d.ListOffset(t.Context(), 1000*(i*datedBatches*datedRecords+5), ReadUncommitted, tiers.NoEpoch)
			done <- err
		}()
	}
	for range 4 {
		<-reached
	}
	at, err := d.ListOffset(t.Context(), 1000*((datedSegments-1)*datedBatches*datedRecords+7), ReadUncommitted, tiers.NoEpoch)
	if err != nil || at.Offset != (datedSegments-1)*datedBatches*datedRecords+7 {
		t.Error(at, err)
	}
	close(hold)
	for range 4 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	d.end()
}

// TestReadsFromTheBucketCostTheirBytes: a consumer that reads all of the remote
// tier, one MiB at a time, fetches each byte once, in large requests, and finds the
// beginning of each segment fetched.
func TestReadsFromTheBucketCostTheirBytes(t *testing.T) {
	w, d := dated(t)
	w.fresh(d)
	r := read(0)
	for r.From < d.View().LocalLogStart {
		res := mustRead(t, d.Owner, r)
		if r.From == 0 {
			if calls := w.bucket.Calls(memory.OpGet, ".log"); len(calls) != 1 || calls[0].Len < int64(r.MaxBytes) {
				t.Errorf("the first read took %+v", calls)
			}
		}
		next := nextAfter(res.Records, -1)
		if next <= r.From {
			t.Fatalf("no progress at %d", r.From)
		}
		r.From = next
	}
	w.cache.Close()
	size, bytes := int64(0), int64(0)
	calls := w.bucket.Calls(memory.OpGet, ".log")
	for _, c := range calls {
		bytes += c.Len
	}
	rows, err := w.rows.Segments(t.Context(), w.id.ID, w.id.Gen)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows[:datedSegments-1] {
		size += row.Size
	}
	if bytes != size || int64(len(calls)) > 2*size/(1<<20)+datedSegments {
		t.Errorf("%d requests for %d bytes of %d", len(calls), bytes, size)
	}
	d.end()
}

// BenchmarkRemoteTime looks times up in a bucket in memory, with nothing in memory
// and with all of it.
func BenchmarkRemoteTime(b *testing.B) {
	w, d := dated(b)
	look := func(b *testing.B) {
		b.Helper()
		want := rand.Int64N((datedSegments - 1) * datedBatches * datedRecords)
		if at, err := d.ListOffset(b.Context(), 1000*want, ReadUncommitted, tiers.NoEpoch); err != nil || at.Offset != tiers.Offset(want) {
			b.Fatal(at, err)
		}
	}
	b.Run("cold", func(b *testing.B) {
		before := len(w.bucket.Calls(memory.OpRead, ""))
		for b.Loop() {
			b.StopTimer()
			w.fresh(d)
			b.StartTimer()
			look(b)
		}
		b.ReportMetric(float64(len(w.bucket.Calls(memory.OpRead, ""))-before)/float64(b.N), "requests/op")
	})
	b.Run("warm", func(b *testing.B) {
		for b.Loop() {
			look(b)
		}
	})
	d.end()
}

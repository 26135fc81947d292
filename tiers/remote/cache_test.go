package remote_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/fsys/mem"
	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/memory"
	"github.com/strandline-io/strandline/tiers/remote/spool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is a cache over a bucket that holds one segment of five and a half
// chunks.
type fixture struct {
	b       *memory.Bucket
	c       *remote.Cache
	records []byte
	seg     tiers.RemoteSegment
}

func newFixture(t *testing.T, o remote.CacheOptions) *fixture {
	t.Helper()
	f := &fixture{b: memory.New()}
	var m *remote.SegmentMeta
	f.records, m = sample(remote.ChunkSize*11/2 + 3)
	f.seg = upload(t, f.b, f.records, m)
	f.c = remote.NewCache(f.b, o)
	t.Cleanup(f.c.Close)
	return f
}

// read checks that n bytes from off on are right.
func (f *fixture) read(t *testing.T, off int64, n int) {
	t.Helper()
	buf := make([]byte, n)
	got, err := f.c.ReadAt(t.Context(), f.seg, buf, off)
	want := f.records[min(off, int64(len(f.records))):min(int64(len(f.records)), off+int64(n))]
	if short := len(want) < n; short != errors.Is(err, io.EOF) || !short && err != nil {
		t.Fatalf("read [%d,%d): %v", off, off+int64(n), err)
	}
	if !bytes.Equal(buf[:got], want) {
		t.Fatalf("read [%d,%d): %d bytes, want %d, or they differ", off, off+int64(n), got, len(want))
	}
}

func TestCacheReads(t *testing.T) {
	t.Parallel()
	const c = remote.ChunkSize
	for _, ahead := range []int64{-1, 0} {
		f := newFixture(t, remote.CacheOptions{ReadAhead: ahead})
		size := len(f.records)
		for range 2 {
			for _, r := range []struct {
				off int64
				n   int
			}{{0, 1}, {0, 0}, {c - 1, 2}, {5, c}, {3 * c, 2 * c}, {0, size}, {0, size + 1}, {int64(size) - 1, 1}, {int64(size) - 1, 2}, {int64(size), 1}, {int64(size) + 99, 5}} {
				f.read(t, r.off, r.n)
			}
		}
		if _, err := f.c.ReadAt(t.Context(), f.seg, make([]byte, 1), -1); !errors.Is(err, remote.ErrRange) {
			t.Fatalf("read at -1: %v", err)
		}
	}
}

func TestCacheAsksOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t, remote.CacheOptions{ReadAhead: -1})
	f.read(t, 0, 10)
	f.read(t, 10, 10)
	f.read(t, 0, 2*remote.ChunkSize) // chunk 1 is new
	f.read(t, 0, 2*remote.ChunkSize)
	if calls := f.b.Calls(memory.OpRead, ".log"); len(calls) != 2 || calls[1].Off != remote.ChunkSize || calls[1].Len != remote.ChunkSize {
		t.Fatalf("%+v", calls)
	}
	if calls := f.b.Calls(memory.OpAny, ".meta"); len(calls) != 2 { // the put of the fixture and one read
		t.Fatalf("%+v", calls)
	}
	m, err := f.c.Meta(t.Context(), f.seg)
	must(t, err)
	if string(m.OffsetIndex) != "offset index" {
		t.Fatalf("offset index is %q", m.OffsetIndex)
	}
}

func TestCacheRandomReaderIsNotReadAhead(t *testing.T) {
	t.Parallel()
	f := newFixture(t, remote.CacheOptions{})
	f.read(t, 3*remote.ChunkSize+7, 100)
	calls := f.b.Calls(memory.OpGet, ".log")
	if len(calls) != 1 || calls[0].Off != 3*remote.ChunkSize || calls[0].Len != remote.ChunkSize {
		t.Fatalf("%+v", calls)
	}
}

// Many readers of one chunk wait for one fetch.
func TestCacheJoinsReaders(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, remote.CacheOptions{ReadAhead: -1})
		hold := make(chan struct{})
		f.b.Add(memory.Fault{Ops: memory.OpGet, Key: ".log", Hold: hold})
		f.b.Add(memory.Fault{Ops: memory.OpReadAt, Key: ".meta", Hold: hold})
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() { f.read(t, int64(i*100), 100) })
		}
		synctest.Wait()
		close(hold)
		wg.Wait()
		if n := len(f.b.Calls(memory.OpRead, "")); n != 2 {
			t.Fatalf("%d reads of the store for 20 readers of a chunk", n)
		}
	})
}

// Readers that wait 500 ms at most, on a store that takes 3 s, get the records:
// each fetch goes on without them.
func TestReport060SlowStoreMakesProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, remote.CacheOptions{ReadAhead: -1})
		slow := func(op memory.Op) {
			release := make(chan struct{})
			f.b.Add(memory.Fault{Ops: op, Hold: release})
			time.AfterFunc(3*time.Second, func() { close(release) })
		}
		slow(memory.OpReadAt)
		slow(memory.OpGet)
		tries := 0
		for ; ; tries++ {
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			_, err := f.c.ReadAt(ctx, f.seg, make([]byte, 100), 0)
			cancel()
			if err == nil {
				break
			}
			if !errors.Is(err, context.DeadlineExceeded) || tiers.KindOf(err) != tiers.TimedOut {
				t.Fatal(err)
			}
		}
		if tries == 0 || tries > 8 {
			t.Fatalf("%d tries", tries)
		}
		if n := len(f.b.Calls(memory.OpRead, "")); n != 2 {
			t.Fatalf("%d reads of the store, want one for each object", n)
		}
	})
}

// A transfer that was cut is never kept: the chunk is asked for again, and what
// is in memory is right.
func TestReport030CutTransferIsNotCached(t *testing.T) {
	t.Parallel()
	f := newFixture(t, remote.CacheOptions{})
	f.b.Add(memory.Fault{Ops: memory.OpGet, Key: ".log", Cut: true, CutAfter: remote.ChunkSize + 1000})
	f.read(t, 0, len(f.records))
	f.read(t, 0, len(f.records))

	// The store cuts for ever: an error, and right again once it behaves.
	g := newFixture(t, remote.CacheOptions{})
	g.b.Add(memory.Fault{Ops: memory.OpRead, Key: ".log", Cut: true, CutAfter: 1000, Sticky: true})
	if n, err := g.c.ReadAt(t.Context(), g.seg, make([]byte, 5000), 0); err == nil || n != 0 {
		t.Fatalf("read %d bytes of a cut transfer, %v", n, err)
	}
	g.b.Clear()
	g.read(t, 0, len(g.records))
}

// A companion or chunk with a wrong checksum is fetched once more, is an error
// then, and is asked for again by the next reader.
func TestReport087DamageIsFetchedAgain(t *testing.T) {
	t.Parallel()
	const middle = 2*remote.ChunkSize + 77
	t.Run("chunk once", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t, remote.CacheOptions{})
		f.b.Add(memory.Fault{Ops: memory.OpGet, Key: ".log", Flip: true, FlipAt: middle})
		f.read(t, 0, len(f.records))
	})
	t.Run("chunk for good", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t, remote.CacheOptions{})
		must(t, f.b.FlipBit(remote.SegmentKey(f.seg), middle))
		for range 2 {
			n, err := f.c.ReadAt(t.Context(), f.seg, make([]byte, len(f.records)), 0)
			if n != 2*remote.ChunkSize || !errors.Is(err, remote.ErrChecksum) || tiers.KindOf(err) != tiers.CorruptMessage {
				t.Fatalf("read %d, %v", n, err)
			}
		}
		f.read(t, 3*remote.ChunkSize, remote.ChunkSize) // its neighbours are good
		must(t, f.b.FlipBit(remote.SegmentKey(f.seg), middle))
		f.read(t, 0, len(f.records))
	})
	t.Run("companion once", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t, remote.CacheOptions{})
		f.b.Add(memory.Fault{Ops: memory.OpRead, Key: ".meta", Flip: true, FlipAt: 100})
		f.read(t, 0, 10)
	})
	t.Run("companion for good", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t, remote.CacheOptions{})
		must(t, f.b.FlipBit(remote.MetaKey(f.seg), 100))
		if _, err := f.c.Meta(t.Context(), f.seg); !errors.Is(err, remote.ErrChecksum) {
			t.Fatal(err)
		}
		must(t, f.b.FlipBit(remote.MetaKey(f.seg), 100))
		f.read(t, 0, 10)
	})
	t.Run("companion of another segment", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t, remote.CacheOptions{})
		other := f.seg
		other.ID[0]++
		raw, _ := f.b.Bytes(remote.MetaKey(f.seg))
		_, err := f.b.Put(t.Context(), remote.MetaKey(other), remote.BytesBody(raw), remote.PutOptions{})
		must(t, err)
		if _, err := f.c.Meta(t.Context(), other); !errors.Is(err, remote.ErrChecksum) {
			t.Fatal(err)
		}
	})
	t.Run("records shorter than the companion says", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t, remote.CacheOptions{})
		_, err := f.b.Put(t.Context(), remote.SegmentKey(f.seg), remote.BytesBody(f.records[:remote.ChunkSize+5]), remote.PutOptions{})
		must(t, err)
		for _, off := range []int64{remote.ChunkSize, 4 * remote.ChunkSize} {
			if _, err := f.c.ReadAt(t.Context(), f.seg, make([]byte, 100), off); !errors.Is(err, remote.ErrChecksum) {
				t.Fatal(err)
			}
		}
	})
}

func TestCacheErrorsAreNotKept(t *testing.T) {
	t.Parallel()
	f := newFixture(t, remote.CacheOptions{ReadAhead: -1})
	f.b.Add(memory.Fault{Ops: memory.OpRead, Key: ".meta"})
	f.b.Add(memory.Fault{Ops: memory.OpGet, Key: ".log", Err: remote.ErrThrottled})
	for range 2 {
		if _, err := f.c.ReadAt(t.Context(), f.seg, make([]byte, 5), 0); tiers.KindOf(err) != tiers.RemoteUnavailable {
			t.Fatal(err)
		}
	}
	f.read(t, 0, 5)
	gone := f.seg
	gone.ID[3]++
	if _, err := f.c.Meta(t.Context(), gone); !errors.Is(err, remote.ErrNotFound) {
		t.Fatal(err)
	}
}

func TestCacheForgetsBeyondItsLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewPedanticRegistry()
		f := newFixture(t, remote.CacheOptions{Bytes: 4 * remote.ChunkSize, MetaBytes: 2 * remote.ChunkSize, ReadAhead: -1, Registerer: reg})
		const passes = 4
		for range passes {
			f.read(t, 0, len(f.records))
			synctest.Wait() // chunks are dropped in the background
			if held := gathered(t, reg)["strandline_remote_cache_chunk_bytes"]; held == 0 || held > 2*remote.ChunkSize {
				t.Fatalf("%.0f bytes are held, the limit is %d", held, 2*remote.ChunkSize)
			}
		}
		got := gathered(t, reg)
		if got["strandline_remote_cache_served_bytes_total"] != passes*float64(len(f.records)) {
			t.Fatalf("%v", got)
		}
		if got["strandline_remote_cache_fetched_bytes_total"] < 2*float64(len(f.records)) {
			t.Fatalf("%v", got)
		}
	})
}

// gathered is the sum of each metric over its labels.
func gathered(t *testing.T, reg prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	must(t, err)
	got := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			got[family.GetName()] += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return got
}

func TestCacheFetchHasItsOwnLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, remote.CacheOptions{FetchTimeout: 7 * time.Second})
		f.b.Add(memory.Fault{Ops: memory.OpReadAt, Hold: make(chan struct{})})
		start := time.Now()
		_, err := f.c.ReadAt(t.Context(), f.seg, make([]byte, 5), 0)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 7*time.Second {
			t.Fatalf("%v after %v", err, time.Since(start))
		}
	})
}

func TestCacheClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, remote.CacheOptions{})
		f.b.Add(memory.Fault{Ops: memory.OpReadAt, Hold: make(chan struct{})})
		failed := make(chan error, 1)
		go func() {
			_, err := f.c.ReadAt(t.Context(), f.seg, make([]byte, 5), 0)
			failed <- err
		}()
		synctest.Wait()
		f.c.Close()
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if _, err := f.c.Meta(t.Context(), f.seg); tiers.KindOf(err) != tiers.Closed {
			t.Fatal(err)
		}
	})
}

// onDisk is a cache with little memory and a disk.
func onDisk(t *testing.T, b remote.Bucket, f fsys.FS) *remote.Cache {
	t.Helper()
	s, err := spool.Open(f, spool.Options{Dir: "/cache", Bytes: 64 << 20})
	must(t, err)
	c := remote.NewCache(b, remote.CacheOptions{Bytes: 8 * remote.ChunkSize, Disk: s})
	t.Cleanup(func() { c.Close(); s.Close() })
	return c
}

// What was read once is on disk, for the next reader and the next process.
func TestCacheOnDisk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		z := &zeros{Bucket: memory.New()}
		b := z.Bucket.(*memory.Bucket)
		segs := z.segments(t, 0, 2, 4<<20+99)
		disk := mem.New()
		companions := func() int { return len(b.Calls(memory.OpReadAt, ".meta")) }
		c := onDisk(t, z, disk)
		scan(t, c, segs, 256<<10, 100, func(int, int64, time.Duration) { synctest.Wait() })
		gets, _ := z.asked()
		metas := companions()
		scan(t, c, segs, 256<<10, 100, nil)
		if again, _ := z.asked(); len(again) != len(gets) || companions() != metas {
			t.Errorf("the second reader made %d requests", len(again)-len(gets))
		}
		synctest.Wait()
		c.Close()
		c = onDisk(t, z, disk.KillCopy())
		scan(t, c, segs, 256<<10, 100, nil)
		if again, _ := z.asked(); len(again) != len(gets) || companions() != metas {
			t.Errorf("the next process made %d requests", len(again)-len(gets))
		}
	})
}

// Files of the cache that somebody overwrote are read from the bucket again, and
// are right from then on; a disk that fails all the time fails no read.
func TestReport087FilesOfTheCacheAreOverwritten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fixture{b: memory.New()}
		var m *remote.SegmentMeta
		f.records, m = sample(remote.ChunkSize*11/2 + 3)
		f.seg = upload(t, f.b, f.records, m)
		disk := mem.New()
		f.c = onDisk(t, f.b, disk)
		whole := func() {
			t.Helper()
			f.read(t, 0, len(f.records))
			synctest.Wait()
		}
		whole()
		for pass := range 3 {
			f.c.Close()
			if pass < 2 { // after the last pass they are whole
				overwrite(t, disk, pass)
			}
			before := len(f.b.Calls(memory.OpRead, ""))
			f.c = onDisk(t, f.b, disk)
			whole()
			if asked := len(f.b.Calls(memory.OpRead, "")) - before; (asked > 0) != (pass < 2) {
				t.Errorf("pass %d: %d requests", pass, asked)
			}
		}
		f.c.Close()
		failing := fsys.NewFaulty(disk)
		f.c = onDisk(t, f.b, failing)
		failing.Add(fsys.Fault{Sticky: true, Err: syscall.EIO})
		for range 3 {
			whole()
			time.Sleep(2 * time.Minute)
		}
	})
}

// liar is a disk that gives something else than it was given.
type liar struct{ dropped map[remote.PieceID]bool }

func (l *liar) Has(id remote.PieceID) bool { return !l.dropped[id] }
func (*liar) Get(remote.PieceID) []byte    { return make([]byte, remote.ChunkSize) }
func (*liar) Put(remote.PieceID, []byte)   {}
func (l *liar) Drop(id remote.PieceID)     { l.dropped[id] = true }

// What a disk gives is held against the companion, whatever the disk says of it.
func TestCacheTrustsNoDisk(t *testing.T) {
	t.Parallel()
	f := &fixture{b: memory.New()}
	var m *remote.SegmentMeta
	f.records, m = sample(remote.ChunkSize * 5 / 2)
	f.seg = upload(t, f.b, f.records, m)
	f.c = remote.NewCache(f.b, remote.CacheOptions{Disk: &liar{map[remote.PieceID]bool{}}, Concurrency: 1})
	t.Cleanup(f.c.Close)
	f.read(t, 0, len(f.records))
}

// overwrite damages every file of the cache: with garbage, or by cutting it.
func overwrite(t *testing.T, disk *mem.FS, pass int) {
	t.Helper()
	shards, err := disk.ReadDir("/cache")
	must(t, err)
	n := 0
	for _, d := range shards {
		files, err := disk.ReadDir("/cache/" + d.Name())
		must(t, err)
		for _, e := range files {
			name := "/cache/" + d.Name() + "/" + e.Name()
			raw, err := fsys.ReadFile(disk, name)
			must(t, err)
			raw = raw[:len(raw)-1]
			if pass == 0 {
				raw = bytes.Repeat([]byte("garbage!"), len(raw)/8)
			}
			must(t, fsys.WriteFileAtomic(disk, name, raw, 0o600))
			n++
		}
	}
	if n != 7 { // six chunks and a companion
		t.Fatalf("%d files", n)
	}
}

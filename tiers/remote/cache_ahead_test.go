package remote_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

// zeros is a store whose records objects hold nothing but zeros, as large as one
// likes. It takes its time.
type zeros struct {
	remote.Bucket // the companions

	rate int64 // bytes per second of one body; 0: no limit

	mu      sync.Mutex
	latency time.Duration // before the first byte
	gets    []remote.Range
	keys    []string
}

func (z *zeros) Get(ctx context.Context, key string, r remote.Range) (io.ReadCloser, remote.Object, error) {
	z.mu.Lock()
	z.gets, z.keys = append(z.gets, r), append(z.keys, key)
	z.mu.Unlock()
	if err := sleep(ctx, z.delay()); err != nil {
		return nil, remote.Object{}, err
	}
	return &zeroBody{ctx: ctx, left: r.Len, rate: z.rate}, remote.Object{Key: key, Size: 1 << 40}, nil
}

func (z *zeros) ReadAt(ctx context.Context, key string, dst []byte, off int64) (int, error) {
	if err := sleep(ctx, z.delay()); err != nil {
		return 0, err
	}
	return z.Bucket.ReadAt(ctx, key, dst, off)
}

func (z *zeros) delay() time.Duration {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.latency
}

func (z *zeros) slow(latency time.Duration) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.latency = latency
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// asked is the requests for records so far.
func (z *zeros) asked() (gets []remote.Range, bytes int64) {
	z.mu.Lock()
	defer z.mu.Unlock()
	for _, r := range z.gets {
		bytes += r.Len
	}
	return slices.Clone(z.gets), bytes
}

type zeroBody struct {
	ctx  context.Context
	left int64
	rate int64
}

func (b *zeroBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	n := min(int64(len(p)), b.left)
	if b.rate > 0 {
		if err := sleep(b.ctx, time.Duration(n)*time.Second/time.Duration(b.rate)); err != nil {
			return 0, err
		}
	}
	clear(p[:n])
	b.left -= n
	return int(n), nil
}

func (*zeroBody) Close() error { return nil }

// segments puts the companions of n segments of zeros of a partition, one behind
// the other.
func (z *zeros) segments(t *testing.T, partition int32, n int, size int64) []tiers.RemoteSegment {
	t.Helper()
	_, m := sample(1)
	chunk := make([]byte, remote.ChunkSize)
	m.ChunkCRC = nil
	for at := int64(0); at < size; at += remote.ChunkSize {
		m.ChunkCRC = append(m.ChunkCRC, remote.CRC32C(chunk[:min(remote.ChunkSize, size-at)]))
	}
	m.Segment.Size, m.Segment.Partition.Index = size, partition
	var segs []tiers.RemoteSegment
	for i := range n {
		m.Segment.ID = tiers.SegmentID{byte(partition), byte(partition >> 8), byte(i), byte(i >> 8)}
		m.Segment.Base, m.Segment.End = tiers.Offset(1000*i), tiers.Offset(1000*(i+1))
		m.Segment.Epochs = tiers.Lineage{{Epoch: 3, Start: m.Segment.Base}}
		raw, err := remote.EncodeMeta(m)
		must(t, err)
		seg := m.Segment
		seg.MetaSize, seg.State = int64(len(raw)), tiers.CopyFinished
		_, err = z.Bucket.Put(t.Context(), remote.MetaKey(seg), remote.BytesBody(raw), remote.PutOptions{})
		must(t, err)
		segs = append(segs, seg)
	}
	return segs
}

func following(segs []tiers.RemoteSegment) remote.Following {
	return func(seg tiers.RemoteSegment) (next tiers.RemoteSegment, ok bool) {
		i := slices.IndexFunc(segs, func(s tiers.RemoteSegment) bool { return s.ID == seg.ID })
		if i < 0 || i+1 == len(segs) {
			return next, false
		}
		return segs[i+1], true
	}
}

// scan reads segments as a consumer does: n bytes at a time, each read a bit
// before the end of the last one, as if that had ended within a batch. It calls
// each with the place and the time that the read took.
func scan(t *testing.T, c *remote.Cache, segs []tiers.RemoteSegment, n, overlap int64, each func(seg int, off int64, took time.Duration)) {
	t.Helper()
	buf := make([]byte, n)
	for k, seg := range segs {
		for off := int64(0); off < seg.Size; {
			start := time.Now()
			c.Want(mustMeta(t, c, seg), off, n)
			got, err := c.ReadOn(t.Context(), seg, buf, off, following(segs))
			if err != nil && !errors.Is(err, io.EOF) {
				t.Error(err)
				return
			}
			if each != nil {
				each(k, off, time.Since(start))
			}
			off += int64(got)
			if off < seg.Size {
				off -= overlap
			}
		}
	}
}

func mustMeta(t *testing.T, c *remote.Cache, seg tiers.RemoteSegment) *remote.SegmentMeta {
	t.Helper()
	m, err := c.Meta(t.Context(), seg)
	must(t, err)
	return m
}

// A sequential reader costs few requests, and nothing is fetched twice.
func TestReadAheadRequestsPerGiB(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		z := &zeros{Bucket: memory.New(), latency: 30 * time.Millisecond, rate: 80 << 20}
		segs := z.segments(t, 0, 4, 128<<20)
		c := remote.NewCache(z, remote.CacheOptions{})
		defer c.Close()
		start := time.Now()
		scan(t, c, segs, 1<<20, 5000, nil)
		gets, bytes := z.asked()
		rate := float64(512) / time.Since(start).Seconds()
		t.Logf("%d requests for 512 MiB, %.0f MiB/s where one connection has 80 and a request takes 30 ms", len(gets), rate)
		if len(gets) > 160 {
			t.Errorf("%d requests for 512 MiB", len(gets))
		}
		if bytes != 512<<20 {
			t.Errorf("%d bytes were fetched of %d", bytes, 512<<20)
		}
		if rate < 110 {
			t.Errorf("%.0f MiB/s", rate)
		}
	})
}

// The first read of a reader asks for what it wants and nothing else; one that goes
// on is read ahead for, more each time, in halves of its window.
func TestReadAheadGrows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		z := &zeros{Bucket: memory.New()}
		segs := z.segments(t, 0, 1, 64<<20)
		c := remote.NewCache(z, remote.CacheOptions{})
		defer c.Close()
		far, largest := int64(0), int64(0)
		scan(t, c, segs, 1<<20, 0, func(_ int, off int64, _ time.Duration) {
			synctest.Wait()
			gets, bytes := z.asked()
			ahead := bytes - off - 1<<20
			if off == 0 && (ahead != 0 || len(gets) != 1) {
				t.Errorf("after the first read: %+v", gets)
			}
			far = max(far, ahead)
			for _, r := range gets {
				largest = max(largest, r.Len)
			}
			if off == 1<<20 && (ahead < remote.ChunkSize || ahead > 2<<20) {
				t.Errorf("%d bytes ahead after the second read", ahead)
			}
		})
		if far < 12<<20 || far > 16<<20 || largest != 4<<20 {
			t.Errorf("at most %d bytes ahead, at most %d in one request", far, largest)
		}
	})
}

// A reader that comes to the end of a segment finds the next one begun: its
// companion and its first chunks are there.
func TestReadAheadCrossesSegments(t *testing.T) {
	t.Parallel()
	for _, size := range []int64{16 << 20, 1<<20 + 777, 100_000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				z := &zeros{Bucket: memory.New(), latency: 50 * time.Millisecond}
				segs := z.segments(t, 0, int(min(40, 40<<20/size)), size)
				c := remote.NewCache(z, remote.CacheOptions{})
				defer c.Close()
				waited := 0
				scan(t, c, segs, 256<<10, 0, func(k int, off int64, took time.Duration) {
					time.Sleep(20 * time.Millisecond) // the consumer's work
					if k > 2 && off == 0 && took > 0 {
						waited++
					}
				})
				if waited > len(segs)/8 {
					t.Errorf("%d of %d segments were waited for at their beginning", waited, len(segs))
				}
				if _, bytes := z.asked(); bytes != size*int64(len(segs)) {
					t.Errorf("%d bytes were fetched of %d", bytes, size*int64(len(segs)))
				}
			})
		})
	}
}

// A segment that follows and cannot be read is nobody's trouble before a reader
// wants it.
func TestReadAheadFailsQuietly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		z := &zeros{Bucket: b}
		segs := z.segments(t, 0, 2, 1<<20)
		b.Add(memory.Fault{Key: remote.MetaKey(segs[1]), Err: remote.ErrUnavailable})
		c := remote.NewCache(z, remote.CacheOptions{})
		defer c.Close()
		scan(t, c, segs, 256<<10, 0, func(int, int64, time.Duration) { synctest.Wait() })
		if n := len(b.Calls(memory.OpReadAt, remote.MetaKey(segs[1]))); n != 2 {
			t.Errorf("%d reads of a companion that failed once", n)
		}
	})
}

// A segment that is copied while a reader comes to the end of the one before is
// fetched ahead as well.
func TestReadAheadAsksAgainWhatFollows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		z := &zeros{Bucket: b}
		segs := z.segments(t, 0, 2, 4<<20)
		c := remote.NewCache(z, remote.CacheOptions{})
		defer c.Close()
		buf := make([]byte, 256<<10)
		for off := int64(0); off < segs[0].Size; off += int64(len(buf)) {
			known := segs[:1]
			if off >= 3<<20 {
				known = segs
			}
			_, err := c.ReadOn(t.Context(), segs[0], buf, off, following(known))
			must(t, err)
			synctest.Wait()
		}
		if n := len(b.Calls(memory.OpReadAt, remote.MetaKey(segs[1]))); n != 1 {
			t.Errorf("its companion was fetched %d times", n)
		}
	})
}

// Look-ups, and readers that jump about, cost the chunks that they touch.
func TestRandomReadsAreNotReadAhead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		z := &zeros{Bucket: memory.New()}
		segs := z.segments(t, 0, 2, 64<<20)
		c := remote.NewCache(z, remote.CacheOptions{})
		defer c.Close()
		for i, off := range []int64{40 << 20, 10 << 20, 63 << 20, 3 << 20, 50 << 20} {
			if i%2 == 0 {
				_, err := c.ReadAt(t.Context(), segs[0], make([]byte, 100), off)
				must(t, err)
				_, err = c.ReadAt(t.Context(), segs[0], make([]byte, 100), off+100) // goes on, and is a look-up all the same
				must(t, err)
				continue
			}
			_, err := c.ReadOn(t.Context(), segs[0], make([]byte, 100), off, following(segs))
			must(t, err)
		}
		synctest.Wait()
		if gets, bytes := z.asked(); len(gets) != 5 || bytes != 5*remote.ChunkSize {
			t.Errorf("%d requests for %d bytes", len(gets), bytes)
		}
	})
}

// peers A7: readers that together want more than the cache holds all come to the
// end, at the price of what they read.
func TestManyReadersOnASmallCache(t *testing.T) {
	t.Parallel()
	const readers, size, limit = 64, 3 << 20, 4 << 20
	for name, o := range map[string]struct{ read, overlap int64 }{
		"small reads":                     {64 << 10, 5000},
		"default ones":                    {1 << 20, 5000},
		"batches of more than a chunk":    {1 << 20, 300 << 10},
		"batches of more than half of it": {1 << 20, 600 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				z := &zeros{Bucket: memory.New(), latency: 20 * time.Millisecond, rate: 50 << 20}
				reg := prometheus.NewPedanticRegistry()
				c := remote.NewCache(z, remote.CacheOptions{Bytes: limit, Registerer: reg})
				defer c.Close()
				start := time.Now()
				var wg sync.WaitGroup
				for i := range int32(readers) {
					segs := z.segments(t, i, 1, size)
					wg.Go(func() {
						scan(t, c, segs, o.read, o.overlap, func(int, int64, time.Duration) {
							got := gathered(t, reg)
							if held := got["strandline_remote_cache_chunk_bytes"] + got["strandline_remote_cache_meta_bytes"]; held > limit {
								t.Errorf("%.0f bytes are held", held)
							}
						})
					})
				}
				wg.Wait()
				gets, bytes := z.asked()
				t.Logf("%d requests, %.2f times the bytes, %v", len(gets), float64(bytes)/(readers*size), time.Since(start))
				bar := 10 * time.Second // 16 requests of 25 ms at a time need 1.2 s
				if o.overlap > remote.ChunkSize {
					bar = 20 * time.Second // the memory is for 5 of 30 ms at a time, and most is read twice
				}
				if took := time.Since(start); took > bar {
					t.Errorf("it took %v", took)
				}
				if ideal := readers * size / remote.ChunkSize; len(gets) > ideal*3/2 {
					t.Errorf("%d requests, one per chunk would be %d", len(gets), ideal)
				}
				if o.overlap < remote.ChunkSize && bytes > readers*size*3/2 { // not all can keep what they read again
					t.Errorf("%d bytes were fetched for %d", bytes, readers*size)
				}
			})
		})
	}
}

// The length of batches does not matter to a few readers, however small the cache:
// what they will read again is kept for them, and what they have fetched ahead is no
// reason to wait.
func TestFewReadersOnASmallCache(t *testing.T) {
	t.Parallel()
	const each, read = 32 << 20, 1 << 20
	for _, overlap := range []int64{0, 5000, 300 << 10, 600 << 10, 900 << 10, read - 10_000} {
		for readers, limit := range map[int32]int64{1: 8 << 20, 2: 16 << 20, 4: 32 << 20} {
			t.Run(fmt.Sprintf("%d/%d", overlap, readers), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					z := &zeros{Bucket: memory.New(), latency: 2 * time.Millisecond, rate: 400 << 20}
					c := remote.NewCache(z, remote.CacheOptions{Bytes: limit})
					defer c.Close()
					start := time.Now()
					var wg sync.WaitGroup
					for i := range readers {
						segs := z.segments(t, i, 4, each/4)
						wg.Go(func() { scan(t, c, segs, read, overlap, nil) })
					}
					wg.Wait()
					_, bytes := z.asked()
					total := int64(readers) * each
					if bytes > total*11/10 {
						t.Errorf("%d bytes were fetched for %d", bytes, total)
					}
					if rate := float64(total>>20) / time.Since(start).Seconds(); rate < 100 {
						t.Errorf("%.0f MiB/s", rate)
					}
				})
			})
		}
	}
}

// A reader that went away with a chunk half read does not keep the others from
// theirs.
func TestReadersThatLeaveFreeTheCache(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		z := &zeros{Bucket: memory.New()}
		c := remote.NewCache(z, remote.CacheOptions{Bytes: 4 * remote.ChunkSize, MetaBytes: 4096})
		defer c.Close()
		segs := z.segments(t, 0, 1, 64<<20)
		for i := range int64(3) {
			_, err := c.ReadOn(t.Context(), segs[0], make([]byte, 100), i*10<<20, nil)
			must(t, err)
		}
		start := time.Now()
		scan(t, c, z.segments(t, 1, 1, 4<<20), 64<<10, 0, nil)
		if took := time.Since(start); took > 3*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// A partition that wants much waits for its own turn, not the others for it.
func TestFetchesTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		z := &zeros{Bucket: memory.New(), latency: time.Second}
		c := remote.NewCache(z, remote.CacheOptions{Concurrency: 1, ReadAhead: -1})
		defer c.Close()
		deep := z.segments(t, 0, 1, 64<<20)[0]
		var others []tiers.RemoteSegment
		for i := range int32(3) {
			others = append(others, z.segments(t, 1+i, 1, 1<<20)[0])
		}
		for _, seg := range append(others, deep) {
			mustMeta(t, c, seg)
		}
		var wg sync.WaitGroup
		read := func(seg tiers.RemoteSegment, off int64) {
			wg.Go(func() {
				if _, err := c.ReadOn(t.Context(), seg, make([]byte, 10), off, nil); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait() // it is in the queue
		}
		for i := range int64(20) {
			read(deep, i*remote.ChunkSize)
		}
		start := time.Now()
		for _, seg := range others {
			read(seg, 0)
		}
		wg.Wait()
		z.mu.Lock()
		defer z.mu.Unlock()
		place := map[string]int{}
		for i, key := range z.keys {
			if _, there := place[key]; !there {
				place[key] = i
			}
		}
		for i, seg := range others {
			if at := place[remote.SegmentKey(seg)]; at > 2+i {
				t.Errorf("partition %d had turn %d of %d, after %v", i+1, at, len(z.keys), time.Since(start))
			}
		}
	})
}

// What nobody waits for never takes the last places.
func TestReadAheadLeavesPlaces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		z := &zeros{Bucket: memory.New()}
		c := remote.NewCache(z, remote.CacheOptions{Concurrency: 4})
		defer c.Close()
		var segs [][]tiers.RemoteSegment
		for i := range int32(6) {
			segs = append(segs, z.segments(t, i, 1, 32<<20))
			for off := range int64(3) { // sequential, with a fast store
				_, err := c.ReadOn(t.Context(), segs[i][0], make([]byte, 1<<20), off<<20, nil)
				must(t, err)
				synctest.Wait()
			}
		}
		z.slow(time.Minute) // from here on nothing comes back
		for _, s := range segs {
			_, err := c.ReadOn(t.Context(), s[0], make([]byte, 1000), 3<<20, nil) // it is there
			must(t, err)
		}
		fresh := z.segments(t, 100, 1, 1<<20)
		z.slow(0)
		start := time.Now()
		_, err := c.ReadOn(t.Context(), fresh[0], make([]byte, 1000), 0, nil)
		must(t, err)
		if took := time.Since(start); took > 0 {
			t.Errorf("a reader of another partition waited for %v", took)
		}
	})
}

// What is queued to be fetched ahead goes before, once a reader waits for it.
func TestReadAheadIsPromoted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		z := &zeros{Bucket: memory.New()}
		c := remote.NewCache(z, remote.CacheOptions{Concurrency: 4})
		defer c.Close()
		buf := make([]byte, 1<<20)
		read := func(seg tiers.RemoteSegment, off int64) {
			t.Helper()
			_, err := c.ReadOn(t.Context(), seg, buf, off<<20, nil)
			must(t, err)
		}
		var segs []tiers.RemoteSegment
		for i := range int32(4) {
			segs = append(segs, z.segments(t, i, 1, 64<<20)[0])
			for off := range int64(3) {
				read(segs[i], off)
				synctest.Wait()
			}
		}
		z.slow(time.Minute)
		for _, seg := range segs {
			read(seg, 3) // it is there, and has more fetched
		}
		synctest.Wait()
		_, there := z.asked()
		start := time.Now()
		for off := int64(4); time.Since(start) == 0; off++ {
			read(segs[3], off)
		}
		if took := time.Since(start); took != time.Minute {
			t.Errorf("the reader waited for %v, %d bytes had been asked for", took, there)
		}
	})
}

// With many readers no window takes more than its share.
func TestWindowsShareTheMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const readers, limit = 8, 12 << 20
		z := &zeros{Bucket: memory.New()}
		c := remote.NewCache(z, remote.CacheOptions{Bytes: limit + 1<<20, MetaBytes: 1 << 20})
		defer c.Close()
		var segs []tiers.RemoteSegment
		for i := range int32(readers) {
			segs = append(segs, z.segments(t, i, 1, 64<<20)[0])
		}
		buf := make([]byte, 256<<10)
		for off := int64(0); off < 32<<20; off += int64(len(buf)) {
			for i, seg := range segs {
				_, err := c.ReadOn(t.Context(), seg, buf, off, nil)
				must(t, err)
				synctest.Wait()
				if off < 1<<20 {
					continue // not all readers are known yet
				}
				ahead := int64(0)
				z.mu.Lock()
				for k, r := range z.gets {
					if z.keys[k] == remote.SegmentKey(seg) {
						ahead = max(ahead, r.Off+r.Len-off-int64(len(buf)))
					}
				}
				z.mu.Unlock()
				if share := int64(limit * 3 / 4 / readers); ahead > share {
					t.Fatalf("reader %d at %d has %d bytes ahead, its share is %d", i, off, ahead, share)
				}
			}
		}
		if _, bytes := z.asked(); bytes > readers*(32<<20)+limit {
			t.Errorf("%d bytes were fetched", bytes)
		}
	})
}

// A reader whose windows are large gets them though the store is slow.
func TestReadAheadOnASlowStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		z := &zeros{Bucket: memory.New(), latency: time.Second}
		c := remote.NewCache(z, remote.CacheOptions{Concurrency: 2})
		defer c.Close()
		seg := z.segments(t, 0, 1, 64<<20)[0]
		buf := make([]byte, 1<<20)
		for i := range int64(20) {
			_, err := c.ReadOn(t.Context(), seg, buf, i<<20, nil)
			must(t, err)
			if !bytes.Equal(buf, make([]byte, len(buf))) {
				t.Fatal("wrong bytes")
			}
		}
		if _, n := z.asked(); n > 36<<20 {
			t.Errorf("%d bytes were fetched", n)
		}
	})
}

package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/maypok86/otter/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/strandline-io/strandline/tiers"
)

// CacheOptions bound a Cache.
type CacheOptions struct {
	Bytes      int64 // memory for chunks, default 128 MiB
	MetaBytes  int64 // memory for decoded companions, default 64 MiB
	Registerer prometheus.Registerer

	// FetchTimeout bounds one fetch, its retries included; default 60 s. The
	// readers that wait have their own, shorter limits.
	FetchTimeout time.Duration
	// Concurrency is the number of fetches at once, default 16. While they are
	// all busy, nothing is read ahead.
	Concurrency int
	// ReadAhead is the number of chunks that are fetched beyond what a sequential
	// reader asked for, default 3; negative is none.
	ReadAhead int
}

func (o CacheOptions) withDefaults() CacheOptions {
	if o.Bytes <= 0 {
		o.Bytes = 128 << 20
	}
	if o.MetaBytes <= 0 {
		o.MetaBytes = 64 << 20
	}
	if o.FetchTimeout <= 0 {
		o.FetchTimeout = time.Minute
	}
	if o.Concurrency <= 0 {
		o.Concurrency = 16
	}
	if o.ReadAhead == 0 {
		o.ReadAhead = 3
	}
	o.ReadAhead = max(0, o.ReadAhead)
	return o
}

// Cache serves tiered reads: chunks of records objects and decoded companions,
// held in memory up to a limit. A chunk is fetched once however many readers
// wait for it, goes on if a reader leaves (report 060), and is kept only if its
// CRC-32C is that of the companion; a companion only if its own CRC holds.
//
// What fails its check is fetched once more, at once, and is an error then
// (ErrChecksum); it is never kept, so the next reader asks the store again
// (reports 030, 087).
//
// mu owns flights and closed. Fetches belong to the cache, not to a reader: they
// end by themselves, by FetchTimeout or by Close.
type Cache struct {
	bucket  Bucket
	o       CacheOptions
	chunks  *otter.Cache[chunkID, []byte]
	metas   *otter.Cache[tiers.SegmentID, *SegmentMeta]
	slots   chan struct{} // one token for each fetch that runs
	metrics cacheMetrics

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	flights map[chunkID]*flight[[]byte]
	looking map[tiers.SegmentID]*flight[*SegmentMeta]
}

type chunkID struct {
	segment tiers.SegmentID
	index   int64
}

// flight is one fetch that any number of readers wait for. val and err are set
// before done is closed.
type flight[V any] struct {
	done chan struct{}
	val  V
	err  error
}

func newFlight[V any]() *flight[V] { return &flight[V]{done: make(chan struct{})} }

func (f *flight[V]) wait(ctx context.Context) (V, error) {
	select {
	case <-f.done:
		return f.val, f.err
	case <-ctx.Done():
		var none V
		return none, ctx.Err()
	}
}

// NewCache returns a cache over b.
func NewCache(b Bucket, o CacheOptions) *Cache {
	o = o.withDefaults()
	c := &Cache{
		bucket: b, o: o,
		chunks: otter.Must(&otter.Options[chunkID, []byte]{
			MaximumWeight: uint64(o.Bytes),
			Weigher:       func(_ chunkID, b []byte) uint32 { return uint32(len(b)) },
		}),
		metas: otter.Must(&otter.Options[tiers.SegmentID, *SegmentMeta]{
			MaximumWeight: uint64(o.MetaBytes),
			Weigher:       func(_ tiers.SegmentID, m *SegmentMeta) uint32 { return uint32(m.Segment.MetaSize) + 512 },
		}),
		slots:   make(chan struct{}, o.Concurrency),
		flights: map[chunkID]*flight[[]byte]{},
		looking: map[tiers.SegmentID]*flight[*SegmentMeta]{},
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.metrics = newCacheMetrics(o.Registerer, func() float64 { return float64(c.chunks.WeightedSize()) },
		func() float64 { return float64(c.metas.WeightedSize()) })
	return c
}

// Bucket is the bucket behind the cache.
func (c *Cache) Bucket() Bucket { return c.bucket }

// Meta returns the companion of seg. It must not be changed.
func (c *Cache) Meta(ctx context.Context, seg tiers.RemoteSegment) (*SegmentMeta, error) {
	if m, ok := c.metas.GetIfPresent(seg.ID); ok {
		c.metrics.hits.WithLabelValues("meta").Inc()
		return m, nil
	}
	f, err := c.lookForMeta(seg)
	if err == nil {
		var m *SegmentMeta
		if m, err = f.wait(ctx); err == nil {
			return m, nil
		}
	}
	return nil, Fail("read companion", MetaKey(seg), err)
}

// ReadAt fills dst from offset off of the records object of seg; it reads fewer
// bytes only at the end, with io.EOF.
func (c *Cache) ReadAt(ctx context.Context, seg tiers.RemoteSegment, dst []byte, off int64) (int, error) {
	if off < 0 {
		return 0, Fail("read segment", SegmentKey(seg), fmt.Errorf("%w: offset %d", ErrRange, off))
	}
	meta, err := c.Meta(ctx, seg)
	if err != nil {
		return 0, err
	}
	want := dst[:max(0, min(int64(len(dst)), meta.Segment.Size-off))]
	n, err := c.readChunks(ctx, meta, want, off)
	c.metrics.served.Add(float64(n))
	switch {
	case err != nil:
		return n, Fail("read segment", SegmentKey(seg), err)
	case n < len(dst):
		return n, io.EOF
	}
	return n, nil
}

func (c *Cache) readChunks(ctx context.Context, meta *SegmentMeta, dst []byte, off int64) (int, error) {
	n := 0
	for n < len(dst) {
		at := off + int64(n)
		chunk, err := c.chunk(ctx, meta, at/ChunkSize, (off+int64(len(dst))-1)/ChunkSize)
		if err != nil {
			return n, err
		}
		n += copy(dst[n:], chunk[at%ChunkSize:])
	}
	return n, nil
}

// chunk returns chunk i for a reader that will go on to chunk last. Being there
// already makes the reader a sequential one, whose next chunks are fetched ahead.
func (c *Cache) chunk(ctx context.Context, meta *SegmentMeta, i, last int64) ([]byte, error) {
	id := chunkID{meta.Segment.ID, i}
	if b, ok := c.chunks.GetIfPresent(id); ok {
		c.metrics.hits.WithLabelValues("chunk").Inc()
		if i == last {
			c.readAhead(meta, i+1)
		}
		return b, nil
	}
	f, err := c.fetchChunks(meta, i, last)
	if err != nil {
		return nil, err
	}
	return f.wait(ctx)
}

// readAhead fetches chunk i and those after it if a slot is free and the reader
// came from the chunk before the one that it read last.
func (c *Cache) readAhead(meta *SegmentMeta, i int64) {
	if c.o.ReadAhead == 0 || i >= int64(len(meta.ChunkCRC)) || len(c.slots) == cap(c.slots) || !c.has(meta, i-2) || c.has(meta, i) {
		return
	}
	if _, err := c.fetchChunks(meta, i, i); err == nil {
		c.metrics.ahead.Inc()
	}
}

// has reports whether a chunk is cached. The one before the first counts.
func (c *Cache) has(meta *SegmentMeta, i int64) bool {
	if i < 0 {
		return true
	}
	_, ok := c.chunks.GetEntryQuietly(chunkID{meta.Segment.ID, i})
	return ok
}

// Close stops fetches under way and waits for them.
func (c *Cache) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	c.wg.Wait()
	c.chunks.StopAllGoroutines()
	c.metas.StopAllGoroutines()
}

var errCacheClosed = errors.New("the cache is closed")

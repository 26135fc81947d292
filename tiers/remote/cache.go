package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/strandline-io/strandline/tiers"
)

// CacheOptions bound a Cache.
type CacheOptions struct {
	// Bytes is the memory for all that the cache holds: chunks, decoded companions
	// and what fetches under way will bring; default 192 MiB.
	Bytes int64
	// MetaBytes is how much of Bytes is for companions, default a third; at most half.
	MetaBytes int64
	// Disk is where more pieces are kept. Nil: nowhere.
	Disk       PieceStore
	Registerer prometheus.Registerer

	// FetchTimeout bounds one fetch, its retries included, but not what a limit of
	// our own holds it back; default 60 s. The readers that wait have their own,
	// shorter limits.
	FetchTimeout time.Duration
	// Concurrency is the number of fetches at once, default 16. A quarter of them
	// is kept for what readers wait for, and so is a quarter from any one partition.
	Concurrency int
	// ReadAhead is the most bytes that are fetched beyond what a sequential reader
	// asked for, default 16 MiB; negative is none.
	ReadAhead int64
}

func (o CacheOptions) withDefaults() CacheOptions {
	if o.Bytes <= 0 {
		o.Bytes = 192 << 20
	}
	o.Bytes = max(o.Bytes, 4*ChunkSize)
	if o.MetaBytes <= 0 {
		o.MetaBytes = o.Bytes / 3
	}
	o.MetaBytes = min(o.MetaBytes, o.Bytes/2)
	if o.FetchTimeout <= 0 {
		o.FetchTimeout = time.Minute
	}
	if o.Concurrency <= 0 {
		o.Concurrency = 16
	}
	if o.ReadAhead == 0 {
		o.ReadAhead = 16 << 20
	}
	o.ReadAhead = max(0, o.ReadAhead)
	return o
}

// PieceID names what the cache keeps: a chunk of a segment's records object, or
// its companion.
type PieceID struct {
	Segment tiers.SegmentID
	Chunk   int64 // MetaPiece: the companion
}

// MetaPiece is the Chunk of a companion.
const MetaPiece = -1

// PieceStore keeps pieces outside of memory. It is a convenience: it may forget,
// refuse or lose any of them at any time. It verifies what it returns against
// what it was given. All methods are safe for concurrent use.
type PieceStore interface {
	// Has reports whether the piece is probably there, without waiting for a disk.
	Has(id PieceID) bool
	// Get returns the piece, nil if it is not there or not as it was given.
	Get(id PieceID) []byte
	// Put keeps b, later and if it can. It does not wait; b must never change.
	Put(id PieceID, b []byte)
	// Drop forgets the piece, which was found to be wrong.
	Drop(id PieceID)
}

// Cache serves tiered reads: chunks of records objects and decoded companions,
// held in memory up to one limit, and on disk up to another. A chunk is fetched
// once however many readers wait for it, goes on if a reader leaves (report 060),
// and is kept only if its CRC-32C is that of the companion; a companion only if
// its own CRC holds.
//
// What fails its check is fetched once more, at once, and is an error then
// (ErrChecksum); it is never kept, so the next reader asks the store again
// (reports 030, 087).
//
// A sequential reader is read ahead for, across the ends of segments, in few
// large requests. Fetches take turns by partition, and what a reader waits for goes
// before what was only thought of. A chunk that somebody is in the middle of, or
// has not come to yet, is held for a while: readers that together want more than
// there is memory wait for each other instead of taking each other's chunks away.
//
// mu owns all fields below it. It is never held while anything is read. Fetches
// belong to the cache, not to a reader: they end by themselves, by FetchTimeout or
// by Close.
type Cache struct {
	bucket  Bucket
	o       CacheOptions
	metrics cacheMetrics

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	shelf   shelf
	flights map[PieceID]*flight
	queue   queue
	streams streams
	alarm   *time.Timer // wakes the queue when the next hold ends; nil: not set
}

// flight is one piece that is being fetched and that any number of readers wait
// for. chunk or meta, and err are set before done is closed.
type flight struct {
	job   *job
	done  chan struct{}
	chunk []byte
	meta  *SegmentMeta
	err   error
}

func (f *flight) wait(ctx context.Context) error {
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// NewCache returns a cache over b.
func NewCache(b Bucket, o CacheOptions) *Cache {
	o = o.withDefaults()
	c := &Cache{
		bucket: b, o: o,
		shelf:   newShelf(o.Bytes-o.MetaBytes, o.MetaBytes),
		flights: map[PieceID]*flight{},
		queue:   newQueue(o.Concurrency),
		streams: newStreams(),
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.metrics = newCacheMetrics(o.Registerer, c.gauge(func(s *shelf) int64 { return s.chunks.used }), c.gauge(func(s *shelf) int64 { return s.metas.used }))
	return c
}

func (c *Cache) gauge(of func(*shelf) int64) func() float64 {
	return func() float64 {
		c.mu.Lock()
		defer c.mu.Unlock()
		return float64(of(&c.shelf))
	}
}

// Bucket is the bucket behind the cache.
func (c *Cache) Bucket() Bucket { return c.bucket }

// Meta returns the companion of seg, with indexes that are thinned out: look-ups
// in them land a little earlier. It must not be changed.
func (c *Cache) Meta(ctx context.Context, seg tiers.RemoteSegment) (*SegmentMeta, error) {
	m, f, err := c.findMeta(seg, false)
	if err == nil && f != nil {
		if err = f.wait(ctx); err == nil {
			m = f.meta
		}
	}
	if err != nil {
		return nil, Fail("read companion", MetaKey(seg), err)
	}
	return m, nil
}

// ReadAt fills dst from offset off of the records object of seg; it reads fewer
// bytes only at the end, with io.EOF. It is for reads here and there: nothing is
// fetched but the chunks that it needs.
func (c *Cache) ReadAt(ctx context.Context, seg tiers.RemoteSegment, dst []byte, off int64) (int, error) {
	meta, err := c.Meta(ctx, seg)
	if err != nil {
		return 0, err
	}
	return c.ReadAtWith(ctx, meta, dst, off)
}

// ReadAtWith is ReadAt for who has the companion.
func (c *Cache) ReadAtWith(ctx context.Context, meta *SegmentMeta, dst []byte, off int64) (int, error) {
	return c.read(ctx, meta, dst, off, nil)
}

// Following tells which segment comes after another one of the same partition. ok
// is false if there is none in the bucket, or it does not begin where the other
// ends.
type Following func(seg tiers.RemoteSegment) (next tiers.RemoteSegment, ok bool)

// ReadOn is ReadAt for whoever reads a log from one end to the other. If the read
// goes on where one of the last reads ended, what comes next is fetched ahead,
// from the segments that follow too. follow may be nil.
func (c *Cache) ReadOn(ctx context.Context, seg tiers.RemoteSegment, dst []byte, off int64, follow Following) (int, error) {
	meta, err := c.Meta(ctx, seg)
	if err != nil {
		return 0, err
	}
	return c.ReadOnWith(ctx, meta, dst, off, follow)
}

// ReadOnWith is ReadOn for who has the companion.
func (c *Cache) ReadOnWith(ctx context.Context, meta *SegmentMeta, dst []byte, off int64, follow Following) (int, error) {
	if follow == nil {
		follow = func(tiers.RemoteSegment) (none tiers.RemoteSegment, ok bool) { return none, false }
	}
	return c.read(ctx, meta, dst, off, follow)
}

func (c *Cache) read(ctx context.Context, meta *SegmentMeta, dst []byte, off int64, follow Following) (int, error) {
	if off < 0 {
		return 0, Fail("read segment", SegmentKey(meta.Segment), fmt.Errorf("%w: offset %d", ErrRange, off))
	}
	want := dst[:max(0, min(int64(len(dst)), meta.Segment.Size-off))]
	var passed int64
	if follow != nil && len(want) > 0 {
		passed = c.sequential(meta, off, int64(len(want)), follow)
	}
	n, err := c.readChunks(ctx, meta, want, off, passed)
	c.metrics.served.Add(float64(n))
	switch {
	case err != nil:
		return n, Fail("read segment", SegmentKey(meta.Segment), err)
	case n < len(dst):
		return n, io.EOF
	}
	return n, nil
}

// readChunks copies chunk after chunk. The reader will not come back for what is
// below passed: a chunk that ends there needs to be held for it no longer.
func (c *Cache) readChunks(ctx context.Context, meta *SegmentMeta, dst []byte, off, passed int64) (int, error) {
	n := 0
	for n < len(dst) {
		at := off + int64(n)
		i := at / ChunkSize
		chunk, err := c.chunk(ctx, meta, i, (off+int64(len(dst))-1)/ChunkSize)
		if err != nil {
			return n, err
		}
		n += copy(dst[n:], chunk[at%ChunkSize:])
		c.took(PieceID{meta.Segment.ID, i}, i*ChunkSize+int64(len(chunk)) <= passed)
	}
	return n, nil
}

// chunk returns chunk i for a reader that will go on to chunk last.
func (c *Cache) chunk(ctx context.Context, meta *SegmentMeta, i, last int64) ([]byte, error) {
	b, f, err := c.findChunk(meta, i, last)
	if err != nil || f == nil {
		return b, err
	}
	if err = f.wait(ctx); err != nil {
		return nil, err
	}
	return f.chunk, nil
}

// findChunk is the chunk, or the flight that will bring it.
func (c *Cache) findChunk(meta *SegmentMeta, i, last int64) ([]byte, *flight, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := PieceID{meta.Segment.ID, i}
	if e := c.shelf.get(id); e != nil {
		c.metrics.hits.WithLabelValues("chunk").Inc()
		return e.chunk, nil, nil
	}
	if c.closed {
		return nil, nil, tiers.E(tiers.Closed, "", "", "%w", errCacheClosed)
	}
	if c.flights[id] == nil {
		c.metrics.misses.WithLabelValues("chunk").Inc()
		c.fetch(meta, i, min(last+1, i+maxDemand), false)
	} else {
		c.metrics.joined.WithLabelValues("chunk").Inc()
		c.queue.promote(c.flights[id].job)
	}
	f := c.flights[id]
	c.pump()
	return nil, f, nil
}

// took notes that a reader has got the piece; passed, that it needs it no more.
func (c *Cache) took(id PieceID, passed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shelf.touch(id, passed, time.Now()) {
		c.pump()
	}
}

// Want begins to fetch the chunks of n bytes from off on, for somebody who is about
// to read them all.
func (c *Cache) Want(meta *SegmentMeta, off, n int64) {
	end := min(off+n, meta.Segment.Size)
	if off < 0 || off >= end {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	first := off / ChunkSize
	c.fetch(meta, first, min((end-1)/ChunkSize+1, first+maxDemand), false)
	c.pump()
}

// Close stops fetches under way and waits for them.
func (c *Cache) Close() {
	c.mu.Lock()
	c.closed = true
	waiting := c.queue.empty()
	if c.alarm != nil {
		c.alarm.Stop()
	}
	c.mu.Unlock()
	c.cancel()
	for _, j := range waiting {
		c.fail(j, 0, tiers.E(tiers.Closed, "", "", "%w", errCacheClosed))
	}
	c.wg.Wait()
}

var errCacheClosed = errors.New("the cache is closed")

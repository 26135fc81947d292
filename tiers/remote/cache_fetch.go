package remote

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/strandline-io/strandline/tiers"
)

// lookForMeta joins the fetch of a companion, or starts it.
func (c *Cache) lookForMeta(seg tiers.RemoteSegment) (*flight[*SegmentMeta], error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, tiers.E(tiers.Closed, "", "", "%w", errCacheClosed)
	}
	if f := c.looking[seg.ID]; f != nil {
		c.metrics.joined.WithLabelValues("meta").Inc()
		return f, nil
	}
	f := newFlight[*SegmentMeta]()
	c.looking[seg.ID] = f
	c.metrics.misses.WithLabelValues("meta").Inc()
	c.wg.Go(func() {
		f.val, f.err = c.loadMeta(seg)
		if f.err == nil {
			c.metas.Set(seg.ID, f.val)
		}
		c.mu.Lock()
		delete(c.looking, seg.ID)
		c.mu.Unlock()
		close(f.done)
	})
	return f, nil
}

func (c *Cache) loadMeta(seg tiers.RemoteSegment) (*SegmentMeta, error) {
	ctx, done, err := c.slot()
	if err != nil {
		return nil, err
	}
	defer done()
	m, err := c.fetchMeta(ctx, seg)
	if errors.Is(err, ErrChecksum) {
		c.metrics.damaged.WithLabelValues("meta").Inc()
		m, err = c.fetchMeta(ctx, seg)
	}
	return m, err
}

func (c *Cache) fetchMeta(ctx context.Context, seg tiers.RemoteSegment) (*SegmentMeta, error) {
	key, size := MetaKey(seg), seg.MetaSize
	if size <= 0 {
		o, err := c.bucket.Stat(ctx, key)
		if err != nil {
			return nil, err
		}
		size = o.Size
	}
	if size > MaxMetaSize {
		return nil, fmt.Errorf("%w: companion of %d bytes, at most %d", ErrChecksum, size, MaxMetaSize)
	}
	b := make([]byte, size)
	n, err := c.bucket.ReadAt(ctx, key, b, 0)
	c.metrics.fetched.WithLabelValues("meta").Add(float64(n))
	if err = shortIsDamaged(err); err != nil {
		return nil, err
	}
	m, err := DecodeMeta(b)
	if err != nil {
		return nil, err
	}
	if got := m.Segment; got.ID != seg.ID || got.Partition != seg.Partition || seg.Size > 0 && got.Size != seg.Size {
		return nil, fmt.Errorf("%w: the companion is of segment %s of %s with %d bytes, not of %s of %s with %d",
			ErrChecksum, got.ID, got.Partition, got.Size, seg.ID, seg.Partition, seg.Size)
	}
	return m, nil
}

// shortIsDamaged makes ErrChecksum of an object that ends too early: what was to
// be read lies within the size that is known of it.
func shortIsDamaged(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, ErrRange) {
		return fmt.Errorf("%w: the object is shorter than it should be: %w", ErrChecksum, err)
	}
	return err
}

// slot waits for the turn of a fetch and gives it a context.
func (c *Cache) slot() (context.Context, func(), error) {
	select {
	case c.slots <- struct{}{}:
	case <-c.ctx.Done():
		return nil, nil, tiers.E(tiers.Closed, "", "", "%w", errCacheClosed)
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.o.FetchTimeout)
	return ctx, func() { cancel(); <-c.slots }, nil
}

// fetchChunks joins the fetch of chunk i, or starts one of i up to last and
// beyond, as far as chunks are missing: one request.
func (c *Cache) fetchChunks(meta *SegmentMeta, i, last int64) (*flight[[]byte], error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, tiers.E(tiers.Closed, "", "", "%w", errCacheClosed)
	}
	if f := c.flights[chunkID{meta.Segment.ID, i}]; f != nil {
		c.metrics.joined.WithLabelValues("chunk").Inc()
		return f, nil
	}
	// The chunk may have landed between the look into the cache and the lock.
	if b, ok := c.chunks.GetIfPresent(chunkID{meta.Segment.ID, i}); ok {
		f := newFlight[[]byte]()
		f.val = b
		close(f.done)
		return f, nil
	}
	run := c.missing(meta, i, last)
	c.metrics.misses.WithLabelValues("chunk").Inc()
	c.wg.Go(func() { c.loadChunks(meta, i, run) })
	return run[0], nil
}

// maxRun bounds the chunks of one request, and so what one fetch holds.
const maxRun = 16

// missing registers flights for the run of chunks from i on that nobody has or
// fetches. It ends with the chunk last, or ReadAhead chunks later if the reader
// is a sequential one.
func (c *Cache) missing(meta *SegmentMeta, i, last int64) []*flight[[]byte] {
	end := last + 1
	if c.has(meta, i-1) {
		end += int64(c.o.ReadAhead)
	}
	end = min(end, i+maxRun, int64(len(meta.ChunkCRC)))
	var run []*flight[[]byte]
	for j := i; j < end; j++ {
		id := chunkID{meta.Segment.ID, j}
		if j > i && (c.flights[id] != nil || c.has(meta, j)) {
			break
		}
		f := newFlight[[]byte]()
		c.flights[id] = f
		run = append(run, f)
	}
	return run
}

// loadChunks fetches the run that begins at chunk i and lands each flight as
// soon as its chunk is there.
func (c *Cache) loadChunks(meta *SegmentMeta, i int64, run []*flight[[]byte]) {
	ctx, done, err := c.slot()
	if err != nil {
		c.failRest(meta, i, run, err)
		return
	}
	defer done()
	from := i * ChunkSize
	want := min(meta.Segment.Size, (i+int64(len(run)))*ChunkSize) - from
	body, _, err := c.bucket.Get(ctx, SegmentKey(meta.Segment), Range{Off: from, Len: want})
	if err != nil {
		c.failRest(meta, i, run, shortIsDamaged(err))
		return
	}
	defer func() { _ = body.Close() }() // it was only read
	for k, f := range run {
		f.val, f.err = c.readChunk(ctx, meta, i+int64(k), body)
		if f.err != nil && !errors.Is(f.err, ErrChecksum) {
			c.failRest(meta, i+int64(k), run[k:], f.err)
			return
		}
		c.land(meta, i+int64(k), f) // one that is damaged says nothing of the next
	}
	_, _ = io.Copy(io.Discard, body) // at the end of its body a connection can be used again
}

func (c *Cache) failRest(meta *SegmentMeta, i int64, run []*flight[[]byte], err error) {
	for k, f := range run {
		f.err = err
		c.land(meta, i+int64(k), f)
	}
}

// land ends a flight: the chunk is cached if it is good, the readers go on.
func (c *Cache) land(meta *SegmentMeta, i int64, f *flight[[]byte]) {
	id := chunkID{meta.Segment.ID, i}
	if f.err == nil {
		c.chunks.Set(id, f.val)
	} else {
		f.val = nil
	}
	c.mu.Lock()
	delete(c.flights, id)
	c.mu.Unlock()
	close(f.done)
}

// readChunk takes the next chunk from body, and from a request of its own if
// that one is damaged or cut. A body that was cut yields nothing more, so each
// later chunk is asked for by itself.
func (c *Cache) readChunk(ctx context.Context, meta *SegmentMeta, i int64, body io.Reader) ([]byte, error) {
	b := make([]byte, min(ChunkSize, meta.Segment.Size-i*ChunkSize))
	n, err := io.ReadFull(body, b)
	c.metrics.fetched.WithLabelValues("chunk").Add(float64(n))
	if err == nil && CRC32C(b) == meta.ChunkCRC[i] {
		return b, nil
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err == nil {
		c.metrics.damaged.WithLabelValues("chunk").Inc()
	}
	n, again := c.bucket.ReadAt(ctx, SegmentKey(meta.Segment), b, i*ChunkSize)
	c.metrics.fetched.WithLabelValues("chunk").Add(float64(n))
	if again = shortIsDamaged(again); again != nil {
		return nil, again
	}
	if got := CRC32C(b); got != meta.ChunkCRC[i] {
		c.metrics.damaged.WithLabelValues("chunk").Inc()
		c.metas.Invalidate(meta.Segment.ID) // in case it is the companion that is wrong in memory
		return nil, fmt.Errorf("%w: chunk %d has CRC-32C %08x, the companion says %08x", ErrChecksum, i, got, meta.ChunkCRC[i])
	}
	return b, nil
}

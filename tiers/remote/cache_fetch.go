package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/strandline-io/strandline/tiers"
)

// errFetchTimeout is why a fetch ends that took too long.
var errFetchTimeout = errors.New("the fetch took too long")

const (
	// maxRun bounds the chunks of one request, 4 MiB: a request costs the same
	// whatever its size, and this much takes longer to send than to ask for.
	maxRun = 16
	// maxDemand bounds the chunks that one reader makes the cache fetch at once; they
	// come in several requests side by side.
	maxDemand = 2 * maxRun
)

// findMeta is the companion, or the flight that will bring it. ahead says that
// nobody waits for it.
func (c *Cache) findMeta(seg tiers.RemoteSegment, ahead bool) (*SegmentMeta, *flight, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := PieceID{seg.ID, MetaPiece}
	if p := c.shelf.get(id); p != nil {
		c.shelf.touch(id, false, time.Now())
		if !ahead {
			c.metrics.hits.WithLabelValues("meta").Inc()
		}
		return p.meta, nil, nil
	}
	if c.closed {
		return nil, nil, tiers.E(tiers.Closed, "", "", "%w", errCacheClosed)
	}
	f := c.flights[id]
	switch {
	case f == nil:
		j := &job{seg: seg, size: max(seg.MetaSize, 1), ahead: ahead, disk: c.onDisk(id)}
		f = &flight{job: j, done: make(chan struct{})}
		j.run = []*flight{f}
		c.flights[id] = f
		c.queue.push(j)
		c.metrics.misses.WithLabelValues("meta").Inc()
	case !ahead:
		c.metrics.joined.WithLabelValues("meta").Inc()
		c.queue.promote(f.job)
	}
	c.pump()
	return nil, f, nil
}

func (c *Cache) onDisk(id PieceID) bool { return c.o.Disk != nil && c.o.Disk.Has(id) }

// fetch queues what is missing of the chunks [i,end), in as few requests as their
// greatest size and the memory allow. c.mu is held; the caller pumps.
func (c *Cache) fetch(meta *SegmentMeta, i, end int64, ahead bool) {
	most := int(max(1, min(maxRun, c.shelf.chunks.limit/4/ChunkSize)))
	var j *job
	flush := func() {
		if j != nil {
			c.queue.push(j)
		}
		j = nil
	}
	for ; i < min(end, int64(len(meta.ChunkCRC))); i++ {
		id := PieceID{meta.Segment.ID, i}
		if f := c.flights[id]; f != nil || c.shelf.get(id) != nil {
			flush()
			if f != nil && !ahead {
				c.queue.promote(f.job)
			}
			continue
		}
		disk := c.onDisk(id)
		if j != nil && (len(j.run) == most || j.disk != disk) {
			flush()
		}
		if j == nil {
			j = &job{seg: meta.Segment, meta: meta, first: i, ahead: ahead, disk: disk}
		}
		f := &flight{job: j, done: make(chan struct{})}
		c.flights[id] = f
		j.run = append(j.run, f)
		j.size += j.bytes(len(j.run) - 1)
	}
	flush()
}

// run does a job that has its place and memory.
func (c *Cache) run(j *job) {
	ctx, cancel := WithPatience(c.ctx, c.o.FetchTimeout, errFetchTimeout)
	defer cancel()
	if j.meta == nil {
		c.runMeta(ctx, j)
	} else {
		c.runChunks(ctx, j)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue.end(j)
	c.pump()
}

func (c *Cache) runMeta(ctx context.Context, j *job) {
	f := j.run[0]
	f.meta, f.err = c.loadMeta(ctx, j)
	if f.err != nil {
		c.fail(j, 0, f.err)
		return
	}
	c.land(j, 0, &piece{meta: f.meta, size: metaSize(f.meta)})
}

func (c *Cache) loadMeta(ctx context.Context, j *job) (*SegmentMeta, error) {
	if j.disk {
		if m, err := checkMeta(c.o.Disk.Get(j.id(0)), j.seg); err == nil {
			return thinned(m), nil
		}
		c.o.Disk.Drop(j.id(0))
	}
	b, m, err := c.fetchMeta(ctx, j.seg)
	if errors.Is(err, ErrChecksum) {
		c.metrics.damaged.WithLabelValues("meta").Inc()
		b, m, err = c.fetchMeta(ctx, j.seg)
	}
	if err != nil {
		return nil, err
	}
	if c.o.Disk != nil {
		c.o.Disk.Put(j.id(0), b)
	}
	return thinned(m), nil
}

func (c *Cache) fetchMeta(ctx context.Context, seg tiers.RemoteSegment) ([]byte, *SegmentMeta, error) {
	key, size := MetaKey(seg), seg.MetaSize
	if size <= 0 {
		o, err := c.bucket.Stat(ctx, key)
		if err != nil {
			return nil, nil, err
		}
		size = o.Size
	}
	if size > MaxMetaSize {
		return nil, nil, fmt.Errorf("%w: companion of %d bytes, at most %d", ErrChecksum, size, MaxMetaSize)
	}
	b := make([]byte, size)
	n, err := c.bucket.ReadAt(ctx, key, b, 0)
	c.metrics.fetched.WithLabelValues("meta").Add(float64(n))
	if err = shortIsDamaged(err); err != nil {
		return nil, nil, err
	}
	m, err := checkMeta(b, seg)
	return b, m, err
}

// checkMeta decodes a companion, which must be that of seg.
func checkMeta(b []byte, seg tiers.RemoteSegment) (*SegmentMeta, error) {
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

// runChunks lands each chunk as soon as it is there.
func (c *Cache) runChunks(ctx context.Context, j *job) {
	k := 0
	for j.disk && k < len(j.run) {
		b := c.o.Disk.Get(j.id(k))
		if int64(len(b)) != j.bytes(k) || CRC32C(b) != j.meta.ChunkCRC[j.first+int64(k)] {
			c.o.Disk.Drop(j.id(k))
			break // the rest may have gone the same way, and one request has it all
		}
		c.landChunk(j, k, b)
		k++
	}
	// A body that breaks off for good is asked for once more.
	for tries := 0; k < len(j.run); {
		var err error
		if k, err = c.runBody(ctx, j, k); err == nil {
			continue
		}
		if tries++; tries > 1 || ctx.Err() != nil || !brokeOff(err) {
			c.fail(j, k, err)
			return
		}
	}
}

// errBrokeOff marks the end of a body that came too early.
var errBrokeOff = errors.New("the body broke off")

func brokeOff(err error) bool { return errors.Is(err, errBrokeOff) }

// runBody is one request for the chunks from the k-th on. It returns the first
// that did not come, or that comes after one that was damaged.
func (c *Cache) runBody(ctx context.Context, j *job, k int) (int, error) {
	from := (j.first + int64(k)) * ChunkSize
	want := min(j.meta.Segment.Size, (j.first+int64(len(j.run)))*ChunkSize) - from
	body, _, err := c.bucket.Get(ctx, SegmentKey(j.seg), Range{Off: from, Len: want})
	if err != nil {
		return k, shortIsDamaged(err)
	}
	closed := sync.OnceFunc(func() { _ = body.Close() }) // it was only read
	defer closed()
	for ; k < len(j.run); k++ {
		b := make([]byte, j.bytes(k))
		n, err := io.ReadFull(body, b)
		c.metrics.fetched.WithLabelValues("chunk").Add(float64(n))
		if err != nil {
			return k, fmt.Errorf("%w: %w", errBrokeOff, shortIsDamaged(err))
		}
		if CRC32C(b) != j.meta.ChunkCRC[j.first+int64(k)] {
			c.metrics.damaged.WithLabelValues("chunk").Inc()
			closed() // whoever holds a place in a lane must not wait for another one
			return c.mendChunk(ctx, j, k, b)
		}
		c.keepChunk(j, k, b)
	}
	_, _ = io.Copy(io.Discard, body) // at the end of its body a connection can be used again
	return k, nil
}

// mendChunk lands a chunk that came damaged, or fails it alone: one that is damaged
// says nothing of the next.
func (c *Cache) mendChunk(ctx context.Context, j *job, k int, b []byte) (int, error) {
	err := c.again(ctx, j, k, b)
	switch {
	case err == nil:
		c.keepChunk(j, k, b)
	case ctx.Err() == nil && errors.Is(err, ErrChecksum):
		c.failOne(j, k, err)
	default:
		return k, err
	}
	return k + 1, nil
}

// again asks for a chunk that came damaged once more, by itself.
func (c *Cache) again(ctx context.Context, j *job, k int, b []byte) error {
	i := j.first + int64(k)
	n, err := c.bucket.ReadAt(ctx, SegmentKey(j.seg), b, i*ChunkSize)
	c.metrics.fetched.WithLabelValues("chunk").Add(float64(n))
	if err = shortIsDamaged(err); err != nil {
		return err
	}
	if got := CRC32C(b); got != j.meta.ChunkCRC[i] {
		c.metrics.damaged.WithLabelValues("chunk").Inc()
		c.distrust(PieceID{j.seg.ID, MetaPiece}) // in case it is the companion that is wrong
		return fmt.Errorf("%w: chunk %d has CRC-32C %08x, the companion says %08x", ErrChecksum, i, got, j.meta.ChunkCRC[i])
	}
	return nil
}

func (c *Cache) distrust(id PieceID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shelf.forget(id)
}

// keepChunk lands a chunk that came from the bucket.
func (c *Cache) keepChunk(j *job, k int, b []byte) {
	if c.o.Disk != nil {
		c.o.Disk.Put(j.id(k), b)
	}
	c.landChunk(j, k, b)
}

func (c *Cache) landChunk(j *job, k int, b []byte) {
	j.run[k].chunk = b
	c.land(j, k, &piece{chunk: b, size: int64(len(b))})
}

// land ends a flight that went well: its piece is on the shelf, its readers go on.
func (c *Cache) land(j *job, k int, p *piece) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.id, p.unread = j.id(k), j.ahead
	c.shelf.release(p.id, j.bytes(k))
	now := time.Now()
	c.shelf.put(p, now)
	delete(c.flights, p.id)
	close(j.run[k].done)
}

// fail ends the flights from the k-th on, none of which has landed.
func (c *Cache) fail(j *job, k int, err error) {
	for ; k < len(j.run); k++ {
		c.failOne(j, k, err)
	}
}

func (c *Cache) failOne(j *job, k int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if j.begun {
		c.shelf.release(j.id(k), j.bytes(k))
	}
	f := j.run[k]
	f.err = err
	delete(c.flights, j.id(k))
	close(f.done)
}

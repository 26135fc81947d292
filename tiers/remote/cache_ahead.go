package remote

import (
	"container/list"
	"time"

	"github.com/strandline-io/strandline/tiers"
)

// What is read ahead of a sequential reader.
//
// A stream is what is known of one reader of one segment: nobody tells the cache
// who reads, so it is told by where the last read ended. A new one gets what it asks
// for and nothing else, so that look-ups cost one chunk. From its second read on it
// has a window of bytes beyond what it read, which begins small, doubles each time
// that a quarter of it was used up, and is asked for in quarters: large requests,
// up to four of them side by side, because one connection alone is slow where the
// latency is high.
//
// All windows together take at most three quarters of the memory: with more
// readers each is smaller, down to none.

const (
	// firstWindow is the window of a reader that has just shown to be sequential.
	firstWindow = 2 * ChunkSize
	// usefulPiece is what a request should ask for if the window is not tiny.
	usefulPiece = 4 * ChunkSize
	// maxStreams bounds what is remembered of readers.
	maxStreams = 4096
	// maxIdle is how long a reader is remembered that does not come back, and with it
	// the companion that it needs to be read ahead for.
	maxIdle = time.Minute
	// lively is how long after its last read a stream counts as a reader.
	lively = 5 * time.Second
)

// stream belongs to the Cache's mu.
type stream struct {
	seg      tiers.RemoteSegment
	count    int64        // its chunks
	meta     *SegmentMeta // while there are chunks to ask for
	from, to int64        // bytes of the last read
	window   int64        // bytes; 0: not sequential so far
	overlap  int64        // bytes of a read that the next one reads again, as far as is known
	frontier int64        // the first chunk that was not asked for
	next     *stream
	crossing bool // the segment that follows is being looked for, or is next
	shrink   bool // some of its window was given up unread

	last  time.Time
	place *list.Element
}

// border is where a segment of a partition ends, and the next one begins.
type border struct {
	partition tiers.PartitionID
	at        tiers.Offset
}

func (s *stream) end() border { return border{s.seg.Partition, s.seg.End} }

func newStream(meta *SegmentMeta, now time.Time) *stream {
	return &stream{seg: meta.Segment, count: int64(len(meta.ChunkCRC)), meta: meta, last: now}
}

// slim lets go of the companion once nothing is left to ask for with it: many readers
// that have passed would hold more than the cache may.
func (s *stream) slim() {
	if s.frontier >= s.count {
		s.meta = nil
	}
}

// over reports whether the reader has come to the end of the segment.
func (s *stream) over() bool { return s.to >= s.seg.Size }

// chunks is how many the segment has.
func (s *stream) chunks() int64 { return s.count }

// ahead is how many bytes beyond the last read were asked for, in this segment.
func (s *stream) ahead() int64 {
	return max(0, min(s.frontier*ChunkSize, s.seg.Size)-s.to)
}

// streams is a table of them.
type streams struct {
	of     map[tiers.SegmentID][]*stream
	ended  map[border]*stream // the last reader that came there
	recent *list.List         // of *stream, the last used at the back
}

func newStreams() streams {
	return streams{of: map[tiers.SegmentID][]*stream{}, ended: map[border]*stream{}, recent: list.New()}
}

// find is the stream that a read from off on belongs to: one whose last read began
// at or before it and did not end before it. A read begins before the end of the
// last one if that ended within a batch.
func (t *streams) find(id tiers.SegmentID, off int64) *stream {
	for _, s := range t.of[id] {
		if s.from <= off && off <= s.to {
			return s
		}
	}
	return nil
}

func (t *streams) add(s *stream) {
	id := s.seg.ID
	t.of[id] = append(t.of[id], s)
	s.place = t.recent.PushBack(s)
	for e := t.recent.Front(); e != s.place; e = t.recent.Front() {
		old, _ := e.Value.(*stream)
		if t.recent.Len() <= maxStreams && s.last.Sub(old.last) < maxIdle {
			return
		}
		t.remove(old)
	}
}

func (t *streams) remove(s *stream) {
	t.recent.Remove(s.place)
	if t.ended[s.end()] == s {
		delete(t.ended, s.end())
	}
	id := s.seg.ID
	kept := t.of[id][:0]
	for _, o := range t.of[id] {
		if o != s {
			kept = append(kept, o)
		}
	}
	if len(kept) == 0 {
		delete(t.of, id)
	} else {
		clear(t.of[id][len(kept):])
		t.of[id] = kept
	}
}

// active is how many streams were read from lately. Those that only wait for their
// reader to come from the segment before do not count.
func (t *streams) active(now time.Time) (n int64) {
	for e := t.recent.Back(); e != nil; e = e.Prev() {
		s, _ := e.Value.(*stream)
		if now.Sub(s.last) > lively {
			break
		}
		if s.to > 0 {
			n++
		}
	}
	return max(1, n)
}

// sequential notes a read of n bytes from off on and asks for what the reader will
// want after it. The reader will not come back for what is below passed.
func (c *Cache) sequential(meta *SegmentMeta, off, n int64, follow Following) (passed int64) {
	c.mu.Lock()
	s, x := c.advance(meta, off, n)
	passed = off + n
	if s != nil {
		passed = c.returnsTo(s, off+n)
	}
	c.pump()
	c.mu.Unlock()
	if x != nil {
		c.cross(*x, follow)
	}
	return passed
}

// returnsTo is where the next read begins if this one ends at end: within its last
// batch, and a batch may be longer than a chunk. What lies behind is held for the
// reader, unless there are so many readers that what they all come back for does
// not fit: each then has the chunk that it stopped in, if it begins there again.
func (c *Cache) returnsTo(s *stream, end int64) int64 {
	if end >= s.seg.Size {
		return end // the last batch ends here
	}
	next := max(s.from, end-s.overlap)
	if n := (end-1)/ChunkSize - next/ChunkSize + 1; n > 1 && n*ChunkSize*c.streams.active(s.last) > c.shelf.chunks.limit*3/4 {
		return (end + ChunkSize - 1) / ChunkSize * ChunkSize
	}
	return next
}

// advance moves the reader's stream, or makes one. c.mu is held.
func (c *Cache) advance(meta *SegmentMeta, off, n int64) (*stream, *crossing) {
	if c.closed {
		return nil, nil
	}
	now := time.Now()
	s := c.streams.find(meta.Segment.ID, off)
	goesOn := s != nil && (off > s.from || s.to == 0)
	if s == nil {
		s = newStream(meta, now)
		if before := c.streams.ended[border{meta.Segment.Partition, meta.Segment.Base}]; before != nil && off == 0 {
			goesOn, s.window, s.overlap = true, before.window, before.overlap
		}
		c.streams.add(s)
	} else if s.to > 0 {
		c.movesOn(s, off)
	}
	s.meta, s.from, s.to, s.last = meta, off, max(s.to, off+n), now
	defer s.slim()
	c.streams.recent.MoveToBack(s.place)
	if s.over() {
		c.streams.ended[s.end()] = s
	}
	s.frontier = max(s.frontier, (s.to-1)/ChunkSize+1)
	if !goesOn || c.o.ReadAhead == 0 {
		return s, nil
	}
	c.fetch(meta, off/ChunkSize, min((off+n-1)/ChunkSize+1, off/ChunkSize+maxDemand), false)
	if s.shrink {
		s.window /= 2
	}
	s.window = max(s.window, firstWindow, min(n, c.o.ReadAhead))
	defer func() { s.shrink = false }()
	return s, c.extend(s, c.windowOf(s, now))
}

// movesOn notes that the reader begins to read at off: it has passed what is before,
// and what it reads again tells how long its batches are. c.mu is held.
func (c *Cache) movesOn(s *stream, off int64) {
	if off > s.from {
		s.overlap = max(s.to-off, s.overlap/2)
	}
	for i := s.from / ChunkSize; i < off/ChunkSize; i++ {
		c.shelf.pass(PieceID{s.seg.ID, i})
	}
}

// windowOf is what a stream may have now.
func (c *Cache) windowOf(s *stream, now time.Time) int64 {
	share := c.shelf.chunks.limit * 3 / 4 / c.streams.active(now)
	if share < firstWindow {
		return 0
	}
	return min(s.window, c.o.ReadAhead, share)
}

// pieceOf is how much of a window is asked for in one request.
func pieceOf(window int64) int64 {
	return max(ChunkSize, min(maxRun*ChunkSize, max(window/4, min(usefulPiece, window/2))))
}

// extend asks for more once a piece of the window is used up. c.mu is held.
func (c *Cache) extend(s *stream, window int64) *crossing {
	c.shelf.expire(time.Now())
	ahead, tail := s.ahead(), s
	for tail.next != nil {
		tail = tail.next
		ahead += tail.ahead()
	}
	if ahead > window-pieceOf(window) || c.shelf.unread+window > c.shelf.chunks.limit*3/4 || len(c.queue.ahead.jobs[s.seg.Partition]) > 0 {
		return nil
	}
	if !s.shrink {
		s.window = min(s.window*2, c.o.ReadAhead)
	}
	return c.extendTail(tail, window-ahead, pieceOf(window))
}

// extendTail asks for whole pieces, of left bytes at most, from the frontier of s on.
func (c *Cache) extendTail(s *stream, left, piece int64) *crossing {
	for left >= piece && s.frontier < s.chunks() && s.meta != nil {
		end := min(s.frontier+piece/ChunkSize, s.chunks())
		c.metrics.ahead.Inc()
		c.fetch(s.meta, s.frontier, end, true)
		left -= (end - s.frontier) * ChunkSize
		s.frontier = end
	}
	if left < piece || s.frontier < s.chunks() || s.crossing {
		return nil
	}
	s.crossing = true
	return &crossing{s, s.seg, left, piece}
}

// crossing is that a stream has come to the end of its segment and wants more of the
// next one.
type crossing struct {
	from        *stream
	seg         tiers.RemoteSegment // of from
	left, piece int64
}

// cross goes on in the segment that follows, once its companion is there.
func (c *Cache) cross(x crossing, follow Following) {
	seg, ok := follow(x.seg)
	if !ok {
		c.uncross(x.from) // one may be there by the next read
		return
	}
	c.companions(seg, x.left, follow)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.wg.Go(func() {
		meta, f, err := c.findMeta(seg, true)
		if err == nil && f != nil {
			<-f.done // every flight ends
			meta, err = f.meta, f.err
		}
		if err != nil {
			c.uncross(x.from)
			return
		}
		if on := c.enter(x, meta); on != nil {
			c.cross(*on, follow)
		}
	})
}

// companions asks for those of all segments that left bytes reach into: one after
// the other they would take longer than the records, where segments are small.
func (c *Cache) companions(seg tiers.RemoteSegment, left int64, follow Following) {
	const most = 16
	for i, ok := 0, true; ok && i < most && left > 0; i++ {
		_, _, _ = c.findMeta(seg, true) // whoever waits for it hears of an error
		left -= seg.Size
		seg, ok = follow(seg)
	}
}

// uncross lets a later read try again.
func (c *Cache) uncross(s *stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.crossing = false
}

// enter makes the stream of the next segment, for the reader that will come.
func (c *Cache) enter(x crossing, meta *SegmentMeta) *crossing {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	s := c.streams.find(meta.Segment.ID, 0)
	if s == nil {
		s = newStream(meta, time.Now())
		s.window, s.overlap = x.from.window, x.from.overlap
		c.streams.add(s)
	}
	x.from.next = s
	if s.meta == nil && s.frontier < s.chunks() {
		s.meta = meta
	}
	on := c.extendTail(s, x.left, x.piece)
	s.slim()
	c.pump()
	return on
}

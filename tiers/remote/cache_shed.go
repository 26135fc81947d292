package remote

import (
	"cmp"
	"slices"

	"github.com/strandline-io/strandline/tiers"
)

// What is fetched ahead and unread gives way to what a reader waits for: the chunk
// that is the furthest from its reader goes first, whoever that is, since it may
// come again the latest. Waiting for such chunks to expire would hold up the very
// reader that they were fetched for.

// unreadChunk is one that may be given up.
type unreadChunk struct {
	p    *piece
	away int64   // bytes between its reader and it; below 0: the reader is about to take it
	in   *stream // of its segment; nil: nobody reads there
	head *stream // of the reader
}

// shed gives up at least n bytes of what is unread, or nothing if there are not as
// many. The readers concerned have a smaller window from then on. c.mu is held.
func (c *Cache) shed(n int64) bool {
	if n > c.shelf.unread {
		return false
	}
	for _, u := range c.unreadChunks() {
		if n <= 0 {
			break
		}
		n -= u.p.size
		c.shelf.forget(u.p.id)
		if u.in != nil {
			u.in.frontier = min(u.in.frontier, u.p.id.Chunk)
			u.head.shrink = true
		}
	}
	return true
}

// unreadChunks is all of them, the furthest away first.
func (c *Cache) unreadChunks() []unreadChunk {
	readers := c.streams.reaching()
	var all []unreadChunk
	for e := c.shelf.held.Front(); e != nil; e = e.Next() {
		p, _ := e.Value.(*piece)
		if p.unread {
			all = append(all, nearest(p, readers[p.id.Segment]))
		}
	}
	slices.SortStableFunc(all, func(a, b unreadChunk) int { return cmp.Compare(b.away, a.away) })
	return all
}

// reach is how a reader gets into a segment: it has skip bytes to read before the
// first chunk of it, below 0 if it is in the middle.
type reach struct {
	in, head *stream
	skip     int64
}

// reaching is the readers of each segment, and those that will come to it.
func (t *streams) reaching() map[tiers.SegmentID][]reach {
	all := map[tiers.SegmentID][]reach{}
	for e := t.recent.Back(); e != nil; e = e.Prev() {
		head, _ := e.Value.(*stream)
		if head.to == 0 || head.over() && head.next != nil && head.next.to > 0 {
			continue // nobody is there yet, or no more
		}
		skip := -head.to
		for s := head; s != nil; s = s.next {
			id := s.seg.ID
			all[id] = append(all[id], reach{s, head, skip})
			skip += s.seg.Size
		}
	}
	return all
}

// nearest is a chunk as its nearest reader sees it. One that nobody comes to is the
// furthest of all.
func nearest(p *piece, readers []reach) unreadChunk {
	u := unreadChunk{p: p, away: 1<<63 - 1}
	for _, r := range readers {
		away := r.skip + p.id.Chunk*ChunkSize
		behind := r.in.to > 0 && p.id.Chunk < r.in.from/ChunkSize
		if !behind && away < u.away {
			u.away, u.in, u.head = away, r.in, r.head
		}
	}
	return u
}

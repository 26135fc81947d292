package remote

import (
	"container/list"
	"time"
)

// held is how long a chunk stays for the reader that was in the middle of it, or
// for whom it was fetched. A client whose fetch ended with an empty answer comes
// back within its max.wait, 500 ms unless it says otherwise (report 060).
const held = 2 * time.Second

// longest is how long a chunk stays held by readers that come for it again and
// again without passing it.
const longest = 15 * held

// shelf is what the cache has in memory, and how much more will come. Its bytes
// never exceed the limit, but for one piece that is larger than all of it.
//
// Pieces are held or idle. An idle one goes when its place is needed, the one
// that was not used for the longest first; a held one becomes idle in time, or
// when its reader has passed it. Companions are never held: many readers use one
// all the time, so it is never the oldest.
//
// A policy that counts how often something is used (W-TinyLFU) was tried first: it
// may refuse a piece that was just fetched ahead, since nobody used it yet.
type shelf struct {
	limit, metaLimit      int64
	chunkBytes, metaBytes int64
	reserved              int64 // for fetches that run
	unread                int64 // of chunkBytes: fetched ahead, and nobody came yet

	pieces map[PieceID]*piece
	held   *list.List // of *piece, in order of until
	idle   *list.List // chunks, the least recently used first
	metas  *list.List // companions, the least recently used first

	idleBytes int64
}

type piece struct {
	id    PieceID
	chunk []byte
	meta  *SegmentMeta
	size  int64

	in     *list.List
	place  *list.Element
	until  time.Time // of a held one
	since  time.Time // when it was held first
	used   time.Time
	unread bool // fetched ahead, and nobody came yet
}

func newShelf(limit, metaLimit int64) shelf {
	return shelf{limit: limit, metaLimit: metaLimit, pieces: map[PieceID]*piece{}, held: list.New(), idle: list.New(), metas: list.New()}
}

func (s *shelf) get(id PieceID) *piece { return s.pieces[id] }

func (s *shelf) used() int64 { return s.chunkBytes + s.metaBytes }

// put places a piece for which room was made.
func (s *shelf) put(p *piece, now time.Time) {
	if s.pieces[p.id] != nil {
		return
	}
	s.pieces[p.id], p.used = p, now
	if p.meta != nil {
		s.metaBytes += p.size
		p.link(s.metas)
		for s.metaBytes > s.metaLimit && s.metas.Len() > 1 {
			s.drop(s.metas.Front())
		}
		return
	}
	s.chunkBytes += p.size
	if p.unread {
		s.unread += p.size
	}
	p.until, p.since = now.Add(held), now
	p.link(s.held)
}

func (p *piece) link(l *list.List) { p.in, p.place = l, l.PushBack(p) }

// touch notes that a reader has the piece. One that it is in the middle of is held
// for it, one that it passed is not. freed reports whether there is more to evict
// than before.
func (s *shelf) touch(id PieceID, passed bool, now time.Time) (freed bool) {
	p := s.pieces[id]
	if p == nil {
		return false
	}
	p.used = now
	s.wasRead(p)
	switch {
	case p.meta != nil:
		s.metas.MoveToBack(p.place)
	case p.in == s.idle && passed:
		s.idle.MoveToBack(p.place)
	case p.in == s.idle:
		s.idleBytes -= p.size
		p.since = now
		s.hold(p, now)
	case passed || now.Sub(p.since) > longest:
		s.rest(p)
		return true
	default:
		s.hold(p, now)
	}
	return false
}

func (s *shelf) hold(p *piece, now time.Time) {
	p.in.Remove(p.place)
	p.until = now.Add(held)
	p.link(s.held)
}

// wasRead ends that a piece was fetched ahead.
func (s *shelf) wasRead(p *piece) {
	if p.unread {
		p.unread = false
		s.unread -= p.size
	}
}

// rest makes a held piece idle.
func (s *shelf) rest(p *piece) {
	s.wasRead(p) // or never will be
	p.in.Remove(p.place)
	p.link(s.idle)
	s.idleBytes += p.size
}

// expire makes idle what was held for long enough.
func (s *shelf) expire(now time.Time) {
	for e := s.held.Front(); e != nil; e = s.held.Front() {
		p, _ := e.Value.(*piece)
		if p.until.After(now) {
			return
		}
		s.rest(p)
	}
}

// reserve makes room for n bytes and keeps it for a fetch, or changes nothing.
func (s *shelf) reserve(n int64, now time.Time) bool {
	n = min(n, s.limit)
	s.expire(now)
	if s.used()-s.idleBytes-s.metaBytes+s.reserved+n > s.limit {
		return false
	}
	for s.used()+s.reserved+n > s.limit {
		s.drop(s.oldest())
	}
	s.reserved += n
	return true
}

// release gives back what reserve kept for a piece of n bytes, if it was not more
// than there is.
func (s *shelf) release(n int64) { s.reserved -= min(n, s.limit) }

// oldest is the idle piece or companion that was not used for the longest.
func (s *shelf) oldest() *list.Element {
	c, m := s.idle.Front(), s.metas.Front()
	if c == nil || m == nil {
		if c == nil {
			return m
		}
		return c
	}
	pc, _ := c.Value.(*piece)
	pm, _ := m.Value.(*piece)
	if pm.used.Before(pc.used) {
		return m
	}
	return c
}

func (s *shelf) drop(e *list.Element) {
	p, _ := e.Value.(*piece)
	p.in.Remove(e)
	delete(s.pieces, p.id)
	switch {
	case p.meta != nil:
		s.metaBytes -= p.size
		return
	case p.in == s.idle:
		s.idleBytes -= p.size
	}
	s.chunkBytes -= p.size
	s.wasRead(p)
}

// forget drops the piece whatever it is for.
func (s *shelf) forget(id PieceID) {
	if p := s.pieces[id]; p != nil {
		s.drop(p.place)
	}
}

// nextRest is when the next held piece becomes idle; ok is false if none is held.
func (s *shelf) nextRest() (at time.Time, ok bool) {
	e := s.held.Front()
	if e == nil {
		return at, false
	}
	p, _ := e.Value.(*piece)
	return p.until, true
}

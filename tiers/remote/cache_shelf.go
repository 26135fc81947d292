package remote

import (
	"container/list"
	"time"
)

// held is how long a chunk stays for the reader that was in the middle of it, or
// for whom it was fetched. A client whose fetch ended with an empty answer comes
// back within its max.wait, 500 ms unless it says otherwise (report 060).
const held = 2 * time.Second

// stalled is how long it stays if a reader waits, there is no room, and no fetch is
// under way: readers that wait for each other's chunks would wait for as long as they
// are held.
const stalled = 50 * time.Millisecond

// longest is how long a chunk stays held by readers that come for it again and
// again without passing it.
const longest = 15 * held

// shelf is what the cache has in memory, and what more will come. Chunks have one
// part of the memory and companions another, so that a reader that holds a chunk
// never waits for its companion behind those who wait for chunks. Neither part is
// ever exceeded, but by one companion that is larger than all of its own.
//
// Chunks are held or idle. An idle one goes when its place is needed, the one that
// was not used for the longest first; a held one becomes idle in time, or when its
// reader has passed it. A companion that was used within
// the time that a chunk is held does not go: one that finds no place then is for
// those who wait for it, and is not kept. Else readers of more segments than there is
// room for would take each other's companions away, each larger than what is read
// with it.
//
// What companions take while they are fetched, before their indexes are thinned out,
// is wire: a quarter of their part, which bounds how many are fetched at once.
//
// A policy that counts how often something is used (W-TinyLFU) was tried first: it
// may refuse a chunk that was just fetched ahead, since nobody used it yet.
type shelf struct {
	chunks, metas part
	wire          part
	unread        int64 // of the chunks: fetched ahead, and nobody came yet

	pieces map[PieceID]*piece
	held   *list.List // of chunks, in order of until
}

// part is the memory for one kind of pieces.
type part struct {
	limit, used, reserved int64
	idle                  *list.List // the least recently used first
	idleBytes             int64
}

type piece struct {
	id    PieceID
	chunk []byte
	meta  *SegmentMeta
	size  int64

	in     *list.List
	place  *list.Element
	until  time.Time // of a held one
	since  time.Time // when it was held first; of a companion: when it was used last
	unread bool      // fetched ahead, and nobody came yet
}

func newShelf(chunks, metas int64) shelf {
	return shelf{
		chunks: part{limit: chunks, idle: list.New()}, metas: part{limit: metas - metas/4, idle: list.New()},
		wire:   part{limit: metas / 4},
		pieces: map[PieceID]*piece{}, held: list.New(),
	}
}

func (s *shelf) get(id PieceID) *piece { return s.pieces[id] }

// of is the part that a piece is in.
func (s *shelf) of(id PieceID) *part {
	if id.Chunk == MetaPiece {
		return &s.metas
	}
	return &s.chunks
}

// put places a chunk for which room was made, or a companion if there is room.
func (s *shelf) put(p *piece, now time.Time) {
	if s.pieces[p.id] != nil || p.meta != nil && !s.roomForMeta(p.size, now) {
		return
	}
	s.pieces[p.id] = p
	s.of(p.id).used += p.size
	if p.meta != nil {
		p.since = now
		s.metas.rest(p)
		return
	}
	if p.unread {
		s.unread += p.size
	}
	p.until, p.since = now.Add(held), now
	p.link(s.held)
}

func (p *piece) link(l *list.List) { p.in, p.place = l, l.PushBack(p) }

func (p *piece) unlink() { p.in.Remove(p.place) }

// touch notes that a reader has the piece. A chunk that it is in the middle of is
// held for it, one that it passed is not. freed reports whether there is more to
// evict than before.
func (s *shelf) touch(id PieceID, passed bool, now time.Time) (freed bool) {
	p := s.pieces[id]
	if p == nil {
		return false
	}
	s.wasRead(p)
	part := s.of(id)
	switch {
	case p.meta != nil:
		p.since = now
		part.idle.MoveToBack(p.place)
	case p.in == part.idle && passed:
		part.idle.MoveToBack(p.place)
	case p.in == part.idle:
		p.since = now
		part.idleBytes -= p.size
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
	p.unlink()
	p.until = now.Add(held)
	p.link(s.held)
}

// wasRead ends that a chunk was fetched ahead.
func (s *shelf) wasRead(p *piece) {
	if p.unread {
		p.unread = false
		s.unread -= p.size
	}
}

// rest makes a held chunk idle.
func (s *shelf) rest(p *piece) {
	s.wasRead(p) // or never will be
	p.unlink()
	s.chunks.rest(p)
}

func (a *part) rest(p *piece) {
	p.link(a.idle)
	a.idleBytes += p.size
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

// pass makes idle a chunk that its reader is behind of.
func (s *shelf) pass(id PieceID) {
	if p := s.pieces[id]; p != nil && p.in == s.held {
		s.rest(p)
	}
}

// lacks is how many held bytes must go before reserve gives n.
func (s *shelf) lacks(n int64) int64 {
	a := &s.chunks
	return a.used - a.idleBytes + a.reserved + min(n, a.limit) - a.limit
}

// reserve makes room for n bytes and keeps it for a fetch, or changes nothing. id
// is any piece of the kind.
func (s *shelf) reserve(id PieceID, n int64, now time.Time) bool {
	if id.Chunk == MetaPiece {
		return s.wire.keep(n)
	}
	s.expire(now)
	a := &s.chunks
	if a.used-a.idleBytes+a.reserved+min(n, a.limit) > a.limit {
		return false
	}
	for a.used+a.reserved+min(n, a.limit) > a.limit {
		p, _ := a.idle.Front().Value.(*piece)
		s.forget(p.id)
	}
	return a.keep(n)
}

// keep notes n bytes for a fetch if there is room for them, or all that there is.
func (a *part) keep(n int64) bool {
	n = min(n, a.limit)
	if a.used+a.reserved+n > a.limit {
		return false
	}
	a.reserved += n
	return true
}

// release gives back what reserve kept for a piece of n bytes, if it was not more
// than there is.
func (s *shelf) release(id PieceID, n int64) {
	a := &s.chunks
	if id.Chunk == MetaPiece {
		a = &s.wire
	}
	a.reserved -= min(n, a.limit)
}

// roomForMeta makes room for a companion, unless those that would go are in use.
func (s *shelf) roomForMeta(n int64, now time.Time) bool {
	a := &s.metas
	n = min(n, a.limit)
	free := a.limit - a.used
	for e := a.idle.Front(); e != nil && free < n; e = e.Next() {
		p, _ := e.Value.(*piece)
		if now.Sub(p.since) < held {
			return false
		}
		free += p.size
	}
	for a.used > 0 && a.used+n > a.limit {
		p, _ := a.idle.Front().Value.(*piece)
		s.forget(p.id)
	}
	return true
}

// forget drops a piece.
func (s *shelf) forget(id PieceID) {
	p := s.pieces[id]
	if p == nil {
		return
	}
	s.wasRead(p)
	p.unlink()
	delete(s.pieces, id)
	a := s.of(id)
	a.used -= p.size
	if p.in == a.idle {
		a.idleBytes -= p.size
	}
}

// yield makes n bytes idle of what was held for stalled at least, if there are any.
func (s *shelf) yield(n int64, now time.Time) {
	for e := s.held.Front(); e != nil && n > 0; e = s.held.Front() {
		p, _ := e.Value.(*piece)
		if p.until.Add(stalled - held).After(now) {
			return
		}
		n -= p.size
		s.rest(p)
	}
}

// nextRest is when the next chunk was held for d; ok is false if none is held.
func (s *shelf) nextRest(d time.Duration) (at time.Time, ok bool) {
	e := s.held.Front()
	if e == nil {
		return at, false
	}
	p, _ := e.Value.(*piece)
	return p.until.Add(d - held), true
}

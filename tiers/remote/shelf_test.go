package remote

import (
	"encoding/binary"
	"sort"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/strandline-io/strandline/tiers"
)

// Whatever is put, read and left: the limits hold, the sums are those of what is
// there, and what somebody is on is never evicted before its time.
func TestShelfKeepsItsBooks(t *testing.T) {
	t.Parallel()
	const limit, metaLimit, size = 20 * 100, 8 * 100, 100
	rapid.Check(t, func(t *rapid.T) {
		s := newShelf(limit, metaLimit)
		now := time.Unix(1000, 0)
		var due []PieceID // reserved, not landed
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			id := PieceID{Chunk: rapid.Int64Range(0, 40).Draw(t, "chunk")}
			if rapid.IntRange(0, 4).Draw(t, "kind") == 0 {
				id = PieceID{Segment: tiers.SegmentID{byte(id.Chunk)}, Chunk: MetaPiece}
			}
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0, 1:
				was := onShelf(&s, now)
				if s.reserve(id, size, now) {
					due = append(due, id)
				}
				for held := range was {
					if s.pieces[held] == nil {
						t.Fatalf("%v was evicted although it is held", held)
					}
				}
			case 2:
				if len(due) > 0 {
					last := due[len(due)-1]
					due = due[:len(due)-1]
					s.release(last, size)
					p := &piece{id: last, size: size, unread: rapid.Bool().Draw(t, "ahead")}
					if last.Chunk == MetaPiece {
						p.meta, p.unread = &SegmentMeta{}, false
					}
					was := onShelf(&s, now)
					s.put(p, now)
					for held := range was {
						if s.pieces[held] == nil {
							t.Fatalf("%v was evicted although it is in use", held)
						}
					}
				}
			case 3:
				s.touch(id, rapid.Bool().Draw(t, "passed"), now)
			case 4:
				now = now.Add(time.Duration(rapid.IntRange(0, 1500).Draw(t, "wait")) * time.Millisecond)
			case 5:
				if rapid.IntRange(0, 9).Draw(t, "rarely") == 0 {
					s.forget(id)
				}
			}
			checkShelf(t, &s)
		}
	})
}

// onShelf is what is held at the time.
func onShelf(s *shelf, now time.Time) map[PieceID]bool {
	out := map[PieceID]bool{}
	for id, p := range s.pieces {
		if p.in == s.held && p.until.After(now) || p.meta != nil && now.Sub(p.since) < held {
			out[id] = true
		}
	}
	return out
}

func checkShelf(t *rapid.T, s *shelf) {
	var chunks, metas, idleChunks, idleMetas, unread int64
	for _, p := range s.pieces {
		switch {
		case p.meta != nil:
			metas += p.size
			idleMetas += p.size
		case p.in == s.chunks.idle:
			idleChunks += p.size
			chunks += p.size
		default:
			chunks += p.size
		}
		if p.unread {
			unread += p.size
		}
	}
	if chunks != s.chunks.used || metas != s.metas.used || idleChunks != s.chunks.idleBytes || idleMetas != s.metas.idleBytes || unread != s.unread {
		t.Fatalf("counted %d %d %d %d %d, the books say %+v %+v %d", chunks, metas, idleChunks, idleMetas, unread, s.chunks, s.metas, s.unread)
	}
	if n := s.held.Len() + s.chunks.idle.Len() + s.metas.idle.Len(); n != len(s.pieces) {
		t.Fatalf("%d in lists, %d pieces", n, len(s.pieces))
	}
	for _, a := range []part{s.chunks, s.metas, s.wire} {
		if a.used+a.reserved > a.limit || a.reserved < 0 {
			t.Fatalf("%d used and %d reserved of %d", a.used, a.reserved, a.limit)
		}
	}
	last := time.Time{}
	for e := s.held.Front(); e != nil; e = e.Next() {
		p, _ := e.Value.(*piece)
		if p.until.Before(last) {
			t.Fatal("what is held is out of order")
		}
		last = p.until
	}
}

// A chunk that readers come for again and again is not held for ever.
func TestShelfHoldEnds(t *testing.T) {
	t.Parallel()
	s := newShelf(100, 100)
	now := time.Unix(0, 0)
	s.put(&piece{id: PieceID{Chunk: 1}, size: 100}, now)
	for range 100 {
		now = now.Add(held / 2)
		s.touch(PieceID{Chunk: 1}, false, now)
		if s.reserve(PieceID{Chunk: 2}, 100, now) {
			if now.Before(time.Unix(0, 0).Add(longest)) {
				t.Fatalf("it was held until %v", now)
			}
			return
		}
	}
	t.Fatal("it is held for ever")
}

// A look-up in a thinned index lands at or before where it did in the whole one, and
// not much before.
func TestThinnedIndexes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var offsets, times []byte
		at, off, ts := int64(0), uint32(0), int64(1000)
		for range rapid.IntRange(0, 300).Draw(t, "entries") {
			at += rapid.Int64Range(4096, 40_000).Draw(t, "bytes")
			off += rapid.Uint32Range(1, 50).Draw(t, "records")
			ts += rapid.Int64Range(1, 1000).Draw(t, "time")
			offsets = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(offsets, off), uint32(at))
			times = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(times, uint64(ts)), off)
		}
		m := thinned(&SegmentMeta{Segment: tiers.RemoteSegment{Size: at + 5000}, OffsetIndex: offsets, TimeIndex: times})
		want := rapid.Uint32Range(0, off+2).Draw(t, "offset")
		whole, thin := floorAt(offsets, want), floorAt(m.OffsetIndex, want)
		if thin > whole || whole-thin > thinStep+40_000 {
			t.Fatalf("offset %d is looked for from byte %d, was from %d", want, thin, whole)
		}
		if n := len(times); n > 0 && string(m.TimeIndex[len(m.TimeIndex)-timeEntry:]) != string(times[n-timeEntry:]) {
			t.Fatal("the newest timestamp is gone")
		}
		if len(m.TimeIndex) > len(times) || len(m.OffsetIndex) > len(offsets) {
			t.Fatal("an index grew")
		}
	})
	big := make([]byte, 0, (1<<30)/4096*offsetEntry)
	var bigTimes []byte
	for i := range uint32((1 << 30) / 4096) {
		big = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(big, i), i*4096)
		bigTimes = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(bigTimes, uint64(i)), i)
	}
	m := thinned(&SegmentMeta{Segment: tiers.RemoteSegment{Size: 1 << 30}, OffsetIndex: big, TimeIndex: bigTimes, ChunkCRC: make([]uint32, 4096)})
	if n := metaSize(m); n > 700<<10 {
		t.Errorf("the companion of 1 GiB takes %d bytes of memory", n)
	}
}

func floorAt(ix []byte, off uint32) int64 {
	n := sort.Search(len(ix)/offsetEntry, func(i int) bool { return binary.BigEndian.Uint32(ix[i*offsetEntry:]) > off })
	if n == 0 {
		return 0
	}
	return int64(binary.BigEndian.Uint32(ix[(n-1)*offsetEntry+4:]))
}

package remote

import (
	"testing"
	"time"
)

// A chunk that was fetched is held for whoever wanted it (report 060), and no
// longer than until its reader has passed it, or nobody came.
func TestShelfHoldsForItsReader(t *testing.T) {
	t.Parallel()
	one, two := PieceID{Chunk: 1}, PieceID{Chunk: 2}
	start := time.Unix(1000, 0)
	for _, c := range []struct {
		what   string
		passed bool
		after  time.Duration
		goes   bool
	}{
		{"just fetched", false, 0, false},
		{"nobody came yet", false, held - 1, false},
		{"nobody came", false, held, true},
		{"its reader has passed it", true, 0, true},
	} {
		s := newShelf(100, 100)
		s.put(&piece{id: one, size: 100, unread: true}, start)
		if c.passed {
			s.touch(one, true, start)
		}
		if got := s.reserve(two, 100, start.Add(c.after)); got != c.goes || (s.get(one) == nil) != c.goes {
			t.Errorf("%s: room is made: %v", c.what, got)
		}
	}
}

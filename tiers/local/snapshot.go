package local

import (
	"sort"
	"sync/atomic"

	"github.com/strandline-io/strandline/tiers"
)

// Snapshot is a set of segments that stay readable, even if they are dropped
// meanwhile, until Release. Records that a truncation took are gone for it too:
// it then reads as if the log ended before them.
type Snapshot struct {
	folder
	segs     []*segment // by base, never empty
	interval int64      // index.interval.bytes
	refs     atomic.Int32
}

func newSnapshot(f folder, interval int64, segs []*segment) *Snapshot {
	for _, s := range segs {
		s.retain()
	}
	out := &Snapshot{folder: f, segs: segs, interval: interval}
	out.refs.Store(1)
	return out
}

// Retain takes one more reference. The caller must hold one.
func (s *Snapshot) Retain() {
	if s.refs.Add(1) <= 1 {
		panic("local: Retain of a released snapshot")
	}
}

// Release gives one reference back. Files that were dropped meanwhile are closed
// and removed with the last one.
func (s *Snapshot) Release() {
	switch n := s.refs.Add(-1); {
	case n > 0:
		return
	case n < 0:
		panic("local: snapshot released twice")
	}
	for _, seg := range s.segs {
		seg.release()
	}
}

// Start is the first offset in it.
func (s *Snapshot) Start() tiers.Offset { return s.segs[0].base }

// floor is the index of the segment that holds o, 0 if o is below all.
func (s *Snapshot) floor(o tiers.Offset) int {
	return max(0, sort.Search(len(s.segs), func(i int) bool { return s.segs[i].base > o })-1)
}

// next is the base of the segment behind the one at i, or its own end.
func (s *Snapshot) next(i int) tiers.Offset {
	if i+1 < len(s.segs) {
		return s.segs[i+1].base
	}
	_, next := s.segs[i].extent()
	return next
}

package remote

import (
	"testing"
	"time"

	"github.com/strandline-io/strandline/tiers"
)

// TestSlimStreamsAreReached: a reader for whom all of a segment was asked for keeps no
// companion, and is still known to be on its way when memory is short.
func TestSlimStreamsAreReached(t *testing.T) {
	all := newStreams()
	m := &SegmentMeta{Segment: tiers.RemoteSegment{ID: tiers.SegmentID{1}, Size: 3 * ChunkSize}, ChunkCRC: make([]uint32, 3)}
	s := newStream(m, time.Now())
	s.to, s.frontier = ChunkSize, 3
	s.slim()
	all.add(s)
	if s.meta != nil {
		t.Fatal("it keeps the companion")
	}
	r := all.reaching()[m.Segment.ID]
	if len(r) != 1 || r[0].skip != -ChunkSize {
		t.Fatalf("%+v", r)
	}
	// What was fetched for it is given up: nothing is asked for until it reads on.
	s.frontier = 1
	c := &Cache{}
	if x := c.extendTail(s, 10*ChunkSize, ChunkSize); x != nil || s.frontier != 1 {
		t.Fatalf("%+v, frontier %d", x, s.frontier)
	}
}

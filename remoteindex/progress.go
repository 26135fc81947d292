package remoteindex

import (
	"slices"

	"github.com/strandline-io/strandline/tiers"
)

// Coverage returns c of R5: the end of the contiguous run of safe ranges that
// starts at Truth.Start; Truth.Start itself if nothing is covered. It is
// progress that one may act on: a maximum would hide the holes.
func (x *Index) Coverage(t Truth) tiers.Offset {
	c := t.Start
	for _, r := range x.rows {
		if r.State != tiers.CopyFinished {
			continue
		}
		s, end := SafeRange(*r, t)
		if end <= s {
			continue
		}
		if s > c { // Starts rise with the bases: nobody closes this hole.
			return c
		}
		c = max(c, end)
	}
	return c
}

// HighestRemote returns the last offset that is known to be safely in the
// bucket (R5, inclusive), NoOffset if there is none. A rebuilt log that has not
// come beyond the start yet has none.
func (x *Index) HighestRemote(t Truth, logEnd tiers.Offset) tiers.Offset {
	c := x.Coverage(t)
	if c <= t.Start || logEnd <= t.Start {
		return tiers.NoOffset
	}
	return min(c, logEnd) - 1
}

// CopyState is what the copied cursor is derived from.
type CopyState struct {
	Truth                   // Bound is LogEnd here: the HighWatermark of a new leader may lag
	Log       tiers.Lineage // of the local log; the same as Lineage in a classic topic
	LocalFrom tiers.Offset  // LocalLogStart
	LogEnd    tiers.Offset
}

// Copied returns the copied cursor as an exclusive end: copying goes on at it
// (R4). It is 0 if nothing was copied. hole is true if the cover has a hole that
// no local segment can fill: raise an alarm, DeleteRecords past it is the way
// out.
//
// The cursor is derived at start, after a truncation and after a change of
// folders, never stored. The end of the epoch in the log clamps it: that hides a
// tail which was copied and then discarded (report 013).
func (x *Index) Copied(s CopyState) (end tiers.Offset, hole bool) {
	for _, e := range slices.Backward(s.Log) {
		h, ok := x.highest[e.Epoch]
		if !ok {
			continue
		}
		_, epochEnd, _ := s.Log.EndFor(e.Epoch, s.LogEnd)
		end = min(h, epochEnd)
		break
	}
	c := x.Coverage(Truth{Lineage: s.Lineage, Start: s.Start, Bound: s.LogEnd})
	if end <= c {
		return end, false
	}
	if s.LocalFrom <= c && c < s.LogEnd {
		return c, false
	}
	return end, true
}

// Totals are the sizes of what the bucket holds of a log.
type Totals struct {
	Segments int
	Bytes    int64 // of records
	Newest   int64 // the newest timestamp, -1 if none carries one
}

// Totals sums up the readable segments in the lineage (R9): what retention may
// count.
func (x *Index) Totals(l tiers.Lineage, start, logEnd tiers.Offset) Totals {
	t := Totals{Newest: -1}
	for _, r := range x.rows {
		if r.State == tiers.CopyFinished && Within(*r, l, start, logEnd) {
			t.Segments++
			t.Bytes += r.Size
			t.Newest = max(t.Newest, r.MaxTimestamp)
		}
	}
	return t
}

package remoteindex

import (
	"cmp"
	"iter"
	"slices"

	"github.com/strandline-io/strandline/tiers"
)

// Get returns the row with this id.
func (x *Index) Get(id tiers.SegmentID) (tiers.RemoteSegment, bool) {
	for _, r := range x.rows {
		if r.ID == id {
			return *r, true
		}
	}
	return tiers.RemoteSegment{}, false
}

// All walks over every row by base offset, whatever its state is (s6.1's
// listAll).
func (x *Index) All() iter.Seq[tiers.RemoteSegment] {
	return func(yield func(tiers.RemoteSegment) bool) {
		for _, r := range x.rows {
			if !yield(*r) {
				return
			}
		}
	}
}

// OfEpoch walks over the rows that hold records of epoch e, by base offset,
// whatever their state is (s6.1's list).
func (x *Index) OfEpoch(e tiers.LeaderEpoch) iter.Seq[tiers.RemoteSegment] {
	return func(yield func(tiers.RemoteSegment) bool) {
		for _, r := range x.rows {
			if _, _, ok := within(r, e); ok && !yield(*r) {
				return
			}
		}
	}
}

// Rows is the number of rows in any state.
func (x *Index) Rows() int { return len(x.rows) }

// Readable is the number of readable segments and the bytes of their records.
func (x *Index) Readable() (count int, bytes int64) { return x.count, x.bytes }

// Highest returns the end of what was ever readable of epoch e, also if it was
// deleted since; ok is false if nothing was.
func (x *Index) Highest(e tiers.LeaderEpoch) (end tiers.Offset, ok bool) {
	end, ok = x.highest[e]
	return end, ok
}

// ByEpochOffset returns the readable segment that holds offset o as a record of
// epoch e (s6.1).
func (x *Index) ByEpochOffset(e tiers.LeaderEpoch, o tiers.Offset) (tiers.RemoteSegment, bool) {
	if s := x.floor(e, o); s != nil {
		return *s, true
	}
	return tiers.RemoteSegment{}, false
}

func (x *Index) floor(e tiers.LeaderEpoch, o tiers.Offset) *tiers.RemoteSegment {
	spans := x.epochs[e]
	i, exact := slices.BinarySearchFunc(spans, o, func(s span, o tiers.Offset) int { return cmp.Compare(s.start, o) })
	if !exact {
		i--
	}
	if i < 0 || o >= spans[i].end {
		return nil
	}
	return spans[i].seg
}

// Unreferenced returns the readable segments that no look-up can lead to: in
// each epoch another one covers them. They are listed, not read (s6.1).
func (x *Index) Unreferenced() []tiers.RemoteSegment {
	kept, all := 0, 0
	for _, spans := range x.epochs {
		kept += len(spans)
	}
	for _, r := range x.rows {
		if r.State == tiers.CopyFinished {
			all += len(r.Epochs)
		}
	}
	if kept == all {
		return nil // none covers another, as it is nearly always
	}
	used := make(map[*tiers.RemoteSegment]bool, x.count)
	for _, spans := range x.epochs {
		for _, s := range spans {
			used[s.seg] = true
		}
	}
	var out []tiers.RemoteSegment
	for _, r := range x.rows {
		if r.State == tiers.CopyFinished && !used[r] {
			out = append(out, *r)
		}
	}
	return out
}

// Truth is what decides which bytes of a segment belong to the log.
type Truth struct {
	Lineage tiers.Lineage // authoritative: classic the leader's own, switched the recorded one and {E_d: seal}
	Start   tiers.Offset  // classic LogStart, switched X
	Bound   tiers.Offset  // no record at or above it is read: classic HighWatermark, switched max(walEnd, seal)
}

// Where says what a look-up found.
type Where uint8

// The answers of a look-up (R15).
const (
	NoCover    Where = iota // retry; alarm if the rows are known to be complete. Never "out of range"
	BelowStart              // the offset is below Truth.Start: out of range, once the start was read again
	Covered                 // read the segment
)

// Piece is a part of the log in one segment: the offsets [From, End) may be read
// from it, none else.
type Piece struct {
	Segment   tiers.RemoteSegment
	From, End tiers.Offset
}

// Find looks for the segment that serves offset o (R15). With Covered, From is o
// and End the cap of R14: the reader goes on there, also if it found no record
// up to it, because compaction left a hole.
func (x *Index) Find(o tiers.Offset, t Truth) (Piece, Where) {
	if o < t.Start {
		return Piece{}, BelowStart
	}
	e := t.Lineage.EpochFor(o)
	if e == tiers.NoEpoch {
		return Piece{}, NoCover
	}
	if r := x.floor(e, o); r != nil {
		if p, ok := serves(r, o, t); ok {
			return p, Covered
		}
	}
	// Log matching (B4) says that there is no other then. Rows that contradict it
	// must not hide good ones.
	for _, r := range x.rows {
		if r.Base > o {
			break
		}
		if r.State != tiers.CopyFinished || o >= r.End {
			continue
		}
		if p, ok := serves(r, o, t); ok {
			return p, Covered
		}
	}
	return Piece{}, NoCover
}

func serves(r *tiers.RemoteSegment, o tiers.Offset, t Truth) (Piece, bool) {
	_, end := SafeRange(*r, t) // o is not below it: it is in the segment, the log and the lineage.
	return Piece{*r, o, end}, o < end
}

// Next returns the lowest piece that starts above o: where the log goes on after
// a hole.
func (x *Index) Next(o tiers.Offset, t Truth) (Piece, bool) {
	for _, r := range x.rows {
		if r.State != tiers.CopyFinished {
			continue
		}
		if s, end := SafeRange(*r, t); s > o && end > s {
			return Piece{*r, s, end}, true
		}
	}
	return Piece{}, false
}

// Pieces cuts [from, to) into the pieces that serve it, in offset order. It ends
// at the first offset that no segment covers.
func (x *Index) Pieces(from, to tiers.Offset, t Truth) iter.Seq[Piece] {
	return func(yield func(Piece) bool) {
		for o := from; o < to; {
			p, w := x.Find(o, t)
			if w != Covered {
				return
			}
			p.End = min(p.End, to)
			if !yield(p) {
				return
			}
			o = p.End
		}
	}
}

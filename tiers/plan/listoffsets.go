package plan

import (
	"slices"

	"github.com/strandline-io/strandline/remoteindex"
	"github.com/strandline-io/strandline/tiers"
)

// The timestamps of ListOffsets that stand for an offset (s6.5).
const (
	Latest                = -1
	Earliest              = -2
	MaxTimestamp          = -3
	EarliestLocal         = -4
	LatestTiered          = -5
	EarliestPendingUpload = -6
)

// ListFacts is what a published View knows.
type ListFacts struct {
	FetchFacts
	Index *remoteindex.Index // nil if the topic was never tiered
	// Pending is the offset that the copier waits to copy: where RemoteEnd is
	// known. False: it is not known yet, or nothing is copied.
	Pending bool
}

// ListAsk is what a client asks for.
type ListAsk struct {
	Timestamp   int64 // one of the above, or milliseconds since 1970
	Committed   bool
	LeaderEpoch tiers.LeaderEpoch // NoEpoch if it says none
}

// How says how the answer is found.
type How uint8

// The ways to answer.
const (
	Known  How = iota // Offset and Epoch are the answer, the timestamp is -1
	First             // the first record with the timestamp or a later one: Pieces in order, then local
	Newest            // the first record with the largest timestamp of Pieces and local
)

// ListPlan says how a ListOffsets is answered.
type ListPlan struct {
	How    How
	Offset tiers.Offset // NoOffset: there is none
	Epoch  tiers.LeaderEpoch

	// Pieces are the parts of remote segments to search, none of which holds local
	// offsets. For First they are in offset order. For Newest the most promising
	// comes first: its segment claims the largest timestamp, which may lie outside
	// of the piece, so search on until the largest found is at least what the next
	// segment claims.
	Pieces []remoteindex.Piece
	// Local offsets to search are [LocalFrom, End).
	LocalFrom, End tiers.Offset
}

// ListOffset decides how one partition of a ListOffsets is answered, for a
// classic topic. Searches see no record below LogStart, though the bucket may
// hold some (report 078), and every tier (reports 080, 082).
func ListOffset(f ListFacts, a ListAsk) (ListPlan, error) {
	if err := fence(f.LeaderEpoch, a.LeaderEpoch); err != nil {
		return ListPlan{}, err
	}
	end := f.HighWatermark
	if a.Committed {
		end = f.LastStable
	}
	switch a.Timestamp {
	case Latest:
		return f.known(end), nil
	case Earliest:
		return f.known(f.LogStart), nil
	case EarliestLocal:
		return f.known(f.LocalLogStart), nil
	case LatestTiered:
		if f.RemoteEnd <= f.LogStart {
			return f.known(tiers.NoOffset), nil
		}
		return f.known(f.RemoteEnd - 1), nil
	case EarliestPendingUpload:
		if !f.Pending {
			return f.known(tiers.NoOffset), nil
		}
		return f.known(max(f.RemoteEnd, f.LogStart)), nil
	}
	if a.Timestamp < 0 && a.Timestamp != MaxTimestamp {
		return ListPlan{}, tiers.E(tiers.UnsupportedVersion, "list offsets", "", "timestamp %d stands for nothing", a.Timestamp)
	}
	return f.search(a.Timestamp, end)
}

func (f ListFacts) known(o tiers.Offset) ListPlan {
	p := ListPlan{Offset: o, Epoch: tiers.NoEpoch}
	if o != tiers.NoOffset {
		p.Epoch = f.Lineage.EpochFor(o)
	}
	return p
}

func (f ListFacts) search(ts int64, end tiers.Offset) (ListPlan, error) {
	p := ListPlan{How: First, Offset: tiers.NoOffset, Epoch: tiers.NoEpoch, LocalFrom: max(f.LocalLogStart, f.LogStart), End: end}
	if ts == MaxTimestamp {
		p.How = Newest
	}
	remote, at := min(p.LocalFrom, end), f.LogStart
	if f.Index != nil {
		for piece := range f.Index.Pieces(at, remote, remoteindex.Truth{Lineage: f.Lineage, Start: f.LogStart, Bound: f.HighWatermark}) {
			at = piece.End
			if piece.Segment.MaxTimestamp >= max(ts, 0) {
				p.Pieces = append(p.Pieces, piece)
			}
		}
	}
	if at < remote {
		return ListPlan{}, tiers.E(tiers.OffsetNotAvailable, "list offsets", "", "offsets from %d to %d are in no tier that can be searched", at, remote)
	}
	if p.How == Newest {
		slices.SortStableFunc(p.Pieces, func(a, b remoteindex.Piece) int {
			switch {
			case a.Segment.MaxTimestamp > b.Segment.MaxTimestamp:
				return -1
			case a.Segment.MaxTimestamp < b.Segment.MaxTimestamp:
				return 1
			}
			return 0
		})
	}
	return p, nil
}

package plan

import (
	"slices"

	"github.com/strandline-io/strandline/tiers"
)

// CopyFacts is what decides which segment is copied next.
type CopyFacts struct {
	Segments   []LocalSegment // by offset
	Copied     tiers.Offset   // exclusive: remoteindex.Copied; 0 if nothing was copied
	LogStart   tiers.Offset
	LastStable tiers.Offset
	Lineage    tiers.Lineage
}

// CopyNext is a segment to copy.
type CopyNext struct {
	Segment LocalSegment
	Epochs  tiers.Lineage // of it, the first entry at its base
	// Hole is the number of offsets between the copied end and the segment which
	// no local segment holds. If it is not 0 they are in no tier: raise an alarm.
	Hole tiers.Offset
}

// Copy returns the next segment to copy (R1): the first closed one that holds
// something at or above the copied end and the log start, once all of it is
// committed and decided. Segments are copied in order, one at a time, so if the
// first is not ready none is. A segment that begins below the log start is
// copied whole.
func Copy(f CopyFacts) (CopyNext, bool) {
	at := max(f.Copied, f.LogStart)
	i := slices.IndexFunc(f.Segments, func(s LocalSegment) bool { return s.Next > at })
	if i < 0 {
		return CopyNext{}, false
	}
	s := f.Segments[i]
	if s.Active || s.Size == 0 || s.Next > f.LastStable {
		return CopyNext{}, false
	}
	epochs := SegmentLineage(f.Lineage, s.Base, s.Next)
	if len(epochs) == 0 {
		return CopyNext{}, false // No lineage names its records: it could never be found again.
	}
	return CopyNext{s, epochs, max(s.Base-at, 0)}, true
}

// SegmentLineage returns the lineage of the records in [base, next), with its
// first entry at base even where the log, and with it the lineage, begins behind
// base: nobody reads those records any more, and a segment that starts between
// two entries would not be valid.
func SegmentLineage(l tiers.Lineage, base, next tiers.Offset) tiers.Lineage {
	s := l.Slice(base, next)
	if len(s) == 0 || s[0].Start == base {
		return s
	}
	s = slices.Clone(s)
	s[0].Start = base
	return s
}

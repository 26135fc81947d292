package remoteindex

import (
	"github.com/strandline-io/strandline/tiers"
)

// SafeRange returns [start, end), the part of a segment that may be read (R14):
// from where the segment, the log and the lineage have all begun, as far as
// segment and lineage name the same epoch for each offset, and not beyond the
// bound. If there is none, end is start. The state of the segment does not count.
//
// Epochs are compared per offset, not entry by entry: a segment's first entry
// starts at the segment, wherever its epoch began.
func SafeRange(s tiers.RemoteSegment, t Truth) (start, end tiers.Offset) {
	start = max(s.Base, t.Start)
	if len(t.Lineage) == 0 {
		return start, start
	}
	start = max(start, t.Lineage[0].Start)
	return start, max(start, Agree(s.Epochs, t.Lineage, start, min(s.End, t.Bound)))
}

// Agree returns the largest b in [o, end] for which a and b name the same epoch for
// all offsets in [o, b); end itself if end is not above o.
func Agree(a, b tiers.Lineage, o, end tiers.Offset) tiers.Offset {
	for o < end {
		if a.EpochFor(o) != b.EpochFor(o) {
			return o
		}
		o = min(after(a, o, end), after(b, o, end))
	}
	return end
}

// after returns the first start in l above o, end if there is none below it.
func after(l tiers.Lineage, o, end tiers.Offset) tiers.Offset {
	for _, e := range l {
		if e.Start > o {
			return min(e.Start, end)
		}
	}
	return end
}

// Class says how a segment relates to the log (L6).
type Class uint8

// The classes of a segment.
const (
	InLineage Class = iota // all of it that is not below the start is safe
	Undecided              // the bound cuts it, which may be stale, or the lineage does not reach it
	Partial                // an epoch that the log does not have there cuts it
	Foreign                // none of it is safe, because of an epoch
	Below                  // it ends at or below the start
)

// String is the name of the class in logs and tables.
func (c Class) String() string {
	return [...]string{"in-lineage", "undecided", "partial", "foreign", "below-start"}[c]
}

// Classify returns the class of a segment.
func Classify(s tiers.RemoteSegment, t Truth) Class {
	start, end := SafeRange(s, t)
	limit := min(s.End, t.Bound)
	switch {
	case s.End <= t.Start:
		return Below
	case len(t.Lineage) == 0 || start >= limit:
		return Undecided
	case end == s.End:
		return InLineage
	case end == limit:
		return Undecided
	case end > start:
		return Partial
	}
	return Foreign
}

// Within is the in-lineage test of retention (R12): the segment has offsets in
// the log, agrees with the lineage in each of them, and ends at or below logEnd.
// Its first epoch may have started earlier, its last may end later.
func Within(s tiers.RemoteSegment, l tiers.Lineage, start, logEnd tiers.Offset) bool {
	return Classify(s, Truth{Lineage: l, Start: start, Bound: logEnd}) == InLineage
}

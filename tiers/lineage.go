package tiers

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// EpochStart says that leader epoch Epoch begins at offset Start.
type EpochStart struct {
	Epoch LeaderEpoch
	Start Offset
}

// Lineage maps leader epochs to the offsets at which they start: Kafka's leader
// epoch cache. It is a value: every operation returns a new one.
//
// Invariant (B5): entries strictly increase in epoch and in start, and no epoch
// or start is negative. The first entry starts at LogStart, so the lineage
// covers remote offsets too.
type Lineage []EpochStart

// Valid returns nil if B5 holds, else an error that names it.
func (l Lineage) Valid() error {
	for i, e := range l {
		if e.Epoch < 0 || e.Start < 0 {
			return fmt.Errorf("B5: entry %d of lineage %s is negative", i, l)
		}
		if i > 0 && (e.Epoch <= l[i-1].Epoch || e.Start <= l[i-1].Start) {
			return fmt.Errorf("B5: lineage %s does not increase at entry %d", l, i)
		}
	}
	return nil
}

// String prints l as the specification writes it: {epoch:start, ...}.
func (l Lineage) String() string {
	var b strings.Builder
	b.WriteByte('{')
	for i, e := range l {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%d:%d", e.Epoch, e.Start)
	}
	b.WriteByte('}')
	return b.String()
}

// Last returns the newest epoch, NoEpoch if there is none.
func (l Lineage) Last() LeaderEpoch {
	if len(l) == 0 {
		return NoEpoch
	}
	return l[len(l)-1].Epoch
}

// EpochFor returns the epoch of the record at o: that of the last entry with
// start <= o, NoEpoch if o precedes all.
func (l Lineage) EpochFor(o Offset) LeaderEpoch {
	i, found := slices.BinarySearchFunc(l, o, byStart)
	if found {
		return l[i].Epoch
	}
	if i == 0 {
		return NoEpoch
	}
	return l[i-1].Epoch
}

// EndFor answers "where does epoch q end?" for a log that ends at logEnd
// (OffsetForLeaderEpoch, KIP-101 and KIP-279): the largest epoch that is not
// above q and the offset at which it ends. ok is false where the answer is
// undefined: q absent, or above every epoch of a log that is not at q. If every
// epoch is above q the answer is q itself, ending where the first one starts.
func (l Lineage) EndFor(q LeaderEpoch, logEnd Offset) (e LeaderEpoch, end Offset, ok bool) {
	if q == NoEpoch || len(l) == 0 {
		return NoEpoch, NoOffset, false
	}
	if q == l.Last() {
		return q, logEnd, true
	}
	i := slices.IndexFunc(l, func(e EpochStart) bool { return e.Epoch > q })
	switch {
	case i < 0:
		return NoEpoch, NoOffset, false
	case i == 0:
		return q, l[0].Start, true
	default:
		return l[i-1].Epoch, l[i].Start, true
	}
}

// Assign records that e starts at s, as Kafka's cache does it: nothing happens
// if e is already the last epoch and s is not below its start; otherwise
// trailing entries with epoch >= e or start >= s give way.
func (l Lineage) Assign(e LeaderEpoch, s Offset) Lineage {
	if n := len(l); n > 0 && l[n-1].Epoch == e && s >= l[n-1].Start {
		return l
	}
	keep := len(l)
	for keep > 0 && (l[keep-1].Epoch >= e || l[keep-1].Start >= s) {
		keep--
	}
	return append(slices.Clone(l[:keep]), EpochStart{e, s})
}

// Append returns the lineage after a batch of epoch e was appended at base to a
// log that ended at logEnd (B7): other entries that own no record go first, then
// e must be the last epoch or above it. The start of an existing entry never
// moves forward.
func (l Lineage) Append(e LeaderEpoch, base, logEnd Offset) (Lineage, error) {
	if e < 0 || base < logEnd {
		return l, fmt.Errorf("B7: append of epoch %d at %d to a log that ends at %d", e, base, logEnd)
	}
	owners, _ := slices.BinarySearchFunc(l, logEnd, byStart)
	if i := slices.IndexFunc(l[owners:], func(s EpochStart) bool { return s.Epoch == e }); i >= 0 {
		base = min(base, l[owners+i].Start)
	}
	kept := l[:owners:owners]
	switch last := kept.Last(); {
	case last == e:
		return kept, nil
	case last > e:
		return l, fmt.Errorf("B7: append of epoch %d at %d after epoch %d", e, base, last)
	}
	if len(l) == owners+1 && l[owners] == (EpochStart{e, base}) {
		return l, nil
	}
	return append(kept, EpochStart{e, base}), nil
}

// TruncateEnd drops the entries that start at or above o.
func (l Lineage) TruncateEnd(o Offset) Lineage {
	i, _ := slices.BinarySearchFunc(l, o, byStart)
	return l[:i:i]
}

// TruncateStart drops the entries that start at or below o, except that the
// last of them stays and starts at o.
func (l Lineage) TruncateStart(o Offset) Lineage {
	i, found := slices.BinarySearchFunc(l, o, byStart)
	if found || i == 0 {
		return slices.Clip(l[i:])
	}
	out := slices.Clone(l[i-1:])
	out[0].Start = o
	return out
}

// Slice returns the lineage of the records in [base, end): what a remote
// segment carries. Its first entry starts at base, or behind it if l does. It is
// empty if the range is.
func (l Lineage) Slice(base, end Offset) Lineage {
	if end <= base {
		return nil
	}
	return l.TruncateEnd(end).TruncateStart(base)
}

func byStart(e EpochStart, o Offset) int { return cmp.Compare(e.Start, o) }

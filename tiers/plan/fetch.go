package plan

import (
	"github.com/strandline-io/strandline/tiers"
)

// FetchFacts is what a published View knows.
type FetchFacts struct {
	tiers.Watermarks
	Lineage     tiers.Lineage
	LeaderEpoch tiers.LeaderEpoch
}

// FetchAsk is what a client or a replica asks for.
type FetchAsk struct {
	Offset      tiers.Offset
	LeaderEpoch tiers.LeaderEpoch // that the client knows, NoEpoch if it says none
	LastEpoch   tiers.LeaderEpoch // of its own record before Offset, NoEpoch if it says none (T1)
	Committed   bool              // read_committed
	Replica     bool
}

// Source says where to read.
type Source uint8

// The answers to a fetch.
const (
	Wait      Source = iota // there is nothing yet: wait or answer without records
	Local                   // read from disk
	Remote                  // look up in the bucket
	Diverging               // answer Epoch and End, no records (T2)
	Moved                   // a replica starts at LocalLogStart: 109
)

// FetchPlan says how a fetch is answered.
type FetchPlan struct {
	Source Source
	From   tiers.Offset
	End    tiers.Offset      // read below it: of the readable log, or of the diverging epoch
	Epoch  tiers.LeaderEpoch // that diverges
}

// Fetch decides about one partition of a fetch, in the order of T2: epoch fence,
// divergence, range, tier. A request without an epoch skips the divergence
// check. Offsets above what the reader may see but not above LogEnd wait.
func Fetch(f FetchFacts, a FetchAsk) (FetchPlan, error) {
	if err := fence(f.LeaderEpoch, a.LeaderEpoch); err != nil {
		return FetchPlan{}, err
	}
	diverging, at, err := diverges(f, a)
	if err != nil {
		return FetchPlan{}, err
	}
	if a.Offset < f.LogStart || a.Offset > f.LogEnd && !diverging {
		return FetchPlan{}, outOfRange(f, a.Offset)
	}
	if diverging {
		return at, nil
	}
	p := FetchPlan{From: a.Offset, End: readEnd(f, a)}
	switch {
	case p.From < f.LocalLogStart && a.Replica:
		p.Source = Moved
	case p.From >= p.End:
		p.Source = Wait
	case p.From < f.LocalLogStart:
		p.Source = Remote
	default:
		p.Source = Local
	}
	return p, nil
}

// fence compares the epoch that a client knows with ours (KIP-320).
func fence(ours, theirs tiers.LeaderEpoch) error {
	switch {
	case theirs == tiers.NoEpoch || theirs == ours:
		return nil
	case theirs < ours:
		return tiers.E(tiers.FencedLeaderEpoch, "check leader epoch", "", "the request knows epoch %d, the partition is at %d: refresh the metadata", theirs, ours)
	}
	return tiers.E(tiers.UnknownLeaderEpoch, "check leader epoch", "", "the request knows epoch %d, the partition is at %d: retry", theirs, ours)
}

func diverges(f FetchFacts, a FetchAsk) (bool, FetchPlan, error) {
	if a.LastEpoch == tiers.NoEpoch {
		return false, FetchPlan{}, nil
	}
	e, end, ok := f.Lineage.EndFor(a.LastEpoch, f.LogEnd)
	if !ok {
		return false, FetchPlan{}, tiers.E(tiers.OffsetOutOfRange, "check divergence", "", "the log has no epoch that answers for %d: %s", a.LastEpoch, f.Lineage)
	}
	if e == a.LastEpoch && end >= a.Offset {
		return false, FetchPlan{}, nil
	}
	return true, FetchPlan{Source: Diverging, From: a.Offset, End: end, Epoch: e}, nil
}

func outOfRange(f FetchFacts, o tiers.Offset) error {
	return tiers.E(tiers.OffsetOutOfRange, "fetch", "", "offset %d is not in [%d,%d]", o, f.LogStart, f.LogEnd)
}

// readEnd is the end of what the reader may see.
func readEnd(f FetchFacts, a FetchAsk) tiers.Offset {
	switch {
	case a.Replica:
		return f.LogEnd
	case a.Committed:
		return f.LastStable
	}
	return f.HighWatermark
}

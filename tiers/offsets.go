package tiers

import "fmt"

// Offset is the position of a record within one history of a partition.
type Offset int64

// NoOffset stands for an absent offset, on the wire and in files.
const NoOffset Offset = -1

// LeaderEpoch numbers the terms of leadership of a partition.
type LeaderEpoch int32

// NoEpoch stands for an absent leader epoch, on the wire and in files.
const NoEpoch LeaderEpoch = -1

// Watermarks is the ladder of offsets that every classic partition keeps. All
// of them are exclusive ends or inclusive starts, so an empty log has them all
// equal.
//
// Invariants:
//
//	(B1) LogStart <= LocalLogStart <= LogEnd
//	(B2) LogStart <= LastStable <= HighWatermark <= LogEnd
//	(B8) LogStart < LocalLogStart only if LocalLogStart <= RemoteEnd: no record between the tiers is in none
//	(B9) RemoteEnd <= LastStable: only committed, decided records are copied (R1)
type Watermarks struct {
	LogStart      Offset // first readable offset in any tier
	LocalLogStart Offset // first offset on local disk
	RemoteEnd     Offset // end of the contiguous remote cover (R5); LogStart if nothing is covered
	LastStable    Offset // end of what read_committed may see
	HighWatermark Offset // end of what a consumer may see
	LogEnd        Offset // offset of the next record
}

// Valid returns nil if the ladder holds, else an error that names the
// invariant.
func (w Watermarks) Valid() error {
	switch {
	case w.LogStart < 0:
		return fmt.Errorf("B1: log start %d is negative", w.LogStart)
	case w.LogStart > w.LocalLogStart:
		return fmt.Errorf("B1: log start %d > local log start %d", w.LogStart, w.LocalLogStart)
	case w.LocalLogStart > w.LogEnd:
		return fmt.Errorf("B1: local log start %d > log end %d", w.LocalLogStart, w.LogEnd)
	case w.LogStart > w.LastStable:
		return fmt.Errorf("B2: log start %d > last stable offset %d", w.LogStart, w.LastStable)
	case w.LastStable > w.HighWatermark:
		return fmt.Errorf("B2: last stable offset %d > high watermark %d", w.LastStable, w.HighWatermark)
	case w.HighWatermark > w.LogEnd:
		return fmt.Errorf("B2: high watermark %d > log end %d", w.HighWatermark, w.LogEnd)
	case w.LogStart < w.LocalLogStart && w.RemoteEnd < w.LocalLogStart:
		return fmt.Errorf("B8: offsets [%d,%d) are in no tier", w.RemoteEnd, w.LocalLogStart)
	case w.RemoteEnd > w.LastStable:
		return fmt.Errorf("B9: remote end %d > last stable offset %d", w.RemoteEnd, w.LastStable)
	}
	return nil
}

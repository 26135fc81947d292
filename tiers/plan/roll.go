package plan

import (
	"math"
	"time"

	"github.com/strandline-io/strandline/tiers"
)

// RollLimits are the settings that end an active segment.
type RollLimits struct {
	Bytes      int64         // segment.bytes
	Age        time.Duration // segment.ms
	IndexBytes int64         // segment.index.bytes
}

// Incoming is what is about to be appended. The zero value asks whether the
// segment should be rolled although nothing comes.
type Incoming struct {
	Bytes int64
	Last  tiers.Offset // of its last record
}

// Reason says why a segment should be rolled before the next append.
type Reason uint8

// The reasons to roll.
const (
	Stay          Reason = iota
	Full                 // the append would make it larger than segment.bytes
	Old                  // its first record was appended segment.ms ago
	IndexFull            // its offset index has no room for an entry
	OffsetsTooFar        // an index entry holds 32 bits of offset
)

// String is the name of the reason in logs and metrics.
func (r Reason) String() string {
	return [...]string{"stay", "size", "time", "index", "offsets"}[r]
}

// indexEntry is the size of an entry of Kafka's offset index.
const indexEntry = 8

// Roll decides whether the active segment a ends before the append of in. An
// empty one never does: rolling it would make another of the same name.
//
// Age runs from the first append by the clock, not by the timestamps of records,
// so one record from the future neither holds a segment for years nor ends one
// per append (report 110). After a restart the first append is known only by the
// first record's timestamp: one that lies in the future does not count, the time
// of the file stands in for it.
func Roll(a LocalSegment, in Incoming, l RollLimits, now time.Time) Reason {
	if a.Size == 0 {
		return Stay
	}
	switch {
	case in.Bytes > 0 && in.Last-a.Base > math.MaxInt32:
		return OffsetsTooFar
	case a.Size+in.Bytes > l.Bytes:
		return Full
	case l.IndexBytes > 0 && a.IndexSize+indexEntry > l.IndexBytes:
		return IndexFull
	case l.Age > 0 && age(a, now) >= l.Age:
		return Old
	}
	return Stay
}

// age is how long ago the segment got its first record, 0 if no clock tells.
func age(a LocalSegment, now time.Time) time.Duration {
	first := a.FirstAppend
	if first.IsZero() || first.After(now) {
		first = a.Modified
	}
	if first.IsZero() {
		return 0
	}
	return max(now.Sub(first), 0)
}

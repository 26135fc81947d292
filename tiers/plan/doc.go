// Package plan holds every decision of a plain partition, one file each: facts
// and settings in, what should be done out. Its callers own all state and act.
//
// It is pure: whoever decides by time is told the time. Facts come in structs of
// its own, because it sees no disk and no bucket.
//
// Invariants: a decision depends on its arguments alone; it never proposes to
// drop a record that is in no other tier, unless retention or DeleteRecords asks
// for it; ends are exclusive.
package plan

import (
	"time"

	"github.com/strandline-io/strandline/tiers"
)

// LocalSegment is the facts of a segment on disk.
type LocalSegment struct {
	Base         tiers.Offset
	Next         tiers.Offset // base of the segment after it; LogEnd for the active one
	Size         int64
	IndexSize    int64     // bytes of the offset index
	MaxTimestamp int64     // milliseconds since 1970, -1 if none
	FirstAppend  time.Time // zero if it is empty
	Modified     time.Time // of the .log file
	Active       bool
}

// Forever is the age or size that is no limit: Kafka's -1.
const Forever = -1

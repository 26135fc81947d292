package tiers

import (
	"fmt"
	"time"
)

// SegmentState is the lifecycle of a remote segment (KIP-405, spec s6.1):
//
//	CopyStarted -> CopyFinished -> DeleteStarted -> DeleteFinished
//	CopyStarted -> DeleteStarted
//
// Self transitions are idempotent. DeleteFinished is the absence of the row.
type SegmentState uint8

// The states of a remote segment.
const (
	CopyStarted SegmentState = iota + 1
	CopyFinished
	DeleteStarted
	DeleteFinished
)

// String is the name of the state in logs, tables and JSON.
func (s SegmentState) String() string {
	switch s {
	case CopyStarted:
		return "copy-started"
	case CopyFinished:
		return "copy-finished"
	case DeleteStarted:
		return "delete-started"
	case DeleteFinished:
		return "delete-finished"
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// CanMove reports whether a segment may go from s to next.
func (s SegmentState) CanMove(next SegmentState) bool {
	switch s {
	case CopyStarted:
		return next == CopyStarted || next == CopyFinished || next == DeleteStarted
	case CopyFinished:
		return next == CopyFinished || next == DeleteStarted
	case DeleteStarted:
		return next == DeleteStarted || next == DeleteFinished
	case DeleteFinished:
		return next == DeleteFinished
	}
	return false
}

// RemoteSegment is what the control plane knows of one segment in the bucket.
// It holds the offsets [Base, End): End is the base of the segment that came
// next, so a hole that compaction left at its end is part of it (R1).
type RemoteSegment struct {
	ID        SegmentID
	Partition PartitionID
	Gen       HistoryGen
	Base      Offset
	End       Offset
	Epochs    Lineage // of the records in it; the first entry starts at Base
	State     SegmentState

	MaxTimestamp int64 // milliseconds since 1970; -1 if no record carries one
	Size         int64 // bytes of the records object
	MetaSize     int64 // bytes of the companion object
	CRC32C       uint32
	HasAborted   bool // its transaction index is not empty

	CopierEpoch LeaderEpoch // leader epoch of the node that copied it
	Copier      NodeID
	CreatedAt   time.Time // when CopyStarted was written, UTC
}

// Valid returns nil if the facts of s agree with each other.
func (s RemoteSegment) Valid() error {
	switch {
	case s.Base < 0 || s.End <= s.Base:
		return fmt.Errorf("segment %s: range [%d,%d) is empty or negative", s.ID, s.Base, s.End)
	case s.Size <= 0 && s.State == CopyFinished:
		return fmt.Errorf("segment %s: size %d", s.ID, s.Size)
	case len(s.Epochs) == 0 || s.Epochs[0].Start != s.Base || s.Epochs[len(s.Epochs)-1].Start >= s.End:
		return fmt.Errorf("segment %s: lineage %s does not fit [%d,%d)", s.ID, s.Epochs, s.Base, s.End)
	}
	return s.Epochs.Valid()
}

package control

import (
	"cmp"
	"slices"
	"time"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/partition"
)

// This file decides the moves of remote segments (spec s6.1). The engines look
// the rows up, ask here, and write the answer in the same transaction.

// CloneSegment returns a segment that shares nothing with s.
func CloneSegment(s tiers.RemoteSegment) tiers.RemoteSegment {
	s.Epochs = slices.Clone(s.Epochs)
	return s
}

// CompareSegments orders by partition, gen, base and id.
func CompareSegments(a, b tiers.RemoteSegment) int {
	return cmp.Or(
		ComparePartitions(a.Partition, b.Partition),
		cmp.Compare(a.Gen, b.Gen),
		cmp.Compare(a.Base, b.Base),
		slices.Compare(a.ID[:], b.ID[:]),
	)
}

// ComparePartitions orders by topic id and index.
func ComparePartitions(a, b tiers.PartitionID) int {
	return cmp.Or(slices.Compare(a.Topic[:], b.Topic[:]), cmp.Compare(a.Index, b.Index))
}

// StartCopy decides about CopyStarted. row is the row with the segment's id, nil
// if there is none. It returns the row to write; write is false if it is there
// already. Who copies is what the fence proves, not what the caller says.
func StartCopy(f partition.Fence, leader tiers.NodeID, now time.Time, row *tiers.RemoteSegment, s tiers.RemoteSegment) (_ tiers.RemoteSegment, write bool, err error) {
	const op = "start copy"
	place := segmentPlace(f, s.ID)
	s = CloneSegment(s)
	s.State, s.CopierEpoch, s.Copier = tiers.CopyStarted, f.Epoch, leader
	if s.CreatedAt.IsZero() {
		s.CreatedAt = now
	}
	s.CreatedAt = Instant(s.CreatedAt)
	if err := checkFacts(op, place, f, s); err != nil {
		return s, false, err
	}
	if row == nil {
		return s, true, nil
	}
	s.CreatedAt = row.CreatedAt
	if !sameFacts(*row, s) || row.State != tiers.CopyStarted {
		return s, false, tiers.E(tiers.Conflict, op, place, "the id belongs to a segment %s in %s already: a new copy needs a new id (R3)", row.Partition, row.State)
	}
	return *row, false, nil
}

// FinishCopy decides about CopyFinished: the facts of s are stored unless they
// contradict those that CopyStarted gave.
func FinishCopy(f partition.Fence, row *tiers.RemoteSegment, s tiers.RemoteSegment) (_ tiers.RemoteSegment, write bool, err error) {
	const op = "finish copy"
	place := segmentPlace(f, s.ID)
	if row == nil {
		return s, false, tiers.E(tiers.Conflict, op, place, "there is no such segment: it was deleted or never started")
	}
	s = CloneSegment(s)
	s.State, s.CopierEpoch, s.Copier, s.CreatedAt = tiers.CopyFinished, row.CopierEpoch, row.Copier, row.CreatedAt
	if err := checkFacts(op, place, f, s); err != nil {
		return s, false, err
	}
	switch {
	case row.Partition != s.Partition || row.Gen != s.Gen || row.Base != s.Base || row.End != s.End || !slices.Equal(row.Epochs, s.Epochs):
		return s, false, tiers.E(tiers.Conflict, op, place, "the copy was started as [%d,%d) %s of %s gen %d", row.Base, row.End, row.Epochs, row.Partition, row.Gen)
	case !row.State.CanMove(tiers.CopyFinished):
		return s, false, tiers.E(tiers.Conflict, op, place, "the segment is in %s", row.State)
	case row.State == tiers.CopyFinished && !sameFacts(*row, s):
		return s, false, tiers.E(tiers.Conflict, op, place, "the copy was finished with other facts")
	}
	return s, row.State != tiers.CopyFinished, nil
}

// StartDelete decides about DeleteStarted.
func StartDelete(f partition.Fence, id tiers.SegmentID, row *tiers.RemoteSegment) (write bool, err error) {
	const op = "start delete"
	if row == nil {
		return false, tiers.E(tiers.Conflict, op, segmentPlace(f, id), "there is no such segment: it was deleted or never started")
	}
	if err := ownRow(op, f, row); err != nil {
		return false, err
	}
	if !row.State.CanMove(tiers.DeleteStarted) {
		return false, tiers.E(tiers.Conflict, op, segmentPlace(f, id), "the segment is in %s", row.State)
	}
	return row.State != tiers.DeleteStarted, nil
}

// FinishDelete decides about DeleteFinished. A row that is gone is finished.
func FinishDelete(f partition.Fence, id tiers.SegmentID, row *tiers.RemoteSegment) (write bool, err error) {
	const op = "finish delete"
	if row == nil {
		return false, nil
	}
	if err := ownRow(op, f, row); err != nil {
		return false, err
	}
	if !row.State.CanMove(tiers.DeleteFinished) {
		return false, tiers.E(tiers.Conflict, op, segmentPlace(f, id), "the segment is in %s: start the delete first (R11)", row.State)
	}
	return true, nil
}

func checkFacts(op, place string, f partition.Fence, s tiers.RemoteSegment) error {
	switch {
	case s.ID == tiers.SegmentID{}:
		return tiers.E(tiers.InvalidRequest, op, place, "the segment has no id")
	case s.Partition != f.Partition || s.Gen != f.Gen:
		return tiers.E(tiers.InvalidRequest, op, place, "the segment is of %s gen %d", s.Partition, s.Gen)
	case len(s.Epochs) > MaxLineage:
		return tiers.E(tiers.InvalidRequest, op, place, "%d leader epochs: at most %d", len(s.Epochs), MaxLineage)
	case s.Size < 0 || s.MetaSize < 0:
		return tiers.E(tiers.InvalidRequest, op, place, "sizes %d and %d", s.Size, s.MetaSize)
	}
	if err := s.Valid(); err != nil {
		return tiers.E(tiers.InvalidRequest, op, place, "%w", err)
	}
	return nil
}

// ownRow refuses to touch a row of another partition, or of a history that is
// still to come. Rows of older histories may be deleted (spec s2.3, step 9).
func ownRow(op string, f partition.Fence, row *tiers.RemoteSegment) error {
	if row.Partition != f.Partition || row.Gen > f.Gen {
		return tiers.E(tiers.Conflict, op, segmentPlace(f, row.ID), "the segment belongs to %s gen %d", row.Partition, row.Gen)
	}
	return nil
}

// sameFacts compares everything but the state.
func sameFacts(a, b tiers.RemoteSegment) bool {
	same := slices.Equal(a.Epochs, b.Epochs) && a.CreatedAt.Equal(b.CreatedAt)
	return same && a.ID == b.ID && a.Partition == b.Partition && a.Gen == b.Gen && a.Base == b.Base && a.End == b.End &&
		a.MaxTimestamp == b.MaxTimestamp && a.Size == b.Size && a.MetaSize == b.MetaSize && a.CRC32C == b.CRC32C &&
		a.HasAborted == b.HasAborted && a.CopierEpoch == b.CopierEpoch && a.Copier == b.Copier
}

func segmentPlace(f partition.Fence, id tiers.SegmentID) string {
	return f.Partition.String() + " segment " + id.Hex()
}

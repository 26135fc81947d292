package remoteindex

import (
	"cmp"
	"errors"
	"maps"
	"slices"

	"github.com/strandline-io/strandline/tiers"
)

// Index is the remote segments of one history of one partition. Its zero value
// is no index; New makes one.
type Index struct {
	partition tiers.PartitionID
	gen       tiers.HistoryGen

	rows    []*tiers.RemoteSegment // all, by base, then id
	epochs  map[tiers.LeaderEpoch][]span
	highest map[tiers.LeaderEpoch]tiers.Offset // end per epoch of what was ever readable
	bytes   int64                              // size of the readable ones
	count   int                                // of the readable ones
}

// span is the part of a readable segment that is of one epoch. The spans of an
// epoch rise strictly in start and in end: one that lies within another is left
// out, so the floor of an offset covers it if any does.
type span struct {
	start, end tiers.Offset
	seg        *tiers.RemoteSegment
}

// New returns the index of a partition's rows, as the control plane stores them.
// Rows that are not valid or not of this history are left out and named in the
// error; the index stands nevertheless.
func New(p tiers.PartitionID, gen tiers.HistoryGen, rows []tiers.RemoteSegment) (*Index, error) {
	x := &Index{partition: p, gen: gen, epochs: map[tiers.LeaderEpoch][]span{}, highest: map[tiers.LeaderEpoch]tiers.Offset{}}
	var errs []error
	for i := range rows {
		r := rows[i]
		if err := x.admit(r); err != nil {
			errs = append(errs, err)
			continue
		}
		if r.State != tiers.DeleteFinished {
			x.rows = append(x.rows, &r)
		}
	}
	slices.SortFunc(x.rows, order)
	x.rows = slices.CompactFunc(x.rows, func(a, b *tiers.RemoteSegment) bool {
		if a.ID != b.ID {
			return false
		}
		errs = append(errs, tiers.E(tiers.Conflict, "load remote segment", a.ID.Hex(), "two rows have this id"))
		return true
	})
	for _, r := range x.rows {
		if r.State == tiers.CopyFinished {
			x.count++
			x.bytes += r.Size
		}
	}
	all := map[tiers.LeaderEpoch][]span{}
	for _, r := range x.rows {
		if r.State == tiers.CopyFinished {
			for _, e := range r.Epochs {
				start, end, _ := within(r, e.Epoch)
				all[e.Epoch] = append(all[e.Epoch], span{start, end, r})
			}
		}
	}
	for e, spans := range all {
		x.settle(e, spans)
	}
	return x, errors.Join(errs...)
}

// Apply returns the index after a row was written: a new one must be
// CopyStarted, a known one may move as s6.1 allows. What it was on the same
// state again changes nothing. Anything else is dropped: the index stays as it
// is and the error says why.
func (x *Index) Apply(row tiers.RemoteSegment) (*Index, error) {
	if err := x.admit(row); err != nil {
		return x, err
	}
	i, known := slices.BinarySearchFunc(x.rows, &row, order)
	var old *tiers.RemoteSegment
	if known {
		old = x.rows[i]
	}
	if keep, err := transition(old, row); keep || err != nil {
		return x, err
	}
	next := x.clone()
	switch {
	case !known:
		next.rows = slices.Insert(next.rows, i, &row)
	case row.State == tiers.DeleteFinished:
		next.rows = slices.Delete(next.rows, i, i+1)
	default:
		next.rows[i] = &row
	}
	next.account(old, -1)
	next.account(&row, +1)
	if row.State == tiers.CopyFinished || (known && old.State == tiers.CopyFinished) {
		for _, e := range row.Epochs {
			next.refresh(e.Epoch)
		}
	}
	return next, nil
}

// Move is Apply for a change of state alone.
func (x *Index) Move(id tiers.SegmentID, to tiers.SegmentState) (*Index, error) {
	r, ok := x.Get(id)
	if !ok {
		if to == tiers.DeleteFinished {
			return x, nil
		}
		return x, tiers.E(tiers.Conflict, "move remote segment", id.Hex(), "no such segment, to %s", to)
	}
	r.State = to
	return x.Apply(r)
}

// MoveAll is Move for many rows at once. What is not there stays away, and what
// cannot move so stays as it is: all is false then.
func (x *Index) MoveAll(ids []tiers.SegmentID, to tiers.SegmentState) (next *Index, all bool) {
	want := make(map[tiers.SegmentID]bool, len(ids))
	for _, id := range ids {
		want[id] = true
	}
	next, all = x.clone(), true
	touched, moved := map[tiers.LeaderEpoch]bool{}, 0
	for i, old := range next.rows {
		if !want[old.ID] || old.State == to {
			continue
		}
		if !old.State.CanMove(to) {
			all = false
			continue
		}
		row := *old
		row.State = to
		next.rows[i] = &row
		moved++
		next.account(old, -1)
		next.account(&row, +1)
		for _, e := range row.Epochs {
			touched[e.Epoch] = touched[e.Epoch] || old.State == tiers.CopyFinished || to == tiers.CopyFinished
		}
	}
	next.rows = slices.DeleteFunc(next.rows, func(r *tiers.RemoteSegment) bool { return r.State == tiers.DeleteFinished })
	for e, changed := range touched {
		if changed {
			next.refresh(e)
		}
	}
	if moved == 0 {
		return x, all
	}
	return next, all
}

// transition reports whether the index stays as it is, or why it must.
func transition(old *tiers.RemoteSegment, row tiers.RemoteSegment) (keep bool, err error) {
	const op = "apply remote segment"
	switch {
	case old == nil && row.State == tiers.DeleteFinished:
		return true, nil // It is gone already.
	case old == nil && row.State != tiers.CopyStarted:
		return true, tiers.E(tiers.Conflict, op, row.ID.Hex(), "the first state of a segment is copy-started, not %s", row.State)
	case old == nil:
		return false, nil
	case !old.State.CanMove(row.State):
		return true, tiers.E(tiers.Conflict, op, row.ID.Hex(), "%s cannot become %s", old.State, row.State)
	case old.End != row.End || !slices.Equal(old.Epochs, row.Epochs):
		return true, tiers.E(tiers.Conflict, op, row.ID.Hex(), "[%d,%d)%s cannot become [%d,%d)%s", old.Base, old.End, old.Epochs, row.Base, row.End, row.Epochs)
	}
	return old.State == row.State, nil
}

func (x *Index) admit(row tiers.RemoteSegment) error {
	const op = "admit remote segment"
	switch {
	case row.Partition != x.partition || row.Gen != x.gen:
		return tiers.E(tiers.Conflict, op, row.ID.Hex(), "it belongs to history %d of %s, this is history %d of %s", row.Gen, row.Partition, x.gen, x.partition)
	case row.State < tiers.CopyStarted || row.State > tiers.DeleteFinished:
		return tiers.E(tiers.Conflict, op, row.ID.Hex(), "unknown %s", row.State)
	}
	if err := row.Valid(); err != nil {
		return tiers.E(tiers.Conflict, op, row.ID.Hex(), "%w", err)
	}
	return nil
}

func (x *Index) clone() *Index {
	c := *x
	c.rows = slices.Clone(x.rows)
	c.epochs = maps.Clone(x.epochs)
	c.highest = maps.Clone(x.highest)
	return &c
}

func (x *Index) account(r *tiers.RemoteSegment, sign int) {
	if r != nil && r.State == tiers.CopyFinished {
		x.count += sign
		x.bytes += int64(sign) * r.Size
	}
}

// refresh makes the spans of epoch e again, from all rows.
func (x *Index) refresh(e tiers.LeaderEpoch) {
	var all []span
	for _, r := range x.rows {
		if r.State != tiers.CopyFinished {
			continue
		}
		if s, end, ok := within(r, e); ok {
			all = append(all, span{s, end, r})
		}
	}
	x.settle(e, all)
}

// settle makes all, which it may reorder, the spans of epoch e.
func (x *Index) settle(e tiers.LeaderEpoch, all []span) {
	// By start, the far-reaching first: then each one that does not reach further
	// than all before it lies within one of them.
	slices.SortFunc(all, func(a, b span) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(b.end, a.end), newer(b.seg, a.seg))
	})
	kept, reach := all[:0], tiers.NoOffset
	for _, s := range all {
		if s.end > reach {
			kept, reach = append(kept, s), s.end
		}
	}
	if len(kept) == 0 {
		delete(x.epochs, e)
		return
	}
	x.epochs[e] = slices.Clip(kept)
	x.highest[e] = max(x.highest[e], reach)
}

// within returns the part of a segment that is of epoch e.
func within(r *tiers.RemoteSegment, e tiers.LeaderEpoch) (start, end tiers.Offset, ok bool) {
	i, ok := slices.BinarySearchFunc(r.Epochs, e, func(s tiers.EpochStart, e tiers.LeaderEpoch) int { return cmp.Compare(s.Epoch, e) })
	if !ok {
		return 0, 0, false
	}
	end = r.End
	if i+1 < len(r.Epochs) {
		end = r.Epochs[i+1].Start
	}
	return r.Epochs[i].Start, end, true
}

func order(a, b *tiers.RemoteSegment) int {
	return cmp.Or(cmp.Compare(a.Base, b.Base), slices.Compare(a.ID[:], b.ID[:]))
}

// newer compares by copier's epoch and time: of equal spans the one that was
// written last is read.
func newer(a, b *tiers.RemoteSegment) int {
	return cmp.Or(cmp.Compare(a.CopierEpoch, b.CopierEpoch), a.CreatedAt.Compare(b.CreatedAt), slices.Compare(a.ID[:], b.ID[:]))
}

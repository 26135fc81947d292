package partition

// Read: a reader never enters the loop. It takes a share of the files that the
// View shows, decides, reads, and compares what it did with the newest View
// before it answers (R17).

import (
	"context"
	"errors"
	"slices"

	"github.com/strandline-io/strandline/remoteindex"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/batch"
	"github.com/strandline-io/strandline/tiers/local"
	"github.com/strandline-io/strandline/tiers/plan"
	"github.com/strandline-io/strandline/tiers/remote"
)

// Isolation is a consumer's isolation level.
type Isolation int8

// The isolation levels, as on the wire.
const (
	ReadUncommitted Isolation = iota
	ReadCommitted
)

// ReadRequest asks for records.
type ReadRequest struct {
	From         tiers.Offset
	CurrentEpoch tiers.LeaderEpoch // what the client believes; NoEpoch: not given
	FetchedEpoch tiers.LeaderEpoch // LastFetchedEpoch; NoEpoch: not given
	MaxBytes     int
	MinOne       bool // the first batch may be larger than MaxBytes (KIP-74)
	Isolation    Isolation
	LocalOnly    bool
	Alloc        func(n int) []byte // nil: allocate
}

// ReadResult is what a read found.
type ReadResult struct {
	View      *View // what it was read under
	Records   []byte
	Aborted   []local.AbortedTxn // only for ReadCommitted
	Diverging *EpochEnd          // not nil: the client's history diverged; no records
	Remote    bool               // came from the bucket
}

// Read returns whole batches from From on, from whichever tier holds them, and
// never waits for records to arrive; it does wait for the bucket, until ctx
// ends. The chunks then still arrive, for the next try. Error kinds:
// OffsetOutOfRange below LogStart or above the readable end (View is set),
// FencedLeaderEpoch, UnknownLeaderEpoch, NotLeader, TimedOut if ctx ended before
// the bucket answered, RemoteUnavailable, StorageFailed, CorruptMessage.
func (o *Owner) Read(ctx context.Context, r ReadRequest) (ReadResult, error) {
	res, err := o.readOnce(ctx, r)
	for errors.Is(err, remote.ErrNotFound) && o.View().index != res.View.index {
		// The segment was deleted after the View was taken: the newest one knows
		// what serves the offset now.
		res, err = o.readOnce(ctx, r)
	}
	if err != nil {
		return ReadResult{View: res.View}, err
	}
	o.deps.Metrics.read(res.Remote, len(res.Records))
	return res, nil
}

// readOnce reads under the newest View.
func (o *Owner) readOnce(ctx context.Context, r ReadRequest) (ReadResult, error) {
	v, drop := o.pinned()
	defer drop()
	res, err := o.readUnder(ctx, v, r)
	if err == nil {
		err = o.validate(v, r, res)
	}
	return res, err
}

// readUnder reads as if v were the newest View.
func (o *Owner) readUnder(ctx context.Context, v *View, r ReadRequest) (ReadResult, error) {
	res := ReadResult{View: v}
	if err := o.admit("read", v, r.CurrentEpoch); err != nil {
		return res, err
	}
	p, err := plan.Fetch(v.facts(), plan.FetchAsk{
		Offset: r.From, LeaderEpoch: r.CurrentEpoch, LastEpoch: r.FetchedEpoch, Committed: r.Isolation == ReadCommitted,
	})
	if err != nil {
		return res, tiers.E(tiers.Other, "read", o.place, "%w", err)
	}
	switch p.Source {
	case plan.Diverging:
		res.Diverging = &EpochEnd{p.Epoch, p.End}
	case plan.Local:
		res, err := o.readLocal(v, r, p.From, p.End)
		if err != nil && !r.LocalOnly {
			if copied, ok := o.readInstead(ctx, v, r, p.End); ok {
				return copied, nil
			}
		}
		return res, err
	case plan.Remote:
		if !r.LocalOnly {
			return o.readTiers(ctx, v, r, p.End)
		}
	case plan.Wait, plan.Moved: // Moved is for replicas, which do not come in here
	}
	return res, nil
}

// facts is what v knows, in the words of package plan.
func (v *View) facts() plan.FetchFacts {
	return plan.FetchFacts{Watermarks: v.Watermarks, Lineage: v.Lineage, LeaderEpoch: v.Epoch}
}

// readable is the end of what a consumer may see.
func (v *View) readable(iso Isolation) tiers.Offset {
	if iso == ReadCommitted {
		return v.LastStable
	}
	return v.HighWatermark
}

// admit is what every read asks first: does this node own the partition, and does
// it agree with the client about the leader epoch (74, 75)?
func (o *Owner) admit(op string, v *View, current tiers.LeaderEpoch) error {
	if err := o.fencedErr(op); err != nil {
		return err
	}
	if v.Err != nil {
		return tiers.E(tiers.Other, op, o.place, "%w", v.Err)
	}
	switch {
	case current == tiers.NoEpoch || current == v.Epoch:
		return nil
	case current < v.Epoch:
		return tiers.E(tiers.FencedLeaderEpoch, op, o.place, "the leader epoch is %d, the client's is %d", v.Epoch, current)
	}
	return tiers.E(tiers.UnknownLeaderEpoch, op, o.place, "the leader epoch is %d, the client's is %d already", v.Epoch, current)
}

// readLocal reads from disk.
// readInstead reads the copy of what cannot be read on disk. The same offset is
// served from the other tier; nothing is skipped. ok is false if there is no copy
// or it cannot be read either: then the local error counts.
func (o *Owner) readInstead(ctx context.Context, v *View, r ReadRequest, end tiers.Offset) (res ReadResult, ok bool) {
	piece, where := v.index.Find(r.From, v.truth())
	if where != remoteindex.Covered {
		return res, false
	}
	res, found, err := o.readPiece(ctx, v, r, piece, end)
	return res, err == nil && found
}

func (o *Owner) readLocal(v *View, r ReadRequest, from, end tiers.Offset) (ReadResult, error) {
	res := ReadResult{View: v}
	records, err := v.files.Read(from, end, r.MaxBytes, r.MinOne, r.Alloc)
	if err != nil {
		kind := tiers.KindOf(err)
		if kind == tiers.Other {
			kind = tiers.StorageFailed
		}
		return res, tiers.E(kind, "read", o.place, "local tier at %d: %w", from, err)
	}
	res.Records = records
	if r.Isolation == ReadCommitted && len(records) > 0 {
		if res.Aborted, err = v.files.Aborted(from, nextAfter(records, end)); err != nil {
			return res, tiers.E(tiers.StorageFailed, "read", o.place, "aborted transactions from %d: %w", from, err)
		}
	}
	return res, nil
}

// nextAfter is the end of the last batch in records, which were read whole.
func nextAfter(records []byte, end tiers.Offset) tiers.Offset {
	next := end
	for len(records) > 0 {
		h, err := batch.Parse(records)
		if err != nil || h.Size() > int64(len(records)) {
			return end // the widest answer is never wrong
		}
		next, records = h.Next(), records[h.Size():]
	}
	return next
}

// validate compares what was read with the newest View (R17): offsets that were
// bound anew or removed meanwhile must not be answered. Reading can take as long
// as the bucket does.
func (o *Owner) validate(v *View, r ReadRequest, res ReadResult) error {
	newest := o.View()
	if err := o.admit("read", newest, r.CurrentEpoch); err != nil {
		return err
	}
	switch {
	case newest.History != v.History:
		return tiers.E(tiers.NotLeader, "read", o.place, "the partition's history changed while it was read")
	case len(res.Records) > 0 && r.From < newest.LogStart:
		return tiers.E(tiers.OffsetOutOfRange, "read", o.place, "offset %d was removed while it was read: the log starts at %d", r.From, newest.LogStart)
	}
	return nil
}

// mergeAborted merges the aborted transactions of the tiers (R16): each is wanted
// once, by first offset.
func mergeAborted(remote, local []local.AbortedTxn) []local.AbortedTxn {
	all := slices.Concat(remote, local)
	slices.SortFunc(all, compareAborted)
	return slices.Compact(all)
}

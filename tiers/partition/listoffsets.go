package partition

// ListOffset (spec s6.5, the classic column): the special timestamps are answered
// from the View; a time is looked up in the remote tier up to the local start,
// then on disk.

import (
	"context"
	"encoding/binary"
	"errors"
	"sort"

	"github.com/strandline-io/strandline/remoteindex"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/batch"
	"github.com/strandline-io/strandline/tiers/remote"
)

// Special timestamps of ListOffsets.
const (
	Latest                = -1
	Earliest              = -2
	MaxTimestamp          = -3 // KIP-734
	EarliestLocal         = -4 // KIP-405
	LatestTiered          = -5 // KIP-1005
	EarliestPendingUpload = -6 // KIP-1023
)

// OffsetAt is an answer of ListOffset.
type OffsetAt struct {
	Offset    tiers.Offset // NoOffset: there is none
	Timestamp int64        // -1: none
	Epoch     tiers.LeaderEpoch
}

// nowhere is the answer if there is no such record.
func nowhere() OffsetAt { return OffsetAt{tiers.NoOffset, -1, tiers.NoEpoch} }

// ListOffset answers a special timestamp or finds the first record with a
// timestamp >= ts over all tiers (spec s6.5).
func (o *Owner) ListOffset(ctx context.Context, ts int64, iso Isolation, current tiers.LeaderEpoch) (OffsetAt, error) {
	for {
		v, drop := o.pinned()
		at, err := o.listUnder(ctx, v, ts, iso, current)
		drop()
		if errors.Is(err, remote.ErrNotFound) && o.View().index != v.index {
			continue // a segment was deleted after the View was taken: the newest one knows better
		}
		return at, err
	}
}

// listUnder looks up as if v were the newest View, and compares with that.
func (o *Owner) listUnder(ctx context.Context, v *View, ts int64, iso Isolation, current tiers.LeaderEpoch) (OffsetAt, error) {
	if err := o.admit("list offsets", v, current); err != nil {
		return nowhere(), err
	}
	at, err := o.lookUp(ctx, v, ts, iso)
	if err != nil {
		return nowhere(), err
	}
	newest := o.View()
	if err := o.admit("list offsets", newest, current); err != nil {
		return nowhere(), err
	}
	if newest.History != v.History || at.Timestamp >= 0 && at.Offset < newest.LogStart {
		return nowhere(), tiers.E(tiers.NotLeader, "list offsets", o.place, "the log changed while it was searched: retry")
	}
	return at, nil
}

func (o *Owner) lookUp(ctx context.Context, v *View, ts int64, iso Isolation) (OffsetAt, error) {
	switch {
	case ts >= 0:
		return o.findTime(ctx, v, ts, v.readable(iso))
	case ts == MaxTimestamp:
		return o.findNewest(ctx, v, v.readable(iso))
	}
	at, err := v.special(ts, iso)
	if err != nil {
		return nowhere(), tiers.E(tiers.UnsupportedVersion, "list offsets", o.place, "%w", err)
	}
	return at, nil
}

// special answers what the watermarks know.
func (v *View) special(ts int64, iso Isolation) (OffsetAt, error) {
	covered := v.RemoteEnd > v.LogStart
	switch ts {
	case Latest:
		return v.named(v.readable(iso)), nil
	case Earliest:
		return v.named(v.LogStart), nil
	case EarliestLocal:
		return v.named(v.LocalLogStart), nil
	case LatestTiered:
		if !covered {
			return nowhere(), nil
		}
		return v.named(v.RemoteEnd - 1), nil
	case EarliestPendingUpload:
		if !covered && v.index.Rows() == 0 && !v.tiered {
			return nowhere(), nil
		}
		return v.named(max(v.RemoteEnd, v.LogStart)), nil
	}
	return nowhere(), tiers.E(tiers.UnsupportedVersion, "", "", "timestamp %d has no meaning", ts)
}

// named is an offset that no record's timestamp led to.
func (v *View) named(o tiers.Offset) OffsetAt {
	return OffsetAt{o, -1, v.Lineage.EpochFor(o)}
}

// findTime is the first record with timestamp >= ts in [LogStart,end). What the
// bucket holds below the log start is not searched (report 078).
func (o *Owner) findTime(ctx context.Context, v *View, ts int64, end tiers.Offset) (OffsetAt, error) {
	for p := range v.index.Pieces(v.LogStart, min(v.LocalLogStart, end), v.truth()) {
		if p.Segment.MaxTimestamp < ts {
			continue
		}
		s, err := o.openSegment(ctx, p.Segment)
		if err != nil {
			return nowhere(), err
		}
		found, err := s.firstAt(ctx, ts, p.From, p.End)
		if err != nil {
			return nowhere(), err
		}
		if found.Offset != tiers.NoOffset {
			found.Epoch = v.Lineage.EpochFor(found.Offset)
			return found, nil
		}
	}
	done, err := o.deps.Disk.Scan(ctx)
	if err != nil {
		return nowhere(), err
	}
	defer done()
	off, at, ok, err := v.files.FindTime(ts, max(v.LogStart, v.LocalLogStart), end)
	if err != nil || !ok {
		return nowhere(), o.searchFailed(err)
	}
	return OffsetAt{off, at, v.Lineage.EpochFor(off)}, nil
}

func (o *Owner) searchFailed(err error) error {
	if err == nil {
		return nil
	}
	kind := tiers.KindOf(err)
	if kind == tiers.Other {
		kind = tiers.StorageFailed
	}
	return tiers.E(kind, "list offsets", o.place, "local tier: %w", err)
}

// findNewest is the first record that carries the newest timestamp of all tiers
// (report 082).
func (o *Owner) findNewest(ctx context.Context, v *View, end tiers.Offset) (OffsetAt, error) {
	best, err := o.newestOnDisk(ctx, v, end)
	if err != nil {
		return nowhere(), err
	}
	for p := range v.index.Pieces(v.LogStart, min(v.LocalLogStart, end), v.truth()) {
		if p.Segment.MaxTimestamp < max(best.Timestamp, 0) {
			continue
		}
		s, err := o.openSegment(ctx, p.Segment)
		if err != nil {
			return nowhere(), err
		}
		found, err := s.newest(ctx, p)
		if err != nil {
			return nowhere(), err
		}
		if found.Timestamp > best.Timestamp || found.Timestamp == best.Timestamp && found.Timestamp >= 0 && found.Offset < best.Offset {
			best = found
		}
	}
	if best.Offset != tiers.NoOffset {
		best.Epoch = v.Lineage.EpochFor(best.Offset)
	}
	return best, nil
}

func (o *Owner) newestOnDisk(ctx context.Context, v *View, end tiers.Offset) (OffsetAt, error) {
	done, err := o.deps.Disk.Scan(ctx)
	if err != nil {
		return nowhere(), err
	}
	defer done()
	off, at, ok, err := v.files.MaxTimestamp(max(v.LogStart, v.LocalLogStart), end)
	if err != nil || !ok {
		return nowhere(), o.searchFailed(err)
	}
	return OffsetAt{off, at, tiers.NoEpoch}, nil
}

// timeEntry is the size of an entry of a .timeindex file: the newest timestamp so
// far, 8 bytes, and its offset relative to the segment's base, 4 bytes.
const timeEntry = 12

// timeFrom is an offset at or below that of the first record with timestamp >=
// ts: all before it are older.
func (s remoteSegment) timeFrom(ts int64) tiers.Offset {
	ix := s.meta.TimeIndex
	n := sort.Search(len(ix)/timeEntry, func(i int) bool {
		return int64(binary.BigEndian.Uint64(ix[i*timeEntry:])) >= ts
	})
	if n == 0 {
		return s.seg.Base
	}
	return s.seg.Base + tiers.Offset(binary.BigEndian.Uint32(ix[(n-1)*timeEntry+8:]))
}

// firstAt is the first record in [from,end) with timestamp >= ts.
func (s remoteSegment) firstAt(ctx context.Context, ts int64, from, end tiers.Offset) (OffsetAt, error) {
	found := nowhere()
	err := s.batches(ctx, max(from, s.timeFrom(ts)), end, func(h batch.Header) bool { return h.MaxTimestamp >= ts }, func(r batch.Record) bool {
		if r.Offset >= from && r.Offset < end && r.Timestamp >= ts {
			found = OffsetAt{r.Offset, r.Timestamp, tiers.NoEpoch}
		}
		return found.Offset == tiers.NoOffset
	})
	return found, err
}

// newest is the first record of the piece with its newest timestamp. If the whole
// segment is visible its row knows the timestamp; otherwise its batches are
// looked at.
func (s remoteSegment) newest(ctx context.Context, p remoteindex.Piece) (OffsetAt, error) {
	if p.From == p.Segment.Base && p.End == p.Segment.End {
		return s.firstAt(ctx, max(p.Segment.MaxTimestamp, 0), p.From, p.End)
	}
	found := nowhere()
	err := s.batches(ctx, p.From, p.End, func(h batch.Header) bool { return h.MaxTimestamp > found.Timestamp }, func(r batch.Record) bool {
		if r.Offset >= p.From && r.Offset < p.End && r.Timestamp > found.Timestamp {
			found = OffsetAt{r.Offset, r.Timestamp, tiers.NoEpoch}
		}
		return true
	})
	return found, err
}

// maxDecompressed bounds what one batch may grow to while it is searched.
const maxDecompressed = 256 << 20

// batches calls f for the records of the batches that end above from and begin
// below end and that want wants, until f returns false.
func (s remoteSegment) batches(ctx context.Context, from, end tiers.Offset, want func(batch.Header) bool, f func(batch.Record) bool) error {
	pos, h, ok, err := s.find(ctx, from)
	dec := batch.NewDecoder(maxDecompressed)
	for more := true; more && ok && err == nil && h.BaseOffset < end; {
		if want(h) && !h.Control() {
			if more, err = s.records(ctx, dec, pos, h, f); err != nil || !more {
				return err
			}
		}
		pos += h.Size()
		h, ok, err = s.headerAt(ctx, pos)
	}
	return err
}

// records calls f for the records of one batch; more is false once f said so. The
// right to decompress is taken once the batch is there: nobody who looks something
// up on disk waits for the bucket.
func (s remoteSegment) records(ctx context.Context, dec *batch.Decoder, pos int64, h batch.Header, f func(batch.Record) bool) (more bool, err error) {
	b := make([]byte, h.Size())
	if err = s.fill(ctx, b, pos); err != nil {
		return false, err
	}
	done, err := s.disk.Scan(ctx)
	if err != nil {
		return false, err
	}
	defer done()
	more = true
	err = dec.Records(b, func(r batch.Record) bool {
		more = f(r)
		return more
	})
	if err != nil {
		return false, tiers.E(tiers.CorruptMessage, "list offsets", remote.SegmentKey(s.seg), "batch at byte %d: %w", pos, err)
	}
	return more, nil
}

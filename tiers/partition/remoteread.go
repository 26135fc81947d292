package partition

// Remote reads: (authoritative epoch, offset) -> segment -> companion -> offset
// index -> position -> chunks. Only [From, safe end) of a segment is served
// (R14), a hole goes on with the next segment or tier (R15).

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"sort"

	"github.com/strandline-io/strandline/remoteindex"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/batch"
	"github.com/strandline-io/strandline/tiers/local"
	"github.com/strandline-io/strandline/tiers/remote"
)

// truth is what the remote tier is compared with, under v.
func (v *View) truth() remoteindex.Truth {
	return remoteindex.Truth{Lineage: v.Lineage, Start: v.LogStart, Bound: v.HighWatermark}
}

// readTiers reads from the bucket and, behind its last record, from disk. If the
// segment went away under the read, the newest View is tried once more.
func (o *Owner) readTiers(ctx context.Context, v *View, r ReadRequest, end tiers.Offset) (ReadResult, error) {
	from := r.From
	for from < end && from < v.LocalLogStart {
		piece, where := v.index.Find(from, v.truth())
		if where != remoteindex.Covered {
			return o.notCovered(v, r, from)
		}
		res, found, err := o.readPiece(ctx, v, r, piece, end)
		if err != nil || found {
			return res, err
		}
		from = min(piece.End, v.LocalLogStart) // from there on the disk knows better
	}
	if from >= end {
		return ReadResult{View: v}, nil
	}
	return o.readLocal(v, r, from, end)
}

// notCovered is R15: out of range is never inferred from absence. Either the log
// start moved, or the remote tier has lost something.
func (o *Owner) notCovered(v *View, r ReadRequest, from tiers.Offset) (ReadResult, error) {
	res := ReadResult{View: v}
	if newest := o.View(); newest.LogStart > from && newest.Err == nil {
		return res, tiers.E(tiers.OffsetOutOfRange, "read", o.place, "offset %d was removed: the log starts at %d", r.From, newest.LogStart)
	}
	o.deps.Metrics.hole()
	o.deps.Log.Error("an offset of the log is in no tier", "partition", o.place, "offset", from, "log_start", v.LogStart, "local_log_start", v.LocalLogStart, "remote_end", v.RemoteEnd)
	return res, tiers.E(tiers.NotLeader, "read", o.place, "no remote segment holds offset %d", from)
}

// readPiece reads whole batches of one segment. found is false if the piece has
// no batch at or behind its begin: a hole up to its end. A batch that is there
// and may not be answered is found, without records: nothing behind it may be
// answered instead.
func (o *Owner) readPiece(ctx context.Context, v *View, r ReadRequest, p remoteindex.Piece, end tiers.Offset) (res ReadResult, found bool, err error) {
	res = ReadResult{View: v, Remote: true}
	s, err := o.openSegment(ctx, p.Segment)
	if err != nil {
		return res, false, err
	}
	s.follow = v.following
	res.Records, found, err = s.read(ctx, p, end, r)
	if err != nil || len(res.Records) == 0 || r.Isolation != ReadCommitted {
		return res, found, err
	}
	res.Aborted, err = o.abortedTiers(ctx, v, r.From, nextAfter(res.Records, min(p.End, end)))
	return res, found, err
}

// following is the segment that a reader of seg will want next, unless it is on
// disk by then.
func (v *View) following(seg tiers.RemoteSegment) (next tiers.RemoteSegment, ok bool) {
	if seg.End >= v.LocalLogStart {
		return next, false
	}
	p, where := v.index.Find(seg.End, v.truth())
	if where != remoteindex.Covered || p.From != p.Segment.Base || p.Segment.ID == seg.ID {
		return next, false
	}
	return p.Segment, true
}

// remoteSegment is a segment that is read through the cache.
type remoteSegment struct {
	cache  *remote.Cache
	seg    tiers.RemoteSegment
	meta   *remote.SegmentMeta
	place  string
	disk   *local.Disk
	follow remote.Following // of a reader that goes on; nil for look-ups
}

func (o *Owner) openSegment(ctx context.Context, seg tiers.RemoteSegment) (remoteSegment, error) {
	s := remoteSegment{cache: o.deps.Cache, seg: seg, place: o.place, disk: o.deps.Disk}
	if s.cache == nil {
		return s, tiers.E(tiers.RemoteUnavailable, "read", o.place, "offset %d is in the bucket and this node was started without one", seg.Base)
	}
	meta, err := s.cache.Meta(ctx, seg)
	if err != nil {
		return s, s.failed(ctx, "read companion", remote.MetaKey(seg), err)
	}
	s.meta = meta
	return s, nil
}

// failed gives an error of the bucket the kind that a client should see. A caller
// that stopped waiting is told just that: what it asked for still arrives in the
// cache, and nobody knows anything bad of the bucket.
func (s remoteSegment) failed(ctx context.Context, op, key string, err error) error {
	kind := remoteKind(err)
	if ctx.Err() != nil && interrupted(err) {
		kind = tiers.TimedOut
	}
	return tiers.E(kind, op, key, "%s: %w", s.place, err)
}

func interrupted(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

func remoteKind(err error) tiers.Kind {
	switch {
	case interrupted(err):
		return tiers.RemoteUnavailable // the bucket takes longer than the cache waits: try again
	case errors.Is(err, remote.ErrNotFound):
		return tiers.StorageFailed // a row names an object that is gone
	case errors.Is(err, remote.ErrChecksum):
		// Not CorruptMessage, which some consumers give up on: the next answer of the
		// store may be right.
		return tiers.StorageFailed
	}
	if k := tiers.KindOf(err); k != tiers.Other {
		return k
	}
	return tiers.RemoteUnavailable
}

// offsetEntry is the size of an entry of an .index file: offset relative to the
// segment's base and position, 4 bytes each.
const offsetEntry = 8

// position is where in the records object to look for offset from: that of the
// last index entry at or below it.
func (s remoteSegment) position(from tiers.Offset) int64 {
	ix := s.meta.OffsetIndex
	rel := from - s.seg.Base
	n := sort.Search(len(ix)/offsetEntry, func(i int) bool {
		return tiers.Offset(binary.BigEndian.Uint32(ix[i*offsetEntry:])) > rel
	})
	if n == 0 {
		return 0
	}
	return int64(binary.BigEndian.Uint32(ix[(n-1)*offsetEntry+4:]))
}

// headerAt reads the batch header at pos; ok is false at the end of the object.
func (s remoteSegment) headerAt(ctx context.Context, pos int64) (h batch.Header, ok bool, err error) {
	if pos >= s.seg.Size {
		return h, false, nil
	}
	var b [batch.HeaderSize]byte
	if err = s.fill(ctx, b[:], pos); err != nil {
		return h, false, err
	}
	h, err = batch.Parse(b[:])
	switch {
	case err != nil:
		return h, false, tiers.E(tiers.CorruptMessage, "read", remote.SegmentKey(s.seg), "byte %d of %d: %w", pos, s.seg.Size, err)
	case pos+h.Size() > s.seg.Size:
		return h, false, tiers.E(tiers.CorruptMessage, "read", remote.SegmentKey(s.seg), "the batch at byte %d has %d bytes, the object ends at %d", pos, h.Size(), s.seg.Size)
	}
	return h, true, nil
}

// fill reads all of dst from pos, for a look-up.
func (s remoteSegment) fill(ctx context.Context, dst []byte, pos int64) error {
	n, err := s.cache.ReadAtWith(ctx, s.meta, dst, pos)
	return s.filled(ctx, n, len(dst), pos, err)
}

// fillOn is fill for a reader that goes on behind it.
func (s remoteSegment) fillOn(ctx context.Context, dst []byte, pos int64) error {
	n, err := s.cache.ReadOnWith(ctx, s.meta, dst, pos, s.follow)
	return s.filled(ctx, n, len(dst), pos, err)
}

func (s remoteSegment) filled(ctx context.Context, n, want int, pos int64, err error) error {
	if n == want {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return tiers.E(tiers.CorruptMessage, "read", remote.SegmentKey(s.seg), "the object ends at byte %d of %d", pos+int64(n), s.seg.Size)
	}
	return s.failed(ctx, "read", remote.SegmentKey(s.seg), err)
}

// find is the first batch that ends above from, and where it is.
func (s remoteSegment) find(ctx context.Context, from tiers.Offset) (pos int64, h batch.Header, ok bool, err error) {
	for pos = s.position(from); ; pos += h.Size() {
		h, ok, err = s.headerAt(ctx, pos)
		if err != nil || !ok || h.Next() > from {
			return pos, h, ok, err
		}
	}
}

// read returns whole batches of the piece from the one that holds its begin on,
// or the next, none of which ends above the piece or end. found is false if the
// piece has no such batch at all. One that is larger than what was asked for, or
// that ends too far up, is found and gives no bytes.
func (s remoteSegment) read(ctx context.Context, p remoteindex.Piece, end tiers.Offset, r ReadRequest) (records []byte, found bool, err error) {
	// Looking for the batch would fetch one chunk, and reading it the others.
	s.cache.Want(s.meta, s.position(p.From), int64(r.MaxBytes))
	pos, first, ok, err := s.find(ctx, p.From)
	if err != nil || !ok || first.BaseOffset >= p.End {
		return nil, false, err
	}
	limit := min(p.End, end)
	if first.Next() > limit || first.Size() > int64(r.MaxBytes) && !r.MinOne {
		return nil, true, nil
	}
	buf := allocate(r.Alloc, int(min(max(int64(r.MaxBytes), first.Size()), s.seg.Size-pos)))
	if err = s.fillOn(ctx, buf, pos); err != nil {
		return nil, true, err
	}
	n, err := wholeBatches(buf, first.BaseOffset, limit)
	if err != nil {
		return nil, true, tiers.E(tiers.CorruptMessage, "read", remote.SegmentKey(s.seg), "from byte %d: %w", pos, err)
	}
	return buf[:n], true, nil
}

func allocate(alloc func(n int) []byte, n int) []byte {
	if alloc == nil {
		return make([]byte, n)
	}
	return alloc(n)
}

// wholeBatches is how many bytes of b are whole batches below limit. The chain of
// headers must hold: a wrong length or an offset that goes back is damage, never
// an end.
func wholeBatches(b []byte, base, limit tiers.Offset) (n int, err error) {
	for len(b)-n >= batch.HeaderSize {
		h, err := batch.Parse(b[n:])
		switch {
		case err != nil:
			return 0, err
		case h.BaseOffset < base:
			return 0, tiers.E(tiers.CorruptMessage, "check batch", "", "offset %d comes after %d", h.BaseOffset, base)
		case h.Next() > limit || h.Size() > int64(len(b)-n):
			return n, nil
		}
		n, base = n+int(h.Size()), h.Next()
	}
	return n, nil
}

// abortedTiers collects the aborted transactions that overlap [from,end) from the
// transaction indexes of the segments that serve it and of those behind, up to
// the one that knows the last stable offset to be past end; then from disk
// (R16). The row says whether a segment has any, so that no companion is fetched
// for nothing (report 134).
func (o *Owner) abortedTiers(ctx context.Context, v *View, from, end tiers.Offset) ([]local.AbortedTxn, error) {
	var found []local.AbortedTxn
	for p := range v.index.Pieces(from, min(v.LocalLogStart, v.LastStable), v.truth()) {
		if !p.Segment.HasAborted {
			continue
		}
		s, err := o.openSegment(ctx, p.Segment)
		if err != nil {
			return nil, err
		}
		txns, complete, err := abortedIn(s.meta.TxnIndex, from, end)
		if err != nil {
			return nil, tiers.E(tiers.CorruptMessage, "read", remote.MetaKey(p.Segment), "%w", err)
		}
		found = append(found, txns...)
		if complete {
			return mergeAborted(found, nil), nil
		}
	}
	onDisk, err := v.files.Aborted(from, end)
	if err != nil {
		return nil, tiers.E(tiers.StorageFailed, "read", o.place, "aborted transactions from %d: %w", from, err)
	}
	return mergeAborted(found, onDisk), nil
}

// txnEntry is the size of an entry of a .txnindex file: version, producer id,
// first offset, last offset, last stable offset.
const txnEntry = 2 + 4*8

// abortedIn reads a transaction index. complete says that no later index can know
// of another one that overlaps.
func abortedIn(ix []byte, from, end tiers.Offset) (txns []local.AbortedTxn, complete bool, err error) {
	if len(ix)%txnEntry != 0 {
		return nil, false, tiers.E(tiers.CorruptMessage, "read transaction index", "", "%d bytes are not whole entries", len(ix))
	}
	for ; len(ix) > 0; ix = ix[txnEntry:] {
		if version := binary.BigEndian.Uint16(ix); version != 0 {
			return nil, false, tiers.E(tiers.UnsupportedVersion, "read transaction index", "", "version %d", version)
		}
		at := func(i int) int64 { return int64(binary.BigEndian.Uint64(ix[2+8*i:])) }
		t := local.AbortedTxn{ProducerID: at(0), First: tiers.Offset(at(1)), Last: tiers.Offset(at(2)), LastStable: tiers.Offset(at(3))}
		if t.Last >= from && t.First < end {
			txns = append(txns, t)
		}
		if t.LastStable >= end {
			return txns, true, nil
		}
	}
	return txns, false, nil
}

func compareAborted(a, b local.AbortedTxn) int {
	return cmp.Or(cmp.Compare(a.First, b.First), cmp.Compare(a.Last, b.Last), cmp.Compare(a.ProducerID, b.ProducerID))
}

// noLimit is an offset above all others.
const noLimit = tiers.Offset(math.MaxInt64)

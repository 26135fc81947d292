package partition

// Upload: the part of a copy that moves bytes. Records first, companion last, and
// both are read back before anybody is told (R2, P4).

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/batch"
	"github.com/strandline-io/strandline/tiers/local"
	"github.com/strandline-io/strandline/tiers/remote"
)

func (j uploadJob) run(ctx context.Context, t tools) outcome {
	a := j.attempt
	err := a.upload(ctx, t.cache.Bucket())
	return uploadDone{a, err}
}

// upload puts both objects and completes the facts of a.seg.
func (a *attempt) upload(ctx context.Context, bucket remote.Bucket) error {
	if !a.files.share() {
		return tiers.E(tiers.Closed, "copy", a.name.String(), "the partition was closed")
	}
	defer a.files.drop()
	f, err := a.files.Files(a.seg.Base)
	if err != nil {
		return tiers.E(tiers.StorageFailed, "open segment", a.name.String(), "base %d: %w", a.seg.Base, err)
	}
	sums, err := sumRecords(f.Log, f.Segment.Size, batchWalk{next: a.seg.Base, end: a.seg.End, lineage: a.lineage})
	if err != nil {
		return tiers.E(tiers.CorruptMessage, "read segment", a.name.String(), "base %d: %w", a.seg.Base, err)
	}
	a.complete(f, sums)
	body := remote.WithCRC(remote.ReaderAtBody(f.Log, 0, f.Segment.Size), sums.whole)
	if err := putVerified(ctx, bucket, remote.SegmentKey(a.seg), body, sums.whole); err != nil {
		return err
	}
	return a.uploadMeta(ctx, bucket, f, sums)
}

// complete adds what only the bytes tell.
func (a *attempt) complete(f *local.SegmentFiles, sums recordSums) {
	a.seg.Size, a.seg.CRC32C = f.Segment.Size, sums.whole
	a.seg.MaxTimestamp, a.seg.HasAborted = f.Segment.MaxTimestamp, len(f.TxnIndex) > 0
}

// uploadMeta puts the companion and decodes what the bucket gives back.
func (a *attempt) uploadMeta(ctx context.Context, bucket remote.Bucket, f *local.SegmentFiles, sums recordSums) error {
	key := remote.MetaKey(a.seg)
	encoded, err := remote.EncodeMeta(&remote.SegmentMeta{
		Cluster: a.cluster, TopicName: a.name.Topic, Segment: a.seg, ChunkCRC: sums.chunks,
		OffsetIndex: f.OffsetIndex, TimeIndex: f.TimeIndex, TxnIndex: f.TxnIndex, Producers: f.Producers, Lineage: a.lineage,
	})
	if err != nil {
		return tiers.E(tiers.Other, "encode companion", key, "%w", err)
	}
	a.seg.MetaSize = int64(len(encoded))
	crc := remote.CRC32C(encoded)
	if err = putVerified(ctx, bucket, key, remote.WithCRC(remote.BytesBody(encoded), crc), crc); err != nil {
		return err
	}
	stored, err := readObject(ctx, bucket, key, int64(len(encoded)))
	if err != nil {
		return err
	}
	if _, err := remote.DecodeMeta(stored); err != nil {
		return tiers.E(tiers.Other, "read back", key, "%w", err)
	}
	if !bytes.Equal(stored, encoded) {
		return tiers.E(tiers.CorruptMessage, "read back", key, "%w: the bucket holds other bytes than were sent", remote.ErrChecksum)
	}
	return nil
}

// putVerified stores body and asks the bucket what it holds now. What a Put
// answers is not enough: it may have been another try of it that was stored.
func putVerified(ctx context.Context, bucket remote.Bucket, key string, body remote.Body, crc uint32) error {
	_, err := bucket.Put(ctx, key, body, remote.PutOptions{})
	if err != nil && !errors.Is(err, remote.ErrUnknownOutcome) {
		return tiers.E(copyKind(err), "put object", key, "%w", err)
	}
	o, err := bucket.Stat(ctx, key)
	if err != nil {
		return tiers.E(copyKind(err), "read back", key, "%w", err)
	}
	if o.Size != body.Size() {
		return tiers.E(tiers.CorruptMessage, "read back", key, "%w: %d bytes were sent, the bucket holds %d", remote.ErrChecksum, body.Size(), o.Size)
	}
	stored := o.CRC32C
	if !o.HasCRC {
		if stored, err = objectCRC(ctx, bucket, key); err != nil {
			return err
		}
	}
	if stored != crc {
		return tiers.E(tiers.CorruptMessage, "read back", key, "%w: CRC-32C %08x was sent, the bucket holds %08x", remote.ErrChecksum, crc, stored)
	}
	return nil
}

// objectCRC reads an object whose store keeps no checksum.
func objectCRC(ctx context.Context, bucket remote.Bucket, key string) (uint32, error) {
	r, _, err := bucket.Get(ctx, key, remote.Range{})
	if err != nil {
		return 0, tiers.E(copyKind(err), "read back", key, "%w", err)
	}
	w := &crcWriter{}
	_, err = io.Copy(w, r)
	if err = errors.Join(err, r.Close()); err != nil {
		return 0, tiers.E(copyKind(err), "read back", key, "%w", err)
	}
	return w.crc, nil
}

type crcWriter struct{ crc uint32 }

func (w *crcWriter) Write(p []byte) (int, error) {
	w.crc = remote.UpdateCRC32C(w.crc, p)
	return len(p), nil
}

// readObject reads an object of a known size.
func readObject(ctx context.Context, bucket remote.Bucket, key string, size int64) ([]byte, error) {
	b := make([]byte, size)
	n, err := bucket.ReadAt(ctx, key, b, 0)
	if n < len(b) {
		return nil, tiers.E(copyKind(err), "read back", key, "%w", err)
	}
	return b, nil
}

// copyKind is the kind of an error of the bucket or of the registry, as whoever
// asked for a copy should see it.
func copyKind(err error) tiers.Kind {
	if k := tiers.KindOf(err); k != tiers.Other {
		return k
	}
	return tiers.RemoteUnavailable
}

// recordSums are the checksums of a records object.
type recordSums struct {
	whole  uint32
	chunks []uint32
}

// sumRecords reads a segment once: it makes the checksums that the bucket and the
// companion get, and sees to it that what is copied are whole batches in offset
// order whose own CRCs hold. A disk that lies must not get its bytes into the
// bucket, where they would outlive the good ones.
func sumRecords(r io.ReaderAt, size int64, walk batchWalk) (recordSums, error) {
	sums := recordSums{chunks: make([]uint32, 0, remote.ChunkCount(size))}
	buf := make([]byte, min(size, remote.ChunkSize))
	for off := int64(0); off < size; off += int64(len(buf)) {
		buf = buf[:min(size-off, int64(len(buf)))]
		if n, err := r.ReadAt(buf, off); n < len(buf) {
			return recordSums{}, err
		}
		sums.chunks = append(sums.chunks, remote.CRC32C(buf))
		sums.whole = remote.UpdateCRC32C(sums.whole, buf)
		if err := walk.feed(buf); err != nil {
			return recordSums{}, err
		}
	}
	return sums, walk.finish()
}

// crcFrom is where the part of a batch that its CRC covers begins.
const crcFrom = 21

// batchWalk checks batches that come in pieces.
type batchWalk struct {
	next, end tiers.Offset  // the lowest base that may come, and where all must end
	lineage   tiers.Lineage // the epoch of each offset; nothing is known below its start

	head    []byte // of the batch that is coming
	header  batch.Header
	left    int64 // bytes of it that are to come, once the header is complete
	crc     uint32
	walked  int64 // bytes of complete batches
	pending bool  // a header was read and its batch is not complete
}

func (w *batchWalk) feed(p []byte) error {
	for len(p) > 0 {
		if !w.pending {
			n := min(len(p), batch.HeaderSize-len(w.head))
			w.head, p = append(w.head, p[:n]...), p[n:]
			if len(w.head) < batch.HeaderSize {
				return nil
			}
			if err := w.begin(); err != nil {
				return err
			}
		}
		n := min(int64(len(p)), w.left)
		w.crc = remote.UpdateCRC32C(w.crc, p[:n])
		w.left, p = w.left-n, p[n:]
		if w.left == 0 {
			if err := w.complete(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *batchWalk) begin() error {
	h, err := batch.Parse(w.head)
	switch {
	case err != nil:
		return tiers.E(tiers.CorruptMessage, "check batch", "", "at byte %d: %w", w.walked, err)
	case h.BaseOffset < w.next || h.Next() > w.end:
		return tiers.E(tiers.CorruptMessage, "check batch", "", "at byte %d: offsets [%d,%d) are not within [%d,%d)", w.walked, h.BaseOffset, h.Next(), w.next, w.end)
	}
	if e := w.lineage.EpochFor(h.BaseOffset); e != tiers.NoEpoch && e != h.LeaderEpoch {
		return tiers.E(tiers.CorruptMessage, "check batch", "", "at byte %d, offset %d: the batch has leader epoch %d, the log %d", w.walked, h.BaseOffset, h.LeaderEpoch, e)
	}
	w.header, w.pending, w.left = h, true, h.Size()-batch.HeaderSize
	w.crc = remote.UpdateCRC32C(0, w.head[crcFrom:])
	return nil
}

func (w *batchWalk) complete() error {
	if w.crc != w.header.CRC {
		return tiers.E(tiers.CorruptMessage, "check batch", "", "at byte %d, offset %d: CRC-32C is %08x, the header says %08x", w.walked, w.header.BaseOffset, w.crc, w.header.CRC)
	}
	w.next, w.walked = w.header.Next(), w.walked+w.header.Size()
	w.head, w.pending = w.head[:0], false
	return nil
}

func (w *batchWalk) finish() error {
	if w.pending || len(w.head) > 0 {
		return tiers.E(tiers.CorruptMessage, "check batch", "", "the batch at byte %d is cut off", w.walked)
	}
	return nil
}

package batch

import (
	"bytes"
	"encoding/binary"
	"io"
	"math"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/strandline-io/strandline/tiers"
)

// Builder makes a batch of records, for control records, tests and tools.
type Builder struct {
	Codec         Codec
	LeaderEpoch   tiers.LeaderEpoch
	ProducerID    int64 // -1: none; epoch and sequence then do not count
	ProducerEpoch int16
	BaseSequence  int32
	Transactional bool
	Control       bool
	LogAppendTime bool
}

// Build encodes recs, whose offsets must rise, as one batch whose base offset is
// that of the first.
func (b Builder) Build(recs []Record) ([]byte, error) {
	if err := buildable(recs); err != nil {
		return nil, err
	}
	out := make([]byte, HeaderSize, HeaderSize+64*len(recs))
	plain, newest := encode(recs)
	out, err := compress(out, b.Codec, plain)
	if err != nil {
		return nil, err
	}
	if len(out)-lengthEnd > math.MaxInt32 {
		return nil, tiers.E(tiers.MessageTooLarge, "build batch", "", "%d bytes do not fit a batch", len(out))
	}
	b.header(out, recs, newest)
	return out, nil
}

func buildable(recs []Record) error {
	if len(recs) == 0 {
		return tiers.E(tiers.InvalidRecord, "build batch", "", "there is no record")
	}
	for i := 1; i < len(recs); i++ {
		if recs[i].Offset <= recs[i-1].Offset {
			return tiers.E(tiers.InvalidRecord, "build batch", "", "offset %d follows %d", recs[i].Offset, recs[i-1].Offset)
		}
	}
	if d := recs[len(recs)-1].Offset - recs[0].Offset; d > math.MaxInt32 {
		return tiers.E(tiers.InvalidRecord, "build batch", "", "offsets are %d apart, a batch spans 2^31-1 at most", d)
	}
	return nil
}

func (b Builder) header(out []byte, recs []Record, newest int64) {
	if b.ProducerID < 0 {
		b.ProducerID, b.ProducerEpoch, b.BaseSequence = -1, -1, -1
	}
	be := binary.BigEndian
	be.PutUint64(out, uint64(recs[0].Offset))
	be.PutUint32(out[atLength:], uint32(len(out)-lengthEnd))
	be.PutUint32(out[atLeaderEpoch:], uint32(b.LeaderEpoch))
	out[atMagic] = 2
	be.PutUint16(out[atAttributes:], b.attributes())
	be.PutUint32(out[atLastOffsetDelta:], uint32(recs[len(recs)-1].Offset-recs[0].Offset))
	be.PutUint64(out[atFirstTimestamp:], uint64(recs[0].Timestamp))
	be.PutUint64(out[atMaxTimestamp:], uint64(newest))
	be.PutUint64(out[atProducerID:], uint64(b.ProducerID))
	be.PutUint16(out[atProducerEpoch:], uint16(b.ProducerEpoch))
	be.PutUint32(out[atBaseSequence:], uint32(b.BaseSequence))
	be.PutUint32(out[atCount:], uint32(len(recs)))
	be.PutUint32(out[atCRC:], checksum(out[atAttributes:]))
}

func (b Builder) attributes() uint16 {
	a := uint16(b.Codec) & 7
	if b.LogAppendTime {
		a |= 8
	}
	if b.Transactional {
		a |= 16
	}
	if b.Control {
		a |= 32
	}
	return a
}

// encode returns the records as they are before compression, and the newest
// timestamp.
func encode(recs []Record) (dst []byte, newest int64) {
	newest = recs[0].Timestamp
	var body []byte
	for _, r := range recs {
		newest = max(newest, r.Timestamp)
		body = append(body[:0], 0)
		body = binary.AppendVarint(body, r.Timestamp-recs[0].Timestamp)
		body = binary.AppendVarint(body, int64(r.Offset-recs[0].Offset))
		body = appendNullable(body, r.Key)
		body = appendNullable(body, r.Value)
		body = binary.AppendVarint(body, int64(len(r.Headers)))
		for _, h := range r.Headers {
			body = binary.AppendVarint(body, int64(len(h.Key)))
			body = append(body, h.Key...)
			body = appendNullable(body, h.Value)
		}
		dst = binary.AppendVarint(dst, int64(len(body)))
		dst = append(dst, body...)
	}
	return dst, newest
}

func appendNullable(dst, v []byte) []byte {
	if v == nil {
		return binary.AppendVarint(dst, -1)
	}
	return append(binary.AppendVarint(dst, int64(len(v))), v...)
}

// compress appends the compressed src to dst. Snappy is one raw block, lz4 a
// frame of independent blocks of 64 KiB, as Java clients need it (KIP-57).
func compress(dst []byte, c Codec, src []byte) ([]byte, error) {
	w := bytes.NewBuffer(dst)
	switch c {
	case None:
		return append(dst, src...), nil
	case Snappy:
		return append(dst, snappy.Encode(nil, src)...), nil
	case Gzip:
		return drain(w, gzip.NewWriter(w), src)
	case LZ4:
		z := lz4.NewWriter(w)
		if err := z.Apply(lz4.BlockSizeOption(lz4.Block64Kb), lz4.ConcurrencyOption(1)); err != nil {
			return nil, err
		}
		return drain(w, z, src)
	case Zstd:
		z, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
		if err != nil {
			return nil, err
		}
		return z.EncodeAll(src, dst), z.Close()
	}
	return nil, tiers.E(tiers.UnsupportedCompression, "build batch", "", "codec %d", int8(c))
}

func drain(w *bytes.Buffer, z io.WriteCloser, src []byte) ([]byte, error) {
	if _, err := z.Write(src); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return w.Bytes(), nil
}

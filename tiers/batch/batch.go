// Package batch reads, checks and stamps Kafka record batches, version 2. It is
// pure: bytes in, facts or bytes out.
//
// Base offset, length and leader epoch sit outside the CRC, so Stamp needs no new
// one (B6). Nobody owns anything here except a Decoder, which belongs to the
// goroutine that uses it.
//
// Invariants: what Check lets through claims Count offsets that are dense from the
// base offset on, has nothing behind its last byte and, if it is not compressed,
// room for that many records; only a Decoder looks at the records. What the
// package allocates is bounded by the bytes it was given and by the cap of the
// Decoder, never by a length that was read.
package batch

import (
	"fmt"

	"github.com/strandline-io/strandline/tiers"
)

// HeaderSize is the size in bytes of a batch header: the least size of a batch.
const HeaderSize = 61

// Header is the fixed part of a record batch.
type Header struct {
	BaseOffset      tiers.Offset
	Length          int32 // bytes after the length field
	LeaderEpoch     tiers.LeaderEpoch
	Magic           int8
	CRC             uint32
	Attributes      int16
	LastOffsetDelta int32
	FirstTimestamp  int64
	MaxTimestamp    int64
	ProducerID      int64
	ProducerEpoch   int16
	BaseSequence    int32
	Count           int32
}

// Size is the size of the batch in bytes, header included.
func (h Header) Size() int64 { return int64(h.Length) + 12 }

// Last is the offset of the last record, present or compacted away.
func (h Header) Last() tiers.Offset { return h.BaseOffset + tiers.Offset(h.LastOffsetDelta) }

// Next is the offset after the last record.
func (h Header) Next() tiers.Offset { return h.Last() + 1 }

// Codec is the compression of the records.
func (h Header) Codec() Codec { return Codec(h.Attributes & 7) }

// LogAppendTime reports whether the broker sets the timestamps.
func (h Header) LogAppendTime() bool { return h.Attributes&8 != 0 }

// Transactional reports whether the batch is part of a transaction.
func (h Header) Transactional() bool { return h.Attributes&16 != 0 }

// DeleteHorizon reports whether the compactor put the time at which tombstones
// and markers may go in the place of the first timestamp (KIP-534).
func (h Header) DeleteHorizon() bool { return h.Attributes&64 != 0 }

// Control reports whether the batch is a marker rather than records.
func (h Header) Control() bool { return h.Attributes&32 != 0 }

// LastSequence is the sequence number of the last record; it wraps at 2^31.
func (h Header) LastSequence() int32 {
	return int32((int64(h.BaseSequence) + int64(h.LastOffsetDelta)) & 0x7fffffff)
}

// Codec is a compression codec.
type Codec int8

// The codecs of record batches.
const (
	None Codec = iota
	Gzip
	Snappy
	LZ4
	Zstd
)

// Limits bound what a batch may be.
type Limits struct {
	MaxBytes int64 // max.message.bytes; 0: no limit
}

// String is the codec by its name in Kafka's settings.
func (c Codec) String() string {
	switch c {
	case None:
		return "none"
	case Gzip:
		return "gzip"
	case Snappy:
		return "snappy"
	case LZ4:
		return "lz4"
	case Zstd:
		return "zstd"
	}
	return fmt.Sprintf("codec(%d)", int8(c))
}

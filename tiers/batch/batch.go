// Package batch reads, checks and stamps Kafka record batches, version 2. It is
// pure: bytes in, facts or bytes out.
//
// Base offset, length and leader epoch sit outside the CRC, so Stamp needs no new
// one (B6).
package batch

import "github.com/strandline-io/strandline/tiers"

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

// Parse reads the header of the batch at the start of b. It checks only that the
// header is there and the length is not absurd: kind CorruptMessage.
func Parse(b []byte) (Header, error) { panic("contract") }

// Check validates the one batch that b must be exactly, in the order of Kafka:
// length, magic (UnsupportedFormat), size (MessageTooLarge), CRC
// (CorruptMessage), count and last offset delta (InvalidRecord), codec
// (UnsupportedCompression), control bit from a client (InvalidRecord). It
// allocates nothing and decompresses nothing.
func Check(b []byte, l Limits) (Header, error) { panic("contract") }

// VerifyCRC reports whether the CRC-32C of the batch b holds.
func VerifyCRC(b []byte) bool { panic("contract") }

// Stamp writes base offset and leader epoch into the header, in place.
func Stamp(b []byte, base tiers.Offset, e tiers.LeaderEpoch) { panic("contract") }

// StampAppendTime marks the batch as stamped by the broker at ts, milliseconds
// since 1970, and makes a new CRC.
func StampAppendTime(b []byte, ts int64) { panic("contract") }

// Record is one record of a batch. Key and value alias the decompressed bytes;
// nil is null.
type Record struct {
	Offset    tiers.Offset
	Timestamp int64
	Key       []byte
	Value     []byte
	Headers   []RecordHeader
}

// RecordHeader is a header of a record.
type RecordHeader struct {
	Key   string
	Value []byte
}

// Decoder iterates over the records of batches; it holds buffers for reuse and is
// not safe for concurrent use. maxBytes caps what a batch may decompress to
// (MessageTooLarge): a bomb stops there (report 069).
type Decoder struct{}

// NewDecoder returns a decoder.
func NewDecoder(maxBytes int64) *Decoder { panic("contract") }

// Records calls f for each record of the batch b until f returns false. Fields
// passed to f are valid until the next call of Records.
func (d *Decoder) Records(b []byte, f func(Record) bool) error { panic("contract") }

// Builder makes a batch of records, for control records, tests and tools.
type Builder struct {
	Codec         Codec
	LeaderEpoch   tiers.LeaderEpoch
	ProducerID    int64 // -1: none
	ProducerEpoch int16
	BaseSequence  int32
	Transactional bool
	Control       bool
	LogAppendTime bool
}

// Build encodes recs, whose offsets must rise, as one batch whose base offset is
// that of the first.
func (b Builder) Build(recs []Record) ([]byte, error) { panic("contract") }

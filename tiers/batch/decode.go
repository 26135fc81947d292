package batch

import (
	"math"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/strandline-io/strandline/tiers"
)

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

// DefaultMaxDecompressed caps decompression where the caller names no cap: 128
// MiB, the largest window that zstd clients use.
const DefaultMaxDecompressed = 128 << 20

// Decoder iterates over the records of batches; it holds buffers for reuse and is
// not safe for concurrent use. maxBytes caps what a batch may decompress to
// (MessageTooLarge): a bomb stops there (report 069).
type Decoder struct {
	max     int64
	buf     []byte         // decompressed records of the last call
	headers []RecordHeader // of all records of the last call

	// Decompressors are made when the first batch of their codec comes.
	gzip *gzip.Reader
	lz4  *lz4.Reader
	zstd *zstd.Decoder
}

// NewDecoder returns a decoder. A maxBytes that is not positive means
// DefaultMaxDecompressed, one above 2^31-1 means that: no client reads more.
func NewDecoder(maxBytes int64) *Decoder {
	if maxBytes <= 0 {
		maxBytes = DefaultMaxDecompressed
	}
	return &Decoder{max: min(maxBytes, math.MaxInt32)}
}

// Records calls f for each record of the batch b until f returns false. Fields
// passed to f are valid until the next call of Records.
//
// Bytes behind the batch are ignored. The CRC is not checked. Records out of
// order, outside of the batch's offsets or not ending with the batch are of kind
// CorruptMessage; f may have seen records before them.
func (d *Decoder) Records(b []byte, f func(Record) bool) error {
	h, err := Parse(b)
	if err != nil {
		return err
	}
	if h.Size() > int64(len(b)) {
		return tiers.E(tiers.CorruptMessage, "decode batch", "", "the header says %d bytes, there are %d", h.Size(), len(b))
	}
	if h.Magic != 2 {
		return tiers.E(tiers.UnsupportedFormat, "decode batch", "", "magic %d, only record batches of version 2 are read", h.Magic)
	}
	if h.Count == 0 && h.Size() == HeaderSize { // Compaction left nothing of it but its offsets.
		return nil
	}
	src, err := d.decompress(h.Codec(), b[HeaderSize:h.Size()])
	if err != nil {
		return err
	}
	return d.walk(h, src, f)
}

// CheckRecords decompresses the batch b, which has passed Check, and validates
// what only the records tell: that there are Count of them with offset deltas 0,
// 1, 2..., and that each has a key if the topic is compacted. A violation is of
// kind InvalidRecord, one that cannot be decompressed CorruptMessage.
func (d *Decoder) CheckRecords(b []byte, requireKey bool) error {
	h, err := Parse(b)
	if err != nil {
		return err
	}
	next, bad, keyless := h.BaseOffset, false, false
	err = d.Records(b, func(r Record) bool {
		bad, keyless = r.Offset != next, requireKey && r.Key == nil
		if bad || keyless {
			return false
		}
		next++
		return true
	})
	i := next - h.BaseOffset
	switch {
	case err != nil:
		return err
	case bad:
		return tiers.E(tiers.InvalidRecord, "check records", "", "record %d of the batch has another offset delta", i)
	case keyless:
		return tiers.E(tiers.InvalidRecord, "check records", "", "record %d of the batch has no key, which a compacted topic needs", i)
	}
	return nil
}

func (d *Decoder) walk(h Header, src []byte, f func(Record) bool) error {
	c := cursor{b: src}
	d.headers = d.headers[:0]
	last := int32(-1)
	for i := range h.Count {
		body := cursor{b: c.bytes(c.varint())}
		body.bad = c.bad
		r, delta := d.record(&body, h)
		switch {
		case body.bad || len(body.b) > 0:
			return tiers.E(tiers.CorruptMessage, "decode batch", "", "record %d of %d at base offset %d is malformed", i, h.Count, h.BaseOffset)
		case delta <= last || delta > h.LastOffsetDelta:
			return tiers.E(tiers.CorruptMessage, "decode batch", "", "record %d at base offset %d has offset delta %d after %d, the last of the batch is %d", i, h.BaseOffset, delta, last, h.LastOffsetDelta)
		}
		last = delta
		if !f(r) {
			return nil
		}
	}
	if len(c.b) > 0 || h.Count < 0 {
		return tiers.E(tiers.CorruptMessage, "decode batch", "", "%d bytes behind the %d records of the batch at %d", len(c.b), h.Count, h.BaseOffset)
	}
	return nil
}

// record reads the body of a record: everything behind its length.
func (d *Decoder) record(c *cursor, h Header) (Record, int32) {
	c.bytes(1) // attributes, unused in version 2
	ts, delta := h.FirstTimestamp+c.varlong(), c.varint()
	if h.LogAppendTime() {
		ts = h.MaxTimestamp
	}
	r := Record{Offset: h.BaseOffset + tiers.Offset(delta), Timestamp: ts, Key: c.nullable(), Value: c.nullable()}
	n, first := c.varint(), len(d.headers)
	if n < 0 || int(n) > len(c.b)/2 { // A header has two bytes at least.
		c.fail()
		return r, delta
	}
	for range n {
		k := c.bytes(c.varint())
		d.headers = append(d.headers, RecordHeader{Key: string(k), Value: c.nullable()})
	}
	if n > 0 {
		r.Headers = d.headers[first:len(d.headers):len(d.headers)]
	}
	return r, delta
}

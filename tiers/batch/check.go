package batch

import (
	"hash/crc32"
	"math"

	"github.com/strandline-io/strandline/tiers"
)

// clientAttributes are the bits that a client may set: codec, timestamp type,
// transactional, control. Control has a check of its own.
const clientAttributes = 0x3f

// minRecord is the least size in bytes of a record: length, attributes, timestamp
// and offset deltas, lengths of key and value, number of headers, a byte each.
const minRecord = 7

// Check validates the one batch that b must be exactly, in the order of Kafka:
// length, magic (UnsupportedFormat), size (MessageTooLarge), CRC
// (CorruptMessage), count and last offset delta (InvalidRecord), codec
// (UnsupportedCompression), control bit from a client, more records than the bytes
// can hold, a producer id without epoch or sequence (InvalidRecord). It allocates
// nothing and decompresses nothing, so the count of a compressed batch is not
// compared with its bytes.
func Check(b []byte, l Limits) (Header, error) {
	h, err := checkFrame(b, "check batch")
	if err != nil {
		return h, err
	}
	if l.MaxBytes > 0 && h.Size() > l.MaxBytes {
		return h, tiers.E(tiers.MessageTooLarge, "check batch", "", "%d bytes, max.message.bytes is %d", h.Size(), l.MaxBytes)
	}
	if err := checkCRC(b, h, "check batch"); err != nil {
		return h, err
	}
	switch {
	case h.Count <= 0:
		return h, tiers.E(tiers.InvalidRecord, "check batch", "", "%d records, a batch must have one at least", h.Count)
	case h.LastOffsetDelta != h.Count-1:
		return h, tiers.E(tiers.InvalidRecord, "check batch", "", "last offset delta %d does not fit %d records", h.LastOffsetDelta, h.Count)
	case h.Codec() > Zstd:
		return h, tiers.E(tiers.UnsupportedCompression, "check batch", "", "codec %d, known are none, gzip, snappy, lz4 and zstd", int8(h.Codec()))
	case h.Control():
		return h, tiers.E(tiers.InvalidRecord, "check batch", "", "control batches are made by the broker only")
	case h.Attributes&^clientAttributes != 0:
		return h, tiers.E(tiers.InvalidRecord, "check batch", "", "attributes %#x have bits that are not for clients", uint16(h.Attributes))
	case h.Codec() == None && int64(h.Count) > (h.Size()-HeaderSize)/minRecord:
		return h, tiers.E(tiers.InvalidRecord, "check batch", "", "%d records in %d bytes, each takes %d at least", h.Count, h.Size()-HeaderSize, minRecord)
	case h.ProducerID >= 0 && (h.BaseSequence < 0 || h.ProducerEpoch < 0):
		return h, tiers.E(tiers.InvalidRecord, "check batch", "", "producer %d sends epoch %d and sequence %d, neither may be negative", h.ProducerID, h.ProducerEpoch, h.BaseSequence)
	}
	return h, nil
}

// CheckStored validates the one batch that b must be exactly as it may stand in
// a log: length, magic, CRC and offsets. Other than one from a client it may be
// a control batch and have fewer records than offsets, even none, because of
// compaction. Every failure but a foreign magic is of kind CorruptMessage.
func CheckStored(b []byte) (Header, error) {
	h, err := checkFrame(b, "check stored batch")
	if err != nil {
		return h, err
	}
	if err := checkCRC(b, h, "check stored batch"); err != nil {
		return h, err
	}
	if h.BaseOffset < 0 || h.LastOffsetDelta < 0 || h.BaseOffset > math.MaxInt64-1-tiers.Offset(h.LastOffsetDelta) {
		return h, tiers.E(tiers.CorruptMessage, "check stored batch", "", "base offset %d with last offset delta %d", h.BaseOffset, h.LastOffsetDelta)
	}
	if h.Count < 0 || int64(h.Count) > int64(h.LastOffsetDelta)+1 {
		return h, tiers.E(tiers.CorruptMessage, "check stored batch", "", "%d records on %d offsets", h.Count, int64(h.LastOffsetDelta)+1)
	}
	return h, nil
}

// checkFrame checks that b is as long as its header says, and the magic. The
// magic is at the same place in all formats, and a message of format 0 or 1 may
// be smaller than a header of format 2, so it counts before the length does.
func checkFrame(b []byte, op string) (Header, error) {
	if len(b) > atMagic && b[atMagic] != 2 {
		return Header{Magic: int8(b[atMagic])}, tiers.E(tiers.UnsupportedFormat, op, "", "magic %d, only record batches of version 2 are taken", int8(b[atMagic]))
	}
	h, err := Parse(b)
	if err != nil {
		return h, err
	}
	if h.Size() != int64(len(b)) {
		return h, tiers.E(tiers.CorruptMessage, op, "", "the header says %d bytes, there are %d", h.Size(), len(b))
	}
	return h, nil
}

func checkCRC(b []byte, h Header, op string) error {
	if sum := checksum(b[atAttributes:]); sum != h.CRC {
		return tiers.E(tiers.CorruptMessage, op, "", "CRC is %08x, the header says %08x", sum, h.CRC)
	}
	return nil
}

// VerifyCRC reports whether the CRC-32C of the batch b holds. Bytes behind the
// batch do not count; if bytes are missing it does not hold.
func VerifyCRC(b []byte) bool {
	h, err := Parse(b)
	if err != nil || h.Size() > int64(len(b)) {
		return false
	}
	return checksum(b[atAttributes:h.Size()]) == h.CRC
}

func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

package batch

import (
	"encoding/binary"
	"iter"

	"github.com/strandline-io/strandline/tiers"
)

// Where the fields of a header are (KIP-98). Everything from the attributes on
// is covered by the CRC.
const (
	atLength          = 8
	atLeaderEpoch     = 12
	atMagic           = 16
	atCRC             = 17
	atAttributes      = 21
	atLastOffsetDelta = 23
	atFirstTimestamp  = 27
	atMaxTimestamp    = 35
	atProducerID      = 43
	atProducerEpoch   = 51
	atBaseSequence    = 53
	atCount           = 57

	lengthEnd = atLeaderEpoch          // bytes that Header.Length does not count
	minLength = HeaderSize - lengthEnd // Header.Length of a batch without records
)

// Parse reads the header of the batch at the start of b. It checks only that the
// header is there and the length is not absurd: kind CorruptMessage.
func Parse(b []byte) (Header, error) {
	if len(b) < HeaderSize {
		return Header{}, tiers.E(tiers.CorruptMessage, "parse batch", "", "%d bytes are less than a header of %d", len(b), HeaderSize)
	}
	h := header(b)
	if h.Length < minLength {
		return Header{}, tiers.E(tiers.CorruptMessage, "parse batch", "", "length %d is less than the %d of an empty batch", h.Length, minLength)
	}
	return h, nil
}

func header(b []byte) Header {
	_ = b[HeaderSize-1]
	be := binary.BigEndian
	return Header{
		BaseOffset:      tiers.Offset(be.Uint64(b)),
		Length:          int32(be.Uint32(b[atLength:])),
		LeaderEpoch:     tiers.LeaderEpoch(be.Uint32(b[atLeaderEpoch:])),
		Magic:           int8(b[atMagic]),
		CRC:             be.Uint32(b[atCRC:]),
		Attributes:      int16(be.Uint16(b[atAttributes:])),
		LastOffsetDelta: int32(be.Uint32(b[atLastOffsetDelta:])),
		FirstTimestamp:  int64(be.Uint64(b[atFirstTimestamp:])),
		MaxTimestamp:    int64(be.Uint64(b[atMaxTimestamp:])),
		ProducerID:      int64(be.Uint64(b[atProducerID:])),
		ProducerEpoch:   int16(be.Uint16(b[atProducerEpoch:])),
		BaseSequence:    int32(be.Uint32(b[atBaseSequence:])),
		Count:           int32(be.Uint32(b[atCount:])),
	}
}

// Batch is one batch of several: its header and all of its bytes.
type Batch struct {
	Header
	Bytes []byte
}

// Split walks over the batches that b is the concatenation of. It checks what
// Parse checks. If the bytes do not end with a whole batch, the last step is an
// error of kind CorruptMessage; its Batch then holds the bytes that are left.
func Split(b []byte) iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		for len(b) > 0 {
			h, err := Parse(b)
			if err == nil && h.Size() > int64(len(b)) {
				err = tiers.E(tiers.CorruptMessage, "split batches", "", "batch at offset %d has %d bytes, %d are left", h.BaseOffset, h.Size(), len(b))
			}
			if err != nil {
				yield(Batch{Header: h, Bytes: b}, err)
				return
			}
			if !yield(Batch{Header: h, Bytes: b[:h.Size():h.Size()]}, nil) {
				return
			}
			b = b[h.Size():]
		}
	}
}

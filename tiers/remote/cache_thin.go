package remote

import "encoding/binary"

// thinStep is the distance in bytes of records between the index entries that the
// cache keeps. Kafka writes one every 4 KiB: 5 MiB for a segment of 1 GiB, of
// which a reader that fetches chunks needs little.
const thinStep = 32 << 10

// The sizes of entries of an .index and of a .timeindex file.
const (
	offsetEntry = 8
	timeEntry   = 12
)

// metaSize is what a companion takes in memory, roughly.
func metaSize(m *SegmentMeta) int64 {
	const fixed = 512
	return fixed + int64(len(m.OffsetIndex)+len(m.TimeIndex)+len(m.TxnIndex)+len(m.Producers)+4*len(m.ChunkCRC)+16*len(m.Lineage)+16*len(m.Segment.Epochs))
}

// thinned is m with fewer index entries. What is left out only makes a look-up land
// on an earlier entry, from where it goes on batch by batch.
//
// The slices are copied: those of a decoded companion would keep all of its bytes.
func thinned(m *SegmentMeta) *SegmentMeta {
	t := *m
	t.OffsetIndex = thinOffsets(m.OffsetIndex)
	t.TimeIndex = thinTimes(m.TimeIndex, m.Segment.Size)
	t.TxnIndex = append([]byte(nil), m.TxnIndex...)
	t.Producers = append([]byte(nil), m.Producers...)
	return &t
}

func thinOffsets(ix []byte) []byte {
	if len(ix)%offsetEntry != 0 {
		return append([]byte(nil), ix...)
	}
	var out []byte
	next := int64(0)
	for i := 0; i < len(ix); i += offsetEntry {
		if at := int64(binary.BigEndian.Uint32(ix[i+4:])); at >= next {
			out = append(out, ix[i:i+offsetEntry]...)
			next = at + thinStep
		}
	}
	return out
}

// thinTimes keeps every so many entries, since they do not tell positions, and the
// last one, which has the newest timestamp.
func thinTimes(ix []byte, size int64) []byte {
	n := int64(len(ix) / timeEntry)
	if len(ix)%timeEntry != 0 || n == 0 {
		return append([]byte(nil), ix...)
	}
	every := max(1, n*thinStep/max(size, 1))
	var out []byte
	for i := range n {
		if i%every == 0 || i == n-1 {
			out = append(out, ix[i*timeEntry:(i+1)*timeEntry]...)
		}
	}
	return out
}

package local

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/strandline-io/strandline/tiers"
)

// The layout of a .snapshot file (version 1).
const (
	snapshotVersion   = 1
	snapshotHead      = 2 + 4 + 4 // version, CRC-32C of what follows it, number of entries
	snapshotEntrySize = 8 + 2 + 4 + 8 + 4 + 8 + 4 + 8
)

// snapshotEntry is an entry of a .snapshot file: a producer and its last batch.
// If a producer has several entries they are its last batches, oldest first:
// Kafka keeps one and lets the last win, so it reads our files as its own.
type snapshotEntry struct {
	id               int64
	epoch            int16
	lastSequence     int32        // -1: no batch
	lastOffset       tiers.Offset // -1: no batch
	offsetDelta      int32
	timestamp        int64
	coordinatorEpoch int32
	txnFirst         tiers.Offset // -1: no open transaction; set in the last entry of a producer only
}

func encodeSnapshot(entries []snapshotEntry) []byte {
	be := binary.BigEndian
	b := make([]byte, 6, snapshotHead+len(entries)*snapshotEntrySize)
	be.PutUint16(b, snapshotVersion)
	b = be.AppendUint32(b, uint32(len(entries)))
	for _, e := range entries {
		b = be.AppendUint64(b, uint64(e.id))
		b = be.AppendUint16(b, uint16(e.epoch))
		b = be.AppendUint32(b, uint32(e.lastSequence))
		b = be.AppendUint64(b, uint64(e.lastOffset))
		b = be.AppendUint32(b, uint32(e.offsetDelta))
		b = be.AppendUint64(b, uint64(e.timestamp))
		b = be.AppendUint32(b, uint32(e.coordinatorEpoch))
		b = be.AppendUint64(b, uint64(e.txnFirst))
	}
	be.PutUint32(b[2:], snapshotCRC(b))
	return b
}

func snapshotCRC(b []byte) uint32 {
	return crc32.Checksum(b[6:], crc32.MakeTable(crc32.Castagnoli))
}

// decodeSnapshot reads a .snapshot file.
func decodeSnapshot(b []byte) ([]snapshotEntry, error) {
	be := binary.BigEndian
	if len(b) < snapshotHead {
		return nil, fmt.Errorf("%d bytes are less than a head of %d", len(b), snapshotHead)
	}
	if v := be.Uint16(b); v != snapshotVersion {
		return nil, fmt.Errorf("version %d, only %d is known", v, snapshotVersion)
	}
	if sum, want := snapshotCRC(b), be.Uint32(b[2:]); sum != want {
		return nil, fmt.Errorf("CRC is %08x, the file says %08x", sum, want)
	}
	n := int32(be.Uint32(b[6:]))
	body := b[snapshotHead:]
	if n < 0 || int64(len(body)) != int64(n)*snapshotEntrySize {
		return nil, fmt.Errorf("%d bytes are not the %d entries that the file says", len(body), n)
	}
	entries := make([]snapshotEntry, n)
	for i := range entries {
		e := body[i*snapshotEntrySize:]
		entries[i] = snapshotEntry{
			id:               int64(be.Uint64(e)),
			epoch:            int16(be.Uint16(e[8:])),
			lastSequence:     int32(be.Uint32(e[10:])),
			lastOffset:       tiers.Offset(be.Uint64(e[14:])),
			offsetDelta:      int32(be.Uint32(e[22:])),
			timestamp:        int64(be.Uint64(e[26:])),
			coordinatorEpoch: int32(be.Uint32(e[34:])),
			txnFirst:         tiers.Offset(be.Uint64(e[38:])),
		}
	}
	return entries, nil
}

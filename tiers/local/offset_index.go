package local

import (
	"encoding/binary"
	"fmt"
	"sort"
)

// offsetEntrySize is the size of an entry of an .index file.
const offsetEntrySize = 8

// offsetEntry says that the batch which ends with offset base+rel begins at pos.
// Kafka names the last offset of a batch, not the first, so a look-up of any
// offset lands on a batch that does not lie behind it.
type offsetEntry struct{ rel, pos uint32 }

func (e offsetEntry) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, e.rel)
	return binary.BigEndian.AppendUint32(b, e.pos)
}

func readOffsetEntry(b []byte) offsetEntry {
	return offsetEntry{binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:])}
}

func encodeOffsetIndex(entries []offsetEntry) []byte {
	b := make([]byte, 0, len(entries)*offsetEntrySize)
	for _, e := range entries {
		b = e.append(b)
	}
	return b
}

// decodeOffsetIndex reads an .index file of a segment with logSize bytes. Any
// byte that Kafka's rules do not explain makes it an error, because an index can
// be made again from the log.
func decodeOffsetIndex(b []byte, logSize int64) ([]offsetEntry, error) {
	if len(b)%offsetEntrySize != 0 {
		return nil, fmt.Errorf("%d bytes are no whole number of entries of %d", len(b), offsetEntrySize)
	}
	entries := make([]offsetEntry, 0, len(b)/offsetEntrySize)
	for i := 0; i < len(b); i += offsetEntrySize {
		e := readOffsetEntry(b[i:])
		n := len(entries)
		if n > 0 && (e.rel <= entries[n-1].rel || e.pos <= entries[n-1].pos) || e.rel > maxRelative || int64(e.pos) >= logSize {
			return nil, fmt.Errorf("entry %d (offset +%d, position %d) does not follow the one before it or lies outside of %d bytes", n, e.rel, e.pos, logSize)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// floorOffset returns the last entry with rel <= rel, -1 if there is none.
func floorOffset(entries []offsetEntry, rel int64) int {
	return sort.Search(len(entries), func(i int) bool { return int64(entries[i].rel) > rel }) - 1
}

package local

import (
	"encoding/binary"
	"fmt"
	"sort"
)

// timeEntrySize is the size of an entry of a .timeindex file.
const timeEntrySize = 12

// timeEntry says that ts is the newest timestamp of the records up to where the
// entry was made, and that the first batch which carries it ends with offset
// base+rel.
type timeEntry struct {
	ts  int64
	rel uint32
}

func (e timeEntry) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(e.ts))
	return binary.BigEndian.AppendUint32(b, e.rel)
}

func readTimeEntry(b []byte) timeEntry {
	return timeEntry{int64(binary.BigEndian.Uint64(b)), binary.BigEndian.Uint32(b[8:])}
}

func encodeTimeIndex(entries []timeEntry) []byte {
	b := make([]byte, 0, len(entries)*timeEntrySize)
	for _, e := range entries {
		b = e.append(b)
	}
	return b
}

// decodeTimeIndex reads a .timeindex file: timestamps rise, offsets do not fall.
func decodeTimeIndex(b []byte) ([]timeEntry, error) {
	if len(b)%timeEntrySize != 0 {
		return nil, fmt.Errorf("%d bytes are no whole number of entries of %d", len(b), timeEntrySize)
	}
	entries := make([]timeEntry, 0, len(b)/timeEntrySize)
	for i := 0; i < len(b); i += timeEntrySize {
		e := readTimeEntry(b[i:])
		n := len(entries)
		if e.ts < 0 || e.rel > maxRelative || n > 0 && (e.ts <= entries[n-1].ts || e.rel < entries[n-1].rel) {
			return nil, fmt.Errorf("entry %d (timestamp %d, offset +%d) does not follow the one before it", n, e.ts, e.rel)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// floorTime returns the last entry with a timestamp <= ts, -1 if there is none.
func floorTime(entries []timeEntry, ts int64) int {
	return sort.Search(len(entries), func(i int) bool { return entries[i].ts > ts }) - 1
}

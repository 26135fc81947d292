package local

import (
	"encoding/binary"
	"fmt"

	"github.com/strandline-io/strandline/tiers"
)

// txnEntrySize is the size of an entry of a .txnindex file, whose version is 0.
const txnEntrySize = 34

// AbortedTxn is one entry of a transaction index.
type AbortedTxn struct {
	ProducerID  int64
	First, Last tiers.Offset // inclusive; Last is the offset of the abort marker
	LastStable  tiers.Offset // when the marker was written
}

func (a AbortedTxn) append(b []byte) []byte {
	be := binary.BigEndian
	b = be.AppendUint16(b, 0)
	b = be.AppendUint64(b, uint64(a.ProducerID))
	b = be.AppendUint64(b, uint64(a.First))
	b = be.AppendUint64(b, uint64(a.Last))
	return be.AppendUint64(b, uint64(a.LastStable))
}

func encodeTxnIndex(entries []AbortedTxn) []byte {
	b := make([]byte, 0, len(entries)*txnEntrySize)
	for _, e := range entries {
		b = e.append(b)
	}
	return b
}

// decodeTxnIndex reads a .txnindex file: markers are in offset order.
func decodeTxnIndex(b []byte) ([]AbortedTxn, error) {
	if len(b)%txnEntrySize != 0 {
		return nil, fmt.Errorf("%d bytes are no whole number of entries of %d", len(b), txnEntrySize)
	}
	be := binary.BigEndian
	entries := make([]AbortedTxn, 0, len(b)/txnEntrySize)
	for i := 0; i < len(b); i += txnEntrySize {
		a := AbortedTxn{
			ProducerID: int64(be.Uint64(b[i+2:])),
			First:      tiers.Offset(be.Uint64(b[i+10:])),
			Last:       tiers.Offset(be.Uint64(b[i+18:])),
			LastStable: tiers.Offset(be.Uint64(b[i+26:])),
		}
		n := len(entries)
		switch v := be.Uint16(b[i:]); {
		case v != 0:
			return nil, fmt.Errorf("entry %d has version %d, only 0 is known", n, v)
		case a.First < 0 || a.Last <= a.First || n > 0 && a.Last <= entries[n-1].Last:
			return nil, fmt.Errorf("entry %d ([%d,%d]) does not follow the one before it", n, a.First, a.Last)
		}
		entries = append(entries, a)
	}
	return entries, nil
}

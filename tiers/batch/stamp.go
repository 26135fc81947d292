package batch

import (
	"encoding/binary"

	"github.com/strandline-io/strandline/tiers"
)

// Stamp writes base offset and leader epoch into the header, in place. b holds at
// least a header.
func Stamp(b []byte, base tiers.Offset, e tiers.LeaderEpoch) {
	binary.BigEndian.PutUint64(b, uint64(base))
	binary.BigEndian.PutUint32(b[atLeaderEpoch:], uint32(e))
}

// StampAppendTime marks the batch as stamped by the broker at ts, milliseconds
// since 1970, and makes a new CRC. b is one whole batch; the timestamps in the
// records stay as they are and no longer count.
func StampAppendTime(b []byte, ts int64) {
	be := binary.BigEndian
	be.PutUint16(b[atAttributes:], be.Uint16(b[atAttributes:])|8)
	be.PutUint64(b[atMaxTimestamp:], uint64(ts))
	be.PutUint32(b[atCRC:], checksum(b[atAttributes:header(b).Size()]))
}

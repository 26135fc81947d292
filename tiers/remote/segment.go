package remote

import "github.com/strandline-io/strandline/tiers"

// ChunkSize is the number of bytes of a records object that one CRC-32C of its
// companion covers. Ranged reads are aligned to it, because no object store
// checks a ranged read.
const ChunkSize = 256 << 10

// SegmentMeta is the companion object of a remote segment: all that is needed to
// read it and to rebuild a partition from the bucket alone. docs/format has the
// layout.
type SegmentMeta struct {
	Cluster   string // cluster id
	TopicName string // at the time of the copy, for people; the id is the identity
	Segment   tiers.RemoteSegment

	ChunkCRC []uint32 // CRC-32C of each ChunkSize bytes of the records object

	// Bytes of Kafka's files of the segment, as they were on disk.
	OffsetIndex []byte
	TimeIndex   []byte
	TxnIndex    []byte // empty if no transaction was aborted in it
	// Producers is the producer snapshot at Segment.End, in Kafka's .snapshot
	// format.
	Producers []byte
	// Lineage is the leader epochs of the whole log below Segment.End, from the
	// log start on.
	Lineage tiers.Lineage
}

package remote_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/remote"
)

// sample is a segment of size bytes with everything that a companion may hold.
func sample(size int) (records []byte, m *remote.SegmentMeta) {
	records = make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(records) // never fails
	m = &remote.SegmentMeta{
		Cluster:   "c1d2",
		TopicName: "orders.eu",
		Segment: tiers.RemoteSegment{
			ID:        tiers.SegmentID{0xaa, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0xff},
			Partition: tiers.PartitionID{Topic: tiers.TopicID{0x10, 0x20, 15: 0x30}, Index: 7},
			Gen:       2, Base: 1000, End: 2000,
			Epochs:       tiers.Lineage{{Epoch: 3, Start: 1000}, {Epoch: 5, Start: 1500}},
			MaxTimestamp: 1_800_000_000_123,
			Size:         int64(size),
			CRC32C:       remote.CRC32C(records),
			CopierEpoch:  5, Copier: 42, HasAborted: true,
			CreatedAt: time.Unix(1_800_000_001, 5).UTC(),
		},
		OffsetIndex: []byte("offset index"),
		TimeIndex:   []byte("a time index"),
		TxnIndex:    []byte("txns"),
		Producers:   []byte("producer snapshot"),
		Lineage:     tiers.Lineage{{Epoch: 0, Start: 0}, {Epoch: 3, Start: 900}, {Epoch: 5, Start: 1500}},
	}
	for i := 0; i < size; i += remote.ChunkSize {
		m.ChunkCRC = append(m.ChunkCRC, remote.CRC32C(records[i:min(size, i+remote.ChunkSize)]))
	}
	return records, m
}

// upload puts both objects of a segment and returns it as the control plane
// would know it.
func upload(t *testing.T, b remote.Bucket, records []byte, m *remote.SegmentMeta) tiers.RemoteSegment {
	t.Helper()
	meta, err := remote.EncodeMeta(m)
	must(t, err)
	seg := m.Segment
	seg.MetaSize, seg.State = int64(len(meta)), tiers.CopyFinished
	_, err = b.Put(t.Context(), remote.SegmentKey(seg), remote.BytesBody(records), remote.PutOptions{})
	must(t, err)
	_, err = b.Put(t.Context(), remote.MetaKey(seg), remote.BytesBody(meta), remote.PutOptions{})
	must(t, err)
	return seg
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

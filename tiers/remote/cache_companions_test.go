package remote_test

import (
	"encoding/binary"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

// giants puts the companions of n segments of 1 GiB, of a partition each, with as many
// index entries as Kafka makes.
func (z *zeros) giants(t *testing.T, n int) []tiers.RemoteSegment {
	t.Helper()
	const size = 1 << 30
	_, m := sample(1)
	chunk := make([]byte, remote.ChunkSize)
	crc := remote.CRC32C(chunk)
	m.ChunkCRC = nil
	for at := int64(0); at < size; at += remote.ChunkSize {
		m.ChunkCRC = append(m.ChunkCRC, crc)
	}
	m.OffsetIndex, m.TimeIndex = nil, nil
	for i := range uint32(size / 4096) {
		m.OffsetIndex = binary.BigEndian.AppendUint32(m.OffsetIndex, i*4)
		m.OffsetIndex = binary.BigEndian.AppendUint32(m.OffsetIndex, i*4096)
		m.TimeIndex = binary.BigEndian.AppendUint64(m.TimeIndex, uint64(1e12)+uint64(i))
		m.TimeIndex = binary.BigEndian.AppendUint32(m.TimeIndex, i*4)
	}
	m.Segment.Size = size
	var segs []tiers.RemoteSegment
	for i := range n {
		m.Segment.Partition.Index = int32(i)
		m.Segment.ID = tiers.SegmentID{byte(i), byte(i >> 8), 7}
		m.Segment.Base, m.Segment.End = 0, tiers.Offset(1<<20)
		m.Segment.Epochs = tiers.Lineage{{Epoch: 3, Start: 0}}
		raw, err := remote.EncodeMeta(m)
		must(t, err)
		seg := m.Segment
		seg.MetaSize, seg.State = int64(len(raw)), tiers.CopyFinished
		_, err = z.Bucket.Put(t.Context(), remote.MetaKey(seg), remote.BytesBody(raw), remote.PutOptions{})
		must(t, err)
		segs = append(segs, seg)
	}
	return segs
}

// Companions are fetched once though many readers begin at once and theirs are large
// before their indexes are thinned out; and if not all fit, those in use stay.
func TestCompanionsInUseStay(t *testing.T) {
	t.Parallel()
	const reads = 8
	for _, o := range []struct{ readers, most int }{{48, 48}, {64, 64}, {100, 100 * 3}} {
		t.Run(fmt.Sprint(o.readers), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				z := &zeros{Bucket: b, latency: 20 * time.Millisecond, rate: 80 << 20}
				segs := z.giants(t, o.readers)
				c := remote.NewCache(z, remote.CacheOptions{})
				defer c.Close()
				var wg sync.WaitGroup
				for _, seg := range segs {
					wg.Go(func() {
						buf := make([]byte, 1<<20)
						for off := int64(0); off < reads<<20; off += 1 << 20 {
							m, err := c.Meta(t.Context(), seg)
							if err == nil {
								c.Want(m, off, 1<<20)
								_, err = c.ReadOnWith(t.Context(), m, buf, off, nil)
							}
							if err != nil {
								t.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
				if n := len(b.Calls(memory.OpReadAt, ".meta")); n > o.most {
					t.Errorf("%d companions were fetched for %d segments", n, o.readers)
				}
			})
		})
	}
}

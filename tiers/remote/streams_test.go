package remote_test

import (
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"testing"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

// TestReadersThatPassedHoldNoCompanions: what the cache keeps in memory is bounded by
// Bytes, however many segments readers have passed (report 135).
func TestReadersThatPassedHoldNoCompanions(t *testing.T) {
	b := memory.New()
	const bytes = 8 << 20
	c := remote.NewCache(b, remote.CacheOptions{Bytes: bytes})
	defer c.Close()
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return s.HeapAlloc
	}
	// 1 GiB segments have some 500 KiB of thinned indexes; here producer snapshots stand for them.
	var first uint64
	for i := range 300 {
		records, m := sample(1000)
		m.Segment.ID = tiers.SegmentID{}
		binary.BigEndian.PutUint64(m.Segment.ID[:], uint64(i+1))
		m.Segment.Base, m.Segment.End = tiers.Offset(1000*i), tiers.Offset(1000*i+1000)
		m.Segment.Epochs = tiers.Lineage{{Epoch: 3, Start: m.Segment.Base}}
		m.Lineage = m.Segment.Epochs
		m.Producers = make([]byte, 512<<10)
		seg := upload(t, b, records, m)
		if _, err := c.ReadOn(t.Context(), seg, make([]byte, 1000), 0, nil); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		_ = b.Delete(t.Context(), remote.SegmentKey(seg), remote.MetaKey(seg))
		if i == 20 {
			first = heap()
		}
	}
	now := heap()
	if now > first+4*bytes {
		t.Errorf("heap grew by %d MiB", (now-first)>>20)
	}
	runtime.KeepAlive(c)
}

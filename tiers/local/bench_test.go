package local

import (
	"fmt"
	"testing"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/batch"
	"github.com/strandline-io/strandline/tiers/fsys"
)

// diskNode is a log in a folder of the machine's file system.
func diskNode(b *testing.B) *node {
	b.Helper()
	n := newNode(b, below{fsys.OS{}, b.TempDir()})
	n.conf = Config{SegmentBytes: 1 << 30, IndexInterval: 4096}
	return n
}

// big is a batch of size bytes and its header; Stamp gives it an offset.
func big(b *testing.B, size int) ([]byte, []batch.Header) {
	b.Helper()
	one, err := plain(1).Build([]batch.Record{{Timestamp: 1, Value: make([]byte, size)}})
	must(b, err)
	return one, headers(one)
}

func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{1 << 10, 16 << 10, 64 << 10} {
		for _, sync := range []bool{false, true} {
			b.Run(fmt.Sprintf("%dKiB/sync=%t", size>>10, sync), func(b *testing.B) {
				n := diskNode(b)
				l := n.open()
				one, hs := big(b, size)
				b.SetBytes(int64(len(one)))
				b.ReportAllocs()
				for b.Loop() {
					hs[0].BaseOffset, hs[0].LeaderEpoch = l.LogEnd(), 1
					batch.Stamp(one, l.LogEnd(), 1)
					must(b, l.Append(one, hs))
					if sync {
						must(b, l.Sync())
					}
				}
				b.StopTimer()
				n.close()
			})
		}
	}
}

// BenchmarkRead reads 1 MiB at a time, from an active and from a closed segment.
func BenchmarkRead(b *testing.B) {
	for _, closed := range []bool{false, true} {
		b.Run(fmt.Sprintf("closed=%t", closed), func(b *testing.B) {
			n := diskNode(b)
			l := n.open()
			one, hs := big(b, 16<<10)
			for range 4096 {
				hs[0].BaseOffset, hs[0].LeaderEpoch = l.LogEnd(), 1
				batch.Stamp(one, l.LogEnd(), 1)
				must(b, l.Append(one, hs))
			}
			if closed {
				must(b, l.Roll())
			}
			s, end := l.Snapshot(), l.LogEnd()
			buf := make([]byte, 1<<20)
			alloc := func(n int) []byte { return buf[:n] }
			from := tiers.Offset(0)
			b.SetBytes(1 << 20)
			b.ReportAllocs()
			for b.Loop() {
				got, err := s.Read(from, end, len(buf), true, alloc)
				must(b, err)
				if from += tiers.Offset(len(got) / len(one)); from >= end {
					from = 0
				}
			}
			b.StopTimer()
			s.Release()
			n.close()
		})
	}
}

// BenchmarkOpen200Segments opens a log of 200 segments with 1 MiB each, closed
// cleanly and after a crash.
func BenchmarkOpen200Segments(b *testing.B) {
	for _, clean := range []bool{true, false} {
		b.Run(fmt.Sprintf("clean=%t", clean), func(b *testing.B) {
			n := diskNode(b)
			l := n.open()
			one, hs := big(b, 16<<10)
			for i := range 200 * 64 {
				hs[0].BaseOffset, hs[0].LeaderEpoch = l.LogEnd(), 1
				batch.Stamp(one, l.LogEnd(), 1)
				must(b, l.Append(one, hs))
				if i%64 == 63 && i < 199*64 {
					must(b, l.Roll())
				}
			}
			must(b, l.Sync())
			must(b, n.disk.Checkpoint())
			var read int64
			for b.Loop() {
				b.StopTimer()
				if clean {
					n.close()
				} else {
					must(b, n.disk.lock.Close())
				}
				b.StartTimer()
				n.open()
				read = n.rec.Bytes
			}
			b.StopTimer()
			b.ReportMetric(float64(read), "read-bytes/op")
			n.close()
		})
	}
}

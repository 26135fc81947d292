package sqlite_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/gateway/control/sqlite"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/partition"
)

const parts = 1000

func benchStore(b *testing.B) (*sqlite.Store, control.Session, control.Topic) {
	b.Helper()
	s, err := sqlite.Open(fsys.OS{}, b.TempDir()+"/control.db", sqlite.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err = s.Close(); err != nil {
			b.Error(err)
		}
	})
	ses, err := s.OpenSession(b.Context(), 1)
	if err != nil {
		b.Fatal(err)
	}
	topic, err := s.CreateTopic(b.Context(), ses, control.NewTopic{Name: "t", Partitions: parts})
	if err != nil {
		b.Fatal(err)
	}
	return s, ses, topic
}

// callers runs f from n goroutines until b ends.
func callers(b *testing.B, n int, f func(caller, i int) error) {
	b.Helper()
	var next atomic.Int64
	b.SetParallelism(n)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		me := int(next.Add(1))
		for i := 0; pb.Next(); i++ {
			if err := f(me, i); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// BenchmarkCommitOffsets commits ten partitions of a group in each operation.
func BenchmarkCommitOffsets(b *testing.B) {
	for _, n := range []int{1, 16, 128} {
		b.Run(fmt.Sprintf("callers=%dxGOMAXPROCS", n), func(b *testing.B) {
			s, ses, topic := benchStore(b)
			callers(b, n, func(caller, i int) error {
				cs := make([]control.OffsetCommit, 10)
				for k := range cs {
					cs[k] = control.OffsetCommit{
						Group: fmt.Sprint("g", caller), Partition: tiers.PartitionID{Topic: topic.ID, Index: int32((caller*10 + k) % parts)},
						Gen: 1, Offset: tiers.Offset(i),
					}
				}
				return s.CommitOffsets(context.Background(), ses, cs)
			})
		})
	}
}

func id(n uint64) (out tiers.SegmentID) {
	binary.LittleEndian.PutUint64(out[:], n*0x9e3779b97f4a7c15) // Spread, as random ids are.
	return out
}

// BenchmarkCopyLifecycle takes a segment from CopyStarted to CopyFinished, two
// mutations.
func BenchmarkCopyLifecycle(b *testing.B) {
	s, ses, topic := benchStore(b)
	var n atomic.Uint64
	callers(b, 16, func(_, _ int) error {
		i := n.Add(1)
		f := partition.Fence{Partition: tiers.PartitionID{Topic: topic.ID, Index: int32(i % parts)}, Gen: 1, NodeEpoch: ses.Epoch}
		base := tiers.Offset(i / parts * 1000)
		seg := tiers.RemoteSegment{ID: id(i), Partition: f.Partition, Gen: 1, Base: base, End: base + 1000, Epochs: tiers.Lineage{{Epoch: 0, Start: base}}, Size: 1}
		if err := s.CopyStarted(context.Background(), f, seg); err != nil {
			return err
		}
		return s.CopyFinished(context.Background(), f, seg)
	})
}

// million is a store that holds n segments over 1,000 partitions.
func million(b *testing.B, n int) (*sqlite.Store, control.Topic) {
	b.Helper()
	s, _, topic := benchStore(b)
	st, err := s.Dump(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	for i := range n {
		base := tiers.Offset(i / parts * 1000)
		st.Segments = append(st.Segments, tiers.RemoteSegment{
			ID: id(uint64(i + 1)), Partition: tiers.PartitionID{Topic: topic.ID, Index: int32(i % parts)}, Gen: 1, Base: base, End: base + 1000,
			Epochs: tiers.Lineage{{Epoch: 0, Start: base}}, Size: 1, State: tiers.CopyFinished,
		})
	}
	full, err := sqlite.Open(fsys.OS{}, b.TempDir()+"/full.db", sqlite.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := full.Close(); err != nil {
			b.Error(err)
		}
	})
	if err := full.Load(b.Context(), st); err != nil {
		b.Fatal(err)
	}
	return full, topic
}

// BenchmarkSegments1M lists one partition's thousand segments of a million.
func BenchmarkSegments1M(b *testing.B) {
	s, topic := million(b, 1_000_000)
	for i := 0; b.Loop(); i++ {
		got, err := s.Segments(b.Context(), tiers.PartitionID{Topic: topic.ID, Index: int32(i % parts)}, 1)
		if err != nil || len(got) != 1000 {
			b.Fatal(len(got), err)
		}
	}
}

// BenchmarkDump1M dumps a million segments. stall is how long a commit that came
// at the same time was held up at most.
func BenchmarkDump1M(b *testing.B) {
	s, _ := million(b, 1_000_000)
	ses, err := s.OpenSession(b.Context(), 1)
	if err != nil {
		b.Fatal(err)
	}
	var worst time.Duration
	for b.Loop() {
		done := make(chan error, 1)
		go func() {
			_, err := s.Dump(context.Background())
			done <- err
		}()
		for running := true; running; {
			began := time.Now()
			if _, err := s.ProducerIDs(b.Context(), ses, 1); err != nil {
				b.Fatal(err)
			}
			worst = max(worst, time.Since(began))
			select {
			case err := <-done:
				if err != nil {
					b.Fatal(err)
				}
				running = false
			default:
			}
		}
	}
	b.ReportMetric(float64(worst.Microseconds())/1000, "ms-stall")
}

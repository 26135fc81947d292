package partition

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/batch"
	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/local"
	"github.com/strandline-io/strandline/tiers/plan"
)

// onDisk is an owner on the machine's disk, with 64 MiB segments.
func onDisk(b *testing.B, ack Ack) (*world, *Owner) {
	b.Helper()
	w := newWorld(b)
	w.stop()
	w.files = fsys.OS{}
	root := b.TempDir()
	disk, err := local.OpenDisk(w.files, root, hclog.NewNullLogger())
	if err != nil {
		b.Fatal(err)
	}
	w.startOn(disk)
	w.config.Ack, w.config.FlushEvery, w.config.Remote = ack, 1e9, false
	w.config.Local = local.Config{SegmentBytes: 64 << 20, IndexBytes: 10 << 20, IndexInterval: 4096}
	w.tweak = func(d *Deps) { d.Dir = filepath.Join(root, "orders-0") }
	return w, w.open()
}

// payload is a batch of 16 records of 1 KiB.
func payload() []byte {
	recs := make([]batch.Record, 16)
	for i := range recs {
		recs[i] = batch.Record{Offset: tiers.Offset(i), Timestamp: 1000, Key: []byte(fmt.Sprint(i)), Value: make([]byte, 1024)}
	}
	out, err := batch.Builder{ProducerID: -1}.Build(recs)
	if err != nil {
		panic(err)
	}
	return out
}

func benchmarkAppend(b *testing.B, ack Ack) {
	b.Helper()
	_, o := onDisk(b, ack)
	b.SetBytes(int64(len(payload())))
	b.ReportAllocs()
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		data := payload()
		for pb.Next() {
			if _, err := o.Append(b.Context(), AppendRequest{Batch: data}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.StopTimer()
	if err := o.Close(b.Context()); err != nil {
		b.Fatal(err)
	}
}

// 16 KiB batches from 16 callers per CPU.

func BenchmarkAppendFsync(b *testing.B)    { benchmarkAppend(b, AckFsync) }
func BenchmarkAppendInterval(b *testing.B) { benchmarkAppend(b, AckInterval) }
func BenchmarkAppendOS(b *testing.B)       { benchmarkAppend(b, AckOS) }

// BenchmarkBareAppend is the limit that AppendFsync is measured against: the same
// disk, 64 KiB per write, fdatasync after each.
func BenchmarkBareAppend(b *testing.B) {
	f, err := fsys.OS{}.OpenFile(filepath.Join(b.TempDir(), "bare"), fsys.ReadWrite|fsys.Create, 0o600)
	if err != nil {
		b.Fatal(err)
	}
	if err := f.Preallocate(64 << 20); err != nil {
		b.Fatal(err)
	}
	data := make([]byte, 64<<10)
	b.SetBytes(int64(len(data)))
	for i := range b.N {
		if _, err := f.WriteAt(data, int64(i)*int64(len(data))); err != nil {
			b.Fatal(err)
		}
		if err := f.SyncData(); err != nil {
			b.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		b.Fatal(err)
	}
}

// filled is an owner whose log has 64 MiB, closed and copied.
func filled(b *testing.B) (*world, *Owner) {
	b.Helper()
	w, o := onDisk(b, AckOS)
	data := payload()
	for range (64 << 20) / len(data) {
		if _, err := o.Append(b.Context(), AppendRequest{Batch: data}); err != nil {
			b.Fatal(err)
		}
	}
	if err := o.Roll(b.Context()); err != nil {
		b.Fatal(err)
	}
	return w, o
}

func benchmarkRead(b *testing.B, o *Owner) {
	b.Helper()
	end := o.View().HighWatermark
	buf := make([]byte, 1<<20)
	b.ReportAllocs()
	b.ResetTimer()
	from, bytes := tiers.Offset(0), 0
	for range b.N {
		res, err := o.Read(b.Context(), ReadRequest{From: from, CurrentEpoch: -1, FetchedEpoch: -1, MaxBytes: len(buf), MinOne: true, Alloc: func(n int) []byte { return buf[:n] }})
		if err != nil {
			b.Fatal(err)
		}
		bytes += len(res.Records)
		if from = nextAfter(res.Records, end); from >= end {
			from = 0
		}
	}
	b.SetBytes(int64(bytes / b.N))
	b.StopTimer()
	if err := o.Close(b.Context()); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkReadLocal reads 1 MiB at a time from disk (the page cache).
func BenchmarkReadLocal(b *testing.B) {
	_, o := filled(b)
	benchmarkRead(b, o)
}

// BenchmarkReadRemote reads 1 MiB at a time through the chunk cache, from a bucket
// in memory.
func BenchmarkReadRemote(b *testing.B) {
	w, o := filled(b)
	c := w.config
	c.Remote = true
	if err := o.Configure(b.Context(), c); err != nil {
		b.Fatal(err)
	}
	if err := o.CopyAll(b.Context()); err != nil {
		b.Fatal(err)
	}
	err := o.do(b.Context(), "drop", func(s *state) {
		if err := s.local.DropBefore(s.view.RemoteEnd); err != nil {
			b.Error(err)
		}
	})
	if err != nil {
		b.Fatal(err)
	}
	benchmarkRead(b, o)
}

// BenchmarkCopy copies segments of 64 MiB to a bucket in memory: reading,
// checksums, companion, read-back.
func BenchmarkCopy(b *testing.B) {
	b.StopTimer()
	b.SetBytes(64 << 20)
	for range b.N {
		w, o := filled(b)
		c := w.config
		c.Remote = true
		b.StartTimer()
		if err := o.Configure(b.Context(), c); err != nil {
			b.Fatal(err)
		}
		if err := o.CopyAll(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := o.Close(b.Context()); err != nil {
			b.Fatal(err)
		}
		w.stop()
	}
}

// BenchmarkIdlePass is a retention pass over 1,000 segments none of which is due.
func BenchmarkIdlePass(b *testing.B) {
	w := newWorld(b)
	now := time.Now()
	w.now = func() time.Time { return now }
	w.config.Retention = keep(func(r *Retention) { r.Total = plan.Limits{Bytes: 1 << 40, Age: time.Hour} })
	d := w.drive()
	rows := make([]tiers.RemoteSegment, 1000)
	for i := range rows {
		rows[i] = tiers.RemoteSegment{
			ID: w.newID(), Partition: w.id.ID, Gen: 1, Base: tiers.Offset(10 * i), End: tiers.Offset(10*i + 10), Size: 1 << 20,
			Epochs: tiers.Lineage{{Epoch: 1, Start: tiers.Offset(10 * i)}}, State: tiers.CopyFinished, MaxTimestamp: now.UnixMilli(), CreatedAt: now,
		}
	}
	if err := d.s.local.Restart(local.Start{At: 10 * 1000, Lineage: tiers.Lineage{{Epoch: 1}}}); err != nil {
		b.Fatal(err)
	}
	d.s.onIndex(rows)
	b.ReportAllocs()
	for b.Loop() {
		d.s.onRetain()
	}
}

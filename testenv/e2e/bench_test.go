package e2e

import (
	"context"
	"crypto/rand"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline-io/strandline/gateway"
)

const benchPartitions = 4

// peers are what the benchmarks run against: a node on this machine's disk in each
// ack mode, and franz-go's kfake, which keeps everything in memory.
func peers(b *testing.B, f func(b *testing.B, addr string)) {
	b.Helper()
	for _, ack := range []string{"fsync", "interval"} {
		b.Run(ack, func(b *testing.B) { f(b, benchNode(b, ack)) })
	}
	b.Run("kfake", func(b *testing.B) {
		c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.DefaultNumPartitions(benchPartitions), kfake.SeedTopics(benchPartitions, "bench"))
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		f(b, c.ListenAddrs()[0])
	})
}

// diskNode is a node in this process, on this machine's disk and a folder as its
// bucket.
func diskNode(t testing.TB, changes ...func(*gateway.Config)) *gateway.Node {
	t.Helper()
	c := gateway.DefaultConfig()
	c.DataDir, c.Bucket = filepath.Join(t.TempDir(), "data"), "dir:"+filepath.Join(t.TempDir(), "bucket")
	c.Kafka.Listen, c.Admin.Listen = "127.0.0.1:0", "127.0.0.1:0"
	for _, change := range changes {
		change(&c)
	}
	n, err := gateway.Start(t.Context(), c, gateway.Deps{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := n.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return n
}

func benchNode(b *testing.B, ack string) string {
	b.Helper()
	n := diskNode(b)
	_, err := kadm.NewClient(client(b, n.KafkaAddr())).CreateTopic(b.Context(), benchPartitions, 1, map[string]*string{"strandline.ack": &ack}, "bench")
	if err != nil {
		b.Fatal(err)
	}
	return n.KafkaAddr()
}

// benchProduce sends n records of 1 KiB, acks=all, no compression.
func benchProduce(b *testing.B, addr string, n int) {
	b.Helper()
	cl := client(b, addr, kgo.DefaultProduceTopic("bench"), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.RecordPartitioner(kgo.RoundRobinPartitioner()), kgo.MaxBufferedRecords(50_000))
	value := make([]byte, 1<<10)
	if _, err := rand.Read(value); err != nil {
		b.Fatal(err)
	}
	for range n {
		cl.Produce(b.Context(), &kgo.Record{Value: value}, func(_ *kgo.Record, err error) {
			if err != nil {
				b.Error(err)
			}
		})
	}
	if err := cl.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkProduce is one franz-go client on loopback, 1 KiB records over four
// partitions.
func BenchmarkProduce(b *testing.B) {
	peers(b, func(b *testing.B, addr string) {
		b.Helper()
		benchProduce(b, addr, 1000)
		b.SetBytes(1 << 10)
		b.ResetTimer()
		benchProduce(b, addr, b.N)
	})
}

// BenchmarkConsume reads what BenchmarkProduce writes, from the start.
func BenchmarkConsume(b *testing.B) {
	peers(b, func(b *testing.B, addr string) {
		b.Helper()
		benchProduce(b, addr, b.N)
		b.SetBytes(1 << 10)
		b.ResetTimer()
		cl := client(b, addr, kgo.ConsumeTopics("bench"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		for n := 0; n < b.N; {
			fs := cl.PollFetches(b.Context())
			if err := fs.Err(); err != nil {
				b.Fatal(err)
			}
			n += fs.NumRecords()
		}
		b.StopTimer()
		cl.Close()
	})
}

// BenchmarkSyncProduce is one record at a time: the latency of an acknowledgement.
func BenchmarkSyncProduce(b *testing.B) {
	peers(b, func(b *testing.B, addr string) {
		b.Helper()
		cl := client(b, addr, kgo.DefaultProduceTopic("bench"), kgo.ProducerBatchCompression(kgo.NoCompression()))
		r := &kgo.Record{Value: make([]byte, 1<<10)}
		if err := cl.ProduceSync(b.Context(), r).FirstErr(); err != nil {
			b.Fatal(err)
		}
		b.ResetTimer()
		for range b.N {
			if err := cl.ProduceSync(b.Context(), &kgo.Record{Value: r.Value}).FirstErr(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

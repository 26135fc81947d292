package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline-io/strandline/gateway"
	adminclient "github.com/strandline-io/strandline/gateway/admin/client"
	"github.com/strandline-io/strandline/testenv/s3srv"
	"github.com/strandline-io/strandline/tiers/remote"
)

// coldRecords of 1 KiB are in the bucket and nowhere else.
const coldRecords = 256 << 10

// cold is a node whose records are in a bucket of the real S3 server only.
type cold struct {
	c   gateway.Config
	n   *gateway.Node
	reg *prometheus.Registry
}

func newCold(b *testing.B, driver string) *cold {
	b.Helper()
	sb := s3srv.Start(b).Bucket(b)
	c := gateway.DefaultConfig()
	c.DataDir, c.Bucket = filepath.Join(b.TempDir(), "data"), sb.URL(driver, "bench")
	c.S3.AccessKey, c.S3.SecretKey = sb.AccessKey, sb.SecretKey
	c.Kafka.Listen, c.Admin.Listen = "127.0.0.1:0", "127.0.0.1:0"
	cold := &cold{c: c}
	cold.start(b)
	createTopic(b, cold.n.KafkaAddr(), "bench", benchPartitions, map[string]string{"strandline.ack": "os", "segment.bytes": fmt.Sprint(48 << 20)})
	benchProduce(b, cold.n.KafkaAddr(), coldRecords)
	admin := adminclient.New(cold.n.AdminAddr(), nil)
	for p := range int32(benchPartitions) {
		if err := errors.Join(admin.Roll(b.Context(), "bench", p), admin.Copy(b.Context(), "bench", p, true)); err != nil {
			b.Fatal(err)
		}
	}
	cold.stop(b)
	cold.c.DataDir = filepath.Join(b.TempDir(), "rebuilt")
	if _, err := gateway.Rebuild(b.Context(), cold.c, gateway.RebuildDeps{}); err != nil {
		b.Fatal(err)
	}
	cold.start(b)
	b.Cleanup(func() { cold.stop(b) })
	return cold
}

func (c *cold) start(b *testing.B) {
	b.Helper()
	var err error
	c.reg = prometheus.NewRegistry()
	if c.n, err = gateway.Start(b.Context(), c.c, gateway.Deps{Registry: c.reg}); err != nil {
		b.Fatal(err)
	}
}

func (c *cold) stop(b *testing.B) {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := c.n.Stop(ctx); err != nil {
		b.Fatal(err)
	}
}

// gets is how many requests for records the node has made.
func (c *cold) gets(b *testing.B) float64 {
	b.Helper()
	families, err := c.reg.Gather()
	if err != nil {
		b.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "strandline_object_requests_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "op" && l.GetValue() == "get" {
					return m.GetCounter().GetValue()
				}
			}
		}
	}
	return 0
}

// eachDriver runs f with each S3 driver.
func eachDriver(b *testing.B, f func(b *testing.B, c *cold)) {
	b.Helper()
	for _, driver := range []string{"s3", "minio"} {
		b.Run(driver, func(b *testing.B) { f(b, newCold(b, driver)) })
	}
}

// BenchmarkColdConsume is one franz-go client that reads four partitions of 1 KiB
// records from the start, all of it through the S3 server on loopback, with an
// empty cache each time; and what the same driver gets from the same server by
// plain ranged reads of 4 MiB, four at a time.
func BenchmarkColdConsume(b *testing.B) {
	eachDriver(b, func(b *testing.B, c *cold) {
		b.Helper()
		b.Run("plain gets", func(b *testing.B) {
			b.SetBytes(plainGets(b, c))
			for b.Loop() {
				plainGets(b, c)
			}
		})
		b.Run("consume", func(b *testing.B) {
			b.SetBytes(coldRecords << 10)
			requests := 0.0
			for b.Loop() {
				b.StopTimer()
				c.stop(b)
				c.start(b)
				b.StartTimer()
				consumeAll(b, c.n.KafkaAddr(), coldRecords)
				requests += c.gets(b)
			}
			b.ReportMetric(requests/float64(b.N)*float64(1<<30)/float64(coldRecords<<10), "GETs/GiB")
		})
	})
}

func consumeAll(b *testing.B, addr string, n int) {
	b.Helper()
	cl := client(b, addr, kgo.ConsumeTopics("bench"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer cl.Close()
	for got := 0; got < n; {
		fs := cl.PollFetches(b.Context())
		if err := fs.Err(); err != nil {
			b.Fatal(err)
		}
		got += fs.NumRecords()
	}
}

// plainGets reads all records objects and returns their bytes.
func plainGets(b *testing.B, c *cold) int64 {
	b.Helper()
	bucket := c.n.Bucket()
	type part struct {
		key string
		r   remote.Range
	}
	var parts []part
	total := int64(0)
	for o, err := range bucket.List(b.Context(), remote.ListOptions{Prefix: "topics/"}) {
		if err != nil {
			b.Fatal(err)
		}
		if !strings.HasSuffix(o.Key, ".log") {
			continue
		}
		total += o.Size
		for off := int64(0); off < o.Size; off += 4 << 20 {
			parts = append(parts, part{o.Key, remote.Range{Off: off, Len: min(4<<20, o.Size-off)}})
		}
	}
	work := make(chan part)
	var wg sync.WaitGroup
	for range benchPartitions {
		wg.Go(func() {
			for p := range work {
				body, _, err := bucket.Get(b.Context(), p.key, p.r)
				if err != nil {
					b.Error(err)
					continue
				}
				if n, err := io.Copy(io.Discard, body); n != p.r.Len || err != nil {
					b.Error(n, err)
				}
				_ = body.Close()
			}
		})
	}
	for _, p := range parts {
		work <- p
	}
	close(work)
	wg.Wait()
	return total
}

// BenchmarkColdFirstRecord is the time from a consumer's first fetch, somewhere in
// a partition that is in the bucket only, to its first record. Nothing of the
// segment is in memory, its companion neither.
func BenchmarkColdFirstRecord(b *testing.B) {
	eachDriver(b, func(b *testing.B, c *cold) {
		b.Helper()
		var took []time.Duration
		for b.Loop() {
			b.StopTimer()
			c.stop(b)
			c.start(b)
			cl := client(b, c.n.KafkaAddr(), kgo.ConsumeTopics())
			if err := cl.Ping(b.Context()); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
			start := time.Now()
			cl.AddConsumePartitions(map[string]map[int32]kgo.Offset{"bench": {0: kgo.NewOffset().At(rand.Int64N(coldRecords / benchPartitions))}})
			fs := cl.PollFetches(b.Context())
			took = append(took, time.Since(start))
			if err := fs.Err(); err != nil || fs.NumRecords() == 0 {
				b.Fatal(fs.NumRecords(), err)
			}
			b.StopTimer()
			cl.Close()
			b.StartTimer()
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
		b.ReportMetric(float64(took[len(took)-1].Microseconds())/1000, "max-ms")
	})
}

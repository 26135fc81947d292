package e2e

import (
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/strandline-io/strandline/testenv/binary"
)

// barRuns is how often each figure is measured; the median is reported.
const barRuns = 5

// medians collects figures by name.
type medians map[string][]float64

func (m medians) add(name string, v float64) { m[name] = append(m[name], v) }

func (m medians) median(name string) float64 {
	all := slices.Sorted(slices.Values(m[name]))
	return all[len(all)/2]
}

func (m medians) report(b *testing.B) {
	b.Helper()
	for name := range m {
		b.ReportMetric(m.median(name), name)
	}
	b.ReportMetric(0, "ns/op") // says nothing here
}

// BenchmarkBars measures what this project wants to reach, with the program as
// users have it: client and node are processes of their own. Each figure is the
// median of five runs; those of kfake, franz-go's server without a disk, are
// taken in between with the same client.
func BenchmarkBars(b *testing.B) {
	for _, ack := range []string{"fsync", "interval"} {
		b.Run("produce-and-consume/"+ack, func(b *testing.B) { produceBar(b, ack) })
	}
	for _, driver := range []string{"s3", "minio", "dir"} {
		b.Run("cold/"+driver, func(b *testing.B) { coldBar(b, driver) })
	}
	for _, driver := range []string{"s3", "dir"} {
		b.Run("rebuild-1000/"+driver, func(b *testing.B) { rebuildBar(b, driver) })
	}
}

const barRecords = 400_000 // of 1 KiB

// produceBar produces, consumes, and produces one record at a time, on the node
// and on kfake in turn.
func produceBar(b *testing.B, ack string) {
	b.Helper()
	node := newToolbox(b, "dir")
	m := medians{}
	for run := range barRuns {
		topic := fmt.Sprint("strandline-bench-", run)
		p := node.produce(barRecords, "-t", topic, "--set", "strandline.ack="+ack)
		c := node.bench("consume", "-b", node.node.Kafka, "-t", topic)
		s := node.produce(2000, "-t", topic, "--sync", "--idempotent=false")
		m.add("produce-MiB/s", p.MiB)
		m.add("consume-MiB/s", c.MiB)
		m.add("sync-p50-ms", s.Latency.P50)
		m.add("sync-p99-ms", s.Latency.P99)
		fake, closeFake := fakeServer(b)
		p = node.bench("produce", "-b", fake, "--create", "--replicas", "1", "--records", fmt.Sprint(barRecords))
		c = node.bench("consume", "-b", fake)
		closeFake()
		m.add("kfake-produce-MiB/s", p.MiB)
		m.add("kfake-consume-MiB/s", c.MiB)
	}
	m.report(b)
}

func fakeServer(b *testing.B) (addr string, end func()) {
	b.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		b.Fatal(err)
	}
	return c.ListenAddrs()[0], c.Close
}

// coldBar consumes what is in the bucket only, each time with a node whose caches
// are empty, and reads the same objects by plain ranged GETs in the same run.
func coldBar(b *testing.B, driver string) {
	b.Helper()
	node := newToolbox(b, driver)
	node.produce(barRecords, "--set", "segment.bytes=67108864")
	m := medians{}
	for range barRuns {
		c := node.cold()
		m.add("cold-MiB/s", c.MiB)
		m.add("first-byte-ms", c.FirstByte)
		m.add("plain-MiB/s", c.Cold.Plain.MiB)
		m.add("plain-first-byte-ms", c.Cold.Plain.FirstByte)
		m.add("of-plain", c.Cold.Ratio)
		node.restart()
	}
	m.report(b)
}

// restart stops the node and starts it again, with empty caches.
func (b *toolbox) restart() {
	b.Helper()
	if err := b.node.Stop(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.node = binary.Serve(b, b.options)
}

func rebuildBar(b *testing.B, driver string) {
	b.Helper()
	node := newToolbox(b, driver)
	m := medians{}
	for range barRuns {
		r := node.bench("rebuild", "--segments", "1000", "--bucket", node.bucket)
		m.add("rebuild-s", r.Rebuild.Seconds)
	}
	m.report(b)
}

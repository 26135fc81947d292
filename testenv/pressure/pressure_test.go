// Package pressure runs a whole node against a real S3 server and holds what the
// node says of its traffic against what the server was asked. All of its state
// belongs to one test each.
package pressure

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/strandline-io/strandline/gateway"
	"github.com/strandline-io/strandline/gateway/admin/client"
	"github.com/strandline-io/strandline/testenv/faultproxy"
	"github.com/strandline-io/strandline/testenv/s3srv"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/batch"
	"github.com/strandline-io/strandline/tiers/fsys/mem"
	"github.com/strandline-io/strandline/tiers/partition"
	"github.com/strandline-io/strandline/tiers/remote"
)

func TestMain(m *testing.M) { os.Exit(s3srv.Main(m)) }

const patience = time.Minute

// inMemory is the data directory of a node whose disk is in memory.
const inMemory = "/data"

// site is a node with its disk in memory and a bucket behind a proxy.
type site struct {
	t        testing.TB
	proxy    *faultproxy.Proxy
	bucket   s3srv.Bucket
	fs       *mem.FS
	config   gateway.Config
	node     *gateway.Node
	registry *prometheus.Registry
}

func newSite(t testing.TB, driver string, change func(*gateway.Config)) *site {
	t.Helper()
	server := s3srv.Start(t)
	s := &site{t: t, proxy: faultproxy.New(t, server.Endpoint), bucket: server.Bucket(t), fs: mem.New()}
	c := gateway.DefaultConfig()
	c.DataDir, c.DiskMinFree = inMemory, 0
	behind := s.bucket
	behind.Endpoint = s.proxy.URL
	c.Bucket = behind.URL(driver, "p")
	c.S3.AccessKey, c.S3.SecretKey = s.bucket.AccessKey, s.bucket.SecretKey
	c.Kafka.Listen, c.Admin.Listen = "127.0.0.1:0", "127.0.0.1:0"
	c.DrainTimeout = 10 * time.Second
	if change != nil {
		change(&c)
	}
	s.config = c
	s.up()
	return s
}

func (s *site) up() {
	s.t.Helper()
	s.registry = prometheus.NewRegistry()
	d := gateway.Deps{FS: s.fs, Log: hclog.NewNullLogger(), Registry: s.registry}
	if s.config.DataDir != inMemory {
		d.FS = nil // a real disk
	}
	n, err := gateway.Start(s.t.Context(), s.config, d)
	if err != nil {
		s.t.Fatal(err)
	}
	s.node = n
	s.t.Cleanup(func() { s.down(n) })
}

func (s *site) down(n *gateway.Node) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := n.Stop(ctx); err != nil {
		s.t.Error(err)
	}
}

func (s *site) admin() *client.Client { return client.New(s.node.AdminAddr(), nil) }

func (s *site) topic(name string, partitions int32, configs map[string]string) tiers.TopicID {
	s.t.Helper()
	if _, err := s.admin().CreateTopic(s.t.Context(), client.NewTopic{Name: name, Partitions: &partitions, Configs: configs}); err != nil {
		s.t.Fatal(err)
	}
	t, _ := s.node.Broker().Catalog().Topic(name)
	return t.ID
}

func (s *site) owner(topic string, index int32) *partition.Owner {
	s.t.Helper()
	var o *partition.Owner
	s.eventually("the partition is open", func() (err error) {
		o, err = s.node.Broker().Owner(topic, index)
		return err
	})
	return o
}

// eventually waits until f has nothing to say.
func (s *site) eventually(what string, f func() error) {
	s.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	end := time.After(patience)
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-end:
			s.t.Fatalf("never: %s: %v", what, err)
		}
	}
}

func records(tb testing.TB, n, size int) []byte {
	tb.Helper()
	var rs []batch.Record
	for i := range n {
		v := make([]byte, size)
		for j := range v {
			v[j] = byte(i + j*7 + j>>8)
		}
		rs = append(rs, batch.Record{Offset: tiers.Offset(i), Timestamp: time.Now().UnixMilli(), Value: v})
	}
	b, err := batch.Builder{ProducerID: -1}.Build(rs)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// fill writes segments of about 16 KiB each.
func (s *site) fill(o *partition.Owner, segments int) {
	s.t.Helper()
	for range segments {
		if _, err := o.Append(s.t.Context(), partition.AppendRequest{Batch: records(s.t, 4, 4<<10), AllowZstd: true}); err != nil {
			s.t.Fatal(err)
		}
		if err := o.Roll(s.t.Context()); err != nil {
			s.t.Fatal(err)
		}
	}
}

// bill is the requests that the proxy saw, of one topic or of all. What deletes
// several keys does not name them in its URL.
func bill(p *faultproxy.Proxy, topic string) (c remote.Counts) {
	for _, seen := range p.Seen() {
		q, _ := url.ParseQuery(seen.Query)
		if where := seen.Path + q.Get("prefix"); !strings.Contains(where, topic) {
			continue
		}
		switch {
		case seen.Struck == faultproxy.Status:
			c.Refused++
		case seen.Method == http.MethodDelete, seen.Method == http.MethodPost && q.Has("delete"):
			c.Deletes++
		case seen.Method == http.MethodPut, seen.Method == http.MethodPost, q.Has("list-type"), q.Has("uploads"):
			c.Writes++
		default:
			c.Reads++
		}
	}
	return c
}

func line(c client.Cost, topic string) client.CostLine {
	if i := slices.IndexFunc(c.Topics, func(l client.CostLine) bool { return l.Topic == topic }); i >= 0 {
		return c.Topics[i]
	}
	return client.CostLine{}
}

func counts(l client.CostLine) remote.Counts {
	return remote.Counts{Writes: l.Writes, Reads: l.Reads, Deletes: l.Deletes, Refused: l.Refused}
}

// agree waits until the node says what the proxy saw, which it does as soon as
// nothing is under way: of a topic if it lives, and of everything.
func (s *site) agree(when, topic string, id tiers.TopicID) client.Cost {
	s.t.Helper()
	var cost client.Cost
	s.eventually(when+": the bill is what the store saw", func() (err error) {
		if cost, err = s.admin().Cost(s.t.Context()); err != nil {
			return err
		}
		all := bill(s.proxy, "")
		if got := counts(cost.Total); got != all {
			return fmt.Errorf("counted %+v, seen %+v", got, all)
		}
		if topic == "" {
			return nil
		}
		got, seen := counts(line(cost, topic)), bill(s.proxy, id.Hex())
		got.Deletes, seen.Deletes = 0, 0 // many in one request
		if got != seen {
			return fmt.Errorf("of the topic: counted %+v, seen %+v", got, seen)
		}
		return nil
	})
	return cost
}

// TestCostIsWhatTheStoreSaw: a copy, a cold read, a trim and the deletion of a
// topic, with a refused request here and there.
func TestCostIsWhatTheStoreSaw(t *testing.T) {
	for _, driver := range []string{"s3", "minio"} {
		t.Run(driver, func(t *testing.T) {
			s := newSite(t, driver, func(c *gateway.Config) {
				c.Prices = remote.Prices{WritesPerMillion: 5e6, ReadsPerMillion: 1e6, StorageGiBMonth: 1 << 30, EgressGiB: 0, Currency: "EUR"}
			})
			id := s.topic("orders", 1, map[string]string{"local.retention.ms": "-2"})
			s.topic("quiet", 1, nil)
			s.agree("at the start", "orders", id)

			s.proxy.Add(faultproxy.Rule{Method: http.MethodPut, Key: ".log", Action: faultproxy.Status})
			o := s.owner("orders", 0)
			s.fill(o, 5)
			if err := o.CopyAll(t.Context()); err != nil {
				t.Fatal(err)
			}
			cost := s.agree("copied", "orders", id)
			orders := line(cost, "orders")
			if orders.Writes != 10 || orders.Refused != 1 || orders.BytesUp < 5*16<<10 {
				t.Errorf("five segments of two objects: %+v", orders)
			}
			if stored := s.stored(id); orders.StoredBytes != stored || stored < 5*16<<10 {
				t.Errorf("%d bytes are stored by the rows, %d by the bucket", orders.StoredBytes, stored)
			}
			want := float64(5*orders.Writes + orders.Reads)
			if math.Abs(orders.Requests-want) > 1e-6 || math.Abs(orders.Storage-float64(orders.StoredBytes)) > 1e-3 || orders.Egress != 0 || cost.Prices.Currency != "EUR" {
				t.Errorf("money: %+v, want %v for requests", orders, want)
			}
			if quiet := line(cost, "quiet"); counts(quiet).Requests() != 0 || quiet.StoredBytes != 0 {
				t.Errorf("nothing happened to %+v", quiet)
			}
			if cost.Topics[0].Topic != "orders" || cost.Cluster.Writes == 0 || cost.Total.Projected30d != nil {
				t.Errorf("%+v", cost)
			}

			s.loseDisk(id)
			s.proxy.Clear()
			s.up()
			s.read("orders", 20)
			orders = line(s.agree("read from the bucket", "orders", id), "orders")
			if orders.Reads < 5 || orders.BytesDown < 5*16<<10 || orders.Writes != 0 {
				t.Errorf("a cold read: %+v", orders)
			}

			if _, err := s.owner("orders", 0).DeleteRecords(t.Context(), 9); err != nil {
				t.Fatal(err)
			}
			if err := s.admin().Retain(t.Context(), "orders", 0, true); err != nil {
				t.Fatal(err)
			}
			cost = s.agree("trimmed", "orders", id)
			if cost.Total.Deletes == 0 && line(cost, "orders").Deletes == 0 {
				s.eventually("what was trimmed goes", func() error {
					if cost := s.agree("trimmed", "orders", id); line(cost, "orders").Deletes == 0 {
						return fmt.Errorf("%+v", line(cost, "orders"))
					}
					return nil
				})
			}

			if err := s.admin().DeleteTopic(t.Context(), "orders"); err != nil {
				t.Fatal(err)
			}
			s.eventually("the objects are gone", func() error {
				if n := s.stored(id); n != 0 {
					return fmt.Errorf("%d bytes are left", n)
				}
				return nil
			})
			cost = s.agree("deleted", "", id)
			if l := line(cost, "orders"); l != (client.CostLine{}) || cost.Deleted.Reads < orders.Reads || cost.Deleted.Deletes == 0 {
				t.Errorf("of deleted topics: %+v; of the topic: %+v", cost.Deleted, l)
			}
		})
	}
}

// loseDisk stops the node and removes the records of a topic from its disk.
func (s *site) loseDisk(id tiers.TopicID) {
	s.t.Helper()
	s.down(s.node)
	if err := s.fs.RemoveAll(fmt.Sprintf("/data/%s-0", id.Hex())); err != nil {
		s.t.Fatal(err)
	}
}

// stored lists the objects of a topic, past the proxy.
func (s *site) stored(id tiers.TopicID) (n int64) {
	s.t.Helper()
	c := s.config
	c.Bucket = s.bucket.URL("s3", "p")
	b, err := gateway.OpenBucket(s.t.Context(), c)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	for o, err := range b.List(s.t.Context(), remote.ListOptions{Prefix: remote.TopicPrefix(id)}) {
		if err != nil {
			s.t.Fatal(err)
		}
		n += o.Size
	}
	return n
}

// read reads a partition from its start to offset end.
func (s *site) read(topic string, end tiers.Offset) {
	s.t.Helper()
	for from := tiers.Offset(0); from < end; {
		res, err := s.owner(topic, 0).Read(s.t.Context(), partition.ReadRequest{
			From: from, CurrentEpoch: tiers.NoEpoch, FetchedEpoch: tiers.NoEpoch, MaxBytes: 1 << 20, MinOne: true,
		})
		if err != nil || len(res.Records) == 0 {
			s.t.Fatalf("at %d: %d bytes, %v", from, len(res.Records), err)
		}
		for b := range batch.Split(res.Records) {
			from = b.Header.Next()
		}
	}
}

// TestReport132LimitsOfANode: limits of the configuration hold, PATCH /v1/limits changes
// them for what is under way, and the lag shows meanwhile (report 132).
func TestReport132LimitsOfANode(t *testing.T) {
	s := newSite(t, "s3", func(c *gateway.Config) { c.Limits.UploadBytes = 4 << 10 })
	s.topic("orders", 1, nil)
	o := s.owner("orders", 0)
	s.fill(o, 4)
	limits, err := s.admin().Limits(t.Context())
	if err != nil || limits.Upload != 4<<10 || limits.Download != 0 || len(limits.Lanes) != 3 || len(limits.Jobs) != 4 {
		t.Errorf("%+v, %v", limits, err)
	}
	if lag := o.Lag(); lag.Segments == 0 || lag.Bytes < 16<<10 || time.Since(lag.Oldest) > time.Minute {
		t.Errorf("4 KiB a second and 64 KiB to copy: %+v", lag)
	}
	if v := s.series("strandline_topic_copy_lag_bytes"); v["orders"] < 16<<10 {
		t.Errorf("series of the lag: %v", v)
	}
	if v := s.series("strandline_topic_copy_lag_seconds"); len(v) != 1 {
		t.Errorf("series of the age: %v", v)
	}
	none := int64(0)
	if limits, err = s.admin().ChangeLimits(t.Context(), client.LimitChanges{Upload: &none}); err != nil || limits.Upload != 0 {
		t.Fatalf("%+v, %v", limits, err)
	}
	begin := time.Now()
	if err := o.CopyAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took > 10*time.Second { // it would have been 16 s
		t.Errorf("without a limit it took %s", took)
	}
	if lag := o.Lag(); lag != (partition.Lag{}) {
		t.Errorf("all is copied: %+v", lag)
	}
	if v := s.series("strandline_topic_copy_lag_bytes"); len(v) != 0 {
		t.Errorf("series of the lag: %v", v)
	}
}

// series are the values of a metric by topic.
func (s *site) series(name string) map[string]float64 {
	s.t.Helper()
	all, err := s.registry.Gather()
	if err != nil {
		s.t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range all {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			out[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
		}
	}
	return out
}

// BenchmarkReport132ProduceUnderUploads compares the time of an append while the
// node is idle with that while fifty partitions, which rolled together, are copied
// at 20 MB a second.
func BenchmarkReport132ProduceUnderUploads(b *testing.B) {
	const partitions, segment = 50, 1 << 20
	s := newSite(b, "s3", func(c *gateway.Config) { c.DataDir, c.Limits.UploadBytes = b.TempDir(), 20_000_000 })
	s.topic("busy", partitions, nil)
	s.topic("timed", 1, map[string]string{"remote.storage.enable": "false"})
	timed, one := s.owner("timed", 0), records(b, 1, 1<<10)
	measure := func(appends int, more func() bool) []time.Duration {
		var took []time.Duration
		for len(took) < appends || more() {
			begin := time.Now()
			if _, err := timed.Append(b.Context(), partition.AppendRequest{Batch: one, AllowZstd: true}); err != nil {
				b.Fatal(err)
			}
			took = append(took, time.Since(begin))
		}
		slices.Sort(took)
		return took
	}
	p99 := func(d []time.Duration) float64 { return float64(d[len(d)*99/100].Microseconds()) }
	big := records(b, 16, segment/16-64)
	for b.Loop() {
		idle := measure(5000, func() bool { return false })
		for i := range partitions {
			o := s.owner("busy", int32(i))
			if _, err := o.Append(b.Context(), partition.AppendRequest{Batch: big, AllowZstd: true}); err != nil {
				b.Fatal(err)
			}
		}
		var wg sync.WaitGroup
		var left atomic.Int32
		left.Store(partitions)
		begin := time.Now()
		for i := range partitions {
			wg.Go(func() {
				defer left.Add(-1)
				o := s.owner("busy", int32(i))
				if err := o.Roll(b.Context()); err != nil {
					b.Error(err)
				}
				if err := o.CopyAll(b.Context()); err != nil {
					b.Error(err)
				}
			})
		}
		busy := measure(1000, func() bool { return left.Load() > 0 })
		wg.Wait()
		b.ReportMetric(p99(idle), "idle-p99-us")
		b.ReportMetric(p99(busy), "busy-p99-us")
		b.ReportMetric(partitions*segment/time.Since(begin).Seconds()/1e6, "upload-MB/s")
	}
}

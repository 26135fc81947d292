// Package bucketfaults runs a whole node against a real S3 server through a proxy
// that hurts its requests: each fault ends in the right records or in an error
// that a client may retry, and heals by itself. All of its state belongs to one
// test each.
package bucketfaults

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"os"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

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

// TestMain has many tests wait at the same time: most of them wait for a timeout.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "32"); err != nil {
		panic(err)
	}
	os.Exit(s3srv.Main(m))
}

const (
	topicName = "orders"
	records   = 24
	valueSize = 8 << 10
	patience  = 90 * time.Second
)

func drivers() []string {
	if d := os.Getenv(s3srv.EnvDriver); d != "" {
		return []string{d}
	}
	return []string{"s3", "minio"}
}

// site is a bucket behind a proxy, and a disk. Nodes come and go.
type site struct {
	t      *testing.T
	driver string
	proxy  *faultproxy.Proxy
	bucket s3srv.Bucket
	fs     *mem.FS
	config gateway.Config
	direct remote.Bucket // see past
}

func newSite(t *testing.T, driver string) *site {
	t.Helper()
	server := s3srv.Start(t)
	s := &site{t: t, driver: driver, proxy: faultproxy.New(t, server.Endpoint), bucket: server.Bucket(t), fs: mem.New()}
	s.proxy.Sign(server.AccessKey, server.SecretKey, server.Region)
	c := gateway.DefaultConfig()
	c.DataDir = "/data"
	behind := s.bucket
	behind.Endpoint = s.proxy.URL
	c.Bucket = behind.URL(driver, "p")
	c.S3.AccessKey, c.S3.SecretKey = s.bucket.AccessKey, s.bucket.SecretKey
	c.Kafka.Listen, c.Admin.Listen = "127.0.0.1:0", "127.0.0.1:0"
	c.DiskMinFree = 0
	c.DrainTimeout = 5 * time.Second
	s.config = c
	return s
}

// start starts a node, which may refuse.
func (s *site) start() (*gateway.Node, error) {
	return gateway.Start(s.t.Context(), s.config, gateway.Deps{FS: s.fs, Log: hclog.NewNullLogger()})
}

// up starts a node, which stops with the test.
func (s *site) up() *gateway.Node {
	s.t.Helper()
	n, err := s.start()
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { s.down(n) })
	return n
}

// down stops a node. The bucket may be away: then it cannot give the claim back.
func (*site) down(n *gateway.Node) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_ = n.Stop(ctx)
}

// fill makes the topic and writes the records, in several closed segments.
func (s *site) fill(n *gateway.Node) {
	s.t.Helper()
	one := int32(1)
	_, err := admin(n).CreateTopic(s.t.Context(), client.NewTopic{
		Name: topicName, Partitions: &one, Configs: map[string]string{"segment.bytes": "65536", "local.retention.ms": "-2"},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	o := s.owner(n)
	for i := range records {
		b, err := batch.Builder{ProducerID: -1}.Build([]batch.Record{{Timestamp: time.Now().UnixMilli(), Value: value(i)}})
		if err != nil {
			s.t.Fatal(err)
		}
		if _, err := o.Append(s.t.Context(), partition.AppendRequest{Batch: b, AllowZstd: true}); err != nil {
			s.t.Fatal(err)
		}
	}
	if err := o.Roll(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

func value(i int) []byte {
	v := make([]byte, valueSize)
	for j := range v {
		v[j] = byte(i*31 + j*7 + j>>8)
	}
	copy(v, fmt.Sprint("record ", i))
	return v
}

// owner waits for the owner of the partition.
func (s *site) owner(n *gateway.Node) *partition.Owner {
	s.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	end := time.After(patience)
	for {
		o, err := n.Broker().Owner(topicName, 0)
		if err == nil {
			return o
		}
		select {
		case <-tick.C:
		case <-end:
			s.t.Fatal(err)
		}
	}
}

// insist calls f until it goes well. Every error must be one that may be retried.
func (s *site) insist(what string, f func(ctx context.Context) error) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	for {
		err := f(ctx)
		switch {
		case err == nil:
			return
		case ctx.Err() != nil:
			s.t.Fatalf("%s never went well: %v", what, err)
		case !retriable(err):
			s.t.Fatalf("%s: an error that nobody may retry: %v", what, err)
		}
	}
}

// retriable reports whether clients are told to try again.
func retriable(err error) bool {
	switch tiers.KindOf(err) {
	case tiers.RemoteUnavailable, tiers.TimedOut, tiers.StorageFailed, tiers.NotLeader:
		return true
	case tiers.CorruptMessage:
		return errors.Is(err, remote.ErrChecksum) // of a copy: an operator may ask again, the node does
	default:
		return false
	}
}

// read reads everything, whatever happens on the way, and checks each record.
func (s *site) read(n *gateway.Node) {
	s.t.Helper()
	s.readFrom(n, 0)
}

// readFrom reads what is at an offset and behind it.
func (s *site) readFrom(n *gateway.Node, from tiers.Offset) {
	s.t.Helper()
	o := s.owner(n)
	for from < records {
		s.insist(fmt.Sprintf("read at %d", from), func(ctx context.Context) error {
			res, err := o.Read(ctx, partition.ReadRequest{From: from, CurrentEpoch: tiers.NoEpoch, FetchedEpoch: tiers.NoEpoch, MaxBytes: 64 << 10, MinOne: true})
			if err != nil {
				return err
			}
			if len(res.Records) == 0 {
				s.t.Fatalf("nothing at %d", from)
			}
			for one := range batch.Split(res.Records) {
				err := batch.NewDecoder(0).Records(one.Bytes, func(r batch.Record) bool {
					if string(r.Value) != string(value(int(r.Offset))) {
						s.t.Errorf("record %d is wrong", r.Offset)
					}
					return true
				})
				if err != nil {
					s.t.Fatal(err)
				}
				from = one.Header.Next()
			}
			return nil
		})
	}
}

// loseDisk removes the partition's folder, so that everything is in the bucket
// only.
func (s *site) loseDisk(n *gateway.Node) {
	s.t.Helper()
	topic, _ := n.Broker().Catalog().Topic(topicName)
	s.down(n)
	if err := s.fs.RemoveAll(fmt.Sprintf("/data/%s-0", topic.ID.Hex())); err != nil {
		s.t.Fatal(err)
	}
}

// past opens the bucket past the proxy.
func (s *site) past() remote.Bucket {
	s.t.Helper()
	if s.direct != nil {
		return s.direct
	}
	c := s.config
	c.Bucket = s.bucket.URL(s.driver, "p")
	b, err := gateway.OpenBucket(s.t.Context(), c)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = b.Close() })
	s.direct = b
	return b
}

// keys lists the bucket past the proxy.
func (s *site) keys(prefix string) []string {
	s.t.Helper()
	var out []string
	for o, err := range s.past().List(s.t.Context(), remote.ListOptions{Prefix: prefix}) {
		if err != nil {
			s.t.Fatal(err)
		}
		out = append(out, o.Key)
	}
	return out
}

// eventually waits until f holds.
func (s *site) eventually(what string, f func() bool) {
	s.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	end := time.After(patience)
	for !f() {
		select {
		case <-tick.C:
		case <-end:
			s.t.Fatal("never: " + what)
		}
	}
}

func admin(n *gateway.Node) *client.Client { return client.New(n.AdminAddr(), nil) }

// lines yields the lines of an answer.
func lines(r io.Reader) iter.Seq[string] {
	return func(yield func(string) bool) {
		sc := bufio.NewScanner(r)
		for sc.Scan() && yield(sc.Text()) {
		}
	}
}

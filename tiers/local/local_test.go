package local

import (
	"bytes"
	"fmt"
	"path"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/batch"
	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/fsys/mem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// topicA is the topic of most tests.
var topicA = tiers.TopicID{0xa, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}

func partitionID(i int32) tiers.PartitionID { return tiers.PartitionID{Topic: topicA, Index: i} }

// clock is a time that tests move.
type clock struct{ t time.Time }

func newClock() *clock { return &clock{time.UnixMilli(1_700_000_000_000).UTC()} }

func (c *clock) now() time.Time { return c.t }

const root = "/data"

// node is a disk and one log on it, over a file system that outlives them.
type node struct {
	t     testing.TB
	fs    fsys.FS
	clock *clock
	conf  Config
	empty Start
	index int32
	out   hclog.Logger

	disk *Disk
	log  *Log
	rec  Recovery
}

func newNode(tb testing.TB, fs fsys.FS) *node {
	tb.Helper()
	return &node{
		t: tb, fs: fs, clock: newClock(), out: hclog.NewNullLogger(),
		conf: Config{SegmentBytes: 1 << 20, SegmentAge: time.Hour, IndexBytes: 10 << 20, IndexInterval: 100},
	}
}

func (n *node) options() Options {
	return Options{
		FS: n.fs, Dir: path.Join(root, fmt.Sprintf("%s-%d", topicA.Hex(), n.index)), ID: partitionID(n.index),
		Name: tiers.TopicPartition{Topic: "a", Partition: n.index}, Gen: 1, Config: n.conf, Disk: n.disk, Empty: n.empty,
		Now: n.clock.now, Log: n.out,
	}
}

// tryOpen opens the disk and the log.
func (n *node) tryOpen() (err error) {
	if n.disk, err = OpenDisk(n.fs, root, n.out); err != nil {
		return err
	}
	n.log, n.rec, err = Open(n.options())
	return err
}

func (n *node) open() *Log {
	n.t.Helper()
	if err := n.tryOpen(); err != nil {
		n.t.Fatalf("open: %v", err)
	}
	return n.log
}

// close closes log and disk cleanly.
func (n *node) close() {
	n.t.Helper()
	must(n.t, n.log.Close())
	must(n.t, n.disk.Close())
}

// crash leaves what a killed process leaves and opens it again.
func (n *node) crash() *Log {
	n.t.Helper()
	n.fs = n.fs.(*mem.FS).KillCopy()
	return n.open()
}

// losePower leaves what was synced and opens it again.
func (n *node) losePower() *Log {
	n.t.Helper()
	n.fs = n.fs.(*mem.FS).SyncedCopy()
	return n.open()
}

func (n *node) file(base tiers.Offset, suffix string) string {
	return path.Join(genDir(n.options().Dir, 1), fileName(base, suffix))
}

// failer is a test or a rapid check.
type failer interface {
	Helper()
	Fatal(args ...any)
}

func must(t failer, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// recs makes n records from base on with values of size bytes.
func recs(base tiers.Offset, n, size int, ts int64) []batch.Record {
	out := make([]batch.Record, n)
	for i := range out {
		o := base + tiers.Offset(i)
		v := bytes.Repeat([]byte{byte(o)}, size)
		copy(v, fmt.Sprintf("value %d ", o))
		out[i] = batch.Record{Offset: o, Timestamp: ts + int64(i), Key: fmt.Appendf(nil, "key %d", o), Value: v}
	}
	return out
}

// build makes one batch of n records at base.
func build(tb testing.TB, b batch.Builder, base tiers.Offset, n int) []byte {
	tb.Helper()
	out, err := b.Build(recs(base, n, 20, 1_700_000_000_000+int64(base)*10))
	must(tb, err)
	return out
}

// plain builds batches without a producer.
func plain(epoch tiers.LeaderEpoch) batch.Builder {
	return batch.Builder{LeaderEpoch: epoch, ProducerID: -1}
}

// add appends one batch of n records of epoch e.
func add(tb testing.TB, l *Log, e tiers.LeaderEpoch, n int) []byte {
	tb.Helper()
	b := build(tb, plain(e), l.LogEnd(), n)
	must(tb, put(l, b))
	return b
}

func headers(b []byte) []batch.Header {
	var hs []batch.Header
	for one := range batch.Split(b) {
		hs = append(hs, one.Header)
	}
	return hs
}

// put appends batches as they are.
func put(l *Log, bs ...[]byte) error {
	b := bytes.Join(bs, nil)
	return l.Append(b, headers(b))
}

// readAll reads [from, end) in pieces of at most size bytes.
func readAll(t failer, s *Snapshot, from, end tiers.Offset, size int) []byte {
	t.Helper()
	var out []byte
	for from < end {
		b, err := s.Read(from, end, size, true, nil)
		must(t, err)
		if len(b) == 0 {
			break
		}
		out = append(out, b...)
		hs := headers(b)
		from = hs[len(hs)-1].Next()
	}
	return out
}

// content is all batches of a log.
func content(tb testing.TB, l *Log) []byte {
	tb.Helper()
	s := l.Snapshot()
	defer s.Release()
	return readAll(tb, s, s.Start(), l.LogEnd(), 1<<20)
}

package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/strandline-io/strandline/gateway/admin/client"
	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/gateway/control/model"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/fsys/mem"
	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

// testConfig is a node on free ports with a data directory of its own.
func testConfig(t *testing.T) Config {
	t.Helper()
	c := DefaultConfig()
	c.DataDir = t.TempDir()
	c.Kafka.Listen, c.Admin.Listen = "127.0.0.1:0", "127.0.0.1:0"
	c.Topics.Defaults["segment.bytes"] = "4096"
	return c
}

// startNode starts a node that ends with the test.
func startNode(t *testing.T, c Config, d Deps) *Node {
	t.Helper()
	n, err := Start(t.Context(), c, d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopNode(t, n) })
	return n
}

func stopNode(t *testing.T, n *Node) {
	t.Helper()
	if err := n.Stop(context.WithoutCancel(t.Context())); err != nil {
		t.Errorf("stop: %v", err)
	}
}

func kafkaClient(t *testing.T, n *Node, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(n.KafkaAddr()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// produce writes the records [from,to) to the topic orders.
func produce(t *testing.T, n *Node, from, to int) {
	t.Helper()
	produceTo(t, n, "orders", from, to)
}

func produceTo(t *testing.T, n *Node, topic string, from, to int) {
	t.Helper()
	cl := kafkaClient(t, n, kgo.AllowAutoTopicCreation(), kgo.MaxBufferedRecords(100), kgo.ProducerBatchMaxBytes(1500), kgo.ProducerBatchCompression(kgo.NoCompression()))
	defer cl.Close()
	var rs []*kgo.Record
	for i := from; i < to; i++ {
		rs = append(rs, &kgo.Record{Topic: topic, Key: fmt.Append(nil, i), Value: bytes.Repeat([]byte{byte(i)}, 100)})
	}
	if err := cl.ProduceSync(t.Context(), rs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// consume reads want records from the start and checks that they are those that
// produce wrote, in order.
func consume(t *testing.T, n *Node, want int) {
	t.Helper()
	cl := kafkaClient(t, n, kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	next := 0
	for next < want {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			t.Fatalf("after %d records: %v", next, err)
		}
		fs.EachRecord(func(r *kgo.Record) {
			if string(r.Key) != fmt.Sprint(next) || r.Offset != int64(next) || len(r.Value) != 100 {
				t.Fatalf("record %d is %q at %d with %d bytes", next, r.Key, r.Offset, len(r.Value))
			}
			next++
		})
	}
}

func adminClient(t *testing.T, n *Node) *client.Client {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return client.New(n.AdminAddr(), &http.Client{Transport: transport})
}

// TestNodeFromEndToEnd: produce, copy, restart, lose the local disk, rebuild,
// read everything back.
func TestNodeFromEndToEnd(t *testing.T) {
	c := testConfig(t)
	b := memory.New()
	n := startNode(t, c, Deps{Bucket: b, Version: "test"})
	produce(t, n, 0, 500)
	a := adminClient(t, n)
	for _, step := range []error{a.Roll(t.Context(), "orders", 0), a.Copy(t.Context(), "orders", 0, true)} {
		if step != nil {
			t.Fatal(step)
		}
	}
	topic, err := a.Topic(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	if p := topic.Detail[0]; p.State != "online" || p.LogEnd != 500 || p.RemoteEnd != 500 || p.RemoteSegments < 5 || p.RemoteBytes == 0 || p.LocalBytes < p.RemoteBytes {
		t.Errorf("partition %+v", p)
	}
	consume(t, n, 500)
	stopNode(t, n)

	n = startNode(t, c, Deps{Bucket: b})
	consume(t, n, 500)
	produce(t, n, 500, 600)
	a = adminClient(t, n)
	for _, step := range []error{a.Roll(t.Context(), "orders", 0), a.Copy(t.Context(), "orders", 0, true)} {
		if step != nil {
			t.Fatal(step)
		}
	}
	stopNode(t, n)

	c.DataDir = t.TempDir()
	_, err = Start(t.Context(), c, Deps{Bucket: b})
	wantKind(t, "an empty data directory on a bucket with a cluster", err, tiers.Conflict, "strandline rebuild", "another bucket prefix")
	if rep, err := Rebuild(t.Context(), c, RebuildDeps{Bucket: b}); err != nil {
		t.Fatalf("%+v, %v", rep, err)
	}
	n = startNode(t, c, Deps{Bucket: b})
	consume(t, n, 600)
	if got, ok := n.Broker().Catalog().Topic("orders"); !ok || got.ID.String() != topic.ID {
		t.Errorf("topic %+v, want id %s", got, topic.ID)
	}
}

// TestNodeOnAFolderAsBucket is the same with nothing passed in: the machine's
// files, SQLite and the dir driver, opened by what the configuration says.
func TestNodeOnAFolderAsBucket(t *testing.T) {
	c := testConfig(t)
	c.Bucket = "dir:" + t.TempDir()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	n := startNode(t, c, Deps{})
	produce(t, n, 0, 200)
	a := adminClient(t, n)
	if err := errors.Join(a.Roll(t.Context(), "orders", 0), a.Copy(t.Context(), "orders", 0, true)); err != nil {
		t.Fatal(err)
	}
	stopNode(t, n)
	c.DataDir = t.TempDir()
	_, err := Start(t.Context(), c, Deps{})
	wantKind(t, "an empty data directory", err, tiers.Conflict, "strandline rebuild")
	if _, err := Rebuild(t.Context(), c, RebuildDeps{}); err != nil {
		t.Fatal(err)
	}
	n = startNode(t, c, Deps{})
	consume(t, n, 200)
	produce(t, n, 200, 210)
	consume(t, n, 210)
}

func TestCommittedOffsetsSurviveARestart(t *testing.T) {
	c := testConfig(t)
	n := startNode(t, c, Deps{Bucket: memory.New()})
	produce(t, n, 0, 10)
	want := kadm.Offsets{}
	want.Add(kadm.Offset{Topic: "orders", Partition: 0, At: 7, LeaderEpoch: 0, Metadata: "note"})
	if err := kadm.NewClient(kafkaClient(t, n)).CommitAllOffsets(t.Context(), "g", want); err != nil {
		t.Fatal(err)
	}
	b := n.d.Bucket
	stopNode(t, n)
	n = startNode(t, c, Deps{Bucket: b})
	got, err := kadm.NewClient(kafkaClient(t, n)).FetchOffsets(t.Context(), "g")
	if o, ok := got.Lookup("orders", 0); err != nil || !ok || o.At != 7 || o.Metadata != "note" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestNodeWithoutABucket(t *testing.T) {
	c := testConfig(t)
	n := startNode(t, c, Deps{})
	produce(t, n, 0, 50)
	stopNode(t, n)
	n = startNode(t, c, Deps{})
	consume(t, n, 50)
	err := adminClient(t, n).AlterConfigs(t.Context(), "orders", map[string]*string{"remote.storage.enable": new("true")})
	if err == nil || !strings.Contains(err.Error(), "no bucket") {
		t.Errorf("enabling remote storage: %v", err)
	}
}

func TestHealthFollowsTheLifeOfANode(t *testing.T) {
	c := testConfig(t)
	reg := prometheus.NewRegistry()
	n := startNode(t, c, Deps{Bucket: memory.New(), Registry: reg, Version: "1.2.3"})
	a := adminClient(t, n)
	if h, err := a.Ready(t.Context()); err != nil || h.Status != "ok" {
		t.Errorf("%+v, %v", h, err)
	}
	cl, err := a.Cluster(t.Context())
	if err != nil || cl.ClusterID != n.Cluster() || cl.Version != "1.2.3" || len(cl.Kafka) != 1 || cl.Kafka[0] != n.KafkaAddr() || !strings.HasPrefix(cl.Bucket, "memory:") {
		t.Errorf("%+v, %v", cl, err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, f := range families {
		found[f.GetName()] = true
		if !strings.HasPrefix(f.GetName(), "strandline_") {
			t.Errorf("metric %s does not start with strandline_", f.GetName())
		}
	}
	for _, name := range []string{"strandline_build_info", "strandline_partitions", "strandline_fenced", "strandline_claim_checked_timestamp_seconds", "strandline_object_requests_total"} {
		if !found[name] {
			t.Errorf("metric %s is missing", name)
		}
	}
	n.draining.Store(true)
	if h, err := a.Ready(t.Context()); err != nil || h.Status != "unavailable" || len(h.Reasons) != 1 || h.Reasons[0] != "the node is stopping" {
		t.Errorf("%+v, %v", h, err)
	}
}

func TestReplacedNodeIsNotReady(t *testing.T) {
	c := testConfig(t)
	b := memory.New()
	n := startNode(t, c, Deps{Bucket: b})
	produce(t, n, 0, 1)
	if _, err := control.AcquireClaim(t.Context(), b, control.ClaimOptions{Cluster: n.Cluster(), Node: 1, Instance: "clone", Now: time.Now}); err != nil {
		t.Fatal(err)
	}
	n.Broker().Fence(n.claim.Check(t.Context())) // what the watch does within 10 s
	h, err := adminClient(t, n).Ready(t.Context())
	if err != nil || h.Status != "unavailable" || len(h.Reasons) != 1 || !strings.Contains(h.Reasons[0], "replaced") {
		t.Errorf("%+v, %v", h, err)
	}
	stopNode(t, n) // is no error, although the claim is not ours to release
}

// TestClientsComeOncePartitionsAreOpen, so that nobody is sent away for seconds,
// but a partition that takes long keeps no other from serving.
func TestClientsComeOncePartitionsAreOpen(t *testing.T) {
	c := testConfig(t)
	c.DataDir = "/data"
	disk := fsys.NewFaulty(mem.New())
	n := startNode(t, c, Deps{FS: disk})
	produce(t, n, 0, 10)
	produceTo(t, n, "slow", 0, 10)
	slow, _ := n.Broker().Catalog().Topic("slow")
	stopNode(t, n)
	hold, reached := make(chan struct{}), make(chan fsys.Op, 1)
	disk.Add(fsys.Fault{Kinds: fsys.OpReadDir, Name: slow.ID.Hex(), Hold: hold, Reached: reached})
	n = startNode(t, c, Deps{FS: disk})
	<-reached
	if _, err := n.Broker().Owner("orders", 0); err != nil {
		t.Errorf("it serves before its partitions: %v", err)
	}
	_, err := n.Broker().Owner("slow", 0)
	wantKind(t, "the slow one", err, tiers.NotLeader)
	consume(t, n, 10)
	close(hold)
	eventually(t, "the slow one opens", func() bool { _, err := n.Broker().Owner("slow", 0); return err == nil })
}

func TestTwoNodesOnOneDataDirectory(t *testing.T) {
	c := testConfig(t)
	startNode(t, c, Deps{})
	_, err := Start(t.Context(), c, Deps{})
	wantKind(t, "second start", err, tiers.Conflict, "another process uses this data directory", "stop it, or give this node")
	if !errors.Is(err, fsys.ErrLocked) {
		t.Errorf("%v is not ErrLocked", err)
	}
}

func TestDataDirectoryOfAnotherCluster(t *testing.T) {
	b := memory.New()
	first := startNode(t, testConfig(t), Deps{Bucket: b})
	stopNode(t, first)
	c := testConfig(t)
	second := startNode(t, c, Deps{Bucket: memory.New()})
	stopNode(t, second)
	_, err := Start(t.Context(), c, Deps{Bucket: b})
	wantKind(t, "start", err, tiers.Conflict, first.Cluster(), second.Cluster(), "strandline rebuild", "another bucket")
}

func TestSegmentsInABucketThatIsNotConfiguredAnyMore(t *testing.T) {
	c := testConfig(t)
	n := startNode(t, c, Deps{Bucket: memory.New()})
	produce(t, n, 0, 100)
	a := adminClient(t, n)
	if err := errors.Join(a.Roll(t.Context(), "orders", 0), a.Copy(t.Context(), "orders", 0, true)); err != nil {
		t.Fatal(err)
	}
	stopNode(t, n)
	_, err := Start(t.Context(), c, Deps{})
	wantKind(t, "no bucket", err, tiers.InvalidConfig, "set bucket to the one that it had")
	fresh := memory.New()
	_, err = Start(t.Context(), c, Deps{Bucket: fresh})
	wantKind(t, "another bucket", err, tiers.InvalidConfig, "set bucket to the one that it had")
	if keys := fresh.Keys(""); len(keys) != 0 {
		t.Errorf("the other bucket was written to: %v", keys)
	}
}

func TestBucketsThatCannotBeUsedAreExplained(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		kind  tiers.Kind
		words string
	}{
		"missing": {remote.ErrNoBucket, tiers.InvalidConfig, "create it first"},
		"denied":  {remote.ErrDenied, tiers.InvalidConfig, "the keys are refused"},
	} {
		b := memory.New()
		b.Add(memory.Fault{Sticky: true, Err: c.err})
		_, err := Start(t.Context(), testConfig(t), Deps{Bucket: b})
		wantKind(t, name, err, c.kind, c.words)
	}
	b := memory.New()
	b.IgnoreConditions()
	_, err := Start(t.Context(), testConfig(t), Deps{Bucket: b})
	wantKind(t, "conditions are ignored", err, tiers.InvalidConfig, "self-test")
}

// failing is a bucket that refuses to store keys with this in them.
func failing(key string) *memory.Bucket {
	b := memory.New()
	b.Add(memory.Fault{Ops: memory.OpPut, Key: key, Sticky: true, Err: remote.ErrDenied})
	return b
}

// TestFailedStartsLeaveNothingOpen fails each step of a start once: the same
// data directory and bucket must be usable right after.
func TestFailedStartsLeaveNothingOpen(t *testing.T) {
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	store, b := model.New(model.Options{}), memory.New()
	good := testConfig(t)
	for name, change := range map[string]func(*Config, *Deps){
		"admin port": func(c *Config, _ *Deps) { c.Admin.Listen = taken.Addr().String() },
		"kafka port": func(c *Config, _ *Deps) { c.Kafka.Listen = taken.Addr().String() },
		"limits":     func(c *Config, _ *Deps) { c.Kafka.MaxRequestBytes = 1 << 40 },
		"defaults":   func(c *Config, _ *Deps) { c.Topics.Defaults = map[string]string{"no.such": "1"} },
		"claim": func(_ *Config, d *Deps) {
			d.Bucket = failing("cluster/claim")
		},
		"snapshot": func(_ *Config, d *Deps) {
			d.Bucket = failing("cluster/snapshot")
		},
	} {
		c, d := good, Deps{Store: store, Bucket: b}
		change(&c, &d)
		if n, err := Start(t.Context(), c, d); err == nil {
			stopNode(t, n)
			t.Errorf("%s: it started", name)
			continue
		}
		n, err := Start(t.Context(), good, Deps{Store: store, Bucket: b})
		if err != nil {
			t.Errorf("%s: the next start failed: %v", name, err)
			continue
		}
		stopNode(t, n)
	}
	goleak.VerifyNone(t, goleak.IgnoreCurrent())
}

func TestNodeLeavesNoGoroutines(t *testing.T) {
	before := goleak.IgnoreCurrent()
	n, err := Start(t.Context(), testConfig(t), Deps{Bucket: memory.New()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.Broker().AutoCreate(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	stopNode(t, n)
	stopNode(t, n) // a second stop does nothing
	goleak.VerifyNone(t, before)
}

// TestPowerLossAfterAnAcknowledgement: what was acknowledged is there after the
// disk lost everything that was not synced.
func TestPowerLossAfterAnAcknowledgement(t *testing.T) {
	c := testConfig(t)
	c.DataDir = "/data"
	disk, b := mem.New(), memory.New()
	n := startNode(t, c, Deps{FS: disk, Bucket: b})
	produce(t, n, 0, 40)
	lost := disk.SyncedCopy()
	stopNode(t, n)
	n = startNode(t, c, Deps{FS: lost, Bucket: b})
	consume(t, n, 40)
}

// TestStopAnswersWhatIsUnderWay: a produce that waits for its sync when the node
// is told to stop is acknowledged, and its record is there afterwards.
func TestStopAnswersWhatIsUnderWay(t *testing.T) {
	c := testConfig(t)
	c.DataDir = "/data"
	disk := fsys.NewFaulty(mem.New())
	b := memory.New()
	n := startNode(t, c, Deps{FS: disk, Bucket: b})
	produce(t, n, 0, 1)
	hold, reached := make(chan struct{}), make(chan fsys.Op, 1)
	disk.Add(fsys.Fault{Kinds: fsys.OpSync | fsys.OpSyncData, Name: ".log", Hold: hold, Reached: reached})
	cl := kafkaClient(t, n, kgo.DefaultProduceTopic("orders"), kgo.ProducerBatchCompression(kgo.NoCompression()))
	acked := make(chan error, 1)
	cl.Produce(t.Context(), &kgo.Record{Key: []byte("1"), Value: make([]byte, 100)}, func(_ *kgo.Record, err error) { acked <- err })
	<-reached
	stopped := make(chan error, 1)
	go func() { stopped <- n.Stop(t.Context()) }()
	eventually(t, "the node is not ready", func() bool { return n.unready() != "" })
	select {
	case err := <-stopped:
		t.Fatalf("it stopped with a produce under way: %v", err)
	default:
	}
	close(hold)
	if err := <-acked; err != nil {
		t.Errorf("the produce under way: %v", err)
	}
	if err := <-stopped; err != nil {
		t.Errorf("stop: %v", err)
	}
	n = startNode(t, c, Deps{FS: disk, Bucket: b})
	consume(t, n, 2)
}

// TestStopEndsWithASnapshotAndTheReleaseOfTheClaim, in this order: who takes the
// claim next finds everything.
func TestStopEndsWithASnapshotAndTheReleaseOfTheClaim(t *testing.T) {
	b := memory.New()
	n := startNode(t, testConfig(t), Deps{Bucket: b})
	produce(t, n, 0, 1)
	if rec, ok, err := control.ReadClaim(t.Context(), b); err != nil || !ok || rec.Released || rec.Cluster != n.Cluster() {
		t.Errorf("while it runs: %+v, %v, %v", rec, ok, err)
	}
	before := len(b.Calls(memory.OpPut, ""))
	stopNode(t, n)
	rec, ok, err := control.ReadClaim(t.Context(), b)
	if err != nil || !ok || !rec.Released || rec.Generation != 1 {
		t.Errorf("afterwards: %+v, %v, %v", rec, ok, err)
	}
	var order []string
	for _, c := range b.Calls(memory.OpPut, "cluster/") {
		order = append(order, c.Key)
	}
	if puts := len(b.Calls(memory.OpPut, "")) - before; puts != 2 {
		t.Errorf("%d objects were written by the stop, want 2", puts)
	}
	if n := len(order); !strings.HasPrefix(order[n-2], "cluster/snapshot") || order[n-1] != "cluster/claim" {
		t.Errorf("the last writes are %v", order[n-2:])
	}
}

// TestStopThatIsCutOffLosesNothing: the second signal. Copies under way are
// abandoned, and the next start has every record.
func TestStopThatIsCutOffLosesNothing(t *testing.T) {
	c := testConfig(t)
	b := memory.New()
	n, err := Start(t.Context(), c, Deps{Bucket: b})
	if err != nil {
		t.Fatal(err)
	}
	hold, reached := make(chan struct{}), make(chan memory.Call, 1)
	b.Add(memory.Fault{Ops: memory.OpPut, Key: ".log", Hold: hold, Reached: reached})
	produce(t, n, 0, 100)
	<-reached
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := n.Stop(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a stop that was cut off says %v", err)
	}
	close(hold)
	b.Clear()
	n = startNode(t, c, Deps{Bucket: b})
	consume(t, n, 100)
	a := adminClient(t, n)
	if err := errors.Join(a.Roll(t.Context(), "orders", 0), a.Copy(t.Context(), "orders", 0, true)); err != nil {
		t.Error(err)
	}
}

// eventually waits for something that happens on its own.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range 30_000 {
		if ok() {
			return
		}
		<-tick.C
	}
	t.Fatalf("never happened: %s", what)
}

func wantKind(t *testing.T, what string, err error, want tiers.Kind, words ...string) {
	t.Helper()
	if err == nil || tiers.KindOf(err) != want {
		t.Errorf("%s: got %v, want %v", what, err, want)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s: %q does not say %q", what, err, w)
		}
	}
}

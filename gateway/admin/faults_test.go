package admin

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/strandline-io/strandline/gateway/broker"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/batch"
	"github.com/strandline-io/strandline/tiers/fsys/mem"
	"github.com/strandline-io/strandline/tiers/partition"
	"github.com/strandline-io/strandline/tiers/plan"
	"github.com/strandline-io/strandline/tiers/remote"
)

// TestFullDiskIsReadOnly: the partition says so and why, the node stays ready.
func TestFullDiskIsReadOnly(t *testing.T) {
	r := newRig(t)
	r.create("orders")
	r.append(2)
	free, total, err := r.disk.Free("/data")
	if err != nil {
		t.Fatal(err)
	}
	disk := r.disk.Under().(*mem.FS)
	disk.SetCapacity(total - free + 10)
	o, err := r.broker.Owner("orders", 0)
	if err != nil {
		t.Fatal(err)
	}
	b, err := batch.Builder{ProducerID: -1}.Build([]batch.Record{{Timestamp: time.Now().UnixMilli(), Value: make([]byte, 100)}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.Append(t.Context(), partition.AppendRequest{Batch: b}); tiers.KindOf(err) != tiers.StorageFailed {
		t.Fatal(err)
	}
	d, err := r.client.Topic(t.Context(), "orders")
	if err != nil || d.Detail[0].State != "read-only" || !strings.Contains(d.Detail[0].Reason, "no space left") || d.Detail[0].LogEnd != 2 {
		t.Errorf("describe: %+v, %v", d.Detail, err)
	}
	h, err := r.client.Ready(t.Context())
	if err != nil || h.Status != "ok" || !strings.Contains(strings.Join(h.Warnings, ""), "the disk is full") {
		t.Errorf("ready: %+v, %v", h, err)
	}
	c, err := r.client.Cluster(t.Context())
	if err != nil || c.Disk.ReadOnly == "" || c.Disk.TotalBytes == 0 || len(c.Offline) != 0 {
		t.Errorf("cluster: %+v, %v", c, err)
	}
	disk.SetCapacity(0)
}

func TestReopenPartition(t *testing.T) {
	r := newRig(t)
	r.create("orders")
	r.append(1)
	if err := r.client.Reopen(t.Context(), "orders", 0, false); err != nil {
		t.Errorf("one that serves: %v", err)
	}
	wantProblem(t, "no partition", r.client.Reopen(t.Context(), "orders", 7, false), http.StatusNotFound, "the topic has 1")
	wantProblem(t, "no topic", r.client.Reopen(t.Context(), "others", 0, true), http.StatusNotFound)
	if a, body := r.call("POST", "/v1/topics/orders/partitions/x/reopen", ""); a.StatusCode != http.StatusBadRequest {
		t.Error(a.StatusCode, body)
	}
	if a, body := r.call("POST", "/v1/topics/orders/partitions/0/reopen", `{"accept": true}`); a.StatusCode != http.StatusBadRequest {
		t.Error(a.StatusCode, body)
	}
}

func TestSweepOverHTTP(t *testing.T) {
	r := newRig(t)
	if _, ok, err := r.client.LastSweep(t.Context()); ok || err != nil {
		t.Errorf("before the first: %t, %v", ok, err)
	}
	r.bucket.SetClock(func() time.Time { return time.Now().Add(-48 * time.Hour) })
	stray := remote.SegmentKey(tiers.RemoteSegment{ID: tiers.SegmentID{1}, Partition: tiers.PartitionID{Topic: tiers.TopicID{9}}, Gen: 1})
	for _, key := range []string{stray, "topics/readme"} {
		if _, err := r.bucket.Put(t.Context(), key, remote.BytesBody([]byte("x")), remote.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	r.bucket.SetClock(time.Now)
	dry, err := r.client.Sweep(t.Context(), true, false)
	if err != nil || !dry.DryRun || dry.Deleted != 0 || !slices.Equal(dry.Orphans.First, []string{stray}) || dry.Foreign.Count != 1 || dry.Unknown.First == nil {
		t.Errorf("dry run: %+v, %v", dry, err)
	}
	swept, err := r.client.Sweep(t.Context(), false, false)
	if err != nil || swept.Deleted != 1 || swept.Error != "" || !slices.Equal(r.bucket.Keys("topics/"), []string{"topics/readme"}) {
		t.Errorf("sweep: %+v, %v", swept, err)
	}
	if last, ok, err := r.client.LastSweep(t.Context()); err != nil || !ok || last.Deleted != 1 {
		t.Errorf("last: %+v, %v", last, err)
	}
	if a, body := r.call("POST", "/v1/sweep?dry_run", ""); a.StatusCode != http.StatusOK || !strings.Contains(body, `"dry_run":true`) {
		t.Errorf("%d %s", a.StatusCode, body)
	}
	for _, bad := range [][2]string{{"?all=perhaps", ""}, {"?dryrun=true", ""}, {"?DRY_RUN=true", ""}, {"", `{"dry_run":true}`}} {
		if a, body := r.call("POST", "/v1/sweep"+bad[0], bad[1]); a.StatusCode != http.StatusBadRequest {
			t.Errorf("%v: %d %s", bad, a.StatusCode, body)
		}
	}
}

// TestWarningsOfFaults: each has words of its own, and none takes clients away.
func TestWarningsOfFaults(t *testing.T) {
	h := broker.Health{
		Bucket: errors.New("denied"), Stalled: 3, StalledBy: &broker.CopiesFail{Partition: "orders-0", CopyTrouble: partition.CopyTrouble{Since: time.Unix(0, 0), Err: errors.New("no route")}},
		DiskDown: errors.New("disk down"), Full: errors.New("disk full"), Sweeping: errors.New("partial"), Offline: []string{"orders-1"},
	}
	got := strings.Join(warnings(h), "\n")
	for _, w := range []string{"the bucket does not answer: denied", "copies of 3 partitions", "orders-0 since 1970-01-01T00:00:00Z: no route", "disk down", "disk full", "not complete: partial", "orders-1"} {
		if !strings.Contains(got, w) {
			t.Errorf("%q is not in\n%s", w, got)
		}
	}
	h.Unclaimed = errors.New("three misses")
	if got := strings.Join(warnings(h), "\n"); !strings.Contains(got, "three misses") || strings.Contains(got, "does not answer") {
		t.Errorf("told twice:\n%s", got)
	}
}

// TestReport110HeldPartitionsAreNamed: those that the broker names, and how many more
// there are.
func TestReport110HeldPartitionsAreNamed(t *testing.T) {
	of := func(name string, base tiers.Offset) broker.Held {
		return broker.Held{Partition: name, Future: plan.Future{Base: base, Next: base + 10, MaxTimestamp: 4070908800000}}
	}
	h := broker.Health{Held: 7, HeldBy: []broker.Held{of("orders-0", 5), of("orders-3", 90)}}
	want := []string{"a record dated in the future keeps what is older than retention.ms in 7 partitions: orders-0 from offset 5 on (dated 2099-01-01T00:00:00Z), " +
		"orders-3 from offset 90 on (dated 2099-01-01T00:00:00Z) and 5 more; retention.bytes still counts, and `strandline topic trim` removes them"}
	if got := warnings(h); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

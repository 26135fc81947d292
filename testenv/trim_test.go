package testenv_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/gateway/admin/client"
	"github.com/strandline-io/strandline/testenv"
	"github.com/strandline-io/strandline/tiers/batch"
	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

// kept are settings under which only what a test does deletes anything, and
// objects go at once.
func kept(more ...string) map[string]string {
	out := map[string]string{"segment.bytes": "2048", "retention.ms": "-1", "file.delete.delay.ms": "0"}
	for i := 0; i < len(more); i += 2 {
		out[more[i]] = more[i+1]
	}
	return out
}

// writeAt produces one record per time to log-0, from an offset on, each
// acknowledged before the next.
func writeAt(t *testing.T, n *testenv.Node, from int, times ...int64) {
	t.Helper()
	ctx, cancel := n.Context()
	defer cancel()
	cl := kafka(t, n, kgo.DefaultProduceTopic("log"))
	for i, ms := range times {
		r := &kgo.Record{Value: fmt.Appendf(nil, "%090d", from+i), Timestamp: time.UnixMilli(ms)}
		if err := cl.ProduceSync(ctx, r).FirstErr(); err != nil {
			t.Fatalf("record %d: %v", from+i, err)
		}
	}
	cl.Close()
}

// steps are count times, one second apart, the last one an hour ago.
func steps(count int) []int64 {
	out := make([]int64, count)
	last := time.Now().Add(-time.Hour).UnixMilli()
	for i := range out {
		out[i] = last - int64(count-1-i)*1000
	}
	return out
}

// rollAndCopy closes the active segment and has everything copied.
func rollAndCopy(t *testing.T, n *testenv.Node) {
	t.Helper()
	ctx, cancel := n.Context()
	defer cancel()
	if err := errors.Join(n.Admin().Roll(ctx, "log", 0), n.Admin().Copy(ctx, "log", 0, true)); err != nil {
		t.Fatal(err)
	}
}

func retain(t *testing.T, n *testenv.Node) {
	t.Helper()
	ctx, cancel := n.Context()
	defer cancel()
	if err := n.Admin().Retain(ctx, "log", 0, true); err != nil {
		t.Fatal(err)
	}
}

func alter(t *testing.T, n *testenv.Node, changes ...string) {
	t.Helper()
	if err := alterBy(t, n, changes...); err != nil {
		t.Fatal(err)
	}
}

// alterBy changes settings over the wire and returns the refusal, if it is one.
func alterBy(t *testing.T, n *testenv.Node, changes ...string) error {
	t.Helper()
	ctx, cancel := n.Context()
	defer cancel()
	var cs []kadm.AlterConfig
	for i := 0; i < len(changes); i += 2 {
		cs = append(cs, kadm.AlterConfig{Op: kadm.SetConfig, Name: changes[i], Value: &changes[i+1]})
	}
	got, err := kadm.NewClient(kafka(t, n)).AlterTopicConfigs(ctx, cs, "log")
	if err != nil {
		t.Fatal(err)
	}
	if got[0].Err != nil {
		return fmt.Errorf("%w: %s", got[0].Err, got[0].ErrMessage)
	}
	return nil
}

// deleteBelow is DeleteRecords over the wire.
func deleteBelow(t *testing.T, n *testenv.Node, offset int64) (low int64, err error) {
	t.Helper()
	ctx, cancel := n.Context()
	defer cancel()
	cl := kafka(t, n)
	defer cl.Close()
	os := kadm.Offsets{}
	os.Add(kadm.Offset{Topic: "log", Partition: 0, At: offset})
	got, err := kadm.NewClient(cl).DeleteRecords(ctx, os)
	if err != nil {
		t.Fatal(err)
	}
	r, ok := got.Lookup("log", 0)
	if !ok {
		t.Fatalf("no answer in %v", got)
	}
	return r.LowWatermark, r.Err
}

func mustDeleteBelow(t *testing.T, n *testenv.Node, offset, want int64) {
	t.Helper()
	if low, err := deleteBelow(t, n, offset); err != nil || low != want {
		t.Fatalf("delete below %d: %d, %v, want %d", offset, low, err, want)
	}
}

// listOffset asks for one timestamp of log-0.
func listOffset(t *testing.T, n *testenv.Node, cl *kgo.Client, ts int64) kmsg.ListOffsetsResponseTopicPartition {
	t.Helper()
	ctx, cancel := n.Context()
	defer cancel()
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = "log"
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Timestamp, rp.CurrentLeaderEpoch = ts, -1
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := cl.Broker(1).RetriableRequest(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	return resp.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
}

// fetchAt asks for records from an offset on and returns the code and the first
// offset that came.
func fetchAt(t *testing.T, n *testenv.Node, cl *kgo.Client, offset int64) (code int16, first int64) {
	t.Helper()
	ctx, cancel := n.Context()
	defer cancel()
	d, err := n.Admin().Topic(ctx, "log")
	if err != nil {
		t.Fatal(err)
	}
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID, req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = -1, 1000, 1, 1<<20, -1
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic, rt.TopicID = "log", topicID(t, d.ID)
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.FetchOffset, rp.PartitionMaxBytes, rp.CurrentLeaderEpoch = offset, 1<<20, -1
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := cl.Broker(1).RetriableRequest(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	p := resp.(*kmsg.FetchResponse).Topics[0].Partitions[0]
	if p.ErrorCode != 0 || len(p.RecordBatches) == 0 {
		return p.ErrorCode, -1
	}
	h, err := batch.Parse(p.RecordBatches)
	if err != nil {
		t.Fatal(err)
	}
	return 0, int64(h.BaseOffset)
}

// agree asks everybody who knows where the log starts, and every look-up, and
// compares them with the times of all records that there ever were.
func agree(t *testing.T, when string, n *testenv.Node, start int64, times []int64) {
	t.Helper()
	ctx, cancel := n.Context()
	defer cancel()
	cl := kafka(t, n)
	defer cl.Close()
	x, err := n.Admin().Explain(ctx, "log", 0)
	if err != nil {
		t.Fatal(err)
	}
	end := int64(len(times))
	p, special := specials(t, n, cl)
	if p.LogStart != start || x.Summary.LogStart != start || p.HighWatermark != end {
		t.Errorf("%s: admin says [%d,%d), segments say %d, want [%d,%d)", when, p.LogStart, p.HighWatermark, x.Summary.LogStart, start, end)
	}
	for ts, want := range map[int64]int64{-2: start, -1: end, -4: p.LocalLogStart, -5: lastTiered(p)} {
		if got := special[ts]; got.ErrorCode != 0 || got.Offset != want {
			t.Errorf("%s: ListOffsets(%d) = %d (%d), want %d", when, ts, got.Offset, got.ErrorCode, want)
		}
	}
	asked := append([]int64{0, 1 << 60}, times...)
	for _, ms := range slices.Clone(times) {
		asked = append(asked, ms+1)
	}
	slices.Sort(asked)
	for _, ts := range slices.Compact(asked) {
		want := int64(-1)
		if i := slices.IndexFunc(times[start:], func(ms int64) bool { return ms >= ts }); i >= 0 {
			want = start + int64(i)
		}
		if got := listOffset(t, n, cl, ts); got.ErrorCode != 0 || got.Offset != want || want >= 0 && got.Timestamp != times[want] {
			t.Errorf("%s: ListOffsets(%d) = %d at %d (%d), want %d", when, ts, got.Offset, got.Timestamp, got.ErrorCode, want)
		}
	}
	for _, below := range []int64{0, start - 1} {
		if below < 0 || below >= start {
			continue
		}
		if code, _ := fetchAt(t, n, cl, below); code != kerr.OffsetOutOfRange.Code {
			t.Errorf("%s: fetch at %d, below the start %d: code %d", when, below, start, code)
		}
	}
	if start < end {
		if code, first := fetchAt(t, n, cl, start); code != 0 || first > start {
			t.Errorf("%s: fetch at the start %d: code %d, batch %d", when, start, code, first)
		}
		consumeFrom(t, n, start, end)
	}
}

// specials asks for the special timestamps, and for the picture that they are of:
// copies and local retention go on meanwhile, so it asks again until nothing moved.
func specials(t *testing.T, n *testenv.Node, cl *kgo.Client) (client.Partition, map[int64]kmsg.ListOffsetsResponseTopicPartition) {
	t.Helper()
	ctx, cancel := n.Context()
	defer cancel()
	detail := func() client.Partition {
		t.Helper()
		d, err := n.Admin().Topic(ctx, "log")
		if err != nil {
			t.Fatal(err)
		}
		return d.Detail[0]
	}
	for p := detail(); ; {
		out := map[int64]kmsg.ListOffsetsResponseTopicPartition{}
		for _, ts := range []int64{-1, -2, -4, -5} {
			out[ts] = listOffset(t, n, cl, ts)
		}
		q := detail()
		if p.LocalLogStart == q.LocalLogStart && p.RemoteEnd == q.RemoteEnd && p.LogStart == q.LogStart {
			return q, out
		}
		p = q
	}
}

// lastTiered is what ListOffsets(-5) is by what the admin interface says.
func lastTiered(p client.Partition) int64 {
	if p.RemoteEnd > p.LogStart {
		return p.RemoteEnd - 1
	}
	return -1
}

// consumeFrom consumes from the start and wants exactly the offsets [start, end).
func consumeFrom(t *testing.T, n *testenv.Node, start, end int64) {
	t.Helper()
	ctx, cancel := n.Context()
	defer cancel()
	cl := kafka(t, n, kgo.ConsumeTopics("log"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer cl.Close()
	for at := start; at < end; {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			t.Fatalf("at %d of [%d,%d): %v", at, start, end, err)
		}
		fs.EachRecord(func(r *kgo.Record) {
			if want := fmt.Sprintf("%090d", at); r.Offset != at || string(r.Value) != want {
				t.Fatalf("offset %d holds %s, want offset %d", r.Offset, r.Value, at)
			}
			at++
		})
	}
}

// TestReport025TrimStays: earliest and every look-up agree after each step of a
// life: a trim inside of a batch's segment in the bucket, the rotation of snapshots,
// restarts, a power cut, a kill, a rebuild, a second trim past what was copied.
func TestReport025TrimStays(t *testing.T) {
	n := testenv.Start(t)
	n.CreateTopic("log", 1, kept("local.retention.bytes", "0"))
	times := steps(100)
	writeAt(t, n, 0, times...)
	rollAndCopy(t, n)
	retain(t, n) // nothing is left on disk but the active segment
	agree(t, "before", n, 0, times)
	mustDeleteBelow(t, n, 50, 50)
	agree(t, "after the trim", n, 50, times)
	mustDeleteBelow(t, n, 30, 50) // lower: nothing happens
	ctx, cancel := n.Context()
	defer cancel()
	if _, err := n.Admin().CreateTopic(ctx, client.NewTopic{Name: "other"}); err != nil {
		t.Fatal(err)
	}
	agree(t, "after a change of topics", n, 50, times)
	for i := range 5 { // snapshots: more than are kept
		n = n.Restart()
		agree(t, fmt.Sprint("after restart ", i), n, 50, times)
	}
	mustDeleteBelow(t, n, 55, 55)
	n = n.Reopen(3)
	agree(t, "after a power cut", n, 55, times)
	mustDeleteBelow(t, n, 60, 60)
	n = n.Kill()
	agree(t, "after a kill", n, 60, times)
	mustDeleteBelow(t, n, 71, 71)
	n = n.Rebuild() // the change is in no snapshot yet
	agree(t, "after a rebuild", n, 71, times)
	n = n.Rebuild()
	agree(t, "after another rebuild", n, 71, times)
	more := append(times, steps(10)...)
	writeAt(t, n, 100, more[100:]...)
	mustDeleteBelow(t, n, 105, 105) // these are on disk only
	agree(t, "after a trim on disk", n, 105, more)
	n = n.Restart()
	agree(t, "and a restart", n, 105, more)
	mustDeleteBelow(t, n, -1, 110)
	agree(t, "after a trim to the end", n, 110, more)
	n = n.Rebuild()
	agree(t, "and a rebuild", n, 110, more)
	retain(t, n)
	noOrphans(t, n)
}

// TestDeleteRecordsOverTheWire refuses what it must, with Kafka's codes.
func TestDeleteRecordsOverTheWire(t *testing.T) {
	n := testenv.Start(t)
	n.CreateTopic("log", 1, kept())
	times := steps(20)
	writeAt(t, n, 0, times...)
	for offset, want := range map[int64]error{21: kerr.OffsetOutOfRange, -2: kerr.OffsetOutOfRange} {
		if low, err := deleteBelow(t, n, offset); !errors.Is(err, want) || low != -1 {
			t.Errorf("below %d: %d, %v", offset, low, err)
		}
	}
	agree(t, "after refusals", n, 0, times)
	n.Bucket.Add(memory.Fault{Ops: memory.OpPut, Key: "cluster/change/", Sticky: true, Err: remote.ErrUnavailable})
	low, err := deleteBelow(t, n, 5)
	if !errors.Is(err, kerr.KafkaStorageError) || low != -1 || !kerr.IsRetriable(err) {
		t.Errorf("while the bucket is away: %d, %v", low, err)
	}
	agree(t, "while the bucket is away", n, 0, times)
	n.Bucket.Clear()
	mustDeleteBelow(t, n, 5, 5)
	agree(t, "once it is back", n, 5, times)
}

// TestReport036TrimByTimeOverTheNode: the announced offset is the one that the log
// starts at afterwards, and what is newer than the time stays.
func TestReport036TrimByTimeOverTheNode(t *testing.T) {
	n := testenv.Start(t)
	n.CreateTopic("log", 1, kept())
	times := []int64{100_000, 50_000, 900_000, 60_000}
	writeAt(t, n, 0, times...)
	rollAndCopy(t, n)
	ctx, cancel := n.Context()
	defer cancel()
	before := client.Instant(500_000)
	plan, err := n.Admin().Trim(ctx, "log", 0, client.Trim{Before: &before, DryRun: true})
	if err != nil || plan.Offset != 2 || plan.Offsets != 2 || plan.Newest != 100_000 || plan.Newer || plan.Done {
		t.Fatalf("%+v, %v", plan, err)
	}
	agree(t, "after a dry run", n, 0, times)
	to := client.Position(4)
	risky, err := n.Admin().Trim(ctx, "log", 0, client.Trim{To: &to, Before: &before, DryRun: true})
	if err != nil || risky.Offset != 4 || risky.Newest != 900_000 || !risky.Newer {
		t.Fatalf("%+v, %v", risky, err)
	}
	_, err = n.Admin().Trim(ctx, "log", 0, client.Trim{To: &to, Before: &before, Confirm: true})
	var p *client.Problem
	if !errors.As(err, &p) || p.Status != http.StatusBadRequest || !strings.Contains(p.Detail, "nothing was deleted") {
		t.Fatalf("records newer than the time went without a word: %v", err)
	}
	agree(t, "after a refusal", n, 0, times)
	done, err := n.Admin().Trim(ctx, "log", 0, client.Trim{Before: &before, Confirm: true})
	if err != nil || !done.Done || done.Offset != plan.Offset || done.LogStart != 0 {
		t.Fatalf("%+v, %v", done, err)
	}
	agree(t, "after the trim", n, plan.Offset, times)
	if done, err = n.Admin().Trim(ctx, "log", 0, client.Trim{To: &to, Before: &before, Confirm: true, AllowNewer: true}); err != nil || done.Offset != 4 {
		t.Fatalf("%+v, %v", done, err)
	}
	agree(t, "after a trim of newer ones", n, 4, times)
}

// TestReport078LookUpsBelowTheStart: objects below the start are in the bucket
// still, since deleting them is refused, and no look-up finds them.
func TestReport078LookUpsBelowTheStart(t *testing.T) {
	n := testenv.Start(t)
	n.CreateTopic("log", 1, kept("local.retention.bytes", "0"))
	// Times that go up and down, so that a hidden record would often be found first.
	times := steps(60)
	for i := range times {
		if i%7 == 3 {
			times[i] += 15_000
		}
	}
	writeAt(t, n, 0, times...)
	rollAndCopy(t, n)
	retain(t, n)
	n.Bucket.Add(memory.Fault{Ops: memory.OpDelete, Key: "topics/", Sticky: true, Err: remote.ErrUnavailable})
	objects := len(n.Bucket.Keys("topics/"))
	for _, to := range []int64{1, 23, 24, 40, 60} {
		mustDeleteBelow(t, n, to, to)
		agree(t, fmt.Sprint("trimmed to ", to), n, to, times)
	}
	if now := len(n.Bucket.Keys("topics/")); now != objects {
		t.Errorf("%d objects of %d are left although deletes are refused", now, objects)
	}
	n.Bucket.Clear()
	retain(t, n)
	noOrphans(t, n)
}

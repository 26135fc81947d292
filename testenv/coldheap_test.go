package testenv_test

import (
	"context"
	"errors"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/testenv"
	"github.com/strandline-io/strandline/tiers/fsys/mem"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

// TestReport135HeapStaysFlat: fetches that mix partitions in the bucket with one
// that has nothing new, and clients that go away in the middle of one, leave no
// memory and no goroutines behind.
func TestReport135HeapStaysFlat(t *testing.T) {
	n := inBucketOnly(t, 4)
	cl := kafka(t, n)
	ids := map[string][16]byte{}
	for _, topic := range []string{"old", "new"} {
		d, err := n.Admin().Topic(t.Context(), topic)
		if err != nil {
			t.Fatal(err)
		}
		ids[topic] = topicID(t, d.ID)
	}
	read := 0
	round := func(fetches, leavers int) {
		t.Helper()
		for i := range fetches {
			resp, err := fetchMixed(ids, int64(i%200)).RequestWith(t.Context(), cl)
			if err != nil {
				t.Fatal(err)
			}
			for _, topic := range resp.Topics {
				for _, p := range topic.Partitions {
					if p.ErrorCode != 0 || topic.TopicID == ids["new"] && len(p.RecordBatches) > 0 {
						t.Fatalf("code %d, %d bytes", p.ErrorCode, len(p.RecordBatches))
					}
					read += len(p.RecordBatches)
				}
			}
		}
		for i := range leavers {
			leave(t, n.KafkaAddr(), fetchMixed(ids, int64(i%200)))
		}
	}
	round(500, 50)
	heap, goroutines := resting(t, 0)
	round(10_000, 1000)
	if read < 10_000*32<<10 {
		t.Errorf("only %d bytes were read", read)
	}
	after, now := resting(t, goroutines)
	if grown := after - heap; grown > 8<<20 {
		t.Errorf("the heap grew by %d KiB, to %d", grown>>10, after>>10)
	}
	if now > goroutines+5 {
		t.Errorf("%d goroutines, there were %d", now, goroutines)
	}
}

// inBucketOnly is a node with a topic "old" that is in the bucket only, and that
// its cache cannot hold, and a topic "new" whose only record is on its disk.
func inBucketOnly(t *testing.T, partitions int32) *testenv.Node {
	t.Helper()
	c := testenv.Config()
	c.CacheBytes, c.CacheMetaBytes = 4<<20, 1<<20
	n, err := testenv.Open(t, c, mem.New(), memory.New())
	if err != nil {
		t.Fatal(err)
	}
	cl := kafka(t, n, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	n.CreateTopic("old", partitions, nil)
	n.CreateTopic("new", 1, nil)
	var records []*kgo.Record
	for i := range 400 {
		for p := range partitions {
			records = append(records, &kgo.Record{Topic: "old", Partition: p, Value: make([]byte, 4000+i)})
		}
	}
	records = append(records, &kgo.Record{Topic: "new", Value: []byte("x")})
	if err := cl.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	for p := range partitions {
		if err := errors.Join(n.Admin().Roll(t.Context(), "old", p), n.Admin().Copy(t.Context(), "old", p, true)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(n.Admin().Roll(t.Context(), "new", 0), n.Admin().Copy(t.Context(), "new", 0, true)); err != nil {
		t.Fatal(err)
	}
	return n.Rebuild()
}

func fetchMixed(ids map[string][16]byte, at int64) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch, req.ReplicaID = 1, 1, 1<<20, -1, -1
	for topic, partitions := range map[string]int32{"old": 4, "new": 1} {
		rt := kmsg.NewFetchRequestTopic()
		rt.Topic, rt.TopicID = topic, ids[topic]
		for p := range partitions {
			rp := kmsg.NewFetchRequestTopicPartition()
			rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes, rp.CurrentLeaderEpoch, rp.LastFetchedEpoch = p, at, 32<<10, -1, -1
			if topic == "new" {
				rp.FetchOffset = 1
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		req.Topics = append(req.Topics, rt)
	}
	return req
}

// leave sends a request and closes the connection at once.
func leave(t *testing.T, addr string, req *kmsg.FetchRequest) {
	t.Helper()
	req.Version = 17
	var d net.Dialer
	nc, err := d.DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if _, err := nc.Write(kmsg.NewRequestFormatter().AppendRequest(nil, req, 1)); err != nil {
		t.Fatal(err)
	}
}

// resting is what is in use once nothing goes on any more: no more goroutines than
// there were, or as few as there will be.
func resting(t *testing.T, want int) (heap int64, goroutines int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for still := 0; still < 25 && ctx.Err() == nil; {
		<-tick.C
		switch g := runtime.NumGoroutine(); {
		case g == goroutines || g <= want:
			still++
			goroutines = g
		default:
			still, goroutines = 0, g
		}
	}
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc), goroutines
}

package testenv_test

import (
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/testenv"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

// TestReport060SlowBucketOverARealOwner: the bucket answers later than the client
// wants to wait. The fetch is answered in time, empty and without an error, and
// the chunk that came meanwhile serves a later one.
func TestReport060SlowBucketOverARealOwner(t *testing.T) {
	n := testenv.Start(t)
	n.CreateTopic("log", 1, settings())
	write(t, n, 0, 60)
	ctx, cancel := n.Context()
	defer cancel()
	if err := errors.Join(n.Admin().Roll(ctx, "log", 0), n.Admin().Copy(ctx, "log", 0, true)); err != nil {
		t.Fatal(err)
	}
	n = n.Rebuild()
	hold := make(chan struct{})
	n.Bucket.Add(memory.Fault{Ops: memory.OpRead, Key: "topics/", Sticky: true, Hold: hold})
	cl := kafka(t, n)
	fetch := func() kmsg.FetchResponseTopicPartition {
		req := kmsg.NewPtrFetchRequest()
		req.ReplicaID, req.MaxWaitMillis, req.MinBytes, req.MaxBytes = -1, 300, 1, 1<<20
		req.SessionEpoch = -1
		part := kmsg.NewFetchRequestTopicPartition()
		part.PartitionMaxBytes, part.CurrentLeaderEpoch = 1<<20, -1
		topic := kmsg.NewFetchRequestTopic()
		topic.Topic, topic.Partitions = "log", append(topic.Partitions, part)
		d, err := n.Admin().Topic(ctx, "log")
		if err != nil {
			t.Fatal(err)
		}
		topic.TopicID = topicID(t, d.ID)
		req.Topics = append(req.Topics, topic)
		resp, err := req.RequestWith(ctx, cl)
		if err != nil {
			t.Fatal(err)
		}
		return resp.Topics[0].Partitions[0]
	}
	began := time.Now()
	for range 3 {
		if p := fetch(); p.ErrorCode != 0 || len(p.RecordBatches) != 0 || p.HighWatermark != 60 {
			t.Fatalf("code %d, %d bytes, high watermark %d", p.ErrorCode, len(p.RecordBatches), p.HighWatermark)
		}
	}
	if took := time.Since(began); took < 800*time.Millisecond {
		t.Errorf("three fetches that wait 300 ms took %v", took)
	}
	close(hold)
	for len(fetch().RecordBatches) == 0 {
		if ctx.Err() != nil {
			t.Fatal("no progress once the bucket answers")
		}
	}
}

func topicID(t *testing.T, s string) [16]byte {
	t.Helper()
	id, err := tiers.ParseTopicID(s)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

package kafka

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/tiers"
)

// below asks for the records of one topic below offsets to be deleted, by
// partition.
func below(topic string, offsets ...int64) kmsg.DeleteRecordsRequestTopic {
	rt := kmsg.NewDeleteRecordsRequestTopic()
	rt.Topic = topic
	for i, o := range offsets {
		rp := kmsg.NewDeleteRecordsRequestTopicPartition()
		rp.Partition, rp.Offset = int32(i), o
		rt.Partitions = append(rt.Partitions, rp)
	}
	return rt
}

func deleteRecords(timeout int32, ts ...kmsg.DeleteRecordsRequestTopic) *kmsg.DeleteRecordsRequest {
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.Version, req.TimeoutMillis, req.Topics = 2, timeout, ts
	return req
}

// TestDeleteRecords: each partition answers for itself.
func TestDeleteRecords(t *testing.T) {
	r := newRig(t, Limits{})
	defer r.stop()
	r.node.create(t, "known", 7)
	for i := range int32(7) {
		r.node.log(t, "known", i).fill(t, 5, 10)
	}
	r.node.log(t, "known", 4).err = tiers.E(tiers.RemoteUnavailable, "remember", "bucket", "away")
	r.node.offline[tiers.TopicPartition{Topic: "known", Partition: 5}] = tiers.E(tiers.StorageFailed, "find", "known", "offline")
	r.node.offline[tiers.TopicPartition{Topic: "known", Partition: 6}] = tiers.E(tiers.NotLeader, "find", "known", "opening")
	c := r.pipe()
	defer c.nc.Close()
	type got struct {
		code int16
		low  int64
	}
	check := func(what string, req *kmsg.DeleteRecordsRequest, want ...got) {
		t.Helper()
		i := 0
		for _, rt := range ask[*kmsg.DeleteRecordsResponse](c, req).Topics {
			for _, rp := range rt.Partitions {
				if g := (got{rp.ErrorCode, rp.LowWatermark}); g != want[i] {
					t.Errorf("%s: %s-%d: %+v, want %+v", what, rt.Topic, rp.Partition, g, want[i])
				}
				i++
			}
		}
		if i != len(want) {
			t.Errorf("%s: %d answers, want %d", what, i, len(want))
		}
	}
	check("the first time", deleteRecords(5000, below("known", 3, -1, 6, -2, 1, 1, 1, 1), below("unknown", 1)),
		got{0, 3}, got{0, 5}, got{1, -1}, got{1, -1}, got{56, -1}, got{56, -1}, got{6, -1}, got{3, -1}, got{3, -1})
	check("lower and to the end", deleteRecords(5000, below("known", 2, 5)), got{0, 3}, got{0, 5})
	if v := r.node.log(t, "known", 2).View(); v.LogStart != 0 {
		t.Errorf("a refusal moved the log start to %d", v.LogStart)
	}
	check("named twice", deleteRecords(5000, below("known", 4), below("known", 5, 5)), got{42, -1}, got{42, -1}, got{0, 5})
	if v := r.node.log(t, "known", 0).View(); v.LogStart != 3 {
		t.Errorf("a partition that is named twice was trimmed to %d", v.LogStart)
	}
	check("nothing", deleteRecords(5000))
}

// TestDeleteRecordsRunsBesideItself: partitions are trimmed at the same time, and
// what does not end in time is REQUEST_TIMED_OUT.
func TestDeleteRecordsRunsBesideItself(t *testing.T) {
	r := newRig(t, Limits{})
	defer r.stop()
	r.node.create(t, "known", 3)
	var under atomic.Int64
	all := make(chan struct{})
	for i := range int32(3) {
		l := r.node.log(t, "known", i)
		l.fill(t, 5, 10)
		l.onDelete = func(ctx context.Context) {
			if under.Add(1) == 3 {
				close(all)
			}
			select {
			case <-all:
			case <-ctx.Done():
				t.Error("the others wait for this one")
			}
		}
	}
	c := r.pipe()
	defer c.nc.Close()
	for _, rp := range ask[*kmsg.DeleteRecordsResponse](c, deleteRecords(30_000, below("known", 1, 2, 3))).Topics[0].Partitions {
		if rp.ErrorCode != 0 || rp.LowWatermark != int64(rp.Partition)+1 {
			t.Errorf("%+v", rp)
		}
	}
	slow := r.node.log(t, "known", 1)
	slow.onDelete = func(ctx context.Context) {
		if at, ok := ctx.Deadline(); !ok || time.Until(at) > 9*time.Second {
			t.Errorf("waits until %v, the client waits for 9 s", at)
		}
	}
	slow.err = tiers.E(tiers.TimedOut, "delete records", "fake", "the outcome is unknown")
	r.node.log(t, "known", 0).onDelete = nil
	ps := ask[*kmsg.DeleteRecordsResponse](c, deleteRecords(9000, below("known", 4, 5))).Topics[0].Partitions
	if ps[0].ErrorCode != 0 || ps[0].LowWatermark != 4 || ps[1].ErrorCode != 7 || ps[1].LowWatermark != -1 {
		t.Errorf("%+v", ps)
	}
}

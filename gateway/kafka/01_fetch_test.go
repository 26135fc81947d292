package kafka

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/local"
	"github.com/strandline-io/strandline/tiers/partition"
)

func part(resp *kmsg.FetchResponse, i int) kmsg.FetchResponseTopicPartition {
	return resp.Topics[i].Partitions[0]
}

// balanced fails the test unless all memory for responses was given back.
func (r *rig) balanced() {
	r.t.Helper()
	n := int64(r.srv.lim.InFlightResponseBytes)
	if !r.srv.responses.TryAcquire(n) {
		r.t.Error("memory for responses is still taken")
		return
	}
	r.srv.responses.Release(n)
	if n = int64(r.srv.lim.InFlightRequestBytes); !r.srv.requests.TryAcquire(n) {
		r.t.Error("memory for requests is still taken")
		return
	}
	r.srv.requests.Release(n)
}

// TestReport096FetchAroundTheEnds: below the start and above the end is
// OFFSET_OUT_OF_RANGE at once, with both ends; at the end is no error, and waits.
func TestReport096FetchAroundTheEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Limits{})
		defer r.stop()
		topic := r.node.create(t, "known", 1)
		log := r.node.log(t, "known", 0)
		log.fill(t, 10, 10)
		log.change(func(v *partition.View) { v.LogStart, v.LocalLogStart = 4, 4 })
		c := r.pipe()
		defer c.nc.Close()
		for v := int16(4); v <= 17; v++ {
			for offset, code := range map[tiers.Offset]int16{3: 1, 11: 1, 10: 0, 4: 0, -1: 1, math.MaxInt64: 1} {
				before := time.Now()
				p := part(ask[*kmsg.FetchResponse](c, fetchOf(v, wanted{name: "known", id: topic.ID, offset: offset})), 0)
				waited := time.Since(before)
				if p.ErrorCode != code || p.HighWatermark != 10 || v >= 5 && p.LogStartOffset != 4 || p.LastStableOffset != 10 {
					t.Errorf("v%d at %d: %+v", v, offset, p)
				}
				if want := offset == 10; (waited == 500*time.Millisecond) != want || (waited == 0) == want {
					t.Errorf("v%d at %d: waited %v", v, offset, waited)
				}
				if (len(p.RecordBatches) > 0) != (offset == 4) {
					t.Errorf("v%d at %d: %d bytes", v, offset, len(p.RecordBatches))
				}
			}
		}
		c.nc.Close()
		synctest.Wait()
		r.balanced()
	})
}

// TestFetchLongPoll: a fetch at the end sleeps until a record comes, reads
// nothing meanwhile, and answers at once.
func TestFetchLongPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Limits{})
		defer r.stop()
		r.node.create(t, "known", 1)
		log := r.node.log(t, "known", 0)
		c := r.pipe()
		defer c.nc.Close()
		req := fetchOf(12, wanted{name: "known"})
		req.MaxWaitMillis = 20_000
		corr := c.send(req)
		synctest.Wait()
		if log.subscribed() != 1 {
			t.Fatal("the fetch does not wait for the partition")
		}
		reads := log.reads
		time.Sleep(15 * time.Second)
		if log.reads != reads || reads > 1 {
			t.Errorf("%d reads, then %d: a waiting fetch must not poll", reads, log.reads)
		}
		before := time.Now()
		log.fill(t, 1, 10)
		p := part(c.receive(req, corr).(*kmsg.FetchResponse), 0)
		if len(p.RecordBatches) == 0 || time.Since(before) != 0 {
			t.Errorf("%d bytes after %v", len(p.RecordBatches), time.Since(before))
		}
		synctest.Wait()
		if log.subscribed() != 0 {
			t.Error("the fetch is over and still subscribed")
		}
	})
}

// TestFetchMissesNoNews: a record that comes after the first look and before the
// subscription is seen.
func TestFetchMissesNoNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Limits{})
		defer r.stop()
		r.node.create(t, "known", 1)
		log := r.node.log(t, "known", 0)
		log.onWait = func() { log.fill(t, 1, 10) }
		c := r.pipe()
		defer c.nc.Close()
		before := time.Now()
		p := part(ask[*kmsg.FetchResponse](c, fetchOf(12, wanted{name: "known"})), 0)
		if len(p.RecordBatches) == 0 || time.Since(before) != 0 {
			t.Errorf("%d bytes after %v", len(p.RecordBatches), time.Since(before))
		}
	})
}

// TestFetchMinBytes: what was read is kept while more is waited for, and every
// batch is read once.
func TestFetchMinBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Limits{})
		defer r.stop()
		r.node.create(t, "known", 1)
		log := r.node.log(t, "known", 0)
		c := r.pipe()
		defer c.nc.Close()
		size := len(makeBatch(t, 1, 100))
		req := fetchOf(12, wanted{name: "known"})
		req.MaxWaitMillis, req.MinBytes = 20_000, int32(5*size)
		corr := c.send(req)
		for range 5 {
			synctest.Wait()
			time.Sleep(time.Second)
			log.fill(t, 1, 100)
		}
		p := part(c.receive(req, corr).(*kmsg.FetchResponse), 0)
		if len(p.RecordBatches) != 5*size || p.HighWatermark != 5 {
			t.Errorf("%d bytes up to %d, want %d up to 5", len(p.RecordBatches), p.HighWatermark, 5*size)
		}
		if next := nextAfter(p.RecordBatches, 0); next != 5 {
			t.Errorf("records end at %d", next)
		}
		if log.reads != 6 {
			t.Errorf("%d reads, want 6: one that found nothing and one per batch", log.reads)
		}
	})
}

// TestFetchMinBytesTimesOut with less than it asked for.
func TestFetchMinBytesTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Limits{})
		defer r.stop()
		r.node.create(t, "known", 1)
		log := r.node.log(t, "known", 0)
		log.fill(t, 1, 100)
		c := r.pipe()
		defer c.nc.Close()
		req := fetchOf(12, wanted{name: "known"})
		req.MinBytes = 1 << 19
		before := time.Now()
		p := part(ask[*kmsg.FetchResponse](c, req), 0)
		if len(p.RecordBatches) == 0 || time.Since(before) != 500*time.Millisecond {
			t.Errorf("%d bytes after %v", len(p.RecordBatches), time.Since(before))
		}
	})
}

// TestFetchDoesNotWaitBehindTheEnd: who has not come to the end gets what one
// read gave, even if that is less than min_bytes.
func TestFetchDoesNotWaitBehindTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Limits{})
		defer r.stop()
		r.node.create(t, "known", 1)
		log := r.node.log(t, "known", 0)
		log.fill(t, 5, 1000)
		c := r.pipe()
		defer c.nc.Close()
		for range 2 {
			req := fetchOf(12, wanted{name: "known", maxBytes: 3000})
			req.MaxWaitMillis, req.MinBytes = 20_000, 1<<19
			before := time.Now()
			p := part(ask[*kmsg.FetchResponse](c, req), 0)
			if nextAfter(p.RecordBatches, 0) != 2 || time.Since(before) != 0 {
				t.Errorf("records to %d after %v", nextAfter(p.RecordBatches, 0), time.Since(before))
			}
			log.change(func(v *partition.View) { v.LocalLogStart = 4 }) // the second time from the bucket
		}
	})
}

// TestFetchHistoryChangesWhileWaiting: what was read of the old one is not sent.
func TestFetchHistoryChangesWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Limits{})
		defer r.stop()
		r.node.create(t, "known", 1)
		log := r.node.log(t, "known", 0)
		log.fill(t, 2, 100)
		c := r.pipe()
		defer c.nc.Close()
		req := fetchOf(12, wanted{name: "known"})
		req.MaxWaitMillis, req.MinBytes = 20_000, 1<<19
		corr := c.send(req)
		synctest.Wait()
		log.mu.Lock()
		log.batches = log.batches[:0]
		log.mu.Unlock()
		log.change(func(v *partition.View) { v.History, v.LogEnd, v.HighWatermark, v.LastStable = 2, 0, 0, 0 })
		synctest.Wait()
		p := part(c.receive(req, corr).(*kmsg.FetchResponse), 0)
		if len(p.RecordBatches) != 0 || p.HighWatermark != 0 || p.ErrorCode != 0 {
			t.Errorf("%d bytes, high watermark %d, code %d", len(p.RecordBatches), p.HighWatermark, p.ErrorCode)
		}
	})
}

// TestReport089FirstBatchLargerThanTheLimit: whole if it is the first of the
// answer, absent and never cut if it is not (KIP-74).
func TestReport089FirstBatchLargerThanTheLimit(t *testing.T) {
	for _, cold := range []bool{false, true} {
		t.Run(fmt.Sprint("cold=", cold), func(t *testing.T) {
			r := newRig(t, Limits{})
			defer r.stop()
			r.node.create(t, "known", 2)
			size := len(makeBatch(t, 1, 100_000))
			for i := range int32(2) {
				log := r.node.log(t, "known", i)
				log.fill(t, 2, 100_000)
				if cold {
					log.change(func(v *partition.View) { v.LocalLogStart = 2 })
				}
			}
			c := r.pipe()
			defer c.nc.Close()
			req := fetchOf(12, wanted{name: "known", maxBytes: 1000}, wanted{name: "known", index: 1, maxBytes: 1000})
			resp := ask[*kmsg.FetchResponse](c, req)
			ps := resp.Topics[0].Partitions
			if len(ps[0].RecordBatches) != size || len(ps[1].RecordBatches) != 0 {
				t.Errorf("%d and %d bytes, want %d and 0", len(ps[0].RecordBatches), len(ps[1].RecordBatches), size)
			}
			if ps[1].ErrorCode != 0 || ps[1].HighWatermark != 2 {
				t.Errorf("second partition: %+v", ps[1])
			}
			req = fetchOf(12, wanted{name: "known", index: 1, maxBytes: 1000})
			if p := part(ask[*kmsg.FetchResponse](c, req), 0); len(p.RecordBatches) != size {
				t.Errorf("alone: %d bytes, want %d", len(p.RecordBatches), size)
			}
		})
	}
}

// TestFetchMaxBytesIsOverAllPartitions, and the order is that of the request.
func TestFetchMaxBytesIsOverAllPartitions(t *testing.T) {
	r := newRig(t, Limits{})
	defer r.stop()
	r.node.create(t, "a", 1)
	r.node.create(t, "b", 3)
	size := len(makeBatch(t, 1, 1000))
	for _, l := range []*fakeLog{r.node.log(t, "b", 2), r.node.log(t, "a", 0), r.node.log(t, "b", 0)} {
		l.fill(t, 4, 1000)
	}
	c := r.pipe()
	defer c.nc.Close()
	req := fetchOf(12, wanted{name: "b", index: 2}, wanted{name: "a"}, wanted{name: "b"})
	req.MaxBytes = int32(6*size + 10)
	resp := ask[*kmsg.FetchResponse](c, req)
	var got []string
	for _, rt := range resp.Topics {
		for _, p := range rt.Partitions {
			got = append(got, fmt.Sprintf("%s-%d:%d", rt.Topic, p.Partition, len(p.RecordBatches)/size))
		}
	}
	if want := "[b-2:4 a-0:2 b-0:0]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

// TestRow18FetchWithoutBounds: absurd limits are clamped.
func TestRow18FetchWithoutBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Limits{FetchMaxBytes: 5000})
		defer r.stop()
		r.node.create(t, "known", 1)
		log := r.node.log(t, "known", 0)
		log.fill(t, 3, 1000)
		c := r.pipe()
		defer c.nc.Close()
		req := fetchOf(12, wanted{name: "known", maxBytes: math.MaxInt32})
		req.MinBytes, req.MaxBytes, req.MaxWaitMillis = math.MaxInt32, math.MaxInt32, math.MaxInt32
		before := time.Now()
		p := part(ask[*kmsg.FetchResponse](c, req), 0)
		if len(p.RecordBatches) == 0 || time.Since(before) > 30*time.Second {
			t.Errorf("%d bytes after %v", len(p.RecordBatches), time.Since(before))
		}
		req.Topics[0].Partitions[0].FetchOffset = 3
		log.fill(t, 1, 6000)
		before = time.Now()
		if p = part(ask[*kmsg.FetchResponse](c, req), 0); len(p.RecordBatches) < 6000 || time.Since(before) != 0 {
			t.Errorf("%d bytes after %v: an answer that is full does not wait for more", len(p.RecordBatches), time.Since(before))
		}
		req.Topics[0].Partitions[0].FetchOffset = 4
		log.fill(t, 9, 1000)
		req.MinBytes, req.MaxWaitMillis = 1, -7
		if p = part(ask[*kmsg.FetchResponse](c, req), 0); len(p.RecordBatches) > 5000 || len(p.RecordBatches) < 4000 {
			t.Errorf("%d bytes, want almost 5000", len(p.RecordBatches))
		}
		req.MaxBytes, req.MinBytes = -1, -1
		if p = part(ask[*kmsg.FetchResponse](c, req), 0); nextAfter(p.RecordBatches, 0) != 5 {
			t.Errorf("records to %d, want just the first batch", nextAfter(p.RecordBatches, 0))
		}
	})
}

// TestFetchEndsWithItsPeer: nobody waits for a peer that hung up.
func TestFetchEndsWithItsPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Limits{})
		defer r.stop()
		r.node.create(t, "known", 1)
		log := r.node.log(t, "known", 0)
		c := r.pipe()
		req := fetchOf(12, wanted{name: "known"})
		req.MaxWaitMillis = 20_000
		c.send(req)
		synctest.Wait()
		if log.subscribed() != 1 {
			t.Fatal("not waiting")
		}
		before := time.Now()
		c.nc.Close()
		synctest.Wait()
		if log.subscribed() != 0 || time.Since(before) != 0 {
			t.Error("still waiting")
		}
	})
}

// TestFetchIsAnsweredWhenTheServerStops, at once and with what there is.
func TestFetchIsAnsweredWhenTheServerStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Limits{})
		r.node.create(t, "known", 1)
		r.node.log(t, "known", 0).fill(t, 1, 10)
		c := r.pipe()
		defer c.nc.Close()
		req := fetchOf(12, wanted{name: "known"})
		req.MaxWaitMillis, req.MinBytes = 20_000, 100_000
		corr := c.send(req)
		synctest.Wait()
		before := time.Now()
		go r.stop()
		p := part(c.receive(req, corr).(*kmsg.FetchResponse), 0)
		if len(p.RecordBatches) == 0 || time.Since(before) != 0 {
			t.Errorf("%d bytes after %v", len(p.RecordBatches), time.Since(before))
		}
		c.closed()
	})
}

// TestFetchRefusesReplicas on a listener for clients, wherever the id is.
func TestFetchRefusesReplicas(t *testing.T) {
	r := newRig(t, Limits{})
	defer r.stop()
	topic := r.node.create(t, "known", 1)
	log := r.node.log(t, "known", 0)
	log.fill(t, 1, 10)
	c := r.pipe()
	defer c.nc.Close()
	for v := int16(4); v <= 17; v++ {
		req := fetchOf(v, wanted{name: "known", id: topic.ID})
		if v < 15 {
			req.ReplicaID = 2
		} else {
			req.ReplicaState.ID = 2
		}
		resp := ask[*kmsg.FetchResponse](c, req)
		code := resp.ErrorCode
		if v < 7 {
			code = part(resp, 0).ErrorCode
		}
		if code != 31 || log.reads != 0 {
			t.Errorf("v%d: code %d, %d reads", v, code, log.reads)
		}
	}
}

// TestFetchReadCommitted stops at the last stable offset and lists the aborted
// transactions.
func TestFetchReadCommitted(t *testing.T) {
	r := newRig(t, Limits{})
	defer r.stop()
	topic := r.node.create(t, "known", 1)
	log := r.node.log(t, "known", 0)
	log.fill(t, 5, 10)
	log.aborted = []local.AbortedTxn{{ProducerID: 7, First: 1, Last: 2}, {ProducerID: 9, First: 2, Last: 2}}
	log.change(func(v *partition.View) { v.LastStable = 3 })
	c := r.pipe()
	defer c.nc.Close()
	for v := int16(4); v <= 17; v++ {
		req := fetchOf(v, wanted{name: "known", id: topic.ID})
		req.IsolationLevel = 1
		p := part(ask[*kmsg.FetchResponse](c, req), 0)
		if nextAfter(p.RecordBatches, 0) != 3 || p.LastStableOffset != 3 || p.HighWatermark != 5 {
			t.Errorf("v%d: records to %d, stable %d, high %d", v, nextAfter(p.RecordBatches, 0), p.LastStableOffset, p.HighWatermark)
		}
		if len(p.AbortedTransactions) != 2 || p.AbortedTransactions[0].ProducerID != 7 || p.AbortedTransactions[1].FirstOffset != 2 {
			t.Errorf("v%d: aborted %+v", v, p.AbortedTransactions)
		}
	}
}

// TestFetchLeaderEpochs: an old one is fenced and told who leads, a coming one is
// unknown, a fetched one that is not ours diverges.
func TestFetchLeaderEpochs(t *testing.T) {
	r := newRig(t, Limits{})
	defer r.stop()
	topic := r.node.create(t, "known", 1)
	r.node.topics["known"].Partitions[0].Epoch = 5
	log := r.node.log(t, "known", 0)
	log.fill(t, 9, 10)
	log.change(func(v *partition.View) {
		v.Epoch, v.Lineage = 5, tiers.Lineage{{Epoch: 2, Start: 0}, {Epoch: 5, Start: 6}}
	})
	c := r.pipe()
	defer c.nc.Close()
	for v := int16(9); v <= 17; v++ {
		w := wanted{name: "known", id: topic.ID, current: 4}
		p := part(ask[*kmsg.FetchResponse](c, fetchOf(v, w)), 0)
		if p.ErrorCode != 74 {
			t.Errorf("v%d: code %d, want FENCED_LEADER_EPOCH", v, p.ErrorCode)
		}
		if v >= 12 && (p.CurrentLeader.LeaderID != 1 || p.CurrentLeader.LeaderEpoch != 5) {
			t.Errorf("v%d: leader %+v", v, p.CurrentLeader)
		}
		w.current = 6
		resp := ask[*kmsg.FetchResponse](c, fetchOf(v, w))
		if code := part(resp, 0).ErrorCode; code != 75 || len(resp.Brokers) != 0 {
			t.Errorf("v%d: code %d, want UNKNOWN_LEADER_EPOCH", v, code)
		}
	}
	for v := int16(12); v <= 17; v++ {
		w := wanted{name: "known", id: topic.ID, current: 5, fetched: 3, offset: 8}
		p := part(ask[*kmsg.FetchResponse](c, fetchOf(v, w)), 0)
		if p.ErrorCode != 0 || p.DivergingEpoch.Epoch != 2 || p.DivergingEpoch.EndOffset != 6 || len(p.RecordBatches) != 0 {
			t.Errorf("v%d: %+v", v, p)
		}
	}
	r.node.offline[tiers.TopicPartition{Topic: "known"}] = tiers.E(tiers.NotLeader, "owner", "known-0", "it is opening")
	for v := int16(4); v <= 17; v++ {
		resp := ask[*kmsg.FetchResponse](c, fetchOf(v, wanted{name: "known", id: topic.ID}))
		if part(resp, 0).ErrorCode != 6 || (len(resp.Brokers) == 1 && resp.Brokers[0].Host == "localhost") != (v >= 16) {
			t.Errorf("v%d to a partition that is not led: %+v", v, resp)
		}
	}
}

// TestReport067TopicIDs: an id that no topic has is code 100 for its partition.
func TestReport067TopicIDs(t *testing.T) {
	r := newRig(t, Limits{})
	defer r.stop()
	topic := r.node.create(t, "known", 1)
	r.node.log(t, "known", 0).fill(t, 1, 10)
	c := r.pipe()
	defer c.nc.Close()
	for v := int16(13); v <= 17; v++ {
		resp := ask[*kmsg.FetchResponse](c, fetchOf(v, wanted{id: tiers.TopicID{1, 2, 3}}, wanted{id: topic.ID}, wanted{}))
		if resp.ErrorCode != 0 || part(resp, 0).ErrorCode != 100 || part(resp, 1).ErrorCode != 0 || part(resp, 2).ErrorCode != 100 {
			t.Errorf("v%d: %d, %d, %d", v, part(resp, 0).ErrorCode, part(resp, 1).ErrorCode, part(resp, 2).ErrorCode)
		}
		if len(part(resp, 1).RecordBatches) == 0 {
			t.Errorf("v%d: no records from the topic that exists", v)
		}
	}
}

// TestFetchErrorsOfTheLog are the partition's, and the others are served.
func TestFetchErrorsOfTheLog(t *testing.T) {
	r := newRig(t, Limits{})
	defer r.stop()
	r.node.create(t, "known", 2)
	for i := range int32(2) {
		r.node.log(t, "known", i).fill(t, 1, 10)
	}
	log := r.node.log(t, "known", 0)
	c := r.pipe()
	defer c.nc.Close()
	for kind, code := range map[tiers.Kind]int16{
		tiers.StorageFailed: 56, tiers.RemoteUnavailable: 56, tiers.CorruptMessage: 2, tiers.NotLeader: 6, tiers.Other: -1,
	} {
		log.err = tiers.E(kind, "read", "known-0", "the reason")
		ps := ask[*kmsg.FetchResponse](c, fetchOf(12, wanted{name: "known"}, wanted{name: "known", index: 1})).Topics[0].Partitions
		if ps[0].ErrorCode != code || len(ps[0].RecordBatches) != 0 || len(ps[1].RecordBatches) == 0 {
			t.Errorf("%v: code %d, %d and %d bytes", kind, ps[0].ErrorCode, len(ps[0].RecordBatches), len(ps[1].RecordBatches))
		}
	}
}

// TestFetchMemoryIsBounded: many fetches of a lot, at once, do not take more than
// the budget, and all get on.
func TestFetchMemoryIsBounded(t *testing.T) {
	r := newRig(t, Limits{InFlightResponseBytes: 64 << 10})
	defer r.stop()
	r.node.create(t, "known", 4)
	for i := range int32(4) {
		r.node.log(t, "known", i).fill(t, 20, 8<<10)
	}
	done := make(chan int)
	for range 16 {
		c := r.tcp()
		go func() {
			defer c.nc.Close()
			total := 0
			for range 20 {
				req := fetchOf(12, wanted{name: "known"}, wanted{name: "known", index: 1}, wanted{name: "known", index: 2}, wanted{name: "known", index: 3})
				req.MaxWaitMillis = 5000
				for _, p := range ask[*kmsg.FetchResponse](c, req).Topics[0].Partitions {
					total += len(p.RecordBatches)
					if p.HighWatermark != 20 || p.ErrorCode != 0 {
						t.Errorf("high watermark %d, code %d", p.HighWatermark, p.ErrorCode)
					}
				}
			}
			done <- total
		}()
	}
	for range 16 {
		if total := <-done; total == 0 {
			t.Error("a client got nothing")
		}
	}
	r.stop()
	r.balanced()
}

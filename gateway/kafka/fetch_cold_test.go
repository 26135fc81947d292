package kafka

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/tiers/partition"
)

// TestReport060SlowBucket: a fetch does not wait for the bucket longer than the
// client wants, the read goes on, and the next fetch has it.
func TestReport060SlowBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Limits{})
		defer r.stop()
		r.node.create(t, "known", 1)
		log := r.node.log(t, "known", 0)
		log.fill(t, 3, 10)
		bucket := make(chan struct{})
		log.bucket = bucket
		log.change(func(v *partition.View) { v.LocalLogStart = 2 })
		c := r.pipe()
		defer c.nc.Close()
		for i := range 3 {
			before := time.Now()
			p := part(ask[*kmsg.FetchResponse](c, fetchOf(12, wanted{name: "known"})), 0)
			if waited := time.Since(before); waited < 500*time.Millisecond || waited > 600*time.Millisecond {
				t.Errorf("fetch %d took %v", i, waited)
			}
			if p.ErrorCode != 0 || len(p.RecordBatches) != 0 || p.HighWatermark != 3 {
				t.Errorf("fetch %d: %+v", i, p)
			}
		}
		go func() { time.Sleep(100 * time.Millisecond); close(bucket) }()
		before := time.Now()
		p := part(ask[*kmsg.FetchResponse](c, fetchOf(12, wanted{name: "known"})), 0)
		if len(p.RecordBatches) == 0 || time.Since(before) != 100*time.Millisecond {
			t.Errorf("%d bytes after %v", len(p.RecordBatches), time.Since(before))
		}
		req := fetchOf(12, wanted{name: "known"})
		req.MaxWaitMillis = 0 // what is in the cache is served even then
		if p = part(ask[*kmsg.FetchResponse](c, req), 0); len(p.RecordBatches) == 0 {
			t.Error("no records without waiting")
		}
		if log.gets != 5 {
			t.Errorf("%d reads from the bucket, want one per fetch", log.gets)
		}
		c.nc.Close()
		synctest.Wait()
		r.balanced()
	})
}

// TestFetchSlowBucketHoldsUpNobodyElse: a partition on disk is answered at once.
func TestFetchSlowBucketHoldsUpNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Limits{})
		defer r.stop()
		r.node.create(t, "known", 2)
		for i := range int32(2) {
			r.node.log(t, "known", i).fill(t, 3, 10)
		}
		log := r.node.log(t, "known", 0)
		log.bucket = make(chan struct{})
		log.change(func(v *partition.View) { v.LocalLogStart = 2 })
		c := r.pipe()
		defer c.nc.Close()
		req := fetchOf(12, wanted{name: "known"}, wanted{name: "known", index: 1})
		req.MaxWaitMillis = 20_000
		before := time.Now()
		ps := ask[*kmsg.FetchResponse](c, req).Topics[0].Partitions
		if waited := time.Since(before); waited != coldGrace {
			t.Errorf("took %v, want %v", waited, coldGrace)
		}
		if len(ps[0].RecordBatches) != 0 || len(ps[1].RecordBatches) == 0 {
			t.Errorf("%d and %d bytes", len(ps[0].RecordBatches), len(ps[1].RecordBatches))
		}
		close(log.bucket)
		ps = ask[*kmsg.FetchResponse](c, req).Topics[0].Partitions
		if len(ps[0].RecordBatches) == 0 || len(ps[1].RecordBatches) == 0 {
			t.Errorf("then: %d and %d bytes", len(ps[0].RecordBatches), len(ps[1].RecordBatches))
		}
		c.nc.Close()
		synctest.Wait()
		r.balanced()
	})
}

// TestFetchAbandonedReadGivesItsMemoryBack, when the bucket answers at last and
// nobody waits any more.
func TestFetchAbandonedReadGivesItsMemoryBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Limits{})
		defer r.stop()
		r.node.create(t, "known", 1)
		log := r.node.log(t, "known", 0)
		log.fill(t, 3, 10_000)
		log.bucket, log.deaf = make(chan struct{}), true
		log.change(func(v *partition.View) { v.LocalLogStart = 2 })
		c := r.pipe()
		before := time.Now()
		p := part(ask[*kmsg.FetchResponse](c, fetchOf(12, wanted{name: "known"})), 0)
		if p.ErrorCode != 0 || len(p.RecordBatches) != 0 || time.Since(before) != 500*time.Millisecond+coldGrace {
			t.Errorf("after %v: %+v", time.Since(before), p)
		}
		c.nc.Close()
		close(log.bucket)
		synctest.Wait()
		r.balanced()
	})
}

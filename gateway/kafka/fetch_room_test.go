package kafka

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/partition"
)

// mixed makes partitions with n batches each, those in cold in the bucket.
func mixed(t *testing.T, r *rig, partitions, n, size int, cold func(i int) bool) (parts []wanted, batch int) {
	t.Helper()
	r.node.create(t, "known", int32(partitions))
	for i := range partitions {
		log := r.node.log(t, "known", int32(i))
		log.fill(t, n, size)
		batch = len(log.batches[0])
		if cold(i) {
			log.change(func(v *partition.View) { v.LocalLogStart = tiers.Offset(n) })
		}
		parts = append(parts, wanted{name: "known", index: int32(i)})
	}
	return parts, batch
}

// TestColdMaxBytesIsOverAllPartitions: several partitions are read from the bucket
// at the same time, and together they give what was asked for (peers A6: one that
// counted by partition returned 150 MB for 30).
func TestColdMaxBytesIsOverAllPartitions(t *testing.T) {
	for name, cold := range map[string]func(int) bool{
		"all":   func(int) bool { return true },
		"mixed": func(i int) bool { return i%2 == 0 },
	} {
		for _, batches := range []int{1, 3, 7, 25} {
			t.Run(fmt.Sprint(name, batches), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t, Limits{})
					defer r.stop()
					parts, size := mixed(t, r, 3*maxColds, 10, 1000, cold)
					c := r.pipe()
					defer c.nc.Close()
					req := fetchOf(12, parts...)
					req.MaxBytes, req.MinBytes = int32(batches*size+10), int32(batches*size)
					got := 0
					for _, p := range ask[*kmsg.FetchResponse](c, req).Topics[0].Partitions {
						got += len(p.RecordBatches)
					}
					if got != batches*size {
						t.Errorf("%d bytes for %d", got, req.MaxBytes)
					}
					c.nc.Close()
					synctest.Wait()
					r.balanced()
				})
			})
		}
	}
}

// TestReport089OneLargeBatchPerFetch: a batch larger than the limit comes whole, as
// the only one of the answer, whichever tier it is in. The others come later.
func TestReport089OneLargeBatchPerFetch(t *testing.T) {
	for name, cold := range map[string]func(int) bool{
		"all in the bucket": func(int) bool { return true },
		"first on disk":     func(i int) bool { return i > 0 },
		"last on disk":      func(i int) bool { return i < 3 },
		"all on disk":       func(int) bool { return false },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, Limits{})
				defer r.stop()
				parts, size := mixed(t, r, 4, 3, 5000, cold)
				c := r.pipe()
				defer c.nc.Close()
				at := make([]int64, len(parts))
				fetches := 0
				for ; at[0]+at[1]+at[2]+at[3] < 12; fetches++ {
					if fetches > 40 {
						t.Fatalf("no progress beyond %v", at)
					}
					for i := range parts {
						parts[i].offset = tiers.Offset(at[i])
					}
					req := fetchOf(12, parts...)
					req.MaxBytes, req.MaxWaitMillis = 1000, 0
					for i := range req.Topics[0].Partitions {
						req.Topics[0].Partitions[i].PartitionMaxBytes = 1000
					}
					whole := 0
					for i, p := range ask[*kmsg.FetchResponse](c, req).Topics[0].Partitions {
						switch len(p.RecordBatches) {
						case 0:
						case size:
							whole++
							at[i]++
						default:
							t.Fatalf("%d bytes of a batch of %d", len(p.RecordBatches), size)
						}
					}
					if whole > 1 {
						t.Fatalf("%d batches that are larger than the limit", whole)
					}
				}
				if fetches > 20 {
					t.Errorf("%d fetches for 12 batches", fetches)
				}
				c.nc.Close()
				synctest.Wait()
				r.balanced()
			})
		})
	}
}

// TestColdReadsReserveWhatTheyMayGive: reads from the bucket that run together take
// no more memory than the answer may have.
func TestColdReadsReserveWhatTheyMayGive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Limits{})
		defer r.stop()
		parts, size := mixed(t, r, maxColds, 10, 1000, func(int) bool { return true })
		for i := range parts {
			r.node.log(t, "known", int32(i)).bucket = make(chan struct{})
		}
		c := r.pipe()
		defer c.nc.Close()
		req := fetchOf(12, parts...)
		req.MaxBytes = int32(3 * size)
		answered := make(chan *kmsg.FetchResponse)
		go func() { answered <- ask[*kmsg.FetchResponse](c, req) }()
		synctest.Wait()
		rest := int64(r.srv.lim.InFlightResponseBytes) - int64(req.MaxBytes)
		if !r.srv.responses.TryAcquire(rest) {
			t.Error("more is reserved than the answer may have")
		} else {
			r.srv.responses.Release(rest)
		}
		<-answered
		c.nc.Close()
		synctest.Wait()
		r.balanced()
	})
}

// TestSlowBucketKeepsNoRoomFromOthers: what a partition in a slow bucket was
// promised and does not use goes to those that wait behind it.
func TestSlowBucketKeepsNoRoomFromOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Limits{})
		defer r.stop()
		parts, size := mixed(t, r, 2, 2, 1000, func(int) bool { return true })
		slow := r.node.log(t, "known", 0)
		slow.bucket = make(chan struct{})
		c := r.pipe()
		defer c.nc.Close()
		req := fetchOf(12, parts...)
		req.MaxBytes, req.MinBytes, req.MaxWaitMillis = int32(4*size+10), int32(4*size), 1000
		go func() { time.Sleep(200 * time.Millisecond); close(slow.bucket) }()
		before := time.Now()
		for i, p := range ask[*kmsg.FetchResponse](c, req).Topics[0].Partitions {
			if len(p.RecordBatches) != 2*size {
				t.Errorf("%d bytes of partition %d", len(p.RecordBatches), i)
			}
		}
		if took := time.Since(before); took != 200*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		c.nc.Close()
		synctest.Wait()
		r.balanced()
	})
}

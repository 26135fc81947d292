package kafka

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/partition"
)

// TestHungBucketStarvesNobodyElse: consumers of a bucket that hangs hold no more
// than their share of the memory for responses; one of a partition on disk does not
// wait for them.
func TestHungBucketStarvesNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Limits{}) // defaults: 256 MiB
		defer r.stop()
		r.node.create(t, "known", 5)
		hang := make(chan struct{})
		var cold []wanted
		for i := range int32(4) {
			log := r.node.log(t, "known", i)
			log.fill(t, 3, 10)
			log.bucket = hang
			log.change(func(v *partition.View) { v.LocalLogStart = tiers.Offset(2) })
			cold = append(cold, wanted{name: "known", index: i})
		}
		r.node.log(t, "known", 4).fill(t, 3, 10)
		var conns []func()
		for range 80 { // 80 x 4 x 1 MiB > 256 MiB
			c := r.pipe()
			conns = append(conns, func() { c.nc.Close() })
			go func() {
				for range 3 {
					req := fetchOf(12, cold...)
					req.MaxWaitMillis, req.MaxBytes = 5000, 50<<20
					for i := range req.Topics {
						for k := range req.Topics[i].Partitions {
							req.Topics[i].Partitions[k].PartitionMaxBytes = 1 << 20
						}
					}
					ask[*kmsg.FetchResponse](c, req)
				}
			}()
		}
		synctest.Wait()
		time.Sleep(100 * time.Millisecond)
		hot := r.pipe()
		for i := range 3 {
			req := fetchOf(12, wanted{name: "known", index: 4})
			req.MaxWaitMillis = 500
			before := time.Now()
			p := part(ask[*kmsg.FetchResponse](hot, req), 0)
			if len(p.RecordBatches) == 0 || time.Since(before) > 100*time.Millisecond {
				t.Errorf("fetch %d: code %d, %d bytes after %v", i, p.ErrorCode, len(p.RecordBatches), time.Since(before))
			}
		}
		time.Sleep(20 * time.Second)
		hot.nc.Close()
		for _, end := range conns {
			end()
		}
		close(hang)
		synctest.Wait()
	})
}

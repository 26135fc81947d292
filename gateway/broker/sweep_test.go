package broker

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

// litter is a bucket with unfinished uploads.
type litter struct {
	remote.Bucket
	mu   sync.Mutex
	ages []time.Duration // asked for
}

func (l *litter) AbortStale(_ context.Context, olderThan time.Duration) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ages = append(l.ages, olderThan)
	return 3, nil
}

func (l *litter) asked() []time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.ages)
}

func (l *litter) sweeps() int { return len(l.asked()) }

// TestUnfinishedUploadsAreDropped at the start and daily, as long as the bucket
// is this node's: they cost money and no listing shows them.
func TestUnfinishedUploadsAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		bucket := &litter{Bucket: r.bucket}
		var (
			said strings.Builder
			pen  sync.Mutex
		)
		r.change = func(o *Options) {
			o.Cache.Close()
			o.Cache = remote.NewCache(bucket, remote.CacheOptions{})
			o.ClaimEvery, o.SnapshotEvery, o.CheckpointEvery = time.Hour, time.Hour, time.Hour
			o.Log = hclog.New(&hclog.LoggerOptions{Output: &said, Mutex: &pen})
		}
		n := r.start()
		synctest.Wait()
		pen.Lock()
		log := said.String()
		pen.Unlock()
		if ages := bucket.asked(); len(ages) != 1 || ages[0] != 24*time.Hour || !strings.Contains(log, "uploads=3") {
			t.Errorf("at the start: %v, %s", ages, log)
		}
		time.Sleep(24*time.Hour + time.Second)
		synctest.Wait()
		if bucket.sweeps() != 2 {
			t.Errorf("%d sweeps after a day, want 2", bucket.sweeps())
		}
		hits := r.bucket.Add(memory.Fault{Ops: memory.OpGet, Key: "cluster/claim", Sticky: true, Err: remote.ErrUnavailable})
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if bucket.sweeps() != 2 || hits() == 0 {
			t.Errorf("%d sweeps although the claim was not read", bucket.sweeps())
		}
		r.bucket.Clear()
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if bucket.sweeps() != 3 {
			t.Errorf("%d sweeps after the claim was read again, want 3", bucket.sweeps())
		}
		takeOver(t, n)
		time.Sleep(48 * time.Hour)
		synctest.Wait()
		if bucket.sweeps() != 3 {
			t.Error("a node that was replaced swept")
		}
		n.end()
		n.Broker.o.Cache.Close()
	})
}

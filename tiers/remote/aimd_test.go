package remote_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

func lane(g *remote.Gate, name string) remote.LaneState {
	for _, l := range g.Lanes() {
		if l.Name == name {
			return l
		}
	}
	panic("no lane " + name)
}

// TestPlaces: no more requests are under way than there are places, and all come
// to pass.
func TestPlaces(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		op     memory.Op
		places int
		call   func(context.Context, remote.Bucket, int) error
	}{
		"writes": {memory.OpPut, 16, func(ctx context.Context, b remote.Bucket, i int) error { return putSize(ctx, b, dataKey(1, i), 1) }},
		"reads": {memory.OpReadAt, 64, func(ctx context.Context, b remote.Bucket, i int) error {
			_, err := b.ReadAt(ctx, dataKey(1, i), make([]byte, 1), 0)
			return err
		}},
		"deletes": {memory.OpDelete, 16, func(ctx context.Context, b remote.Bucket, i int) error { return b.Delete(ctx, dataKey(1, i)) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m, g, b := gatedBucket(remote.Limits{})
				for i := range 200 {
					must(t, putSize(t.Context(), m, dataKey(1, i), 1))
				}
				let := make(chan struct{})
				m.Add(memory.Fault{Ops: c.op, Sticky: true, Hold: let})
				var wg sync.WaitGroup
				for i := range 200 {
					wg.Go(func() {
						if err := c.call(t.Context(), b, i); err != nil {
							t.Error(err)
						}
					})
				}
				synctest.Wait()
				if l := lane(g, name); l.InFlight != c.places || l.Waiting != 200-c.places {
					t.Errorf("%+v", l)
				}
				close(let)
				wg.Wait()
				if l := lane(g, name); l.InFlight != 0 || l.Waiting != 0 || l.Window != c.places {
					t.Errorf("at the end %+v", l)
				}
			})
		})
	}
}

// TestSlowDownStorm: for half a minute the store refuses everything, as S3 does
// when a prefix is hot. Fifty writers send few requests meanwhile, all come to pass
// afterwards, and the window grows back.
func TestSlowDownStorm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, g, gated := gatedBucket(remote.Limits{})
		b := remote.WithRetry(gated, remote.RetryOptions{Attempts: 1000, CallTimeout: time.Hour})
		m.Add(memory.Fault{Ops: memory.OpPut, Sticky: true, Err: remote.ErrThrottled})
		start := time.Now()
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				if err := putSize(t.Context(), b, dataKey(1, i), 100); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(30 * time.Second)
		during := len(m.Calls(memory.OpPut, ""))
		l := lane(g, "writes")
		if during > 60 || l.Window != 1 || l.SlowDowns < 5 {
			t.Errorf("%d requests in 30 s of SlowDown, %+v", during, l)
		}
		m.Clear()
		wg.Wait()
		if took := time.Since(start); took > 40*time.Second {
			t.Errorf("all was well %s after the storm", took-30*time.Second)
		}
		if after := len(m.Calls(memory.OpPut, "")) - during; after > 51 {
			t.Errorf("%d requests for 50 writes after the storm", after)
		}
		for i := range 400 {
			must(t, putSize(t.Context(), b, dataKey(2, i), 1))
			time.Sleep(time.Millisecond)
		}
		if l := lane(g, "writes"); l.Window != 16 || l.Pause != 0 {
			t.Errorf("it did not recover: %+v", l)
		}
		if c := g.Meter().Tally().Topics; c[[16]byte{1}].Refused != int64(during) || c[[16]byte{1}].Writes != 50 {
			t.Errorf("counted %+v", c)
		}
	})
}

// TestOneSlowDownIsOneCut: the answers to what was under way when the window was
// halved do not halve it again.
func TestOneSlowDownIsOneCut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, g, b := gatedBucket(remote.Limits{})
		let := make(chan struct{})
		m.Add(memory.Fault{Ops: memory.OpPut, Times: 16, Hold: let, Err: remote.ErrThrottled})
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() { _ = putSize(t.Context(), b, dataKey(1, i), 1) })
		}
		synctest.Wait()
		time.Sleep(time.Second)
		close(let)
		wg.Wait()
		if l := lane(g, "writes"); l.Window != 8 || l.SlowDowns != 1 {
			t.Errorf("%+v", l)
		}
		if l := lane(g, "reads"); l.Window != 64 {
			t.Errorf("reads were never refused: %+v", l)
		}
	})
}

// TestRetryAfterIsHonoured by the lane and by the one who retries.
func TestRetryAfterIsHonoured(t *testing.T) {
	t.Parallel()
	for _, key := range []string{dataKey(1, 1), "cluster/change/1"} {
		synctest.Test(t, func(t *testing.T) {
			m, _, gated := gatedBucket(remote.Limits{})
			b := remote.WithRetry(gated, remote.RetryOptions{})
			m.Add(memory.Fault{Ops: memory.OpPut, Err: remote.RetryAfter(fmt.Errorf("busy: %w", remote.ErrThrottled), 7*time.Second)})
			start := time.Now()
			must(t, putSize(t.Context(), b, key, 1))
			if took := time.Since(start); took < 7*time.Second || took > 12*time.Second {
				t.Errorf("%s: %s", key, took)
			}
		})
	}
}

// TestLaneWaitsForRetryAfter: others wait too for as long as the store asked one of
// them to, and do not take that for a store that hangs.
func TestLaneWaitsForRetryAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, g, gated := gatedBucket(remote.Limits{})
		b := remote.WithRetry(gated, remote.RetryOptions{Attempts: 1, CallTimeout: 20 * time.Second})
		m.Add(memory.Fault{Ops: memory.OpPut, Err: remote.RetryAfter(fmt.Errorf("busy: %w", remote.ErrThrottled), 50*time.Second)})
		start := time.Now()
		if err := putSize(t.Context(), gated, dataKey(1, 1), 1); err == nil {
			t.Fatal("the store was not busy")
		}
		if l := lane(g, "writes"); l.Pause != 50*time.Second {
			t.Errorf("%+v", l)
		}
		must(t, b.Delete(t.Context(), dataKey(1, 1))) // has a lane of its own
		if took := time.Since(start); took != 0 {
			t.Errorf("a deletion waited %s", took)
		}
		must(t, putSize(t.Context(), b, dataKey(1, 2), 1))
		if took := time.Since(start); took < 50*time.Second || took > 51*time.Second {
			t.Errorf("it waited %s", took)
		}
	})
}

package remote_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

// However many readers have the cache read ahead from a store that does not
// answer, a place is left for one who waits.
func TestReadersAheadLeaveAPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		z := &zeros{Bucket: memory.New()}
		c := remote.NewCache(z, remote.CacheOptions{Concurrency: 4, Bytes: 1 << 30})
		defer c.Close()
		const step = 256 << 10
		buf := make([]byte, step)
		start := time.Now()
		var reads []func()
		for i := range int32(4) {
			seg, off := z.segments(t, i, 1, 64<<20)[0], int64(0)
			reads = append(reads, func() {
				_, err := c.ReadOn(t.Context(), seg, buf, off, following(nil))
				must(t, err)
				synctest.Wait()
				off += step
			})
			for range 8 {
				reads[i]()
			}
		}
		z.slow(time.Minute)
		steps := 0 // of what was read ahead, until more is asked for
		for i, read := range reads {
			before, _ := z.asked()
			after := before
			for n := 0; i == 0 && len(after) == len(before) || n < steps; n++ {
				read()
				after, _ = z.asked()
				steps = max(steps, n+1)
			}
			if more := len(after) - len(before); more > 0 != (i < 3) {
				t.Errorf("reader %d: %d more requests", i, more)
			}
		}
		if took := time.Since(start); took != 0 {
			t.Fatalf("somebody waited for the store for %v", took)
		}
		z.slow(0)
		if _, err := c.ReadOn(t.Context(), z.segments(t, 100, 1, 1<<20)[0], buf, 0, following(nil)); err != nil || time.Since(start) != 0 {
			t.Errorf("a reader of another partition waited for %v: %v", time.Since(start), err)
		}
	})
}

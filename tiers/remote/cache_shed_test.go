package remote_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

// What is only fetched ahead gives way to what a reader waits for, at once: the far
// end of it, so that its own reader goes on with what is near, and fetches the rest
// once more later.
func TestReadAheadGivesWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		z := &zeros{Bucket: memory.New()}
		c := remote.NewCache(z, remote.CacheOptions{Bytes: 16 << 20, MetaBytes: 8 << 20})
		defer c.Close()
		seg := z.segments(t, 0, 1, 64<<20)[0]
		buf := make([]byte, 1<<20)
		off := int64(0)
		for ; off < 16<<20; off += int64(len(buf)) {
			_, err := c.ReadOn(t.Context(), seg, buf, off, nil)
			must(t, err)
			synctest.Wait()
		}
		_, before := z.asked()
		if ahead := before - off; ahead < 4<<20 {
			t.Fatalf("%d bytes are fetched ahead", ahead)
		}
		start := time.Now()
		other := z.segments(t, 1, 1, 16<<20)[0]
		for i := range int64(8) { // readers in the middle of a chunk have the rest of the memory
			_, err := c.ReadAt(t.Context(), other, buf[:100], 8<<20+i*remote.ChunkSize)
			must(t, err)
		}
		_, err := c.ReadOn(t.Context(), other, make([]byte, 3<<20), 0, nil)
		must(t, err)
		if took := time.Since(start); took > 0 {
			t.Errorf("a reader waited for %v for what nobody reads", took)
		}
		z.slow(time.Minute)
		_, err = c.ReadOn(t.Context(), seg, buf, off, nil)
		must(t, err)
		if took := time.Since(start); took > 0 {
			t.Error("what the other reader needed next was given up")
		}
		z.slow(0)
		for off += int64(len(buf)); off < seg.Size; off += int64(len(buf)) {
			_, err = c.ReadOn(t.Context(), seg, buf, off, nil)
			must(t, err)
		}
		if _, bytes := z.asked(); bytes > seg.Size+16<<20 {
			t.Errorf("%d bytes were fetched", bytes)
		}
	})
}

package remote_test

import (
	"context"
	"testing"
	"time"

	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

// TestDamagedChunkInAWindowOfOne: one read may be under way. The body that brought a
// damaged chunk gives its place back before the chunk is asked for again.
func TestDamagedChunkInAWindowOfOne(t *testing.T) {
	b := memory.New()
	records, m := sample(remote.ChunkSize * 5 / 2)
	seg := upload(t, b, records, m)
	g := remote.NewGate(remote.GateOptions{})
	gated := remote.WithGate(b, g)
	limits := remote.RetryOptions{AttemptTimeout: time.Second, CallTimeout: 2 * time.Second}
	c := remote.NewCache(remote.WithRetry(gated, limits), remote.CacheOptions{FetchTimeout: 3 * time.Second})
	defer c.Close()
	if _, err := c.Meta(t.Context(), seg); err != nil {
		t.Fatal(err)
	}
	b.Add(memory.Fault{Ops: memory.OpGet, Times: 1000, Err: remote.ErrThrottled})
	for g.Lanes()[1].Window > 1 {
		_, _, _ = gated.Get(t.Context(), remote.SegmentKey(seg), remote.Range{Len: 10})
	}
	b.Clear()
	b.Add(memory.Fault{Ops: memory.OpGet, Flip: true, FlipAt: 5})
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	for _, off := range []int64{0, 2 * remote.ChunkSize} {
		got := make([]byte, 100)
		if _, err := c.ReadAt(ctx, seg, got, off); err != nil || string(got) != string(records[off:off+100]) {
			t.Fatalf("at %d: %v, lanes %+v", off, err, g.Lanes())
		}
	}
}

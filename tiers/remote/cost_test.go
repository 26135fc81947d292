package remote_test

import (
	"context"
	"errors"
	"io"
	"math"
	"testing"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

// TestMeterCountsEveryRequest by topic, class and outcome.
func TestMeterCountsEveryRequest(t *testing.T) {
	t.Parallel()
	m, g, b := gatedBucket(remote.Limits{})
	ctx := t.Context()
	must(t, putSize(ctx, b, dataKey(1, 1), 1000))
	must(t, putSize(ctx, b, dataKey(2, 1), 500))
	_, err := b.Stat(ctx, dataKey(1, 1))
	must(t, err)
	r, _, err := b.Get(ctx, dataKey(1, 1), remote.Range{Len: 600})
	must(t, err)
	_, err = io.CopyN(io.Discard, r, 100) // and leaves
	must(t, err)
	must(t, r.Close())
	_, err = b.ReadAt(ctx, dataKey(1, 1), make([]byte, 2000), 0)
	if !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	must(t, listAll(ctx, b, remote.TopicPrefix(tiers.TopicID{1})))
	must(t, listAll(ctx, b, remote.TopicsPrefix))
	must(t, b.Delete(ctx, dataKey(1, 1), dataKey(1, 2)))
	must(t, b.Delete(ctx, dataKey(2, 1)))
	m.Add(memory.Fault{Ops: memory.OpStat, Err: remote.ErrThrottled})
	m.Add(memory.Fault{Ops: memory.OpPut, Err: remote.ErrUnavailable})
	_, _ = b.Stat(ctx, dataKey(2, 1))
	_ = putSize(ctx, b, dataKey(2, 2), 10) // nobody knows whether it was done: it counts
	_, _ = b.Stat(ctx, dataKey(2, 9))      // not found: an answer all the same
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	_ = putSize(cancelled, b, dataKey(2, 3), 10) // never sent

	got := g.Meter().Tally()
	want := map[byte]remote.Counts{
		1: {Writes: 2, Reads: 3, Deletes: 1, BytesUp: 1000, BytesDown: 1100},
		2: {Writes: 2, Reads: 1, Deletes: 1, Refused: 1, BytesUp: 500},
	}
	for id, c := range want {
		if got.Topics[tiers.TopicID{id}] != c {
			t.Errorf("topic %d: %+v, want %+v", id, got.Topics[tiers.TopicID{id}], c)
		}
	}
	if want := (remote.Counts{Writes: 1}); got.Cluster != want || len(got.Topics) != 2 {
		t.Errorf("%+v", got)
	}
	if total := got.Total(); total.Requests() != 12 || total.BytesUp != 1500 {
		t.Errorf("in all %+v", total)
	}
}

// TestDeletedTopicsFold: memory is bounded by the topics that there are, and no
// count is lost.
func TestDeletedTopicsFold(t *testing.T) {
	t.Parallel()
	_, g, b := gatedBucket(remote.Limits{})
	kept := tiers.TopicID{0, 0, 1}
	g.Meter().KnowTopics(func(id tiers.TopicID) bool { return id == kept })
	key := func(i int) string {
		return remote.TopicPrefix(tiers.TopicID{byte(i), byte(i >> 8), 1})
	}
	for i := range 5000 {
		must(t, listAll(t.Context(), b, key(i)))
	}
	got := g.Meter().Tally()
	if len(got.Topics) != 1 || got.Topics[kept].Writes != 1 || got.Deleted.Writes != 4999 {
		t.Errorf("%d topics, %+v deleted", len(got.Topics), got.Deleted)
	}
	must(t, listAll(t.Context(), b, key(7))) // of a topic that is gone
	if got = g.Meter().Tally(); got.Deleted.Writes != 5000 || got.Total().Writes != 5001 {
		t.Errorf("%+v", got.Deleted)
	}
}

func TestPrices(t *testing.T) {
	t.Parallel()
	p := remote.Prices{WritesPerMillion: 5, ReadsPerMillion: 0.4, StorageGiBMonth: 0.023, EgressGiB: 0.09}
	c := remote.Counts{Writes: 2_000_000, Reads: 5_000_000, Deletes: 9_000_000, Refused: 9_000_000, BytesUp: 1 << 50, BytesDown: 10 << 30}
	for name, v := range map[string][2]float64{
		"requests": {p.OfRequests(c), 12},
		"egress":   {p.OfEgress(c), 0.9},
		"storage":  {p.OfStorage(100 << 30), 2.3},
		"free":     {remote.Prices{}.OfRequests(c) + remote.Prices{}.OfEgress(c) + remote.Prices{}.OfStorage(1<<40), 0},
	} {
		if math.Abs(v[0]-v[1]) > 1e-9 {
			t.Errorf("%s cost %v, want %v", name, v[0], v[1])
		}
	}
}

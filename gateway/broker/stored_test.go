package broker

import (
	"testing"
	"time"

	"github.com/strandline-io/strandline/tiers/partition"
	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

// TestStoredAndLags: what the rows say is what the bucket holds, that of deleted
// topics apart; and what waits to be copied, by topic.
func TestStoredAndLags(t *testing.T) {
	r := newRig(t)
	n := r.start()
	a, b := n.create("a", 2), n.create("b", 1)
	n.create("local", 1, "remote.storage.enable", "false")
	write := func(topic string, index int32) {
		t.Helper()
		if _, err := n.append(topic, index, "record"); err != nil {
			t.Fatal(err)
		}
		if err := n.owner(topic, index).Roll(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	n.fill("a", 0, 3)
	n.fill("a", 1, 3)
	n.fill("b", 0, 3)
	write("local", 0)
	got, err := n.Stored(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, topic := range []struct {
		name string
		id   [16]byte
	}{{"a", a.ID}, {"b", b.ID}} {
		var want int64
		for _, key := range r.bucket.Keys(remote.TopicPrefix(topic.id)) {
			raw, _ := r.bucket.Bytes(key)
			want += int64(len(raw))
		}
		if got.Topics[topic.id] != want || want == 0 {
			t.Errorf("%s: %d bytes, the bucket holds %d", topic.name, got.Topics[topic.id], want)
		}
	}
	if got.Deleted != 0 || len(n.Lags()) != 0 {
		t.Errorf("%+v, %+v", got, n.Lags())
	}
	r.bucket.Add(memory.Fault{Ops: memory.OpPut | memory.OpDelete, Key: "topics/", Sticky: true})
	before := time.Now()
	for _, index := range []int32{0, 1} {
		write("a", index)
	}
	var want TopicLag
	for _, index := range []int32{0, 1} {
		want.add(n.owner("a", index).Lag())
	}
	lags := n.Lags()
	if len(lags) != 1 || lags[0].Topic != "a" || lags[0].Bytes != want.Bytes || lags[0].Segments < 2 || lags[0].Oldest.After(time.Now()) || lags[0].Oldest.Before(before.Add(-time.Minute)) {
		t.Errorf("%+v", lags)
	}
	bytesOfA := got.Topics[a.ID]
	if err := n.DeleteTopic(t.Context(), a.ID); err != nil {
		t.Fatal(err)
	}
	if got, err = n.Stored(t.Context()); err != nil || got.Deleted != bytesOfA || got.Topics[a.ID] != 0 || got.Topics[b.ID] == 0 {
		t.Errorf("%+v, %v: want %d bytes of deleted topics", got, err, bytesOfA)
	}
	r.bucket.Clear()
}

func TestTopicLagAdds(t *testing.T) {
	early, late := time.Unix(1, 0), time.Unix(2, 0)
	var sum TopicLag
	for _, l := range []partition.Lag{{}, {Bytes: 5, Segments: 1, Oldest: late}, {}, {Bytes: 7, Segments: 2, Oldest: early}} {
		sum.add(l)
	}
	if want := (partition.Lag{Bytes: 12, Segments: 3, Oldest: early}); sum.Lag != want {
		t.Errorf("%+v, want %+v", sum.Lag, want)
	}
}

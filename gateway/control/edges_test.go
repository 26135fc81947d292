package control_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/gateway/control/model"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/partition"
	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

// overtaken is a bucket where somebody else is faster with the first write.
type overtaken struct {
	remote.Bucket
	first func()
}

func (o *overtaken) Put(ctx context.Context, key string, body remote.Body, opt remote.PutOptions) (remote.Object, error) {
	if f := o.first; f != nil {
		o.first = nil
		f()
	}
	return o.Bucket.Put(ctx, key, body, opt)
}

// TestClaimOvertaken: another start claims the bucket between our reading and our
// writing, of an empty one and of one that was claimed before. We are later, so we
// win, with a generation of our own, and the other one finds out.
func TestClaimOvertaken(t *testing.T) {
	for before := range int64(2) {
		b := memory.New()
		for range before {
			acquire(t, b, "earlier")
		}
		var other *control.Claim
		late := acquire(t, &overtaken{b, func() { other = acquire(t, b, "other") }}, "late")
		if other.Generation() != before+1 || late.Generation() != before+2 {
			t.Errorf("after %d starts: generations %d and %d", before, other.Generation(), late.Generation())
		}
		if err := late.Check(t.Context()); err != nil {
			t.Error(err)
		}
		if err := other.Check(t.Context()); tiers.KindOf(err) != tiers.StaleFence {
			t.Errorf("the claim that was overtaken: %v", err)
		}
	}
}

// TestR8RaiseIsRememberedBeforeItIsAnswered: an owner hears that its log start was
// raised when the bucket knows it (report 025), and only then; a raise that the
// store refuses is not remembered.
func TestR8RaiseIsRememberedBeforeItIsAnswered(t *testing.T) {
	n := begin(t, memory.New(), model.New(model.Options{Now: clock}))
	topic := n.create(t, "orders")
	f := partition.Fence{Partition: tiers.PartitionID{Topic: topic.ID, Index: 1}, Gen: 1, Epoch: topic.Partitions[1].Epoch}
	away := errors.New("the bucket is away")
	var answer error
	var told []control.Rev
	r := control.RegistryOf(n.store, n.session, func(_ context.Context, got partition.Fence, o tiers.Offset, rev control.Rev) error {
		if got.Partition != f.Partition || o != 500 {
			t.Errorf("told of %+v at %d", got, o)
		}
		told = append(told, rev)
		return answer
	})
	answer = away
	if err := r.RaiseLogStart(t.Context(), f, 500); !errors.Is(err, away) {
		t.Errorf("without the bucket: %v", err)
	}
	answer = nil
	if err := r.RaiseLogStart(t.Context(), f, 500); err != nil { // Again: it must be told again.
		t.Error(err)
	}
	stale := f
	stale.Epoch++
	if err := r.RaiseLogStart(t.Context(), stale, 500); tiers.KindOf(err) != tiers.StaleFence {
		t.Errorf("a stale fence: %v", err)
	}
	if want := []control.Rev{topic.Rev + 1, topic.Rev + 1}; !slices.Equal(told, want) {
		t.Errorf("told of revisions %v, want %v", told, want)
	}
}

package control_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

const cluster = "AAECAwQFBgcICQoLDA0ODw"

func clock() time.Time { return time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC) }

func claimOptions(instance string) control.ClaimOptions {
	return control.ClaimOptions{Cluster: cluster, Node: 1, Instance: instance, Now: clock, Log: hclog.NewNullLogger()}
}

func acquire(t *testing.T, b remote.Bucket, instance string) *control.Claim {
	t.Helper()
	c, err := control.AcquireClaim(t.Context(), b, claimOptions(instance))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestClaimGenerationRises(t *testing.T) {
	b := memory.New()
	first := acquire(t, b, "first")
	if err := first.Check(t.Context()); err != nil || first.Generation() != 1 {
		t.Fatal(first.Generation(), err)
	}
	if err := first.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	rec, ok, err := control.ReadClaim(t.Context(), b)
	if err != nil || !ok || !rec.Released || rec.Generation != 1 {
		t.Fatal(rec, ok, err)
	}
	second := acquire(t, b, "second")
	if second.Generation() != 2 {
		t.Fatal(second.Generation())
	}
	if err := first.Check(t.Context()); tiers.KindOf(err) != tiers.StaleFence {
		t.Fatal(err)
	}
	if err := first.Release(t.Context()); tiers.KindOf(err) != tiers.StaleFence {
		t.Fatal("a claim that was taken over was released:", err)
	}
	if err := second.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestClaimOfAnotherClusterIsRefused(t *testing.T) {
	b := memory.New()
	acquire(t, b, "first")
	o := claimOptions("second")
	o.Cluster = "zzzzzzzzzzzzzzzzzzzzzw"
	_, err := control.AcquireClaim(t.Context(), b, o)
	if tiers.KindOf(err) != tiers.Conflict || !strings.Contains(err.Error(), "strandline rebuild") {
		t.Fatal(err)
	}
}

// TestClaimOfAReplacedDirectoryIsRefused: a rebuild or a clone has started on the
// bucket; the directory that it replaced does not know that start.
func TestClaimOfAReplacedDirectoryIsRefused(t *testing.T) {
	b := memory.New()
	acquire(t, b, "old-1")
	acquire(t, b, "rebuild")
	known := func(names ...string) control.ClaimOptions {
		o := claimOptions("old-2")
		o.Known = func(instance string) bool { return slices.Contains(names, instance) }
		return o
	}
	_, err := control.AcquireClaim(t.Context(), b, known("old-1"))
	if tiers.KindOf(err) != tiers.Conflict || !strings.Contains(err.Error(), "--take-over") {
		t.Fatal(err)
	}
	if rec, _, err := control.ReadClaim(t.Context(), b); err != nil || rec.Instance != "rebuild" {
		t.Fatal("the claim was touched:", rec, err)
	}
	if c, err := control.AcquireClaim(t.Context(), b, known("old-1", "rebuild")); err != nil || c.Generation() != 3 {
		t.Fatal(err)
	}
}

func TestClaimGone(t *testing.T) {
	b := memory.New()
	c := acquire(t, b, "first")
	if err := b.Delete(t.Context(), "cluster/claim"); err != nil {
		t.Fatal(err)
	}
	if err := c.Check(t.Context()); tiers.KindOf(err) != tiers.StaleFence {
		t.Fatal(err)
	}
	if err := c.Release(t.Context()); tiers.KindOf(err) != tiers.StaleFence {
		t.Fatal(err)
	}
}

// TestClaimUnreachableIsNotLost: a bucket that does not answer says nothing
// about who holds it.
func TestClaimUnreachableIsNotLost(t *testing.T) {
	b := memory.New()
	c := acquire(t, b, "first")
	b.Add(memory.Fault{Ops: memory.OpRead, Sticky: true, Err: remote.ErrUnavailable})
	if err := c.Check(t.Context()); tiers.KindOf(err) != tiers.RemoteUnavailable {
		t.Fatal(err)
	}
}

// TestClaimLostAnswer: the write happens, its answer is lost; then the same with
// the refusal that a retry of it gets. Both are the writer's own claim.
func TestClaimLostAnswer(t *testing.T) {
	for _, lost := range []error{remote.ErrUnknownOutcome, remote.ErrPrecondition, remote.ErrConflict} {
		for _, before := range []int{0, 1} {
			b := memory.New()
			for range before {
				acquire(t, b, "earlier")
			}
			hits := b.Add(memory.Fault{Ops: memory.OpPut, Key: "cluster/claim", Applied: true, Err: lost})
			c := acquire(t, b, "late")
			if hits() != 1 || c.Generation() != int64(before)+1 {
				t.Errorf("%v after %d starts: generation %d, %d faults", lost, before, c.Generation(), hits())
			}
			if err := c.Check(t.Context()); err != nil {
				t.Error(err)
			}
			if err := c.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestClaimLostRequest: the write never happens, and the outcome is unknown.
func TestClaimLostRequest(t *testing.T) {
	b := memory.New()
	b.Add(memory.Fault{Ops: memory.OpPut, Key: "cluster/claim", Err: remote.ErrUnknownOutcome})
	if c := acquire(t, b, "first"); c.Generation() != 1 || c.Check(t.Context()) != nil {
		t.Fatal(c.Generation())
	}
}

func TestClaimRace(t *testing.T) {
	b := memory.New()
	const n = 32
	claims := make([]*control.Claim, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			c, err := control.AcquireClaim(t.Context(), b, claimOptions(fmt.Sprint("racer-", i)))
			if err != nil {
				t.Error(err)
				return
			}
			claims[i] = c
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	var generations []int64
	holders := 0
	for _, c := range claims {
		generations = append(generations, c.Generation())
		if c.Check(t.Context()) == nil {
			holders++
		}
	}
	slices.Sort(generations)
	if len(slices.Compact(generations)) != n || holders != 1 {
		t.Fatalf("generations %v, %d holders", generations, holders)
	}
}

func TestClaimDamaged(t *testing.T) {
	b := memory.New()
	acquire(t, b, "first")
	if err := b.FlipBit("cluster/claim", 40); err != nil {
		t.Fatal(err)
	}
	if _, err := control.AcquireClaim(t.Context(), b, claimOptions("second")); tiers.KindOf(err) != tiers.CorruptMessage {
		t.Fatal(err)
	}
}

func TestClaimCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := control.AcquireClaim(ctx, memory.New(), claimOptions("first")); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

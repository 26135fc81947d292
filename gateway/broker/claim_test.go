package broker

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

// TestClaimThatIsNotReadIsToldOf: a bucket that hangs is not taken for one that
// says that all is well.
func TestClaimThatIsNotReadIsToldOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		taken := time.Now()
		r.change = func(o *Options) { o.ClaimAt = taken }
		n := r.start()
		if h := n.Health(); !h.ClaimAt.Equal(taken) || h.Unclaimed != nil {
			t.Errorf("at first: %v, %v", h.ClaimAt, h.Unclaimed)
		}
		time.Sleep(11 * time.Second)
		synctest.Wait()
		read := n.Health().ClaimAt
		if read.Sub(taken) != 10*time.Second {
			t.Errorf("read at %v, taken at %v", read, taken)
		}
		r.bucket.Add(memory.Fault{Ops: memory.OpGet, Key: "cluster/claim", Sticky: true, Hold: make(chan struct{})})
		time.Sleep(25 * time.Second) // it is asked for twice, and none of them has ended for long enough
		synctest.Wait()
		if h := n.Health(); h.Unclaimed != nil || !h.ClaimAt.Equal(read) {
			t.Errorf("after one or two misses: %v, %v", h.ClaimAt, h.Unclaimed)
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		h := n.Health()
		wantKind(t, "after three misses", h.Unclaimed, tiers.RemoteUnavailable, "in a row", read.UTC().Format(time.RFC3339))
		if !h.ClaimAt.Equal(read) || h.Fenced != nil {
			t.Errorf("last read %v, fenced %v", h.ClaimAt, h.Fenced)
		}
		r.bucket.Clear()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if h := n.Health(); h.Unclaimed != nil || !h.ClaimAt.After(read) {
			t.Errorf("after the bucket came back: %v, %v", h.ClaimAt, h.Unclaimed)
		}
		n.end()
	})
}

// TestHungDiskKeepsNoOtherPartitionFromBeingFenced, neither one that takes new
// settings nor one that closes.
func TestHungDiskKeepsNoOtherPartitionFromBeingFenced(t *testing.T) {
	for name, block := range map[string]func(*node, *slot){
		"new settings": func(n *node, _ *slot) {
			_ = n.AlterConfigs(context.WithoutCancel(n.t.Context()), "orders", []ConfigOp{{"max.message.bytes", OpSet, new("1000")}}, false, false)
		},
		"closing": func(n *node, s *slot) { _ = s.close(context.WithoutCancel(n.t.Context())) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			n := r.start()
			topic := n.create("orders", 2)
			awaitTried(t.Context(), n.Catalog().slots())
			hold, reached := make(chan struct{}), make(chan fsys.Op, 1)
			r.faulty.Add(fsys.Fault{Kinds: fsys.OpSync | fsys.OpSyncData, Name: topic.ID.Hex() + "-0", Hold: hold, Reached: reached})
			hung := n.Catalog().slots()[0]
			answered, blocked := make(chan error, 1), make(chan struct{})
			go func() { _, err := n.append("orders", 0, "v"); answered <- err }()
			<-reached
			go func() { block(n, hung); close(blocked) }()
			eventually(t, "the slot is held", func() bool {
				if hung.mu.TryLock() {
					hung.mu.Unlock()
					return false
				}
				return true
			})
			fenced := make(chan struct{})
			go func() { n.Fence(errors.New("somebody else")); close(fenced) }()
			eventually(t, "the other partition is fenced", func() bool {
				_, err := n.append("orders", 1, "v")
				return tiers.KindOf(err) == tiers.NotLeader
			})
			close(hold)
			<-fenced
			<-blocked
			wantKind(t, "the append under way", <-answered, tiers.NotLeader, "somebody else")
		})
	}
}

// takeOver is another start on the rig's bucket.
func takeOver(t *testing.T, n *node) {
	t.Helper()
	o := control.ClaimOptions{Cluster: n.Node().Cluster, Node: 1, Instance: "clone", Now: time.Now}
	if _, err := control.AcquireClaim(t.Context(), n.cache.Bucket(), o); err != nil {
		t.Fatal(err)
	}
}

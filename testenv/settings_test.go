package testenv_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/strandline-io/strandline/gateway"
	"github.com/strandline-io/strandline/testenv"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/fsys/mem"
	"github.com/strandline-io/strandline/tiers/partition"
	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

// Settings of the node whose effect is to be seen on a whole node: each test fails if
// the setting does not reach what it sets.

// configured starts a node with a configuration that differs from Config.
func configured(t *testing.T, change func(*gateway.Config)) *testenv.Node {
	t.Helper()
	c := testenv.Config()
	change(&c)
	n, err := testenv.Open(t, c, mem.New(), memory.New())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// inBucket writes count records to log-0, each in a segment of its own, all of which
// are in the bucket and none on disk. It returns the keys of the records objects, by
// offset.
func inBucket(t *testing.T, n *testenv.Node, count int) (keys []string) {
	t.Helper()
	n.CreateTopic("log", 1, kept("segment.bytes", "100", "local.retention.bytes", "0"))
	writeAt(t, n, 0, steps(count)...)
	rollAndCopy(t, n)
	retain(t, n)
	for _, key := range n.Bucket.Keys("topics/") {
		if strings.HasSuffix(key, ".log") {
			keys = append(keys, key)
		}
	}
	if len(keys) != count {
		t.Fatalf("%d objects for %d records", len(keys), count)
	}
	return keys
}

// TestRetentionCheckInterval: what is older than retention.ms goes without anybody
// asking, as often as the node's setting says.
func TestRetentionCheckInterval(t *testing.T) {
	n := configured(t, func(c *gateway.Config) { c.RetentionCheck = 100 * time.Millisecond })
	n.CreateTopic("log", 1, kept("retention.ms", "60000"))
	writeAt(t, n, 0, steps(20)...) // an hour old
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
	defer cancel()
	o, err := n.Broker().Owner("log", 0)
	if err != nil {
		t.Fatal(err)
	}
	moved := make(chan struct{}, 1)
	defer o.Subscribe(moved)()
	for o.View().LogStart < 20 {
		select {
		case <-moved:
		case <-ctx.Done():
			t.Fatalf("the log starts at %d still", o.View().LogStart)
		}
	}
}

// TestHedgesAreSent: the last of sixty segments is read although the first request for
// it is never answered; without remote.hedge nobody asks again.
func TestHedgesAreSent(t *testing.T) {
	for name, hedged := range map[string]bool{"on": true, "off": false} {
		t.Run(name, func(t *testing.T) {
			const count = 60
			n := configured(t, func(c *gateway.Config) { c.BucketHedge = hedged })
			keys := inBucket(t, n, count)
			last := keys[count-1]
			hold, reached := make(chan struct{}), make(chan memory.Call, 1)
			release := sync.OnceFunc(func() { close(hold) })
			defer release()
			defer time.AfterFunc(8*time.Second, release).Stop() // nobody asked again: tell soon
			n.Bucket.Add(memory.Fault{Ops: memory.OpRead, Key: last, Hold: hold, Reached: reached})
			asked := func() int { return len(n.Bucket.Calls(memory.OpRead, last)) }
			before := asked()
			if hedged {
				consumeFrom(t, n, 0, count)
				<-reached
				if got := asked() - before; got != 2 {
					t.Errorf("%d requests", got)
				}
				return
			}
			consumeFrom(t, n, 0, count-1)
			o, err := n.Broker().Owner("log", 0)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 600*time.Millisecond) // a hedge comes after 250
			defer cancel()
			res, err := o.Read(ctx, partition.ReadRequest{From: count - 1, CurrentEpoch: tiers.NoEpoch, FetchedEpoch: tiers.NoEpoch, MaxBytes: 1 << 20, MinOne: true})
			<-reached
			if got := asked() - before; got != 1 || len(res.Records) > 0 {
				t.Errorf("%d requests, %d bytes, %v", got, len(res.Records), err)
			}
		})
	}
}

// TestDiskCacheOutlivesTheProcess: what was read from the bucket once is served from
// disk after a restart, while the bucket gives out nothing.
func TestDiskCacheOutlivesTheProcess(t *testing.T) {
	const count = 20
	n := configured(t, func(c *gateway.Config) { c.CacheDiskBytes = 64 << 20 })
	inBucket(t, n, count)
	consumeFrom(t, n, 0, count)
	until(t, "each segment has a piece of records and a companion on disk", func() bool { return cached(t, n) == 2*count })
	n = n.Restart()
	n.Bucket.Add(memory.Fault{Ops: memory.OpRead, Key: "topics/", Sticky: true, Err: remote.ErrUnavailable})
	before := len(n.Bucket.Calls(memory.OpRead, ".log"))
	consumeFrom(t, n, 0, count)
	if got := len(n.Bucket.Calls(memory.OpRead, ".log")) - before; got != 0 {
		t.Errorf("%d reads of the bucket", got)
	}
}

// cached counts the pieces in the disk cache.
func cached(t *testing.T, n *testenv.Node) (pieces int) {
	t.Helper()
	const folder = testenv.DataDir + "/cache"
	shards, err := n.FS.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range shards {
		files, err := n.FS.ReadDir(folder + "/" + s.Name())
		if err != nil {
			continue // a file
		}
		for _, f := range files {
			if !strings.HasSuffix(f.Name(), fsys.TempSuffix) {
				pieces++
			}
		}
	}
	return pieces
}

// until waits until f holds.
func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	end := time.After(30 * time.Second)
	for !f() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatal("never: " + what)
		}
	}
}

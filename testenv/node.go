package testenv

import (
	"context"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/strandline-io/strandline/gateway"
	"github.com/strandline-io/strandline/gateway/admin/client"
	"github.com/strandline-io/strandline/tiers/fsys/mem"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

// DataDir is the data directory of a Node in its file system.
const DataDir = "/data"

// Node is a whole node in this process. Its disk and its bucket are in memory and
// outlive it.
type Node struct {
	*gateway.Node
	t testing.TB

	FS        *mem.FS
	Bucket    *memory.Bucket
	Scheduler *Scheduler
	Config    gateway.Config
	now       func() time.Time
	stopped   bool
}

// Config is the configuration of a Node: loopback, free ports, and a bucket in
// memory.
func Config() gateway.Config {
	c := gateway.DefaultConfig()
	c.DataDir, c.Bucket = DataDir, "memory:"
	c.Kafka.Listen, c.Admin.Listen = "127.0.0.1:0", "127.0.0.1:0"
	return c
}

// Start starts a node on an empty disk and an empty bucket. The test's end stops
// it.
func Start(t testing.TB) *Node {
	t.Helper()
	n, err := Open(t, Config(), mem.New(), memory.New())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Open starts a node on a disk and a bucket; it may refuse.
func Open(t testing.TB, c gateway.Config, fs *mem.FS, b *memory.Bucket) (*Node, error) {
	t.Helper()
	return OpenAt(t, c, fs, b, time.Now)
}

// OpenAt is Open with a clock, which the node, its disk and its bucket keep through
// Reopen and Rebuild.
func OpenAt(t testing.TB, c gateway.Config, fs *mem.FS, b *memory.Bucket, now func() time.Time) (*Node, error) {
	t.Helper()
	fs.SetClock(now)
	b.SetClock(now)
	n := &Node{t: t, FS: fs, Bucket: b, Scheduler: NewScheduler(), Config: c, now: now}
	node, err := gateway.Start(t.Context(), c, gateway.Deps{FS: fs, Bucket: b, Scheduler: n.Scheduler, Log: hclog.NewNullLogger(), Now: now})
	if err != nil {
		return nil, err
	}
	n.Node = node
	t.Cleanup(n.end)
	return n, nil
}

// end stops the node, if nobody did.
func (n *Node) end() {
	if n.stopped {
		return
	}
	n.stopped = true
	n.Scheduler.OpenAll()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_ = n.Node.Stop(ctx) // a test may have broken its disk or its bucket
}

// Shutdown stops the node in order, as SIGTERM does.
func (n *Node) Shutdown() {
	n.t.Helper()
	n.stopped = true
	n.Scheduler.OpenAll()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := n.Node.Stop(ctx); err != nil {
		n.t.Fatal(err)
	}
}

// PowerCut returns the disk as a power loss at this moment leaves it, and the
// bucket of the same moment. The node itself goes on with what it has, and is of
// no interest any more.
func (n *Node) PowerCut(seed uint64) (disk *mem.FS, bucket *memory.Bucket) {
	bucket = n.Bucket.CloneAnd(func() { disk = n.FS.CrashCopy(seed) })
	return disk, bucket
}

// Reopen cuts the power and starts a node on what is left.
func (n *Node) Reopen(seed uint64) *Node {
	n.t.Helper()
	disk, bucket := n.PowerCut(seed)
	n.end()
	return n.again(disk, bucket)
}

// again starts a node on what this one left.
func (n *Node) again(disk *mem.FS, bucket *memory.Bucket) *Node {
	n.t.Helper()
	next, err := OpenAt(n.t, n.Config, disk, bucket, n.now)
	if err != nil {
		n.t.Fatal(err)
	}
	return next
}

// Restart stops the node in order and starts it again.
func (n *Node) Restart() *Node {
	n.t.Helper()
	n.Shutdown()
	return n.again(n.FS, n.Bucket)
}

// Kill ends the process in the middle of what it does, and starts another on what
// it had written, synced or not.
func (n *Node) Kill() *Node {
	n.t.Helper()
	var disk *mem.FS
	bucket := n.Bucket.CloneAnd(func() { disk = n.FS.KillCopy() })
	n.end()
	return n.again(disk, bucket)
}

// Rebuild brings the node's cluster back on an empty disk, from the bucket alone.
func (n *Node) Rebuild() *Node {
	n.t.Helper()
	bucket := n.Bucket.Clone()
	n.end()
	disk := mem.New()
	disk.SetClock(n.now)
	if _, err := gateway.Rebuild(n.t.Context(), n.Config, gateway.RebuildDeps{FS: disk, Bucket: bucket, Log: hclog.NewNullLogger(), Now: n.now}); err != nil {
		n.t.Fatal(err)
	}
	return n.again(disk, bucket)
}

// Admin is a client of the node's admin interface.
func (n *Node) Admin() *client.Client { return client.New(n.AdminAddr(), nil) }

// CreateTopic makes a topic with these settings.
func (n *Node) CreateTopic(name string, partitions int32, settings map[string]string) {
	n.t.Helper()
	if _, err := n.Admin().CreateTopic(n.t.Context(), client.NewTopic{Name: name, Partitions: &partitions, Configs: settings}); err != nil {
		n.t.Fatal(err)
	}
}

// Context bounds what a test waits for.
func (n *Node) Context() (context.Context, context.CancelFunc) {
	return context.WithTimeout(n.t.Context(), patience)
}

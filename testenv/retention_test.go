package testenv_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/strandline-io/strandline/gateway/admin/client"
	"github.com/strandline-io/strandline/testenv"
	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/fsys/mem"
	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

// TestReport049StartIsDurableBeforeTheFirstDelete: at every moment of a pass of
// retention at which an object is about to go, the bucket and the node know the
// start already; a kill in the middle leaves a log that can be read from there.
func TestReport049StartIsDurableBeforeTheFirstDelete(t *testing.T) {
	n := testenv.Start(t)
	n.CreateTopic("log", 1, kept("local.retention.bytes", "0"))
	times := steps(100)
	writeAt(t, n, 0, times...)
	rollAndCopy(t, n)
	retain(t, n)
	ctx, cancel := n.Context()
	defer cancel()
	x, err := n.Admin().Explain(ctx, "log", 0)
	if err != nil {
		t.Fatal(err)
	}
	start := x.Segments[5].Base // five segments go
	held := make(chan struct{})
	reached := make(chan memory.Call, 100)
	n.Bucket.Add(memory.Fault{Ops: memory.OpDelete, Key: "topics/", Skip: 3, Sticky: true, Hold: held, Reached: reached})
	size := x.Summary.TotalBytes
	for _, s := range x.Segments[:5] {
		size -= s.Bytes
	}
	alter(t, n, "retention.bytes", fmt.Sprint(size))
	go func() { _ = n.Admin().Retain(ctx, "log", 0, true) }() // it is cut off with the node
	<-reached
	agree(t, "in the middle of the deletes", n, start, times)
	puts, deletes := n.Bucket.Calls(memory.OpPut, "cluster/change/"), n.Bucket.Calls(memory.OpDelete, "topics/")
	if len(deletes) == 0 || puts[len(puts)-1].Seq > deletes[0].Seq {
		t.Errorf("the log start was written by call %d, the first delete is call %d", puts[len(puts)-1].Seq, deletes[0].Seq)
	}
	// What the process had written at this moment, before it can finish anything.
	var disk *mem.FS
	bucket := n.Bucket.CloneAnd(func() { disk = n.FS.KillCopy() })
	close(held)
	n.Shutdown()
	killed, err := testenv.Open(t, n.Config, disk, bucket)
	if err != nil {
		t.Fatal(err)
	}
	agree(t, "after a kill in the middle", killed, start, times)
	rebuilt := killed.Rebuild()
	agree(t, "after a rebuild", rebuilt, start, times)
	retain(t, rebuilt)
	noOrphans(t, rebuilt)
	agree(t, "at the end", rebuilt, start, times)
}

// TestReport057StartAfterALostCheckpoint: the disk forgot its log start, the
// control plane did not.
func TestReport057StartAfterALostCheckpoint(t *testing.T) {
	for name, change := range map[string]func(n *testenv.Node, old []byte) error{
		"an old checkpoint": func(n *testenv.Node, old []byte) error { return fsys.WriteFileAtomic(n.FS, checkpoint, old, 0o644) },
		"no checkpoint":     func(n *testenv.Node, _ []byte) error { return n.FS.Remove(checkpoint) },
	} {
		t.Run(name, func(t *testing.T) {
			n := testenv.Start(t)
			n.CreateTopic("log", 1, kept("local.retention.bytes", "0"))
			times := steps(60)
			writeAt(t, n, 0, times...)
			rollAndCopy(t, n)
			retain(t, n)
			mustDeleteBelow(t, n, 10, 10)
			n.Shutdown()
			old, err := fsys.ReadFile(n.FS, checkpoint)
			if err != nil {
				t.Fatal(err)
			}
			n = again(t, n)
			mustDeleteBelow(t, n, 40, 40)
			n.Shutdown()
			if err := change(n, old); err != nil {
				t.Fatal(err)
			}
			n = again(t, n)
			agree(t, "after the start", n, 40, times)
		})
	}
}

// again starts a node on what one that was shut down has left.
func again(t *testing.T, n *testenv.Node) *testenv.Node {
	t.Helper()
	next, err := testenv.Open(t, n.Config, n.FS, n.Bucket)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

const checkpoint = testenv.DataDir + "/log-start-offset-checkpoint"

// objects counts the records objects in the bucket.
func objects(n *testenv.Node) int {
	count := 0
	for _, key := range n.Bucket.Keys("topics/") {
		if strings.HasSuffix(key, ".log") {
			count++
		}
	}
	return count
}

// TestReport108PauseAndSwitchOff alters settings in sequence: which retention holds
// locally, what stays readable, what is refused, what goes.
func TestReport108PauseAndSwitchOff(t *testing.T) {
	n := testenv.Start(t)
	n.CreateTopic("log", 1, kept("local.retention.bytes", "0"))
	times := steps(60)
	writeAt(t, n, 0, times...)
	rollAndCopy(t, n)
	retain(t, n)
	ctx, cancel := n.Context()
	defer cancel()
	detail := func() client.Partition {
		t.Helper()
		d, err := n.Admin().Topic(ctx, "log")
		if err != nil {
			t.Fatal(err)
		}
		return d.Detail[0]
	}
	copied := objects(n)
	if p := detail(); copied == 0 || p.LocalSegments != 1 || p.LocalLogStart != 60 {
		t.Fatalf("%d objects, %+v", copied, p)
	}

	alter(t, n, "remote.log.copy.disable", "true")
	times = append(times, steps(40)...)
	writeAt(t, n, 60, times[60:]...)
	if err := n.Admin().Roll(ctx, "log", 0); err != nil {
		t.Fatal(err)
	}
	retain(t, n)
	if p := detail(); objects(n) != copied || p.LocalLogStart != 60 {
		t.Errorf("copies are paused: %d objects, want %d; local.retention.bytes does not count: %+v", objects(n), copied, p)
	}
	agree(t, "paused", n, 0, times)
	n = n.Restart()
	agree(t, "paused, restarted", n, 0, times)

	alter(t, n, "remote.log.copy.disable", "false")
	rollAndCopy(t, n)
	retain(t, n)
	if p := detail(); objects(n) <= copied || p.LocalLogStart != 100 {
		t.Errorf("copies go on: %d objects after %d, %+v", objects(n), copied, p)
	}
	agree(t, "going on", n, 0, times)

	times = append(times, steps(5)...)
	writeAt(t, n, 100, times[100:]...)
	err := alterBy(t, n, "remote.storage.enable", "false")
	if !errors.Is(err, kerr.InvalidConfig) || !strings.Contains(err.Error(), "100 offsets") || !strings.Contains(err.Error(), "remote.log.copy.disable=true") {
		t.Errorf("switching off without a word on what is in the bucket: %v", err)
	}
	agree(t, "refused", n, 0, times)
	effects, err := n.Admin().CheckConfigs(ctx, "log", map[string]*string{"remote.storage.enable": new("false"), "remote.log.delete.on.disable": new("true")})
	if err != nil || len(effects) != 1 || effects[0].NewLogStart != 100 || effects[0].RemoteBytes == 0 {
		t.Errorf("%+v, %v", effects, err)
	}
	agree(t, "checked only", n, 0, times)
	alter(t, n, "remote.log.delete.on.disable", "true", "remote.storage.enable", "false")
	retain(t, n)
	agree(t, "switched off", n, 100, times)
	if got := objects(n); got != 0 {
		t.Errorf("%d objects are left", got)
	}
	n = n.Restart()
	agree(t, "switched off, restarted", n, 100, times)
}

// TestReport012SwitchedOnWithoutABucket: remote storage and a tiny local limit are
// switched on for a live topic while the bucket refuses everything. Nothing is
// freed that is not copied.
func TestReport012SwitchedOnWithoutABucket(t *testing.T) {
	n := testenv.Start(t)
	n.CreateTopic("log", 1, kept("remote.storage.enable", "false"))
	times := steps(60)
	writeAt(t, n, 0, times...)
	n.Bucket.Add(memory.Fault{Key: "topics/", Sticky: true, Err: remote.ErrUnavailable})
	alter(t, n, "remote.storage.enable", "true", "local.retention.bytes", "1", "local.retention.ms", "1")
	ctx, cancel := n.Context()
	defer cancel()
	for range 3 {
		_ = n.Admin().Retain(ctx, "log", 0, true) // what it cannot do it may say
		agree(t, "while the bucket is away", n, 0, times)
	}
	d, err := n.Admin().Topic(ctx, "log")
	if err != nil || d.Detail[0].LocalLogStart != 0 || d.Detail[0].CopyLagBytes == 0 {
		t.Errorf("%+v, %v", d.Detail, err)
	}
	n = n.Restart()
	agree(t, "restarted", n, 0, times)
	n.Bucket.Clear()
	rollAndCopy(t, n)
	retain(t, n)
	if d, err = n.Admin().Topic(ctx, "log"); err != nil || d.Detail[0].LocalLogStart != 60 {
		t.Errorf("once all is copied: %+v, %v", d.Detail, err)
	}
	agree(t, "from the bucket", n, 0, times)
}

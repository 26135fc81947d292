package gateway

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/fsys/mem"
	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

// world is what a crash leaves: a disk, and the bucket of that moment.
type world struct {
	after  fsys.Op
	disk   *mem.FS
	bucket *memory.Bucket
}

// TestReport129CrashAtEveryOperationOfADeletion: whenever the power goes, the
// topic is whole afterwards or gone from disk, control plane and bucket; its
// neighbour has every record.
func TestReport129CrashAtEveryOperationOfADeletion(t *testing.T) {
	c := testConfig(t)
	c.DataDir = "/data"
	disk, b := mem.New(), memory.New()
	n, err := Start(t.Context(), c, Deps{FS: disk, Bucket: b})
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]tiers.TopicID{}
	for _, name := range []string{"kept", "doomed"} {
		ids[name] = fillTopic(t, n, name)
	}
	var (
		mu     sync.Mutex
		worlds []world
	)
	disk.OnOp(func(op fsys.Op) {
		mu.Lock()
		defer mu.Unlock()
		worlds = append(worlds, world{op, disk.SyncedCopy(), b.Clone()}, world{op, disk.KillCopy(), b.Clone()}, world{op, disk.CrashCopy(uint64(len(worlds))), b.Clone()})
	})
	if err := n.Broker().DeleteTopic(t.Context(), ids["doomed"]); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the objects go", func() bool { return len(b.Keys(remote.TopicPrefix(ids["doomed"]))) == 0 })
	disk.OnOp(nil)
	stopNode(t, n)
	mu.Lock()
	defer mu.Unlock()
	whole, gone := 0, 0
	for _, w := range worlds {
		if w.check(t, c, ids) {
			whole++
		} else {
			gone++
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("%d crashes: the topic was whole after %d and gone after %d", len(worlds), whole, gone)
	if whole == 0 || gone == 0 {
		t.Errorf("the crashes do not straddle the deletion: whole %d, gone %d", whole, gone)
	}
}

// fillTopic makes a topic of 20 records, all of them in both tiers.
func fillTopic(t *testing.T, n *Node, name string) tiers.TopicID {
	t.Helper()
	produceTo(t, n, name, 0, 20)
	a := adminClient(t, n)
	if err := errors.Join(a.Roll(t.Context(), name, 0), a.Copy(t.Context(), name, 0, true)); err != nil {
		t.Fatal(err)
	}
	topic, ok := n.Broker().Catalog().Topic(name)
	if !ok {
		t.Fatalf("no topic %s", name)
	}
	return topic.ID
}

// check starts a node in the world and reports whether the topic doomed is whole.
func (w world) check(t *testing.T, c Config, ids map[string]tiers.TopicID) bool {
	t.Helper()
	n, err := Start(t.Context(), c, Deps{FS: w.disk, Bucket: w.bucket})
	if err != nil {
		t.Fatalf("crash after %v: start: %v", w.after, err)
	}
	defer stopNode(t, n)
	end := func(topic string) tiers.Offset {
		var e tiers.Offset
		eventually(t, fmt.Sprintf("%s opens after a crash after %v", topic, w.after), func() bool {
			o, err := n.Broker().Owner(topic, 0)
			if err == nil {
				e = o.View().LogEnd
			}
			return err == nil
		})
		return e
	}
	if e := end("kept"); e != 20 || len(w.bucket.Keys(remote.TopicPrefix(ids["kept"]))) == 0 {
		t.Errorf("crash after %v: the neighbour ends at %d", w.after, e)
	}
	id := ids["doomed"]
	if _, ok := n.Broker().Catalog().TopicByID(id); ok {
		if e := end("doomed"); e != 20 || len(w.bucket.Keys(remote.TopicPrefix(id))) == 0 {
			t.Errorf("crash after %v: the topic is there and ends at %d", w.after, e)
		}
		return true
	}
	eventually(t, "the objects go", func() bool { return len(w.bucket.Keys(remote.TopicPrefix(id))) == 0 })
	files, err := w.disk.ReadDir(c.DataDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if strings.Contains(f.Name(), id.Hex()) {
			t.Errorf("crash after %v: %s is left", w.after, f.Name())
		}
	}
	return false
}

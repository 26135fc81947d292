package broker

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/go-hclog"

	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/gateway/control/model"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/batch"
	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/fsys/mem"
	"github.com/strandline-io/strandline/tiers/local"
	"github.com/strandline-io/strandline/tiers/partition"
	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

const dataDir = "/data"

// rig is what outlives a broker: disk, control plane and bucket.
type rig struct {
	t      *testing.T
	disk   *mem.FS
	faulty *fsys.Faulty
	store  control.Store
	bucket *memory.Bucket // nil: none
	change func(*Options) // applied to each start
	log    hclog.Logger
}

// node is one start.
type node struct {
	*Broker
	t     *testing.T
	disk  *local.Disk
	cache *remote.Cache
	claim *control.Claim
	once  sync.Once
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, disk: mem.New(), store: model.New(model.Options{}), bucket: memory.New(), log: hclog.NewNullLogger()}
	r.faulty = fsys.NewFaulty(r.disk)
	return r
}

// start starts a broker, which ends with the test.
func (r *rig) start() *node {
	r.t.Helper()
	n, err := r.tryStart()
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

func (r *rig) tryStart() (*node, error) {
	r.t.Helper()
	ctx := r.t.Context()
	n := &node{t: r.t}
	var err error
	if n.disk, err = local.OpenDisk(r.faulty, dataDir, r.log); err != nil {
		return nil, err
	}
	cluster, err := r.store.Cluster(ctx)
	if err != nil {
		return nil, err
	}
	o := Options{
		Node: Node{ID: 1, Cluster: cluster}, Store: r.store, FS: r.faulty, DataDir: dataDir, Disk: n.disk,
		Scheduler: partition.NewPool(2), AutoCreate: true, Log: r.log,
	}
	if r.bucket != nil {
		n.cache = remote.NewCache(r.bucket, remote.CacheOptions{})
		if n.claim, err = control.AcquireClaim(ctx, r.bucket, control.ClaimOptions{Cluster: cluster, Node: 1, Instance: uuid.NewString(), Now: time.Now}); err != nil {
			return nil, err
		}
	}
	if o.Session, err = r.store.OpenSession(ctx, 1); err != nil {
		return nil, err
	}
	if r.bucket != nil {
		j := control.NewJournal(r.bucket, r.store, n.claim, r.log)
		if err = j.Snapshot(ctx); err != nil {
			return nil, err
		}
		o.Journal, o.Claim, o.Cache = j, n.claim, n.cache
	}
	if r.change != nil {
		r.change(&o)
	}
	if n.Broker, err = Open(ctx, o); err != nil {
		return nil, err
	}
	r.t.Cleanup(n.end)
	return n, nil
}

// end stops the node as a clean shutdown does, once.
func (n *node) end() {
	n.once.Do(func() {
		ctx := context.WithoutCancel(n.t.Context())
		if err := n.Close(ctx); err != nil {
			n.t.Logf("close: %v", err)
		}
		if n.cache != nil {
			n.cache.Close()
		}
		if err := n.disk.Close(); err != nil {
			n.t.Logf("close disk: %v", err)
		}
	})
}

func (n *node) create(name string, partitions int32, configs ...string) control.Topic {
	n.t.Helper()
	set := map[string]*string{}
	for i := 0; i < len(configs); i += 2 {
		set[configs[i]] = &configs[i+1]
	}
	t, err := n.CreateTopic(n.t.Context(), CreateTopic{Name: name, Partitions: partitions, Replication: 1, Configs: set})
	if err != nil {
		n.t.Fatal(err)
	}
	return t
}

func (n *node) owner(topic string, index int32) *partition.Owner {
	n.t.Helper()
	o, err := n.Owner(topic, index)
	if err != nil {
		n.t.Fatal(err)
	}
	return o
}

// append writes one record and returns its offset.
func (n *node) append(topic string, index int32, value string) (tiers.Offset, error) {
	n.t.Helper()
	o, err := n.Owner(topic, index)
	if err != nil {
		return tiers.NoOffset, err
	}
	b, err := batch.Builder{ProducerID: -1}.Build([]batch.Record{{Timestamp: time.Now().UnixMilli(), Value: []byte(value)}})
	if err != nil {
		n.t.Fatal(err)
	}
	res, err := o.Append(n.t.Context(), partition.AppendRequest{Batch: b, AllowZstd: true})
	return res.Base, err
}

// fill writes records and has all of them copied to the bucket.
func (n *node) fill(topic string, index int32, records int) {
	n.t.Helper()
	for range records {
		if _, err := n.append(topic, index, strings.Repeat("x", 100)); err != nil {
			n.t.Fatal(err)
		}
	}
	o := n.owner(topic, index)
	if err := o.Roll(n.t.Context()); err != nil {
		n.t.Fatal(err)
	}
	if err := o.CopyAll(n.t.Context()); err != nil {
		n.t.Fatal(err)
	}
}

func wantKind(t *testing.T, what string, err error, want tiers.Kind, words ...string) {
	t.Helper()
	if err == nil || tiers.KindOf(err) != want {
		t.Errorf("%s: got %v, want %v", what, err, want)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s: %q does not say %q", what, err, w)
		}
	}
}

// eventually yields to background work until ok holds. In a synctest bubble time
// passes at once; elsewhere each round costs a millisecond.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range 60_000 {
		if ok() {
			return
		}
		<-tick.C
	}
	t.Fatalf("never happened: %s", what)
}

// Package broker is the directory of a node: which topics there are, who owns
// each of their partitions, and the operations on topics that the wire, the
// admin interface and the command line share, so that a rule is enforced once
// for all of them.
//
// Who owns what: the catalog is immutable and swapped whole, so look-ups take no
// lock. Whoever holds the operations token (Broker.ops) may change topics and
// swap the catalog. A slot owns the life of one partition's owner: opening,
// offline, open, closed.
//
// Invariants: a change is visible in the catalog only once it is in the bucket
// (where there is one) and the claim, read afterwards, is still this node's;
// objects of a deleted topic are removed only after the deletion is in the bucket
// and the topic's owners are closed, and never without a look at the claim right
// before; once the claim is lost nothing is acknowledged any more.
package broker

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/go-hclog"

	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/local"
	"github.com/strandline-io/strandline/tiers/partition"
	"github.com/strandline-io/strandline/tiers/remote"
)

// Journal puts changes into the bucket before they are answered.
// *control.Journal is the one of the product.
type Journal interface {
	Publish(ctx context.Context, rev control.Rev) error
	Snapshot(ctx context.Context) error
}

// Claim is this node's hold on the bucket. *control.Claim is the one of the
// product.
type Claim interface {
	Check(ctx context.Context) error
}

// Node describes this node to clients.
type Node struct {
	ID      tiers.NodeID
	Cluster string
	Rack    string
}

// Options say what a broker works with. Nothing of it changes.
type Options struct {
	Node      Node
	Session   control.Session
	Store     control.Store
	FS        fsys.FS
	DataDir   string
	Disk      *local.Disk
	Scheduler partition.Scheduler
	Metrics   *partition.Metrics // may be nil
	Log       hclog.Logger

	// What a bucket brings; all three are nil without one.
	Journal Journal
	Claim   Claim
	Cache   *remote.Cache

	Defaults          map[string]string // of topic settings, under Kafka's names
	Settings          []ConfigEntry     // of the node, for NodeConfigs
	AutoCreate        bool
	DefaultPartitions int32 // 0: 1
	AnyReplication    bool  // accept any replication factor and keep one copy

	OpenAtOnce      int           // partitions that recover at the same time; 0: 8
	ClaimEvery      time.Duration // how often the claim is read again; 0: 10 s
	SnapshotEvery   time.Duration // how often the control plane goes to the bucket; 0: 5 min
	RetainEvery     time.Duration // between two retention passes of a partition; 0: 5 min
	CheckpointEvery time.Duration // how often the recovery points are written; 0: 5 s

	// RowsSince is when this control plane began to keep the rows of the bucket:
	// it was made, rebuilt or took the bucket over then. Of what was uploaded
	// earlier nobody knows whether it is needed. Zero: it always kept them.
	RowsSince  time.Time
	SnapshotAt time.Time // of the snapshot that the caller has written
	ClaimAt    time.Time // when the caller took the claim

	NewID func() tiers.SegmentID // nil: random
	Now   func() time.Time       // nil: time.Now
}

func (o Options) withDefaults() Options {
	orElse(&o.OpenAtOnce, 8)
	orElse(&o.DefaultPartitions, 1)
	orElse(&o.ClaimEvery, 10*time.Second)
	orElse(&o.SnapshotEvery, 5*time.Minute)
	orElse(&o.CheckpointEvery, 5*time.Second)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.NewID == nil {
		o.NewID = func() tiers.SegmentID { return tiers.SegmentID(uuid.New()) }
	}
	if o.Log == nil {
		o.Log = hclog.NewNullLogger()
	}
	return o
}

func orElse[T comparable](v *T, otherwise T) {
	var zero T
	if *v == zero {
		*v = otherwise
	}
}

// Broker is the directory. All methods are safe for concurrent use.
type Broker struct {
	o        Options
	settings *topicSettings
	catalog  atomic.Pointer[Catalog]
	fenced   atomic.Pointer[tiers.Error]

	// ops holds one token. Its holder owns seen and may change topics.
	ops  chan struct{}
	seen control.Rev // changes up to here are in the bucket and in the catalog

	openings  chan struct{} // one token per partition that recovers
	producers producerIDs
	retiring  retirements
	registry  partition.Registry

	life       context.Context // ends with Close
	endLife    context.CancelFunc
	tasks      sync.WaitGroup
	closing    atomic.Bool
	flushes    chan struct{} // asks for a flush in the background
	burials    chan struct{} // asks for a look at doomed segments
	reopens    chan struct{} // asks for a look at partitions that failed
	rows       rowsAsOf
	sweeps     sweeps
	publishing atomic.Pointer[tiers.Error] // why the last change is not in the bucket yet
	snapshotAt atomic.Pointer[time.Time]
	claim      claimWatch
	reads      claimReads
}

// Open reads the topics and starts to open their partitions. It does not wait
// for them: a partition that recovers answers NotLeader meanwhile, one that
// cannot be opened is offline and keeps no other from serving.
func Open(ctx context.Context, o Options) (*Broker, error) {
	o = o.withDefaults()
	settings, err := newTopicSettings(o.Cache != nil, o.Defaults)
	if err != nil {
		return nil, err
	}
	b := &Broker{
		o:        o,
		settings: settings,
		ops:      make(chan struct{}, 1),
		openings: make(chan struct{}, o.OpenAtOnce),
		flushes:  make(chan struct{}, 1),
		burials:  make(chan struct{}, 1),
		reopens:  make(chan struct{}, 1),
	}
	b.registry = control.RegistryOf(o.Store, o.Session, b.remember)
	b.producers.turn = make(chan struct{}, 1)
	b.sweeps.turn = make(chan struct{}, 1)
	b.life, b.endLife = context.WithCancel(context.WithoutCancel(ctx))
	b.catalog.Store(newCatalog(nil))
	b.snapshotAt.Store(&o.SnapshotAt)
	b.claim.at = o.ClaimAt
	if err := b.start(ctx); err != nil {
		b.endLife()
		return nil, err
	}
	return b, nil
}

func (b *Broker) start(ctx context.Context) error {
	const op = "open broker"
	st, err := b.o.Store.Dump(ctx)
	if err != nil {
		return tiers.E(tiers.Other, op, "control plane", "read topics: %w", err)
	}
	if err := b.checkLeaders(st.Topics); err != nil {
		return err
	}
	if err := b.finishRemovals(st.Topics); err != nil {
		return err
	}
	b.seen = st.Rev
	b.install(st.Topics)
	b.startTasks()
	return nil
}

// checkLeaders refuses to run beside partitions that another node id leads: this
// node would never serve them, and nobody else is there to.
func (b *Broker) checkLeaders(topics []control.Topic) error {
	for _, t := range topics {
		for _, p := range t.Partitions {
			if p.Leader != b.o.Node.ID {
				return tiers.E(tiers.InvalidConfig, "open broker", t.Name,
					"partition %d belongs to node %d and this is node %d: start with node.id %d", p.Index, p.Leader, b.o.Node.ID, p.Leader)
			}
		}
	}
	return nil
}

// startTasks starts what runs until Close.
func (b *Broker) startTasks() {
	b.task(b.flushOnDemand)
	b.task(b.checkpointForEver)
	b.task(b.guardForEver)
	if b.o.Cache != nil {
		b.task(b.buryForEver)
		b.wake(b.burials) // what an earlier run left
		b.task(b.sweepForEver)
	}
	if b.o.Claim != nil {
		b.task(b.watchClaim)
	}
	if b.o.Journal != nil {
		b.task(b.snapshotForEver)
	} else {
		b.task(b.trimForEver)
	}
}

func (b *Broker) task(f func(context.Context)) {
	b.tasks.Go(func() { f(b.life) })
}

func (*Broker) wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // somebody asked already
	}
}

// Node returns who this node is.
func (b *Broker) Node() Node { return b.o.Node }

// Now is the node's clock.
func (b *Broker) Now() time.Time { return b.o.Now() }

// Fenced returns why this node must not answer any more, nil while it may.
func (b *Broker) Fenced() error {
	if e := b.fenced.Load(); e != nil {
		return e
	}
	return nil
}

// Catalog returns the latest picture.
func (b *Broker) Catalog() *Catalog { return b.catalog.Load() }

// Owner returns the owner of a partition: UnknownTopicOrPartition, NotLeader
// while it opens or closes, StorageFailed with the reason while it is offline.
func (b *Broker) Owner(topic string, index int32) (*partition.Owner, error) {
	e, ok := b.Catalog().byName[topic]
	if !ok {
		return nil, tiers.E(tiers.UnknownTopicOrPartition, "find partition", topic, "there is no such topic")
	}
	return e.owner(index)
}

// OwnerByID is Owner for clients that use topic ids: UnknownTopicID.
func (b *Broker) OwnerByID(id tiers.TopicID, index int32) (*partition.Owner, error) {
	e, ok := b.Catalog().byID[id]
	if !ok {
		return nil, tiers.E(tiers.UnknownTopicID, "find partition", id.String(), "there is no topic with this id")
	}
	return e.owner(index)
}

// Settle waits until every partition that there is was tried once, or ctx ends.
func (b *Broker) Settle(ctx context.Context) { awaitTried(ctx, b.Catalog().slots()) }

// Close closes every partition (all acknowledged records are on disk then),
// puts a last snapshot into the bucket and ends the background work. If ctx ends
// first, copies under way are abandoned; nothing acknowledged is lost. A second
// call does nothing.
func (b *Broker) Close(ctx context.Context) error {
	if !b.closing.CompareAndSwap(false, true) {
		return nil
	}
	b.endLife()
	b.ops <- struct{}{} // never given back: no topic changes after Close
	b.tasks.Wait()
	err := b.closeSlots(ctx, b.Catalog().slots())
	if b.o.Journal != nil && b.fenced.Load() == nil {
		if serr := b.snapshot(ctx); serr != nil {
			err = errors.Join(err, tiers.E(tiers.Other, "close broker", "last snapshot", "%w", serr))
		}
	}
	return err
}

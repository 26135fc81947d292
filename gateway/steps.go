package gateway

// The steps of a start, in its order.

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/strandline-io/strandline/gateway/admin"
	"github.com/strandline-io/strandline/gateway/admin/client"
	"github.com/strandline-io/strandline/gateway/broker"
	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/gateway/control/sqlite"
	"github.com/strandline-io/strandline/gateway/groups"
	"github.com/strandline-io/strandline/gateway/kafka"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/local"
	"github.com/strandline-io/strandline/tiers/partition"
)

func (n *Node) openDisk(context.Context) error {
	disk, err := local.OpenDisk(n.d.FS, n.c.DataDir, n.d.Log.Named("disk"))
	if errors.Is(err, fsys.ErrLocked) {
		return tiers.E(tiers.Conflict, "start", n.c.DataDir, "another process uses this data directory: stop it, or give this node a data_dir of its own: %w", err)
	}
	if err != nil {
		return err
	}
	n.disk = disk
	disk.KeepFree(n.c.DiskMinFree)
	n.onStop("unlock the data directory", func(context.Context) error { return disk.Close() })
	return nil
}

// checkNewcomer refuses a data directory without a control plane on a bucket that
// holds a cluster: it would begin an empty cluster next to one whose local disk
// was lost.
func (n *Node) checkNewcomer(ctx context.Context) error {
	if n.d.Store != nil {
		return nil
	}
	_, err := n.d.FS.Stat(n.controlPath())
	if err == nil {
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return tiers.E(tiers.StorageFailed, "start", n.controlPath(), "%w", err)
	}
	if err := n.checkNoPartitions(); err != nil || n.bucket == nil {
		return err
	}
	rec, ok, err := control.ReadClaim(ctx, n.bucket)
	if err != nil {
		return tiers.E(tiers.RemoteUnavailable, "start", n.bucket.String(), "read the claim: %w", err)
	}
	if ok {
		return tiers.E(tiers.Conflict, "start", n.c.DataDir,
			"the data directory is empty and the bucket %s holds cluster %s: run `strandline rebuild --bucket URL --data %s` to bring it back, or choose another bucket prefix for a new cluster",
			n.bucket, rec.Cluster, n.c.DataDir)
	}
	return nil
}

// checkNoPartitions refuses a data directory that has lost its control plane: a
// new one would know nothing of the partitions whose folders are there.
func (n *Node) checkNoPartitions() error {
	entries, err := n.d.FS.ReadDir(n.c.DataDir)
	if err != nil {
		return tiers.E(tiers.StorageFailed, "start", n.c.DataDir, "%w", err)
	}
	for _, e := range entries {
		if e.IsDir() && e.Name() != lostFound && e.Name() != cacheFolder {
			return tiers.E(tiers.StorageFailed, "start", n.c.DataDir,
				"%s is missing, but there are folders of partitions (%s): put the file back; or, if the node has a bucket, "+
					"run `strandline rebuild --bucket URL --data OTHER` into another, empty directory, which brings back what was copied", ControlFile, e.Name())
		}
	}
	return nil
}

func (n *Node) controlPath() string { return n.c.DataDir + "/" + ControlFile }

func (n *Node) openStore(ctx context.Context) error {
	n.store = n.d.Store
	if n.store == nil {
		store, err := sqlite.Open(n.d.FS, n.controlPath(), sqlite.Options{Now: n.d.Now})
		if err != nil {
			return err
		}
		n.store = store
		n.onStop("close the control plane", func(context.Context) error { return store.Close() })
	}
	var err error
	n.cluster, err = n.store.Cluster(ctx)
	return err
}

// checkRemoteRows refuses to run with segments in a bucket that is not this one:
// reads of them would fail, and copies would go somewhere else.
func (n *Node) checkRemoteRows(ctx context.Context) error {
	st, err := n.store.Dump(ctx)
	if err != nil {
		return err
	}
	held := slices.ContainsFunc(st.Segments, func(s tiers.RemoteSegment) bool { return s.State == tiers.CopyFinished })
	if !held {
		return nil
	}
	if n.bucket == nil {
		return tiers.E(tiers.InvalidConfig, "start", n.c.DataDir, "some segments of this node are in a bucket: set bucket to the one that it had")
	}
	_, ok, err := control.ReadClaim(ctx, n.bucket)
	if err != nil {
		return tiers.E(tiers.RemoteUnavailable, "start", n.bucket.String(), "read the claim: %w", err)
	}
	if !ok {
		return tiers.E(tiers.InvalidConfig, "start", n.c.DataDir,
			"some segments of this node are in a bucket, but %s was never used by it: set bucket to the one that it had", n.bucket)
	}
	return nil
}

func (n *Node) takeClaim(ctx context.Context) error {
	if n.bucket == nil {
		n.d.Log.Warn("no bucket is configured: every record is on this disk only")
		return nil
	}
	o := control.ClaimOptions{
		Cluster: n.cluster, Node: tiers.NodeID(n.c.NodeID), Instance: uuid.NewString(), Now: n.d.Now, Log: n.d.Log.Named("claim"),
	}
	if n.d.Store == nil { // the rows are in this data directory, so it must be the one that goes on
		if err := n.rememberStart(ctx, &o); err != nil {
			return err
		}
	}
	if n.d.Store == nil {
		var err error
		if n.rows, err = rowsSince(n.d.FS, n.c.DataDir, n.d.Now(), n.d.TakeOver, n.d.Log); err != nil {
			return err
		}
	}
	n.claimAt = n.d.Now()
	claim, err := control.AcquireClaim(ctx, n.bucket, o)
	if err != nil {
		return err
	}
	n.claim = claim
	n.onStop("give the claim back", n.releaseClaim)
	return nil
}

// rememberStart notes this start in the data directory, and has the claim refused
// if a start of another one has it.
func (n *Node) rememberStart(ctx context.Context, o *control.ClaimOptions) error {
	known, err := readStarts(n.d.FS, n.c.DataDir)
	if err != nil && !n.d.TakeOver {
		return err
	}
	held, _, err := control.ReadClaim(ctx, n.bucket)
	if err != nil {
		return tiers.E(tiers.RemoteUnavailable, "start", n.bucket.String(), "read the claim: %w", err)
	}
	if n.d.TakeOver {
		n.d.Log.Warn("taking the bucket over, whoever used it last", "node", held.Node, "generation", held.Generation, "since", held.At)
	} else {
		o.Known = func(instance string) bool { return slices.Contains(known, instance) }
		if held.Instance != "" && !o.Known(held.Instance) {
			return nil // it will be refused: nothing is written
		}
	}
	return writeStarts(n.d.FS, n.c.DataDir, nextStarts(known, held.Instance, o.Instance))
}

func (n *Node) releaseClaim(ctx context.Context) error {
	err := n.claim.Release(ctx)
	if n.broker != nil && n.broker.Fenced() != nil && tiers.KindOf(err) == tiers.StaleFence {
		return nil // it is somebody else's; that was logged
	}
	return err
}

// openSession registers this start and makes its epochs durable in the bucket
// before anything is served: no rebuild can hand one of them out again.
func (n *Node) openSession(ctx context.Context) error {
	var err error
	if n.session, err = n.store.OpenSession(ctx, tiers.NodeID(n.c.NodeID)); err != nil {
		return err
	}
	if n.bucket == nil {
		return nil
	}
	n.journal = control.NewJournal(n.bucket, n.store, n.claim, n.d.Log.Named("journal"))
	return n.journal.Snapshot(ctx)
}

func (n *Node) openBroker(ctx context.Context) error {
	o := broker.Options{
		Node:              broker.Node{ID: tiers.NodeID(n.c.NodeID), Cluster: n.cluster, Rack: n.c.NodeRack},
		Session:           n.session,
		Store:             n.store,
		FS:                n.d.FS,
		DataDir:           n.c.DataDir,
		Disk:              n.disk,
		Scheduler:         n.d.Scheduler,
		Metrics:           partition.NewMetrics(n.d.Registry),
		Log:               n.d.Log.Named("broker"),
		Defaults:          n.c.Topics.Defaults,
		Settings:          n.c.kafkaNames(),
		AutoCreate:        n.c.Topics.AutoCreate,
		DefaultPartitions: int32(n.c.Topics.DefaultPartitions),
		AnyReplication:    n.c.Topics.AcceptAnyReplication,
		SnapshotEvery:     n.c.SnapshotInterval,
		RetainEvery:       n.c.RetentionCheck,
		Now:               n.d.Now,
	}
	if o.Scheduler == nil {
		n.pool = partition.NewPool(int(n.c.CopyWorkers))
		o.Scheduler = n.pool
	}
	if n.bucket != nil { // a nil pointer in an interface would not be nil
		o.Journal, o.Claim, o.Cache = n.journal, n.claim, n.cache
		o.SnapshotAt = n.d.Now() // openSession has written one
		o.ClaimAt = n.claimAt
		o.RowsSince = n.rows
	}
	b, err := broker.Open(ctx, o)
	if err != nil {
		return err
	}
	n.broker = b
	n.d.Registry.MustRegister(healthMetrics(b, n.d.Version), pressureMetrics(b.Lags, n.pool, n.d.Now))
	if n.gate != nil {
		n.gate.Meter().KnowTopics(func(id tiers.TopicID) bool {
			_, known := b.Catalog().TopicByID(id)
			return known
		})
	}
	n.onStop("close the partitions", b.Close)
	return nil
}

func (n *Node) openAdmin(ctx context.Context) error {
	shown := n.d.Config
	if shown == nil {
		shown = (&Loaded{Config: n.c}).Entries()
	}
	keys := make([]client.ConfigKey, len(shown))
	for i, e := range shown {
		keys[i] = client.ConfigKey(e)
	}
	n.admin = admin.New(admin.Options{
		Listen: n.c.Admin.Listen, Broker: n.broker, Gatherer: n.d.Registry, Version: n.d.Version,
		Kafka: n.advertised, Bucket: n.bucketName(), Gate: n.gate, Prices: n.c.Prices, Pool: n.pool, Config: keys, Unready: n.unready, Log: n.d.Log.Named("admin"),
	})
	if err := n.admin.Start(ctx); err != nil {
		return err
	}
	n.onStop("stop the admin interface", n.admin.Shutdown)
	return nil
}

// unready says why clients should not be sent here.
func (n *Node) unready() string {
	switch {
	case n.draining.Load():
		return "the node is stopping"
	case !n.serving.Load():
		return "the node is starting"
	}
	return ""
}

func (n *Node) advertised() []string {
	if n.c.Kafka.Advertised != "" {
		return []string{n.c.Kafka.Advertised}
	}
	if n.serving.Load() {
		return []string{n.KafkaAddr()}
	}
	return []string{}
}

// settleTime is how long clients are kept out while partitions open. One that
// comes too early is told to ask again, and asks seconds later; those that take
// longer to recover keep no other from serving.
const settleTime = 2 * time.Second

func (n *Node) settle(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	n.broker.Settle(bounded)
	return ctx.Err()
}

func (n *Node) openKafka(ctx context.Context) error {
	l := kafka.Listener{Name: kafkaListener, Address: n.c.Kafka.Listen}
	if a := n.c.Kafka.Advertised; a != "" {
		host, digits, err := net.SplitHostPort(a)
		if err != nil {
			return tiers.E(tiers.InvalidConfig, "start", "kafka.advertised", "%w", err)
		}
		port, err := strconv.Atoi(digits)
		if err != nil {
			return tiers.E(tiers.InvalidConfig, "start", "kafka.advertised", "%w", err)
		}
		l.AdvertisedHost, l.AdvertisedPort = host, port
	}
	server, err := kafka.New(kafka.Options{
		Broker:     n.broker,
		Groups:     groups.New(n.broker, n.store, n.session),
		Listeners:  []kafka.Listener{l},
		Limits:     n.c.Kafka.limits(),
		Log:        n.d.Log.Named("kafka"),
		Registerer: n.d.Registry,
	})
	if err != nil {
		return tiers.E(tiers.InvalidConfig, "start", "kafka", "%w", err)
	}
	if err := server.Start(ctx); err != nil {
		return tiers.E(tiers.Other, "start", n.c.Kafka.Listen, "%w (change kafka.listen, or stop what uses the port)", err)
	}
	n.kafka = server
	n.onStop("stop serving Kafka clients", n.stopKafka)
	return nil
}

// stopKafka leaves half of the time to the partitions.
func (n *Node) stopKafka(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, n.c.DrainTimeout/2)
	defer cancel()
	return n.kafka.Shutdown(ctx)
}

func (k KafkaConfig) limits() kafka.Limits {
	return kafka.Limits{
		MaxRequestBytes:       int(k.MaxRequestBytes),
		InFlightRequestBytes:  int(k.InFlightRequestBytes),
		InFlightResponseBytes: int(k.InFlightResponseBytes),
		FetchMaxBytes:         int(k.FetchMaxBytes),
		FetchSessions:         int(k.FetchSessions),
		MaxConnections:        int(k.MaxConnections),
		MaxConnectionsPerIP:   int(k.MaxConnectionsPerIP),
		MaxFetchWait:          k.MaxFetchWait,
		IdleTimeout:           k.IdleTimeout,
		OffsetMetadataBytes:   groups.MaxMetadata,
	}
}

// Package gateway is one node: its configuration (config.go, load.go,
// validate.go), its start and its stop.
//
// A Node owns everything that Start opened: it closes it in the reverse order,
// and a start that fails on the way closes what it had opened. What the caller
// passes in (Deps) stays the caller's.
//
// Invariants: nothing is opened in a data directory without its lock; nothing is
// written to a bucket without its claim, but for the objects of the self-test,
// which have names of their own and are gone before the claim is asked for;
// nothing is served before the epochs of this start are in the bucket.
package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/strandline-io/strandline/gateway/admin"
	"github.com/strandline-io/strandline/gateway/broker"
	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/gateway/kafka"
	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/local"
	"github.com/strandline-io/strandline/tiers/partition"
	"github.com/strandline-io/strandline/tiers/remote"
)

// kafkaListener names the listener of clients.
const kafkaListener = "PLAINTEXT"

// ControlFile is the control plane's file in a data directory.
const ControlFile = "control.db"

// Deps is what a node is handed besides its configuration. Every field may be
// left out.
type Deps struct {
	FS        fsys.FS              // nil: the machine's
	Store     control.Store        // nil: SQLite in the data directory
	Bucket    remote.Bucket        // nil: what Config.Bucket names
	Scheduler partition.Scheduler  // nil: a pool of Config.CopyWorkers
	Registry  *prometheus.Registry // nil: one of the node's own
	Log       hclog.Logger         // nil: nothing is logged
	Now       func() time.Time     // nil: time.Now
	Version   string               // of the program
	TakeOver  bool                 // take the bucket although another data directory used it since
	Config    []Entry              // what /v1/config shows; nil: Config without sources
}

// Node is a running node.
type Node struct {
	c Config
	d Deps

	disk    *local.Disk
	store   control.Store
	bucket  remote.Bucket   // nil: none
	gate    *remote.Gate    // nil: no bucket
	pool    *partition.Pool // nil: Deps.Scheduler runs the jobs
	cache   *remote.Cache   // nil: no bucket
	claim   *control.Claim
	claimAt time.Time // when it was taken
	rows    time.Time // since when the control plane has kept the rows of the bucket
	journal *control.Journal
	session control.Session
	cluster string
	broker  *broker.Broker
	kafka   *kafka.Server
	admin   *admin.Server

	serving  atomic.Bool
	draining atomic.Bool
	undo     []undo // what Stop does, last first
	stop     sync.Once
	stopped  error
}

// undo closes one thing that Start opened.
type undo struct {
	what string
	f    func(context.Context) error
}

// Start starts a node, which serves when Start returns. The configuration must
// have passed Validate.
func Start(ctx context.Context, c Config, d Deps) (*Node, error) {
	n := &Node{c: c, d: d.withDefaults()}
	for _, step := range []func(context.Context) error{
		n.openDisk, n.openBucket, n.checkNewcomer, n.openStore, n.checkRemoteRows, n.takeClaim,
		n.openSession, n.openBroker, n.openAdmin, n.settle, n.openKafka,
	} {
		if err := step(ctx); err != nil {
			n.draining.Store(true)
			cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.DrainTimeout)
			defer cancel()
			return nil, errors.Join(err, n.unwind(cleanup))
		}
	}
	n.serving.Store(true)
	n.d.Log.Info("serving", "cluster", n.cluster, "node", c.NodeID, "kafka", n.KafkaAddr(), "admin", n.AdminAddr(), "bucket", n.bucketName())
	return n, nil
}

func (d Deps) withDefaults() Deps {
	if d.FS == nil {
		d.FS = fsys.OS{}
	}
	if d.Log == nil {
		d.Log = hclog.NewNullLogger()
	}
	if d.Now == nil {
		d.Now = time.Now
	}
	if d.Registry == nil {
		d.Registry = prometheus.NewRegistry()
		d.Registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	}
	return d
}

// onStop adds what has to be closed at the end.
func (n *Node) onStop(what string, f func(context.Context) error) {
	n.undo = append(n.undo, undo{what, f})
}

// unwind closes everything, the last opened first, whatever fails on the way.
func (n *Node) unwind(ctx context.Context) error {
	var errs []error
	for _, u := range slices.Backward(n.undo) {
		if err := u.f(ctx); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", u.what, err))
		}
	}
	n.undo = nil
	return errors.Join(errs...)
}

// Stop drains the node: it is no longer ready, takes no connections, answers what
// is under way, closes the partitions with everything on disk, writes a last
// snapshot, gives the claim back and unlocks the data directory. It takes at most
// Config.DrainTimeout, and less if ctx ends: requests and copies are cut off
// then, nothing acknowledged is lost. A second call waits for the first.
func (n *Node) Stop(ctx context.Context) error {
	n.stop.Do(func() {
		n.draining.Store(true)
		n.d.Log.Info("stopping", "at most", n.c.DrainTimeout)
		bounded, cancel := context.WithTimeout(ctx, n.c.DrainTimeout)
		defer cancel()
		n.stopped = n.unwind(bounded)
		n.d.Log.Info("stopped", "err", n.stopped)
	})
	return n.stopped
}

// Broker is the node's directory.
func (n *Node) Broker() *broker.Broker { return n.broker }

// Bucket is the node's bucket, nil if it has none.
func (n *Node) Bucket() remote.Bucket { return n.bucket }

// Cluster is the cluster's id.
func (n *Node) Cluster() string { return n.cluster }

// KafkaAddr is the address that Kafka clients reach.
func (n *Node) KafkaAddr() string {
	if a := n.kafka.Addr(kafkaListener); a != nil {
		return a.String()
	}
	return ""
}

// AdminAddr is the address of the admin interface.
func (n *Node) AdminAddr() string { return n.admin.Addr() }

func (n *Node) bucketName() string {
	if n.bucket == nil {
		return ""
	}
	return n.bucket.String()
}

// NewLogger is the log that a configuration asks for.
func NewLogger(c Config, w io.Writer) hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{
		Name: "strandline", Level: hclog.LevelFromString(c.LogLevel), JSONFormat: c.LogFormat == "json", Output: w,
		TimeFn: func() time.Time { return time.Now().UTC() },
	})
}

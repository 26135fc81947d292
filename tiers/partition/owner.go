package partition

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/semaphore"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/local"
	"github.com/strandline-io/strandline/tiers/plan"
	"github.com/strandline-io/strandline/tiers/remote"
)

// Ack says when an append is acknowledged.
type Ack uint8

// The ack modes (strandline.ack).
const (
	AckFsync    Ack = iota // after fsync: survives power loss
	AckInterval            // after the write; synced every FlushEvery
	AckOS                  // after the write; the operating system decides
)

// Config is what a topic's settings mean to its partitions. It can change while
// an owner runs (Configure).
type Config struct {
	Local           local.Config
	Ack             Ack
	FlushEvery      time.Duration // of AckInterval
	MaxMessageBytes int64
	LogAppendTime   bool          // message.timestamp.type
	TimestampBefore time.Duration // message.timestamp.before.max.ms; 0: no limit
	TimestampAfter  time.Duration // message.timestamp.after.max.ms; 0: no limit
	Remote          bool          // remote.storage.enable
	Retention       Retention
}

// Retention says what of a log goes by itself. Its zero value keeps everything.
type Retention struct {
	On    bool
	Total plan.Limits // retention.*
	Local plan.Limits // local.retention.*; never wider than Total
	// CopyPaused stops the copies (remote.log.copy.disable, KIP-950): Total then
	// holds for local segments too, and what is in the bucket stays readable until
	// it is due (report 108).
	CopyPaused bool
	// ForgetRemote has everything that is in the bucket only deleted, once Remote
	// is off: the log then starts where the disk does
	// (remote.log.delete.on.disable, KIP-950).
	ForgetRemote bool
	// Delay is how long objects stay after their row has gone to DeleteStarted,
	// for readers that are on them still (file.delete.delay.ms, report 047).
	Delay time.Duration
}

// check refuses what no partition can run with.
func (c Config) check(place string) error {
	switch {
	case c.Local.SegmentBytes <= 0:
		return tiers.E(tiers.InvalidConfig, "configure", place, "segment.bytes is %d: it must be above 0", c.Local.SegmentBytes)
	case c.Ack > AckOS:
		return tiers.E(tiers.InvalidConfig, "configure", place, "ack mode %d is not known: use fsync, interval or os", c.Ack)
	case c.Ack == AckInterval && c.FlushEvery <= 0:
		return tiers.E(tiers.InvalidConfig, "configure", place, "ack mode interval needs an interval above 0, not %s", c.FlushEvery)
	}
	return nil
}

// Identity is which partition an owner owns.
type Identity struct {
	ID    tiers.PartitionID
	Name  tiers.TopicPartition
	Gen   tiers.HistoryGen
	Epoch tiers.LeaderEpoch // of this node's leadership
	Node  tiers.NodeID
	// LogStart is the log start in the control plane's row. The larger of it and
	// the disk's wins (report 057).
	LogStart tiers.Offset
}

// Fence goes with every change that an owner asks of the control plane, which
// compares it in the transaction that makes the change. A mismatch is an error
// of kind StaleFence and changes nothing.
type Fence struct {
	Partition tiers.PartitionID
	Gen       tiers.HistoryGen
	Epoch     tiers.LeaderEpoch
	NodeEpoch int64 // filled in by the implementation
}

// Registry is what an owner needs of the control plane: the rows of its remote
// segments (spec s6.1). gateway/control implements it.
type Registry interface {
	// Segments returns every row of the partition's history, in order of base.
	Segments(ctx context.Context, id tiers.PartitionID, gen tiers.HistoryGen) ([]tiers.RemoteSegment, error)
	// CopyStarted adds a row in state CopyStarted.
	CopyStarted(ctx context.Context, f Fence, s tiers.RemoteSegment) error
	// CopyFinished moves the row to CopyFinished and stores the facts of s.
	CopyFinished(ctx context.Context, f Fence, s tiers.RemoteSegment) error
	// DeleteStarted moves the row to DeleteStarted.
	DeleteStarted(ctx context.Context, f Fence, id tiers.SegmentID) error
	// DeleteFinished removes the row, which must be in DeleteStarted.
	DeleteFinished(ctx context.Context, f Fence, id tiers.SegmentID) error
	// RaiseLogStart moves the partition's log start up and returns once that is
	// remembered wherever a rebuild would look: in the control plane and, if there
	// is a bucket, in the bucket (R8). A lower offset changes nothing. The error is
	// RemoteUnavailable if the control plane has it, and it is not certain that the
	// bucket does: it is asked for again then. With any other nothing was written.
	RaiseLogStart(ctx context.Context, f Fence, o tiers.Offset) error
}

// Deps is what an owner is handed. Nothing of it changes.
type Deps struct {
	FS        fsys.FS
	Dir       string // of this partition
	Disk      *local.Disk
	Cache     *remote.Cache // nil: no bucket
	Registry  Registry
	Scheduler Scheduler
	Cluster   string
	// MayDelete is asked right before objects that rows name are deleted: whether
	// this node's claim on the bucket still holds. An error means that nothing may
	// be deleted now. Nil: always.
	MayDelete func(ctx context.Context) error
	// RetainEvery is the time between two retention passes; 0: 5 min, as Kafka's
	// log.retention.check.interval.ms.
	RetainEvery time.Duration
	// Acknowledged is the high watermark that an earlier owner of this process had.
	// A log that ends below it has lost records that were promised, and is not
	// opened unless AcceptLoss, and then goes on there. 0: there was none.
	Acknowledged tiers.Offset
	AcceptLoss   bool
	Now          func() time.Time
	NewID        func() tiers.SegmentID
	Log          hclog.Logger
	Metrics      *Metrics // may be nil
	// Jitter spreads the tries of many owners over a delay. Nil: somewhere
	// between half of it and all of it.
	Jitter func(time.Duration) time.Duration
	// QueueBytes bounds the bytes of appends that wait for the loop: callers
	// beyond it wait at the door. 0: 32 MiB.
	QueueBytes int64
}

// Owner is the door to one partition. All methods are safe for concurrent use.
type Owner struct {
	id    Identity
	deps  Deps
	place string // names the partition in errors

	config   atomic.Pointer[Config] // what Append validates with
	view     atomic.Pointer[View]
	subs     subscribers
	room     *semaphore.Weighted // bytes of appends under way
	roomSize int64

	// To the loop. All of them hand over without a queue, so whatever the loop
	// has not taken is still its sender's.
	appends  chan *appendCall
	mail     chan letter
	outcomes chan finished // holds maxJobs: a worker never waits for the loop

	fenced    atomic.Pointer[error]
	fenceOnce sync.Once
	fence     chan struct{} // closed after fenced was set

	closeOnce sync.Once
	closing   chan struct{}
	closeCtx  context.Context // of the first Close; set before closing is closed
	done      chan struct{}
	closeErr  error // set before done is closed
}

// Open opens the partition's local log, or starts an empty one at the end of the
// remote cover, and runs its loop until Close. It blocks while the log recovers.
func Open(ctx context.Context, id Identity, c Config, d Deps) (*Owner, error) {
	s, err := openState(ctx, id, c, d)
	if err != nil {
		return nil, err
	}
	o := newOwner(id, c, d)
	o.publish(s)
	go o.loop(s)
	return o, nil
}

// View returns the latest picture of the partition: never nil.
func (o *Owner) View() *View { return o.view.Load() }

// Identity is which partition this is.
func (o *Owner) Identity() Identity { return o.id }

// letter is a step that somebody wants the loop to take.
type letter struct {
	step func(*state)
	ran  chan struct{} // closed once the View shows what step did
}

// do has the loop take a step and waits until the View shows it. What step
// writes may be read only after do returned nil: if ctx ends first, step may
// still run.
func (o *Owner) do(ctx context.Context, op string, step func(*state)) error {
	if err := o.refusal(op); err != nil {
		return err
	}
	l := letter{step, make(chan struct{})}
	select {
	case o.mail <- l:
	case <-ctx.Done():
		return tiers.E(tiers.TimedOut, op, o.place, "%w", context.Cause(ctx))
	case <-o.done:
		return o.closed(op)
	}
	select {
	case <-l.ran:
		return nil
	case <-ctx.Done():
		return tiers.E(tiers.TimedOut, op, o.place, "the outcome is unknown: %w", context.Cause(ctx))
	}
}

// refusal is why the doors are shut, nil while they are open.
func (o *Owner) refusal(op string) error {
	if err := o.fencedErr(op); err != nil {
		return err
	}
	select {
	case <-o.closing:
		return o.closed(op)
	default:
		return nil
	}
}

func (o *Owner) closed(op string) error {
	return tiers.E(tiers.Closed, op, o.place, "the partition is being closed on this node")
}

func (o *Owner) fencedErr(op string) error {
	if reason := o.fenced.Load(); reason != nil {
		return tiers.E(tiers.NotLeader, op, o.place, "this node was replaced: %w", *reason)
	}
	return nil
}

// Fence stops the owner from acknowledging, answering or copying anything from
// now on, because this node or its hold on the bucket was replaced: every call
// fails with NotLeader and the reason. Only Close remains.
func (o *Owner) Fence(reason error) {
	o.fenceOnce.Do(func() {
		o.fenced.Store(&reason)
		close(o.fence)
	})
}

// Configure changes the settings.
func (o *Owner) Configure(ctx context.Context, c Config) (err error) {
	if err := c.check(o.place); err != nil {
		return err
	}
	var failed error
	if err := o.do(ctx, "configure", func(s *state) { failed = s.onConfigure(c) }); err != nil {
		return err
	}
	if failed == nil {
		o.config.Store(&c)
	}
	return failed
}

func (s *state) onConfigure(c Config) error {
	if err := s.offline(); err != nil {
		return err
	}
	stricter := c.Ack == AckFsync && s.config.Ack != AckFsync
	retains := c.Retention != s.config.Retention || c.Remote != s.config.Remote
	s.config = c
	s.local.Configure(c.Local)
	s.copyRetry = backoff{} // tiering may have been switched on
	if retains {
		s.onUnwish()
		s.retain.at = time.Time{}
	}
	if stricter {
		// What was acknowledged under the old mode is visible already: it must be
		// on disk before the first promise of the new one (P2).
		return s.sync()
	}
	return nil
}

// Roll closes the active segment now, if it holds records.
func (o *Owner) Roll(ctx context.Context) error {
	var failed error
	if err := o.do(ctx, "roll", func(s *state) { failed = s.onRoll() }); err != nil {
		return err
	}
	return failed
}

func (s *state) onRoll() error {
	if err := s.offline(); err != nil {
		return err
	}
	if err := s.local.Roll(); err != nil {
		return s.diskFailed("roll", err)
	}
	return nil
}

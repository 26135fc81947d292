package partition

import (
	"context"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/local"
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
}

// Identity is which partition an owner owns.
type Identity struct {
	ID    tiers.PartitionID
	Name  tiers.TopicPartition
	Gen   tiers.HistoryGen
	Epoch tiers.LeaderEpoch // of this node's leadership
	Node  tiers.NodeID
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
}

// Scheduler runs jobs away from the loop. The product's is a bounded pool; the
// tests' holds a job by its point (spec s14).
type Scheduler interface {
	// Go runs f on a worker, sooner or later. It does not block.
	Go(p Point, f func())
}

// Point names a border between two jobs.
type Point struct {
	Name      string // "copy.started", "copy.uploaded", ...
	Partition tiers.TopicPartition
	Offset    tiers.Offset // what the job is about, NoOffset if nothing
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
	Now       func() time.Time
	NewID     func() tiers.SegmentID
	Log       hclog.Logger
	Metrics   *Metrics // may be nil
}

// Owner is the door to one partition. All methods are safe for concurrent use.
type Owner struct{}

// Open opens the partition's local log, or starts an empty one at the end of the
// remote cover, and runs its loop until Close. It blocks while the log recovers.
func Open(ctx context.Context, id Identity, c Config, d Deps) (*Owner, error) { panic("contract") }

// View returns the latest picture of the partition: never nil.
func (o *Owner) View() *View { panic("contract") }

// Identity is which partition this is.
func (o *Owner) Identity() Identity { panic("contract") }

// Subscribe has c get a value, if it has room, whenever a View is published that
// a waiting fetch could want: more committed records, another epoch, the end.
// The returned function ends that.
func (o *Owner) Subscribe(c chan<- struct{}) (cancel func()) { panic("contract") }

// AppendRequest is one batch of a Produce request.
type AppendRequest struct {
	// Batch is exactly one record batch v2 as it came over the wire. Append
	// stamps it in place, so the caller must not use it afterwards.
	Batch []byte
	// AllowZstd is false for clients that are too old for it (Produce < 7).
	AllowZstd bool
}

// AppendResult is where a batch went.
type AppendResult struct {
	Base       tiers.Offset
	AppendTime int64 // milliseconds since 1970, -1 unless the topic stamps the append time
	LogStart   tiers.Offset
}

// Append validates the batch, gives it offsets, writes it and returns when the
// topic's ack mode is met. A duplicate of an idempotent producer's recent batch
// is a success with the offset that it got the first time. If ctx ends first the
// outcome is unknown to the caller: TimedOut.
func (o *Owner) Append(ctx context.Context, r AppendRequest) (AppendResult, error) {
	panic("contract")
}

// Isolation is a consumer's isolation level.
type Isolation int8

// The isolation levels, as on the wire.
const (
	ReadUncommitted Isolation = iota
	ReadCommitted
)

// ReadRequest asks for records.
type ReadRequest struct {
	From         tiers.Offset
	CurrentEpoch tiers.LeaderEpoch // what the client believes; NoEpoch: not given
	FetchedEpoch tiers.LeaderEpoch // LastFetchedEpoch; NoEpoch: not given
	MaxBytes     int
	MinOne       bool // the first batch may be larger than MaxBytes (KIP-74)
	Isolation    Isolation
	LocalOnly    bool
	Alloc        func(n int) []byte // nil: allocate
}

// ReadResult is what a read found.
type ReadResult struct {
	View      *View // what it was read under
	Records   []byte
	Aborted   []local.AbortedTxn // only for ReadCommitted
	Diverging *EpochEnd          // not nil: the client's history diverged; no records
	Remote    bool               // came from the bucket
}

// EpochEnd is a leader epoch and the offset at which it ends.
type EpochEnd struct {
	Epoch tiers.LeaderEpoch
	End   tiers.Offset
}

// Read returns whole batches from From on, from whichever tier holds them, and
// never waits for records to arrive; it does wait for the bucket, until ctx
// ends. The chunks then still arrive, for the next try. Error kinds:
// OffsetOutOfRange below LogStart or above the readable end (View is set),
// FencedLeaderEpoch, UnknownLeaderEpoch, NotLeader, RemoteUnavailable,
// StorageFailed, CorruptMessage.
func (o *Owner) Read(ctx context.Context, r ReadRequest) (ReadResult, error) { panic("contract") }

// Special timestamps of ListOffsets.
const (
	Latest                = -1
	Earliest              = -2
	MaxTimestamp          = -3 // KIP-734
	EarliestLocal         = -4 // KIP-405
	LatestTiered          = -5 // KIP-1005
	EarliestPendingUpload = -6 // KIP-1023
)

// OffsetAt is an answer of ListOffset.
type OffsetAt struct {
	Offset    tiers.Offset // NoOffset: there is none
	Timestamp int64        // -1: none
	Epoch     tiers.LeaderEpoch
}

// ListOffset answers a special timestamp or finds the first record with a
// timestamp >= ts over all tiers (spec s6.5).
func (o *Owner) ListOffset(ctx context.Context, ts int64, iso Isolation, current tiers.LeaderEpoch) (OffsetAt, error) {
	panic("contract")
}

// EpochEnd answers OffsetForLeaderEpoch: the largest epoch that is not above q
// and its end. Undefined is {NoEpoch, NoOffset}.
func (o *Owner) EpochEnd(current, q tiers.LeaderEpoch) (EpochEnd, error) { panic("contract") }

// Configure changes the settings.
func (o *Owner) Configure(ctx context.Context, c Config) error { panic("contract") }

// Fence stops the owner from acknowledging, answering or copying anything from
// now on, because this node or its hold on the bucket was replaced: every call
// fails with NotLeader and the reason. Only Close remains.
func (o *Owner) Fence(reason error) { panic("contract") }

// Roll closes the active segment now, if it holds records.
func (o *Owner) Roll(ctx context.Context) error { panic("contract") }

// CopyAll has every closed segment copied, and returns when RemoteEnd has reached
// the end of the last one that was closed at the call, or with the first error.
func (o *Owner) CopyAll(ctx context.Context) error { panic("contract") }

// Segments lists the segments of both tiers, by base.
func (o *Owner) Segments(ctx context.Context) ([]SegmentInfo, error) { panic("contract") }

// SegmentInfo is a segment in one or both tiers.
type SegmentInfo struct {
	Base, Next   tiers.Offset
	Tier         string // "local", "remote", "both"
	State        string // "active", "closed", "copying", or a tiers.SegmentState
	Bytes        int64
	MaxTimestamp int64
	Epochs       tiers.Lineage
	Key          string // of the records object
}

// Close refuses new work, lets workers end, syncs, closes the log cleanly and
// returns. If ctx ends first, copies are abandoned and the log is closed all the
// same.
func (o *Owner) Close(ctx context.Context) error { panic("contract") }

// View is an immutable picture of a partition.
type View struct {
	tiers.Watermarks
	History tiers.HistoryID
	Epoch   tiers.LeaderEpoch
	Lineage tiers.Lineage
	Err     error // not nil: the partition is offline or closed, and why
}

// Package local keeps the segments of one partition on local disk, in Kafka's
// own file formats: .log, .index, .timeindex, .txnindex, .snapshot,
// leader-epoch-checkpoint, and the checkpoint files of a disk.
//
// A Log belongs to the partition's owner: its methods are called from one
// goroutine, except those of a Snapshot, which any goroutine may read until it
// releases it.
package local

import (
	"io"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/batch"
	"github.com/strandline-io/strandline/tiers/fsys"
)

// Config is what a topic's settings say of its local files. It may change while
// a log is open (Configure).
type Config struct {
	SegmentBytes  int64         // segment.bytes
	SegmentAge    time.Duration // segment.ms
	IndexBytes    int64         // segment.index.bytes
	IndexInterval int64         // index.interval.bytes
}

// Options say which log to open and how.
type Options struct {
	FS     fsys.FS
	Dir    string // of the partition; files of a history are in Dir/h<gen>
	ID     tiers.PartitionID
	Name   tiers.TopicPartition // for messages
	Gen    tiers.HistoryGen
	Config Config
	// Disk owns the checkpoint files of the disk that Dir is on: recovery point
	// and log start come from it.
	Disk *Disk
	// Empty is where a log without files starts. A log that was lost while its
	// segments were in the bucket starts at the end of the remote cover, with
	// the lineage and the producers of the last segment.
	Empty Start
	Now   func() time.Time
	Log   hclog.Logger
}

// Start is the state that an empty log begins with.
type Start struct {
	LogStart  tiers.Offset  // first offset of the whole log, in any tier
	At        tiers.Offset  // LocalLogStart and LogEnd
	Lineage   tiers.Lineage // of [LogStart, At)
	Producers []byte        // producer snapshot at At, in Kafka's format; may be empty
}

// Recovery says what Open found.
type Recovery struct {
	Clean          bool         // nothing had to be scanned
	Scanned        int          // segments read batch by batch
	Bytes          int64        // bytes read
	TruncatedAt    tiers.Offset // NoOffset, or where a torn or corrupt tail was cut
	TruncatedBytes int64        // bytes that were cut
	RebuiltIndexes int          // index files made again from the log
	LostSegments   int          // segments dropped behind the cut
}

// Segment is the facts of one local segment: what plan decides on.
type Segment struct {
	Base         tiers.Offset
	Next         tiers.Offset // base of the segment after it; LogEnd for the active one
	Size         int64
	IndexSize    int64
	MaxTimestamp int64     // newest record timestamp, -1 if none
	FirstAppend  time.Time // first append to an active segment in this process or its first record's timestamp; zero if empty
	Modified     time.Time // of the .log file
	Active       bool
	HasAborted   bool
}

// Log is the local tier of one partition.
type Log struct{}

// Open opens or creates the log, recovering what was not shut down cleanly
// (spec s1.5): every segment from the one that holds the recovery point on is
// read batch by batch, its indexes, the lineage and the producer state are made
// again, and the first batch that is torn, out of order or has a wrong CRC ends
// the log. What is served after Open was synced first, and the checkpoint moves
// last (report 027).
func Open(o Options) (*Log, Recovery, error) { panic("contract") }

// Append writes data, the concatenation of stamped batches whose headers are in
// order in hs, at LogEnd: one write, no sync. The first must have base offset
// LogEnd. Lineage, indexes and producer state follow. On an error nothing of it
// is in the log; if even that cannot be assured, the log is Broken.
func (l *Log) Append(data []byte, hs []batch.Header) error { panic("contract") }

// Sync makes every record below LogEnd durable. After a failed sync the log is
// Broken: nobody knows what is on disk, so it must be opened again (fsyncgate).
func (l *Log) Sync() error { panic("contract") }

// Flushed is the end of what is durable: the recovery point (C1).
func (l *Log) Flushed() tiers.Offset { panic("contract") }

// Broken returns the error that ended this log, nil while it lives.
func (l *Log) Broken() error { panic("contract") }

// Roll closes the active segment and starts an empty one at LogEnd, with a
// producer snapshot at that offset. An empty active segment stays.
func (l *Log) Roll() error { panic("contract") }

// TruncateTo cuts the log so that it ends at o (T8): it counts as a truncation
// if o < LogEnd.
func (l *Log) TruncateTo(o tiers.Offset) error { panic("contract") }

// Restart drops everything and starts an empty log (full truncation).
func (l *Log) Restart(s Start) error { panic("contract") }

// DropBefore removes the closed segments that end at or below o from disk and
// moves LocalLogStart. It does not move LogStart. Files go only after readers
// have released them.
func (l *Log) DropBefore(o tiers.Offset) error { panic("contract") }

// RaiseLogStart moves LogStart up to o and writes it to the disk's checkpoint.
func (l *Log) RaiseLogStart(o tiers.Offset) error { panic("contract") }

// LogStart is the first offset of the whole log.
func (l *Log) LogStart() tiers.Offset { panic("contract") }

// LocalLogStart is the first offset on disk.
func (l *Log) LocalLogStart() tiers.Offset { panic("contract") }

// LogEnd is the offset of the next record.
func (l *Log) LogEnd() tiers.Offset { panic("contract") }

// FirstUndecided is the offset of the first record of the oldest open
// transaction, LogEnd if there is none: the last stable offset before it is
// clamped to the high watermark.
func (l *Log) FirstUndecided() tiers.Offset { panic("contract") }

// Lineage is the leader epochs of the log.
func (l *Log) Lineage() tiers.Lineage { panic("contract") }

// Assign records that epoch e starts at s, durably (T6).
func (l *Log) Assign(e tiers.LeaderEpoch, s tiers.Offset) error { panic("contract") }

// Truncations counts the effective truncations of this log (F1).
func (l *Log) Truncations() uint64 { panic("contract") }

// Producers is the state of idempotent and transactional producers.
func (l *Log) Producers() *Producers { panic("contract") }

// Segments are the facts of all segments in offset order, the active one last.
func (l *Log) Segments() []Segment { panic("contract") }

// Active is the facts of the active segment.
func (l *Log) Active() Segment { panic("contract") }

// Configure changes the settings.
func (l *Log) Configure(c Config) { panic("contract") }

// Snapshot returns an immutable picture of the segments for readers, holding a
// reference that the caller must release. Taking one is cheap enough for every
// published View: it is the same one until the log changes its segments, and
// the readable end is given per read.
func (l *Log) Snapshot() *Snapshot { panic("contract") }

// Close syncs and closes the files. clean says that the caller has stopped all
// writers, so that the next Open need not scan.
func (l *Log) Close() error { panic("contract") }

// Snapshot is a set of segments that stay readable, even if they are dropped
// meanwhile, until Release.
type Snapshot struct{}

// Retain takes one more reference.
func (s *Snapshot) Retain() { panic("contract") }

// Release gives one reference back. Files that were dropped meanwhile are closed
// and removed with the last one.
func (s *Snapshot) Release() { panic("contract") }

// Start is the first offset in it.
func (s *Snapshot) Start() tiers.Offset { panic("contract") }

// Read returns whole batches from the one that holds from on (or the next one,
// where compaction left a hole), none of which ends above end. At most maxBytes,
// except that with minOne the first batch may be larger. The bytes are read into
// memory from alloc (len n wanted, return a slice of len n); nil alloc allocates.
// An empty result means that there is no batch in [from, end). Bytes that do not
// parse as a batch header chain are an error of kind CorruptMessage, never an
// empty result.
func (s *Snapshot) Read(from, end tiers.Offset, maxBytes int, minOne bool, alloc func(n int) []byte) ([]byte, error) {
	panic("contract")
}

// FindTime returns the first record with timestamp >= ts and offset >= from and
// < end. ok is false if there is none.
func (s *Snapshot) FindTime(ts int64, from, end tiers.Offset) (o tiers.Offset, at int64, ok bool, err error) {
	panic("contract")
}

// MaxTimestamp returns the newest timestamp in [from,end) and the first offset
// that carries it.
func (s *Snapshot) MaxTimestamp(from, end tiers.Offset) (o tiers.Offset, at int64, ok bool, err error) {
	panic("contract")
}

// Aborted returns the aborted transactions that overlap [from, end), by first
// offset.
func (s *Snapshot) Aborted(from, end tiers.Offset) ([]AbortedTxn, error) { panic("contract") }

// Files opens the closed segment with this base for the copier.
func (s *Snapshot) Files(base tiers.Offset) (*SegmentFiles, error) { panic("contract") }

// AbortedTxn is one entry of a transaction index.
type AbortedTxn struct {
	ProducerID  int64
	First, Last tiers.Offset // inclusive
	LastStable  tiers.Offset
}

// SegmentFiles is a closed segment as the copier reads it. Missing or damaged
// side files were made again from the log (report 105).
type SegmentFiles struct {
	Segment     Segment
	Log         io.ReaderAt
	OffsetIndex []byte
	TimeIndex   []byte
	TxnIndex    []byte
	Producers   []byte // snapshot at Segment.Next
}

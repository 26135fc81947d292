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
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/fsys"
)

// Config is what a topic's settings say of its local files. It may change while
// a log is open (Configure).
type Config struct {
	SegmentBytes  int64         // segment.bytes
	SegmentAge    time.Duration // segment.ms
	IndexBytes    int64         // segment.index.bytes
	IndexInterval int64         // index.interval.bytes
	// ProducerExpiry is how long a producer that writes nothing is remembered
	// (producer.id.expiration.ms). 0: 24 hours.
	ProducerExpiry time.Duration
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
	// Earlier tells the lineage of the offsets below first, where the disk
	// begins. It is asked when the leader epoch checkpoint is damaged, gone or
	// does not reach down to the log start, before anything is changed; an error
	// of it is that of Open. Nil, or an empty answer: nobody else knows.
	Earlier func(first tiers.Offset) (tiers.Lineage, error)
	// Known tells what is known elsewhere of the log start, which is raised there
	// before it is raised on disk (R8), and the first offset that is kept elsewhere
	// from there on, NoOffset if there is none. log-start-offset-checkpoint has no
	// checksum: a value in it above that one is not believed if it would hide
	// records. Nil: nobody knows.
	Known func() (start, kept tiers.Offset)
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
	// Damage is what is wrong below the recovery point. It is never cut, because
	// it was acknowledged: reading it is an error of kind CorruptMessage.
	Damage []Damage
	// Holes are offsets without a batch between segments that were scanned. Only
	// compaction makes such on purpose (report 039).
	Holes []Range
}

// Damage is bytes of a segment that are no sound batch.
type Damage struct {
	Segment tiers.Offset // its base
	At      int64        // first damaged byte
	Offsets Range        // that the bytes held, as far as can be told
	Why     string
}

// Range is the offsets [From, To).
type Range struct{ From, To tiers.Offset }

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

// Log is the local tier of one partition. The owner's goroutine calls its
// methods; the atomic fields are what the disk's checkpoints sample.
type Log struct {
	folder
	o Options

	segs    []*segment // by base; the last is the active one
	current *Snapshot  // of segs
	lineage tiers.Lineage
	prods   *Producers
	end     tiers.Offset

	dirty    *handle // of the active segment, while it has unsynced bytes
	reserved int64   // bytes of the active segment that the file system holds ready
	removals int     // makes the names of dropped files unique
	truncs   uint64
	broken   error
	sampled  bool // the disk has it
	closed   bool

	flushed  atomic.Int64
	logStart atomic.Int64
	high     atomic.Int64
}

// usable returns why nothing can be done with the log, nil if it can.
func (l *Log) usable(op string) error {
	if l.closed {
		return tiers.E(tiers.Closed, op, l.place, "the log is closed")
	}
	if err := l.Broken(); err != nil {
		return tiers.E(tiers.StorageFailed, op, l.place, "the log is offline until it is opened again: %w", err)
	}
	return nil
}

// fail ends the log: what is on disk is no longer known.
func (l *Log) fail(op string, err error) error {
	if l.broken == nil {
		l.broken = tiers.E(tiers.StorageFailed, op, l.place, "%w", err)
		l.o.Log.Error("the log goes offline", "op", op, "err", err)
	}
	return l.broken
}

// Broken returns the error that ended this log or its disk, nil while it lives.
func (l *Log) Broken() error {
	if l.broken != nil {
		return l.broken
	}
	return l.o.Disk.Failed()
}

// Flushed is the end of what is durable: the recovery point (C1).
func (l *Log) Flushed() tiers.Offset { return tiers.Offset(l.flushed.Load()) }

// LogStart is the first offset of the whole log.
func (l *Log) LogStart() tiers.Offset { return tiers.Offset(l.logStart.Load()) }

// LocalLogStart is the first offset on disk that is part of the log.
func (l *Log) LocalLogStart() tiers.Offset { return max(l.segs[0].base, l.LogStart()) }

// LogEnd is the offset of the next record.
func (l *Log) LogEnd() tiers.Offset { return l.end }

// FirstUndecided is the offset of the first record of the oldest open
// transaction, LogEnd if there is none: the last stable offset before it is
// clamped to the high watermark.
func (l *Log) FirstUndecided() tiers.Offset { return l.prods.firstUndecided(l.end) }

// HighWatermark is the last value given to SetHighWatermark, in this process or
// before the last checkpoint; never above LogEnd.
func (l *Log) HighWatermark() tiers.Offset { return tiers.Offset(l.high.Load()) }

// SetHighWatermark has the next checkpoints of the disk hold o.
func (l *Log) SetHighWatermark(o tiers.Offset) { l.high.Store(int64(min(o, l.end))) }

// Lineage is the leader epochs of the log.
func (l *Log) Lineage() tiers.Lineage { return l.lineage }

// Truncations counts the effective truncations of this log (F1).
func (l *Log) Truncations() uint64 { return l.truncs }

// Producers is the state of idempotent and transactional producers.
func (l *Log) Producers() *Producers { return l.prods }

// Segments are the facts of all segments in offset order, the active one last.
func (l *Log) Segments() []Segment {
	out := make([]Segment, len(l.segs))
	for i := range l.segs {
		out[i] = l.segs[i].facts(l.nextOf(i))
	}
	return out
}

// Active is the facts of the active segment.
func (l *Log) Active() Segment { return l.active().facts(l.end) }

func (l *Log) active() *segment { return l.segs[len(l.segs)-1] }

// nextOf is the base of the segment behind the one at i, LogEnd for the last.
func (l *Log) nextOf(i int) tiers.Offset {
	if i+1 < len(l.segs) {
		return l.segs[i+1].base
	}
	return l.end
}

// Configure changes the settings.
func (l *Log) Configure(c Config) { l.o.Config = c }

// Snapshot returns an immutable picture of the segments for readers, holding a
// reference that the caller must release. Taking one is cheap enough for every
// published View: it is the same one until the log changes its segments, and
// the readable end is given per read.
func (l *Log) Snapshot() *Snapshot {
	l.current.Retain()
	return l.current
}

// setSegments makes segs the segments of the log. References of segments that
// are no longer in it go to the readers that still hold them.
func (l *Log) setSegments(segs []*segment) {
	old := l.current
	l.segs = segs
	l.current = newSnapshot(l.folder, l.o.Config.IndexInterval, segs)
	if old != nil {
		old.Release()
	}
}

// SegmentFiles is a closed segment as the copier reads it. Missing or damaged
// side files were made again from the log (report 105).
type SegmentFiles struct {
	Segment     Segment
	Log         io.ReaderAt // readable as long as the snapshot is held
	OffsetIndex []byte
	TimeIndex   []byte
	TxnIndex    []byte
	Producers   []byte // snapshot at Segment.Next
}

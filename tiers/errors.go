package tiers

import (
	"errors"
	"fmt"
	"strings"
)

// Kind says what went wrong, in the words of the Kafka protocol. One table in
// gateway/kafka maps kinds to error codes, one in gateway/admin maps them to
// HTTP statuses.
type Kind uint8

// The kinds of errors. The comment of each is what a client should do.
const (
	Other                    Kind = iota // nothing is known: do not retry blindly
	OffsetOutOfRange                     // reset the position
	CorruptMessage                       // fix the batch, or read from another place
	UnknownTopicOrPartition              // create it, or refresh metadata
	NotLeader                            // refresh metadata and retry
	TimedOut                             // retry
	MessageTooLarge                      // send less, or raise max.message.bytes
	RecordListTooLarge                   // send less
	InvalidTopic                         // choose a legal name
	InvalidPartitions                    // choose a legal count
	InvalidReplicationFactor             // choose a legal factor
	InvalidReplicaAssignment             // choose legal nodes
	InvalidConfig                        // fix the setting
	InvalidRequest                       // fix the request
	InvalidTimestamp                     // fix the record's timestamp
	InvalidRecord                        // fix the record
	UnsupportedFormat                    // use record batch v2
	UnsupportedCompression               // use none, gzip, snappy, lz4 or zstd
	UnsupportedVersion                   // use another version or value
	OutOfOrderSequence                   // the producer lost a batch
	DuplicateSequence                    // the batch was written long ago
	InvalidProducerEpoch                 // a newer producer took over
	UnknownProducer                      // ask for a new producer id
	TopicExists                          // choose another name
	FencedLeaderEpoch                    // refresh metadata
	UnknownLeaderEpoch                   // retry
	UnknownTopicID                       // refresh metadata
	InconsistentTopicID                  // refresh metadata
	OffsetNotAvailable                   // retry
	PolicyViolation                      // the operator forbids it
	StorageFailed                        // the disk failed: retry elsewhere, call the operator
	RemoteUnavailable                    // the object store cannot be reached: retry
	StaleFence                           // this node or log was replaced: nothing was changed
	Closed                               // the partition or node is stopping: refresh metadata and retry
	Conflict                             // somebody else changed it meanwhile: read again
	OffsetMetadataTooLarge               // commit with less metadata
)

var kindNames = [...]string{ //nolint:gochecknoglobals // Read only.
	"error", "offset out of range", "corrupt message", "unknown topic or partition", "not the leader", "timed out",
	"message too large", "record list too large", "invalid topic", "invalid partitions", "invalid replication factor",
	"invalid replica assignment", "invalid config", "invalid request", "invalid timestamp", "invalid record",
	"unsupported message format", "unsupported compression", "unsupported version", "out of order sequence",
	"duplicate sequence", "invalid producer epoch", "unknown producer", "topic already exists", "fenced leader epoch",
	"unknown leader epoch", "unknown topic id", "inconsistent topic id", "offset not available", "policy violation",
	"storage failed", "object store unavailable", "stale fence", "closed", "conflict",
	"offset metadata too large",
}

// String is the kind in words.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Error is an error with the operation that failed, the place where, and a
// kind. Err is the cause, if there is one.
type Error struct {
	Op    string // what was tried: "append", "copy segment"
	Place string // where: a partition, a file, a key
	Kind  Kind
	Err   error
}

// E makes an *Error. The detail, if any, is formatted as by fmt.Errorf, so %w
// keeps the cause.
func E(kind Kind, op, place, format string, args ...any) *Error {
	e := &Error{Op: op, Place: place, Kind: kind}
	if format != "" {
		e.Err = fmt.Errorf(format, args...)
	}
	return e
}

// Error is "op place: kind: cause", without the parts that are empty.
func (e *Error) Error() string {
	head := strings.TrimSpace(e.Op + " " + e.Place)
	parts := make([]string, 0, 3)
	if head != "" {
		parts = append(parts, head)
	}
	if e.Kind != Other || e.Err == nil {
		parts = append(parts, e.Kind.String())
	}
	if e.Err != nil {
		parts = append(parts, e.Err.Error())
	}
	return strings.Join(parts, ": ")
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// KindOf returns the kind of the outermost Error in err's chain that has one,
// Other if there is none.
func KindOf(err error) Kind {
	for err != nil {
		var e *Error
		if !errors.As(err, &e) {
			return Other
		}
		if e.Kind != Other {
			return e.Kind
		}
		err = e.Err
	}
	return Other
}

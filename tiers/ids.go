package tiers

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
)

// TopicID is the identity of a topic (KIP-516). A name is never an identity: a
// topic that is deleted and created again under its name has another TopicID.
type TopicID [16]byte

// IsZero reports whether id is the absent id, which no topic carries.
func (id TopicID) IsZero() bool { return id == TopicID{} }

// String returns id as Kafka's tools print it: 22 characters of unpadded
// URL-safe base64.
func (id TopicID) String() string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// Hex returns id as 32 lower-case hexadecimal digits, the form used in file
// names and object keys.
func (id TopicID) Hex() string { return hex.EncodeToString(id[:]) }

// ParseTopicID reads the form that String or Hex writes, and no other spelling of
// it: two names never mean the same topic.
func ParseTopicID(s string) (TopicID, error) {
	var id TopicID
	var err error
	switch len(s) {
	case hex.EncodedLen(len(id)):
		_, err = hex.Decode(id[:], []byte(s))
	case base64.RawURLEncoding.EncodedLen(len(id)):
		_, err = base64.RawURLEncoding.Decode(id[:], []byte(s))
	}
	if err != nil || s != id.String() && s != id.Hex() {
		return TopicID{}, fmt.Errorf("topic id %q: want 32 lower-case hexadecimal digits or 22 characters of URL-safe base64", s)
	}
	return id, nil
}

// SegmentID is the identity of one remote segment. It is never reused: a copy
// that is tried again gets a new one (spec R3).
type SegmentID [16]byte

// Hex returns id as 32 lower-case hexadecimal digits.
func (id SegmentID) Hex() string { return hex.EncodeToString(id[:]) }

// String is Hex.
func (id SegmentID) String() string { return id.Hex() }

// ParseSegmentID reads the form that Hex writes.
func ParseSegmentID(s string) (SegmentID, error) {
	var id SegmentID
	if len(s) == hex.EncodedLen(len(id)) {
		if _, err := hex.Decode(id[:], []byte(s)); err == nil && s == id.Hex() {
			return id, nil
		}
	}
	return SegmentID{}, fmt.Errorf("segment id %q: want 32 lower-case hexadecimal digits", s)
}

// HistoryGen numbers the histories of a partition: bindings of offsets to
// records. It is durable. Only a purge raises it. The first is 1.
type HistoryGen int32

// HistoryID names a history within this process. It is never used twice, so a
// result that was planned in one history can be told from any later one even
// if everything else is equal (spec H1).
type HistoryID uint64

// PartitionID is the identity of a partition across renames and re-creations.
type PartitionID struct {
	Topic TopicID
	Index int32
}

// String is for logs and errors.
func (p PartitionID) String() string { return fmt.Sprintf("%s-%d", p.Topic, p.Index) }

// TopicPartition is how people and clients name a partition.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// String is Kafka's way to print a partition: name-index.
func (tp TopicPartition) String() string { return fmt.Sprintf("%s-%d", tp.Topic, tp.Partition) }

// NodeID is the id of a node in the cluster, Kafka's broker id.
type NodeID int32

// MarshalText is Hex.
func (id TopicID) MarshalText() ([]byte, error) { return []byte(id.Hex()), nil }

// UnmarshalText is ParseTopicID.
func (id *TopicID) UnmarshalText(b []byte) (err error) {
	*id, err = ParseTopicID(string(b))
	return err
}

// MarshalText is Hex.
func (id SegmentID) MarshalText() ([]byte, error) { return []byte(id.Hex()), nil }

// UnmarshalText is ParseSegmentID.
func (id *SegmentID) UnmarshalText(b []byte) (err error) {
	*id, err = ParseSegmentID(string(b))
	return err
}

package remote

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/strandline-io/strandline/tiers"
)

// The two objects of a segment differ in the ending of their keys:
//
//	topics/<topic id>/<partition>/<gen>/<base>-<epoch>-<segment id>.log    the records, Kafka's .log byte for byte
//	topics/<topic id>/<partition>/<gen>/<base>-<epoch>-<segment id>.meta   the companion
//
// Ids are 32 lower-case hexadecimal digits, numbers decimal of fixed width (base
// 20, others 10), so the byte order of keys is the order of the log. Epoch is
// the leader epoch of the node that copied the segment.
const (
	topicsPrefix  = "topics/"
	recordsEnding = ".log"
	metaEnding    = ".meta"
)

// maxKeyPart is what versitygw and common file systems allow for one part of a
// name, less room for a temporary suffix.
const maxKeyPart = 200

// maxKey is the limit of S3.
const maxKey = 1024

// SegmentKey is the key of the records object of seg.
func SegmentKey(seg tiers.RemoteSegment) string { return segmentStem(seg) + recordsEnding }

// MetaKey is the key of the companion of seg.
func MetaKey(seg tiers.RemoteSegment) string { return segmentStem(seg) + metaEnding }

func segmentStem(seg tiers.RemoteSegment) string {
	return fmt.Sprintf("%s%010d/%020d-%010d-%s", PartitionPrefix(seg.Partition), max(0, seg.Gen), max(0, seg.Base),
		max(0, seg.CopierEpoch), seg.ID.Hex())
}

// TopicPrefix begins the keys of all segments of a topic.
func TopicPrefix(id tiers.TopicID) string { return topicsPrefix + id.Hex() + "/" }

// PartitionPrefix begins the keys of all segments of a partition, in every
// history.
func PartitionPrefix(id tiers.PartitionID) string {
	return fmt.Sprintf("%s%010d/", TopicPrefix(id.Topic), max(0, id.Index))
}

// SegmentName is what the key of a segment's object says.
type SegmentName struct {
	Partition tiers.PartitionID
	Gen       tiers.HistoryGen
	Base      tiers.Offset
	Epoch     tiers.LeaderEpoch // of the copier
	ID        tiers.SegmentID
	Meta      bool // the companion, not the records
}

var segmentKey = regexp.MustCompile(`^topics/([0-9a-f]{32})/([0-9]{10})/([0-9]{10})/([0-9]{20})-([0-9]{10})-([0-9a-f]{32})\.(log|meta)$`)

// ParseKey reads a key that SegmentKey or MetaKey wrote; any other is
// ErrBadKey.
func ParseKey(key string) (SegmentName, error) {
	m := segmentKey.FindStringSubmatch(key)
	if m == nil {
		return SegmentName{}, fmt.Errorf("%w: %q is not the key of a segment", ErrBadKey, key)
	}
	topic, err := tiers.ParseTopicID(m[1])
	if err != nil {
		return SegmentName{}, fmt.Errorf("%w: %q: %w", ErrBadKey, key, err)
	}
	id, err := tiers.ParseSegmentID(m[6])
	if err != nil {
		return SegmentName{}, fmt.Errorf("%w: %q: %w", ErrBadKey, key, err)
	}
	var numbers [4]int64
	for i, bits := range []int{32, 32, 64, 32} {
		if numbers[i], err = strconv.ParseInt(m[2+i], 10, bits); err != nil {
			return SegmentName{}, fmt.Errorf("%w: %q: %w", ErrBadKey, key, err)
		}
	}
	return SegmentName{
		Partition: tiers.PartitionID{Topic: topic, Index: int32(numbers[0])},
		Gen:       tiers.HistoryGen(numbers[1]),
		Base:      tiers.Offset(numbers[2]),
		Epoch:     tiers.LeaderEpoch(numbers[3]),
		ID:        id,
		Meta:      m[7] == metaEnding[1:],
	}, nil
}

// CheckKey says why a key is refused by every driver, nil if it is not. What it
// lets pass means the same in every object store: the parts between slashes have
// 1 to 200 bytes of [A-Za-z0-9._=-] and are not "." or "..".
func CheckKey(key string) error {
	if key == "" || len(key) > maxKey {
		return fmt.Errorf("%w: %q has %d bytes, want 1 to %d", ErrBadKey, key, len(key), maxKey)
	}
	for part := range strings.SplitSeq(key, "/") {
		switch {
		case part == "":
			return fmt.Errorf("%w: %q has an empty part", ErrBadKey, key)
		case len(part) > maxKeyPart:
			return fmt.Errorf("%w: %q has a part of more than %d bytes", ErrBadKey, key, maxKeyPart)
		case part == "." || part == "..":
			return fmt.Errorf("%w: %q has the part %q", ErrBadKey, key, part)
		}
		for i := range len(part) {
			if !keyByte(part[i]) {
				return fmt.Errorf("%w: %q has the byte %q, want letters, digits and . _ = -", ErrBadKey, key, part[i])
			}
		}
	}
	return nil
}

func keyByte(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || strings.IndexByte("._=-", b) >= 0
}

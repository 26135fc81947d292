package sqlite

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/tiers"
)

// Two columns hold more than a value: segments.epochs and changes.topic. Their
// bytes are described in docs/format/control-plane.md. Every length is compared
// with a limit before anything is allocated for it.

var errShort = errors.New("it ends too early")

// reader takes a blob apart. After an error every value is zero.
type reader struct {
	b   []byte
	err error
}

func (r *reader) uvarint(limit uint64) uint64 {
	v, n := binary.Uvarint(r.b)
	switch {
	case r.err != nil:
		return 0
	case n <= 0:
		r.err = errShort
		return 0
	case v > limit:
		r.err = fmt.Errorf("%d is above %d", v, limit)
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.b)
	if r.err == nil && n <= 0 {
		r.err = errShort
	}
	if r.err != nil {
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) bytes(limit int) []byte {
	n := int(r.uvarint(uint64(limit)))
	if r.err == nil && n > len(r.b) {
		r.err = errShort
	}
	if r.err != nil {
		return nil
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

// count reads a count of things that take at least size bytes each.
func (r *reader) count(limit, size int) int {
	n := int(r.uvarint(uint64(limit)))
	if r.err == nil && n > len(r.b)/size {
		r.err = errShort
	}
	if r.err != nil {
		return 0
	}
	return n
}

func (r *reader) end() error {
	if r.err == nil && len(r.b) > 0 {
		r.err = fmt.Errorf("%d bytes are left over", len(r.b))
	}
	return r.err
}

// encodeLineage is a count, then epoch and start of each entry, as differences
// from the entry before.
func encodeLineage(l tiers.Lineage) []byte {
	b := binary.AppendUvarint(make([]byte, 0, 2+6*len(l)), uint64(len(l)))
	var last tiers.EpochStart
	for _, e := range l {
		b = binary.AppendUvarint(b, uint64(e.Epoch-last.Epoch))
		b = binary.AppendUvarint(b, uint64(e.Start-last.Start))
		last = e
	}
	return b
}

func decodeLineage(b []byte) (tiers.Lineage, error) {
	r := reader{b: b}
	out := make(tiers.Lineage, 0, r.count(control.MaxLineage, 2))
	var last tiers.EpochStart
	for range cap(out) {
		epoch := int64(last.Epoch) + int64(r.uvarint(math.MaxInt32))
		start := uint64(last.Start) + r.uvarint(math.MaxInt64)
		if r.err == nil && (epoch > math.MaxInt32 || start > math.MaxInt64) {
			r.err = errors.New("an epoch or offset is too large")
		}
		if r.err != nil {
			break
		}
		last = tiers.EpochStart{Epoch: tiers.LeaderEpoch(epoch), Start: tiers.Offset(start)}
		out = append(out, last)
	}
	if err := r.end(); err != nil {
		return nil, fmt.Errorf("lineage: %w", err)
	}
	if err := out.Valid(); err != nil {
		return nil, err
	}
	return out, nil
}

// encodeChange is what changed: the topic, or a log start. Revision and deletion
// are columns of their own.
func encodeChange(c control.Change) []byte {
	if c.Raised == nil {
		return encodeTopic(c.Topic)
	}
	r := c.Raised
	b := append(make([]byte, 0, 40), kindRaised)
	b = append(b, r.Partition.Topic[:]...)
	b = binary.AppendUvarint(b, uint64(r.Partition.Index))
	b = binary.AppendUvarint(b, uint64(r.Gen))
	return binary.AppendUvarint(b, uint64(r.LogStart))
}

func decodeChange(b []byte) (control.Change, error) {
	if len(b) == 0 || b[0] != kindRaised {
		t, err := decodeTopic(b)
		return control.Change{Topic: t}, err
	}
	out := control.Raised{}
	if len(b) < 1+len(out.Partition.Topic) {
		return control.Change{}, fmt.Errorf("log start: %w", errShort)
	}
	copy(out.Partition.Topic[:], b[1:])
	r := reader{b: b[1+len(out.Partition.Topic):]}
	out.Partition.Index = int32(r.uvarint(math.MaxInt32))
	out.Gen = tiers.HistoryGen(r.uvarint(math.MaxInt32))
	out.LogStart = tiers.Offset(r.uvarint(math.MaxInt64))
	if err := r.end(); err != nil {
		return control.Change{}, fmt.Errorf("log start: %w", err)
	}
	return control.Change{Raised: &out}, nil
}

// The first byte of changes.topic.
const (
	kindTopic  = 1
	kindRaised = 2 // since version 2 of the tables
)

// encodeTopic is a version, id, name, revision, instant, the settings by key and
// the partitions.
func encodeTopic(t control.Topic) []byte {
	b := append([]byte{kindTopic}, t.ID[:]...)
	b = appendString(b, t.Name)
	b = binary.AppendUvarint(b, uint64(t.Rev))
	b = binary.AppendVarint(b, t.CreatedAt.UnixMilli())
	b = binary.AppendUvarint(b, uint64(len(t.Configs)))
	for _, k := range slices.Sorted(maps.Keys(t.Configs)) {
		b = appendString(appendString(b, k), t.Configs[k])
	}
	b = binary.AppendUvarint(b, uint64(len(t.Partitions)))
	for _, p := range t.Partitions {
		b = binary.AppendUvarint(b, uint64(p.Gen))
		b = binary.AppendUvarint(b, uint64(p.Leader))
		b = binary.AppendUvarint(b, uint64(p.Epoch))
		b = binary.AppendUvarint(b, uint64(p.LogStart))
	}
	return b
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func decodeTopic(b []byte) (control.Topic, error) {
	var t control.Topic
	if len(b) < 1+len(t.ID) {
		return t, fmt.Errorf("topic: %w", errShort)
	}
	if b[0] != kindTopic {
		return t, fmt.Errorf("topic: version %d is not known", b[0])
	}
	copy(t.ID[:], b[1:])
	r := reader{b: b[1+len(t.ID):]}
	t.Name = string(r.bytes(control.MaxTopicName))
	t.Rev = control.Rev(r.uvarint(math.MaxInt64))
	t.CreatedAt = time.UnixMilli(r.varint()).UTC()
	t.Configs = map[string]string{}
	for range r.count(control.MaxConfigs, 2) {
		k := string(r.bytes(control.MaxConfigBytes))
		t.Configs[k] = string(r.bytes(control.MaxConfigBytes))
	}
	n := r.count(control.MaxPartitions, 4)
	t.Partitions = make([]control.Partition, n)
	for i := range n {
		t.Partitions[i] = control.Partition{
			Index:    int32(i),
			Gen:      tiers.HistoryGen(r.uvarint(math.MaxInt32)),
			Leader:   tiers.NodeID(r.uvarint(math.MaxInt32)),
			Epoch:    tiers.LeaderEpoch(r.uvarint(math.MaxInt32)),
			LogStart: tiers.Offset(r.uvarint(math.MaxInt64)),
		}
	}
	if err := r.end(); err != nil {
		return control.Topic{}, fmt.Errorf("topic: %w", err)
	}
	return t, nil
}

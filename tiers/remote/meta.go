package remote

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/strandline-io/strandline/tiers"
)

// The layout is docs/format/segment-meta.md. All numbers are big endian.
const (
	metaMagic      = "SLSM"
	metaMajor      = 1
	metaMinor      = 0
	metaFixed      = 4 + 1 + 1 + 4 + 4 // magic, major, minor, flags, header length
	metaMinHeader  = 2 + 2 + 16 + 4 + 4 + 16 + 8*5 + 4*4 + 2
	metaMaxHeader  = 1 << 16
	metaMustFlags  = 0xffff // flags that a reader must know: there are none yet
	metaSectionLen = 2 + 4  // kind, length
	metaMaxName    = 255    // cluster id and topic name
)

// MaxMetaSize bounds a companion: readers refuse a bigger one before they
// allocate for it. The largest part is the producer snapshot, 54 bytes for each
// idempotent producer.
const MaxMetaSize = 256 << 20

// The sections. Each is there once; an unknown kind is passed over.
const (
	sectionEpochs    = 1
	sectionChunks    = 2
	sectionOffsets   = 3
	sectionTimes     = 4
	sectionTxns      = 5
	sectionProducers = 6
	sectionLineage   = 7
	sectionLast      = sectionLineage

	lineageEntry = 4 + 8
)

// ChunkCount is the number of chunks of a records object of the given size.
func ChunkCount(size int64) int64 { return (size + ChunkSize - 1) / ChunkSize }

// Valid returns nil if the parts of m agree with each other.
func (m *SegmentMeta) Valid() error {
	switch {
	case len(m.Cluster) > metaMaxName || len(m.TopicName) > metaMaxName:
		return fmt.Errorf("cluster id of %d bytes, topic name of %d: at most %d", len(m.Cluster), len(m.TopicName), metaMaxName)
	case m.Segment.Size <= 0:
		return fmt.Errorf("segment %s: size %d", m.Segment.ID, m.Segment.Size)
	case int64(len(m.ChunkCRC)) != ChunkCount(m.Segment.Size):
		return fmt.Errorf("segment %s: %d chunk checksums for %d bytes, want %d", m.Segment.ID, len(m.ChunkCRC),
			m.Segment.Size, ChunkCount(m.Segment.Size))
	case m.Segment.Partition.Index < 0 || m.Segment.Gen < 0:
		return fmt.Errorf("segment %s: partition %d, history %d", m.Segment.ID, m.Segment.Partition.Index, m.Segment.Gen)
	}
	if err := m.Segment.Valid(); err != nil {
		return err
	}
	return m.Lineage.Valid()
}

// EncodeMeta writes a companion object. Segment.State and Segment.MetaSize are
// not part of it, HasAborted follows from the transaction index.
func EncodeMeta(m *SegmentMeta) ([]byte, error) {
	if err := m.Valid(); err != nil {
		return nil, tiers.E(tiers.InvalidRequest, "encode companion", m.Segment.ID.Hex(), "%w", err)
	}
	size := metaFixed + metaMinHeader + len(m.Cluster) + len(m.TopicName) + 4 + 4 + sectionLast*metaSectionLen +
		lineageEntry*(len(m.Segment.Epochs)+len(m.Lineage)) + 4*len(m.ChunkCRC) +
		len(m.OffsetIndex) + len(m.TimeIndex) + len(m.TxnIndex) + len(m.Producers)
	if size > MaxMetaSize {
		return nil, tiers.E(tiers.InvalidRequest, "encode companion", m.Segment.ID.Hex(), "%d bytes, at most %d", size, MaxMetaSize)
	}
	b := appendMetaHeader(make([]byte, 0, size), m)
	b = appendSection(b, sectionEpochs, encodeLineage(m.Segment.Epochs))
	b = appendSection(b, sectionChunks, encodeChunks(m.ChunkCRC))
	b = appendSection(b, sectionOffsets, m.OffsetIndex)
	b = appendSection(b, sectionTimes, m.TimeIndex)
	b = appendSection(b, sectionTxns, m.TxnIndex)
	b = appendSection(b, sectionProducers, m.Producers)
	b = appendSection(b, sectionLineage, encodeLineage(m.Lineage))
	return binary.BigEndian.AppendUint32(b, CRC32C(b)), nil
}

func appendMetaHeader(b []byte, m *SegmentMeta) []byte {
	be, s := binary.BigEndian, &m.Segment
	b = append(b, metaMagic...)
	b = append(b, metaMajor, metaMinor)
	b = be.AppendUint32(b, 0) // flags
	b = be.AppendUint32(b, uint32(metaMinHeader+len(m.Cluster)+len(m.TopicName)))
	b = appendName(b, m.Cluster)
	b = append(b, s.Partition.Topic[:]...)
	b = be.AppendUint32(b, uint32(s.Partition.Index))
	b = be.AppendUint32(b, uint32(s.Gen))
	b = append(b, s.ID[:]...)
	b = be.AppendUint64(b, uint64(s.Base))
	b = be.AppendUint64(b, uint64(s.End))
	b = be.AppendUint64(b, uint64(s.MaxTimestamp))
	b = be.AppendUint64(b, uint64(s.Size))
	b = be.AppendUint32(b, s.CRC32C)
	b = be.AppendUint32(b, uint32(s.CopierEpoch))
	b = be.AppendUint32(b, uint32(s.Copier))
	b = be.AppendUint64(b, uint64(unixNano(s.CreatedAt)))
	b = be.AppendUint32(b, ChunkSize)
	b = appendName(b, m.TopicName)
	b = be.AppendUint16(b, sectionLast)
	return be.AppendUint32(b, CRC32C(b))
}

// unixNano is 0 for the zero time, which has no number of nanoseconds.
func unixNano(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func appendName(b []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(len(s))), s...)
}

func appendSection(b []byte, kind uint16, content []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, kind)
	b = binary.BigEndian.AppendUint32(b, uint32(len(content)))
	return append(b, content...)
}

func encodeLineage(l tiers.Lineage) []byte {
	b := make([]byte, 0, lineageEntry*len(l))
	for _, e := range l {
		b = binary.BigEndian.AppendUint32(b, uint32(e.Epoch))
		b = binary.BigEndian.AppendUint64(b, uint64(e.Start))
	}
	return b
}

func encodeChunks(crcs []uint32) []byte {
	b := make([]byte, 0, 4*len(crcs))
	for _, crc := range crcs {
		b = binary.BigEndian.AppendUint32(b, crc)
	}
	return b
}

// DecodeMeta reads a companion object. The result refers to the bytes of b. An
// object that is damaged is ErrChecksum; one that a newer version wrote is
// tiers.UnsupportedVersion. Segment.MetaSize is len(b), Segment.State is zero:
// only the control plane knows it.
func DecodeMeta(b []byte) (*SegmentMeta, error) {
	m, err := decodeMeta(b)
	if err != nil {
		kind := tiers.CorruptMessage
		if tiers.KindOf(err) != tiers.Other {
			kind = tiers.KindOf(err)
		}
		return nil, tiers.E(kind, "decode companion", "", "%w", err)
	}
	return m, nil
}

func decodeMeta(b []byte) (*SegmentMeta, error) {
	if err := checkMetaFrame(b); err != nil {
		return nil, err
	}
	end := metaFixed + int(binary.BigEndian.Uint32(b[metaFixed-4:]))
	m := &SegmentMeta{}
	sections, err := m.readHeader(b[metaFixed:end])
	if err != nil {
		return nil, err
	}
	if err := m.readSections(b[end+4:len(b)-4], sections); err != nil {
		return nil, err
	}
	m.Segment.MetaSize = int64(len(b))
	m.Segment.HasAborted = len(m.TxnIndex) > 0
	return m, damaged(m.Valid())
}

func damaged(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrChecksum, err)
}

// checkMetaFrame checks what needs no knowledge of the fields, so that a damaged
// object is told from one of a newer version.
func checkMetaFrame(b []byte) error {
	be := binary.BigEndian
	switch {
	case len(b) > MaxMetaSize:
		return fmt.Errorf("%w: %d bytes, at most %d", ErrChecksum, len(b), MaxMetaSize)
	case len(b) < metaFixed+metaMinHeader+4+4:
		return fmt.Errorf("%w: %d bytes are too few", ErrChecksum, len(b))
	case !bytes.HasPrefix(b, []byte(metaMagic)):
		return fmt.Errorf("%w: begins with %q, not %q", ErrChecksum, b[:4], metaMagic)
	}
	if got, want := CRC32C(b[:len(b)-4]), be.Uint32(b[len(b)-4:]); got != want {
		return fmt.Errorf("%w: CRC-32C is %08x, the object says %08x", ErrChecksum, got, want)
	}
	if b[4] != metaMajor {
		return tiers.E(tiers.UnsupportedVersion, "", "", "format version %d.%d, this program reads %d: use a newer one", b[4], b[5], metaMajor)
	}
	if flags := be.Uint32(b[6:]); flags&metaMustFlags != 0 {
		return tiers.E(tiers.UnsupportedVersion, "", "", "feature flags %08x are unknown: use a newer program", flags)
	}
	size := be.Uint32(b[10:])
	if size < metaMinHeader || size > metaMaxHeader || int(size) > len(b)-metaFixed-8 {
		return fmt.Errorf("%w: header of %d bytes in an object of %d", ErrChecksum, size, len(b))
	}
	end := metaFixed + int(size)
	if got, want := CRC32C(b[:end]), be.Uint32(b[end:]); got != want {
		return fmt.Errorf("%w: CRC-32C of the header is %08x, the object says %08x", ErrChecksum, got, want)
	}
	return nil
}

// fields reads numbers and names; the first read beyond the end makes all
// further ones zero.
type fields struct {
	b     []byte
	short bool
}

func (f *fields) take(n int) []byte {
	if f.short || n > len(f.b) {
		f.short = true
		return make([]byte, min(n, 16))
	}
	out := f.b[:n:n]
	f.b = f.b[n:]
	return out
}

func (f *fields) u16() uint16 { return binary.BigEndian.Uint16(f.take(2)) }
func (f *fields) u32() uint32 { return binary.BigEndian.Uint32(f.take(4)) }
func (f *fields) i32() int32  { return int32(f.u32()) }
func (f *fields) i64() int64  { return int64(binary.BigEndian.Uint64(f.take(8))) }

func (f *fields) name() string {
	n := f.u16()
	if n > metaMaxName {
		f.short = true
		return ""
	}
	return string(f.take(int(n)))
}

func (m *SegmentMeta) readHeader(b []byte) (sections int, err error) {
	f, s := &fields{b: b}, &m.Segment
	m.Cluster = f.name()
	copy(s.Partition.Topic[:], f.take(16))
	s.Partition.Index = f.i32()
	s.Gen = tiers.HistoryGen(f.i32())
	copy(s.ID[:], f.take(16))
	s.Base, s.End = tiers.Offset(f.i64()), tiers.Offset(f.i64())
	s.MaxTimestamp = f.i64()
	s.Size = f.i64()
	s.CRC32C = f.u32()
	s.CopierEpoch = tiers.LeaderEpoch(f.i32())
	s.Copier = tiers.NodeID(f.i32())
	if ns := f.i64(); ns != 0 {
		s.CreatedAt = time.Unix(0, ns).UTC()
	}
	chunk := f.u32()
	m.TopicName = f.name()
	sections = int(f.u16())
	switch {
	case f.short:
		return 0, fmt.Errorf("%w: the header is too short", ErrChecksum)
	case chunk != ChunkSize:
		return 0, tiers.E(tiers.UnsupportedVersion, "", "", "chunks of %d bytes, this program reads %d", chunk, ChunkSize)
	case s.Size > math.MaxInt64-ChunkSize:
		return 0, fmt.Errorf("%w: size %d", ErrChecksum, s.Size)
	}
	return sections, nil
}

func (m *SegmentMeta) readSections(b []byte, count int) error {
	f := &fields{b: b}
	var seen [sectionLast + 1]bool
	for range count {
		kind, n := f.u16(), f.u32()
		if f.short || int64(n) > int64(len(f.b)) {
			return fmt.Errorf("%w: section %d of %d bytes, %d are left", ErrChecksum, kind, n, len(f.b))
		}
		content := f.take(int(n))
		if kind == 0 || kind > sectionLast {
			continue
		}
		if seen[kind] {
			return fmt.Errorf("%w: section %d is there twice", ErrChecksum, kind)
		}
		seen[kind] = true
		if err := m.readSection(kind, content); err != nil {
			return err
		}
	}
	if len(f.b) > 0 {
		return fmt.Errorf("%w: %d bytes after the last section", ErrChecksum, len(f.b))
	}
	return nil
}

func (m *SegmentMeta) readSection(kind uint16, b []byte) (err error) {
	switch kind {
	case sectionEpochs:
		m.Segment.Epochs, err = decodeLineage(b)
	case sectionChunks:
		m.ChunkCRC, err = decodeChunks(b)
	case sectionOffsets:
		m.OffsetIndex = b
	case sectionTimes:
		m.TimeIndex = b
	case sectionTxns:
		m.TxnIndex = b
	case sectionProducers:
		m.Producers = b
	case sectionLineage:
		m.Lineage, err = decodeLineage(b)
	}
	return err
}

func decodeLineage(b []byte) (tiers.Lineage, error) {
	if len(b)%lineageEntry != 0 {
		return nil, fmt.Errorf("%w: lineage of %d bytes", ErrChecksum, len(b))
	}
	l := make(tiers.Lineage, 0, len(b)/lineageEntry)
	for f := (&fields{b: b}); len(f.b) > 0; {
		l = append(l, tiers.EpochStart{Epoch: tiers.LeaderEpoch(f.i32()), Start: tiers.Offset(f.i64())})
	}
	return l, nil
}

func decodeChunks(b []byte) ([]uint32, error) {
	if len(b)%4 != 0 {
		return nil, fmt.Errorf("%w: chunk checksums of %d bytes", ErrChecksum, len(b))
	}
	crcs := make([]uint32, 0, len(b)/4)
	for f := (&fields{b: b}); len(f.b) > 0; {
		crcs = append(crcs, f.u32())
	}
	return crcs, nil
}

package spool

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/remote"
)

// The layout is docs/format/cache-files.md. All numbers are big endian.
const (
	magic      = "SLCP"
	major      = 1
	minor      = 0
	headerSize = 4 + 1 + 1 + 4 + 2 + 16 + 8 + 8 + 4
	headerMost = 4096 // a newer minor version may have a longer one
	mustFlags  = 0xffff
)

func fileSize(n int64) int64 { return blocks(headerSize + n) }

// encode is the file of a piece.
func encode(id remote.PieceID, b []byte) []byte {
	out := make([]byte, 0, headerSize+len(b))
	out = append(out, magic...)
	out = append(out, major, minor)
	out = binary.BigEndian.AppendUint32(out, 0) // flags
	out = binary.BigEndian.AppendUint16(out, headerSize)
	out = append(out, id.Segment[:]...)
	out = binary.BigEndian.AppendUint64(out, uint64(id.Chunk))
	out = binary.BigEndian.AppendUint64(out, uint64(len(b)))
	crc := remote.UpdateCRC32C(remote.CRC32C(out), b)
	out = binary.BigEndian.AppendUint32(out, crc)
	return append(out, b...)
}

// decode is the piece in a file, which must be that of id. It is a part of raw.
func decode(id remote.PieceID, raw []byte) ([]byte, error) {
	switch {
	case len(raw) < headerSize || string(raw[:4]) != magic:
		return nil, fmt.Errorf("%w: %d bytes do not begin with the header of a piece", remote.ErrChecksum, len(raw))
	case raw[4] != major:
		return nil, fmt.Errorf("%w: major version %d, this program knows %d", remote.ErrChecksum, raw[4], major)
	}
	flags, size := binary.BigEndian.Uint32(raw[6:]), int(binary.BigEndian.Uint16(raw[10:]))
	if flags&mustFlags != 0 || size < headerSize || size > min(headerMost, len(raw)) {
		return nil, fmt.Errorf("%w: flags %08x, a header of %d bytes", remote.ErrChecksum, flags, size)
	}
	head, b := raw[:size], raw[size:]
	crc := remote.UpdateCRC32C(remote.CRC32C(head[:size-4]), b)
	if want := binary.BigEndian.Uint32(head[size-4:]); crc != want {
		return nil, fmt.Errorf("%w: CRC-32C is %08x, the header says %08x", remote.ErrChecksum, crc, want)
	}
	got := remote.PieceID{Segment: tiers.SegmentID(head[12:28]), Chunk: int64(binary.BigEndian.Uint64(head[28:]))}
	if n := binary.BigEndian.Uint64(head[36:]); got != id || n != uint64(len(b)) {
		return nil, fmt.Errorf("%w: it is piece %d of %s with %d bytes, not %d of %s with %d", remote.ErrChecksum, got.Chunk, got.Segment, n, id.Chunk, id.Segment, len(b))
	}
	return b, nil
}

// The names: SHARD/SEGMENT-CHUNK, or SHARD/SEGMENT-meta, where SHARD is the first
// two digits of a sum of the segment's id: no folder grows large.

const metaName = "meta"

func (s *Spool) name(id remote.PieceID) string {
	chunk := metaName
	if id.Chunk != remote.MetaPiece {
		chunk = strconv.FormatInt(id.Chunk, 10)
	}
	return path.Join(s.o.Dir, shardOf(id.Segment), id.Segment.Hex()+"-"+chunk)
}

func shardOf(id tiers.SegmentID) string {
	var sum byte
	for _, b := range id {
		sum = sum*31 + b
	}
	return hex.EncodeToString([]byte{sum})
}

func isShard(name string) bool {
	b, err := hex.DecodeString(name)
	return err == nil && len(b) == 1 && hex.EncodeToString(b) == name
}

// parseName reads a name that the spool gave, of a whole file or one that was being
// written.
func parseName(shard, name string) (id remote.PieceID, temp, ok bool) {
	name, temp = strings.CutSuffix(name, fsys.TempSuffix)
	hexID, chunk, ok := strings.Cut(name, "-")
	if !ok {
		return id, false, false
	}
	segment, err := tiers.ParseSegmentID(hexID)
	if err != nil || shardOf(segment) != shard {
		return id, false, false
	}
	if chunk == metaName {
		return remote.PieceID{Segment: segment, Chunk: remote.MetaPiece}, temp, true
	}
	n, err := strconv.ParseInt(chunk, 10, 64)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != chunk {
		return id, false, false
	}
	return remote.PieceID{Segment: segment, Chunk: n}, temp, true
}

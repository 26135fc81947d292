package dir

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/strandline-io/strandline/tiers/remote"
)

// The layout is docs/format/dir-object.md: the body, then the trailer. All
// numbers are big endian.
const (
	trailerMagic     = "SLDO"
	trailerMajor     = 1
	trailerMinor     = 0
	trailerSize      = 4 + 1 + 1 + 4 + 8 + 4 + 16 + 8 + 4 + 4
	trailerMax       = 4096   // of a newer minor version
	trailerMustFlags = 0xffff // flags that a reader must know: there are none yet
	trailerEnd       = 4 + 4  // length and CRC-32C
)

// trailer is what an object's file says of its body.
type trailer struct {
	size    int64
	crc     uint32
	etag    [16]byte // random: no two Puts have the same
	written time.Time
}

func (t trailer) object(key string) remote.Object {
	return remote.Object{
		Key: key, Size: t.size, ETag: hex.EncodeToString(t.etag[:]), CRC32C: t.crc, HasCRC: true, Modified: t.written,
	}
}

func (t trailer) encode() []byte {
	be := binary.BigEndian
	b := append(make([]byte, 0, trailerSize), trailerMagic...)
	b = append(b, trailerMajor, trailerMinor)
	b = be.AppendUint32(b, 0) // flags
	b = be.AppendUint64(b, uint64(t.size))
	b = be.AppendUint32(b, t.crc)
	b = append(b, t.etag[:]...)
	b = be.AppendUint64(b, uint64(t.written.UnixMilli()))
	b = be.AppendUint32(b, trailerSize)
	return be.AppendUint32(b, remote.CRC32C(b))
}

// trailerLen reads how long the trailer is from the last bytes of a file.
func trailerLen(end []byte) (int, error) {
	if len(end) < trailerEnd {
		return 0, fmt.Errorf("%w: the file ends after %d bytes", remote.ErrChecksum, len(end))
	}
	n := binary.BigEndian.Uint32(end[len(end)-trailerEnd:])
	if n < trailerSize || n > trailerMax {
		return 0, fmt.Errorf("%w: trailer of %d bytes", remote.ErrChecksum, n)
	}
	return int(n), nil
}

// decodeTrailer reads the trailer b of a file of fileSize bytes.
func decodeTrailer(b []byte, fileSize int64) (trailer, error) {
	be := binary.BigEndian
	n, err := trailerLen(b)
	if err != nil {
		return trailer{}, err
	}
	if n != len(b) {
		return trailer{}, fmt.Errorf("%w: trailer of %d bytes, it says %d", remote.ErrChecksum, len(b), n)
	}
	if got, want := remote.CRC32C(b[:n-4]), be.Uint32(b[n-4:]); got != want {
		return trailer{}, fmt.Errorf("%w: CRC-32C of the trailer is %08x, it says %08x", remote.ErrChecksum, got, want)
	}
	if !bytes.HasPrefix(b, []byte(trailerMagic)) {
		return trailer{}, fmt.Errorf("%w: the trailer begins with %q, not %q", remote.ErrChecksum, b[:4], trailerMagic)
	}
	if b[4] != trailerMajor || be.Uint32(b[6:])&trailerMustFlags != 0 {
		return trailer{}, fmt.Errorf("object format %d.%d with flags %08x is unknown: use a newer program", b[4], b[5], be.Uint32(b[6:]))
	}
	t := trailer{
		size:    int64(be.Uint64(b[10:])),
		crc:     be.Uint32(b[18:]),
		written: time.UnixMilli(int64(be.Uint64(b[38:]))).UTC(),
	}
	copy(t.etag[:], b[22:])
	if t.size < 0 || t.size != fileSize-int64(n) {
		return trailer{}, fmt.Errorf("%w: the body has %d bytes, the trailer says %d", remote.ErrChecksum, fileSize-int64(n), t.size)
	}
	return t, nil
}

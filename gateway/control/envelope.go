package control

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/klauspost/compress/zstd"
)

// The envelope of every object that the control plane writes to the bucket;
// docs/format/control-objects.md has the layout.
const (
	envelopeMajor  = 1
	envelopeMinor  = 0
	envelopeHeader = 28
	flagZstd       = 1 // the body is one zstd frame; must be understood

	// maxObject bounds what is read into memory, compressed and plain.
	maxObject = 1 << 30
)

type envelopeKind [4]byte

var (
	kindClaim    = envelopeKind{'S', 'T', 'R', 'C'} //nolint:gochecknoglobals // magic numbers of the format
	kindChange   = envelopeKind{'S', 'T', 'R', 'J'} //nolint:gochecknoglobals // magic numbers of the format
	kindSnapshot = envelopeKind{'S', 'T', 'R', 'S'} //nolint:gochecknoglobals // magic numbers of the format
)

// seal wraps body. compress is worth it for snapshots only.
func (k envelopeKind) seal(body []byte, compress bool) ([]byte, error) {
	var flags uint32
	if compress {
		enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
		if err != nil {
			return nil, fmt.Errorf("zstd: %w", err)
		}
		body = enc.EncodeAll(body, nil)
		flags |= flagZstd
	}
	out := make([]byte, envelopeHeader, envelopeHeader+len(body))
	copy(out, k[:])
	out[4], out[5] = envelopeMajor, envelopeMinor
	binary.BigEndian.PutUint16(out[6:], envelopeHeader)
	binary.BigEndian.PutUint32(out[8:], flags)
	binary.BigEndian.PutUint64(out[12:], uint64(len(body)))
	binary.BigEndian.PutUint32(out[20:], sum(body))
	binary.BigEndian.PutUint32(out[24:], sum(out[:24]))
	return append(out, body...), nil
}

// open checks the envelope b of kind k and returns its body.
func (k envelopeKind) open(b []byte) ([]byte, error) {
	switch {
	case len(b) < envelopeHeader:
		return nil, fmt.Errorf("%d bytes are too few for a header of %d", len(b), envelopeHeader)
	case envelopeKind(b[:4]) != k:
		return nil, fmt.Errorf("magic %q, want %q", b[:4], k[:])
	case b[4] != envelopeMajor:
		return nil, fmt.Errorf("format version %d.%d: this program reads version %d", b[4], b[5], envelopeMajor)
	case sum(b[:24]) != binary.BigEndian.Uint32(b[24:]):
		return nil, fmt.Errorf("header checksum mismatch")
	}
	head := binary.BigEndian.Uint16(b[6:])
	flags := binary.BigEndian.Uint32(b[8:])
	if head < envelopeHeader || int(head) > len(b) {
		return nil, fmt.Errorf("header length %d of %d bytes", head, len(b))
	}
	if flags&0xffff&^flagZstd != 0 {
		return nil, fmt.Errorf("flags %#x: this program does not understand all that it must", flags)
	}
	body := b[head:]
	switch n := binary.BigEndian.Uint64(b[12:]); {
	case n != uint64(len(body)):
		return nil, fmt.Errorf("body of %d bytes, the header says %d", len(body), n)
	case sum(body) != binary.BigEndian.Uint32(b[20:]):
		return nil, fmt.Errorf("body checksum mismatch")
	case flags&flagZstd == 0:
		return body, nil
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxObject))
	if err != nil {
		return nil, fmt.Errorf("zstd: %w", err)
	}
	defer dec.Close()
	plain, err := dec.DecodeAll(body, nil)
	if err != nil {
		return nil, fmt.Errorf("zstd: %w", err)
	}
	return plain, nil
}

// sum is the CRC-32C of b.
func sum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

package remote

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// CRC32C is the CRC-32C (Castagnoli) of b.
func CRC32C(b []byte) uint32 { return UpdateCRC32C(0, b) }

// UpdateCRC32C is the CRC-32C of what crc covers, followed by b. MakeTable makes
// this table once for the whole process, and the processor does the work.
func UpdateCRC32C(crc uint32, b []byte) uint32 {
	return crc32.Update(crc, crc32.MakeTable(crc32.Castagnoli), b)
}

// BytesBody is a Body of b, which must not change until Put returned.
func BytesBody(b []byte) Body { return ReaderAtBody(bytes.NewReader(b), 0, int64(len(b))) }

// ReaderAtBody is a Body of the n bytes of r from off on, such as a part of a
// segment file. Nothing is read before Put asks for it.
func ReaderAtBody(r io.ReaderAt, off, n int64) Body { return readerAtBody{r, off, n} }

type readerAtBody struct {
	r      io.ReaderAt
	off, n int64
}

func (b readerAtBody) Size() int64 { return b.n }

func (b readerAtBody) Open(off, n int64) (io.ReadSeekCloser, error) {
	if off < 0 || n < 0 || off+n > b.n {
		return nil, fmt.Errorf("open [%d,%d) of a body of %d bytes: %w", off, off+n, b.n, ErrRange)
	}
	return section{io.NewSectionReader(b.r, b.off+off, n)}, nil
}

type section struct{ *io.SectionReader }

func (section) Close() error { return nil }

// WithCRC is body with the CRC-32C that the caller already knows. Put sends it
// and the store refuses a body that does not match.
func WithCRC(body Body, crc uint32) Body { return knownCRC{body, crc} }

type knownCRC struct {
	Body
	crc uint32
}

// KnownCRC32C is the CRC-32C that body was given by WithCRC, if it was.
func KnownCRC32C(body Body) (crc uint32, known bool) {
	k, known := body.(knownCRC)
	return k.crc, known
}

// BodyCRC32C is the CRC-32C of body: the one it was given by WithCRC, else it
// reads all of it.
func BodyCRC32C(body Body) (uint32, error) {
	if crc, known := KnownCRC32C(body); known {
		return crc, nil
	}
	r, err := body.Open(0, body.Size())
	if err != nil {
		return 0, fmt.Errorf("read the body: %w", err)
	}
	crc, err := streamCRC(r, body.Size())
	if cerr := r.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return 0, fmt.Errorf("read the body: %w", err)
	}
	return crc, nil
}

func streamCRC(r io.Reader, n int64) (uint32, error) {
	var crc uint32
	buf := make([]byte, min(n, 128<<10))
	for n > 0 {
		part := buf[:min(n, int64(len(buf)))]
		if _, err := io.ReadFull(r, part); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF // shorter than its Size
			}
			return 0, err
		}
		crc = UpdateCRC32C(crc, part)
		n -= int64(len(part))
	}
	return crc, nil
}

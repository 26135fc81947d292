package s3wire

import (
	"context"
	"crypto/md5" //nolint:gosec // Content-MD5 guards against accidents, not against people
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/strandline-io/strandline/tiers/remote"
)

// Put stores body under key. Bodies above the single-put size go in parts; they
// appear at once too, when the upload is completed.
func (b *Bucket) Put(ctx context.Context, key string, body remote.Body, o remote.PutOptions) (remote.Object, error) {
	if err := remote.CheckKey(key); err != nil {
		return remote.Object{}, remote.Fail("put", key, err)
	}
	if err := b.checkCond(key, body.Size(), o.If); err != nil {
		return remote.Object{}, err
	}
	if body.Size() > b.cfg.SinglePut {
		return b.putParts(ctx, key, body)
	}
	return b.putOne(ctx, key, body, o.If)
}

func (b *Bucket) putOne(ctx context.Context, key string, body remote.Body, cond remote.Cond) (remote.Object, error) {
	size := body.Size()
	crc, err := remote.BodyCRC32C(body)
	if err != nil {
		return remote.Object{}, remote.Fail("put", b.place(key), err)
	}
	src, err := b.openPut(body, crc)
	if err != nil {
		return remote.Object{}, remote.Fail("put", b.place(key), err)
	}
	defer func() { _ = src.Close() }()
	rctx, f, done := b.attempt(ctx, remote.OpPut, key, size, 0)
	defer done()
	cond.ETag = TrimETag(cond.ETag)
	got, err := b.client.Put(rctx, b.full(key), Upload{Body: src, Size: size, Sum: src.sum, If: cond})
	if err != nil {
		return remote.Object{}, refused(b.fail(ctx, "put", key, effectOf(cond), f, err), cond)
	}
	if err := b.compare(key, src.sum, got.CRC32C); err != nil {
		return remote.Object{}, err
	}
	return b.stored(key, size, got.ETag, crc), nil
}

// openPut opens all of body, of which the CRC is known, to be sent. Where the
// store takes MD5 only, the CRC is checked here in its stead.
func (b *Bucket) openPut(body remote.Body, crc uint32) (*summed, error) {
	if b.cfg.Checksum == ChecksumMD5 {
		src, err := openSummed(body, 0, body.Size(), ChecksumMD5)
		if err == nil && src.crc != crc {
			_ = src.Close()
			return nil, errBodyChanged
		}
		return src, err
	}
	src, err := body.Open(0, body.Size())
	if err != nil {
		return nil, fmt.Errorf("open the body: %w", err)
	}
	if err := checkLength(src, body.Size()); err != nil {
		_ = src.Close()
		return nil, err
	}
	return &summed{ReadSeekCloser: src, sum: Sum{CRC32C: encodeCRC(crc)}, crc: crc}, nil
}

// refused adds to a 404 under If-Match that the condition did not hold: the
// object that was to be replaced is gone.
func refused(err error, cond remote.Cond) error {
	if cond.ETag != "" && errors.Is(err, remote.ErrNotFound) {
		return remote.Fail("put", "", fmt.Errorf("%w: %w", remote.ErrPrecondition, err))
	}
	return err
}

func effectOf(c remote.Cond) effect {
	if c == (remote.Cond{}) {
		return writes
	}
	return swaps
}

func (b *Bucket) stored(key string, size int64, etag string, crc uint32) remote.Object {
	o := remote.Object{Key: key, Size: size, ETag: TrimETag(etag)}
	if b.cfg.Checksum == ChecksumCRC32C {
		o.CRC32C, o.HasCRC = crc, true
	}
	return o
}

// compare checks the CRC that the store answered with, if it did.
func (b *Bucket) compare(key string, sent Sum, got string) error {
	if sent.CRC32C == "" || got == "" || got == sent.CRC32C {
		return nil
	}
	return failf("put", b.place(key), "%w: sent CRC-32C %s, the store keeps %s", remote.ErrChecksum, sent.CRC32C, got)
}

// checkLength refuses a body that ends early before any of it is sent: its CRC
// may fit what there is, and versitygw 1.8 then keeps that, although the request
// promised more.
func checkLength(src io.Seeker, size int64) error {
	end, err := src.Seek(0, io.SeekEnd)
	if err == nil && end != size {
		err = fmt.Errorf("the body has %d bytes where %d were promised: %w", end, size, io.ErrUnexpectedEOF)
	}
	if err == nil {
		_, err = src.Seek(0, io.SeekStart)
	}
	return err
}

// errBodyChanged is found before anything becomes visible.
var errBodyChanged = fmt.Errorf("%w: the body is not what its CRC-32C says", remote.ErrChecksum)

// summed is an open range of a body, at its start, with its checksum.
type summed struct {
	io.ReadSeekCloser
	sum Sum
	crc uint32
}

// openSummed opens n bytes of body from off on and reads them once for the
// checksum: it must be in the header, before the bytes.
func openSummed(body remote.Body, off, n int64, checksum string) (*summed, error) {
	src, err := body.Open(off, n)
	if err != nil {
		return nil, fmt.Errorf("open the body at %d: %w", off, err)
	}
	s := &summed{ReadSeekCloser: src}
	if err := s.compute(n, checksum); err != nil {
		_ = src.Close()
		return nil, fmt.Errorf("read the body at %d: %w", off, err)
	}
	return s, nil
}

func (s *summed) compute(n int64, checksum string) error {
	digest := md5.New() //nolint:gosec // as above
	buf := scratch.Get().(*[]byte)
	defer scratch.Put(buf)
	for left := n; left > 0; {
		part := (*buf)[:min(left, int64(len(*buf)))]
		if _, err := io.ReadFull(s, part); err != nil {
			return fmt.Errorf("%d bytes before the end that was promised: %w", left, err)
		}
		s.crc = remote.UpdateCRC32C(s.crc, part)
		if checksum == ChecksumMD5 {
			_, _ = digest.Write(part)
		}
		left -= int64(len(part))
	}
	if _, err := s.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if checksum == ChecksumMD5 {
		s.sum.MD5 = base64.StdEncoding.EncodeToString(digest.Sum(nil))
	} else {
		s.sum.CRC32C = encodeCRC(s.crc)
	}
	return nil
}

// scratch are buffers for checksum passes. A pool holds no state.
var scratch = sync.Pool{New: func() any { b := make([]byte, 128<<10); return &b }} //nolint:gochecknoglobals // a pool of buffers, shared by all buckets

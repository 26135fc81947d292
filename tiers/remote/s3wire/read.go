package s3wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/strandline-io/strandline/tiers/remote"
)

// Get opens the object, or a range of it. The reader's time is limited by the
// stall limit only. What it reads is not checked against the store's CRC: ranges
// have none, so whoever reads compares with the CRCs that it keeps.
func (b *Bucket) Get(ctx context.Context, key string, r remote.Range) (io.ReadCloser, remote.Object, error) {
	if err := remote.CheckKey(key); err != nil {
		return nil, remote.Object{}, remote.Fail("get", key, err)
	}
	byteRange, err := formatRange(r)
	if err != nil {
		return nil, remote.Object{}, failf("get", b.place(key), "%w: %w", remote.ErrRange, err)
	}
	f := b.begin(ctx, remote.OpGet, key, 0)
	body, h, err := b.client.Get(withFlight(ctx, f), b.full(key), byteRange, r.ETag)
	if err != nil {
		f.pass.Done()
		return nil, remote.Object{}, b.fail(ctx, "get", key, reads, f, err)
	}
	o, err := b.object(key, h, r.Off)
	if err != nil {
		_ = body.Close()
		f.pass.Done()
		return nil, remote.Object{}, err
	}
	return &objectReader{b: b, ctx: ctx, key: key, flight: f, body: body, left: h.Length}, o, nil
}

// formatRange is r as in the Range header, empty for all of the object. An empty
// object has no range that HTTP could name.
func formatRange(r remote.Range) (string, error) {
	switch {
	case r.Off < 0 || r.Len < 0:
		return "", fmt.Errorf("offset %d and length %d must not be negative", r.Off, r.Len)
	case r.Off == 0 && r.Len == 0:
		return "", nil
	case r.Len == 0:
		return fmt.Sprintf("bytes=%d-", r.Off), nil
	}
	return fmt.Sprintf("bytes=%d-%d", r.Off, r.Off+r.Len-1), nil
}

// object is what h says of key, of which bytes from off on were asked for.
func (b *Bucket) object(key string, h Header, off int64) (remote.Object, error) {
	o := remote.Object{Key: key, Size: h.Length, ETag: TrimETag(h.ETag), Modified: h.Modified}
	o.CRC32C, o.HasCRC = decodeCRC(h.CRC32C, h.CRCType)
	if h.ContentRange == "" {
		if off != 0 {
			return remote.Object{}, failf("get", b.place(key), "%w: the store ignored the range", remote.ErrUnavailable)
		}
		return o, nil
	}
	start, total, err := parseContentRange(h.ContentRange)
	if err != nil || start != off {
		return remote.Object{}, failf("get", b.place(key), "%w: asked for bytes from %d on, the store answers %q", remote.ErrUnavailable, off, h.ContentRange)
	}
	o.Size = total
	return o, nil
}

// parseContentRange reads "bytes START-LAST/TOTAL".
func parseContentRange(s string) (start, total int64, err error) {
	spec, ok := strings.CutPrefix(s, "bytes ")
	span, size, ok2 := strings.Cut(spec, "/")
	first, _, ok3 := strings.Cut(span, "-")
	if !ok || !ok2 || !ok3 {
		return 0, 0, fmt.Errorf("content range %q", s)
	}
	if start, err = strconv.ParseInt(first, 10, 64); err != nil {
		return 0, 0, err
	}
	if total, err = strconv.ParseInt(size, 10, 64); err != nil {
		return 0, 0, err
	}
	if start < 0 || total < start {
		return 0, 0, fmt.Errorf("content range %q", s)
	}
	return start, total, nil
}

// ReadAt fills dst from off on, in one request and without a buffer between.
func (b *Bucket) ReadAt(ctx context.Context, key string, dst []byte, off int64) (int, error) {
	if err := remote.CheckKey(key); err != nil {
		return 0, remote.Fail("read", key, err)
	}
	if off < 0 {
		return 0, failf("read", b.place(key), "%w: negative offset %d", remote.ErrRange, off)
	}
	if len(dst) == 0 {
		return 0, nil
	}
	rctx, f, done := b.attempt(ctx, remote.OpGet, key, int64(len(dst)), 0)
	defer done()
	body, h, err := b.client.Get(rctx, b.full(key), fmt.Sprintf("bytes=%d-%d", off, off+int64(len(dst))-1), "")
	if err != nil {
		return 0, b.fail(ctx, "read", key, reads, f, err)
	}
	defer func() { _ = body.Close() }()
	o, err := b.object(key, h, off)
	if err != nil {
		return 0, err
	}
	want := min(int64(len(dst)), o.Size-off)
	n, err := io.ReadFull(body, dst[:want])
	if err != nil {
		return n, noAnswer(ctx, "read", b.place(key), reads, f, err)
	}
	if err := drain(body, h.Length-want); err != nil {
		return n, noAnswer(ctx, "read", b.place(key), reads, f, err)
	}
	if n < len(dst) {
		return n, io.EOF
	}
	return n, nil
}

// drain reads a body to its end, so that its connection can be used again: where
// the length was told net/http knows the end by itself, in chunks it does not. A
// store that ignored a range at 0 sends more than was asked for: that is not
// worth reading.
func drain(body io.Reader, left int64) error {
	if left > 0 {
		return nil
	}
	var one [1]byte
	if n, err := body.Read(one[:]); n == 0 && err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// Stat asks for the object's header, its CRC included.
func (b *Bucket) Stat(ctx context.Context, key string) (remote.Object, error) {
	if err := remote.CheckKey(key); err != nil {
		return remote.Object{}, remote.Fail("stat", key, err)
	}
	rctx, f, done := b.attempt(ctx, remote.OpHead, key, 0, 0)
	defer done()
	h, err := b.client.Head(rctx, b.full(key), b.cfg.Checksum)
	if err != nil {
		failed := b.fail(ctx, "stat", key, reads, f, err)
		done() // whoever holds a place in a lane must not wait for another one
		return remote.Object{}, b.explain(ctx, key, b.client.Fault(err).Status, failed)
	}
	return b.object(key, h, 0)
}

// explain is the error of a HEAD, whose answer has no body and so no code: it
// asks once more with GET where it matters which of several it was, such as
// whether the object or the whole bucket is missing.
func (b *Bucket) explain(ctx context.Context, key string, status int, failed error) error {
	if status < http.StatusBadRequest || status >= http.StatusInternalServerError {
		return failed
	}
	rctx, gf, done := b.attempt(ctx, remote.OpGet, key, 0, 0)
	defer done()
	body, _, gerr := b.client.Get(rctx, b.full(key), "bytes=0-0", "")
	if gerr == nil {
		_ = body.Close()
		return failed
	}
	if b.client.Fault(gerr).Code == "" {
		return failed
	}
	return b.fail(ctx, "stat", key, reads, gf, gerr)
}

// objectReader is what Get returns.
type objectReader struct {
	b      *Bucket
	ctx    context.Context //nolint:containedctx // the reader belongs to the call that opened it
	key    string
	flight *flight
	body   io.ReadCloser
	left   int64
}

func (r *objectReader) Read(p []byte) (int, error) {
	n, err := r.body.Read(p)
	r.left -= int64(n)
	if err == nil || errors.Is(err, io.EOF) && r.left <= 0 {
		return n, err
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, noAnswer(r.ctx, "get", r.b.place(r.key), reads, r.flight, err)
}

// Close ends the reading. If all was read the connection is used again, else it
// is closed too.
func (r *objectReader) Close() error {
	defer r.flight.pass.Done()
	return r.body.Close()
}

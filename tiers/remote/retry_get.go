package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
)

// Get opens again after a failure. Its body may take as long as it needs, as
// long as bytes come: a Read that gets none for the time of an attempt begins a
// new request.
func (r *retrier) Get(ctx context.Context, key string, rg Range) (io.ReadCloser, Object, error) {
	octx, cancel := WithPatience(ctx, r.o.CallTimeout, errCallTimeout)
	defer cancel()
	t := r.tries("get", key)
	for {
		body, req, o, err := r.open(ctx, patienceOf(octx), key, rg)
		if err == nil {
			off, end, spanErr := rg.Span(o.Size)
			if spanErr != nil { // the store gave a body all the same
				_ = body.Close()
				req.stop(nil)
				return nil, Object{}, Fail("get", key, spanErr)
			}
			return &resumed{r: r, ctx: ctx, key: key, etag: o.ETag, off: off, end: end, body: body, request: req}, o, nil
		}
		if err = t.again(octx, err); err != nil {
			return nil, Object{}, Fail("get", key, err)
		}
	}
}

// request is one attempt to get a body, from the asking to the last byte.
type request struct {
	stop  context.CancelCauseFunc
	quiet *patience // how long nothing may come
}

// open is one attempt to get a body, ended by request.stop. While it is held back,
// outer stands still too.
func (r *retrier) open(ctx context.Context, outer *patience, key string, rg Range) (io.ReadCloser, request, Object, error) {
	inner, stop := context.WithCancelCause(ctx)
	quiet := &patience{outer: outer, cause: errAttemptTimeout, over: func() { stop(errAttemptTimeout) }}
	actx := patient{inner, quiet}
	quiet.arm(r.o.AttemptTimeout)
	body, o, err := r.Bucket.Get(actx, key, rg)
	if quiet.disarm() && err == nil {
		return body, request{stop, quiet}, o, nil
	}
	if err == nil {
		_ = body.Close() // its request was cancelled just now
		err = errAttemptTimeout
	}
	err = ownTimeout(ctx, actx, err)
	stop(nil)
	return nil, request{}, Object{}, err
}

// resumed is the body of a Get: the bytes [off, end) of an object with one ETag,
// in as many requests as it takes. It belongs to its reader.
type resumed struct {
	r    *retrier
	ctx  context.Context
	key  string
	etag string

	off, end int64
	body     io.ReadCloser // nil between requests
	request  request       // that body is of
	tries    *tries        // since the last byte; nil if there was no failure
	err      error         // for good
}

func (b *resumed) Read(p []byte) (int, error) {
	for b.err == nil {
		if b.off == b.end {
			b.err = io.EOF
			break
		}
		if b.body == nil {
			b.err = b.reopen()
			continue
		}
		n, err := b.read(p)
		b.off += int64(n)
		if err != nil {
			b.broken(err)
		}
		if n > 0 || len(p) == 0 {
			return n, nil
		}
	}
	return 0, b.err
}

// read is one Read that does not wait for longer than an attempt may take.
func (b *resumed) read(p []byte) (int, error) {
	b.request.quiet.arm(b.r.o.AttemptTimeout)
	defer b.request.quiet.disarm()
	n, err := b.body.Read(p[:min(int64(len(p)), b.end-b.off)])
	if n > 0 {
		b.tries = nil
	}
	if errors.Is(err, io.EOF) && b.off+int64(n) < b.end {
		err = io.ErrUnexpectedEOF
	}
	if errors.Is(err, io.EOF) {
		err = nil // Read knows the end by itself
	}
	return n, err
}

// broken ends a request and waits for the next one, or sets err.
func (b *resumed) broken(err error) {
	b.drop()
	b.r.broken.Inc()
	if b.tries == nil {
		b.tries = b.r.tries("get", b.key)
	}
	if !passing(err) {
		err = fmt.Errorf("%w: the body broke off at %d: %w", ErrUnavailable, b.off, err)
	}
	if err = b.tries.again(b.ctx, err); err != nil {
		b.err = Fail("get", b.key, err)
	}
}

// reopen asks for the rest. An object that was replaced meanwhile is an error:
// its bytes must not be joined to those of the old one.
func (b *resumed) reopen() error {
	body, req, o, err := b.r.open(b.ctx, patienceOf(b.ctx), b.key, Range{Off: b.off, Len: b.end - b.off, ETag: b.etag})
	if err != nil {
		return Fail("get", b.key, b.tries.again(b.ctx, err))
	}
	b.body, b.request = body, req
	if o.ETag != b.etag {
		b.drop()
		return Fail("get", b.key, fmt.Errorf("%w: the object was replaced while it was read", ErrPrecondition))
	}
	return nil
}

func (b *resumed) drop() {
	if b.body == nil {
		return
	}
	_ = b.body.Close() // what was read of it stands
	b.request.stop(nil)
	b.body = nil
}

func (b *resumed) Close() error {
	b.drop()
	if b.err == nil {
		b.err = Fail("get", b.key, io.ErrClosedPipe)
	}
	return nil
}

// List goes on after the last key when a listing fails.
func (r *retrier) List(ctx context.Context, o ListOptions) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		t := r.tries("list", o.Prefix)
		for {
			err := r.listOn(ctx, &o, t, yield)
			if err == nil {
				return
			}
			if err = t.again(ctx, err); err != nil {
				yield(Object{}, Fail("list", o.Prefix, err))
				return
			}
		}
	}
}

// listOn yields until the end, which is nil, or a failure. o.StartAfter follows
// what was yielded: for a common prefix it is above all keys with that prefix,
// as no legal key has a tilde. What a store repeats all the same is dropped.
func (r *retrier) listOn(ctx context.Context, o *ListOptions, t *tries, yield func(Object, error) bool) error {
	for obj, err := range r.Bucket.List(ctx, *o) {
		if err != nil {
			return err
		}
		if obj.Key <= o.StartAfter {
			continue
		}
		o.StartAfter, t.failed = obj.Key, 0
		if obj.IsPrefix {
			o.StartAfter += "~"
		}
		if !yield(obj, nil) {
			return nil
		}
	}
	return nil
}

package remote

import (
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"time"
)

// WithGate returns b with every request passing g. A driver whose calls take
// several requests, or none, sees to it itself (UseGate); of any other a call is
// taken for a request, and a listing for one per thousand objects. It belongs
// below WithRetry, so that tries count and wait like any other request.
func WithGate(b Bucket, g *Gate) Bucket {
	if wire, ok := b.(interface{ UseGate(g *Gate) Bucket }); ok {
		return wire.UseGate(g)
	}
	return &gated{Bucket: b, gate: g}
}

// gated has no state of its own. The methods that it does not have are those of
// the bucket below.
type gated struct {
	Bucket
	gate *Gate
}

// pass runs call as one request.
func (b *gated) pass(ctx context.Context, op Op, key string, call func(*Passage) error) error {
	p, err := b.gate.Begin(ctx, Request{op, key})
	if err != nil {
		return Fail(op.String(), key, err)
	}
	defer p.Done()
	err = call(p)
	p.answeredAs(err)
	return err
}

// answeredAs stands for the status of a driver that has none.
func (p *Passage) answeredAs(err error) {
	status := http.StatusOK
	switch {
	case err == nil, errors.Is(err, io.EOF):
	case errors.Is(err, ErrThrottled):
		status = http.StatusServiceUnavailable
	case errors.Is(err, ErrUnavailable), errors.Is(err, ErrUnknownOutcome), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		status = 0
	case errors.Is(err, ErrNotFound), errors.Is(err, ErrNoBucket):
		status = http.StatusNotFound
	case errors.Is(err, ErrPrecondition):
		status = http.StatusPreconditionFailed
	case errors.Is(err, ErrConflict):
		status = http.StatusConflict
	case errors.Is(err, ErrDenied):
		status = http.StatusForbidden
	default:
		status = http.StatusBadRequest
	}
	p.Answered(status, retryAfterOf(err))
}

func (b *gated) Put(ctx context.Context, key string, body Body, o PutOptions) (out Object, err error) {
	crc, err := BodyCRC32C(body) // else the driver might read the body once more, and it would count twice
	if err != nil {
		return Object{}, Fail("put", key, err)
	}
	err = b.pass(ctx, OpPut, key, func(p *Passage) error {
		out, err = b.Bucket.Put(ctx, key, WithCRC(pacedBody{body, ctx, p}, crc), o)
		return err
	})
	return out, err
}

// pacedBody is a body that is read at the rate of uploads.
type pacedBody struct {
	Body
	ctx  context.Context //nolint:containedctx // of the one call that reads it
	pass *Passage
}

func (b pacedBody) Open(off, n int64) (io.ReadSeekCloser, error) {
	r, err := b.Body.Open(off, n)
	if err != nil {
		return nil, err
	}
	return pacedUpload{r, b.ctx, b.pass}, nil
}

type pacedUpload struct {
	io.ReadSeekCloser
	ctx  context.Context //nolint:containedctx // of the one call that reads it
	pass *Passage
}

func (r pacedUpload) Read(p []byte) (int, error) {
	asked, err := r.pass.AskUp(r.ctx, len(p))
	if err != nil {
		return 0, err
	}
	n, err := r.ReadSeekCloser.Read(p[:asked])
	r.pass.Up(asked, n)
	return n, err
}

func (b *gated) Get(ctx context.Context, key string, r Range) (io.ReadCloser, Object, error) {
	p, err := b.gate.Begin(ctx, Request{OpGet, key})
	if err != nil {
		return nil, Object{}, Fail("get", key, err)
	}
	body, o, err := b.Bucket.Get(ctx, key, r)
	p.answeredAs(err)
	if err != nil {
		p.Done()
		return nil, o, err
	}
	return &pacedDownload{body, ctx, p}, o, nil
}

// pacedDownload is a body that is read at the rate of downloads. Close ends its
// passage.
type pacedDownload struct {
	io.ReadCloser
	ctx  context.Context //nolint:containedctx // of the call that opened it
	pass *Passage
}

func (r *pacedDownload) Read(p []byte) (int, error) {
	asked, err := r.pass.AskDown(r.ctx, len(p))
	if err != nil {
		return 0, err
	}
	n, err := r.ReadCloser.Read(p[:asked])
	r.pass.Down(asked, n)
	return n, err
}

func (r *pacedDownload) Close() error {
	defer r.pass.Done()
	return r.ReadCloser.Close()
}

// ReadAt waits for all of dst before it asks: the driver gives it in one piece.
func (b *gated) ReadAt(ctx context.Context, key string, dst []byte, off int64) (n int, err error) {
	err = b.pass(ctx, OpGet, key, func(p *Passage) error {
		for got := 0; got < len(dst); {
			asked, aerr := p.AskDown(ctx, len(dst)-got)
			if aerr != nil {
				return Fail("read", key, aerr)
			}
			got += asked
		}
		n, err = b.Bucket.ReadAt(ctx, key, dst, off)
		p.Down(len(dst), n)
		return err
	})
	return n, err
}

func (b *gated) Stat(ctx context.Context, key string) (o Object, err error) {
	err = b.pass(ctx, OpHead, key, func(*Passage) error {
		o, err = b.Bucket.Stat(ctx, key)
		return err
	})
	return o, err
}

// listed is how many objects a page of a listing has.
const listed = 1000

// List holds a place until the caller has taken everything.
func (b *gated) List(ctx context.Context, o ListOptions) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		p, err := b.gate.Begin(ctx, Request{OpList, o.Prefix})
		if err != nil {
			yield(Object{}, Fail("list", o.Prefix, err))
			return
		}
		var failed error
		defer func() {
			p.answeredAs(failed)
			p.Done()
		}()
		n := 0
		for obj, err := range b.Bucket.List(ctx, o) {
			if n++; n > listed && err == nil {
				n = 1
				b.gate.count(Request{OpList, o.Prefix})
			}
			failed = err
			if !yield(obj, err) {
				return
			}
		}
	}
}

// count counts a request that went well and did not pass.
func (g *Gate) count(r Request) {
	p := &Passage{gate: g, request: r, free: true}
	p.Answered(http.StatusOK, 0)
	p.Done()
}

func (b *gated) Delete(ctx context.Context, keys ...string) error {
	switch len(keys) {
	case 0:
		return b.Bucket.Delete(ctx)
	case 1:
		return b.pass(ctx, OpDelete, keys[0], func(*Passage) error { return b.Bucket.Delete(ctx, keys...) })
	}
	return b.pass(ctx, OpDeleteMany, keys[0], func(*Passage) error { return b.Bucket.Delete(ctx, keys...) })
}

func (b *gated) AbortStale(ctx context.Context, olderThan time.Duration) (n int, err error) {
	err = b.pass(ctx, OpListUploads, "", func(*Passage) error {
		n, err = b.Bucket.AbortStale(ctx, olderThan)
		return err
	})
	return n, err
}

// pausing is an error that says when to come back.
type pausing struct {
	error
	after time.Duration
}

func (e pausing) Unwrap() error { return e.error }

// RetryAfter is err with the time after which the store wants to be asked again,
// for WithRetry. Without one it is err.
func RetryAfter(err error, after time.Duration) error {
	if err == nil || after <= 0 {
		return err
	}
	return pausing{err, after}
}

func retryAfterOf(err error) time.Duration {
	if p, ok := errors.AsType[pausing](err); ok {
		return p.after
	}
	return 0
}

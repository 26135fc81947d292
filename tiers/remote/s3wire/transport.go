package s3wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"time"

	"github.com/strandline-io/strandline/tiers/remote"
)

// errLocal marks errors of the body that was to be sent: the store has no part
// in them.
var errLocal = errors.New("reading the body to send")

// errDetached ends the sending of a body whose request is over.
var errDetached = errors.New("the request is over")

// Transport is the only http.RoundTripper of the drivers. It sets the time
// limits that neither SDK has, and it notes on the request's flight what happened,
// since SDKs lose the cause of an error.
type Transport struct {
	base  *http.Transport
	knobs HTTP

	// Made once: the watch is armed with them for every few KiB.
	errNotSent, errNotReceived error
}

// NewTransport makes a transport of its own, with its own pool of connections.
// HTTP/2 stays off: one connection for all would put every request behind the
// slowest.
func NewTransport(h HTTP) *Transport {
	proxy := h.Proxy
	if proxy == nil {
		proxy = http.ProxyFromEnvironment
	}
	return &Transport{
		knobs:          h,
		errNotSent:     fmt.Errorf("nothing could be sent for %s", h.Stall),
		errNotReceived: fmt.Errorf("no byte came for %s", h.Stall),
		base: &http.Transport{
			Proxy:               proxy,
			DialContext:         (&net.Dialer{Timeout: h.Dial, KeepAlive: 30 * time.Second}).DialContext,
			TLSHandshakeTimeout: h.TLS,
			TLSClientConfig:     h.TLSConfig,
			MaxIdleConnsPerHost: h.IdleConns,
			IdleConnTimeout:     90 * time.Second,
			DisableCompression:  true,
			WriteBufferSize:     32 << 10,
			ReadBufferSize:      32 << 10,
		},
	}
}

// CloseIdleConnections closes the connections that no request uses.
func (t *Transport) CloseIdleConnections() { t.base.CloseIdleConnections() }

// RoundTrip sends req once, under the time limits. It returns when nobody reads
// the request's body any more.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	f := flightOf(req.Context())
	ctx, cancel := context.WithCancelCause(req.Context())
	w := newWatch(cancel)
	header := t.knobs.Header + f.headerGrace()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { f.reached() },
		WroteRequest: func(httptrace.WroteRequestInfo) {
			w.armUnlessAnswered(header, fmt.Errorf("no answer within %s", header))
		},
	})
	out := req.WithContext(ctx)
	var body *outgoing
	if req.Body != nil && req.Body != http.NoBody {
		body = newOutgoing(ctx, req.Body, f.pass, w, t)
		out.Body = body
	}
	resp, err := t.base.RoundTrip(out)
	w.answer()
	if resp != nil {
		f.answered(resp)
	}
	if body != nil {
		if lerr := body.detach(); lerr != nil {
			err = errors.Join(lerr, err)
		}
	}
	if err != nil {
		if resp != nil {
			_ = resp.Body.Close()
		}
		cancel(nil)
		w.stop()
		if cause := w.fired(); cause != nil {
			err = cause
		}
		f.failed(err)
		return nil, err
	}
	resp.Body = &incoming{ctx: ctx, body: resp.Body, watch: w, stall: t.knobs.Stall, errStall: t.errNotReceived, cancel: cancel, flight: f}
	return resp, nil
}

// watch cancels a request when its timer, armed for one step at a time, runs
// out.
type watch struct {
	cancel context.CancelCauseFunc
	timer  *time.Timer

	mu       sync.Mutex
	why      error // what the running timer stands for, nil if none runs
	cause    error // why it fired
	answered bool
}

func newWatch(cancel context.CancelCauseFunc) *watch {
	w := &watch{cancel: cancel}
	w.timer = time.AfterFunc(time.Hour, w.fire)
	w.timer.Stop()
	return w
}

func (w *watch) fire() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.why != nil && w.cause == nil {
		w.cause = w.why
		w.cancel(w.why)
	}
}

func (w *watch) arm(d time.Duration, why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.why = why
	w.timer.Reset(d)
}

// armUnlessAnswered is for the sending side, which may run on after the answer
// came.
func (w *watch) armUnlessAnswered(d time.Duration, why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.answered {
		w.why = why
		w.timer.Reset(d)
	}
}

// rest stops the clock until it is armed again.
func (w *watch) rest() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.answered {
		w.why = nil
		w.timer.Stop()
	}
}

func (w *watch) answer() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answered = true
	w.why = nil
	w.timer.Stop()
}

func (w *watch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.why = nil
	w.timer.Stop()
}

func (w *watch) fired() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cause
}

// outgoing is a request's body. net/http may go on reading one after RoundTrip
// has returned; detach ends that, so the caller gets its bytes back.
//
// It goes at the rate of the gate. The watch is for what the store does not take:
// it stands while bytes wait for their turn or are read from disk.
type outgoing struct {
	ctx      context.Context //nolint:containedctx // of the request that it is the body of
	over     context.CancelFunc
	pass     *remote.Passage
	watch    *watch
	stall    time.Duration
	errStall error

	mu   sync.Mutex
	body io.ReadCloser // nil once detached
	err  error         // of the body itself
}

func newOutgoing(ctx context.Context, body io.ReadCloser, pass *remote.Passage, w *watch, t *Transport) *outgoing {
	ctx, over := context.WithCancel(ctx)
	return &outgoing{ctx: ctx, over: over, body: body, pass: pass, watch: w, stall: t.knobs.Stall, errStall: t.errNotSent}
}

func (o *outgoing) Read(p []byte) (int, error) {
	o.watch.rest()
	asked, err := o.pass.AskUp(o.ctx, len(p)) // outside of mu: a detach need not wait for it
	if err != nil {
		return 0, context.Cause(o.ctx)
	}
	return o.read(p[:asked])
}

func (o *outgoing) read(p []byte) (n int, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer func() { o.pass.Up(len(p), n) }()
	if o.body == nil {
		return 0, errDetached
	}
	if o.ctx.Err() != nil {
		// Without this the rest of a small body may be gone before net/http
		// takes notice, and a cancelled write would often happen.
		return 0, context.Cause(o.ctx)
	}
	n, err = o.body.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		o.err = fmt.Errorf("%w: %w", errLocal, err)
		return n, o.err
	}
	o.watch.armUnlessAnswered(o.stall, o.errStall)
	return n, err
}

// Close is called by net/http when it is done with the body.
func (o *outgoing) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.body == nil {
		return nil
	}
	body := o.body
	o.body = nil
	return body.Close()
}

// detach returns the body's own error, if it had one.
func (o *outgoing) detach() error {
	o.over()
	_ = o.Close()
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// incoming is an answer's body, read under the stall limit. The clock runs
// while a read waits for the store only: a slow caller is no stall.
type incoming struct {
	ctx      context.Context //nolint:containedctx // of the request that it is the answer to
	body     io.ReadCloser
	watch    *watch
	stall    time.Duration
	errStall error
	cancel   context.CancelCauseFunc
	flight   *flight
	ended    bool // all was read: ctx is over
}

func (i *incoming) Read(p []byte) (int, error) {
	if i.ended {
		return 0, io.EOF
	}
	asked, err := i.flight.pass.AskDown(i.ctx, len(p))
	if err != nil {
		err = context.Cause(i.ctx)
		i.flight.failed(err)
		return 0, err
	}
	i.watch.arm(i.stall, i.errStall)
	n, err := i.body.Read(p[:asked])
	i.watch.stop()
	i.flight.pass.Down(asked, n)
	switch {
	case err == nil:
		return n, nil
	case errors.Is(err, io.EOF):
		i.ended = true
		i.cancel(nil) // the connection is back in the pool by now
		return n, err
	}
	if cause := i.watch.fired(); cause != nil {
		err = cause
	}
	i.flight.failed(err)
	return n, err
}

func (i *incoming) Close() error {
	err := i.body.Close()
	i.cancel(nil)
	return err
}

package remote

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// HedgeOptions bound what WithHedge does. Zero fields have the defaults of their
// comments.
type HedgeOptions struct {
	Least     time.Duration // a request is never hedged before, default 250 ms
	MaxBytes  int64         // of a range that is hedged, default 4 MiB
	PerSecond float64       // hedges, default 5
	Share     float64       // hedges per request, default 0.02
	// Registerer shows how often a hedge was sent, and whether it won.
	Registerer prometheus.Registerer
}

func (o HedgeOptions) withDefaults() HedgeOptions {
	if o.Least <= 0 {
		o.Least = 250 * time.Millisecond
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = 4 << 20
	}
	if o.PerSecond <= 0 {
		o.PerSecond = 5
	}
	if o.Share <= 0 {
		o.Share = 0.02
	}
	return o
}

// WithHedge returns b with hedged ranged reads: a read of a small range that takes
// longer than 95 of 100 others did is asked for once more, and the first good
// answer counts. The other request is cancelled and what it holds is closed.
//
// Reads only, and ranges only: they can be repeated without anybody noticing. A
// write never is, and a whole object, such as the claim, is what somebody decides
// by. Hedges are few (PerSecond, Share): a store that is slow for everybody must
// not be asked twice as much.
//
// It belongs around WithRetry, so that each of the two requests has its own tries.
func WithHedge(b Bucket, o HedgeOptions) Bucket {
	o = o.withDefaults()
	h := &hedger{Bucket: b, o: o, budget: hedgeBudget{perSecond: o.PerSecond, share: o.Share, bySecond: o.PerSecond}}
	h.sent = counters(o.Registerer, "bucket", "hedges_total", "Ranged reads that were asked for a second time because they took long, by whether the second answer was the one that counted.", "won")
	return h
}

// hedger owns nothing but its figures. The methods that it does not have are those
// of the bucket below.
type hedger struct {
	Bucket
	o      HedgeOptions
	budget hedgeBudget
	gets   latencies // until the body begins
	reads  latencies // until all is read
	sent   *prometheus.CounterVec
}

// hedgeBudget is two buckets of tokens: one fills by the second, one by requests.
// The latter is empty at the start, so hedges never exceed their share.
type hedgeBudget struct {
	perSecond, share float64

	mu        sync.Mutex
	bySecond  float64
	byRequest float64
	at        time.Time
}

// request counts one more request.
func (b *hedgeBudget) request() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.byRequest = min(b.perSecond, b.byRequest+b.share)
}

// take takes a token of both, if there is one.
func (b *hedgeBudget) take(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.at.IsZero() {
		b.bySecond = min(b.perSecond, b.bySecond+now.Sub(b.at).Seconds()*b.perSecond)
	}
	b.at = now
	const one = 1 - 1e-9 // fifty times a fiftieth is a little less than one
	if b.bySecond < one || b.byRequest < one {
		return false
	}
	b.bySecond--
	b.byRequest = max(0, b.byRequest-1)
	return true
}

// latencies is the newest times of a kind of request.
type latencies struct {
	mu    sync.Mutex
	ring  [256]time.Duration
	n     int // ever
	limit time.Duration
}

// add notes a time. Every 16 the limit is computed anew.
func (l *latencies) add(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ring[l.n%len(l.ring)] = d
	l.n++
	if l.n%16 == 0 {
		known := slices.Clone(l.ring[:min(l.n, len(l.ring))])
		slices.Sort(known)
		l.limit = known[len(known)*95/100]
	}
}

// p95 is what 95 of 100 requests take at most; 0 if too few are known.
func (l *latencies) p95() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.limit
}

// reply is the outcome of one of the two requests.
type reply[V any] struct {
	val   V
	err   error
	hedge bool
}

// race sends ask and, if it takes long, sends it once more. It returns the reply
// that counts and, if the other request is still under way, a channel that will
// have its outcome, whose context has ended. stop ends that of the one that counts.
//
// A refusal (missing, denied, out of range) counts at once: the other would be told
// the same. After another failure the one that is still under way is waited for.
func race[V any](ctx context.Context, h *hedger, l *latencies, ask func(context.Context, bool) (V, error)) (won reply[V], stop context.CancelFunc, other <-chan reply[V]) {
	h.budget.request()
	replies := make(chan reply[V], 2)
	w := newWaiting(ctx, max(h.o.Least, l.p95()))
	send := func(hedge bool) context.CancelFunc {
		actx, cancel := w.context(ctx)
		go func() {
			v, err := ask(actx, hedge)
			replies <- reply[V]{v, err, hedge}
		}()
		return cancel
	}
	stops := [2]context.CancelFunc{send(false), nil}
	defer w.patience.disarm()
	for under := 1; ; {
		select {
		case <-w.late:
			if h.budget.take(time.Now()) {
				stops[1] = send(true)
				under++
			}
			continue
		case won = <-replies:
		}
		under--
		mine, its := 0, 1
		if won.hedge {
			mine, its = 1, 0
		}
		good := won.err == nil || errors.Is(won.err, io.EOF)
		if good && !won.hedge || won.hedge {
			l.add(w.took()) // of the first request: it took at least as long
		}
		if !good && passing(won.err) && under > 0 && ctx.Err() == nil {
			stops[mine]()
			continue
		}
		if stops[1] != nil {
			h.sent.WithLabelValues(wonLabel(good && won.hedge)).Inc()
		}
		if stops[its] != nil {
			stops[its]()
		}
		if under > 0 {
			other = replies
		}
		return won, stops[mine], other
	}
}

// waiting is how long the requests of one call have been waited for. It stands
// still while one of them is held back by a limit of our own: a hedge would stand in
// the same line.
type waiting struct {
	patience *patience
	limit    time.Duration
	late     chan struct{}             // gets a value once the limit is over
	since    atomic.Pointer[time.Time] // when that was
}

var errNeverCause = errors.New("a hedge is due") // ends no context

func newWaiting(ctx context.Context, limit time.Duration) *waiting {
	w := &waiting{limit: limit, late: make(chan struct{}, 1)}
	w.patience = &patience{outer: patienceOf(ctx), cause: errNeverCause, over: func() {
		now := time.Now()
		w.since.Store(&now)
		w.late <- struct{}{}
	}}
	w.patience.arm(limit)
	return w
}

func (w *waiting) context(ctx context.Context) (context.Context, context.CancelFunc) {
	inner, cancel := context.WithCancel(ctx)
	return patient{inner, w.patience}, cancel
}

// took is how long it is until now, without what we held back.
func (w *waiting) took() time.Duration {
	if w.patience.disarm() {
		return w.limit - w.patience.rest()
	}
	if since := w.since.Load(); since != nil {
		return w.limit + time.Since(*since)
	}
	return w.limit // it is over just now
}

func wonLabel(won bool) string {
	if won {
		return "true"
	}
	return "false"
}

// opened is what Get gives.
type opened struct {
	body io.ReadCloser
	o    Object
}

// Get hedges the time until the body begins.
func (h *hedger) Get(ctx context.Context, key string, r Range) (io.ReadCloser, Object, error) {
	if r.Len <= 0 || r.Len > h.o.MaxBytes {
		return h.Bucket.Get(ctx, key, r)
	}
	won, stop, other := race(ctx, h, &h.gets, func(ctx context.Context, _ bool) (opened, error) {
		body, o, err := h.Bucket.Get(ctx, key, r)
		return opened{body, o}, err
	})
	if other != nil {
		go func() {
			if late := <-other; late.err == nil {
				_ = late.val.body.Close() // nobody wants it
			}
		}()
	}
	if won.err != nil {
		stop()
		return nil, Object{}, won.err
	}
	return &stoppedBody{won.val.body, stop}, won.val.o, nil
}

// stoppedBody ends its request's context with itself.
type stoppedBody struct {
	io.ReadCloser
	stop context.CancelFunc
}

func (b *stoppedBody) Close() error {
	defer b.stop()
	return b.ReadCloser.Close()
}

// ReadAt hedges the whole read. The second request has bytes of its own; dst is
// nobody's but the caller's once ReadAt has returned.
func (h *hedger) ReadAt(ctx context.Context, key string, dst []byte, off int64) (int, error) {
	if len(dst) == 0 || int64(len(dst)) > h.o.MaxBytes {
		return h.Bucket.ReadAt(ctx, key, dst, off)
	}
	var second []byte
	won, stop, other := race(ctx, h, &h.reads, func(ctx context.Context, hedge bool) (int, error) {
		if !hedge {
			return h.Bucket.ReadAt(ctx, key, dst, off)
		}
		second = make([]byte, len(dst))
		return h.Bucket.ReadAt(ctx, key, second, off)
	})
	defer stop()
	if other != nil && won.hedge {
		<-other // it was cancelled, and writes to dst until it returns
	}
	if won.hedge {
		copy(dst, second[:won.val])
	}
	return won.val, won.err
}

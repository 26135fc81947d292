package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
)

// RetryOptions say how often and how fast WithRetry tries. Zero fields have the
// defaults of their comments.
type RetryOptions struct {
	Attempts     int           // for one call, default 6; of a body that is read, without progress
	Base         time.Duration // the first wait is up to this long, default 100 ms; each next one twice as long
	ThrottleBase time.Duration // the same after ErrThrottled, default 500 ms
	Cap          time.Duration // of a wait, default 3 s

	AttemptTimeout     time.Duration // of one attempt, default 10 s, plus its bytes at 1 MiB/s
	CallTimeout        time.Duration // of all attempts, default 60 s, plus the bytes at 1 MiB/s
	ConditionalTimeout time.Duration // of all attempts of a conditional Put, default 15 s

	Logger     hclog.Logger          // told of every retry at debug level; nil is nobody
	Registerer prometheus.Registerer // nil: the retries are not shown
	// Jitter picks a wait in [0, limit]; nil is a random one.
	Jitter func(limit time.Duration) time.Duration
}

func (o RetryOptions) withDefaults() RetryOptions {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&o.Base, 100 * time.Millisecond},
		{&o.ThrottleBase, 500 * time.Millisecond},
		{&o.Cap, 3 * time.Second},
		{&o.AttemptTimeout, 10 * time.Second},
		{&o.CallTimeout, time.Minute},
		{&o.ConditionalTimeout, 15 * time.Second},
	} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	if o.Attempts <= 0 {
		o.Attempts = 6
	}
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	if o.Jitter == nil {
		o.Jitter = func(limit time.Duration) time.Duration { return rand.N(limit + 1) }
	}
	return o
}

// slowest is the rate that a transfer must reach on average.
const slowest = 1 << 20 // bytes per second

func transferTime(bytes int64) time.Duration {
	return time.Duration(bytes) * (time.Second / time.Duration(slowest))
}

// WithRetry returns b with retries: what failed because the store was busy, away
// or slow is tried again, the whole of it (report 062). What the store refused
// (missing, condition, denied, range, key, checksum) is not.
//
// A conditional Put is never repeated blindly, since a repetition may fail on
// the success of the try before it. After an outcome that is not known the
// object is read back: if it is what was sent, the Put went well; if nothing
// changed, it is tried again; else the error is ErrUnknownOutcome.
//
// A Get whose body breaks off goes on where it ended, as long as the ETag is the
// same. A listing goes on after its last key.
func WithRetry(b Bucket, o RetryOptions) Bucket {
	o = o.withDefaults()
	return &retrier{
		Bucket:  b,
		o:       o,
		budget:  retryBudget{tokens: budgetMax},
		broken:  counter(o.Registerer, "object", "bodies_broken_total", "Bodies that broke off or came no further, and were asked for again from the last good byte on."),
		retries: counters(o.Registerer, "object", "retries_total", "Calls of the object store that were tried again.", "op"),
	}
}

// retrier has no state but its budget. The methods that it does not have are
// those of the bucket below.
type retrier struct {
	Bucket
	o       RetryOptions
	budget  retryBudget
	retries *prometheus.CounterVec
	broken  prometheus.Counter
}

// retryBudget keeps retries to a fifth of the calls, after a burst: without
// tokens a retry waits as long as it can, so that a store that fails for everybody
// gets fewer calls, not six times as many.
type retryBudget struct {
	mu     sync.Mutex
	tokens float64
}

const (
	budgetMax      = 50
	budgetPerCall  = 0.2
	budgetPerRetry = 1
)

func (b *retryBudget) earn() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tokens = min(budgetMax, b.tokens+budgetPerCall)
}

func (b *retryBudget) spend() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.tokens < budgetPerRetry {
		return false
	}
	b.tokens -= budgetPerRetry
	return true
}

// passing reports whether err may go away by itself.
func passing(err error) bool {
	for _, e := range []error{ErrThrottled, ErrUnavailable, ErrConflict, ErrUnknownOutcome, errAttemptTimeout} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

var (
	errAttemptTimeout = fmt.Errorf("%w: no answer in time", ErrUnavailable)
	errCallTimeout    = fmt.Errorf("%w: no success in the time of all attempts", ErrUnavailable)
)

// attempt runs call with the time of one attempt for size bytes. A time-out of
// its own is told from one of the caller's.
func (r *retrier) attempt(ctx context.Context, size int64, call func(context.Context) error) error {
	actx, cancel := WithPatience(ctx, r.o.AttemptTimeout+transferTime(size), errAttemptTimeout)
	defer cancel()
	return ownTimeout(ctx, actx, call(actx))
}

// ownTimeout tells the end of our time for actx from that of the caller's ctx.
func ownTimeout(ctx, actx context.Context, err error) error {
	switch {
	case err == nil, ctx.Err() != nil, actx.Err() == nil, !errors.Is(context.Cause(actx), errAttemptTimeout):
		return err
	case errors.Is(err, context.Canceled): // by us: whoever asks why must not take it for the caller
		return fmt.Errorf("%w: %s", errAttemptTimeout, err.Error())
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, errAttemptTimeout):
		return fmt.Errorf("%w: %w", errAttemptTimeout, err)
	}
	return err // it failed for another reason just before
}

// tries counts the attempts of one call and waits between them.
type tries struct {
	r      *retrier
	op     string
	key    string
	failed int
}

func (r *retrier) tries(op, key string) *tries {
	r.budget.earn()
	return &tries{r: r, op: op, key: key}
}

// again waits before the next attempt and returns nil, or says why there is
// none: err, if it will not pass or was the last one.
func (t *tries) again(ctx context.Context, err error) error {
	t.failed++
	switch {
	case ctx.Err() != nil:
		return gaveUp(ctx, err)
	case !passing(err):
		return err
	case t.failed >= t.r.o.Attempts:
		return fmt.Errorf("gave up after %d attempts: %w", t.failed, err)
	}
	wait := t.delay(err)
	t.r.retries.WithLabelValues(t.op).Inc()
	t.r.o.Logger.Debug("trying the object store again", "op", t.op, "key", t.key, "attempt", t.failed, "wait", wait, "error", err)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return gaveUp(ctx, err)
	}
}

// gaveUp keeps the store's answer beside the end of the context. Our own limit is
// the store's fault, not a deadline of the caller's.
func gaveUp(ctx context.Context, err error) error {
	switch cause := context.Cause(ctx); {
	case !errors.Is(cause, errCallTimeout) && errors.Is(err, ctx.Err()):
		return err
	case !errors.Is(cause, errCallTimeout):
		return fmt.Errorf("%w, before that: %w", ctx.Err(), err)
	case errors.Is(err, context.DeadlineExceeded):
		return errCallTimeout
	default:
		return fmt.Errorf("%w, before that: %w", errCallTimeout, err)
	}
}

// mostRetryAfter bounds what a store can make a call wait.
const mostRetryAfter = 20 * time.Second

func (t *tries) delay(err error) time.Duration {
	return max(t.backOff(err), min(mostRetryAfter, retryAfterOf(err)))
}

func (t *tries) backOff(err error) time.Duration {
	if !t.r.budget.spend() {
		return t.r.o.Cap
	}
	first := t.r.o.Base
	if errors.Is(err, ErrThrottled) {
		first = t.r.o.ThrottleBase
	}
	return t.r.o.Jitter(min(t.r.o.Cap, first<<min(t.failed-1, 16)))
}

// do repeats call, which is idempotent, until it goes well, fails for good or
// time is up.
func (r *retrier) do(ctx context.Context, op, key string, size int64, call func(context.Context) error) error {
	ctx, cancel := WithPatience(ctx, r.o.CallTimeout+transferTime(size), errCallTimeout)
	defer cancel()
	t := r.tries(op, key)
	for {
		err := r.attempt(ctx, size, call)
		if err == nil || errors.Is(err, io.EOF) && op == "read" {
			return err
		}
		if err = t.again(ctx, err); err != nil {
			return Fail(op, key, err)
		}
	}
}

// ReadAt reads all of dst again after a failure.
func (r *retrier) ReadAt(ctx context.Context, key string, dst []byte, off int64) (n int, err error) {
	err = r.do(ctx, "read", key, int64(len(dst)), func(ctx context.Context) error {
		n, err = r.Bucket.ReadAt(ctx, key, dst, off)
		return err
	})
	return n, err
}

// Stat asks again after a failure.
func (r *retrier) Stat(ctx context.Context, key string) (o Object, err error) {
	err = r.do(ctx, "stat", key, 0, func(ctx context.Context) error {
		o, err = r.Bucket.Stat(ctx, key)
		return err
	})
	return o, err
}

// Delete removes all keys again after a failure.
func (r *retrier) Delete(ctx context.Context, keys ...string) error {
	if len(keys) == 0 {
		return nil
	}
	const perKey = 16 << 10 // allows a second for every 64 keys
	return r.do(ctx, "delete", keys[0], int64(len(keys))*perKey, func(ctx context.Context) error {
		return r.Bucket.Delete(ctx, keys...)
	})
}

// AbortStale starts again after a failure.
func (r *retrier) AbortStale(ctx context.Context, olderThan time.Duration) (total int, err error) {
	err = r.do(ctx, "abort stale uploads", "", 0, func(ctx context.Context) error {
		n, aerr := r.Bucket.AbortStale(ctx, olderThan)
		total += n
		return aerr
	})
	return total, err
}

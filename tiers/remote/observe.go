package remote

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// WithMetrics returns b with counters. Around the driver it counts requests;
// around WithRetry it would count what callers asked for.
func WithMetrics(b Bucket, r prometheus.Registerer) Bucket {
	const sub = "object"
	return &observed{
		Bucket:   b,
		requests: counters(r, sub, "requests_total", "Calls of the object store.", "op", "result"),
		bytes:    counters(r, sub, "bytes_total", "Bytes of bodies.", "direction"),
		seconds: register(r, prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "strandline", Subsystem: sub, Name: "duration_seconds",
			Help:    "Time of a call, for a get until the body begins.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2.5, 12), // 1 ms to 24 s
		}, []string{"op"})),
	}
}

// observed counts the calls of the bucket below; those that it does not have are
// not counted.
type observed struct {
	Bucket
	requests, bytes *prometheus.CounterVec
	seconds         *prometheus.HistogramVec
}

// resultOf names err for the label result. The first that matches counts.
func resultOf(err error) string {
	if err == nil || errors.Is(err, io.EOF) {
		return "ok"
	}
	for _, r := range []struct {
		err  error
		name string
	}{
		{ErrUnknownOutcome, "unknown"},
		{ErrNotFound, "not-found"},
		{ErrPrecondition, "precondition"},
		{ErrConflict, "conflict"},
		{ErrThrottled, "throttled"},
		{ErrDenied, "denied"},
		{ErrRange, "range"},
		{ErrChecksum, "checksum"},
		{ErrNoBucket, "no-bucket"},
		{ErrUnavailable, "unavailable"},
		{ErrBadKey, "bad-key"},
		{context.Canceled, "cancelled"},
		{context.DeadlineExceeded, "timeout"},
	} {
		if errors.Is(err, r.err) {
			return r.name
		}
	}
	return "error"
}

func (b *observed) done(op string, start time.Time, err error) {
	b.requests.WithLabelValues(op, resultOf(err)).Inc()
	b.seconds.WithLabelValues(op).Observe(time.Since(start).Seconds())
}

func (b *observed) Put(ctx context.Context, key string, body Body, o PutOptions) (Object, error) {
	start := time.Now()
	out, err := b.Bucket.Put(ctx, key, body, o)
	b.done("put", start, err)
	if err == nil {
		b.bytes.WithLabelValues("out").Add(float64(body.Size()))
	}
	return out, err
}

func (b *observed) Get(ctx context.Context, key string, r Range) (io.ReadCloser, Object, error) {
	start := time.Now()
	body, out, err := b.Bucket.Get(ctx, key, r)
	b.done("get", start, err)
	if err != nil {
		return nil, out, err
	}
	return &countedBody{body, b.bytes.WithLabelValues("in")}, out, nil
}

type countedBody struct {
	io.ReadCloser
	bytes prometheus.Counter
}

func (c *countedBody) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.bytes.Add(float64(n))
	return n, err
}

func (b *observed) ReadAt(ctx context.Context, key string, dst []byte, off int64) (int, error) {
	start := time.Now()
	n, err := b.Bucket.ReadAt(ctx, key, dst, off)
	b.done("read", start, err)
	b.bytes.WithLabelValues("in").Add(float64(n))
	return n, err
}

func (b *observed) Stat(ctx context.Context, key string) (Object, error) {
	start := time.Now()
	out, err := b.Bucket.Stat(ctx, key)
	b.done("stat", start, err)
	return out, err
}

// List counts once for a whole listing, however many pages it takes.
func (b *observed) List(ctx context.Context, o ListOptions) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		start := time.Now()
		var failed error
		defer func() { b.done("list", start, failed) }()
		for out, err := range b.Bucket.List(ctx, o) {
			failed = err
			if !yield(out, err) {
				return
			}
		}
	}
}

func (b *observed) Delete(ctx context.Context, keys ...string) error {
	start := time.Now()
	err := b.Bucket.Delete(ctx, keys...)
	b.done("delete", start, err)
	return err
}

package s3wire

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/strandline-io/strandline/tiers/remote"
)

// flight is what is known of one request on the wire. It travels in the
// context, because the SDKs between Bucket and Transport replace errors by texts
// of their own.
type flight struct {
	grace time.Duration   // added to the header limit: the store has work to do first
	pass  *remote.Passage // through the gate; nil for requests that pass freely

	mu    sync.Mutex
	conn  bool          // a connection was there: bytes may have reached the store
	err   error         // of the transport
	after time.Duration // Retry-After of the answer
}

type flightKey struct{}

func withFlight(ctx context.Context, f *flight) context.Context {
	return context.WithValue(ctx, flightKey{}, f)
}

// flightOf never returns nil: requests that an SDK makes on its own account, such as
// for credentials, have a flight that nobody looks at.
func flightOf(ctx context.Context) *flight {
	if f, ok := ctx.Value(flightKey{}).(*flight); ok {
		return f
	}
	return &flight{}
}

func (f *flight) headerGrace() time.Duration { return f.grace }

func (f *flight) reached() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.conn = true
	f.pass.Sent()
}

// answered notes the status of the store's answer and when it wants to be asked
// again.
func (f *flight) answered(resp *http.Response) {
	after := retryAfter(resp.Header.Get("Retry-After"), time.Now())
	f.pass.Answered(resp.StatusCode, after)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.after = after
}

// retryAfter reads the header: seconds or a date. What cannot be read is no wish.
func retryAfter(header string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseInt(header, 10, 32); err == nil {
		return time.Duration(max(0, seconds)) * time.Second
	}
	if at, err := http.ParseTime(header); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}

func (f *flight) retryAfter() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.after
}

func (f *flight) reachedStore() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.conn
}

func (f *flight) failed(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

// cause is the transport's error, or what the SDK said if the request never got
// that far.
func (f *flight) cause(err error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return f.err
	}
	return err
}

package s3wire

import (
	"context"
	"sync"
	"time"
)

// flight is what is known of one request on the wire. It travels in the
// context, because the SDKs between Bucket and Transport replace errors by texts
// of their own.
type flight struct {
	grace time.Duration // added to the header limit: the store has work to do first

	mu   sync.Mutex
	conn bool  // a connection was there: bytes may have reached the store
	err  error // of the transport
}

type flightKey struct{}

func withFlight(ctx context.Context, grace time.Duration) (context.Context, *flight) {
	f := &flight{grace: grace}
	return context.WithValue(ctx, flightKey{}, f), f
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

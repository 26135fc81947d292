package s3wire_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/strandline-io/strandline/testenv/faultproxy"
	"github.com/strandline-io/strandline/tiers/remote"
)

// TestStatInAWindowOfOne: after a storm of SlowDown one read may be under way. A Stat
// that asks twice ends nevertheless.
func TestStatInAWindowOfOne(t *testing.T) {
	each(t, func(t on) {
		p := faultproxy.New(t, t.bucket.Endpoint)
		b, g := passing(open(t, t.driver, t.bucket, through(p.URL)), remote.Limits{})
		ctx := t.Context()
		p.Add(faultproxy.Rule{Method: http.MethodGet, Key: "/storm", Action: faultproxy.Status, Status: 503, Times: -1})
		for g.Lanes()[1].Window > 1 {
			_, _ = b.ReadAt(ctx, dataKey(1, "storm"), make([]byte, 10), 0)
		}
		wrapped := remote.WithRetry(b, remote.RetryOptions{AttemptTimeout: 2 * time.Second, CallTimeout: 5 * time.Second})
		done := make(chan error, 1)
		cctx, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() { _, err := wrapped.Stat(cctx, dataKey(1, "none")); done <- err }()
		select {
		case err := <-done:
			if !errors.Is(err, remote.ErrNotFound) {
				t.Error(err)
			}
		case <-time.After(20 * time.Second):
			t.Errorf("Stat has not ended after 20 s although its call may take 5 s: %+v", g.Lanes()[1])
			cancel()
			<-done
		}
	})
}

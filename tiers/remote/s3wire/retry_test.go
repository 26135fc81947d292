package s3wire_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/strandline-io/strandline/testenv/faultproxy"
	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/s3wire"
)

// soon makes the waits of WithRetry short.
func soon() remote.RetryOptions {
	return remote.RetryOptions{Jitter: func(time.Duration) time.Duration { return time.Millisecond }}
}

// TestReport062RetriedPutSendsTheWholeBody: the store refuses the first request of
// each object, or of each part.
func TestReport062RetriedPutSendsTheWholeBody(t *testing.T) {
	each(t, func(t on) {
		driver, sb := t.driver, t.bucket
		p := faultproxy.New(t, sb.Endpoint)
		b := remote.WithRetry(open(t, driver, sb, through(p.URL)), soon())
		for _, size := range []int{0, 100_000, 5 << 20, 33 << 20} {
			for _, action := range []faultproxy.Action{faultproxy.Status, faultproxy.Reset, faultproxy.CutRequest, faultproxy.DropAfter} {
				if size == 0 && action == faultproxy.CutRequest {
					continue // there is nothing to cut
				}
				p.Clear()
				p.Add(faultproxy.Rule{Method: http.MethodPut, Action: action})
				body, key := noise(8, size), fmt.Sprintf("k/%d/%s", size, strings.ReplaceAll(string(action), " ", "-"))
				mustPut(t, b, key, body)
				got, err := readAll(t.Context(), b, key)
				if err != nil || sha256.Sum256(got) != sha256.Sum256(body) {
					t.Errorf("%s: %d bytes came back, %v", key, len(got), err)
				}
				if p.Hits() != 1 {
					t.Errorf("%s: %d requests were struck", key, p.Hits())
				}
				if attempts := count(p, http.MethodPut); size <= s3wire.DefaultSinglePut && attempts != 2 {
					t.Errorf("%s: %d attempts", key, attempts)
				}
			}
		}
		wantNoUploads(t, sb)
	})
}

func count(p *faultproxy.Proxy, method string) int {
	n := 0
	for _, s := range p.Seen() {
		if s.Method == method {
			n++
		}
	}
	return n
}

// TestLostConditionalPutSucceeds: a repetition would fail on the success of the
// first try.
func TestLostConditionalPutSucceeds(t *testing.T) {
	each(t, func(t on) {
		driver, sb := t.driver, t.bucket
		p := faultproxy.New(t, sb.Endpoint)
		b := remote.WithRetry(open(t, driver, sb, through(p.URL)), soon())
		etag := ""
		for i, action := range []faultproxy.Action{faultproxy.DropAfter, faultproxy.StatusAfter, faultproxy.Status, faultproxy.Reset, faultproxy.CutRequest} {
			p.Clear()
			p.Add(faultproxy.Rule{Method: http.MethodPut, Action: action})
			body := fmt.Appendf(nil, "claim %d of %s", i, driver)
			o, err := b.Put(t.Context(), "claim", remote.BytesBody(body), remote.PutOptions{If: remote.Cond{Absent: etag == "", ETag: etag}})
			if err != nil {
				t.Fatalf("%s: %v", action, err)
			}
			wantContent(t, b, "claim", body)
			etag = o.ETag
		}
	})
}

// TestStormPasses: half of all requests fail for a while, in every way.
func TestStormPasses(t *testing.T) {
	each(t, func(t on) {
		driver, sb := t.driver, t.bucket
		p := faultproxy.New(t, sb.Endpoint)
		o := soon()
		o.Attempts = 30 // one unlucky key may be struck every time
		b := remote.WithRetry(open(t, driver, sb, through(p.URL)), o)
		for i, action := range []faultproxy.Action{faultproxy.Status, faultproxy.Reset, faultproxy.DropAfter, faultproxy.Truncate, faultproxy.CutRequest} {
			p.Add(faultproxy.Rule{Nth: 3*i + 1, Times: 4, Action: action})
		}
		var wg sync.WaitGroup
		for w := range 8 {
			wg.Go(func() {
				body, key := noise(byte(w), 50_000), fmt.Sprint("k", w)
				if _, err := b.Put(t.Context(), key, remote.BytesBody(body), remote.PutOptions{}); err != nil {
					t.Errorf("put: %v", err)
					return
				}
				got, err := readAll(t.Context(), b, key)
				if err != nil || sha256.Sum256(got) != sha256.Sum256(body) {
					t.Errorf("get: %d bytes, %v", len(got), err)
				}
			})
		}
		wg.Wait()
		if p.Hits() < 10 {
			t.Errorf("only %d requests were struck", p.Hits())
		}
	})
}

// TestReadResumes where the body broke off.
func TestReadResumes(t *testing.T) {
	each(t, func(t on) {
		driver, sb := t.driver, t.bucket
		p := faultproxy.New(t, sb.Endpoint)
		b := remote.WithRetry(open(t, driver, sb, through(p.URL), quick), soon())
		body := noise(9, 8<<20)
		mustPut(t, b, "k", body)
		p.Add(faultproxy.Rule{Method: http.MethodGet, Action: faultproxy.Truncate, Times: 2})
		p.Add(faultproxy.Rule{Method: http.MethodGet, Action: faultproxy.Stall})
		wantContent(t, b, "k", body)
		if p.Hits() != 3 {
			t.Errorf("%d requests were struck", p.Hits())
		}
		for i, r := range gets(p) {
			if again := r.Header.Get("If-Match") != "" && r.Header.Get("Range") != ""; again != (i > 0) {
				t.Errorf("request %d asks for range %q if it matches %q", i, r.Header.Get("Range"), r.Header.Get("If-Match"))
			}
		}
	})
}

func gets(p *faultproxy.Proxy) (out []faultproxy.Seen) {
	for _, r := range p.Seen() {
		if r.Method == http.MethodGet {
			out = append(out, r)
		}
	}
	return out
}

// TestReadIsNotResumedInAnotherObject: the one that broke off was replaced.
func TestReadIsNotResumedInAnotherObject(t *testing.T) {
	each(t, func(t on) {
		driver, sb := t.driver, t.bucket
		p := faultproxy.New(t, sb.Endpoint)
		b := remote.WithRetry(open(t, driver, sb, through(p.URL), quick), soon())
		mustPut(t, b, "k", noise(9, 1<<20))
		p.Add(faultproxy.Rule{Method: http.MethodGet, Action: faultproxy.Truncate})
		r, _, err := b.Get(t.Context(), "k", remote.Range{})
		if err != nil {
			t.Fatal(err)
		}
		mustPut(t, b, "k", noise(10, 1<<20))
		if n, err := io.Copy(io.Discard, r); !errors.Is(err, remote.ErrPrecondition) || n >= 1<<20 {
			t.Errorf("%d bytes, %v", n, err)
		}
		_ = r.Close()
	})
}

func TestSelfTest(t *testing.T) {
	each(t, func(t on) {
		driver, sb := t.driver, t.bucket
		b := open(t, driver, sb)
		if err := remote.SelfTest(t.Context(), b); err != nil {
			t.Error(err)
		}
		for o := range b.List(t.Context(), remote.ListOptions{}) {
			t.Errorf("it left %s", o.Key)
		}
	})
}

// TestCallersCause keeps both the kind of end and its reason.
func TestCallersCause(t *testing.T) {
	each(t, func(t on) {
		driver, sb := t.driver, t.bucket
		b := open(t, driver, sb)
		reason := errors.New("the claim was lost")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(reason)
		_, err := b.Put(ctx, "k", remote.BytesBody(nil), remote.PutOptions{})
		if !errors.Is(err, context.Canceled) || !errors.Is(err, reason) {
			t.Errorf("%v", err)
		}
	})
}

// TestEarlyEnd: a reader that is closed early, or never read, holds nothing up.
func TestEarlyEnd(t *testing.T) {
	each(t, func(t on) {
		driver, sb := t.driver, t.bucket
		b := open(t, driver, sb)
		mustPut(t, b, "k", noise(1, 8<<20))
		for range 5 {
			r, o, err := b.Get(t.Context(), "k", remote.Range{})
			if err != nil || o.Size != 8<<20 {
				t.Fatal(o, err)
			}
			if _, err := io.ReadFull(r, make([]byte, 10)); err != nil {
				t.Fatal(err)
			}
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

package s3wire_test

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/strandline-io/strandline/testenv/faultproxy"
	"github.com/strandline-io/strandline/testenv/s3srv"
	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/s3wire"
)

// page is the answer of a fake store to a listing.
type page struct {
	keys      []string
	truncated bool
	token     string
}

func (p page) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "<ListBucketResult><Name>bucket</Name><IsTruncated>%t</IsTruncated>", p.truncated)
	if p.token != "" {
		fmt.Fprintf(&b, "<NextContinuationToken>%s</NextContinuationToken>", p.token)
	}
	for _, key := range p.keys {
		b.WriteString("<Contents><Key>")
		_ = xml.EscapeText(&b, []byte(key))
		b.WriteString("</Key><Size>1</Size><ETag>\"e\"</ETag><LastModified>2026-01-02T03:04:05.000Z</LastModified></Contents>")
	}
	return b.String() + "</ListBucketResult>"
}

// TestReport104BrokenListings end with an error that names the store's fault, and
// with few requests.
func TestReport104BrokenListings(t *testing.T) {
	for name, c := range map[string]struct {
		pages func(n int, token string) page
		said  string
	}{
		"truncated without a token": {func(int, string) page { return page{keys: []string{"p/a"}, truncated: true} }, "token"},
		"the same token for ever": {func(n int, _ string) page {
			return page{keys: []string{fmt.Sprintf("p/%03d", n)}, truncated: true, token: "same"}
		}, "token that it was asked with"},
		"the same page for ever": {func(n int, _ string) page {
			return page{keys: []string{"p/a", "p/b"}, truncated: true, token: fmt.Sprint(n)}
		}, `"a" comes after "b"`},
		"empty pages for ever": {func(n int, _ string) page { return page{truncated: true, token: fmt.Sprint(n)} }, "without an entry"},
		"a key twice":          {func(int, string) page { return page{keys: []string{"p/a", "p/a"}} }, `"a" comes after "a"`},
		"another prefix":       {func(int, string) page { return page{keys: []string{"q/a"}} }, `"q/a" for prefix "p/"`},
	} {
		for driver := range drivers {
			t.Run(name+"/"+driver, func(t *testing.T) {
				var n atomic.Int32
				server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					i := int(n.Add(1))
					_, _ = io.WriteString(w, c.pages(i, r.URL.Query().Get("continuation-token")).String())
				}))
				defer server.Close()
				b := open(t, driver, s3srv.Bucket{Name: "bucket", Endpoint: server.URL, AccessKey: "a", SecretKey: "s"})
				var err error
				for _, err = range b.List(t.Context(), remote.ListOptions{}) {
					if err != nil {
						break
					}
				}
				if err == nil || !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(c.said)) {
					t.Errorf("the listing ended with %v, want %q", err, c.said)
				}
				if n.Load() > 200 {
					t.Errorf("%d requests", n.Load())
				}
			})
		}
	}
}

// TestListingStopsWithItsContext between pages and within one.
func TestListingStopsWithItsContext(t *testing.T) {
	for driver := range drivers {
		ctx, cancel := context.WithCancel(t.Context())
		var n atomic.Int32
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if i := n.Add(1); i > 1 {
				_, _ = io.Copy(io.Discard, r.Body)
				cancel()
				<-r.Context().Done()
				return
			}
			_, _ = io.WriteString(w, page{keys: []string{"p/a"}, truncated: true, token: "next"}.String())
		}))
		b := open(t, driver, s3srv.Bucket{Name: "bucket", Endpoint: server.URL, AccessKey: "a", SecretKey: "s"})
		var got []error
		begun := time.Now()
		for _, err := range b.List(ctx, remote.ListOptions{}) {
			got = append(got, err)
		}
		if len(got) != 2 || got[0] != nil || !errors.Is(got[1], context.Canceled) {
			t.Errorf("%s: %v", driver, got)
		}
		if waited := time.Since(begun); waited > 5*time.Second {
			t.Errorf("%s: the listing went on for %s", driver, waited)
		}
		server.Close()
	}
}

// TestReport104BrokenListingOfUploads: what is not ours is not aborted, and a
// listing that leads nowhere aborts nothing.
func TestReport104BrokenListingOfUploads(t *testing.T) {
	const upload = "<Upload><Key>%s</Key><UploadId>%s</UploadId><Initiated>2026-01-02T03:04:05.000Z</Initiated></Upload>"
	for name, c := range map[string]struct {
		rest string
		n    int
		bad  bool
	}{
		"whole":           {"<IsTruncated>false</IsTruncated>", 1, false},
		"without markers": {"<IsTruncated>true</IsTruncated>", 0, true},
		"in a circle":     {"<IsTruncated>true</IsTruncated><NextKeyMarker>p/a</NextKeyMarker><NextUploadIdMarker>1</NextUploadIdMarker>", 0, true},
	} {
		for driver := range drivers {
			var aborted atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodDelete {
					aborted.Add(1)
					if !strings.HasSuffix(r.URL.Path, "/p/a") {
						t.Errorf("%s %s: %s was aborted", name, driver, r.URL.Path)
					}
					w.WriteHeader(http.StatusNoContent)
					return
				}
				_, _ = fmt.Fprintf(w, "<ListMultipartUploadsResult>"+upload+upload+"%s</ListMultipartUploadsResult>", "p/a", "1", "px/a", "2", c.rest)
			}))
			b := open(t, driver, s3srv.Bucket{Name: "bucket", Endpoint: server.URL, AccessKey: "a", SecretKey: "s"})
			n, err := b.AbortStale(t.Context(), 0)
			if n != c.n || int(aborted.Load()) != c.n || (err != nil) != c.bad {
				t.Errorf("%s %s: %d, %v, %d were aborted", name, driver, n, err, aborted.Load())
			}
			server.Close()
		}
	}
}

// TestDeleteAnswers: keys that the store did not speak of, or refused, are not
// deleted.
func TestDeleteAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		is   error
	}{
		"denied":      {"<DeleteResult><Deleted><Key>p/a</Key></Deleted><Error><Key>p/b</Key><Code>AccessDenied</Code><Message>no</Message></Error></DeleteResult>", remote.ErrDenied},
		"passed over": {"<DeleteResult><Deleted><Key>p/a</Key></Deleted></DeleteResult>", remote.ErrUnavailable},
		"gone":        {"<DeleteResult><Deleted><Key>p/a</Key></Deleted><Error><Key>p/b</Key><Code>NoSuchKey</Code></Error></DeleteResult>", nil},
		"all":         {"<DeleteResult><Deleted><Key>p/a</Key></Deleted><Deleted><Key>p/b</Key></Deleted></DeleteResult>", nil},
	} {
		for driver := range drivers {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, c.body) }))
			b := open(t, driver, s3srv.Bucket{Name: "bucket", Endpoint: server.URL, AccessKey: "a", SecretKey: "s"})
			if err := b.Delete(t.Context(), "a", "b"); !errors.Is(err, c.is) {
				t.Errorf("%s %s: %v, want %v", name, driver, err, c.is)
			}
			server.Close()
		}
	}
}

// TestReport137CancelledTransfersLeak no goroutine, and so no connection, which
// has two.
func TestReport137CancelledTransfersLeakNothing(t *testing.T) {
	rounds := 150
	if testing.Short() {
		rounds = 20
	}
	each(t, func(t on) {
		driver, sb := t.driver, t.bucket
		mustPut(t, open(t, driver, sb), "k", noise(1, 4<<20))
		before := runtime.NumGoroutine()
		b := open(t, driver, sb)
		body := remote.BytesBody(noise(2, 6<<20))
		var wg sync.WaitGroup
		for w := range 4 {
			rng := rand.New(rand.NewPCG(uint64(w), 1))
			wg.Go(func() {
				for i := range rounds {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rng.IntN(8_000))*time.Microsecond)
					abandon(ctx, b, fmt.Sprintf("c/%d-%d", w, i), body, i%4)
					cancel()
				}
			})
		}
		wg.Wait()
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		waitGoroutines(t, before)
	})
}

// abandon does one transfer, or as much of it as its context lets it.
func abandon(ctx context.Context, b remote.Bucket, key string, body remote.Body, kind int) {
	switch kind {
	case 0:
		_, _ = b.Put(ctx, key, body, remote.PutOptions{})
	case 1:
		_, _ = b.ReadAt(ctx, "k", make([]byte, 3<<20), 10)
	case 2:
		// Closing must do, without the end of the context.
		if r, _, err := b.Get(context.WithoutCancel(ctx), "k", remote.Range{}); err == nil {
			_, _ = io.CopyN(io.Discard, r, 100_000)
			_ = r.Close() // with most of it unread
		}
	case 3:
		for _, err := range b.List(ctx, remote.ListOptions{}) {
			if err != nil {
				return
			}
		}
	}
}

func waitGoroutines(tb testing.TB, limit int) {
	tb.Helper()
	for range 1000 {
		if runtime.NumGoroutine() <= limit {
			return
		}
		waitABit(tb)
	}
	stacks := make([]byte, 1<<20)
	tb.Errorf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), limit, stacks[:runtime.Stack(stacks, true)])
}

func TestWrongSettings(t *testing.T) {
	each(t, func(t on) {
		driver, sb := t.driver, t.bucket
		const secret = "the-secret-that-must-not-show"
		mustPut(t, open(t, driver, sb), "k", []byte("x"))
		for name, c := range map[string]struct {
			change change
			is     error
			said   string
		}{
			"secret":     {func(c *s3wire.Config) { c.Credentials.SecretKey = secret }, remote.ErrDenied, "check the keys"},
			"access key": {func(c *s3wire.Config) { c.Credentials.AccessKey = "nobody" }, remote.ErrDenied, "check the keys"},
			"bucket":     {func(c *s3wire.Config) { c.Bucket = "no-such-bucket-here" }, remote.ErrNoBucket, "create bucket no-such-bucket-here"},
			"region":     {func(c *s3wire.Config) { c.Region = "eu-nowhere-1" }, remote.ErrDenied, "eu-nowhere-1"},
		} {
			b := open(t, driver, sb, c.change)
			_, serr := b.Stat(t.Context(), "k")
			_, perr := b.Put(t.Context(), "k", remote.BytesBody([]byte("y")), remote.PutOptions{})
			_, gerr := readAll(t.Context(), b, "k")
			_, aerr := b.AbortStale(t.Context(), 0)
			calls := map[string]error{"stat": serr, "put": perr, "get": gerr, "abort stale": aerr, "delete": b.Delete(t.Context(), "k", "l")}
			for _, err := range b.List(t.Context(), remote.ListOptions{}) {
				calls["list"] = err
			}
			for call, err := range calls {
				if !errors.Is(err, c.is) || errors.Is(err, remote.ErrNotFound) {
					t.Errorf("%s, %s: %v, want %v", name, call, err, c.is)
					continue
				}
				if !strings.Contains(err.Error(), c.said) {
					t.Errorf("%s, %s: %v does not say %q", name, call, err, c.said)
				}
				if strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), sb.SecretKey) {
					t.Errorf("%s, %s: the secret shows in %v", name, call, err)
				}
			}
		}
	})
}

// TestWrongRegionIsNamed as AWS words it.
func TestWrongRegionIsNamed(t *testing.T) {
	for driver := range drivers {
		for _, status := range []int{http.StatusMovedPermanently, http.StatusBadRequest} {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.Header().Set("X-Amz-Bucket-Region", "eu-central-1")
				code := map[int]string{http.StatusMovedPermanently: "PermanentRedirect", http.StatusBadRequest: "AuthorizationHeaderMalformed"}[status]
				answer(w, status, code, "the region is wrong")
			}))
			b := open(t, driver, s3srv.Bucket{Name: "bucket", Endpoint: server.URL, Region: "us-east-1", AccessKey: "a", SecretKey: "s"})
			_, serr := b.Stat(t.Context(), "k")
			_, perr := b.Put(t.Context(), "k", remote.BytesBody([]byte("x")), remote.PutOptions{})
			for call, err := range map[string]error{"stat": serr, "put": perr} {
				if err == nil || !strings.Contains(err.Error(), "the bucket is in region eu-central-1, the setting says us-east-1") {
					t.Errorf("%s %s %d: %v", driver, call, status, err)
				}
			}
			server.Close()
		}
	}
}

// TestNoSuchObjectOrBucket: HEAD tells them apart only with a second request,
// and that may fail.
func TestNoSuchObjectOrBucket(t *testing.T) {
	each(t, func(t on) {
		driver, sb := t.driver, t.bucket
		p := faultproxy.New(t, sb.Endpoint)
		b := open(t, driver, sb, through(p.URL))
		wantAbsent(t, b, "k")
		p.Add(faultproxy.Rule{Method: http.MethodGet, Action: faultproxy.Reset})
		wantAbsent(t, b, "k")
	})
}

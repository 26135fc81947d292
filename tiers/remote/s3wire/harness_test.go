package s3wire_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/strandline-io/strandline/testenv/s3srv"
	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/minio"
	"github.com/strandline-io/strandline/tiers/remote/s3"
	"github.com/strandline-io/strandline/tiers/remote/s3wire"
)

func TestMain(m *testing.M) { os.Exit(s3srv.Main(m)) }

// drivers are what every test here runs with.
var drivers = map[string]func(context.Context, s3wire.Config) (remote.Bucket, error){
	s3wire.DriverS3:    s3.Open,
	s3wire.DriverMinio: func(_ context.Context, c s3wire.Config) (remote.Bucket, error) { return minio.Open(c) },
}

// on is a test with one of the drivers, on a bucket of its own.
type on struct {
	*testing.T
	driver string
	bucket s3srv.Bucket
}

// each runs f with every driver.
func each(t *testing.T, f func(t on)) {
	t.Helper()
	srv := s3srv.Start(t)
	for name := range drivers {
		t.Run(name, func(t *testing.T) { f(on{t, name, srv.Bucket(t)}) })
	}
}

type change = func(*s3wire.Config)

func through(endpoint string) change { return func(c *s3wire.Config) { c.Endpoint = endpoint } }

// quick makes timeouts short enough to wait for.
func quick(c *s3wire.Config) {
	c.HTTP.Header, c.HTTP.Stall = 150*time.Millisecond, 150*time.Millisecond
}

func open(tb testing.TB, driver string, b s3srv.Bucket, changes ...change) remote.Bucket {
	tb.Helper()
	c := s3wire.Config{
		Bucket: b.Name, Prefix: "p", Endpoint: b.Endpoint, Region: b.Region,
		Credentials: s3wire.Credentials{AccessKey: b.AccessKey, SecretKey: b.SecretKey},
	}
	for _, change := range changes {
		change(&c)
	}
	bucket, err := drivers[driver](tb.Context(), c)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := bucket.Close(); err != nil {
			tb.Error(err)
		}
	})
	return bucket
}

func noise(seed byte, n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(b)
	return b
}

func mustPut(tb testing.TB, b remote.Bucket, key string, body []byte) remote.Object {
	tb.Helper()
	o, err := b.Put(tb.Context(), key, remote.BytesBody(body), remote.PutOptions{})
	if err != nil {
		tb.Fatalf("put %s: %v", key, err)
	}
	return o
}

func readAll(ctx context.Context, b remote.Bucket, key string) ([]byte, error) {
	r, _, err := b.Get(ctx, key, remote.Range{})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

func wantContent(tb testing.TB, b remote.Bucket, key string, want []byte) {
	tb.Helper()
	got, err := readAll(tb.Context(), b, key)
	if err != nil || !bytes.Equal(got, want) {
		tb.Fatalf("%s: %d bytes, %v, want %d bytes or they differ", key, len(got), err, len(want))
	}
}

func wantAbsent(tb testing.TB, b remote.Bucket, key string) {
	tb.Helper()
	if o, err := b.Stat(tb.Context(), key); !errors.Is(err, remote.ErrNotFound) {
		tb.Fatalf("stat %s: %+v, %v, want that it is not there", key, o, err)
	}
}

// wantErr checks that err is all of is and none of the others of the seam that
// would mislead a caller.
func wantErr(tb testing.TB, err error, is ...error) {
	tb.Helper()
	for _, want := range is {
		if !errors.Is(err, want) {
			tb.Errorf("error is %v, want %v", err, want)
		}
	}
	for _, other := range []error{remote.ErrNotFound, remote.ErrPrecondition, remote.ErrUnknownOutcome, remote.ErrNoBucket, remote.ErrDenied, remote.ErrThrottled, remote.ErrChecksum} {
		if errors.Is(err, other) && !contains(is, other) {
			tb.Errorf("error %v is %v too", err, other)
		}
	}
}

func contains(errs []error, target error) bool {
	for _, err := range errs {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

// strict is a server in front of endpoint that refuses what refuse finds fault
// with.
func strict(tb testing.TB, endpoint string, refuse func(*http.Request) (status int, code string), config ...func(*http.Server)) *httptest.Server {
	tb.Helper()
	target, err := url.Parse(endpoint)
	if err != nil {
		tb.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = r.In.Host
	}}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if status, code := refuse(r); status != 0 {
			_, _ = io.Copy(io.Discard, r.Body)
			answer(w, status, code, "injected")
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	for _, change := range config {
		change(server.Config)
	}
	server.Start()
	tb.Cleanup(server.Close)
	return server
}

func answer(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, "<?xml version=\"1.0\"?><Error><Code>"+code+"</Code><Message>"+message+"</Message></Error>")
}

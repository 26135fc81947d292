package s3wire_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
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

// TestReport062 shows that a driver sends each request once and that the same
// body can be put again whole after the store refused it.
func TestReport062FullBodyOnSecondAttempt(t *testing.T) {
	each(t, func(t on) {
		driver, sb := t.driver, t.bucket
		p := faultproxy.New(t, sb.Endpoint)
		b := open(t, driver, sb, through(p.URL))
		for _, size := range []int{1, 100_000, 5 << 20} {
			p.Clear()
			p.Add(faultproxy.Rule{Method: http.MethodPut, Action: faultproxy.Status})
			body, key := noise(1, size), fmt.Sprint("k", size)
			_, err := b.Put(t.Context(), key, remote.BytesBody(body), remote.PutOptions{})
			wantErr(t, err, remote.ErrThrottled)
			if n := len(p.Seen()); n != 1 {
				t.Fatalf("%d requests for one call", n)
			}
			if !strings.Contains(err.Error(), "SlowDown") {
				t.Errorf("the error hides the store's answer: %v", err)
			}
			mustPut(t, b, key, body)
			wantContent(t, b, key, body)
		}
	})
}

func TestAnswersOfTheStore(t *testing.T) {
	each(t, func(t on) {
		driver, sb := t.driver, t.bucket
		p := faultproxy.New(t, sb.Endpoint)
		b := open(t, driver, sb, through(p.URL))
		absent := remote.PutOptions{If: remote.Cond{Absent: true}}
		for _, c := range []struct {
			rule        faultproxy.Rule
			plain, cond []error
		}{
			{faultproxy.Rule{Action: faultproxy.Status}, []error{remote.ErrThrottled}, []error{remote.ErrThrottled, remote.ErrUnknownOutcome}},
			{faultproxy.Rule{Action: faultproxy.Status, Status: 429}, []error{remote.ErrThrottled}, []error{remote.ErrThrottled}},
			{faultproxy.Rule{Action: faultproxy.Status, Status: 500}, []error{remote.ErrUnavailable}, []error{remote.ErrUnavailable, remote.ErrUnknownOutcome}},
			{faultproxy.Rule{Action: faultproxy.Status, Status: 502}, []error{remote.ErrUnavailable}, []error{remote.ErrUnavailable, remote.ErrUnknownOutcome}},
			{faultproxy.Rule{Action: faultproxy.Status, Status: 409, Code: "ConditionalRequestConflict"}, []error{remote.ErrConflict}, []error{remote.ErrConflict}},
			{faultproxy.Rule{Action: faultproxy.Status, Status: 403, Code: "AccessDenied"}, []error{remote.ErrDenied}, []error{remote.ErrDenied}},
			{faultproxy.Rule{Action: faultproxy.Status, Status: 404, Code: "XAdminUserNotFound"}, []error{remote.ErrDenied}, []error{remote.ErrDenied}},
			{faultproxy.Rule{Action: faultproxy.Status, Status: 400, Code: "BadDigest"}, []error{remote.ErrChecksum}, []error{remote.ErrChecksum}},
			{faultproxy.Rule{Action: faultproxy.Status, Status: 400, Code: "RequestTimeout"}, []error{remote.ErrUnavailable}, []error{remote.ErrUnavailable}},
			{faultproxy.Rule{Action: faultproxy.Reset}, []error{remote.ErrUnavailable, remote.ErrUnknownOutcome}, []error{remote.ErrUnavailable, remote.ErrUnknownOutcome}},
		} {
			p.Clear()
			c.rule.Times = -1
			p.Add(c.rule)
			_, err := b.Put(t.Context(), "k", remote.BytesBody([]byte("x")), remote.PutOptions{})
			wantErr(t, err, c.plain...)
			_, err = b.Put(t.Context(), "k", remote.BytesBody([]byte("x")), absent)
			wantErr(t, err, c.cond...)
			_, err = readAll(t.Context(), b, "k")
			wantErr(t, err, without(c.plain, remote.ErrUnknownOutcome)...)
			for _, err := range b.List(t.Context(), remote.ListOptions{}) {
				wantErr(t, err, without(c.plain, remote.ErrUnknownOutcome)...)
			}
			if n := len(p.Seen()); n != 4 {
				t.Errorf("%+v: %d requests for 4 calls", c.rule, n)
			}
		}
	})
}

func without(errs []error, drop error) []error {
	var kept []error
	for _, err := range errs {
		if !errors.Is(err, drop) {
			kept = append(kept, err)
		}
	}
	return kept
}

// TestLostAnswer: the write happened, the answer did not come.
func TestLostAnswer(t *testing.T) {
	each(t, func(t on) {
		driver, sb := t.driver, t.bucket
		p := faultproxy.New(t, sb.Endpoint)
		b := open(t, driver, sb, through(p.URL))
		for i, action := range []faultproxy.Action{faultproxy.DropAfter, faultproxy.StatusAfter} {
			p.Clear()
			p.Add(faultproxy.Rule{Method: http.MethodPut, Action: action})
			key := fmt.Sprint("k", i)
			_, err := b.Put(t.Context(), key, remote.BytesBody([]byte(key)), remote.PutOptions{If: remote.Cond{Absent: true}})
			if !errors.Is(err, remote.ErrUnknownOutcome) {
				t.Errorf("%s: %v", action, err)
			}
			wantContent(t, b, key, []byte(key))
			_, err = b.Put(t.Context(), key, remote.BytesBody([]byte("other")), remote.PutOptions{If: remote.Cond{Absent: true}})
			wantErr(t, err, remote.ErrPrecondition)
		}
	})
}

// TestNobodyThere: nothing was sent, so nothing is unknown.
func TestNobodyThere(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead := "http://" + ln.Addr().String()
	_ = ln.Close()
	for driver := range drivers {
		b := open(t, driver, s3srv.Bucket{Name: "bucket", Endpoint: dead, AccessKey: "a", SecretKey: "s"})
		_, err := b.Put(t.Context(), "k", remote.BytesBody([]byte("x")), remote.PutOptions{If: remote.Cond{Absent: true}})
		wantErr(t, err, remote.ErrUnavailable)
		_, err = b.Stat(t.Context(), "k")
		wantErr(t, err, remote.ErrUnavailable)
		wantErr(t, b.Delete(t.Context(), "k", "l"), remote.ErrUnavailable)
	}
}

func TestTimeLimits(t *testing.T) {
	each(t, func(t on) {
		driver, sb := t.driver, t.bucket
		body := noise(2, 4<<20)
		mustPut(t, open(t, driver, sb), "k", body)
		p := faultproxy.New(t, sb.Endpoint)
		b := open(t, driver, sb, through(p.URL), quick)

		p.Add(faultproxy.Rule{Action: faultproxy.Hang, Times: -1})
		_, err := b.Put(t.Context(), "new", remote.BytesBody(body), remote.PutOptions{})
		wantErr(t, err, remote.ErrUnknownOutcome, remote.ErrUnavailable)
		if !strings.Contains(err.Error(), "no answer within 150ms") {
			t.Errorf("put: %v", err)
		}
		_, err = b.Stat(t.Context(), "k")
		wantErr(t, err, remote.ErrUnavailable)

		p.Clear()
		p.Add(faultproxy.Rule{Method: http.MethodGet, Action: faultproxy.Stall, Times: -1})
		_, err = b.ReadAt(t.Context(), "k", make([]byte, len(body)), 0)
		wantErr(t, err, remote.ErrUnavailable)
		if !strings.Contains(err.Error(), "no byte came for 150ms") {
			t.Errorf("read: %v", err)
		}
		got, err := readAll(t.Context(), b, "k")
		wantErr(t, err, remote.ErrUnavailable)
		if len(got) == 0 || !bytes.Equal(got, body[:len(got)]) {
			t.Errorf("the %d bytes before the stall are not those of the object", len(got))
		}
	})
}

// TestUploadStalls: a store that takes no more bytes.
func TestUploadStalls(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.CopyN(io.Discard, r.Body, 1000)
		<-release
	}))
	defer server.Close()
	defer close(release)
	for driver := range drivers {
		b := open(t, driver, s3srv.Bucket{Name: "bucket", Endpoint: server.URL, AccessKey: "a", SecretKey: "s"}, quick)
		_, err := b.Put(t.Context(), "k", remote.BytesBody(make([]byte, 30<<20)), remote.PutOptions{})
		wantErr(t, err, remote.ErrUnknownOutcome, remote.ErrUnavailable)
		if !strings.Contains(err.Error(), "nothing could be sent for 150ms") {
			t.Errorf("%s: %v", driver, err)
		}
	}
}

func TestAttemptDeadline(t *testing.T) {
	each(t, func(t on) {
		driver, sb := t.driver, t.bucket
		p := faultproxy.New(t, sb.Endpoint)
		p.Add(faultproxy.Rule{Action: faultproxy.Hang, Times: -1})
		b := open(t, driver, sb, through(p.URL), func(c *s3wire.Config) { c.HTTP.Attempt = 100 * time.Millisecond })
		_, err := b.Stat(t.Context(), "k")
		wantErr(t, err, remote.ErrUnavailable)
		if errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the limit of one attempt looks like the caller's: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err = b.Stat(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the caller's limit does not show: %v", err)
		}
	})
}

// TestTruncatedPutNeverVisible: versitygw 1.8 publishes a body that was cut short
// if no checksum came with it.
func TestTruncatedPutNeverVisible(t *testing.T) {
	each(t, func(t on) {
		driver, sb := t.driver, t.bucket
		p := faultproxy.New(t, sb.Endpoint)
		for _, checksum := range []string{s3wire.ChecksumCRC32C, s3wire.ChecksumMD5} {
			b := open(t, driver, sb, through(p.URL), func(c *s3wire.Config) { c.Checksum = checksum })
			p.Clear()
			p.Add(faultproxy.Rule{Method: http.MethodPut, Action: faultproxy.CutRequest, Times: 2})
			for _, size := range []int{1000, 8 << 20} {
				_, err := b.Put(t.Context(), "k", remote.BytesBody(noise(3, size)), remote.PutOptions{})
				wantErr(t, err, remote.ErrUnknownOutcome, remote.ErrUnavailable)
				wantAbsent(t, b, "k")
			}
			if p.Hits() != 2 {
				t.Fatalf("%d bodies were cut", p.Hits())
			}
		}
	})
}

func TestTruncatedGet(t *testing.T) {
	each(t, func(t on) {
		driver, sb := t.driver, t.bucket
		p := faultproxy.New(t, sb.Endpoint)
		b := open(t, driver, sb, through(p.URL))
		body := noise(4, 1<<20)
		mustPut(t, b, "k", body)
		p.Add(faultproxy.Rule{Method: http.MethodGet, Action: faultproxy.Truncate, Times: 2})
		got, err := readAll(t.Context(), b, "k")
		wantErr(t, err, remote.ErrUnavailable)
		if len(got) == len(body) {
			t.Error("all of it came")
		}
		n, err := b.ReadAt(t.Context(), "k", make([]byte, 1000), 500)
		wantErr(t, err, remote.ErrUnavailable)
		if n >= 1000 || errors.Is(err, io.EOF) {
			t.Errorf("%d bytes, %v: looks like the object's end", n, err)
		}
	})
}

// TestBitFlipIsTheReadersToFind: no store sends a checksum of a range, so it is
// whoever reads that compares with the CRCs it keeps.
func TestBitFlipIsTheReadersToFind(t *testing.T) {
	each(t, func(t on) {
		driver, sb := t.driver, t.bucket
		p := faultproxy.New(t, sb.Endpoint)
		b := open(t, driver, sb, through(p.URL))
		body := noise(5, 1<<20)
		mustPut(t, b, "k", body)
		p.Add(faultproxy.Rule{Method: http.MethodGet, Action: faultproxy.FlipBit})
		got := make([]byte, 1000)
		n, err := b.ReadAt(t.Context(), "k", got, 500)
		if n != 1000 || err != nil {
			t.Fatal(n, err)
		}
		if remote.CRC32C(got) == remote.CRC32C(body[500:1500]) {
			t.Error("the damage was not done, or a CRC does not see it")
		}
	})
}

// countConns counts the connections that a server was opened.
func countConns(n *atomic.Int32) func(*http.Server) {
	return func(s *http.Server) {
		s.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				n.Add(1)
			}
		}
	}
}

// TestConnectionsAreUsedAgain: a read to the object's end or not, a missing
// object, a write: all on one connection.
func TestConnectionsAreUsedAgain(t *testing.T) {
	each(t, func(t on) {
		driver, sb := t.driver, t.bucket
		var opened atomic.Int32
		server := strict(t, sb.Endpoint, func(*http.Request) (int, string) { return 0, "" }, countConns(&opened))
		b := open(t, driver, sb, through(server.URL))
		body := noise(6, 1<<20)
		for range 10 {
			mustPut(t, b, "k", body)
			if _, err := b.ReadAt(t.Context(), "k", make([]byte, 1000), 77); err != nil {
				t.Fatal(err)
			}
			if n, err := b.ReadAt(t.Context(), "k", make([]byte, 1000), int64(len(body)-10)); n != 10 || !errors.Is(err, io.EOF) {
				t.Fatal(n, err)
			}
			r, _, err := b.Get(t.Context(), "k", remote.Range{Off: 10, Len: 100})
			if err != nil {
				t.Fatal(err)
			}
			if _, err = io.ReadFull(r, make([]byte, 100)); err != nil {
				t.Fatal(err)
			}
			_ = r.Close()
			wantAbsent(t, b, "none")
			for _, err := range b.List(t.Context(), remote.ListOptions{}) {
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		if n := opened.Load(); n != 1 {
			t.Errorf("%d connections for calls that came one after the other", n)
		}
	})
}

// TestChunkedAnswers have no length, so their end must be read too.
func TestChunkedAnswers(t *testing.T) {
	body := noise(1, 10_000)
	var opened atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes 100-1099/%d", len(body)))
		w.Header().Set("Last-Modified", "Fri, 02 Jan 2026 03:04:05 GMT")
		w.WriteHeader(http.StatusPartialContent)
		_ = http.NewResponseController(w).Flush()
		_, _ = w.Write(body[100:1100])
		_ = http.NewResponseController(w).Flush()
		<-time.After(10 * time.Millisecond) // the last chunk comes by itself
	}))
	countConns(&opened)(server.Config)
	server.Start()
	defer server.Close()
	for driver := range drivers {
		b := open(t, driver, s3srv.Bucket{Name: "bucket", Endpoint: server.URL, AccessKey: "a", SecretKey: "s"})
		opened.Store(0)
		for range 10 {
			got := make([]byte, 1000)
			if n, err := b.ReadAt(t.Context(), "k", got, 100); err != nil || !bytes.Equal(got[:n], body[100:1100]) {
				t.Fatalf("%s: %d bytes, %v", driver, n, err)
			}
		}
		if n := opened.Load(); n != 1 {
			t.Errorf("%s: %d connections", driver, n)
		}
	}
}

// TestBodyIsTheCallersAgain: the store refuses at once and goes on taking in the
// body, so net/http goes on sending it, after the call has returned.
func TestBodyIsTheCallersAgain(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		if err := rc.EnableFullDuplex(); err != nil {
			t.Error(err)
		}
		const refusal = "<Error><Code>AccessDenied</Code></Error>"
		w.Header().Set("Content-Length", fmt.Sprint(len(refusal)))
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, refusal)
		_ = rc.Flush()
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	defer server.Close()
	for driver := range drivers {
		b := open(t, driver, s3srv.Bucket{Name: "bucket", Endpoint: server.URL, AccessKey: "a", SecretKey: "s"})
		for range 20 {
			body := watched{Body: remote.BytesBody(make([]byte, 24<<20)), late: new(atomic.Bool), over: new(atomic.Bool)}
			_, err := b.Put(t.Context(), "k", remote.WithCRC(body, 1), remote.PutOptions{})
			body.over.Store(true)
			wantErr(t, err, remote.ErrDenied)
			server.CloseClientConnections()
			if body.late.Load() {
				t.Fatalf("%s: the body was read after the call had returned", driver)
			}
		}
	}
}

// watched notes reads that come when all should be over.
type watched struct {
	remote.Body
	over, late *atomic.Bool
}

func (w watched) Open(off, n int64) (io.ReadSeekCloser, error) {
	r, err := w.Body.Open(off, n)
	return watchedReader{r, w}, err
}

type watchedReader struct {
	io.ReadSeekCloser
	w watched
}

func (r watchedReader) Read(p []byte) (int, error) {
	if r.w.over.Load() {
		r.w.late.Store(true)
	}
	return r.ReadSeekCloser.Read(p)
}

func TestCrashOfTheStore(t *testing.T) {
	srv := s3srv.StartOwn(t)
	sb := srv.Bucket(t)
	for driver := range drivers {
		b := open(t, driver, sb)
		body := noise(7, 1<<20)
		mustPut(t, b, driver, body)
		if err := srv.Crash(); err != nil {
			t.Fatal(err)
		}
		_, err := b.Stat(t.Context(), driver)
		wantErr(t, err, remote.ErrUnavailable)
		if err := srv.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantContent(t, b, driver, body)
	}
}

// TestCASBetweenDrivers has 32 writers, half of them on each driver.
func TestCASBetweenDrivers(t *testing.T) {
	sb := s3srv.Start(t).Bucket(t)
	buckets := []remote.Bucket{open(t, s3wire.DriverS3, sb), open(t, s3wire.DriverMinio, sb)}
	etag := mustPut(t, buckets[0], "claim", []byte("start")).ETag
	for round := range 5 {
		var wg sync.WaitGroup
		var won atomic.Int32
		next := make(chan string, 32)
		for w := range 32 {
			wg.Go(func() {
				body := fmt.Appendf(nil, "round %d writer %d", round, w)
				o, err := buckets[w%2].Put(t.Context(), "claim", remote.BytesBody(body), remote.PutOptions{If: remote.Cond{ETag: etag}})
				switch {
				case err == nil:
					won.Add(1)
					next <- o.ETag
				case !errors.Is(err, remote.ErrPrecondition) && !errors.Is(err, remote.ErrConflict):
					t.Errorf("writer %d: %v", w, err)
				}
			})
		}
		wg.Wait()
		if n := won.Load(); n != 1 {
			t.Fatalf("round %d: %d writers won", round, n)
		}
		etag = <-next
	}
}

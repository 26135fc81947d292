package s3wire_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/strandline-io/strandline/testenv/faultproxy"
	"github.com/strandline-io/strandline/testenv/s3srv"
	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/s3wire"
)

func wantNoUploads(tb testing.TB, sb s3srv.Bucket) {
	tb.Helper()
	n, err := s3srv.Start(tb).UnfinishedUploads(context.WithoutCancel(tb.Context()), sb.Name)
	if err != nil || n != 0 {
		tb.Errorf("%d unfinished uploads are left, %v", n, err)
	}
}

// TestMultipart: 40 MiB and a bit, in parts, read by the other driver.
func TestMultipart(t *testing.T) {
	body := noise(1, 40<<20+12345)
	each(t, func(t on) {
		driver, sb := t.driver, t.bucket
		p := faultproxy.New(t, sb.Endpoint)
		for _, checksum := range []string{s3wire.ChecksumCRC32C, s3wire.ChecksumMD5} {
			p.Clear()
			b := open(t, driver, sb, through(p.URL), func(c *s3wire.Config) { c.Checksum = checksum })
			put := mustPut(t, b, "big/"+checksum, body)
			if parts := countParts(p); parts != 3 {
				t.Errorf("%d parts", parts)
			}
			o, err := b.Stat(t.Context(), "big/"+checksum)
			if err != nil {
				t.Fatal(err)
			}
			if o.Size != int64(len(body)) || o.ETag != put.ETag || !strings.HasSuffix(o.ETag, "-3") {
				t.Errorf("stat says %+v, put said %+v", o, put)
			}
			if crc := checksum == s3wire.ChecksumCRC32C; o.HasCRC != crc || put.HasCRC != crc || crc && (o.CRC32C != remote.CRC32C(body) || put.CRC32C != o.CRC32C) {
				t.Errorf("%s: CRC of stat %08x %t, of put %08x %t", checksum, o.CRC32C, o.HasCRC, put.CRC32C, put.HasCRC)
			}
			for other := range drivers {
				wantContent(t, open(t, other, sb), "big/"+checksum, body)
			}
			wantNoUploads(t, sb)
		}
	})
}

func countParts(p *faultproxy.Proxy) int {
	n := 0
	for _, s := range p.Seen() {
		if s.Method == http.MethodPut && strings.Contains(s.Query, "partNumber=") {
			n++
		}
	}
	return n
}

// TestReport137CancelledUploadLeavesNothing: neither by the caller, nor by a
// part that fails, nor by a completion that fails.
func TestReport137FailedUploadLeavesNothing(t *testing.T) {
	body := remote.BytesBody(noise(2, 70<<20))
	each(t, func(t on) {
		driver, sb := t.driver, t.bucket
		p := faultproxy.New(t, sb.Endpoint)
		b := open(t, driver, sb, through(p.URL))
		for name, c := range map[string]struct {
			rule faultproxy.Rule
			is   []error
		}{
			"create":         {faultproxy.Rule{Query: "uploads", Action: faultproxy.Status}, []error{remote.ErrThrottled}},
			"one part":       {faultproxy.Rule{Query: "partNumber=3", Action: faultproxy.Status, Status: 500}, []error{remote.ErrUnavailable}},
			"a part is lost": {faultproxy.Rule{Query: "partNumber=2", Action: faultproxy.DropAfter}, []error{remote.ErrUnavailable}},
			"a part is cut":  {faultproxy.Rule{Query: "partNumber=5", Action: faultproxy.CutRequest}, []error{remote.ErrUnavailable}},
			"complete":       {faultproxy.Rule{Method: http.MethodPost, Query: "uploadId", Action: faultproxy.Status, Status: 403, Code: "AccessDenied"}, []error{remote.ErrDenied}},
			"upload is gone": {faultproxy.Rule{Method: http.MethodPost, Query: "uploadId", Action: faultproxy.Status, Status: 404, Code: "NoSuchUpload"}, []error{remote.ErrUnavailable}},
		} {
			t.Run(name, func(t *testing.T) {
				p.Clear()
				p.Add(c.rule)
				_, err := b.Put(t.Context(), "big", body, remote.PutOptions{})
				wantErr(t, err, c.is...)
				wantAbsent(t, b, "big")
				wantNoUploads(t, sb)
			})
		}
		t.Run("cancelled", func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			p.Clear()
			p.Add(faultproxy.Rule{Query: "partNumber=3", Action: faultproxy.Hang})
			done := make(chan error, 1)
			go func() {
				_, err := b.Put(ctx, "big", body, remote.PutOptions{})
				done <- err
			}()
			for p.Hits() == 0 {
				waitABit(t)
			}
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) || errors.Is(err, remote.ErrUnknownOutcome) {
				t.Errorf("%v: want that it was cancelled, and it is known that nothing was published", err)
			}
			wantAbsent(t, b, "big")
			wantNoUploads(t, sb)
		})
	})
}

func waitABit(tb testing.TB) {
	tb.Helper()
	select {
	case <-time.After(5 * time.Millisecond):
	case <-tb.Context().Done():
		tb.Fatal("the test ended")
	}
}

// TestLostCompletion: the object is there, or may be.
func TestLostCompletion(t *testing.T) {
	body := noise(3, 33<<20)
	each(t, func(t on) {
		driver, sb := t.driver, t.bucket
		p := faultproxy.New(t, sb.Endpoint)
		b := open(t, driver, sb, through(p.URL))
		p.Add(faultproxy.Rule{Method: http.MethodPost, Query: "uploadId", Action: faultproxy.DropAfter})
		_, err := b.Put(t.Context(), "big", remote.BytesBody(body), remote.PutOptions{})
		wantErr(t, err, remote.ErrUnknownOutcome, remote.ErrUnavailable)
		wantContent(t, b, "big", body)
		wantNoUploads(t, sb)
	})
}

// TestMultipartBadBodies are refused before anything is visible.
func TestMultipartBadBodies(t *testing.T) {
	body := remote.BytesBody(noise(4, 33<<20))
	each(t, func(t on) {
		driver, sb := t.driver, t.bucket
		for _, checksum := range []string{s3wire.ChecksumCRC32C, s3wire.ChecksumMD5} {
			b := open(t, driver, sb, func(c *s3wire.Config) { c.Checksum = checksum })
			_, err := b.Put(t.Context(), "k", remote.WithCRC(body, 12345), remote.PutOptions{})
			wantErr(t, err, remote.ErrChecksum)
		}
		b := open(t, driver, sb)
		broken := errors.New("the disk is broken")
		_, err := b.Put(t.Context(), "k", remote.WithCRC(brokenPart{body, broken}, 12345), remote.PutOptions{})
		wantErr(t, err, broken)
		_, err = b.Put(t.Context(), "k", body, remote.PutOptions{If: remote.Cond{Absent: true}})
		if err == nil || !strings.Contains(err.Error(), "under a condition") {
			t.Errorf("a big body under a condition: %v", err)
		}
		wantAbsent(t, b, "k")
		wantNoUploads(t, sb)
	})
}

type brokenPart struct {
	remote.Body
	err error
}

func (b brokenPart) Open(off, n int64) (io.ReadSeekCloser, error) {
	if off > 0 {
		return nil, b.err
	}
	return b.Body.Open(off, n)
}

func TestConditionalBodiesAreSmall(t *testing.T) {
	each(t, func(t on) {
		driver, sb := t.driver, t.bucket
		b := open(t, driver, sb)
		absent := remote.PutOptions{If: remote.Cond{Absent: true}}
		if _, err := b.Put(t.Context(), "k", remote.BytesBody(make([]byte, s3wire.MaxConditional+1)), absent); err == nil {
			t.Error("one byte too much was taken")
		}
		wantAbsent(t, b, "k")
		if _, err := b.Put(t.Context(), "k", remote.BytesBody(make([]byte, s3wire.MaxConditional)), absent); err != nil {
			t.Error(err)
		}
	})
}

// TestAbortStale drops old uploads below the prefix and no others.
func TestAbortStale(t *testing.T) {
	each(t, func(t on) {
		driver, sb := t.driver, t.bucket
		p := faultproxy.New(t, sb.Endpoint)
		leave := func(prefix string) {
			p.Clear()
			p.Add(faultproxy.Rule{Query: "partNumber", Times: -1, Action: faultproxy.Status, Status: 500})
			p.Add(faultproxy.Rule{Method: http.MethodDelete, Times: -1, Action: faultproxy.Status, Status: 500})
			b := open(t, driver, sb, through(p.URL), func(c *s3wire.Config) { c.Prefix = prefix })
			_, err := b.Put(t.Context(), "big", remote.BytesBody(make([]byte, 33<<20)), remote.PutOptions{})
			if err == nil || !strings.Contains(err.Error(), "stays for AbortStale") {
				t.Fatalf("an upload that cannot be dropped: %v", err)
			}
		}
		leave("p")
		leave("p")
		leave("px")
		tomorrow := func(c *s3wire.Config) { c.Now = func() time.Time { return time.Now().Add(25 * time.Hour) } }
		if n, err := open(t, driver, sb).AbortStale(t.Context(), 24*time.Hour); n != 0 || err != nil {
			t.Errorf("young uploads: %d, %v", n, err)
		}
		if n, err := open(t, driver, sb, tomorrow).AbortStale(t.Context(), 24*time.Hour); n != 2 || err != nil {
			t.Errorf("old uploads: %d, %v", n, err)
		}
		if n, err := s3srv.Start(t).UnfinishedUploads(t.Context(), sb.Name); n != 1 || err != nil {
			t.Errorf("%d uploads are left, %v, want that of the neighbour", n, err)
		}
	})
}

// TestReport063StrictStores refuse what the SDKs send by default.
func TestReport063StrictStores(t *testing.T) {
	t.Setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
	t.Setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_supported")
	each(t, func(t on) {
		driver, sb := t.driver, t.bucket
		var mu sync.Mutex
		var refused []string
		refuseIf := func(bad func(*http.Request) string) func(*http.Request) (int, string) {
			return func(r *http.Request) (int, string) {
				why := bad(r)
				if why == "" {
					return 0, ""
				}
				mu.Lock()
				defer mu.Unlock()
				refused = append(refused, r.Method+" "+why)
				return http.StatusBadRequest, "InvalidRequest"
			}
		}
		noFraming := func(r *http.Request) string {
			switch {
			case r.Header.Get("X-Amz-Trailer") != "", strings.Contains(r.Header.Get("Content-Encoding"), "aws-chunked"),
				strings.HasPrefix(r.Header.Get("X-Amz-Content-Sha256"), "STREAMING-"):
				return "framing"
			case r.Header.Get("Expect") != "":
				return "expect"
			case r.Method == http.MethodPut && r.Header.Get("X-Amz-Sdk-Checksum-Algorithm") != "":
				return "SDK checksum"
			}
			return ""
		}
		noChecksums := func(r *http.Request) string {
			for name := range r.Header {
				if strings.HasPrefix(name, "X-Amz-Checksum-") || strings.HasPrefix(name, "X-Amz-Sdk-Checksum") {
					return name
				}
			}
			return noFraming(r)
		}
		roundTrip := func(b remote.Bucket) {
			for _, size := range []int{0, 1 << 20, 33 << 20} {
				body := noise(5, size)
				mustPut(t, b, fmt.Sprint("k/", size), body)
				wantContent(t, b, fmt.Sprint("k/", size), body)
			}
		}
		roundTrip(open(t, driver, sb, through(strict(t, sb.Endpoint, refuseIf(noFraming)).URL)))
		if len(refused) != 0 {
			t.Errorf("the driver sends %v", refused)
		}

		hard := strict(t, sb.Endpoint, refuseIf(noChecksums))
		_, err := open(t, driver, sb, through(hard.URL)).Put(t.Context(), "k", remote.BytesBody(nil), remote.PutOptions{})
		if err == nil || len(refused) != 1 {
			t.Errorf("%v, refused %v", err, refused)
		}
		refused = nil
		md5 := open(t, driver, sb, through(hard.URL), func(c *s3wire.Config) { c.Checksum = s3wire.ChecksumMD5 })
		roundTrip(md5)
		if len(refused) != 0 {
			t.Errorf("the driver sends %v", refused)
		}
		// DeleteObjects demands a checksum; where it is refused, keys go one by
		// one, and the store is asked once only.
		for range 2 {
			if err := md5.Delete(t.Context(), "k/0", fmt.Sprint("k/", 1<<20), "none"); err != nil {
				t.Fatal(err)
			}
		}
		wantAbsent(t, md5, "k/0")
		if len(refused) > 1 {
			t.Errorf("the store was asked again and again: %v", refused)
		}
	})
}

func TestRefusedChecksumNamesTheSetting(t *testing.T) {
	each(t, func(t on) {
		driver, sb := t.driver, t.bucket
		for _, fault := range []faultproxy.Rule{
			{Action: faultproxy.Status, Status: 501, Code: "NotImplemented"},
			{Action: faultproxy.Status, Status: 400, Code: "UnsupportedChecksum"},
		} {
			p := faultproxy.New(t, sb.Endpoint)
			p.Add(fault)
			_, err := open(t, driver, sb, through(p.URL)).Put(t.Context(), "k", remote.BytesBody(nil), remote.PutOptions{})
			if err == nil || !strings.Contains(err.Error(), "checksum=md5") {
				t.Errorf("%v", err)
			}
		}
	})
}

// TestDamagedUpload: the store finds a body that changed on the way.
func TestDamagedUpload(t *testing.T) {
	each(t, func(t on) {
		driver, sb := t.driver, t.bucket
		server := strict(t, sb.Endpoint, func(r *http.Request) (int, string) {
			if r.Method == http.MethodPut {
				b, err := io.ReadAll(r.Body)
				if err != nil || len(b) == 0 {
					panic(http.ErrAbortHandler) // a part that was given up
				}
				b[0] ^= 1
				r.Body = io.NopCloser(bytes.NewReader(b))
			}
			return 0, ""
		})
		for _, size := range []int{100, 33 << 20} {
			for _, checksum := range []string{s3wire.ChecksumCRC32C, s3wire.ChecksumMD5} {
				b := open(t, driver, sb, through(server.URL), func(c *s3wire.Config) { c.Checksum = checksum })
				_, err := b.Put(t.Context(), "k", remote.BytesBody(noise(6, size)), remote.PutOptions{})
				wantErr(t, err, remote.ErrChecksum)
				wantAbsent(t, b, "k")
			}
		}
		wantNoUploads(t, sb)
	})
}

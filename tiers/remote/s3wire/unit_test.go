package s3wire

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/strandline-io/strandline/tiers/remote"
)

func TestCombineCRC(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "a")
		b := rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "b")
		got := combineCRC(remote.CRC32C(a), remote.CRC32C(b), int64(len(b)))
		if want := remote.CRC32C(append(append([]byte(nil), a...), b...)); got != want {
			t.Fatalf("%08x, want %08x", got, want)
		}
	})
	big := bytes.Repeat([]byte("strandline"), 1<<20)
	if got := combineCRC(remote.CRC32C(big[:3]), remote.CRC32C(big[3:]), int64(len(big)-3)); got != remote.CRC32C(big) {
		t.Errorf("%08x, want %08x", got, remote.CRC32C(big))
	}
}

func TestCutParts(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		size, part int64
		n          int
		last       int64
	}{
		{33 * mib, 16 * mib, 3, mib},
		{32 * mib, 16 * mib, 2, 16 * mib},
		{16*mib + 1, 16 * mib, 2, 1},
		{maxParts * 16 * mib, 16 * mib, maxParts, 16 * mib},
		{maxParts*16*mib + 1, 16 * mib, maxParts, 16*mib + 1 - (maxParts - 1)},
	} {
		cuts := cutParts(c.size, c.part)
		var off int64
		for _, cut := range cuts {
			if cut.off != off || cut.n <= 0 {
				t.Fatalf("%+v: cut %+v at %d", c, cut, off)
			}
			off += cut.n
		}
		if off != c.size || len(cuts) > maxParts || len(cuts) != c.n && c.size != maxParts*16*mib+1 || c.n == len(cuts) && cuts[len(cuts)-1].n != c.last {
			t.Errorf("%+v: %d parts, the last of %d, in all %d", c, len(cuts), cuts[len(cuts)-1].n, off)
		}
	}
}

func TestParseContentRange(t *testing.T) {
	for s, want := range map[string][2]int64{
		"bytes 0-0/1":            {0, 1},
		"bytes 5-99/1000":        {5, 1000},
		"bytes 5-/1000":          {5, 1000},
		"bytes 4294967296-9/1e9": {-1, 0},
		"bytes */1000":           {-1, 0},
		"bytes 5-9/*":            {-1, 0},
		"bytes -5-9/10":          {-1, 0},
		"bytes 50-60/10":         {-1, 0},
		"5-9/10":                 {-1, 0},
		"":                       {-1, 0},
	} {
		start, total, err := parseContentRange(s)
		if want[0] < 0 {
			if err == nil {
				t.Errorf("%q is read as %d, %d", s, start, total)
			}
			continue
		}
		if err != nil || start != want[0] || total != want[1] {
			t.Errorf("%q: %d, %d, %v", s, start, total, err)
		}
	}
}

func FuzzParseContentRange(f *testing.F) {
	f.Add("bytes 0-9/10")
	f.Add("bytes */0")
	f.Fuzz(func(t *testing.T, s string) {
		start, total, err := parseContentRange(s)
		if err == nil && (start < 0 || start > total) {
			t.Fatalf("%q: %d of %d", s, start, total)
		}
	})
}

func TestDecodeCRC(t *testing.T) {
	if crc, ok := decodeCRC(encodeCRC(0xdeadbeef), ""); !ok || crc != 0xdeadbeef {
		t.Errorf("%08x %t", crc, ok)
	}
	if crc, ok := decodeCRC("3q2+7w==", "FULL_OBJECT"); !ok || crc != 0xdeadbeef {
		t.Errorf("%08x %t", crc, ok)
	}
	for _, c := range [][2]string{{"3q2+7w==", "COMPOSITE"}, {"3q2+7w==-3", ""}, {"", ""}, {"3q2+", ""}, {"!", ""}} {
		if crc, ok := decodeCRC(c[0], c[1]); ok {
			t.Errorf("%q is taken for the CRC %08x of an object", c, crc)
		}
	}
}

func FuzzDecodeCRC(f *testing.F) {
	f.Add("3q2+7w==", "FULL_OBJECT")
	f.Fuzz(func(t *testing.T, s, kind string) {
		crc, ok := decodeCRC(s, kind)
		if !ok {
			return
		}
		if again, ok := decodeCRC(encodeCRC(crc), kind); !ok || again != crc {
			t.Fatalf("%q is read as %08x and written as %q", s, crc, encodeCRC(crc))
		}
	})
}

// TestClassify: the code counts before the status, as servers differ in both.
func TestClassify(t *testing.T) {
	for _, c := range []struct {
		f    Fault
		want error
	}{
		{Fault{Code: "NoSuchKey", Status: 404}, remote.ErrNotFound},
		{Fault{Code: "NotFound", Status: 404}, remote.ErrNotFound}, // HEAD, aws-sdk
		{Fault{Status: 404}, remote.ErrNotFound},
		{Fault{Code: "NoSuchBucket", Status: 404}, remote.ErrNoBucket},
		{Fault{Code: "XAdminUserNotFound", Status: 404}, remote.ErrDenied}, // versitygw
		{Fault{Code: "PreconditionFailed", Status: 412}, remote.ErrPrecondition},
		{Fault{Status: 412}, remote.ErrPrecondition},
		{Fault{Code: "ConditionalRequestConflict", Status: 409}, remote.ErrConflict},
		{Fault{Code: "OperationAborted", Status: 409}, remote.ErrConflict},
		{Fault{Code: "SlowDown", Status: 503}, remote.ErrThrottled},
		{Fault{Code: "SlowDownWrite", Status: 503}, remote.ErrThrottled}, // MinIO
		{Fault{Code: "TooManyRequests", Status: 503}, remote.ErrThrottled},
		{Fault{Status: 429}, remote.ErrThrottled},
		{Fault{Status: 503}, remote.ErrUnavailable},
		{Fault{Code: "InternalError", Status: 500}, remote.ErrUnavailable},
		{Fault{Code: "InternalError", Status: 200}, remote.ErrUnavailable}, // within CompleteMultipartUpload's 200
		{Fault{Status: 504}, remote.ErrUnavailable},
		{Fault{Code: "RequestTimeout", Status: 400}, remote.ErrUnavailable},
		{Fault{Code: "IncompleteBody", Status: 400}, remote.ErrUnavailable},
		{Fault{Code: "AccessDenied", Status: 403}, remote.ErrDenied},
		{Fault{Code: "Forbidden", Status: 403}, remote.ErrDenied}, // HEAD, aws-sdk
		{Fault{Code: "ExpiredToken", Status: 400}, remote.ErrDenied},
		{Fault{Code: "RequestTimeTooSkewed", Status: 403}, remote.ErrDenied},
		{Fault{Code: NoCredentials}, remote.ErrDenied},
		{Fault{Code: "PermanentRedirect", Status: 301}, errWrongRegion},
		{Fault{Status: 307}, errWrongRegion},
		{Fault{Code: "AuthorizationHeaderMalformed", Status: 400}, errWrongRegion},
		{Fault{Code: "InvalidRange", Status: 416}, remote.ErrRange},
		{Fault{Status: 416}, remote.ErrRange},
		{Fault{Code: "BadDigest", Status: 400}, remote.ErrChecksum},
		{Fault{Code: "XAmzContentChecksumMismatch", Status: 400}, remote.ErrChecksum}, // MinIO
		{Fault{Code: "KeyTooLongError", Status: 400}, remote.ErrBadKey},
		{Fault{Code: "InvalidArgument", Status: 400}, errRefused},
		{Fault{Code: "NotImplemented", Status: 501}, errRefused},
	} {
		if got := classify(c.f); !errors.Is(got, c.want) {
			t.Errorf("%+v is %v, want %v", c.f, got, c.want)
		}
	}
}

// TestLinger: a part that was sent whole is waited for when its upload is given
// up, but not for ever.
func TestLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		part, release := linger(ctx, ctx)
		defer release()
		begun := time.Now()
		cancel()
		synctest.Wait()
		if part.Err() != nil {
			t.Fatal("the part ended with its upload")
		}
		<-part.Done()
		if waited := time.Since(begun); waited != lingerTime {
			t.Errorf("it ended after %s", waited)
		}
	})
}

// TestCuttable: a part that was not sent whole is cut.
func TestCuttable(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	src, err := openSummed(remote.BytesBody([]byte("0123456789")), 0, 10, ChecksumCRC32C)
	if err != nil {
		t.Fatal(err)
	}
	body := cuttable{src, ctx}
	if n, err := body.Read(make([]byte, 5)); n != 5 || err != nil {
		t.Fatal(n, err)
	}
	cancel()
	if n, err := body.Read(make([]byte, 5)); n != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("%d, %v", n, err)
	}
}

// TestCancelledBody: nothing is sent after the end of the context, however fast
// net/http takes notice of it.
func TestCancelledBody(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	o := newOutgoing(ctx, io.NopCloser(bytes.NewReader(make([]byte, 10))), nil, newWatch(cancel), &Transport{knobs: HTTP{Stall: time.Hour}})
	if n, err := o.Read(make([]byte, 5)); n != 5 || err != nil {
		t.Fatal(n, err)
	}
	cancel(nil)
	if n, err := o.Read(make([]byte, 5)); n != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("%d bytes, %v", n, err)
	}
	if err := o.detach(); err != nil {
		t.Errorf("the body had no error of its own: %v", err)
	}
	if n, err := o.Read(make([]byte, 5)); n != 0 || !errors.Is(err, errDetached) {
		t.Errorf("%d bytes of a body that is its owner's again, %v", n, err)
	}
}

// TestSlowReaderIsNoStall: the limit is on the store, not on whoever consumes.
func TestSlowReaderIsNoStall(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1<<20)) }))
	defer server.Close()
	c := Config{Bucket: "logs"}.WithDefaults()
	c.HTTP.Stall, c.HTTP.Header = 50*time.Millisecond, 50*time.Millisecond
	transport := NewTransport(c.HTTP)
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	for range 3 {
		if _, err := io.ReadFull(resp.Body, make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
		<-time.After(100 * time.Millisecond)
	}
	if n, err := io.Copy(io.Discard, resp.Body); n != 1<<20-300 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
}

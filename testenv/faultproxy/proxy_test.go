package faultproxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// origin keeps what was PUT and serves it; a PUT whose body breaks off is not
// kept.
type origin struct {
	mu   sync.Mutex
	kept map[string][]byte
	host string
}

func (o *origin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.host = r.Host
	switch {
	case err != nil:
		return
	case r.Method == http.MethodPut:
		o.kept[r.URL.Path] = body
	default:
		_, _ = w.Write(o.kept[r.URL.Path])
	}
}

func (o *origin) get(path string) ([]byte, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	b, ok := o.kept[path]
	return b, ok
}

func start(t *testing.T) (*Proxy, *origin) {
	t.Helper()
	o := &origin{kept: map[string][]byte{}}
	server := httptest.NewServer(o)
	t.Cleanup(server.Close)
	return New(t, server.URL), o
}

func do(ctx context.Context, p *Proxy, method, path string, body []byte) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, p.URL+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	return resp.StatusCode, got, err
}

func TestPassesUnharmed(t *testing.T) {
	p, o := start(t)
	want := bytes.Repeat([]byte("0123456789"), 10_000)
	if status, _, err := do(t.Context(), p, "PUT", "/b/k", want); err != nil || status != 200 {
		t.Fatal(status, err)
	}
	if _, got, err := do(t.Context(), p, "GET", "/b/k?x=1", nil); err != nil || !bytes.Equal(got, want) {
		t.Fatal(len(got), err)
	}
	if !strings.HasSuffix(p.URL, o.host) {
		t.Errorf("the server saw Host %s, the client asked %s", o.host, p.URL)
	}
	if s := p.Seen(); len(s) != 2 || s[1].Method != http.MethodGet || s[1].Query != "x=1" || s[1].Struck != "" {
		t.Errorf("seen %+v", s)
	}
}

func TestActions(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789"), 100_000)
	for _, c := range []struct {
		rule   Rule
		method string
		status int  // 0: none came, or not all of the body
		kept   bool // by the server
		intact bool // the body that came back
	}{
		{rule: Rule{Action: Status}, method: http.MethodPut, status: 503},
		{rule: Rule{Action: Status, Status: 429}, method: http.MethodPut, status: 429},
		{rule: Rule{Action: Reset}, method: http.MethodPut},
		{rule: Rule{Action: CutRequest}, method: http.MethodPut},
		{rule: Rule{Action: DropAfter}, method: http.MethodPut, kept: true},
		{rule: Rule{Action: StatusAfter, Status: 500}, method: http.MethodPut, status: 500, kept: true},
		{rule: Rule{Action: Truncate}, method: http.MethodGet, kept: true},
		{rule: Rule{Action: FlipBit}, method: http.MethodGet, status: 200, kept: true},
		{rule: Rule{Action: FlipRequest}, method: http.MethodPut, status: 200, kept: true},
		{rule: Rule{Action: Bandwidth, Rate: 100 << 20}, method: http.MethodPut, status: 200, kept: true},
		{rule: Rule{Action: Bandwidth, Rate: 100 << 20}, method: http.MethodGet, status: 200, kept: true, intact: true},
		{rule: Rule{Action: Delay, Latency: time.Millisecond}, method: http.MethodGet, status: 200, kept: true, intact: true},
	} {
		t.Run(fmt.Sprint(c.rule.Action, c.rule.Status), func(t *testing.T) {
			p, o := start(t)
			body := content
			if c.method == http.MethodGet {
				o.kept["/b/k"], body = content, nil // a body that nobody reads resets the connection
			}
			p.Add(c.rule)
			status, got, err := do(t.Context(), p, c.method, "/b/k", body)
			if err != nil {
				status = 0
			}
			_, kept := o.get("/b/k")
			if status != c.status || kept != c.kept || bytes.Equal(got, content) != c.intact {
				t.Errorf("status %d, %v; kept by the server: %t; %d bytes of %d came back", status, err, kept, len(got), len(content))
			}
			if slowDown := bytes.Contains(got, []byte("<Code>SlowDown</Code>")); slowDown != (c.status == 503) {
				t.Errorf("the answer is %q", got)
			}
			if p.Hits() != 1 {
				t.Errorf("%d hits", p.Hits())
			}
		})
	}
}

// TestHangAndStall end with the client's patience.
func TestHangAndStall(t *testing.T) {
	for _, action := range []Action{Hang, Stall, Bandwidth} {
		p, o := start(t)
		o.kept["/b/k"] = make([]byte, 1<<20)
		p.Add(Rule{Action: action, Rate: 1 << 20})
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_, got, err := do(ctx, p, "GET", "/b/k", nil)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || len(got) == 1<<20 {
			t.Errorf("%s: %d bytes, %v", action, len(got), err)
		}
	}
}

func TestRulesPick(t *testing.T) {
	p, _ := start(t)
	p.Add(Rule{Method: "PUT", Key: "/x", Nth: 2, Times: 2, Action: Status})
	p.Add(Rule{Query: "partNumber=3", Times: -1, Action: Status, Status: 500})
	p.Add(Rule{Query: "uploads", Action: Status, Status: 400})
	var got []int
	for _, r := range []struct{ method, path string }{
		{"PUT", "/b/x"},
		{"GET", "/b/x"},
		{"PUT", "/b/y"},
		{"PUT", "/b/x"},
		{"PUT", "/b/x"},
		{"PUT", "/b/x"},
		{"PUT", "/b/z?partNumber=3"},
		{"PUT", "/b/z?partNumber=30"},
		{"GET", "/b/z?partNumber=3"},
		{"POST", "/b/z?uploads"},
		{"POST", "/b/z?uploads"},
	} {
		status, _, err := do(t.Context(), p, r.method, r.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, status)
	}
	want := []int{200, 200, 200, 503, 503, 200, 500, 200, 500, 400, 200}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("request %d: %d, want %d", i, got[i], want[i])
		}
	}
	p.Clear()
	if status, _, _ := do(t.Context(), p, "PUT", "/b/z?partNumber=3", nil); status != 200 || p.Hits() != 0 || len(p.Seen()) != 1 {
		t.Error(status, p.Hits(), p.Seen())
	}
}

// TestStalledRequest: the server gets half of the body and no end.
func TestStalledRequest(t *testing.T) {
	p, o := start(t)
	p.Add(Rule{Action: StallRequest})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, _, err := do(ctx, p, "PUT", "/b/k", make([]byte, 1<<20)); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if _, kept := o.get("/b/k"); kept {
		t.Error("half of a body was kept")
	}
}

func TestFlippedRequestDiffersInOneBit(t *testing.T) {
	p, o := start(t)
	want := bytes.Repeat([]byte("0123456789"), 100_000)
	p.Add(Rule{Action: FlipRequest})
	if _, _, err := do(t.Context(), p, "PUT", "/b/k", want); err != nil {
		t.Fatal(err)
	}
	got, _ := o.get("/b/k")
	bits := 0
	for i := range got {
		for x := got[i] ^ want[i]; x != 0; x &= x - 1 {
			bits++
		}
	}
	if len(got) != len(want) || bits != 1 {
		t.Errorf("%d bits differ", bits)
	}
}

func TestStrippedHeaders(t *testing.T) {
	var seen, answered http.Header
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = r.Header.Clone()
		w.Header().Set("X-Amz-Checksum-Crc32c", "abc")
		w.Header().Set("Etag", "e")
	}))
	defer server.Close()
	p := New(t, server.URL)
	p.Sign("key", "secret", "region")
	send := func() {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, p.URL+"/b/k", strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("If-None-Match", "*")
		req.Header.Set("X-Amz-Content-Sha256", "UNSIGNED-PAYLOAD")
		req.Header.Set("Authorization", "theirs")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		answered = resp.Header
	}
	p.Add(Rule{Action: Strip, Headers: []string{"if-"}})
	send()
	if seen.Get("If-None-Match") != "" || !strings.HasPrefix(seen.Get("Authorization"), "AWS4-HMAC-SHA256 Credential=key/") || answered.Get("Etag") != "e" {
		t.Errorf("%v, answered %v", seen, answered)
	}
	p.Clear()
	p.Add(Rule{Action: StripAnswer, Headers: []string{"X-Amz-Checksum"}})
	send()
	if seen.Get("If-None-Match") != "*" || seen.Get("Authorization") != "theirs" || answered.Get("X-Amz-Checksum-Crc32c") != "" || answered.Get("Etag") != "e" {
		t.Errorf("%v, answered %v", seen, answered)
	}
}

func TestRewrittenListings(t *testing.T) {
	const whole = "<R><IsTruncated>true</IsTruncated><NextContinuationToken>t1</NextContinuationToken><Contents><Key>a</Key></Contents><Contents><Key>b</Key></Contents></R>"
	for action, want := range map[Action]string{
		ListNoToken:   "<R><IsTruncated>true</IsTruncated><Contents><Key>a</Key></Contents><Contents><Key>b</Key></Contents></R>",
		ListSameToken: "<R><IsTruncated>true</IsTruncated><NextContinuationToken>again</NextContinuationToken><Contents><Key>a</Key></Contents><Contents><Key>b</Key></Contents></R>",
		ListDropKey:   "<R><IsTruncated>true</IsTruncated><NextContinuationToken>t1</NextContinuationToken><Contents><Key>b</Key></Contents></R>",
	} {
		p, o := start(t)
		o.kept["/b"] = []byte(whole)
		p.Add(Rule{Query: "list-type=2", Action: action})
		status, got, err := do(t.Context(), p, http.MethodGet, "/b?list-type=2&prefix=x", nil)
		if err != nil || status != 200 || string(got) != want {
			t.Errorf("%s: %d, %v, %s", action, status, err, got)
		}
		if _, got, _ := do(t.Context(), p, http.MethodGet, "/b?list-type=2&prefix=x", nil); string(got) != whole {
			t.Errorf("%s struck twice: %s", action, got)
		}
	}
}

func TestListingsThatAreOlder(t *testing.T) {
	const whole = "<R><IsTruncated>true</IsTruncated><Contents><Key>a</Key><LastModified>2026-05-03T10:20:30.456Z</LastModified></Contents>" +
		"<Contents><Key>b</Key><LastModified>no time</LastModified></Contents></R>"
	p, o := start(t)
	o.kept["/b"] = []byte(whole)
	p.Add(Rule{Query: "list-type=2", Action: ListOld, Age: 48 * time.Hour})
	want := strings.Replace(whole, "2026-05-03T", "2026-05-01T", 1)
	if _, got, err := do(t.Context(), p, http.MethodGet, "/b?list-type=2", nil); err != nil || string(got) != want {
		t.Errorf("%v, %s", err, got)
	}
	p.Add(Rule{Query: "list-type=2", Action: ListNoToken, Age: 24 * time.Hour})
	want = strings.Replace(whole, "2026-05-03T", "2026-05-02T", 1)
	if _, got, err := do(t.Context(), p, http.MethodGet, "/b?list-type=2", nil); err != nil || string(got) != want {
		t.Errorf("%v, %s", err, got)
	}
}

func TestRequestsAreCountedByClass(t *testing.T) {
	p, _ := start(t)
	for _, r := range []struct{ method, path string }{
		{"PUT", "/b/k"},
		{"GET", "/b/k"},
		{"GET", "/b/k"},
		{"HEAD", "/b/k"},
		{"GET", "/b?list-type=2&prefix=topics/"},
		{"DELETE", "/b/k"},
		{"POST", "/b?delete"},
		{"POST", "/b/k?uploads"},
		{"PUT", "/b/k?partNumber=1&uploadId=u"},
		{"POST", "/b/k?uploadId=u"},
		{"GET", "/b?uploads&prefix=x"},
		{"OPTIONS", "/b"},
	} {
		if _, _, err := do(t.Context(), p, r.method, r.path, nil); err != nil {
			t.Fatal(err)
		}
	}
	want := map[Class]int{Put: 1, Get: 2, Head: 1, List: 1, Delete: 2, Multipart: 4, Other: 1}
	if got := p.Count(); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

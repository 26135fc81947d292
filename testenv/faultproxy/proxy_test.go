package faultproxy

import (
	"bytes"
	"context"
	"errors"
	"io"
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
	if s := p.Seen(); len(s) != 2 || s[1].Method != "GET" || s[1].Query != "x=1" || s[1].Struck != "" {
		t.Errorf("seen %+v", s)
	}
}

func TestActions(t *testing.T) {
	want := bytes.Repeat([]byte("0123456789"), 100_000)
	for _, c := range []struct {
		rule   Rule
		method string
		check  func(t *testing.T, status int, got []byte, err error, kept bool)
	}{
		{Rule{Action: Status}, "PUT", func(t *testing.T, status int, got []byte, _ error, kept bool) {
			if status != 503 || !bytes.Contains(got, []byte("SlowDown")) || kept {
				t.Error(status, string(got), kept)
			}
		}},
		{Rule{Action: Status, Status: 429}, "PUT", func(t *testing.T, status int, got []byte, _ error, kept bool) {
			if status != 429 || len(got) != 0 || kept {
				t.Error(status, string(got), kept)
			}
		}},
		{Rule{Action: Reset}, "PUT", func(t *testing.T, _ int, _ []byte, err error, kept bool) {
			if err == nil || kept {
				t.Error(err, kept)
			}
		}},
		{Rule{Action: CutRequest}, "PUT", func(t *testing.T, _ int, _ []byte, err error, kept bool) {
			if err == nil || kept {
				t.Error(err, kept)
			}
		}},
		{Rule{Action: DropAfter}, "PUT", func(t *testing.T, _ int, _ []byte, err error, kept bool) {
			if err == nil || !kept {
				t.Error(err, kept)
			}
		}},
		{Rule{Action: StatusAfter, Status: 500}, "PUT", func(t *testing.T, status int, _ []byte, _ error, kept bool) {
			if status != 500 || !kept {
				t.Error(status, kept)
			}
		}},
		{Rule{Action: Truncate}, "GET", func(t *testing.T, _ int, got []byte, err error, _ bool) {
			if err == nil || len(got) == len(want) {
				t.Error(len(got), err)
			}
		}},
		{Rule{Action: FlipBit}, "GET", func(t *testing.T, _ int, got []byte, err error, _ bool) {
			if err != nil || len(got) != len(want) || bytes.Equal(got, want) {
				t.Error(len(got), err)
			}
		}},
		{Rule{Action: Delay, Latency: time.Millisecond}, "GET", func(t *testing.T, status int, got []byte, err error, _ bool) {
			if status != 200 || err != nil || !bytes.Equal(got, want) {
				t.Error(status, len(got), err)
			}
		}},
	} {
		t.Run(string(c.rule.Action), func(t *testing.T) {
			p, o := start(t)
			if c.method == "GET" {
				o.kept["/b/k"] = want
			}
			p.Add(c.rule)
			status, got, err := do(t.Context(), p, c.method, "/b/k", want)
			_, kept := o.get("/b/k")
			c.check(t, status, got, err, kept)
			if p.Hits() != 1 {
				t.Errorf("%d hits", p.Hits())
			}
		})
	}
}

// TestHangAndStall end with the client's patience.
func TestHangAndStall(t *testing.T) {
	for _, action := range []Action{Hang, Stall} {
		p, o := start(t)
		o.kept["/b/k"] = make([]byte, 1<<20)
		p.Add(Rule{Action: action})
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
		{"PUT", "/b/x"}, {"GET", "/b/x"}, {"PUT", "/b/y"}, {"PUT", "/b/x"}, {"PUT", "/b/x"}, {"PUT", "/b/x"},
		{"PUT", "/b/z?partNumber=3"}, {"PUT", "/b/z?partNumber=30"}, {"GET", "/b/z?partNumber=3"},
		{"POST", "/b/z?uploads"}, {"POST", "/b/z?uploads"},
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

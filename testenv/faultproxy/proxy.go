// Package faultproxy is an HTTP proxy that hurts requests on purpose: it delays,
// refuses, cuts, drops and damages those that a rule picks, between a client and
// a real S3 server. The Host header passes unchanged, so signatures verify.
//
// A Proxy belongs to the test that made it and ends with it. Its rules may be
// changed while requests run; each request is counted against the rules in the
// order in which they were added, and the first that is due strikes.
package faultproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/minio/minio-go/v7/pkg/signer"
)

// Action is what happens to a request.
type Action string

// The actions. Those named After let the server do its work first.
const (
	Delay       Action = "delay"        // wait for Rule.Latency, then pass it on
	Status      Action = "status"       // answer Rule.Status with Rule.Code, the body read, nothing passed on
	Reset       Action = "reset"        // reset the connection at once
	Hang        Action = "hang"         // read the body, never answer
	CutRequest  Action = "cut request"  // pass on half of the body, then reset both sides
	DropAfter   Action = "drop after"   // pass it on, reset instead of the answer
	StatusAfter Action = "status after" // pass it on, answer Rule.Status with Rule.Code
	Truncate    Action = "truncate"     // half of the answer's body, then reset
	Stall       Action = "stall"        // half of the answer's body, then nothing
	FlipBit     Action = "flip bit"     // one bit of the answer's body is wrong

	StallRequest Action = "stall request" // pass on half of the body, then nothing
	FlipRequest  Action = "flip request"  // one bit of the body that is passed on is wrong
	Bandwidth    Action = "bandwidth"     // both bodies at Rule.Rate bytes a second
	Strip        Action = "strip"         // pass it on without the headers that begin with Rule.Headers (see Sign)
	StripAnswer  Action = "strip answer"  // answer without the headers that begin with Rule.Headers

	// A listing that is not what the server answered.
	ListNoToken   Action = "list: no token"    // more follows, and no token to ask for it
	ListSameToken Action = "list: same token"  // more follows, always with the same token
	ListDropKey   Action = "list: key missing" // its first key is missing
	ListOld       Action = "list: old"         // all is as it is, but for Rule.Age
)

// Rule picks requests and says what happens to them. Empty fields match all.
type Rule struct {
	Method string
	Key    string // the path contains it
	Query  string // a parameter that is present, as name or name=value
	Nth    int    // the first that is struck among those that match, 1 if 0
	Times  int    // how many are struck from there on, 1 if 0, all if negative

	Action  Action
	Latency time.Duration
	Status  int    // 503 if 0
	Code    string // S3's error code; SlowDown for 503, none for others if empty
	Rate    int    // bytes a second
	Headers []string
	Age     time.Duration // of listings: everything in them was written that much earlier
}

// Seen is a request that reached the proxy.
type Seen struct {
	Method, Path, Query string
	Header              http.Header
	Struck              Action // empty if it passed unharmed
}

// Proxy is a running proxy.
type Proxy struct {
	URL string

	upstream  string
	sign      func(*http.Request) // see Sign
	transport *http.Transport
	ended     context.Context //nolint:containedctx // ends hanging requests with the proxy

	mu    sync.Mutex
	rules []*armed
	seen  []Seen
}

type armed struct {
	Rule
	matched, hits int
}

// New starts a proxy before the server at upstream, such as
// http://127.0.0.1:7070, until the test ends.
func New(tb testing.TB, upstream string) *Proxy {
	tb.Helper()
	var lc net.ListenConfig
	ln, err := lc.Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	ended, end := context.WithCancel(context.Background())
	p := &Proxy{
		URL:       "http://" + ln.Addr().String(),
		upstream:  strings.TrimSuffix(upstream, "/"),
		transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64},
		ended:     ended,
	}
	server := &http.Server{Handler: p, ReadHeaderTimeout: time.Minute}
	done := make(chan error, 1)
	go func() { done <- server.Serve(ln) }()
	tb.Cleanup(func() {
		end()
		_ = server.Close()
		p.transport.CloseIdleConnections()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			tb.Error(err)
		}
	})
	return p
}

// Add puts a rule behind those that are there.
func (p *Proxy) Add(r Rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, &armed{Rule: r})
}

// Clear removes all rules and forgets what was seen.
func (p *Proxy) Clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules, p.seen = nil, nil
}

// Seen returns the requests so far.
func (p *Proxy) Seen() []Seen {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Seen(nil), p.seen...)
}

// Hits is how many requests were struck.
func (p *Proxy) Hits() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, r := range p.rules {
		n += r.hits
	}
	return n
}

// Sign has the proxy sign what it passes on under these keys, where it has changed
// the headers: a server that knows nothing of a header is played by one that never
// sees it, and must not be told by the signature.
func (p *Proxy) Sign(access, secret, region string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sign = func(r *http.Request) {
		r.Header.Del("Authorization")
		signed := signer.SignV4(*r, access, secret, "", region)
		r.Header = signed.Header
	}
}

// strike returns the rule that is due for r, or one without an action.
func (p *Proxy) strike(r *http.Request) Rule {
	p.mu.Lock()
	defer p.mu.Unlock()
	var due Rule
	for _, a := range p.rules {
		if due.Action == "" && a.due(r) {
			due = a.Rule
		}
	}
	p.seen = append(p.seen, Seen{Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery, Header: r.Header.Clone(), Struck: due.Action})
	return due
}

func (a *armed) due(r *http.Request) bool {
	if !a.matches(r) {
		return false
	}
	a.matched++
	if a.matched < max(a.Nth, 1) || a.Times >= 0 && a.hits >= max(a.Times, 1) {
		return false
	}
	a.hits++
	return true
}

func (a *armed) matches(r *http.Request) bool {
	if a.Method != "" && a.Method != r.Method || !strings.Contains(r.URL.Path, a.Key) {
		return false
	}
	if a.Query == "" {
		return true
	}
	name, value, exact := strings.Cut(a.Query, "=")
	q := r.URL.Query()
	return q.Has(name) && (!exact || q.Get(name) == value)
}

// ServeHTTP is one request.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rule := p.strike(r)
	switch rule.Action {
	case Delay:
		p.wait(r, rule.Latency)
	case Status:
		_, _ = io.Copy(io.Discard, r.Body)
		refuse(w, rule)
		return
	case Reset:
		reset(w)
		return
	case Hang:
		_, _ = io.Copy(io.Discard, r.Body)
		p.wait(r, 0)
		reset(w)
		return
	default: // what happens to the others happens later
	}
	resp, err := p.forward(r, rule)
	if err != nil {
		reset(w)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	p.answer(w, r, resp, rule)
}

// wait ends after d, or never if d is 0, or when either side is gone.
func (p *Proxy) wait(r *http.Request, d time.Duration) {
	var after <-chan time.Time
	if d > 0 {
		after = time.After(d)
	}
	select {
	case <-after:
	case <-r.Context().Done():
	case <-p.ended.Done():
	}
}

func (p *Proxy) forward(r *http.Request, rule Rule) (*http.Response, error) {
	out, err := http.NewRequestWithContext(r.Context(), r.Method, p.upstream+r.URL.RequestURI(), p.body(r, rule))
	if err != nil {
		return nil, err
	}
	out.Header = r.Header.Clone()
	out.Header.Del("Expect")
	out.Host = r.Host
	out.ContentLength = r.ContentLength
	if rule.Action == Strip {
		strip(out.Header, rule.Headers)
		p.mu.Lock()
		sign := p.sign
		p.mu.Unlock()
		if sign != nil {
			sign(out)
		}
	}
	return p.transport.RoundTrip(out)
}

func (p *Proxy) answer(w http.ResponseWriter, r *http.Request, resp *http.Response, rule Rule) {
	switch rule.Action {
	case DropAfter:
		_, _ = io.Copy(io.Discard, resp.Body)
		reset(w)
		return
	case StatusAfter:
		_, _ = io.Copy(io.Discard, resp.Body)
		refuse(w, rule)
		return
	default:
	}
	maps.Copy(w.Header(), resp.Header)
	if rule.Action == StripAnswer {
		strip(w.Header(), rule.Headers)
	}
	if rewrites(rule.Action) {
		b, _ := io.ReadAll(resp.Body)
		b = aged(rewrite(b, rule.Action), rule.Age)
		w.Header().Set("Content-Length", strconv.Itoa(len(b)))
		w.WriteHeader(resp.StatusCode)
		_, _ = w.Write(b)
		return
	}
	w.WriteHeader(resp.StatusCode)
	switch rule.Action {
	case Truncate, Stall:
		_, _ = io.CopyN(w, resp.Body, resp.ContentLength/2)
		_ = http.NewResponseController(w).Flush()
		if rule.Action == Stall {
			p.wait(r, 0)
		}
		reset(w)
	case FlipBit:
		b, _ := io.ReadAll(resp.Body)
		if len(b) > 0 {
			b[len(b)/2] ^= 1
		}
		_, _ = w.Write(b)
	case Bandwidth:
		if _, err := io.Copy(w, p.slowly(resp.Body, r, rule.Rate)); err != nil {
			reset(w)
		}
	default:
		if _, err := io.Copy(w, resp.Body); err != nil {
			reset(w) // the server broke off: so do we
		}
	}
}

// refuse answers with an error as S3 words it.
func refuse(w http.ResponseWriter, rule Rule) {
	status, code := rule.Status, rule.Code
	if status == 0 {
		status = http.StatusServiceUnavailable
	}
	if code == "" && status == http.StatusServiceUnavailable {
		code = "SlowDown"
	}
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	if code != "" {
		_, _ = fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>%s</Code><Message>injected</Message></Error>`, code)
	}
}

// reset ends the connection with a TCP reset, as far as it can be taken over.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

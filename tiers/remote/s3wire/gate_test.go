package s3wire_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/strandline-io/strandline/testenv/faultproxy"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/s3wire"
)

// dataKey is a key that limits hold for.
func dataKey(topic byte, name string) string {
	return remote.TopicPrefix(tiers.TopicID{topic}) + name
}

func passing(b remote.Bucket, l remote.Limits) (remote.Bucket, *remote.Gate) {
	g := remote.NewGate(remote.GateOptions{Limits: l})
	return remote.WithGate(b, g), g
}

// requests sorts what a proxy saw as a price list does.
func requests(p *faultproxy.Proxy) remote.Counts {
	var c remote.Counts
	for _, s := range p.Seen() {
		q, _ := url.ParseQuery(s.Query)
		switch {
		case s.Struck == faultproxy.Status:
			c.Refused++
		case s.Method == http.MethodDelete, s.Method == http.MethodPost && q.Has("delete"):
			c.Deletes++
		case s.Method == http.MethodPut, s.Method == http.MethodPost, q.Has("list-type"), q.Has("uploads"):
			c.Writes++
		default:
			c.Reads++
		}
	}
	return c
}

// TestGateCountsWhatTheStoreSaw: each kind of call, with the requests that a driver
// makes of it and those that fail.
func TestGateCountsWhatTheStoreSaw(t *testing.T) {
	each(t, func(t on) {
		p := faultproxy.New(t, t.bucket.Endpoint)
		bare, g := passing(open(t, t.driver, t.bucket, through(p.URL)), remote.Limits{})
		b := remote.WithRetry(bare, soon())
		ctx, one := t.Context(), dataKey(1, "one")
		p.Add(faultproxy.Rule{Method: http.MethodPut, Key: "/one", Action: faultproxy.Status})
		p.Add(faultproxy.Rule{Method: http.MethodGet, Key: "/one", Action: faultproxy.Status, Status: 500})
		mustPut(t, b, one, noise(1, 100_000))
		mustPut(t, b, dataKey(2, "big"), noise(2, 33<<20))
		if _, err := readAll(ctx, b, one); err != nil {
			t.Fatal(err)
		}
		if n, err := b.ReadAt(ctx, one, make([]byte, 5000), 10); n != 5000 || err != nil {
			t.Fatal(n, err)
		}
		if _, err := b.Stat(ctx, one); err != nil {
			t.Fatal(err)
		}
		wantAbsent(t, b, dataKey(1, "none")) // HEAD, and GET to be told why
		for _, prefix := range []string{remote.TopicPrefix(tiers.TopicID{1}), ""} {
			for _, err := range b.List(ctx, remote.ListOptions{Prefix: prefix}) {
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		mustPut(t, b, "cluster/claim", []byte("who"))
		for _, keys := range [][]string{{one}, {one, dataKey(1, "none")}, {dataKey(2, "big")}} {
			if err := b.Delete(ctx, keys...); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := b.AbortStale(ctx, time.Hour); err != nil {
			t.Fatal(err)
		}
		cancelled, cancel := context.WithCancel(ctx)
		cancel()
		_, _ = b.Stat(cancelled, one) // never sent

		tally := g.Meter().Tally()
		total := tally.Total()
		total.BytesUp, total.BytesDown = 0, 0
		if want := requests(p); total != want || total.Requests() != int64(len(p.Seen())) {
			t.Errorf("counted %+v, the store saw %+v", total, want)
		}
		want := remote.Counts{Writes: 2, Reads: 5, Deletes: 2, Refused: 2, BytesUp: 200_000, BytesDown: 105_000}
		got := tally.Topics[tiers.TopicID{1}]
		// Errors and lists of keys have bodies too.
		if got.BytesDown < want.BytesDown || got.BytesDown > want.BytesDown+10_000 || got.BytesUp < want.BytesUp || got.BytesUp > want.BytesUp+1000 {
			t.Errorf("%d bytes up, %d down", got.BytesUp, got.BytesDown)
		}
		if want.BytesUp, want.BytesDown = got.BytesUp, got.BytesDown; got != want {
			t.Errorf("topic 1: %+v, want %+v", got, want)
		}
		if big := tally.Topics[tiers.TopicID{2}]; big.Writes != 5 || big.Deletes != 1 || big.BytesUp < 33<<20 || big.BytesUp > 33<<20+5000 {
			t.Errorf("an upload of 3 parts: %+v", big)
		}
		if c := tally.Cluster; c.Writes != 3 || c.BytesUp != 3 {
			t.Errorf("claim, list of everything, list of uploads: %+v", c)
		}
		for _, l := range g.Lanes() {
			if l.InFlight != 0 || l.Waiting != 0 {
				t.Errorf("%+v is left", l)
			}
		}
	})
}

// meteredServer notes how many bytes of bodies came in each tenth of a second.
type meteredServer struct {
	mu    sync.Mutex
	start time.Time
	at    map[int]int
	puts  int
}

func (m *meteredServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	m.puts++
	if m.start.IsZero() {
		m.start = time.Now()
	}
	m.mu.Unlock()
	buf := make([]byte, 64<<10)
	for {
		n, err := r.Body.Read(buf)
		m.mu.Lock()
		m.at[int(time.Since(m.start)/(100*time.Millisecond))] += n
		m.mu.Unlock()
		if err != nil {
			break
		}
	}
	w.Header().Set("ETag", `"x"`)
}

// most is the largest number of bytes in a second, whenever it begins.
func (m *meteredServer) most() (most int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for from := range m.at {
		sum := 0
		for i := range 10 {
			sum += m.at[from+i]
		}
		most = max(most, sum)
	}
	return most
}

func endpoint(t on, h http.Handler) change {
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return through(server.URL)
}

// TestReport132RateOnTheWire: bytes come at the rate within a body, not one burst
// per request, and the driver's own time limits do not take the waiting for a
// stall: each body rests for longer than they allow.
func TestReport132RateOnTheWire(t *testing.T) {
	each(t, func(t on) {
		const rate, size, uploads = 512 << 10, 128 << 10, 8
		m := &meteredServer{at: map[int]int{}}
		short := func(c *s3wire.Config) {
			c.HTTP.Stall, c.HTTP.Header, c.HTTP.Attempt = 100*time.Millisecond, 5*time.Second, 500*time.Millisecond
		}
		b, g := passing(open(t, t.driver, t.bucket, endpoint(t, m), short), remote.Limits{UploadBytes: rate})
		begin := time.Now()
		var wg sync.WaitGroup
		for i := range uploads {
			wg.Go(func() {
				if _, err := b.Put(t.Context(), dataKey(1, fmt.Sprint(i)), remote.BytesBody(noise(byte(i), size)), remote.PutOptions{}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if took := time.Since(begin); took < 1900*time.Millisecond {
			t.Errorf("1 MiB at 512 KiB a second took %s", took)
		}
		if most := m.most(); most > rate*11/10+100<<10 {
			t.Errorf("%d bytes came within a second, the limit is %d", most, rate)
		}
		if m.puts != uploads || g.Meter().Tally().Total().BytesUp != size*uploads {
			t.Errorf("%d puts, %+v", m.puts, g.Meter().Tally().Total())
		}
	})
}

// TestRetryAfterOfTheStore is waited for, in seconds and as a date.
func TestRetryAfterOfTheStore(t *testing.T) {
	each(t, func(t on) {
		for _, header := range []func() string{
			func() string { return "1" },
			func() string { return time.Now().Add(2 * time.Second).UTC().Format(http.TimeFormat) }, // 1 s at least
		} {
			calls := 0
			h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if calls++; calls == 1 {
					w.Header().Set("Retry-After", header())
					answer(w, http.StatusServiceUnavailable, "SlowDown", "later")
				}
			})
			bare, g := passing(open(t, t.driver, t.bucket, endpoint(t, h)), remote.Limits{})
			begin := time.Now()
			mustPut(t, remote.WithRetry(bare, soon()), dataKey(1, "k"), []byte("x"))
			if took := time.Since(begin); took < 900*time.Millisecond || calls != 2 {
				t.Errorf("%d calls in %s", calls, took)
			}
			if l := g.Lanes()[0]; l.SlowDowns != 1 || l.Window >= 16 {
				t.Errorf("%+v", l)
			}
		}
	})
}

// TestSlowDownOnParts: each part is a request of its own to the gate. A storm
// halves the window, the upload as a whole is tried again, and neither an upload
// nor a place is left.
func TestSlowDownOnParts(t *testing.T) {
	each(t, func(t on) {
		p := faultproxy.New(t, t.bucket.Endpoint)
		bare, g := passing(open(t, t.driver, t.bucket, through(p.URL), smallParts), remote.Limits{})
		b := remote.WithRetry(bare, soon())
		p.Add(faultproxy.Rule{Method: http.MethodPut, Query: "partNumber=2", Action: faultproxy.Status, Times: 3})
		body := noise(3, 21<<20)
		mustPut(t, b, dataKey(1, "k"), body)
		wantContent(t, b, dataKey(1, "k"), body)
		wantNoUploads(t, t.bucket)
		c := g.Meter().Tally().Topics[tiers.TopicID{1}]
		if l := g.Lanes()[0]; l.SlowDowns < 1 || l.InFlight != 0 || p.Hits() != 3 {
			t.Errorf("%+v, %d struck", l, p.Hits())
		}
		if c.Refused != 3 || c.Deletes < 3 || c.Deletes > 9 {
			t.Errorf("three uploads were refused a part and aborted: %+v", c)
		}
	})
}

// smallParts makes an upload of what is above 1 MiB, in the smallest parts that S3
// takes.
func smallParts(c *s3wire.Config) { c.SinglePut, c.PartSize = 1<<20, s3wire.MinPartSize }

// TestRateHoldsForParts: four parts at once do not go four times as fast, and an
// upload that is cancelled while it waits leaves nothing behind.
func TestRateHoldsForParts(t *testing.T) {
	each(t, func(t on) {
		b, g := passing(open(t, t.driver, t.bucket, smallParts), remote.Limits{UploadBytes: 12 << 20})
		body := noise(4, 21<<20)
		begin := time.Now()
		mustPut(t, b, dataKey(1, "k"), body)
		if took := time.Since(begin); took < 1600*time.Millisecond {
			t.Errorf("21 MiB at 12 MiB a second took %s", took)
		}
		g.SetLimits(remote.Limits{UploadBytes: 100 << 10})
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		begin = time.Now()
		_, err := b.Put(ctx, dataKey(1, "c"), remote.BytesBody(body), remote.PutOptions{})
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) > 5*time.Second {
			t.Errorf("%v after %s", err, time.Since(begin))
		}
		g.SetLimits(remote.Limits{})
		wantNoUploads(t, t.bucket)
		wantAbsent(t, b, dataKey(1, "c"))
		for _, l := range g.Lanes() {
			if l.InFlight != 0 || l.Waiting != 0 {
				t.Errorf("%+v is left", l)
			}
		}
	})
}

// TestDownloadRateOnTheWire for both ways of reading.
func TestDownloadRateOnTheWire(t *testing.T) {
	each(t, func(t on) {
		b, g := passing(open(t, t.driver, t.bucket, quick), remote.Limits{})
		body := noise(5, 3<<20)
		mustPut(t, b, dataKey(1, "k"), body)
		g.SetLimits(remote.Limits{DownloadBytes: 4 << 20})
		begin := time.Now()
		wantContent(t, b, dataKey(1, "k"), body)
		got := make([]byte, len(body))
		if n, err := b.ReadAt(t.Context(), dataKey(1, "k"), got, 0); n != len(body) || err != nil || string(got) != string(body) {
			t.Errorf("%d bytes, %v", n, err)
		}
		if took := time.Since(begin); took < 1400*time.Millisecond {
			t.Errorf("6 MiB at 4 MiB a second took %s", took)
		}
		if c := g.Meter().Tally().Total(); c.BytesDown != 6<<20 {
			t.Errorf("%+v", c)
		}
	})
}

// TestReport137CancelledThroughAGate: two thousand transfers that their callers
// leave, held back at every point, give everything back.
func TestReport137CancelledThroughAGate(t *testing.T) {
	rounds := 500
	if testing.Short() {
		rounds = 20
	}
	each(t, func(t on) {
		plain := open(t, t.driver, t.bucket)
		mustPut(t, plain, dataKey(1, "k"), noise(1, 4<<20))
		var before int
		func() {
			opened := open(t, t.driver, t.bucket)
			before = runtime.NumGoroutine()
			b, g := passing(opened, remote.Limits{UploadBytes: 8 << 20, DownloadBytes: 8 << 20, WriteRequests: 400, ReadRequests: 400})
			body := remote.BytesBody(noise(2, 6<<20))
			var wg sync.WaitGroup
			for w := range 4 {
				wg.Go(func() {
					for i := range rounds {
						ctx, cancel := context.WithTimeout(t.Context(), time.Duration((i*7919+w*104729)%12_000)*time.Microsecond)
						leave(ctx, b, fmt.Sprint(w), body, i%4)
						cancel()
					}
				})
			}
			wg.Wait()
			for _, l := range g.Lanes() {
				if l.InFlight != 0 || l.Waiting != 0 {
					t.Errorf("%+v is left", l)
				}
			}
			if err := opened.Close(); err != nil {
				t.Fatal(err)
			}
		}()
		waitGoroutines(t, before)
		wantNoUploads(t, t.bucket)
	})
}

// leave does one transfer of a topic, or as much of it as its context lets it.
func leave(ctx context.Context, b remote.Bucket, name string, body remote.Body, kind int) {
	switch kind {
	case 0:
		_, _ = b.Put(ctx, dataKey(2, name), body, remote.PutOptions{})
	case 1:
		_, _ = b.ReadAt(ctx, dataKey(1, "k"), make([]byte, 3<<20), 10)
	case 2:
		if r, _, err := b.Get(ctx, dataKey(1, "k"), remote.Range{}); err == nil {
			_, _ = io.CopyN(io.Discard, r, 100_000)
			_ = r.Close() // with most of it unread
		}
	default:
		for _, err := range b.List(ctx, remote.ListOptions{Prefix: strings.TrimSuffix(dataKey(1, "k"), "k")}) {
			if err != nil {
				return
			}
		}
	}
}

// TestSlowDownStormOnTheWire: while the store refuses every write, two dozen
// writers ask it a few times only; afterwards all come to pass, with one request
// each.
func TestSlowDownStormOnTheWire(t *testing.T) {
	each(t, func(t on) {
		p := faultproxy.New(t, t.bucket.Endpoint)
		bare, g := passing(open(t, t.driver, t.bucket, through(p.URL)), remote.Limits{})
		o := soon()
		o.Attempts = 1000
		b := remote.WithRetry(bare, o)
		p.Add(faultproxy.Rule{Method: http.MethodPut, Action: faultproxy.Status, Times: -1})
		const writers = 24
		storm := time.After(1500 * time.Millisecond)
		var wg sync.WaitGroup
		for i := range writers {
			wg.Go(func() {
				if _, err := b.Put(t.Context(), dataKey(1, fmt.Sprint(i)), remote.BytesBody(noise(byte(i), 1000)), remote.PutOptions{}); err != nil {
					t.Error(err)
				}
			})
		}
		<-storm
		// Sixteen at once, then 8, 4, 2 and 1 in the pauses of 0.1, 0.2, 0.4 and 0.8 s.
		if during := count(p, http.MethodPut); during < 16 || during > 16+8+4+2+1 {
			t.Errorf("%d requests during the storm", during)
		}
		p.Clear()
		wg.Wait()
		if after := count(p, http.MethodPut); after > writers+1 {
			t.Errorf("%d requests for %d writes after the storm", after, writers)
		}
		if l := g.Lanes()[0]; l.SlowDowns < 2 || l.Window < 2 || l.InFlight != 0 {
			t.Errorf("%+v", l)
		}
	})
}

package s3wire_test

import (
	"bytes"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/strandline-io/strandline/testenv/faultproxy"
	"github.com/strandline-io/strandline/tiers/remote"
)

// TestHedgeOnTheWire: a range that the store sits on is answered by a second
// request, with either driver, and the connection of the first is given up.
func TestHedgeOnTheWire(t *testing.T) {
	each(t, func(t on) {
		driver, sb := t.driver, t.bucket
		p := faultproxy.New(t, sb.Endpoint)
		var opened atomic.Int32
		server := strict(t, p.URL, func(*http.Request) (int, string) { return 0, "" }, countConns(&opened))
		b := remote.WithHedge(remote.WithRetry(open(t, driver, sb, through(server.URL)), soon()), remote.HedgeOptions{Share: 1})
		body := noise(3, 1<<20)
		mustPut(t, b, "k", body)
		reads := map[string]func() ([]byte, error){
			"get": func() ([]byte, error) {
				r, _, err := b.Get(t.Context(), "k", remote.Range{Off: 100, Len: 5000})
				if err != nil {
					return nil, err
				}
				defer r.Close()
				return io.ReadAll(r)
			},
			"read at": func() ([]byte, error) {
				got := make([]byte, 5000)
				_, err := b.ReadAt(t.Context(), "k", got, 100)
				return got, err
			},
		}
		for name, read := range reads {
			p.Clear()
			p.Add(faultproxy.Rule{Method: http.MethodGet, Action: faultproxy.Hang})
			start := time.Now()
			got, err := read()
			if err != nil || !bytes.Equal(got, body[100:5100]) {
				t.Errorf("%s: %d bytes, %v", name, len(got), err)
			}
			if took := time.Since(start); took < 250*time.Millisecond || took > 10*time.Second {
				t.Errorf("%s took %v", name, took)
			}
			if seen := gets(p); len(seen) != 2 {
				t.Errorf("%s: %d requests", name, len(seen))
			}
		}
		p.Clear()
		for range 20 {
			for name, read := range reads {
				if _, err := read(); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
		if n := opened.Load(); n > 5 {
			t.Errorf("%d connections", n)
		}
	})
}

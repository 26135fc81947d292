package remote_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

// sluggish is a store whose n-th read takes as long as it is told.
type sluggish struct {
	remote.Bucket
	takes func(n int64) time.Duration

	reads, puts, open, cancelled atomic.Int64
}

func (s *sluggish) wait(ctx context.Context) error {
	err := sleep(ctx, s.takes(s.reads.Add(1)))
	if err != nil {
		s.cancelled.Add(1)
	}
	return err
}

func (s *sluggish) Get(ctx context.Context, key string, r remote.Range) (io.ReadCloser, remote.Object, error) {
	if err := s.wait(ctx); err != nil {
		return nil, remote.Object{}, err
	}
	body, o, err := s.Bucket.Get(ctx, key, r)
	if err == nil {
		s.open.Add(1)
		body = &countedClose{body, &s.open}
	}
	return body, o, err
}

func (s *sluggish) ReadAt(ctx context.Context, key string, dst []byte, off int64) (int, error) {
	if err := s.wait(ctx); err != nil {
		for i := range dst { // what was on its way still lands, as on a real wire
			dst[i] = 0xee
		}
		return 0, err
	}
	return s.Bucket.ReadAt(ctx, key, dst, off)
}

func (s *sluggish) Put(ctx context.Context, key string, body remote.Body, o remote.PutOptions) (remote.Object, error) {
	s.puts.Add(1)
	if err := sleep(ctx, time.Minute); err != nil {
		return remote.Object{}, err
	}
	return s.Bucket.Put(ctx, key, body, o)
}

type countedClose struct {
	io.ReadCloser
	open *atomic.Int64
}

func (c *countedClose) Close() error {
	c.open.Add(-1)
	return c.ReadCloser.Close()
}

const hedgedKey = "some/key"

var hedgedBody = bytes.Repeat([]byte("0123456789"), 1000)

func newSluggish(t *testing.T, takes func(n int64) time.Duration) *sluggish {
	t.Helper()
	b := memory.New()
	_, err := b.Put(t.Context(), hedgedKey, remote.BytesBody(hedgedBody), remote.PutOptions{})
	must(t, err)
	return &sluggish{Bucket: b, takes: takes}
}

// getRange reads a range through Get, or readRange through ReadAt, and checks it.
func getRange(t *testing.T, b remote.Bucket) {
	t.Helper()
	body, _, err := b.Get(t.Context(), hedgedKey, remote.Range{Off: 10, Len: 5000})
	must(t, err)
	got, err := io.ReadAll(body)
	must(t, err)
	must(t, body.Close())
	if !bytes.Equal(got, hedgedBody[10:5010]) {
		t.Fatal("wrong bytes")
	}
}

func readRange(t *testing.T, b remote.Bucket) {
	t.Helper()
	got := make([]byte, 5000)
	n, err := b.ReadAt(t.Context(), hedgedKey, got, 10)
	must(t, err)
	synctest.Wait()
	if n != 5000 || !bytes.Equal(got, hedgedBody[10:5010]) {
		t.Fatal("wrong bytes")
	}
}

var bothReads = map[string]func(*testing.T, remote.Bucket){"get": getRange, "read": readRange}

// A read that takes ten seconds where others take 20 ms is answered by its hedge,
// and nothing of it is left.
func TestHedgeWins(t *testing.T) {
	t.Parallel()
	for name, read := range bothReads {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSluggish(t, func(n int64) time.Duration {
					if n == 101 {
						return 10 * time.Second
					}
					return 20 * time.Millisecond
				})
				reg := prometheus.NewPedanticRegistry()
				b := remote.WithHedge(s, remote.HedgeOptions{Registerer: reg})
				for range 100 {
					read(t, b)
				}
				start := time.Now()
				read(t, b)
				if took := time.Since(start); took != 270*time.Millisecond {
					t.Errorf("it took %v", took)
				}
				synctest.Wait()
				if s.reads.Load() != 102 || s.cancelled.Load() != 1 || s.open.Load() != 0 {
					t.Errorf("%d requests, %d cancelled, %d bodies are open", s.reads.Load(), s.cancelled.Load(), s.open.Load())
				}
				if got := labelled(t, reg, "strandline_bucket_hedges_total"); got["true"] != 1 || got["false"] != 0 {
					t.Errorf("%v", got)
				}
			})
		})
	}
}

// A first request that answers after all wins, and the hedge is cancelled: its
// body, if it has one, is closed.
func TestHedgeLoses(t *testing.T) {
	t.Parallel()
	for name, read := range bothReads {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSluggish(t, func(n int64) time.Duration {
					switch n {
					case 101:
						return 300 * time.Millisecond
					case 102:
						return time.Hour
					}
					return time.Millisecond
				})
				reg := prometheus.NewPedanticRegistry()
				b := remote.WithHedge(s, remote.HedgeOptions{Registerer: reg})
				for range 101 {
					read(t, b)
				}
				synctest.Wait()
				if s.reads.Load() != 102 || s.cancelled.Load() != 1 || s.open.Load() != 0 {
					t.Errorf("%d requests, %d cancelled, %d bodies are open", s.reads.Load(), s.cancelled.Load(), s.open.Load())
				}
				if got := labelled(t, reg, "strandline_bucket_hedges_total"); got["false"] != 1 || got["true"] != 0 {
					t.Errorf("%v", got)
				}
			})
		})
	}
}

// labelled is a counter by the value of its only label.
func labelled(t *testing.T, reg prometheus.Gatherer, name string) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	must(t, err)
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name {
				got[m.GetLabel()[0].GetValue()] += m.GetCounter().GetValue()
			}
		}
	}
	return got
}

// However slow the store is, hedges are at most a fiftieth of the requests, and at
// most five in a second.
func TestHedgesAreFew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSluggish(t, func(int64) time.Duration { return 400 * time.Millisecond })
		b := remote.WithHedge(s, remote.HedgeOptions{Least: 300 * time.Millisecond})
		const calls = 500
		for range calls {
			getRange(t, b)
		}
		if hedges := s.reads.Load() - calls; hedges > calls/50 {
			t.Errorf("%d hedges for %d requests", hedges, calls)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		slow := false
		s := newSluggish(t, func(int64) time.Duration {
			if slow {
				return time.Second
			}
			return time.Millisecond
		})
		b := remote.WithHedge(s, remote.HedgeOptions{})
		for range 5000 {
			getRange(t, b)
		}
		synctest.Wait()
		slow = true
		before := s.reads.Load()
		var wg sync.WaitGroup
		for range 200 {
			wg.Go(func() { getRange(t, b) })
		}
		wg.Wait()
		if hedges := s.reads.Load() - before - 200; hedges == 0 || hedges > 5 {
			t.Errorf("%d hedges of 200 requests at once", hedges)
		}
	})
}

// A store that is slow for seconds is asked five times more in each of them.
func TestHedgesPerSecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSluggish(t, func(int64) time.Duration { return 900 * time.Millisecond })
		b := remote.WithHedge(s, remote.HedgeOptions{Share: 1, Least: time.Millisecond})
		start := time.Now()
		const calls = 300
		var wg sync.WaitGroup
		for range calls {
			wg.Go(func() { getRange(t, b) })
			time.Sleep(30 * time.Millisecond)
		}
		wg.Wait()
		most := 5 + int64(5*time.Since(start).Seconds())
		if hedges := s.reads.Load() - calls; hedges == 0 || hedges > most {
			t.Errorf("%d hedges in %v", hedges, time.Since(start))
		}
	})
}

// The limit follows the store: where 95 of 100 reads take a second, half a second
// is nothing.
func TestHedgeWaitsForP95(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSluggish(t, func(n int64) time.Duration { return time.Second + time.Duration(n%7)*time.Millisecond })
		b := remote.WithHedge(s, remote.HedgeOptions{Share: 1, PerSecond: 1000})
		for range 32 { // what is usual is not known yet
			getRange(t, b)
		}
		before := s.reads.Load()
		for range 50 {
			getRange(t, b)
		}
		if hedges := s.reads.Load() - before - 50; hedges > 10 {
			t.Errorf("%d hedges of 50 reads that took as long as always", hedges)
		}
	})
}

// A read that a limit of our own holds back is not one that the store is slow with.
func TestHeldBackIsNotHedged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := memory.New()
		seg := remote.SegmentKey(tiers.RemoteSegment{})
		_, err := m.Put(t.Context(), seg, remote.BytesBody(hedgedBody), remote.PutOptions{})
		must(t, err)
		reg := prometheus.NewPedanticRegistry()
		gate := remote.NewGate(remote.GateOptions{Limits: remote.Limits{ReadRequests: 1}})
		b := remote.WithHedge(remote.WithRetry(remote.WithGate(m, gate), remote.RetryOptions{}), remote.HedgeOptions{Share: 1, PerSecond: 1000, Registerer: reg})
		start := time.Now()
		for range 10 {
			_, err := b.ReadAt(t.Context(), seg, make([]byte, 100), 0)
			must(t, err)
			body, _, err := b.Get(t.Context(), seg, remote.Range{Len: 100})
			must(t, err)
			must(t, body.Close())
		}
		if took := time.Since(start); took < 10*time.Second {
			t.Fatalf("nothing was held back: %v", took)
		}
		if got := labelled(t, reg, "strandline_bucket_hedges_total"); len(got) != 0 {
			t.Errorf("hedges: %v", got)
		}
	})
}

// What is no ranged read, or a large one, is sent once.
func TestNeverHedged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSluggish(t, func(int64) time.Duration { return time.Minute })
		b := remote.WithHedge(s, remote.HedgeOptions{Share: 1, PerSecond: 1000})
		_, err := b.Put(t.Context(), "new", remote.BytesBody([]byte("x")), remote.PutOptions{})
		must(t, err)
		for _, r := range []remote.Range{{}, {Off: 5}, {Len: 5 << 20}} {
			body, _, err := b.Get(t.Context(), hedgedKey, r)
			must(t, err)
			must(t, body.Close())
		}
		if _, err := b.ReadAt(t.Context(), hedgedKey, make([]byte, 5<<20), 0); !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		if s.puts.Load() != 1 || s.reads.Load() != 4 {
			t.Errorf("%d puts, %d reads", s.puts.Load(), s.reads.Load())
		}
	})
}

// A failure waits for the other request; a refusal does not.
func TestHedgeAndErrors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  error
		took time.Duration
		ok   bool
	}{
		"failure": {remote.ErrUnavailable, 250*time.Millisecond + 5*time.Second, true},
		"refusal": {remote.ErrNotFound, time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSluggish(t, func(n int64) time.Duration {
					switch n {
					case 1:
						return time.Second
					case 2:
						return 5 * time.Second
					}
					return 0
				})
				b := remote.WithHedge(s, remote.HedgeOptions{Share: 1})
				s.Bucket.(*memory.Bucket).Add(memory.Fault{Ops: memory.OpRead, Err: c.err})
				start := time.Now()
				body, _, err := b.Get(t.Context(), hedgedKey, remote.Range{Len: 10})
				if took := time.Since(start); took != c.took {
					t.Errorf("it took %v", took)
				}
				if c.ok {
					must(t, err)
					must(t, body.Close())
				} else if !errors.Is(err, c.err) {
					t.Error(err)
				}
				synctest.Wait()
				if s.open.Load() != 0 {
					t.Error("a body is open")
				}
			})
		})
	}
}

// Report 137: callers that leave, before and after the hedge was sent, leave
// nothing behind. TestMain looks for goroutines, too.
func TestReport137HedgesOfCallersThatLeave(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSluggish(t, func(n int64) time.Duration { return time.Duration(n%11) * 100 * time.Millisecond })
		b := remote.WithHedge(s, remote.HedgeOptions{Share: 1, PerSecond: 1e6})
		var wg sync.WaitGroup
		for i := range 2000 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%13)*50*time.Millisecond)
				defer cancel()
				if i%2 == 0 {
					dst := make([]byte, 1000)
					_, err := b.ReadAt(ctx, hedgedKey, dst, 0)
					if err == nil && !bytes.Equal(dst, hedgedBody[:1000]) {
						t.Error("wrong bytes")
					}
					return
				}
				body, _, err := b.Get(ctx, hedgedKey, remote.Range{Len: 1000})
				if err != nil {
					return
				}
				_, _ = io.ReadAll(body)
				_ = body.Close()
			})
		}
		wg.Wait()
		synctest.Wait()
		if s.open.Load() != 0 {
			t.Errorf("%d bodies are open", s.open.Load())
		}
	})
}

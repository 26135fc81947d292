package remote_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/buckettest"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

// dataKey is the key of a segment of a topic, so that limits hold for it.
func dataKey(topic byte, n int) string {
	return remote.SegmentKey(tiers.RemoteSegment{
		Partition: tiers.PartitionID{Topic: tiers.TopicID{topic}}, Gen: 1, Base: tiers.Offset(n), ID: tiers.SegmentID{topic, byte(n), byte(n >> 8)},
	})
}

func gatedBucket(l remote.Limits) (*memory.Bucket, *remote.Gate, remote.Bucket) {
	m := memory.New()
	g := remote.NewGate(remote.GateOptions{Limits: l})
	return m, g, remote.WithGate(m, g)
}

func putSize(ctx context.Context, b remote.Bucket, key string, size int) error {
	_, err := b.Put(ctx, key, remote.BytesBody(make([]byte, size)), remote.PutOptions{})
	return err
}

func TestGateAcceptance(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]remote.Limits{
		"without limits": {},
		"with limits":    {UploadBytes: 1 << 30, DownloadBytes: 1 << 30, WriteRequests: 1e6, ReadRequests: 1e6},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			buckettest.Run(t, func(*testing.T) remote.Bucket {
				_, _, b := gatedBucket(l)
				return b
			})
		})
	}
}

// pulse is a body that notes when its bytes were taken.
type pulse struct {
	remote.Body
	took *taken
}

type taken struct {
	mu sync.Mutex
	at map[int]int // bytes by second since start
	on time.Time
}

func newTaken() *taken { return &taken{at: map[int]int{}, on: time.Now()} }

func (p *taken) add(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at[int(time.Since(p.on)/time.Second)] += n
}

// most is the largest number of bytes in a second.
func (p *taken) most() (n int) {
	for _, b := range p.at {
		n = max(n, b)
	}
	return n
}

type pulseReader struct {
	io.ReadSeekCloser
	took *taken
}

func (p pulse) Open(off, n int64) (io.ReadSeekCloser, error) {
	r, err := p.Body.Open(off, n)
	return pulseReader{r, p.took}, err
}

func (p pulseReader) Read(b []byte) (int, error) {
	n, err := p.ReadSeekCloser.Read(b)
	p.took.add(n)
	return n, err
}

// slack is what a second may have above the rate: the credit for late timers and
// a piece.
func slack(rate int) int { return rate + rate/50 + 64<<10 }

// TestReport132UploadRate: fifty uploads that begin together share the rate, in
// every second, and one large body does not go in a burst.
func TestReport132UploadRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const rate, size, uploads = 20_000_000, 2 << 20, 50
		_, g, b := gatedBucket(remote.Limits{UploadBytes: rate})
		took := newTaken()
		var wg sync.WaitGroup
		for i := range uploads {
			wg.Go(func() {
				data := make([]byte, size)
				body := remote.WithCRC(pulse{remote.BytesBody(data), took}, remote.CRC32C(data))
				if _, err := b.Put(t.Context(), dataKey(1, i), body, remote.PutOptions{}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		lasted := time.Since(took.on).Seconds()
		if least := float64(size*uploads)/rate - 0.1; lasted < least || lasted > least*1.1+0.2 {
			t.Errorf("it took %.2f s, want about %.2f s", lasted, least)
		}
		if most := took.most(); most > slack(rate) {
			t.Errorf("%d bytes in a second, the limit is %d", most, rate)
		}
		if up := g.Meter().Tally().Total().BytesUp; up != size*uploads {
			t.Errorf("%d bytes were counted", up)
		}
	})
}

// TestReport132LimitChangesLive: a transfer that waits at a low rate goes on at the
// new one at once.
func TestReport132LimitChangesLive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, g, b := gatedBucket(remote.Limits{UploadBytes: 1000, DownloadBytes: 1000})
		start := time.Now()
		done := make(chan error, 1)
		go func() { done <- putSize(t.Context(), b, dataKey(1, 0), 1<<20) }() // a quarter of an hour
		time.Sleep(10 * time.Second)
		select {
		case err := <-done:
			t.Fatal("it did not wait", err)
		default:
		}
		g.SetLimits(remote.Limits{UploadBytes: 1 << 20, DownloadBytes: 1 << 20})
		must(t, <-done)
		if took := time.Since(start); took < 10*time.Second || took > 11100*time.Millisecond {
			t.Errorf("it took %s", took)
		}
		if got := g.Limits(); got != (remote.Limits{UploadBytes: 1 << 20, DownloadBytes: 1 << 20}) {
			t.Errorf("limits are %+v", got)
		}
		go func() { done <- putSize(t.Context(), b, dataKey(1, 1), 100<<20) }()
		time.Sleep(time.Second)
		g.SetLimits(remote.Limits{UploadBytes: -1})
		must(t, <-done)
		if took := time.Since(start); took > 12200*time.Millisecond {
			t.Errorf("without a limit it took until %s", took)
		}
	})
}

// TestDownloadRate holds for both ways of reading.
func TestDownloadRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const rate, size = 1 << 20, 4 << 20
		_, g, b := gatedBucket(remote.Limits{})
		must(t, putSize(t.Context(), b, dataKey(1, 0), size))
		g.SetLimits(remote.Limits{DownloadBytes: rate})
		start := time.Now()
		r, _, err := b.Get(t.Context(), dataKey(1, 0), remote.Range{})
		must(t, err)
		n, err := io.Copy(io.Discard, r)
		must(t, err)
		must(t, r.Close())
		if took := time.Since(start); n != size || took < 3900*time.Millisecond || took > 4100*time.Millisecond {
			t.Errorf("%d bytes took %s", n, took)
		}
		start = time.Now()
		if n, err := b.ReadAt(t.Context(), dataKey(1, 0), make([]byte, size), 0); n != size || err != nil {
			t.Fatal(n, err)
		}
		if took := time.Since(start); took < 3900*time.Millisecond || took > 4100*time.Millisecond {
			t.Errorf("ReadAt took %s", took)
		}
	})
}

// TestRequestRate: each class has its own, deletions have none.
func TestRequestRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, g, b := gatedBucket(remote.Limits{})
		must(t, putSize(t.Context(), m, dataKey(1, 0), 1))
		for name, c := range map[string]struct {
			limits remote.Limits
			call   func() error
			limit  bool
		}{
			"put":                   {remote.Limits{WriteRequests: 10}, func() error { return putSize(t.Context(), b, dataKey(1, 1), 1) }, true},
			"list":                  {remote.Limits{WriteRequests: 10}, func() error { return listAll(t.Context(), b, remote.TopicPrefix(tiers.TopicID{1})) }, true},
			"stat":                  {remote.Limits{ReadRequests: 10}, func() error { _, err := b.Stat(t.Context(), dataKey(1, 0)); return err }, true},
			"read":                  {remote.Limits{ReadRequests: 10}, func() error { _, err := b.ReadAt(t.Context(), dataKey(1, 0), make([]byte, 1), 0); return err }, true},
			"delete":                {remote.Limits{WriteRequests: 10, ReadRequests: 10}, func() error { return b.Delete(t.Context(), dataKey(1, 9)) }, false},
			"stat of a write limit": {remote.Limits{WriteRequests: 10}, func() error { _, err := b.Stat(t.Context(), dataKey(1, 0)); return err }, false},
		} {
			g.SetLimits(c.limits)
			start := time.Now()
			for range 21 {
				must(t, c.call())
			}
			if took := time.Since(start); c.limit != (took > 1900*time.Millisecond) || took > 2100*time.Millisecond {
				t.Errorf("%s: 21 requests at 10 a second took %s", name, took)
			}
		}
	})
}

func listAll(ctx context.Context, b remote.Bucket, prefix string) error {
	for _, err := range b.List(ctx, remote.ListOptions{Prefix: prefix}) {
		if err != nil {
			return err
		}
	}
	return nil
}

// TestControlTrafficPassesFreely: the claim is read and a topic's change is written
// while copies use all of every limit and the store asks to slow down.
func TestControlTrafficPassesFreely(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, g, b := gatedBucket(remote.Limits{UploadBytes: 100, DownloadBytes: 100, WriteRequests: 1, ReadRequests: 1})
		ctx, cancel := context.WithCancel(t.Context())
		m.Add(memory.Fault{Key: "topics/", Sticky: true, Ops: memory.OpStat, Err: remote.ErrThrottled})
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Go(func() { _ = putSize(ctx, b, dataKey(1, i), 1<<20) })
			wg.Go(func() { _, _ = b.Stat(ctx, dataKey(1, i)) })
		}
		time.Sleep(time.Second)
		start := time.Now()
		for range 30 {
			must(t, putSize(t.Context(), b, "cluster/claim", 1000))
			must(t, putSize(t.Context(), b, "cluster/change/1", 100_000))
			_, err := b.ReadAt(t.Context(), "cluster/claim", make([]byte, 1000), 0)
			must(t, err)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("they waited %s", took)
		}
		cancel()
		wg.Wait()
		if c := g.Meter().Tally().Cluster; c.Writes != 60 || c.Reads != 30 || c.BytesUp != 30*101_000 || c.BytesDown != 30*1000 {
			t.Errorf("counted %+v", c)
		}
	})
}

// TestDeletionsPassWhileUploadsWait: what is due goes, however many copies wait.
func TestDeletionsPassWhileUploadsWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, _, b := gatedBucket(remote.Limits{UploadBytes: 1, WriteRequests: 1})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() { _ = putSize(ctx, b, dataKey(1, i), 1<<20) })
		}
		time.Sleep(time.Minute)
		start := time.Now()
		must(t, b.Delete(t.Context(), dataKey(2, 1), dataKey(2, 2)))
		must(t, b.Delete(t.Context(), dataKey(2, 3)))
		if took := time.Since(start); took != 0 {
			t.Errorf("it waited %s", took)
		}
		cancel()
		wg.Wait()
	})
}

// TestQuotaComesBack: what was reserved for a request that was not sent is there
// for the next one.
func TestQuotaComesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := remote.NewGate(remote.GateOptions{Limits: remote.Limits{WriteRequests: 1, UploadBytes: 100}})
		start := time.Now()
		for range 50 {
			p, err := g.Begin(t.Context(), remote.Request{Op: remote.OpPut, Key: dataKey(1, 1)})
			must(t, err)
			asked, err := p.AskUp(t.Context(), 100)
			must(t, err)
			p.Up(asked, 0) // the body broke off before anything went
			p.Done()
			p.Done() // it may be told twice
		}
		if took := time.Since(start); took > 100*time.Millisecond {
			t.Errorf("fifty requests that were never sent took %s", took)
		}
		if total := g.Meter().Tally().Total(); total != (remote.Counts{}) {
			t.Errorf("they were counted: %+v", total)
		}
		p, err := g.Begin(t.Context(), remote.Request{Op: remote.OpPut, Key: dataKey(1, 1)})
		must(t, err)
		p.Answered(200, 0)
		p.Done()
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if _, err := g.Begin(ctx, remote.Request{Op: remote.OpPut, Key: dataKey(1, 1)}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the one that was sent took nothing: %v", err)
		}
	})
}

// TestHeldBackIsNoTimeout: an upload that the limit stretches far beyond the time
// of an attempt and of a call goes well at the first try.
func TestHeldBackIsNoTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, g, gated := gatedBucket(remote.Limits{UploadBytes: 10_000, DownloadBytes: 10_000})
		b := remote.WithRetry(gated, remote.RetryOptions{Jitter: full})
		const size = 6_000_000 // ten minutes
		start := time.Now()
		must(t, putSize(t.Context(), b, dataKey(1, 1), size))
		if took := time.Since(start); took < 590*time.Second {
			t.Errorf("it took %s", took)
		}
		if n := len(m.Calls(memory.OpPut, "")); n != 1 {
			t.Errorf("%d puts", n)
		}
		r, _, err := b.Get(t.Context(), dataKey(1, 1), remote.Range{})
		must(t, err)
		n, err := io.Copy(io.Discard, r)
		must(t, err)
		must(t, r.Close())
		if n != size || len(m.Calls(memory.OpGet, "")) != 1 {
			t.Errorf("%d bytes in %d gets", n, len(m.Calls(memory.OpGet, "")))
		}
		if took := time.Since(start); took < 1190*time.Second {
			t.Errorf("both took %s", took)
		}
		if c := g.Meter().Tally().Topics[tiers.TopicID{1}]; c.Requests() != 2 {
			t.Errorf("counted %+v", c)
		}
	})
}

// TestStoreThatHangsIsATimeout all the same.
func TestStoreThatHangsIsATimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, _, gated := gatedBucket(remote.Limits{UploadBytes: 1 << 20})
		b := remote.WithRetry(gated, remote.RetryOptions{Jitter: full, Attempts: 2})
		m.Add(memory.Fault{Ops: memory.OpPut, Sticky: true, Hold: make(chan struct{})})
		start := time.Now()
		err := putSize(t.Context(), b, dataKey(1, 1), 1000)
		if !errors.Is(err, remote.ErrUnavailable) || errors.Is(err, context.Canceled) || tiers.KindOf(err) != tiers.TimedOut {
			t.Errorf("%v of kind %v", err, tiers.KindOf(err))
		}
		if took := time.Since(start); took > 25*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

// TestWithPatience holds what a context with a deadline promises.
func TestWithPatience(t *testing.T) {
	t.Parallel()
	cause := errors.New("why")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := remote.WithPatience(t.Context(), time.Second, cause)
		defer cancel()
		child, stop := context.WithCancel(ctx)
		defer stop()
		if ctx.Err() != nil {
			t.Fatal(ctx.Err())
		}
		<-child.Done()
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) || !errors.Is(context.Cause(ctx), cause) || !errors.Is(context.Cause(child), cause) {
			t.Errorf("%v, %v; child %v", ctx.Err(), context.Cause(ctx), context.Cause(child))
		}
		ctx, cancel = remote.WithPatience(t.Context(), time.Second, cause)
		cancel()
		if !errors.Is(ctx.Err(), context.Canceled) || errors.Is(context.Cause(ctx), cause) {
			t.Errorf("after cancel: %v, %v", ctx.Err(), context.Cause(ctx))
		}
		outer, end := context.WithTimeout(t.Context(), time.Second)
		defer end()
		ctx, cancel = remote.WithPatience(outer, time.Minute, cause)
		defer cancel()
		<-ctx.Done()
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) || errors.Is(context.Cause(ctx), cause) {
			t.Errorf("after the outer deadline: %v, %v", ctx.Err(), context.Cause(ctx))
		}
	})
}

func TestGateMetrics(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	m := memory.New()
	g := remote.NewGate(remote.GateOptions{Registerer: reg})
	b := remote.WithGate(m, g)
	m.Add(memory.Fault{Ops: memory.OpStat, Err: remote.ErrThrottled})
	must(t, putSize(t.Context(), b, "cluster/x", 10))
	_, _ = b.Stat(t.Context(), "cluster/x")
	_, _ = b.Stat(t.Context(), "cluster/none")
	must(t, b.Delete(t.Context(), "cluster/x"))
	want := `
# HELP strandline_bucket_bytes_total Bytes of bodies on the wire, those of tries that failed included.
# TYPE strandline_bucket_bytes_total counter
strandline_bucket_bytes_total{direction="down"} 0
strandline_bucket_bytes_total{direction="up"} 10
# HELP strandline_bucket_requests_total Requests that were sent to the object store, each try for itself, with the HTTP status of the answer or none.
# TYPE strandline_bucket_requests_total counter
strandline_bucket_requests_total{class="A",code="200",op="put"} 1
strandline_bucket_requests_total{class="B",code="404",op="head"} 1
strandline_bucket_requests_total{class="B",code="503",op="head"} 1
strandline_bucket_requests_total{class="free",code="200",op="delete"} 1
# HELP strandline_bucket_window Requests that may be under way at once. It halves when the store asks to slow down.
# TYPE strandline_bucket_window gauge
strandline_bucket_window{lane="deletes"} 16
strandline_bucket_window{lane="reads"} 64
strandline_bucket_window{lane="writes"} 16
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "strandline_bucket_requests_total", "strandline_bucket_bytes_total", "strandline_bucket_window"); err != nil {
		t.Error(err)
	}
}

// TestPacedBodyIsWhole: pieces do not lose or repeat bytes.
func TestPacedBodyIsWhole(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, _, b := gatedBucket(remote.Limits{UploadBytes: 1 << 20, DownloadBytes: 1 << 20})
		want := make([]byte, 300_001)
		for i := range want {
			want[i] = byte(i * 7)
		}
		_, err := b.Put(t.Context(), dataKey(1, 1), remote.BytesBody(want), remote.PutOptions{})
		must(t, err)
		if got, _ := m.Bytes(dataKey(1, 1)); !bytes.Equal(got, want) {
			t.Error("other bytes were stored")
		}
		r, _, err := b.Get(t.Context(), dataKey(1, 1), remote.Range{Off: 10, Len: 200_000})
		must(t, err)
		got, err := io.ReadAll(r)
		must(t, err)
		must(t, r.Close())
		if !bytes.Equal(got, want[10:200_010]) {
			t.Error("other bytes came")
		}
	})
}

// TestCancelledWaitersLeaveNothing: report 137 for those that never got to send.
func TestReport137CancelledWaiters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, g, b := gatedBucket(remote.Limits{UploadBytes: 1, WriteRequests: 1, ReadRequests: 1, DownloadBytes: 1})
		var wg sync.WaitGroup
		for i := range 500 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%50)*time.Millisecond)
			wg.Go(func() {
				defer cancel()
				if err := putSize(ctx, b, dataKey(1, i), 1<<20); err == nil {
					t.Error("it went through")
				}
				_, _ = b.Stat(ctx, dataKey(1, i))
			})
		}
		wg.Wait()
		for _, l := range g.Lanes() {
			if l.InFlight != 0 || l.Waiting != 0 {
				t.Errorf("%+v", l)
			}
		}
		g.SetLimits(remote.Limits{})
		must(t, putSize(t.Context(), b, dataKey(1, 1), 1<<20))
	})
}

// TestWaitersSeeTheNewRate at once, and not when the old one lets them go.
func TestWaitersSeeTheNewRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, g, b := gatedBucket(remote.Limits{WriteRequests: 1})
		must(t, putSize(t.Context(), b, dataKey(1, 1), 1))
		done := make(chan error)
		start := time.Now()
		go func() { done <- putSize(t.Context(), b, dataKey(1, 2), 1) }()
		time.Sleep(100 * time.Millisecond)
		g.SetLimits(remote.Limits{})
		must(t, <-done)
		if took := time.Since(start); took != 100*time.Millisecond {
			t.Errorf("it waited %s", took)
		}
	})
}

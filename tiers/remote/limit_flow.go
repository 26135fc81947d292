package remote

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// flowCredit is how much of a flow that was not used may be caught up with: a
	// timer fires a little late, and what that costs is not lost.
	flowCredit = 20 * time.Millisecond
	// flowPiece bounds what is taken at once, so that transfers take turns.
	flowPiece = 64 << 10
)

// flow lets units pass at a rate: bytes or requests. Who comes first goes first.
// A change of the rate holds for those who wait as well.
type flow struct {
	rate atomic.Int64  // units per second, 0: no limit
	turn chan struct{} // holds one token: whoever has it is next

	mu      sync.Mutex
	next    time.Time     // when the next unit may pass
	changed chan struct{} // closed when the rate changes
}

func newFlow(rate int64) *flow {
	f := &flow{turn: make(chan struct{}, 1), changed: make(chan struct{})}
	f.turn <- struct{}{}
	f.rate.Store(rate)
	return f
}

func (f *flow) set(rate int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rate.Store(rate)
	f.next = time.Time{} // what was borrowed at the old rate is forgiven
	close(f.changed)
	f.changed = make(chan struct{})
}

// take waits until some of want units may pass and returns how many: at least
// one, unless ctx ends first or want is 0. They are spent whether or not they are
// used, until giveBack.
func (f *flow) take(ctx context.Context, want int64) (int64, error) {
	if f.rate.Load() == 0 || want <= 0 {
		return want, nil
	}
	p := patienceOf(ctx)
	p.hold()
	defer p.release()
	select {
	case <-f.turn:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	defer func() { f.turn <- struct{}{} }()
	for {
		got, wait, changed := f.try(want)
		if wait <= 0 {
			return got, nil
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-changed:
		case <-ctx.Done():
			t.Stop()
			return 0, ctx.Err()
		}
		t.Stop()
	}
}

// try takes up to want units now, or says how long to wait.
func (f *flow) try(want int64) (got int64, wait time.Duration, changed <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	rate := f.rate.Load()
	if rate == 0 {
		return want, 0, nil
	}
	now := time.Now()
	if wait := f.next.Sub(now); wait > 0 {
		return 0, wait, f.changed
	}
	// A twentieth of a second's worth at most, so that a low rate is smooth too.
	got = min(want, flowPiece, max(1, rate/20))
	if early := now.Add(-flowCredit); f.next.Before(early) {
		f.next = early
	}
	f.next = f.next.Add(span(got, rate))
	return got, 0, nil
}

// giveBack returns units that were taken and not used.
func (f *flow) giveBack(n int64) {
	if n <= 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if rate := f.rate.Load(); rate > 0 {
		f.next = f.next.Add(-span(n, rate))
	}
}

// span is how long n units take.
func span(n, rate int64) time.Duration {
	return time.Duration(math.Min(float64(n)/float64(rate)*float64(time.Second), math.MaxInt64/4))
}

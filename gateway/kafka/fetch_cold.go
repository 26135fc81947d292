package kafka

import (
	"context"
	"time"
)

// coldRead is a read from the bucket that is over.
type coldRead struct {
	p *pull
	r readOutcome
}

// goCold reads a partition from the bucket on a goroutine of its own. There is
// one try per partition and fetch.
func (f *fetching) goCold(p *pull) {
	n, minOne := f.room(p)
	minOne = minOne && !f.first
	if p.cold == coldOver {
		return
	}
	if f.colds >= maxColds || n == 0 && !minOne && f.colds > 0 {
		p.cold = coldQueued // those that run may bring less than they were promised
		return
	}
	if n == 0 && !minOne {
		return
	}
	if n > 0 {
		if n = f.reserveCold(n); n == 0 {
			return
		}
	}
	p.cold = coldRunning
	f.colds++
	p.promised, p.first = n, minOne
	f.promised += n
	f.first = f.first || minOne
	ctx, left, done := f.coldCtx, f.left, f.coldDone
	go func() {
		r := f.read(ctx, p, n, minOne)
		f.srv.waiting.Release(int64(n))
		select {
		case done <- coldRead{p, r}:
		case <-left:
			for _, b := range r.buffers {
				f.srv.buffers.put(b)
			}
			f.srv.responses.Release(r.reserved)
		}
	}()
}

// reserveCold is reserve for a read that waits for a bucket. All of those together
// hold at most half of the budget while they wait: a bucket that hangs must not
// keep what is on disk from being answered.
func (f *fetching) reserveCold(n int) int {
	n = min(n, max(1, f.srv.lim.InFlightResponseBytes/2))
	if !f.srv.waiting.TryAcquire(int64(n)) {
		if f.reserved > 0 || f.colds > 0 {
			return 0
		}
		n = min(n, 1<<20)
		if f.srv.waiting.Acquire(f.coldCtx, int64(n)) != nil {
			return 0
		}
	}
	got := f.reserve(n)
	f.srv.waiting.Release(int64(n - got))
	return got
}

// warmed brings home what came from the bucket.
func (f *fetching) warmed(c coldRead) {
	f.colds--
	f.promised -= c.p.promised
	f.first = f.first && !c.p.first
	c.p.cold = coldOver
	f.bring(c.p, c.r)
	f.nextCold()
}

// nextCold gives the place that became free to the partition that waits for one
// the longest. Those behind in a slow bucket would starve otherwise.
func (f *fetching) nextCold() {
	for _, p := range f.pulls {
		if p.cold == coldQueued && f.colds < maxColds {
			p.cold = coldNone
			f.goCold(p)
		}
	}
}

// lastColds gives running reads from the bucket a little more time.
func (f *fetching) lastColds(gone context.Context) {
	if f.colds == 0 {
		return
	}
	timer := time.NewTimer(coldGrace)
	defer timer.Stop()
	for f.colds > 0 {
		select {
		case r := <-f.coldDone:
			f.warmed(r)
		case <-timer.C:
			return
		case <-gone.Done():
			return
		}
	}
}

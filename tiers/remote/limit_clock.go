package remote

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Time limits and limits of traffic meet here. A request that this process holds
// back itself, because a limit of bytes or of requests is reached or the store
// asked for a pause, must not be taken for one that the store does not answer. So
// the time limits of this package and of the drivers are patiences: they stand
// still for as long as a Gate holds the request.

// patience is a timer that can stand still. A patience inside of another holds
// that one too. It belongs to its lock.
type patience struct {
	outer *patience // nil: none
	over  func()    // called once, when the time is up
	cause error

	mu    sync.Mutex
	timer *time.Timer   // runs only while armed and not held
	left  time.Duration // when timer was started
	since time.Time     // when that was
	armed bool
	held  int // requests that are held back now
	round int // which arming the timer is of
}

type patienceKey struct{}

func patienceOf(ctx context.Context) *patience {
	p, _ := ctx.Value(patienceKey{}).(*patience)
	return p
}

// arm starts the time anew.
func (p *patience) arm(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.halt()
	p.armed, p.left = true, d
	if p.held == 0 {
		p.run()
	}
}

// disarm reports whether the time was not up yet.
func (p *patience) disarm() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.halt()
	was := p.armed
	p.armed = false
	return was
}

// rest is how much of the time was left when it was disarmed.
func (p *patience) rest() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.left
}

func (p *patience) run() {
	p.round++
	p.since = time.Now()
	round := p.round
	p.timer = time.AfterFunc(p.left, func() { p.fire(round) })
}

func (p *patience) halt() {
	if p.timer == nil {
		return
	}
	p.timer.Stop()
	p.timer = nil
	p.left = max(0, p.left-time.Since(p.since))
}

func (p *patience) fire(round int) {
	p.mu.Lock()
	up := p.armed && p.held == 0 && p.round == round
	if up {
		p.armed, p.timer = false, nil
	}
	p.mu.Unlock()
	if up {
		p.over()
	}
}

func (p *patience) hold() {
	for ; p != nil; p = p.outer {
		p.mu.Lock()
		p.held++
		p.halt()
		p.mu.Unlock()
	}
}

func (p *patience) release() {
	for ; p != nil; p = p.outer {
		p.mu.Lock()
		if p.held--; p.held == 0 && p.armed {
			p.run()
		}
		p.mu.Unlock()
	}
}

// patient is the context of a patience. Err is DeadlineExceeded once the time is
// up, as it is of a context with a deadline, which cannot be moved.
type patient struct {
	context.Context //nolint:containedctx // this is one
	own             *patience
}

func (p patient) Value(key any) any {
	if key == (patienceKey{}) {
		return p.own
	}
	return p.Context.Value(key)
}

func (p patient) Err() error {
	err := p.Context.Err()
	if err != nil && errors.Is(context.Cause(p.Context), p.own.cause) {
		return context.DeadlineExceeded
	}
	return err
}

// WithPatience is context.WithTimeoutCause, except that the time stands still
// while a Gate holds a request of the context back. cause must not be nil.
func WithPatience(ctx context.Context, d time.Duration, cause error) (context.Context, context.CancelFunc) {
	inner, cancel := context.WithCancelCause(ctx)
	p := &patience{outer: patienceOf(ctx), cause: cause, over: func() { cancel(cause) }}
	p.arm(d)
	return patient{inner, p}, func() {
		p.disarm()
		cancel(nil)
	}
}

package remote

import (
	"context"
	"sync"
	"time"
)

// Pauses of a lane after the store has asked to slow down.
const (
	firstPause = 100 * time.Millisecond // twice as long with each one in a row
	longPause  = 3 * time.Second        // without a Retry-After
	mostPause  = time.Minute            // with one
)

// lane bounds the requests of one kind that are under way. The bound is a window
// that halves when the store asks to slow down and grows by one for every
// windowful of answers (additive increase, multiplicative decrease). After a
// SlowDown nothing begins for a while: a storm of them then costs a probe now
// and then, not a refused request for everyone who waits. Who comes first goes
// first. All fields belong to mu.
type lane struct {
	most int // the window never grows beyond it

	mu       sync.Mutex
	window   float64
	inFlight int
	waiting  []chan struct{} // closed to let its owner go
	wake     *time.Timer     // runs while somebody waits for shut to pass
	shut     time.Time       // nothing begins before
	cut      time.Time       // when the window was last halved
	storm    int             // cuts without a good answer between them
	cuts     int64           // ever
}

func newLane(most int) *lane { return &lane{most: most, window: float64(most)} }

// enter waits for a place. It returns when the request may begin.
func (l *lane) enter(ctx context.Context) (began time.Time, err error) {
	if err := ctx.Err(); err != nil {
		return time.Time{}, err
	}
	l.mu.Lock()
	if len(l.waiting) == 0 && l.free() {
		l.inFlight++
		l.mu.Unlock()
		return time.Now(), nil
	}
	turn := make(chan struct{})
	l.waiting = append(l.waiting, turn)
	l.admit()
	l.mu.Unlock()

	p := patienceOf(ctx)
	p.hold()
	defer p.release()
	select {
	case <-turn:
		return time.Now(), nil
	case <-ctx.Done():
		l.forsake(turn)
		return time.Time{}, ctx.Err()
	}
}

// forsake takes back a wish, or the place if it came at the same moment.
func (l *lane) forsake(turn chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, w := range l.waiting {
		if w == turn {
			l.waiting = append(l.waiting[:i], l.waiting[i+1:]...)
			l.admit() // nobody waits any more: no timer either
			return
		}
	}
	l.inFlight--
	l.admit()
}

func (l *lane) free() bool {
	return l.inFlight < int(l.window) && !time.Now().Before(l.shut)
}

// admit lets go who may, and sees to it that somebody comes back when the pause
// is over.
func (l *lane) admit() {
	for len(l.waiting) > 0 && l.free() {
		close(l.waiting[0])
		l.waiting[0] = nil
		l.waiting = l.waiting[1:]
		l.inFlight++
	}
	if l.wake != nil {
		l.wake.Stop()
		l.wake = nil
	}
	if pause := time.Until(l.shut); len(l.waiting) > 0 && pause > 0 {
		l.wake = time.AfterFunc(pause, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.admit()
		})
	}
}

// verdict is what an answer says about the store's load.
type verdict uint8

const (
	noVerdict verdict = iota // there was no answer, or it says nothing
	wellTaken
	slowDown
)

// leave gives a place back.
func (l *lane) leave(began time.Time, v verdict, retryAfter time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inFlight--
	now := time.Now()
	old := !began.After(l.cut) // it began before the last cut, which answers it already
	switch {
	case v == wellTaken && !old:
		l.storm = 0
		l.window = min(float64(l.most), l.window+1/l.window)
	case v == slowDown && !old:
		l.storm++
		l.cuts++
		l.cut = now
		l.window = max(1, l.window/2)
		l.pause(now, min(longPause, firstPause<<min(l.storm-1, 10)))
	}
	if v == slowDown {
		l.pause(now, min(mostPause, retryAfter))
	}
	l.admit()
}

func (l *lane) pause(now time.Time, d time.Duration) {
	if until := now.Add(d); until.After(l.shut) {
		l.shut = until
	}
}

// state is a picture for operators.
func (l *lane) state() LaneState {
	l.mu.Lock()
	defer l.mu.Unlock()
	return LaneState{
		Most: l.most, Window: int(l.window), InFlight: l.inFlight, Waiting: len(l.waiting),
		SlowDowns: l.cuts, Pause: max(0, time.Until(l.shut)),
	}
}

package partition

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/strandline-io/strandline/tiers"
)

// A job is a value that a worker runs away from the loop. It may run late, when
// everything that it was planned on has changed.
type job interface {
	point() Point
	run(ctx context.Context, t tools) outcome
}

// An outcome is what a worker brings back to the loop. A method on that finds
// its tokens stale must change nothing that they guard.
type outcome interface{ on(s *state) }

// maxJobs bounds the jobs of one owner that are under way: one copy, one move of
// the log start, one removal, one reload, one check, with room to spare.
const maxJobs = 8

// started is a job that was handed to the scheduler. Whoever claims it first has
// it: the worker runs it, a Close that gave up waiting sees to it that it never
// runs.
type started struct {
	job
	claimed atomic.Bool
}

// loop is the goroutine that owns s.
func (o *Owner) loop(s *state) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	l := &looping{owner: o, ctx: ctx, cancel: cancel, timer: time.NewTimer(time.Hour), fence: o.fence, closing: o.closing}
	defer l.timer.Stop()
	s.onTick() // leftovers and the first copy
	s.onLook() // what lay below the log start already
	for !l.ended {
		l.settle(s)
		l.wait(s)
	}
	s.onEnd(l.abandoned)
	o.publish(s)
	o.closeErr = s.onClose()
	close(o.done)
}

// looping is what the loop itself keeps besides the state.
type looping struct {
	owner   *Owner
	ctx     context.Context // of all workers
	cancel  context.CancelFunc
	timer   *time.Timer
	under   map[*started]struct{} // jobs handed out whose outcome has not come
	fence   <-chan struct{}       // nil once seen
	closing <-chan struct{}       // nil once seen
	giveUp  <-chan struct{}       // ends the wait for workers

	// Who is told once the View is out.
	appended []*appendCall
	ran      chan struct{}

	ended     bool
	abandoned bool // some worker may still run
}

// settle makes the world see what the last step did: the View first, then the
// acks (P1), then the jobs.
func (l *looping) settle(s *state) {
	l.owner.publish(s)
	for _, c := range l.appended {
		l.owner.room.Release(min(int64(len(c.data)), l.owner.roomSize))
		close(c.done)
	}
	if l.ran != nil {
		close(l.ran)
	}
	l.appended, l.ran = nil, nil
	s.onPlan()
	l.start(s)
	if s.closing && len(l.under) == 0 {
		l.ended = true
	}
}

// wait takes the next event.
func (l *looping) wait(s *state) {
	if l.ended {
		return
	}
	l.timer.Reset(s.untilWake())
	o := l.owner
	select {
	case c := <-o.appends:
		l.appended = o.drain(c)
		s.onAppend(l.appended)
	case m := <-o.mail:
		m.step(s)
		l.ran = m.ran
	case done := <-o.outcomes:
		delete(l.under, done.job)
		done.outcome.on(s)
	case <-l.timer.C:
		s.onTick()
	case <-l.fence:
		l.fence = nil
		l.cancel() // saves work; the registry's fence is what protects
		s.onFence(o.fencedErr("own"))
	case <-l.closing:
		l.closing, l.giveUp = nil, o.closeCtx.Done()
		s.closing = true
	case <-l.giveUp:
		l.abandon()
	}
}

// finished is an outcome with the job that it is of.
type finished struct {
	outcome
	job *started
}

// start hands the jobs of the last step to the scheduler.
func (l *looping) start(s *state) {
	if l.under == nil {
		l.under = make(map[*started]struct{}, maxJobs)
	}
	for len(s.todo) > 0 && len(l.under) < maxJobs {
		j := &started{job: s.todo[0]}
		s.todo = s.todo[1:]
		l.under[j] = struct{}{}
		outcomes, ctx, t := l.owner.outcomes, l.ctx, l.owner.tools()
		l.owner.deps.Scheduler.Go(j.point(), func() {
			if j.claimed.CompareAndSwap(false, true) {
				outcomes <- finished{j.run(ctx, t), j}
			}
		})
	}
}

// abandon ends the wait for workers: those that have not begun never will,
// those that run are told to stop and not waited for.
func (l *looping) abandon() {
	l.cancel()
	for j := range l.under {
		j.claimed.Store(true)
	}
	l.ended, l.abandoned = true, true
}

// publish stores a new View, if there is a difference, and wakes those who wait
// for one.
func (o *Owner) publish(s *state) {
	v := s.onView()
	if v == nil {
		return
	}
	old := o.view.Swap(v)
	s.onPublished(v)
	if old != nil && old.wakes(v) {
		o.subs.wake()
	}
}

// Close refuses new work, lets workers end, syncs, closes the log cleanly and
// returns. If ctx ends first, copies are abandoned and the log is closed all the
// same.
func (o *Owner) Close(ctx context.Context) error {
	o.closeOnce.Do(func() {
		o.closeCtx = ctx
		close(o.closing)
	})
	<-o.done
	return o.closeErr
}

// onFence ends everything but Close.
func (s *state) onFence(err error) {
	s.fenced = err
	s.onWaitersFailed(err)
	s.onTrimsFailed(err)
	s.log.Warn("this node no longer owns the partition: nothing more is acknowledged, answered or copied", "reason", err)
}

// onEnd is the last step but one: nobody works any more, and the next View says
// so.
func (s *state) onEnd(abandoned bool) {
	if abandoned {
		s.log.Warn("closed before its copies ended: what they left is removed at the next start")
	}
	s.ended = tiers.E(tiers.Closed, "own", s.place, "the partition is closed on this node")
	s.onWaitersFailed(s.ended)
	s.onTrimsFailed(s.ended)
	s.onCopyEnded()
	s.metrics.lag(&s.lagging, 0)
	s.onHeld(nil)
	s.metrics.condemned(&s.remove.gauge, 0)
	if s.copyRetry.failures > 0 {
		s.metrics.stalled(-1)
	}
	if s.failed != nil {
		s.metrics.disk(-1)
	}
}

// onClose closes the log, cleanly unless its disk failed before: then that was
// told already.
func (s *state) onClose() error {
	if err := s.local.Close(); err != nil && s.failed == nil {
		return tiers.E(tiers.StorageFailed, "close", s.place, "%w", err)
	}
	return nil
}

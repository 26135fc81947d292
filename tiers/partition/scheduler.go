package partition

import (
	"sync"

	"github.com/strandline-io/strandline/tiers"
)

// Scheduler runs jobs away from the loop. The product's is a bounded pool; the
// tests' holds a job by its point (spec s14).
type Scheduler interface {
	// Go runs f on a worker, sooner or later. It does not block.
	Go(p Point, f func())
}

// Point names a border between two jobs: the job at a point has not begun, all
// before it is done.
//
//	copy.planned    a segment was chosen, nothing was written
//	copy.started    its row is in CopyStarted, no object was put
//	copy.uploaded   both objects are there and were read back
//	copy.finished   its row is in CopyFinished, the loop does not know it yet
//	copy.settle     nobody knows whether a change of a row happened: ask
//	copy.undo       its objects and then its row are to be removed
//	index.reload    the rows are to be read again
type Point struct {
	Name      string
	Partition tiers.TopicPartition
	Offset    tiers.Offset // what the job is about, NoOffset if nothing
}

// Pool is the product's Scheduler: at most size jobs run at once, the others wait
// in the order in which they came. An idle pool holds no goroutine.
type Pool struct {
	mu      sync.Mutex
	waiting []func()
	running int
	size    int
}

// NewPool returns a pool that runs up to size jobs at once.
func NewPool(size int) *Pool { return &Pool{size: max(size, 1)} }

// Go implements Scheduler. The pool has no use for the point.
func (p *Pool) Go(_ Point, f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running == p.size {
		p.waiting = append(p.waiting, f)
		return
	}
	p.running++
	go p.work(f)
}

// work runs f and then whatever waits.
func (p *Pool) work(f func()) {
	for f != nil {
		f()
		f = p.next()
	}
}

// next takes the job that has waited longest; nil ends the worker.
func (p *Pool) next() func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.waiting) == 0 {
		p.running--
		p.waiting = nil
		return nil
	}
	f := p.waiting[0]
	p.waiting[0] = nil
	p.waiting = p.waiting[1:]
	return f
}

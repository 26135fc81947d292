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
//	start.raise     the log start is to be remembered, nothing has moved
//	remove.mark     rows are to go to DeleteStarted
//	remove.drop     no reader finds the segments any more, their objects are to go
//	remove.row      their objects are gone, their rows are to go
//	forget.check    a segment on disk is to be held against its copy
//	index.reload    the rows are to be read again
type Point struct {
	Name      string
	Partition tiers.TopicPartition
	Offset    tiers.Offset // what the job is about, NoOffset if nothing
}

// Kinds of jobs. Each has workers of its own, so that what is due at once does not
// wait behind hours of uploads (report 132).
type jobKind uint8

const (
	copyJobs   jobKind = iota // move records: long, as many as the pool's size
	removeJobs                // delete objects: wait for the bucket
	raiseJobs                 // have log starts remembered: those that wait for the bucket together share a request
	rowJobs                   // change or read rows: short
	jobKinds
)

// Workers of the kinds that have a fixed number of them.
const (
	removeWorkers = 4
	raiseWorkers  = 256
	rowWorkers    = 8
)

// kindOf sorts jobs by what they wait for.
func kindOf(p Point) jobKind {
	switch p.Name {
	case "copy.planned", "copy.started", "forget.check":
		return copyJobs
	case "remove.mark", "remove.drop", "remove.row":
		return removeJobs
	case "start.raise":
		return raiseJobs
	}
	return rowJobs
}

// Pool is the product's Scheduler. Of each kind a bounded number of jobs runs at
// once. Those that wait take turns by topic, within a topic in the order in which
// they came: a partition has one copy at a time and asks for the next one behind
// the others, so neither a deep backlog nor a topic of many partitions keeps
// anybody out. A copy that has begun goes before one that has not: its row waits
// to be finished. An idle pool holds no goroutine.
type Pool struct {
	mu    sync.Mutex
	kinds [jobKinds]workers
}

// workers are those of one kind of job and what waits for them.
type workers struct {
	size, running int
	first, then   turns
}

// NewPool returns a pool that runs up to size copies at once.
func NewPool(size int) *Pool {
	p := &Pool{}
	p.kinds[copyJobs].size = max(size, 1)
	p.kinds[removeJobs].size = removeWorkers
	p.kinds[raiseJobs].size = raiseWorkers
	p.kinds[rowJobs].size = rowWorkers
	return p
}

// Go implements Scheduler.
func (p *Pool) Go(at Point, f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := &p.kinds[kindOf(at)]
	if w.running < w.size {
		w.running++
		go p.work(w, f)
		return
	}
	if at.Name == "copy.started" {
		w.first.push(at.Partition.Topic, f)
	} else {
		w.then.push(at.Partition.Topic, f)
	}
}

// work runs f and then whatever waits.
func (p *Pool) work(w *workers, f func()) {
	for f != nil {
		f()
		f = p.next(w)
	}
}

// next takes the job whose turn it is; nil ends the worker.
func (p *Pool) next(w *workers) func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := w.first.pop()
	if f == nil {
		f = w.then.pop()
	}
	if f == nil {
		w.running--
	}
	return f
}

// Jobs is how many jobs of a kind run and wait.
type Jobs struct {
	Kind             string // copy, remove, raise or rows
	Running, Waiting int
}

// Jobs pictures the pool.
func (p *Pool) Jobs() []Jobs {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]Jobs, jobKinds)
	for i, name := range [jobKinds]string{copyJobs: "copy", removeJobs: "remove", raiseJobs: "raise", rowJobs: "rows"} {
		w := &p.kinds[i]
		out[i] = Jobs{name, w.running, w.first.n + w.then.n}
	}
	return out
}

// turns is a queue whose topics take turns.
type turns struct {
	n      int
	order  []string // topics that wait, the next one first
	queues map[string][]func()
}

func (t *turns) push(topic string, f func()) {
	if t.queues == nil {
		t.queues = map[string][]func(){}
	}
	if len(t.queues[topic]) == 0 {
		t.order = append(t.order, topic)
	}
	t.queues[topic] = append(t.queues[topic], f)
	t.n++
}

// pop returns nil if nothing waits.
func (t *turns) pop() func() {
	if t.n == 0 {
		return nil
	}
	t.n--
	topic := t.order[0]
	t.order = t.order[1:]
	q := t.queues[topic]
	f := q[0]
	q[0] = nil
	if q = q[1:]; len(q) > 0 {
		t.queues[topic] = q
		t.order = append(t.order, topic)
	} else {
		delete(t.queues, topic)
	}
	return f
}

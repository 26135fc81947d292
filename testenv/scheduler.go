package testenv

import (
	"sync"
	"testing"
	"time"

	"github.com/strandline-io/strandline/tiers/partition"
)

// patience bounds every wait for something that must happen.
const patience = 30 * time.Second

// Scheduler is a partition.Scheduler that holds jobs at their points (spec s14).
// What is not held runs at once. All methods are safe for concurrent use.
type Scheduler struct {
	mu    sync.Mutex
	gates []*Gate
}

var _ partition.Scheduler = (*Scheduler)(nil)

// NewScheduler returns a scheduler that holds nothing.
func NewScheduler() *Scheduler { return &Scheduler{} }

// Gate holds the jobs at one point.
type Gate struct {
	match   func(partition.Point) bool
	reached chan partition.Point
	open    chan struct{}
	once    sync.Once
}

// Hold has the jobs at the point of this name wait until the gate is opened. An
// empty topic holds them for all partitions.
func (s *Scheduler) Hold(name, topic string) *Gate {
	g := &Gate{
		match: func(p partition.Point) bool {
			return p.Name == name && (topic == "" || p.Partition.Topic == topic)
		},
		reached: make(chan partition.Point, 1024),
		open:    make(chan struct{}),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gates = append(s.gates, g)
	return g
}

// Wait returns once a job has reached the gate, and says which.
func (g *Gate) Wait(t testing.TB) partition.Point {
	t.Helper()
	select {
	case p := <-g.reached:
		return p
	case <-time.After(patience):
		t.Fatal("no job came to the gate")
		return partition.Point{}
	}
}

// Open lets the jobs go on, those that wait and those that come.
func (g *Gate) Open() { g.once.Do(func() { close(g.open) }) }

// Go implements partition.Scheduler.
func (s *Scheduler) Go(p partition.Point, f func()) {
	g := s.gate(p)
	go func() {
		if g != nil {
			g.reached <- p
			<-g.open
		}
		f()
	}()
}

func (s *Scheduler) gate(p partition.Point) *Gate {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.gates {
		if g.match(p) {
			return g
		}
	}
	return nil
}

// OpenAll opens every gate. Whoever closes an owner waits for its jobs by that.
func (s *Scheduler) OpenAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.gates {
		g.Open()
	}
}

package partition

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/strandline-io/strandline/tiers"
)

func pointOf(name, topic string, partition int) Point {
	return Point{name, tiers.TopicPartition{Topic: topic, Partition: int32(partition)}, 0}
}

// gatedPool is a pool whose jobs begin, are noted and wait for a let.
type gatedPool struct {
	*Pool
	began chan string
	let   chan struct{}
}

func newGatedPool(size int) gatedPool {
	return gatedPool{NewPool(size), make(chan string, 1000), make(chan struct{})}
}

func (g gatedPool) add(p Point) {
	name := fmt.Sprintf("%s %s/%d", p.Name, p.Partition.Topic, p.Partition.Partition)
	g.Go(p, func() { g.began <- name; <-g.let })
}

// run lets n jobs end, one after the other, and returns what began meanwhile.
func (g gatedPool) run(n int) (began []string) {
	for range n {
		synctest.Wait()
		g.let <- struct{}{}
	}
	synctest.Wait()
	for len(g.began) > 0 {
		began = append(began, <-g.began)
	}
	return began
}

// TestPoolIsBounded: no more copies at once than its size, all of them in the end,
// in order, and no goroutine when there is nothing to do (the leak check of this
// package).
func TestPoolIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGatedPool(3)
		var want []string
		for i := range 20 {
			g.add(pointOf("copy.planned", "a", i))
			want = append(want, fmt.Sprintf("copy.planned a/%d", i))
		}
		var order []string
		for n := range 20 {
			order = append(order, g.run(min(n, 1))...)
			if len(order) != min(n+3, 20) {
				t.Fatalf("%d jobs began after %d ended", len(order), n)
			}
			if j := g.Jobs()[copyJobs]; j != (Jobs{"copy", min(3, 20-n), max(0, 17-n)}) {
				t.Fatalf("%+v after %d", j, n)
			}
		}
		g.run(1)
		if slices.Sort(order[:3]); !slices.Equal(order, want) {
			t.Fatalf("began in the order %v", order)
		}
	})
}

// TestPoolTakesTurnsByTopic: two hundred partitions with a backlog of their own do
// not keep a topic of one partition waiting for more than a turn.
func TestPoolTakesTurnsByTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGatedPool(1)
		for i := range 200 {
			g.add(pointOf("copy.planned", "big", i))
		}
		g.run(0)
		g.add(pointOf("copy.planned", "small", 0))
		g.add(pointOf("copy.planned", "other", 0))
		if began := g.run(3); !slices.Contains(began, "copy.planned small/0") || !slices.Contains(began, "copy.planned other/0") {
			t.Errorf("after three turns these began: %v", began)
		}
		g.run(199)
		if j := g.Jobs()[copyJobs]; j.Running != 0 || j.Waiting != 0 {
			t.Errorf("%+v is left", j)
		}
	})
}

// TestPoolNextSegmentWaitsItsTurn: a partition that has more to copy comes behind
// those that wait already.
func TestPoolNextSegmentWaitsItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGatedPool(1)
		for i := range 3 {
			g.add(pointOf("copy.planned", "a", i))
		}
		g.run(0)
		g.add(pointOf("copy.planned", "a", 0)) // its next segment
		if began := g.run(3); !slices.Equal(began, []string{"copy.planned a/1", "copy.planned a/2", "copy.planned a/0"}) {
			t.Errorf("began %v", began)
		}
		g.run(1)
	})
}

// TestReport132UploadsHoldNobodyUp: deletions and changes of rows run while all
// copy workers are busy and a hundred copies wait, and a copy that has its row goes
// before one that has none.
func TestReport132UploadsHoldNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGatedPool(2)
		for i := range 100 {
			g.add(pointOf("copy.planned", "a", i))
		}
		g.run(0)
		urgent := []string{"copy.finished", "copy.settle", "copy.undo", "copy.uploaded", "index.reload", "remove.drop", "remove.mark", "start.planned"}
		for _, name := range urgent {
			g.add(pointOf(name, "a", 0))
		}
		g.add(pointOf("copy.started", "a", 50))
		began := g.run(0)
		slices.Sort(began)
		for i, name := range urgent {
			urgent[i] = name + " a/0"
		}
		if !slices.Equal(began, urgent) {
			t.Errorf("began %v", began)
		}
		all := append([]string(nil), g.run(len(urgent)+2)...)
		if !slices.Contains(all, "copy.started a/50") {
			t.Errorf("a copy with a row waits behind those without: %v", all)
		}
		g.run(99)
		for _, j := range g.Jobs() {
			if j.Running != 0 || j.Waiting != 0 {
				t.Errorf("%+v is left", j)
			}
		}
	})
}

// TestRaisesWaitTogether: log starts of many partitions are remembered with few
// requests, because many of them wait for the bucket at once; changes of rows do
// not wait behind them.
func TestRaisesWaitTogether(*testing.T) {
	p, hold, reached := NewPool(1), make(chan struct{}), make(chan struct{}, 300)
	for range 300 {
		p.Go(Point{Name: "start.raise"}, func() { reached <- struct{}{}; <-hold })
	}
	for range raiseWorkers {
		<-reached
	}
	row := make(chan struct{})
	p.Go(Point{Name: "copy.uploaded"}, func() { close(row) })
	<-row
	close(hold)
	for range 300 - raiseWorkers {
		<-reached
	}
}

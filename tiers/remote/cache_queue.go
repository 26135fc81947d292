package remote

import (
	"slices"
	"time"

	"github.com/strandline-io/strandline/tiers"
)

// job is one fetch: a companion, or a run of chunks in one request.
type job struct {
	seg   tiers.RemoteSegment
	meta  *SegmentMeta // nil: it is the companion that is fetched
	first int64        // chunk
	run   []*flight    // of the chunks from first on, or of the companion
	size  int64        // what it will bring
	ahead bool         // nobody waits for it
	disk  bool         // the pieces are on disk, as far as is known
	begun bool
}

// id of the k-th flight.
func (j *job) id(k int) PieceID {
	if j.meta == nil {
		return PieceID{j.seg.ID, MetaPiece}
	}
	return PieceID{j.seg.ID, j.first + int64(k)}
}

// bytes is what the k-th flight brings.
func (j *job) bytes(k int) int64 {
	if j.meta == nil {
		return j.size
	}
	return min(ChunkSize, j.meta.Segment.Size-(j.first+int64(k))*ChunkSize)
}

// turns is a queue in which partitions take turns: one that wants much waits for
// its own next turn only.
type turns struct {
	order []tiers.PartitionID // whose turn is next; those that have jobs
	jobs  map[tiers.PartitionID][]*job
}

func newTurns() turns { return turns{jobs: map[tiers.PartitionID][]*job{}} }

func (t *turns) push(j *job) {
	p := j.seg.Partition
	if len(t.jobs[p]) == 0 {
		t.order = append(t.order, p)
	}
	t.jobs[p] = append(t.jobs[p], j)
}

// next is the job whose turn it is, of a partition that may have one more.
func (t *turns) next(may func(tiers.PartitionID) bool) *job {
	for _, p := range t.order {
		if may(p) {
			return t.jobs[p][0]
		}
	}
	return nil
}

// remove takes a job out. If it was the first of its partition, that one has had
// its turn.
func (t *turns) remove(j *job) {
	p := j.seg.Partition
	i := slices.Index(t.jobs[p], j)
	if i < 0 {
		return
	}
	t.jobs[p] = slices.Delete(t.jobs[p], i, i+1)
	if i > 0 {
		return
	}
	k := slices.Index(t.order, p)
	t.order = slices.Delete(t.order, k, k+1)
	if len(t.jobs[p]) > 0 {
		t.order = append(t.order, p)
	} else {
		delete(t.jobs, p)
	}
}

// queue is the fetches that wait for their turn, and the places of those that run.
type queue struct {
	places  int
	running int
	of      map[tiers.PartitionID]int // running, by partition

	metas  turns // companions that somebody waits for
	wanted turns // chunks that somebody waits for
	ahead  turns // what nobody waits for
}

func newQueue(places int) queue {
	return queue{places: places, of: map[tiers.PartitionID]int{}, metas: newTurns(), wanted: newTurns(), ahead: newTurns()}
}

// most is three quarters of the places: for one partition, and for what nobody
// waits for.
func (q *queue) most() int { return max(1, q.places-q.places/4) }

// line is the one that a job stands in.
func (q *queue) line(j *job) *turns {
	switch {
	case j.ahead:
		return &q.ahead
	case j.meta == nil:
		return &q.metas
	}
	return &q.wanted
}

func (q *queue) push(j *job) { q.line(j).push(j) }

// promote moves a job that somebody waits for now.
func (q *queue) promote(j *job) {
	if !j.ahead || j.begun {
		return
	}
	q.ahead.remove(j)
	j.ahead = false
	q.push(j)
}

// next is the job that should run next, nil if none may. room takes the memory that
// a job needs. A chunk that somebody waits for and that there is no room for keeps
// back what nobody waits for.
func (q *queue) next(room func(*job) bool) *job {
	may := func(p tiers.PartitionID) bool { return q.of[p] < q.most() }
	for _, line := range []*turns{&q.metas, &q.wanted, &q.ahead} {
		if q.running >= q.places || line == &q.ahead && q.running >= q.most() {
			return nil
		}
		j := line.next(may)
		switch {
		case j == nil:
		case room(j):
			return j
		case line == &q.wanted:
			return nil
		}
	}
	return nil
}

func (q *queue) begin(j *job) {
	q.line(j).remove(j)
	j.begun = true
	q.running++
	q.of[j.seg.Partition]++
}

func (q *queue) end(j *job) {
	q.running--
	if q.of[j.seg.Partition]--; q.of[j.seg.Partition] == 0 {
		delete(q.of, j.seg.Partition)
	}
}

// empty takes out all that wait.
func (q *queue) empty() (all []*job) {
	for _, t := range []*turns{&q.metas, &q.wanted, &q.ahead} {
		for _, jobs := range t.jobs {
			all = append(all, jobs...)
		}
		*t = newTurns()
	}
	return all
}

// pump begins the fetches that may run now. c.mu is held. Whoever frees a place or
// memory calls it; when memory becomes free only by time, an alarm does.
func (c *Cache) pump() {
	if c.closed {
		return
	}
	for j := c.queue.next(c.room); j != nil; j = c.queue.next(c.room) {
		c.queue.begin(j)
		c.wg.Go(func() { c.run(j) })
	}
}

// room takes the memory for a job, or sees to it that the queue is looked at again.
func (c *Cache) room(j *job) bool {
	now := time.Now()
	if c.shelf.reserve(j.id(0), j.size, now) {
		return true
	}
	if j.meta == nil {
		return false // until another one ends
	}
	hold := held
	if !j.ahead {
		if c.shed(c.shelf.lacks(j.size)) {
			return c.shelf.reserve(j.id(0), j.size, now)
		}
		if c.queue.running == 0 {
			hold = stalled
			c.shelf.yield(c.shelf.lacks(j.size), now)
			if c.shelf.reserve(j.id(0), j.size, now) {
				return true
			}
		}
	}
	if at, ok := c.shelf.nextRest(hold); ok {
		c.wakeAt(at.Sub(now))
	}
	return false
}

func (c *Cache) wakeAt(d time.Duration) {
	if c.alarm != nil {
		c.alarm.Reset(d)
		return
	}
	c.alarm = time.AfterFunc(d, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.pump()
	})
}

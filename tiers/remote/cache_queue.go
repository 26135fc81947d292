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

	wanted turns // somebody waits for them
	ahead  turns
}

func newQueue(places int) queue {
	return queue{
		places: places, of: map[tiers.PartitionID]int{},
		wanted: turns{jobs: map[tiers.PartitionID][]*job{}}, ahead: turns{jobs: map[tiers.PartitionID][]*job{}},
	}
}

// most is three quarters of the places: for one partition, and for what nobody
// waits for.
func (q *queue) most() int { return max(1, q.places-q.places/4) }

func (q *queue) push(j *job) {
	if j.ahead {
		q.ahead.push(j)
	} else {
		q.wanted.push(j)
	}
}

// promote moves a job that somebody waits for now.
func (q *queue) promote(j *job) {
	if !j.ahead || j.begun {
		return
	}
	q.ahead.remove(j)
	j.ahead = false
	q.wanted.push(j)
}

// next is the job that should run next, nil if none may.
func (q *queue) next() *job {
	if q.running >= q.places {
		return nil
	}
	may := func(p tiers.PartitionID) bool { return q.of[p] < q.most() }
	if j := q.wanted.next(may); j != nil {
		return j
	}
	if q.running >= q.most() {
		return nil
	}
	return q.ahead.next(may)
}

func (q *queue) begin(j *job) {
	if j.ahead {
		q.ahead.remove(j)
	} else {
		q.wanted.remove(j)
	}
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
	for _, t := range []*turns{&q.wanted, &q.ahead} {
		for _, jobs := range t.jobs {
			all = append(all, jobs...)
		}
		t.order, t.jobs = nil, map[tiers.PartitionID][]*job{}
	}
	return all
}

// pump begins the fetches that may run now. c.mu is held. Whoever frees a place or
// memory calls it; when memory becomes free only by time, an alarm does.
func (c *Cache) pump() {
	if c.closed {
		return
	}
	for j := c.queue.next(); j != nil; j = c.queue.next() {
		now := time.Now()
		if !c.shelf.reserve(j.size, now) {
			if at, ok := c.shelf.nextRest(); ok {
				c.wakeAt(at.Sub(now))
			}
			return
		}
		c.queue.begin(j)
		c.wg.Go(func() { c.run(j) })
	}
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

package remote

import (
	"strings"
	"sync"
	"time"

	"github.com/strandline-io/strandline/tiers"
)

// Counts is what was asked of a bucket. Every request is in one of the first
// four.
type Counts struct {
	Writes  int64 // of class A: PUT, POST, LIST
	Reads   int64 // of class B: GET, HEAD
	Deletes int64
	Refused int64 // of any class, answered with 429 or 5xx

	BytesUp   int64 // of bodies, those of tries that failed included
	BytesDown int64
}

// Requests is how many there were.
func (c Counts) Requests() int64 { return c.Writes + c.Reads + c.Deletes + c.Refused }

func (c *Counts) add(o Counts) {
	c.Writes += o.Writes
	c.Reads += o.Reads
	c.Deletes += o.Deletes
	c.Refused += o.Refused
	c.BytesUp += o.BytesUp
	c.BytesDown += o.BytesDown
}

// Tally is all that a Meter has counted.
type Tally struct {
	Since   time.Time
	Topics  map[tiers.TopicID]Counts
	Deleted Counts // of topics that are gone
	Cluster Counts // of what belongs to no topic: claim, control plane, self-test
}

// Total sums everything up.
func (t Tally) Total() Counts {
	sum := t.Cluster
	sum.add(t.Deleted)
	for _, c := range t.Topics {
		sum.add(c)
	}
	return sum
}

// Meter counts requests and bytes by topic, from keys. Its state belongs to mu.
type Meter struct {
	since time.Time

	mu      sync.Mutex
	topics  map[tiers.TopicID]*Counts
	deleted Counts
	cluster Counts
	exists  func(tiers.TopicID) bool
	foldAt  int // topics that make it look for those that are gone
}

const firstFold = 1024

func newMeter(now time.Time) *Meter {
	return &Meter{since: now, topics: map[tiers.TopicID]*Counts{}, foldAt: firstFold}
}

// KnowTopics has the meter ask exists which topics there are: the counts of
// others go to those of deleted topics, so that its memory is bounded by the
// topics of now.
func (m *Meter) KnowTopics(exists func(tiers.TopicID) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.exists = exists
}

// add counts a request.
func (m *Meter) add(key string, class Class, refused bool, up, down int64) {
	c := Counts{BytesUp: up, BytesDown: down}
	switch {
	case refused:
		c.Refused = 1
	case class == ClassA:
		c.Writes = 1
	case class == ClassB:
		c.Reads = 1
	default:
		c.Deletes = 1
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.of(key).add(c)
}

// of finds the counts that a key belongs to.
func (m *Meter) of(key string) *Counts {
	rest, ok := strings.CutPrefix(key, topicsPrefix)
	id, _, _ := strings.Cut(rest, "/")
	topic, err := tiers.ParseTopicID(id)
	if !ok || err != nil {
		return &m.cluster
	}
	c := m.topics[topic]
	if c == nil {
		if len(m.topics) >= m.foldAt {
			m.fold()
			m.foldAt = max(firstFold, 2*len(m.topics))
		}
		c = new(Counts)
		m.topics[topic] = c
	}
	return c
}

// fold moves the counts of topics that are gone.
func (m *Meter) fold() {
	if m.exists == nil {
		return
	}
	for id, c := range m.topics {
		if !m.exists(id) {
			m.deleted.add(*c)
			delete(m.topics, id)
		}
	}
}

// Tally returns what was counted so far.
func (m *Meter) Tally() Tally {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fold()
	t := Tally{Since: m.since, Topics: make(map[tiers.TopicID]Counts, len(m.topics)), Deleted: m.deleted, Cluster: m.cluster}
	for id, c := range m.topics {
		t.Topics[id] = *c
	}
	return t
}

// Package model is the control plane in maps: the oracle that the engines are
// compared with, and their twin in tests. It forgets everything when it ends.
//
// The Store owns all of its state; its mutex is held for the whole of every
// operation, so an operation is one step. What goes in and out is copied.
package model

import (
	"context"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/partition"
)

// Options are what a Store is handed. The zero value is ready.
type Options struct {
	Now  func() time.Time // nil: time.Now
	Rand io.Reader        // of ids; nil: the operating system's
}

// Store is a control.Store.
type Store struct {
	o Options

	mu       sync.Mutex
	closed   bool
	cluster  string
	rev      control.Rev
	floor    control.Rev // changes up to it were trimmed
	producer int64
	nodes    map[tiers.NodeID]int64
	topics   map[tiers.TopicID]control.Topic
	segments map[tiers.SegmentID]tiers.RemoteSegment
	offsets  map[offsetKey]control.OffsetCommit
	changes  []control.Change // after floor, in order
}

type offsetKey struct {
	group     string
	partition tiers.PartitionID
	gen       tiers.HistoryGen
}

var _ control.Store = (*Store)(nil)

// New returns an empty store with a cluster id.
func New(o Options) *Store {
	if o.Now == nil {
		o.Now = time.Now
	}
	id, err := control.RandomID(o.Rand)
	if err != nil {
		panic(err) // A test's own source of randomness is broken.
	}
	return &Store{
		o: o, cluster: id.String(),
		nodes:    map[tiers.NodeID]int64{},
		topics:   map[tiers.TopicID]control.Topic{},
		segments: map[tiers.SegmentID]tiers.RemoteSegment{},
		offsets:  map[offsetKey]control.OffsetCommit{},
	}
}

// do runs f as one step.
func (s *Store) do(ctx context.Context, op string, f func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return tiers.E(tiers.Closed, op, "", "the control plane is closed")
	}
	if err := ctx.Err(); err != nil {
		return tiers.E(tiers.TimedOut, op, "", "nothing was done: %w", err)
	}
	return f()
}

// Cluster returns the cluster id.
func (s *Store) Cluster(ctx context.Context) (id string, err error) {
	err = s.do(ctx, "cluster", func() (err error) {
		id = s.cluster
		return nil
	})
	return id, err
}

// OpenSession registers a node.
func (s *Store) OpenSession(ctx context.Context, node tiers.NodeID) (out control.Session, err error) {
	const op = "open session"
	err = s.do(ctx, op, func() (err error) {
		if node < 0 {
			return tiers.E(tiers.InvalidRequest, op, "", "node id %d is negative", node)
		}
		s.nodes[node]++
		for _, t := range s.topics {
			for i := range t.Partitions {
				if t.Partitions[i].Leader == node {
					t.Partitions[i].Epoch++
				}
			}
		}
		out = control.Session{Node: node, Epoch: s.nodes[node]}
		return nil
	})
	return out, err
}

// ProducerIDs reserves a block of producer ids.
func (s *Store) ProducerIDs(ctx context.Context, ses control.Session, n int64) (first int64, err error) {
	const op = "reserve producer ids"
	err = s.do(ctx, op, func() (err error) {
		if err := s.session(op, ses); err != nil {
			return err
		}
		if err := control.CheckProducerBlock(s.producer, n); err != nil {
			return err
		}
		first = s.producer
		s.producer += n
		return nil
	})
	return first, err
}

// Dump returns everything.
func (s *Store) Dump(ctx context.Context) (out control.State, err error) {
	err = s.do(ctx, "dump", func() (err error) {
		st := control.State{
			Cluster: s.cluster, Rev: s.rev, NextProducer: s.producer,
			Topics:   slices.Collect(maps.Values(s.topics)),
			Segments: slices.Collect(maps.Values(s.segments)),
			Offsets:  slices.Collect(maps.Values(s.offsets)),
		}
		out = st.Normal()
		return nil
	})
	return out, err
}

// Load fills an empty store.
func (s *Store) Load(ctx context.Context, st control.State) error {
	const op = "load"
	return s.do(ctx, op, func() (err error) {
		if err := st.Valid(); err != nil {
			return err
		}
		if len(s.topics)+len(s.segments) > 0 || s.rev > 0 {
			return tiers.E(tiers.Conflict, op, "", "the control plane is not empty: use a new data directory")
		}
		st = st.Normal()
		s.cluster, s.rev, s.floor = st.Cluster, st.Rev, st.Rev
		s.producer = max(s.producer, st.NextProducer)
		for _, t := range st.Topics {
			s.topics[t.ID] = t
		}
		for _, r := range st.Segments {
			s.segments[r.ID] = r
		}
		for _, c := range st.Offsets {
			s.offsets[offsetKey{c.Group, c.Partition, c.Gen}] = c
		}
		return nil
	})
}

// Close ends the store.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

func (s *Store) session(op string, ses control.Session) error {
	return control.CheckSession(op, ses, s.nodes[ses.Node])
}

// partition looks a partition's row up; ok is false if it is gone.
func (s *Store) partition(id tiers.PartitionID) (control.Partition, bool) {
	t := s.topics[id.Topic]
	if id.Index < 0 || int(id.Index) >= len(t.Partitions) {
		return control.Partition{}, false
	}
	return t.Partitions[id.Index], true
}

// fence compares f with what is there and returns the partition's row.
func (s *Store) fence(op string, f partition.Fence) (control.Partition, error) {
	row, ok := s.partition(f.Partition)
	return row, control.CheckFence(op, f, row, ok, s.nodes[row.Leader])
}

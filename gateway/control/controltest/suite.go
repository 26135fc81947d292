// Package controltest holds what every engine of the control plane must pass:
// one conformance suite, and a differential test that runs one random list of
// operations on two engines and compares what they answer and hold.
package controltest

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/partition"
)

// Options are what a test hands to the engine that it opens.
type Options struct {
	Now  func() time.Time
	Rand io.Reader
}

// Engine is how the suite opens an engine.
type Engine struct {
	// Open returns an empty store.
	Open func(t testing.TB, o Options) control.Store
	// Reopen closes the store, opens its file again and returns that; nil for an
	// engine that forgets.
	Reopen func(t testing.TB, s control.Store) control.Store
}

// Start is the instant at which the clock of a test begins.
func Start() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

// NewOptions returns a clock that stands still and a seeded source of ids.
func NewOptions(seed uint64) Options {
	var key [32]byte
	key[0] = byte(seed)
	return Options{Now: Start, Rand: rand.NewChaCha8(key)}
}

// Run runs the suite.
func Run(t *testing.T, e Engine) {
	t.Helper()
	for name, test := range map[string]func(*bench){
		"Cluster": testCluster, "OpenSession": testOpenSession, "SessionFence": testSessionFence, "Fence": testFence, "FenceOfStranger": testFenceOfStranger,
		"CreateTopic": testCreateTopic, "CreateTopicRefusals": testCreateTopicRefusals, "Row15NamesThatClash": testClash,
		"AddPartitions": testAddPartitions, "SetConfigs": testSetConfigs, "UnknownTopic": testUnknownTopic,
		"Report129DeleteTopic": testDeleteTopic, "Report129Buried": testBuried, "Changes": testChanges, "TrimChanges": testTrim,
		"R2Lifecycle": testLifecycle, "R2EveryMove": testEveryMove, "R3IDIsNotReused": testIDReuse, "CopyStartedFacts": testCopyStartedFacts,
		"CopyFinishedFacts": testCopyFinishedFacts, "SegmentsOfOthers": testSegmentsOfOthers, "SegmentsInOrder": testSegmentsInOrder,
		"RaiseLogStart": testRaiseLogStart, "ProducerIDs": testProducerIDs, "H11Offsets": testOffsets, "OffsetsAllOrNone": testAllOrNone,
		"H11OffsetsOfOldHistories": testOldOffsets, "DeleteOffsets": testDeleteOffsets, "DumpLoad": testDumpLoad, "LoadRefusals": testLoadRefusals,
		"LoadKeepsProducerIDs": testLoadProducers, "Contexts": testContexts, "Closed": testClosed, "NothingIsShared": testNothingShared,
		"Concurrent": testConcurrent, "RegistryOf": testRegistryOf,
	} {
		t.Run(name, func(t *testing.T) { test(open(t, e)) })
	}
	if e.Reopen != nil {
		t.Run("Reopen", func(t *testing.T) { testReopen(open(t, e)) })
	}
}

// bench is a store with a session of node 1.
type bench struct {
	t *testing.T
	e Engine
	control.Store
	ses control.Session
	ctx context.Context
	n   byte // last segment id
}

func open(t *testing.T, e Engine) *bench {
	t.Helper()
	b := &bench{t: t, e: e, Store: e.Open(t, NewOptions(1)), ctx: t.Context()}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	b.session()
	return b
}

// session opens a new session of node 1.
func (b *bench) session() {
	b.t.Helper()
	var err error
	if b.ses, err = b.OpenSession(b.ctx, 1); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) topic(name string, n int32) control.Topic {
	b.t.Helper()
	out, err := b.CreateTopic(b.ctx, b.ses, control.NewTopic{Name: name, Partitions: n, Configs: map[string]string{"retention.ms": "1"}})
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

// fence returns the fence that the leader of a partition has now.
func (b *bench) fence(p tiers.PartitionID) partition.Fence {
	b.t.Helper()
	for _, t := range b.topics() {
		if t.ID == p.Topic {
			row := t.Partitions[p.Index]
			return partition.Fence{Partition: p, Gen: row.Gen, Epoch: row.Epoch, NodeEpoch: b.ses.Epoch}
		}
	}
	b.t.Fatalf("no partition %s", p)
	return partition.Fence{}
}

func (b *bench) topics() []control.Topic {
	b.t.Helper()
	ts, err := b.Topics(b.ctx)
	if err != nil {
		b.t.Fatal(err)
	}
	return ts
}

func (b *bench) dump() control.State {
	b.t.Helper()
	st, err := b.Dump(b.ctx)
	if err != nil {
		b.t.Fatal(err)
	}
	return st
}

// segment returns a segment [base, base+10) as its copier would write it.
func (b *bench) segment(f partition.Fence, base tiers.Offset) tiers.RemoteSegment {
	b.n++
	return tiers.RemoteSegment{
		ID: tiers.SegmentID{b.n}, Partition: f.Partition, Gen: f.Gen, Base: base, End: base + 10,
		Epochs: tiers.Lineage{{Epoch: 0, Start: base}, {Epoch: 2, Start: base + 5}}, State: tiers.CopyStarted,
		MaxTimestamp: 1_700_000_000_000, CopierEpoch: f.Epoch, Copier: 1, CreatedAt: Start(),
	}
}

// finished returns s with the facts of a copy that ended.
func finished(s tiers.RemoteSegment) tiers.RemoteSegment {
	s.State, s.Size, s.MetaSize, s.CRC32C, s.HasAborted, s.MaxTimestamp = tiers.CopyFinished, 1<<40, 77, 0xfedcba98, true, 1_700_000_000_123
	return s
}

// copied adds a finished segment.
func (b *bench) copied(f partition.Fence, base tiers.Offset) tiers.RemoteSegment {
	b.t.Helper()
	s := b.segment(f, base)
	b.must(b.CopyStarted(b.ctx, f, s))
	s = finished(s)
	b.must(b.CopyFinished(b.ctx, f, s))
	return s
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// refused checks that err is a *tiers.Error of a kind and says something.
func (b *bench) refused(err error, want tiers.Kind) {
	b.t.Helper()
	refused(b.t, err, want)
}

func refused(t *testing.T, err error, want tiers.Kind) {
	t.Helper()
	if err == nil || tiers.KindOf(err) != want {
		t.Fatalf("error %v, want of kind %q", err, want)
	}
	if _, ok := err.(*tiers.Error); !ok { //nolint:errorlint // the outermost must be ours
		t.Fatalf("error %v is a %T", err, err)
	}
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%s:\n got %s\nwant %s", what, show(got), show(want))
	}
}

func show(v any) string { return fmt.Sprintf("%+v", v) }

// unchanged runs f and checks that the store holds the same as before.
func (b *bench) unchanged(what string, f func()) {
	b.t.Helper()
	before := b.dump()
	f()
	equal(b.t, what+" changed the store", b.dump(), before)
}

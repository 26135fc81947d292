package controltest

import (
	"fmt"
	"time"

	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/partition"
)

func (b *bench) segments(p tiers.PartitionID) []tiers.RemoteSegment {
	b.t.Helper()
	out, err := b.Segments(b.ctx, p, 1)
	b.must(err)
	return out
}

func testLifecycle(b *bench) {
	p := tiers.PartitionID{Topic: b.topic("t", 1).ID}
	f := b.fence(p)
	s := b.segment(f, 100)
	b.must(b.CopyStarted(b.ctx, f, s))
	equal(b.t, "started", b.segments(p), []tiers.RemoteSegment{s})
	s = finished(s)
	b.must(b.CopyFinished(b.ctx, f, s))
	equal(b.t, "finished", b.segments(p), []tiers.RemoteSegment{s})
	b.must(b.DeleteStarted(b.ctx, f, s.ID))
	s.State = tiers.DeleteStarted
	equal(b.t, "condemned", b.segments(p), []tiers.RemoteSegment{s})
	if d, err := b.Doomed(b.ctx, 10); err != nil || len(d) != 0 {
		b.t.Fatalf("a segment of a live topic is doomed: %v, %v", d, err)
	}
	b.must(b.DeleteFinished(b.ctx, f, s.ID))
	if left := b.segments(p); len(left) != 0 {
		b.t.Fatalf("left %v", left)
	}
}

// testEveryMove tries each operation in each state: spec s6.1 with idempotent
// repeats.
func testEveryMove(b *bench) {
	f := b.fence(tiers.PartitionID{Topic: b.topic("t", 1).ID})
	reach := map[string]func(s tiers.RemoteSegment){
		"absent":        func(tiers.RemoteSegment) {},
		"CopyStarted":   func(s tiers.RemoteSegment) { b.must(b.CopyStarted(b.ctx, f, s)) },
		"CopyFinished":  func(s tiers.RemoteSegment) { b.must(b.CopyFinished(b.ctx, f, finished(s))) },
		"DeleteStarted": func(s tiers.RemoteSegment) { b.must(b.DeleteStarted(b.ctx, f, s.ID)) },
	}
	path := map[string][]string{
		"absent": nil, "CopyStarted": {"CopyStarted"}, "CopyFinished": {"CopyStarted", "CopyFinished"},
		"DeleteStarted": {"CopyStarted", "DeleteStarted"}, "DeleteStarted after CopyFinished": {"CopyStarted", "CopyFinished", "DeleteStarted"},
	}
	ops := map[string]func(s tiers.RemoteSegment) error{
		"CopyStarted":    func(s tiers.RemoteSegment) error { return b.CopyStarted(b.ctx, f, s) },
		"CopyFinished":   func(s tiers.RemoteSegment) error { return b.CopyFinished(b.ctx, f, finished(s)) },
		"DeleteStarted":  func(s tiers.RemoteSegment) error { return b.DeleteStarted(b.ctx, f, s.ID) },
		"DeleteFinished": func(s tiers.RemoteSegment) error { return b.DeleteFinished(b.ctx, f, s.ID) },
	}
	const yes, again, no = "moves", "is repeated", "is refused"
	want := map[string]map[string]string{
		"absent":                           {"CopyStarted": yes, "CopyFinished": no, "DeleteStarted": no, "DeleteFinished": again},
		"CopyStarted":                      {"CopyStarted": again, "CopyFinished": yes, "DeleteStarted": yes, "DeleteFinished": no},
		"CopyFinished":                     {"CopyStarted": no, "CopyFinished": again, "DeleteStarted": yes, "DeleteFinished": no},
		"DeleteStarted":                    {"CopyStarted": no, "CopyFinished": no, "DeleteStarted": again, "DeleteFinished": yes},
		"DeleteStarted after CopyFinished": {"CopyStarted": no, "CopyFinished": no, "DeleteStarted": again, "DeleteFinished": yes},
	}
	for state, steps := range path {
		for op, do := range ops {
			s := b.segment(f, 0)
			for _, step := range steps {
				reach[step](s)
			}
			before := b.dump()
			err := do(s)
			changed := fmt.Sprint(before) != fmt.Sprint(b.dump())
			got := no
			if err == nil {
				got = map[bool]string{true: yes, false: again}[changed]
			} else {
				b.refused(err, tiers.Conflict)
			}
			if got != want[state][op] || err != nil && changed {
				b.t.Errorf("%s in %s %s (changed: %v), want: %s", op, state, got, changed, want[state][op])
			}
		}
	}
}

func testIDReuse(b *bench) {
	topic := b.topic("t", 2)
	f, g := b.fence(tiers.PartitionID{Topic: topic.ID}), b.fence(tiers.PartitionID{Topic: topic.ID, Index: 1})
	s := b.segment(f, 0)
	b.must(b.CopyStarted(b.ctx, f, s))
	other := b.segment(g, 0)
	other.ID = s.ID
	moved := s
	moved.Base, moved.Epochs = 1, tiers.Lineage{{Epoch: 0, Start: 1}}
	b.unchanged("reuse", func() {
		b.refused(b.CopyStarted(b.ctx, g, other), tiers.Conflict)
		b.refused(b.CopyStarted(b.ctx, f, moved), tiers.Conflict)
		b.refused(b.CopyFinished(b.ctx, g, finished(other)), tiers.Conflict)
	})
}

func testCopyStartedFacts(b *bench) {
	p := tiers.PartitionID{Topic: b.topic("t", 1).ID}
	b.session()
	f := b.fence(p)
	for name, spoil := range map[string]func(s *tiers.RemoteSegment){
		"no id":             func(s *tiers.RemoteSegment) { s.ID = tiers.SegmentID{} },
		"another partition": func(s *tiers.RemoteSegment) { s.Partition.Index++ },
		"another gen":       func(s *tiers.RemoteSegment) { s.Gen++ },
		"empty range":       func(s *tiers.RemoteSegment) { s.End = s.Base },
		"negative base":     func(s *tiers.RemoteSegment) { s.Base = -1 },
		"no lineage":        func(s *tiers.RemoteSegment) { s.Epochs = nil },
		"foreign lineage":   func(s *tiers.RemoteSegment) { s.Epochs = tiers.Lineage{{Epoch: 0, Start: 1}} },
		"broken lineage": func(s *tiers.RemoteSegment) {
			s.Epochs = tiers.Lineage{{Epoch: 3, Start: 0}, {Epoch: 2, Start: 5}}
		},
		"long lineage": func(s *tiers.RemoteSegment) {
			s.End, s.Epochs = 1<<30, nil
			for i := range control.MaxLineage + 1 {
				s.Epochs = append(s.Epochs, tiers.EpochStart{Epoch: tiers.LeaderEpoch(i), Start: tiers.Offset(i)})
			}
		},
		"negative size":      func(s *tiers.RemoteSegment) { s.Size = -1 },
		"negative meta size": func(s *tiers.RemoteSegment) { s.MetaSize = -1 },
	} {
		s := b.segment(f, 0)
		spoil(&s)
		b.unchanged(name, func() { b.refused(b.CopyStarted(b.ctx, f, s), tiers.InvalidRequest) })
	}
	// State and copier are what they must be, and the instant is made.
	s := b.segment(f, 0)
	said := s
	said.State, said.Copier, said.CopierEpoch, said.CreatedAt = tiers.DeleteFinished, 77, 99, time.Time{}
	b.must(b.CopyStarted(b.ctx, f, said))
	equal(b.t, "row", b.segments(p), []tiers.RemoteSegment{s})
	said.CreatedAt = Start().Add(time.Hour) // A repeat says another instant.
	b.unchanged("the same again", func() { b.must(b.CopyStarted(b.ctx, f, said)) })
	s = b.segment(f, 10)
	s.CreatedAt = Start().Add(time.Hour).Add(1_234_567).In(time.FixedZone("x", 3600))
	b.must(b.CopyStarted(b.ctx, f, s))
	equal(b.t, "instant", b.segments(p)[1].CreatedAt, Start().Add(time.Hour).Add(time.Millisecond))
}

func testCopyFinishedFacts(b *bench) {
	p := tiers.PartitionID{Topic: b.topic("t", 1).ID}
	f := b.fence(p)
	s := b.segment(f, 0)
	b.must(b.CopyStarted(b.ctx, f, s))
	for name, c := range map[string]struct {
		spoil func(s *tiers.RemoteSegment)
		kind  tiers.Kind
	}{
		"no size":         {func(s *tiers.RemoteSegment) { s.Size = 0 }, tiers.InvalidRequest},
		"negative size":   {func(s *tiers.RemoteSegment) { s.MetaSize = -1 }, tiers.InvalidRequest},
		"another gen":     {func(s *tiers.RemoteSegment) { s.Gen++ }, tiers.InvalidRequest},
		"another base":    {func(s *tiers.RemoteSegment) { s.Base, s.Epochs = 1, tiers.Lineage{{Epoch: 0, Start: 1}} }, tiers.Conflict},
		"another end":     {func(s *tiers.RemoteSegment) { s.End++ }, tiers.Conflict},
		"another lineage": {func(s *tiers.RemoteSegment) { s.Epochs = tiers.Lineage{{Epoch: 1, Start: 0}} }, tiers.Conflict},
	} {
		done := finished(s)
		c.spoil(&done)
		b.unchanged(name, func() { b.refused(b.CopyFinished(b.ctx, f, done), c.kind) })
	}
	done := finished(s)
	said := done
	said.State, said.Copier, said.CopierEpoch, said.CreatedAt = 0, 77, 99, time.Time{}
	b.must(b.CopyFinished(b.ctx, f, said))
	equal(b.t, "row", b.segments(p), []tiers.RemoteSegment{done})
	b.unchanged("the same again", func() { b.must(b.CopyFinished(b.ctx, f, said)) })
	for name, spoil := range map[string]func(s *tiers.RemoteSegment){
		"size": func(s *tiers.RemoteSegment) { s.Size++ }, "meta size": func(s *tiers.RemoteSegment) { s.MetaSize++ },
		"crc": func(s *tiers.RemoteSegment) { s.CRC32C++ }, "timestamp": func(s *tiers.RemoteSegment) { s.MaxTimestamp++ },
		"aborted": func(s *tiers.RemoteSegment) { s.HasAborted = false },
	} {
		other := done
		spoil(&other)
		b.unchanged("another "+name, func() { b.refused(b.CopyFinished(b.ctx, f, other), tiers.Conflict) })
	}
	// A copy that an earlier epoch started is finished under its own epoch.
	s = b.segment(f, 10)
	b.must(b.CopyStarted(b.ctx, f, s))
	b.session()
	f = b.fence(p)
	b.must(b.CopyFinished(b.ctx, f, finished(s)))
	equal(b.t, "copier epoch", b.segments(p)[1].CopierEpoch, tiers.LeaderEpoch(0))
}

func testSegmentsOfOthers(b *bench) {
	topic := b.topic("t", 2)
	f, g := b.fence(tiers.PartitionID{Topic: topic.ID}), b.fence(tiers.PartitionID{Topic: topic.ID, Index: 1})
	s, condemned := b.copied(f, 0), b.copied(f, 10)
	b.must(b.DeleteStarted(b.ctx, f, condemned.ID))
	b.unchanged("another partition's owner", func() {
		b.refused(b.DeleteStarted(b.ctx, g, s.ID), tiers.Conflict)
		b.refused(b.DeleteFinished(b.ctx, g, condemned.ID), tiers.Conflict)
	})
}

func testSegmentsInOrder(b *bench) {
	topic := b.topic("t", 2)
	f, g := b.fence(tiers.PartitionID{Topic: topic.ID}), b.fence(tiers.PartitionID{Topic: topic.ID, Index: 1})
	var want []tiers.RemoteSegment
	for _, base := range []tiers.Offset{30, 1 << 40, 0, 20, 0} {
		b.copied(g, base)
		want = append(want, b.copied(f, base))
	}
	want = []tiers.RemoteSegment{want[2], want[4], want[3], want[0], want[1]}
	equal(b.t, "segments", b.segments(f.Partition), want)
	if other, err := b.Segments(b.ctx, f.Partition, 2); err != nil || len(other) != 0 {
		b.t.Fatalf("segments of another history: %v, %v", other, err)
	}
	_, err := b.Segments(b.ctx, tiers.PartitionID{Topic: topic.ID, Index: 2}, 1)
	b.refused(err, tiers.UnknownTopicOrPartition)
}

// testRegistryOf shows that the owners of an earlier session are fenced (R3).
func testRegistryOf(b *bench) {
	p := tiers.PartitionID{Topic: b.topic("t", 1).ID}
	old := control.RegistryOf(b.Store, b.ses, nil)
	f := partition.Fence{Partition: p, Gen: 1, Epoch: 0}
	s := b.segment(f, 0)
	b.must(old.CopyStarted(b.ctx, f, s))
	b.session()
	b.unchanged("an owner of the old session", func() {
		b.refused(old.CopyFinished(b.ctx, f, finished(s)), tiers.StaleFence)
		f := f
		f.Epoch = 1 // Even if it learned the new leader epoch.
		b.refused(old.CopyFinished(b.ctx, f, finished(s)), tiers.StaleFence)
	})
	r := control.RegistryOf(b.Store, b.ses, nil)
	f.Epoch = 1
	f.NodeEpoch = 99 // Whatever the owner says.
	b.must(r.CopyStarted(b.ctx, f, b.segment(f, 10)))
	b.must(r.CopyFinished(b.ctx, f, finished(s)))
	b.must(r.DeleteStarted(b.ctx, f, s.ID))
	b.must(r.DeleteFinished(b.ctx, f, s.ID))
	left, err := r.Segments(b.ctx, p, 1)
	b.must(err)
	if len(left) != 1 || left[0].Base != 10 {
		b.t.Fatalf("left %v", left)
	}
}

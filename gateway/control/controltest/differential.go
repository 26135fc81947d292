package controltest

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/partition"
)

// Differential runs random lists of operations on two engines and compares every
// answer and, at the end, everything that they hold. Where an engine can, it is
// closed and opened again in between.
func Differential(t *testing.T, a, b Engine) {
	t.Helper()
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		p := &pair{rt: rt, t: t, ctx: t.Context(), engines: [2]Engine{a, b}}
		for i, e := range p.engines {
			p.stores[i] = e.Open(t, NewOptions(seed))
		}
		defer func() {
			for _, s := range p.stores {
				if err := s.Close(); err != nil {
					rt.Errorf("Close: %v", err)
				}
			}
		}()
		p.openSession(1)
		p.createTopic()
		rt.Repeat(map[string]func(*rapid.T){
			"open session": func(*rapid.T) { p.openSession(tiers.NodeID(p.number("node", -1, 2))) },
			"create topic": func(*rapid.T) { p.createTopic() },
			"topic":        func(*rapid.T) { p.changeTopic() },
			"copy":         func(*rapid.T) { p.moveSegment() },
			"offsets":      func(*rapid.T) { p.moveOffsets() },
			"log start":    func(*rapid.T) { p.logStart() },
			"bury":         func(*rapid.T) { p.bury() },
			"producer ids": func(*rapid.T) { p.producers() },
			"changes":      func(*rapid.T) { p.changes() },
			"reload":       func(*rapid.T) { p.reload() },
			"":             func(*rapid.T) { p.compareAll() },
		})
	})
}

// pair is two stores that must be the same.
type pair struct {
	rt       *rapid.T
	t        *testing.T
	ctx      context.Context
	engines  [2]Engine
	stores   [2]control.Store
	sessions []control.Session
	ids      byte
}

// both runs f on both stores and compares results and kinds of errors.
func both[T any](p *pair, what string, f func(s control.Store) (T, error)) (T, error) {
	p.rt.Helper()
	x, xerr := f(p.stores[0])
	y, yerr := f(p.stores[1])
	if (xerr == nil) != (yerr == nil) || tiers.KindOf(xerr) != tiers.KindOf(yerr) || xerr != nil && xerr.Error() != yerr.Error() {
		p.rt.Fatalf("%s: %v, but %v", what, xerr, yerr)
	}
	if !reflect.DeepEqual(x, y) {
		p.rt.Fatalf("%s:\n%+v, but\n%+v", what, x, y)
	}
	return x, xerr
}

func only(p *pair, what string, f func(s control.Store) error) {
	_, _ = both(p, what, func(s control.Store) (struct{}, error) { return struct{}{}, f(s) }) // Errors were compared.
}

func (p *pair) number(label string, from, to int) int {
	return rapid.IntRange(from, to).Draw(p.rt, label)
}

func (p *pair) chance(label string, percent int) bool { return p.number(label, 0, 99) < percent }

// session is mostly the newest.
func (p *pair) session() control.Session {
	if p.chance("old session", 10) {
		return rapid.SampledFrom(p.sessions).Draw(p.rt, "session")
	}
	return p.sessions[len(p.sessions)-1]
}

func (p *pair) openSession(n tiers.NodeID) {
	ses, err := both(p, "OpenSession", func(s control.Store) (control.Session, error) { return s.OpenSession(p.ctx, n) })
	if err == nil {
		p.sessions = append(p.sessions, ses)
	}
}

func (p *pair) state() control.State {
	st, err := p.stores[0].Dump(p.ctx)
	if err != nil {
		p.rt.Fatal(err)
	}
	return st
}

func (p *pair) configs() map[string]string {
	gen := rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "c", ""}), rapid.StringN(0, 3, 9), 0, 2)
	return gen.Draw(p.rt, "configs")
}

func (p *pair) createTopic() {
	n := control.NewTopic{
		Name:       rapid.SampledFrom([]string{"a", "a.b", "a_b", "b", "c", ""}).Draw(p.rt, "name"),
		Partitions: int32(p.number("partitions", 0, 3)), Configs: p.configs(),
	}
	if p.chance("own id", 30) {
		n.ID = tiers.TopicID{15: byte(p.number("id", 0, 4))}
	}
	ses := p.session()
	_, _ = both(p, "CreateTopic", func(s control.Store) (control.Topic, error) { return s.CreateTopic(p.ctx, ses, n) }) // Compared.
}

// topic is mostly one that exists.
func (p *pair) topic() control.Topic {
	ts := p.state().Topics
	if len(ts) == 0 || p.chance("no such topic", 5) {
		return control.Topic{ID: tiers.TopicID{15: byte(p.number("id", 2, 4))}, Partitions: make([]control.Partition, 1)}
	}
	return rapid.SampledFrom(ts).Draw(p.rt, "topic")
}

func (p *pair) changeTopic() {
	topic, ses := p.topic(), p.session()
	switch p.number("change", 0, 2) {
	case 0:
		n := int32(len(topic.Partitions) + p.number("more", -1, 2))
		_, _ = both(p, "AddPartitions", func(s control.Store) (control.Topic, error) { return s.AddPartitions(p.ctx, ses, topic.ID, n) }) // Compared.
	case 1:
		rev, configs := rapid.SampledFrom([]control.Rev{0, topic.Rev, topic.Rev + 1}).Draw(p.rt, "if rev"), p.configs()
		_, _ = both(p, "SetConfigs", func(s control.Store) (control.Topic, error) { return s.SetConfigs(p.ctx, ses, topic.ID, rev, configs) }) // Compared.
	case 2:
		_, _ = both(p, "DeleteTopic", func(s control.Store) (control.Rev, error) { return s.DeleteTopic(p.ctx, ses, topic.ID) }) // Compared.
	}
}

// fence is mostly right.
func (p *pair) fence() partition.Fence {
	topic := p.topic()
	row := rapid.SampledFrom(topic.Partitions).Draw(p.rt, "partition")
	f := partition.Fence{Partition: tiers.PartitionID{Topic: topic.ID, Index: row.Index}, Gen: row.Gen, Epoch: row.Epoch}
	for _, ses := range p.sessions {
		if ses.Node == row.Leader {
			f.NodeEpoch = ses.Epoch
		}
	}
	if p.chance("wrong fence", 10) {
		f.Epoch += tiers.LeaderEpoch(p.number("epoch", -1, 1))
		f.NodeEpoch += int64(p.number("node epoch", -1, 1))
		f.Gen += tiers.HistoryGen(p.number("gen", -1, 1))
	}
	return f
}

// segment is one of the partition's, another's, or a new one.
func (p *pair) segment(f partition.Fence) tiers.RemoteSegment {
	if rows := p.state().Segments; len(rows) > 0 && p.chance("existing segment", 70) {
		s := rapid.SampledFrom(rows).Draw(p.rt, "segment")
		if p.chance("spoiled", 10) {
			s.Size, s.End, s.CRC32C = s.Size+1, s.End+tiers.Offset(p.number("end", 0, 1)), 5
		}
		return s
	}
	p.ids++
	base := tiers.Offset(p.number("base", 0, 50))
	return tiers.RemoteSegment{
		ID: tiers.SegmentID{p.ids}, Partition: f.Partition, Gen: f.Gen, Base: base, End: base + tiers.Offset(p.number("length", 0, 9)),
		Epochs: tiers.Lineage{{Epoch: 0, Start: base}}, Size: int64(p.number("size", 0, 2)), MaxTimestamp: -1,
	}
}

func (p *pair) moveSegment() {
	f := p.fence()
	s := p.segment(f)
	if p.chance("fence of the segment", 80) {
		f.Partition = s.Partition
	}
	switch p.number("move", 0, 3) {
	case 0:
		only(p, "CopyStarted", func(st control.Store) error { return st.CopyStarted(p.ctx, f, s) })
	case 1:
		s.Size++
		only(p, "CopyFinished", func(st control.Store) error { return st.CopyFinished(p.ctx, f, s) })
	case 2:
		only(p, "DeleteStarted", func(st control.Store) error { return st.DeleteStarted(p.ctx, f, s.ID) })
	case 3:
		only(p, "DeleteFinished", func(st control.Store) error { return st.DeleteFinished(p.ctx, f, s.ID) })
	}
}

func (p *pair) moveOffsets() {
	ses, group := p.session(), rapid.SampledFrom([]string{"g", "h", ""}).Draw(p.rt, "group")
	if p.chance("delete", 20) {
		var ps []tiers.PartitionID
		for range p.number("partitions", 0, 2) {
			ps = append(ps, p.fence().Partition)
		}
		only(p, "DeleteOffsets", func(s control.Store) error { return s.DeleteOffsets(p.ctx, ses, group, ps) })
		return
	}
	var cs []control.OffsetCommit
	for range p.number("commits", 0, 3) {
		f := p.fence()
		cs = append(cs, control.OffsetCommit{
			Group: group, Partition: f.Partition, Gen: f.Gen, Offset: tiers.Offset(p.number("offset", -1, 99)), Epoch: f.Epoch,
			Metadata: rapid.StringN(0, 3, 9).Draw(p.rt, "metadata"),
		})
	}
	only(p, "CommitOffsets", func(s control.Store) error { return s.CommitOffsets(p.ctx, ses, cs) })
}

func (p *pair) logStart() {
	f, o := p.fence(), tiers.Offset(p.number("log start", -1, 50))
	_, _ = both(p, "RaiseLogStart", func(s control.Store) (control.Rev, error) { return s.RaiseLogStart(p.ctx, f, o) }) // Compared.
}

func (p *pair) bury() {
	limit := p.number("limit", 1, 3)
	doomed, err := both(p, "Doomed", func(s control.Store) ([]tiers.RemoteSegment, error) { return s.Doomed(p.ctx, limit) })
	if err != nil {
		p.rt.Fatal(err)
	}
	ids := []tiers.SegmentID{{200}}
	for _, s := range doomed {
		ids = append(ids, s.ID)
	}
	if p.chance("any segment", 20) {
		ids = append(ids, tiers.SegmentID{byte(p.number("id", 0, int(p.ids)))})
	}
	ses := p.session()
	only(p, "Buried", func(s control.Store) error { return s.Buried(p.ctx, ses, ids...) })
}

func (p *pair) producers() {
	ses, n := p.session(), int64(p.number("ids", 0, 3))
	_, _ = both(p, "ProducerIDs", func(s control.Store) (int64, error) { return s.ProducerIDs(p.ctx, ses, n) }) // Compared.
}

func (p *pair) changes() {
	rev := int(p.state().Rev)
	after := control.Rev(p.number("after", -1, rev+1))
	if p.chance("trim", 30) {
		only(p, "TrimChanges", func(s control.Store) error { return s.TrimChanges(p.ctx, after) })
		return
	}
	_, _ = both(p, "Changes", func(s control.Store) ([]control.Change, error) { return s.Changes(p.ctx, after) }) // Compared.
}

// reload brings what one engine holds into new stores of both, crosswise, or
// opens a store again.
func (p *pair) reload() {
	if p.chance("reopen", 50) {
		for i, e := range p.engines {
			if e.Reopen != nil {
				p.stores[i] = e.Reopen(p.t, p.stores[i])
			}
		}
		return
	}
	var dumps [2]control.State
	for i, s := range p.stores {
		st, err := s.Dump(p.ctx)
		if err = errors.Join(err, st.Valid(), s.Close()); err != nil {
			p.rt.Fatal(err)
		}
		dumps[i] = st
	}
	seed := rapid.Uint64().Draw(p.rt, "seed")
	for i, e := range p.engines {
		p.stores[i] = e.Open(p.t, NewOptions(seed))
		if err := p.stores[i].Load(p.ctx, dumps[1-i]); err != nil {
			p.rt.Fatal(err)
		}
	}
	p.sessions = nil
	p.openSession(1)
}

// compareAll compares everything that can be read.
func (p *pair) compareAll() {
	st, derr := both(p, "Dump", func(s control.Store) (control.State, error) { return s.Dump(p.ctx) })
	_, rerr := both(p, "LastRev", func(s control.Store) (control.Rev, error) { return s.LastRev(p.ctx) })
	_, terr := both(p, "Topics", func(s control.Store) ([]control.Topic, error) { return s.Topics(p.ctx) })
	groups, gerr := both(p, "Groups", func(s control.Store) ([]string, error) { return s.Groups(p.ctx) })
	_, oerr := both(p, "Offsets", func(s control.Store) ([][]control.OffsetCommit, error) {
		var all [][]control.OffsetCommit
		for _, g := range groups {
			cs, err := s.Offsets(p.ctx, g)
			if err != nil {
				return nil, err
			}
			all = append(all, cs)
		}
		return all, nil
	})
	_, serr := both(p, "Segments", func(s control.Store) ([][]tiers.RemoteSegment, error) {
		var all [][]tiers.RemoteSegment
		for _, t := range st.Topics {
			for _, row := range t.Partitions {
				rows, err := s.Segments(p.ctx, tiers.PartitionID{Topic: t.ID, Index: row.Index}, row.Gen)
				if err != nil {
					return nil, err
				}
				all = append(all, rows)
			}
		}
		return all, nil
	})
	if err := errors.Join(derr, st.Valid(), rerr, terr, gerr, oerr, serr); err != nil {
		p.rt.Fatal(err)
	}
}

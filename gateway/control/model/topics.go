package model

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/partition"
)

// CreateTopic adds a topic.
func (s *Store) CreateTopic(ctx context.Context, ses control.Session, n control.NewTopic) (out control.Topic, err error) {
	const op = "create topic"
	err = s.do(ctx, op, func() (err error) {
		if err = s.session(op, ses); err != nil {
			return err
		}
		if err = n.Check(); err != nil {
			return err
		}
		for _, t := range s.topics {
			if control.ClashKey(t.Name) == control.ClashKey(n.Name) {
				return control.Clash(n.Name, t.Name)
			}
		}
		id, err := s.newID(n.ID)
		if err != nil {
			return err
		}
		t := control.Topic{ID: id, Name: n.Name, Configs: n.Configs, CreatedAt: control.Instant(s.o.Now())}
		t.Partitions = control.NewPartitions(ses.Node, 0, n.Partitions)
		out = s.changed(t.Clone())
		return nil
	})
	return out, err
}

// newID returns the id that was asked for, or makes one that nothing carries.
func (s *Store) newID(want tiers.TopicID) (tiers.TopicID, error) {
	id := want
	for {
		var err error
		if want.IsZero() {
			if id, err = control.RandomID(s.o.Rand); err != nil {
				return id, err
			}
		}
		if !s.idInUse(id) {
			return id, nil
		}
		if !want.IsZero() {
			return id, tiers.E(tiers.Conflict, "create topic", "", "topic id %s is in use", id)
		}
	}
}

// idInUse reports whether a topic or a segment that waits for its deletion has
// the id.
func (s *Store) idInUse(id tiers.TopicID) bool {
	if _, ok := s.topics[id]; ok {
		return true
	}
	for _, r := range s.segments {
		if r.Partition.Topic == id {
			return true
		}
	}
	return false
}

// changed stores t under the next revision, notes the change and returns a copy.
func (s *Store) changed(t control.Topic) control.Topic {
	s.rev++
	t.Rev = s.rev
	s.topics[t.ID] = t
	s.changes = append(s.changes, control.Change{Rev: s.rev, Topic: t.Clone()})
	return t.Clone()
}

// edit looks a topic up and stores what f makes of it, unless that returns false.
func (s *Store) edit(ctx context.Context, op string, ses control.Session, id tiers.TopicID, f func(t *control.Topic) (bool, error)) (out control.Topic, err error) {
	err = s.do(ctx, op, func() (err error) {
		if err = s.session(op, ses); err != nil {
			return err
		}
		row, ok := s.topics[id]
		if !ok {
			return tiers.E(tiers.UnknownTopicID, op, id.String(), "there is no such topic")
		}
		out = row.Clone()
		change, err := f(&out)
		if err != nil {
			out = control.Topic{}
			return err
		}
		if change {
			out = s.changed(out)
		}
		return nil
	})
	return out, err
}

// AddPartitions raises the count of partitions.
func (s *Store) AddPartitions(ctx context.Context, ses control.Session, id tiers.TopicID, n int32) (control.Topic, error) {
	return s.edit(ctx, "add partitions", ses, id, func(t *control.Topic) (bool, error) {
		if err := control.CheckCount(t.Name, len(t.Partitions), n); err != nil {
			return false, err
		}
		t.Partitions = append(t.Partitions, control.NewPartitions(ses.Node, int32(len(t.Partitions)), n)...)
		return true, nil
	})
}

// SetConfigs replaces the settings.
func (s *Store) SetConfigs(ctx context.Context, ses control.Session, id tiers.TopicID, ifRev control.Rev, configs map[string]string) (control.Topic, error) {
	const op = "set configs"
	return s.edit(ctx, op, ses, id, func(t *control.Topic) (bool, error) {
		if err := control.CheckConfigs(op, t.Name, configs); err != nil {
			return false, err
		}
		if err := control.CheckRev(op, *t, ifRev); err != nil {
			return false, err
		}
		if maps.Equal(t.Configs, configs) {
			return false, nil
		}
		t.Configs = maps.Clone(configs)
		return true, nil
	})
}

// DeleteTopic removes a topic.
func (s *Store) DeleteTopic(ctx context.Context, ses control.Session, id tiers.TopicID) (rev control.Rev, err error) {
	const op = "delete topic"
	err = s.do(ctx, op, func() (err error) {
		if err := s.session(op, ses); err != nil {
			return err
		}
		t, ok := s.topics[id]
		if !ok {
			return tiers.E(tiers.UnknownTopicID, op, id.String(), "there is no such topic")
		}
		rev = s.changed(t).Rev
		s.changes[len(s.changes)-1].Deleted = true
		delete(s.topics, id)
		maps.DeleteFunc(s.offsets, func(k offsetKey, _ control.OffsetCommit) bool { return k.partition.Topic == id })
		for sid, r := range s.segments {
			if r.Partition.Topic == id {
				r.State = tiers.DeleteStarted
				s.segments[sid] = r
			}
		}
		return nil
	})
	return rev, err
}

// Topics returns all topics by name.
func (s *Store) Topics(ctx context.Context) (out []control.Topic, err error) {
	err = s.do(ctx, "topics", func() (err error) {
		for _, t := range s.topics {
			out = append(out, t.Clone())
		}
		slices.SortFunc(out, func(a, b control.Topic) int { return strings.Compare(a.Name, b.Name) })
		return nil
	})
	return out, err
}

// Changes returns the changes after a revision.
func (s *Store) Changes(ctx context.Context, after control.Rev) (out []control.Change, err error) {
	err = s.do(ctx, "changes", func() (err error) {
		if err := control.CheckAfter(after, s.floor, s.rev); err != nil {
			return err
		}
		for _, c := range s.changes {
			if c.Rev > after {
				out = append(out, c.Clone())
			}
		}
		return nil
	})
	return out, err
}

// TrimChanges forgets changes.
func (s *Store) TrimChanges(ctx context.Context, upTo control.Rev) error {
	return s.do(ctx, "trim changes", func() (err error) {
		if err := control.CheckTrim(upTo, s.rev); err != nil {
			return err
		}
		s.floor = max(s.floor, upTo)
		s.changes = slices.DeleteFunc(s.changes, func(c control.Change) bool { return c.Rev <= s.floor })
		return nil
	})
}

// RaiseLogStart raises a partition's log start.
func (s *Store) RaiseLogStart(ctx context.Context, f partition.Fence, o tiers.Offset) (rev control.Rev, err error) {
	const op = "raise log start"
	err = s.do(ctx, op, func() (err error) {
		if err := control.CheckRaise(op, f, o); err != nil {
			return err
		}
		row, err := s.fence(op, f)
		if err != nil {
			return err
		}
		if o > row.LogStart {
			s.rev++
			s.topics[f.Partition.Topic].Partitions[f.Partition.Index].LogStart = o
			s.changes = append(s.changes, control.Change{Rev: s.rev, Raised: &control.Raised{Partition: f.Partition, Gen: f.Gen, LogStart: o}})
		}
		rev = s.rev
		return nil
	})
	return rev, err
}

// LastRev returns the revision of the last change.
func (s *Store) LastRev(ctx context.Context) (rev control.Rev, err error) {
	err = s.do(ctx, "last revision", func() (err error) {
		rev = s.rev
		return nil
	})
	return rev, err
}

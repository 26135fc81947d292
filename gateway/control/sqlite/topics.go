package sqlite

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/partition"
)

func topicID(st *sqlite3.Stmt, col int) (id tiers.TopicID) {
	copy(id[:], st.ColumnRawBlob(col))
	return id
}

func instant(st *sqlite3.Stmt, col int) time.Time { return time.UnixMilli(st.ColumnInt64(col)).UTC() }

// readTopics returns the topics by id, or only that with the id.
func readTopics(d *db, id *tiers.TopicID) ([]control.Topic, error) {
	filter, args := func(string) string { return "" }, []any(nil)
	if id != nil {
		filter, args = func(col string) string { return " WHERE " + col + " = ?" }, []any{id[:]}
	}
	var out []control.Topic
	at := map[tiers.TopicID]int{}
	err := d.each("SELECT id, name, rev, created_at FROM topics"+filter("id")+" ORDER BY id", args, func(st *sqlite3.Stmt) error {
		t := control.Topic{ID: topicID(st, 0), Name: st.ColumnText(1), Rev: control.Rev(st.ColumnInt64(2)), CreatedAt: instant(st, 3), Configs: map[string]string{}}
		at[t.ID] = len(out)
		out = append(out, t)
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = d.each("SELECT topic, key, value FROM configs"+filter("topic"), args, func(st *sqlite3.Stmt) error {
		i, ok := at[topicID(st, 0)]
		if !ok {
			return errors.New("configs: a row without its topic")
		}
		out[i].Configs[st.ColumnText(1)] = st.ColumnText(2)
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = d.each("SELECT topic, idx, gen, leader, epoch, log_start FROM partitions"+filter("topic")+" ORDER BY topic, idx", args, func(st *sqlite3.Stmt) error {
		i, ok := at[topicID(st, 0)]
		if !ok {
			return errors.New("partitions: a row without its topic")
		}
		out[i].Partitions = append(out[i].Partitions, control.Partition{
			Index: int32(st.ColumnInt64(1)), Gen: tiers.HistoryGen(st.ColumnInt64(2)), Leader: tiers.NodeID(st.ColumnInt64(3)),
			Epoch: tiers.LeaderEpoch(st.ColumnInt64(4)), LogStart: tiers.Offset(st.ColumnInt64(5)),
		})
		return nil
	})
	return out, err
}

func readTopic(d *db, op string, id tiers.TopicID) (control.Topic, error) {
	ts, err := readTopics(d, &id)
	if err != nil {
		return control.Topic{}, err
	}
	if len(ts) == 0 {
		return control.Topic{}, tiers.E(tiers.UnknownTopicID, op, id.String(), "there is no such topic")
	}
	return ts[0], nil
}

// insertTopic writes the rows of a topic that has none.
func insertTopic(d *db, t control.Topic) error {
	err := d.exec("INSERT INTO topics (id, name, clash, rev, created_at) VALUES (?, ?, ?, ?, ?)",
		t.ID[:], t.Name, control.ClashKey(t.Name), int64(t.Rev), t.CreatedAt.UnixMilli())
	if err != nil {
		return err
	}
	if err := insertConfigs(d, t); err != nil {
		return err
	}
	return insertPartitions(d, t.ID, t.Partitions)
}

func insertConfigs(d *db, t control.Topic) error {
	for k, v := range t.Configs {
		if err := d.exec("INSERT INTO configs (topic, key, value) VALUES (?, ?, ?)", t.ID[:], k, v); err != nil {
			return err
		}
	}
	return nil
}

func insertPartitions(d *db, id tiers.TopicID, ps []control.Partition) error {
	for _, p := range ps {
		err := d.exec("INSERT INTO partitions (topic, idx, gen, leader, epoch, log_start) VALUES (?, ?, ?, ?, ?, ?)",
			id[:], int64(p.Index), int64(p.Gen), int64(p.Leader), int64(p.Epoch), int64(p.LogStart))
		if err != nil {
			return err
		}
	}
	return nil
}

// nextRev raises the revision.
func nextRev(d *db) (control.Rev, error) {
	n, err := d.number("UPDATE meta SET value = value + 1 WHERE key = ? RETURNING value", keyRev)
	return control.Rev(n), err
}

// note writes t, at its revision, into the log of changes.
func note(d *db, t control.Topic, deleted bool) error {
	return noteChange(d, control.Change{Rev: t.Rev, Topic: t, Deleted: deleted})
}

func noteChange(d *db, c control.Change) error {
	return d.exec("INSERT INTO changes (rev, deleted, topic) VALUES (?, ?, ?)", int64(c.Rev), c.Deleted, encodeChange(c))
}

// CreateTopic adds a topic.
func (s *Store) CreateTopic(ctx context.Context, ses control.Session, n control.NewTopic) (control.Topic, error) {
	const op = "create topic"
	var out control.Topic
	err := s.do(ctx, op, true, func(d *db) (err error) {
		if err = checkSession(d, op, ses); err != nil {
			return err
		}
		if err = n.Check(); err != nil {
			return err
		}
		var other string
		clash, err := d.one("SELECT name FROM topics WHERE clash = ?", []any{control.ClashKey(n.Name)}, func(st *sqlite3.Stmt) error {
			other = st.ColumnText(0)
			return nil
		})
		if err != nil {
			return err
		}
		if clash {
			return control.Clash(n.Name, other)
		}
		id, err := s.newID(d, n.ID)
		if err != nil {
			return err
		}
		out = control.Topic{ID: id, Name: n.Name, Configs: n.Configs, CreatedAt: control.Instant(s.o.Now())}.Clone()
		out.Partitions = control.NewPartitions(ses.Node, 0, n.Partitions)
		if out.Rev, err = nextRev(d); err != nil {
			return err
		}
		if err := insertTopic(d, out); err != nil {
			return err
		}
		return note(d, out, false)
	})
	if err != nil {
		return control.Topic{}, err
	}
	return out, nil
}

// newID returns the id that was asked for, or makes one that nothing carries.
func (s *Store) newID(d *db, want tiers.TopicID) (tiers.TopicID, error) {
	id := want
	for {
		var err error
		if want.IsZero() {
			if id, err = control.RandomID(s.o.Rand); err != nil {
				return id, err
			}
		}
		used, err := d.number("SELECT EXISTS (SELECT 1 FROM topics WHERE id = ?1) OR EXISTS (SELECT 1 FROM segments WHERE topic = ?1)", id[:])
		if err != nil {
			return id, err
		}
		if used == 0 {
			return id, nil
		}
		if !want.IsZero() {
			return id, tiers.E(tiers.Conflict, "create topic", "", "topic id %s is in use", id)
		}
	}
}

// edit looks a topic up and has f change t and the rows, unless f returns false.
func (s *Store) edit(ctx context.Context, op string, ses control.Session, id tiers.TopicID, f func(d *db, t *control.Topic) (bool, error)) (control.Topic, error) {
	var t control.Topic
	err := s.do(ctx, op, true, func(d *db) (err error) {
		if err = checkSession(d, op, ses); err != nil {
			return err
		}
		if t, err = readTopic(d, op, id); err != nil {
			return err
		}
		change, err := f(d, &t)
		if err != nil || !change {
			return err
		}
		if t.Rev, err = nextRev(d); err != nil {
			return err
		}
		if err := d.exec("UPDATE topics SET rev = ? WHERE id = ?", int64(t.Rev), id[:]); err != nil {
			return err
		}
		return note(d, t, false)
	})
	if err != nil {
		return control.Topic{}, err
	}
	return t, nil
}

// AddPartitions raises the count of partitions.
func (s *Store) AddPartitions(ctx context.Context, ses control.Session, id tiers.TopicID, n int32) (control.Topic, error) {
	return s.edit(ctx, "add partitions", ses, id, func(d *db, t *control.Topic) (bool, error) {
		if err := control.CheckCount(t.Name, len(t.Partitions), n); err != nil {
			return false, err
		}
		more := control.NewPartitions(ses.Node, int32(len(t.Partitions)), n)
		t.Partitions = append(t.Partitions, more...)
		return true, insertPartitions(d, id, more)
	})
}

// SetConfigs replaces the settings.
func (s *Store) SetConfigs(ctx context.Context, ses control.Session, id tiers.TopicID, ifRev control.Rev, configs map[string]string) (control.Topic, error) {
	const op = "set configs"
	return s.edit(ctx, op, ses, id, func(d *db, t *control.Topic) (bool, error) {
		if err := control.CheckConfigs(op, t.Name, configs); err != nil {
			return false, err
		}
		if err := control.CheckRev(op, *t, ifRev); err != nil {
			return false, err
		}
		if maps.Equal(t.Configs, configs) {
			return false, nil
		}
		t.Configs = configs
		*t = t.Clone()
		if err := d.exec("DELETE FROM configs WHERE topic = ?", id[:]); err != nil {
			return false, err
		}
		return true, insertConfigs(d, *t)
	})
}

// DeleteTopic removes a topic. Its segments stay as rows that Doomed lists, in
// the same transaction, so a restart in between forgets nothing (report 129).
func (s *Store) DeleteTopic(ctx context.Context, ses control.Session, id tiers.TopicID) (rev control.Rev, err error) {
	const op = "delete topic"
	err = s.do(ctx, op, true, func(d *db) (err error) {
		if err = checkSession(d, op, ses); err != nil {
			return err
		}
		t, err := readTopic(d, op, id)
		if err != nil {
			return err
		}
		if t.Rev, err = nextRev(d); err != nil {
			return err
		}
		rev = t.Rev
		if err := d.exec("UPDATE segments SET doomed = 1, state = ? WHERE topic = ?", int64(tiers.DeleteStarted), id[:]); err != nil {
			return err
		}
		for _, sql := range []string{
			"DELETE FROM topics WHERE id = ?", "DELETE FROM configs WHERE topic = ?",
			"DELETE FROM partitions WHERE topic = ?", "DELETE FROM offsets WHERE topic = ?",
		} {
			if err := d.exec(sql, id[:]); err != nil {
				return err
			}
		}
		return note(d, t, true)
	})
	if err != nil {
		return 0, err
	}
	return rev, nil
}

// Topics returns all topics by name.
func (s *Store) Topics(ctx context.Context) (out []control.Topic, err error) {
	err = s.do(ctx, "topics", false, func(d *db) (err error) {
		out, err = readTopics(d, nil)
		return err
	})
	slices.SortFunc(out, func(a, b control.Topic) int { return strings.Compare(a.Name, b.Name) })
	return out, err
}

// Changes returns the changes after a revision.
func (s *Store) Changes(ctx context.Context, after control.Rev) (out []control.Change, err error) {
	err = s.do(ctx, "changes", false, func(d *db) (err error) {
		floor, err := meta(d, keyFloor)
		if err != nil {
			return err
		}
		rev, err := meta(d, keyRev)
		if err != nil {
			return err
		}
		if err := control.CheckAfter(after, control.Rev(floor), control.Rev(rev)); err != nil {
			return err
		}
		return d.each("SELECT rev, deleted, topic FROM changes WHERE rev > ? ORDER BY rev", []any{int64(after)}, func(st *sqlite3.Stmt) error {
			c, err := decodeChange(st.ColumnRawBlob(2))
			if err != nil {
				return damaged("changes", err)
			}
			c.Rev, c.Deleted = control.Rev(st.ColumnInt64(0)), st.ColumnBool(1)
			out = append(out, c)
			return nil
		})
	})
	return out, err
}

// damaged says that a table holds what no binary wrote.
func damaged(table string, err error) error {
	return tiers.E(tiers.StorageFailed, "", "table "+table, "the row is damaged: %s: %w", wayOut, err)
}

// TrimChanges forgets changes.
func (s *Store) TrimChanges(ctx context.Context, upTo control.Rev) error {
	return s.do(ctx, "trim changes", true, func(d *db) (err error) {
		rev, err := meta(d, keyRev)
		if err != nil {
			return err
		}
		if err := control.CheckTrim(upTo, control.Rev(rev)); err != nil {
			return err
		}
		if err := d.exec("UPDATE meta SET value = max(value, ?) WHERE key = ?", int64(upTo), keyFloor); err != nil {
			return err
		}
		return d.exec("DELETE FROM changes WHERE rev <= ?", int64(upTo))
	})
}

// readPartition returns a partition's row and its leader's node epoch.
func readPartition(d *db, id tiers.PartitionID) (p control.Partition, nodeEpoch int64, ok bool, err error) {
	ok, err = d.one("SELECT p.gen, p.leader, p.epoch, p.log_start, coalesce(n.epoch, 0) FROM partitions p LEFT JOIN nodes n ON n.node = p.leader WHERE p.topic = ? AND p.idx = ?",
		[]any{id.Topic[:], int64(id.Index)}, func(st *sqlite3.Stmt) error {
			p = control.Partition{
				Index: id.Index, Gen: tiers.HistoryGen(st.ColumnInt64(0)), Leader: tiers.NodeID(st.ColumnInt64(1)),
				Epoch: tiers.LeaderEpoch(st.ColumnInt64(2)), LogStart: tiers.Offset(st.ColumnInt64(3)),
			}
			nodeEpoch = st.ColumnInt64(4)
			return nil
		})
	return p, nodeEpoch, ok, err
}

// checkFence compares f with what is there and returns the partition's row.
func checkFence(d *db, op string, f partition.Fence) (control.Partition, error) {
	p, nodeEpoch, ok, err := readPartition(d, f.Partition)
	if err != nil {
		return p, err
	}
	return p, control.CheckFence(op, f, p, ok, nodeEpoch)
}

// RaiseLogStart raises a partition's log start.
func (s *Store) RaiseLogStart(ctx context.Context, f partition.Fence, o tiers.Offset) (control.Rev, error) {
	const op = "raise log start"
	var rev control.Rev
	err := s.do(ctx, op, true, func(d *db) (err error) {
		if err := control.CheckRaise(op, f, o); err != nil {
			return err
		}
		p, err := checkFence(d, op, f)
		if err != nil {
			return err
		}
		if o <= p.LogStart {
			rev, err = lastRev(d)
			return err
		}
		if rev, err = nextRev(d); err != nil {
			return err
		}
		err = d.exec("UPDATE partitions SET log_start = ? WHERE topic = ? AND idx = ?", int64(o), f.Partition.Topic[:], int64(f.Partition.Index))
		if err != nil {
			return err
		}
		return noteChange(d, control.Change{Rev: rev, Raised: &control.Raised{Partition: f.Partition, Gen: f.Gen, LogStart: o}})
	})
	if err != nil {
		return 0, err
	}
	return rev, nil
}

// LastRev returns the revision of the last change.
func (s *Store) LastRev(ctx context.Context) (rev control.Rev, err error) {
	err = s.do(ctx, "last revision", false, func(d *db) (err error) {
		rev, err = lastRev(d)
		return err
	})
	return rev, err
}

func lastRev(d *db) (control.Rev, error) {
	rev, err := meta(d, keyRev)
	return control.Rev(rev), err
}

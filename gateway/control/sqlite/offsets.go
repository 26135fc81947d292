package sqlite

import (
	"context"

	"github.com/ncruces/go-sqlite3"

	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/tiers"
)

const offsetColumns = "o.group_id, o.topic, o.idx, o.gen, o.offset, o.epoch, o.metadata, o.at"

// current joins offsets with the history that their partition has now (H11).
const current = " FROM offsets o JOIN partitions p ON p.topic = o.topic AND p.idx = o.idx AND p.gen = o.gen "

func scanOffset(st *sqlite3.Stmt) control.OffsetCommit {
	return control.OffsetCommit{
		Group:     st.ColumnText(0),
		Partition: tiers.PartitionID{Topic: topicID(st, 1), Index: int32(st.ColumnInt64(2))},
		Gen:       tiers.HistoryGen(st.ColumnInt64(3)),
		Offset:    tiers.Offset(st.ColumnInt64(4)),
		Epoch:     tiers.LeaderEpoch(st.ColumnInt64(5)),
		Metadata:  st.ColumnText(6),
		At:        instant(st, 7),
	}
}

func insertOffset(d *db, c control.OffsetCommit) error {
	return d.exec("INSERT OR REPLACE INTO offsets (group_id, topic, idx, gen, offset, epoch, metadata, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
		c.Group, c.Partition.Topic[:], int64(c.Partition.Index), int64(c.Gen), int64(c.Offset), int64(c.Epoch), c.Metadata, c.At.UnixMilli())
}

// CommitOffsets stores offsets, all or none.
func (s *Store) CommitOffsets(ctx context.Context, ses control.Session, cs []control.OffsetCommit) error {
	const op = "commit offsets"
	return s.do(ctx, op, true, func(d *db) (err error) {
		if err := checkSession(d, op, ses); err != nil {
			return err
		}
		for _, c := range cs {
			p, _, ok, err := readPartition(d, c.Partition)
			if err != nil {
				return err
			}
			if err := control.CheckCommitOf(op, c, p, ok); err != nil {
				return err
			}
			if c.At.IsZero() {
				c.At = s.o.Now()
			}
			if err := insertOffset(d, c); err != nil {
				return err
			}
		}
		return nil
	})
}

// Offsets returns the offsets of a group.
func (s *Store) Offsets(ctx context.Context, group string) (out []control.OffsetCommit, err error) {
	err = s.do(ctx, "offsets", false, func(d *db) (err error) {
		return d.each("SELECT "+offsetColumns+current+"WHERE o.group_id = ? ORDER BY o.topic, o.idx", []any{group}, func(st *sqlite3.Stmt) error {
			out = append(out, scanOffset(st))
			return nil
		})
	})
	return out, err
}

// DeleteOffsets forgets offsets of a group.
func (s *Store) DeleteOffsets(ctx context.Context, ses control.Session, group string, ps []tiers.PartitionID) error {
	const op = "delete offsets"
	return s.do(ctx, op, true, func(d *db) (err error) {
		if err := checkSession(d, op, ses); err != nil {
			return err
		}
		if len(ps) == 0 {
			return d.exec("DELETE FROM offsets WHERE group_id = ?", group)
		}
		for _, p := range ps {
			if err := d.exec("DELETE FROM offsets WHERE group_id = ? AND topic = ? AND idx = ?", group, p.Topic[:], int64(p.Index)); err != nil {
				return err
			}
		}
		return nil
	})
}

// Groups lists the groups that have offsets.
func (s *Store) Groups(ctx context.Context) (out []string, err error) {
	err = s.do(ctx, "groups", false, func(d *db) (err error) {
		return d.each("SELECT DISTINCT o.group_id"+current+"ORDER BY o.group_id", nil, func(st *sqlite3.Stmt) error {
			out = append(out, st.ColumnText(0))
			return nil
		})
	})
	return out, err
}

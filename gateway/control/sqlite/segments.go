package sqlite

import (
	"context"

	"github.com/ncruces/go-sqlite3"

	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/partition"
)

const segmentColumns = "id, topic, idx, gen, base, end, epochs, state, max_timestamp, size, meta_size, crc32c, has_aborted, copier_epoch, copier, created_at"

func scanSegment(st *sqlite3.Stmt) (tiers.RemoteSegment, error) {
	s := tiers.RemoteSegment{
		Partition:    tiers.PartitionID{Topic: topicID(st, 1), Index: int32(st.ColumnInt64(2))},
		Gen:          tiers.HistoryGen(st.ColumnInt64(3)),
		Base:         tiers.Offset(st.ColumnInt64(4)),
		End:          tiers.Offset(st.ColumnInt64(5)),
		State:        tiers.SegmentState(st.ColumnInt64(7)),
		MaxTimestamp: st.ColumnInt64(8),
		Size:         st.ColumnInt64(9),
		MetaSize:     st.ColumnInt64(10),
		CRC32C:       uint32(st.ColumnInt64(11)),
		HasAborted:   st.ColumnBool(12),
		CopierEpoch:  tiers.LeaderEpoch(st.ColumnInt64(13)),
		Copier:       tiers.NodeID(st.ColumnInt64(14)),
		CreatedAt:    instant(st, 15),
	}
	copy(s.ID[:], st.ColumnRawBlob(0))
	var err error
	if s.Epochs, err = decodeLineage(st.ColumnRawBlob(6)); err != nil {
		return s, damaged("segments", err)
	}
	return s, nil
}

// readSegments returns the rows that the rest of the statement selects.
func readSegments(d *db, rest string, args ...any) (out []tiers.RemoteSegment, err error) {
	err = d.each("SELECT "+segmentColumns+" FROM segments "+rest, args, func(st *sqlite3.Stmt) error {
		s, serr := scanSegment(st)
		if serr == nil {
			out = append(out, s)
		}
		return serr
	})
	return out, err
}

// readSegment returns the row with an id, nil if there is none.
func readSegment(d *db, id tiers.SegmentID) (*tiers.RemoteSegment, error) {
	rows, err := readSegments(d, "WHERE id = ?", id[:])
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return &rows[0], nil
}

func insertSegment(d *db, s tiers.RemoteSegment, doomed bool) error {
	return d.exec("INSERT INTO segments ("+segmentColumns+", doomed) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
		s.ID[:], s.Partition.Topic[:], int64(s.Partition.Index), int64(s.Gen), int64(s.Base), int64(s.End), encodeLineage(s.Epochs), int64(s.State),
		s.MaxTimestamp, s.Size, s.MetaSize, int64(s.CRC32C), s.HasAborted, int64(s.CopierEpoch), int64(s.Copier), s.CreatedAt.UnixMilli(), doomed)
}

// Segments returns the rows of a partition's history.
func (s *Store) Segments(ctx context.Context, id tiers.PartitionID, gen tiers.HistoryGen) (out []tiers.RemoteSegment, err error) {
	const op = "segments"
	err = s.do(ctx, op, false, func(d *db) (err error) {
		_, _, ok, err := readPartition(d, id)
		if err != nil {
			return err
		}
		if !ok {
			return tiers.E(tiers.UnknownTopicOrPartition, op, id.String(), "there is no such partition")
		}
		out, err = readSegments(d, "WHERE topic = ? AND idx = ? AND gen = ? ORDER BY base, id", id.Topic[:], int64(id.Index), int64(gen))
		return err
	})
	return out, err
}

// move checks the fence, finds the row with the id and has f do the rest.
func (s *Store) move(ctx context.Context, op string, f partition.Fence, id tiers.SegmentID, do func(d *db, p control.Partition, row *tiers.RemoteSegment) error) error {
	return s.do(ctx, op, true, func(d *db) (err error) {
		p, err := checkFence(d, op, f)
		if err != nil {
			return err
		}
		row, err := readSegment(d, id)
		if err != nil {
			return err
		}
		return do(d, p, row)
	})
}

// CopyStarted adds a row.
func (s *Store) CopyStarted(ctx context.Context, f partition.Fence, seg tiers.RemoteSegment) error {
	return s.move(ctx, "start copy", f, seg.ID, func(d *db, p control.Partition, row *tiers.RemoteSegment) error {
		r, write, err := control.StartCopy(f, p.Leader, s.o.Now(), row, seg)
		if err != nil || !write {
			return err
		}
		return insertSegment(d, r, false)
	})
}

// CopyFinished stores the facts of a copy.
func (s *Store) CopyFinished(ctx context.Context, f partition.Fence, seg tiers.RemoteSegment) error {
	return s.move(ctx, "finish copy", f, seg.ID, func(d *db, _ control.Partition, row *tiers.RemoteSegment) error {
		r, write, err := control.FinishCopy(f, row, seg)
		if err != nil || !write {
			return err
		}
		return d.exec("UPDATE segments SET state = ?, max_timestamp = ?, size = ?, meta_size = ?, crc32c = ?, has_aborted = ? WHERE id = ?",
			int64(r.State), r.MaxTimestamp, r.Size, r.MetaSize, int64(r.CRC32C), r.HasAborted, r.ID[:])
	})
}

// DeleteStarted condemns a segment.
func (s *Store) DeleteStarted(ctx context.Context, f partition.Fence, id tiers.SegmentID) error {
	return s.move(ctx, "start delete", f, id, func(d *db, _ control.Partition, row *tiers.RemoteSegment) error {
		write, err := control.StartDelete(f, id, row)
		if err != nil || !write {
			return err
		}
		return d.exec("UPDATE segments SET state = ? WHERE id = ?", int64(tiers.DeleteStarted), id[:])
	})
}

// DeleteFinished removes a row.
func (s *Store) DeleteFinished(ctx context.Context, f partition.Fence, id tiers.SegmentID) error {
	return s.move(ctx, "finish delete", f, id, func(d *db, _ control.Partition, row *tiers.RemoteSegment) error {
		write, err := control.FinishDelete(f, id, row)
		if err != nil || !write {
			return err
		}
		return d.exec("DELETE FROM segments WHERE id = ?", id[:])
	})
}

// Doomed returns segments whose topic is gone.
func (s *Store) Doomed(ctx context.Context, limit int) (out []tiers.RemoteSegment, err error) {
	err = s.do(ctx, "doomed", false, func(d *db) (err error) {
		if err = control.CheckLimit(limit); err != nil {
			return err
		}
		out, err = readSegments(d, "WHERE doomed = 1 ORDER BY topic, idx, gen, base, id LIMIT ?", int64(limit))
		return err
	})
	return out, err
}

// Buried removes rows of segments whose topic is gone.
func (s *Store) Buried(ctx context.Context, ses control.Session, ids ...tiers.SegmentID) error {
	const op = "bury"
	return s.do(ctx, op, true, func(d *db) (err error) {
		if err := checkSession(d, op, ses); err != nil {
			return err
		}
		for _, id := range ids {
			alive, err := readSegments(d, "WHERE id = ? AND doomed = 0", id[:])
			if err != nil {
				return err
			}
			if len(alive) > 0 {
				return control.NotDoomed(alive[0])
			}
			if err := d.exec("DELETE FROM segments WHERE id = ?", id[:]); err != nil {
				return err
			}
		}
		return nil
	})
}

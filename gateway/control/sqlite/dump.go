package sqlite

import (
	"context"
	"errors"
	"strconv"

	"github.com/ncruces/go-sqlite3"

	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/tiers"
)

// Dump returns everything. The loop only copies the pages, which takes about a
// tenth of the time that reading the rows takes; the rows are read from the copy,
// so a snapshot neither holds up the commits nor pins the write-ahead log.
func (s *Store) Dump(ctx context.Context) (st control.State, err error) {
	const op = "dump"
	name := imageName + strconv.FormatInt(s.images.Add(1), 10)
	s.disk.mu.Lock()
	s.disk.images[name] = &image{}
	s.disk.mu.Unlock()
	defer func() {
		s.disk.mu.Lock()
		defer s.disk.mu.Unlock()
		delete(s.disk.images, name)
	}()
	err = s.do(ctx, op, false, func(d *db) (err error) {
		return d.conn.Backup("main", "file:"+name+"?vfs="+s.vfs)
	})
	if err != nil {
		return st, err
	}
	st, err = s.readImage(ctx, name)
	return st, s.explain(op, err)
}

// readImage reads a copy of the database.
func (s *Store) readImage(ctx context.Context, name string) (st control.State, err error) {
	s.disk.mu.Lock()
	leaveWAL(s.disk.images[name].SliceFile)
	s.disk.mu.Unlock()
	d, err := openDB("file:"+name+"?immutable=1&vfs="+s.vfs, sqlite3.OPEN_READONLY)
	if err != nil {
		return st, err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	old := d.conn.SetInterrupt(ctx)
	defer d.conn.SetInterrupt(old)
	if st, err = readState(d); errors.Is(err, sqlite3.INTERRUPT) {
		return control.State{}, tiers.E(tiers.TimedOut, "dump", "", "%w", context.Cause(ctx))
	}
	return st, err
}

// leaveWAL marks an image as one without a write-ahead log: bytes 18 and 19 of
// the header of SQLite's file format.
func leaveWAL(b []byte) {
	if len(b) > 19 {
		b[18], b[19] = 1, 1
	}
}

func readState(d *db) (st control.State, err error) {
	if st.Cluster, err = d.text("SELECT value FROM meta WHERE key = ?", keyCluster); err != nil {
		return st, err
	}
	rev, err := meta(d, keyRev)
	if err != nil {
		return st, err
	}
	st.Rev = control.Rev(rev)
	if st.NextProducer, err = meta(d, keyProducer); err != nil {
		return st, err
	}
	if st.Topics, err = readTopics(d, nil); err != nil {
		return st, err
	}
	if st.Segments, err = readSegments(d, "ORDER BY topic, idx, gen, base, id"); err != nil {
		return st, err
	}
	err = d.each("SELECT "+offsetColumns+" FROM offsets o ORDER BY group_id, topic, idx, gen", nil, func(row *sqlite3.Stmt) error {
		st.Offsets = append(st.Offsets, scanOffset(row))
		return nil
	})
	return st, err
}

// Load fills an empty store.
func (s *Store) Load(ctx context.Context, st control.State) error {
	const op = "load"
	return s.do(ctx, op, true, func(d *db) (err error) {
		if err = st.Valid(); err != nil {
			return err
		}
		full, err := d.number("SELECT EXISTS (SELECT 1 FROM topics) OR EXISTS (SELECT 1 FROM segments) OR (SELECT value FROM meta WHERE key = ?) > 0", keyRev)
		if err != nil {
			return err
		}
		if full != 0 {
			return tiers.E(tiers.Conflict, op, s.disk.path, "the control plane is not empty: use a new data directory")
		}
		return load(d, st.Normal())
	})
}

func load(d *db, st control.State) error {
	if err := d.exec("UPDATE meta SET value = ? WHERE key = ?", st.Cluster, keyCluster); err != nil {
		return err
	}
	for _, key := range []string{keyRev, keyFloor} {
		if err := setMeta(d, key, int64(st.Rev)); err != nil {
			return err
		}
	}
	if err := d.exec("UPDATE meta SET value = max(value, ?) WHERE key = ?", st.NextProducer, keyProducer); err != nil {
		return err
	}
	alive := make(map[tiers.TopicID]bool, len(st.Topics))
	for _, t := range st.Topics {
		alive[t.ID] = true
		if err := insertTopic(d, t); err != nil {
			return err
		}
	}
	for _, seg := range st.Segments {
		if err := insertSegment(d, seg, !alive[seg.Partition.Topic]); err != nil {
			return err
		}
	}
	for _, c := range st.Offsets {
		if err := insertOffset(d, c); err != nil {
			return err
		}
	}
	return nil
}

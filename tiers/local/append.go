package local

import (
	"errors"
	"fmt"
	"math"
	"path"
	"slices"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/batch"
	"github.com/strandline-io/strandline/tiers/fsys"
)

// The room that an active segment reserves ahead of its end.
const (
	reserveLeast = 64 << 10
	reserveMost  = 16 << 20
)

// Append writes data, the concatenation of stamped batches whose headers are in
// order in hs, at LogEnd: one write, no sync. The first must have base offset
// LogEnd. Lineage, indexes and producer state follow. On an error nothing of it
// is in the log; if even that cannot be assured, the log is Broken. While the disk
// is full it is ErrFull.
func (l *Log) Append(data []byte, hs []batch.Header) error {
	if err := l.usable("append"); err != nil {
		return err
	}
	if len(hs) == 0 && len(data) == 0 {
		return nil
	}
	if err := l.o.Disk.Full(); err != nil {
		return err
	}
	lineage, markers, err := l.planAppend(data, hs)
	if err != nil {
		return err
	}
	if hs[len(hs)-1].Last()-l.end > maxRelative {
		return tiers.E(tiers.InvalidRequest, "append", l.place, "%d batches span more than 2^31 offsets: append fewer at once", len(hs))
	}
	if err := l.append(data, hs, lineage); err != nil {
		l.o.Disk.noRoom(err)
		return err
	}
	l.takeIn(hs, markers)
	return nil
}

// append writes batches that were checked, with what must be on disk before them.
func (l *Log) append(data []byte, hs []batch.Header, lineage tiers.Lineage) error {
	if l.overflows(data, hs) {
		if err := l.Roll(); err != nil {
			return err
		}
	}
	if !slices.Equal(lineage, l.lineage) {
		if err := l.setLineage(lineage); err != nil {
			return err
		}
	}
	return l.write(data)
}

// planAppend checks what must hold of the batches, and returns the lineage with
// them and the markers of those that are control batches, by index.
func (l *Log) planAppend(data []byte, hs []batch.Header) (tiers.Lineage, map[int]marker, error) {
	var markers map[int]marker
	lineage, next, pos := l.lineage, l.end, int64(0)
	for i, h := range hs {
		if h.BaseOffset < next || i == 0 && h.BaseOffset != next || h.LastOffsetDelta < 0 || h.Size() > int64(len(data))-pos {
			return nil, nil, tiers.E(tiers.InvalidRequest, "append", l.place, "batch %d of %d has offsets %d to %d and %d bytes: the log ends at %d, %d bytes are left",
				i, len(hs), h.BaseOffset, h.Last(), h.Size(), next, int64(len(data))-pos)
		}
		var err error
		if h.LeaderEpoch >= 0 {
			if lineage, err = lineage.Append(h.LeaderEpoch, h.BaseOffset, next); err != nil {
				return nil, nil, tiers.E(tiers.FencedLeaderEpoch, "append", l.place, "%w", err)
			}
		}
		if h.Control() {
			m, err := readMarker(batch.NewDecoder(0), data[pos:pos+h.Size()])
			if err != nil {
				return nil, nil, tiers.E(tiers.CorruptMessage, "append", l.place, "control batch at offset %d: %w", h.BaseOffset, err)
			}
			if markers == nil {
				markers = map[int]marker{}
			}
			markers[i] = m
		}
		pos, next = pos+h.Size(), h.Next()
	}
	if pos != int64(len(data)) {
		return nil, nil, tiers.E(tiers.InvalidRequest, "append", l.place, "%d bytes behind the last of %d batches", int64(len(data))-pos, len(hs))
	}
	return lineage, markers, nil
}

// overflows reports whether the batches cannot be told by the 31-bit offsets and
// positions of the active segment's index.
func (l *Log) overflows(data []byte, hs []batch.Header) bool {
	s := l.active()
	size, _ := s.extent()
	return size > 0 && (hs[len(hs)-1].Last()-s.base > maxRelative || size+int64(len(data)) > math.MaxInt32)
}

// write writes data at the end of the active segment. If it fails it restores
// the file, so that no crash brings back what was reported as failed.
func (l *Log) write(data []byte) error {
	s := l.active()
	if l.dirty == nil {
		h, err := s.log.acquire()
		if err != nil {
			return tiers.E(tiers.StorageFailed, "append", l.place, "%w", err)
		}
		l.dirty = h
	}
	size, _ := s.extent()
	l.reserve(size + int64(len(data)))
	n, err := l.dirty.WriteAt(data, size)
	if err == nil && n == len(data) {
		return nil
	}
	err = fmt.Errorf("wrote %d of %d bytes: %w", n, len(data), err)
	if uerr := l.dirty.Truncate(size); uerr != nil {
		return l.fail("append", errors.Join(err, uerr))
	}
	if uerr := l.dirty.SyncData(); uerr != nil {
		return l.fail("append", errors.Join(err, uerr))
	}
	l.reserved = 0
	return tiers.E(tiers.StorageFailed, "append", l.place, "%w", err)
}

// reserve has the file system hold room for the bytes up to size and some more.
// It is only to write faster: a disk that is full shows when it is written to.
func (l *Log) reserve(size int64) {
	if size <= l.reserved {
		return
	}
	ahead := min(max(size, reserveLeast), reserveMost)
	l.reserved = max(size, min(size+ahead, l.o.Config.SegmentBytes))
	if err := l.dirty.Preallocate(l.reserved); err != nil {
		l.o.Log.Debug("no room could be reserved", "bytes", l.reserved, "err", err)
	}
}

// unreserve gives the room behind the end of the active segment back: cutting a
// file to its size frees what is reserved beyond it.
func (l *Log) unreserve() {
	size, _ := l.active().extent()
	if l.dirty == nil || l.reserved <= size {
		return
	}
	if err := l.dirty.Truncate(size); err != nil {
		l.o.Log.Debug("reserved room could not be given back", "err", err)
	}
	l.reserved = 0
}

// takeIn makes written batches part of the log.
func (l *Log) takeIn(hs []batch.Header, markers map[int]marker) {
	now := l.o.Now()
	s := l.active()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.size == 0 {
		s.first = now
	}
	s.modified = now
	pos := s.size
	for i, h := range hs {
		s.add(h, pos, l.o.Config.IndexInterval)
		pos += h.Size()
		if a, ok := l.prods.apply(h, markers[i], now); ok {
			s.aborted = append(s.aborted, a)
		}
	}
	l.end = hs[len(hs)-1].Next()
}

// setLineage makes the lineage true on disk, then in memory.
func (l *Log) setLineage(lineage tiers.Lineage) error {
	name := path.Join(l.dir, epochFile)
	if err := fsys.WriteFileAtomic(l.o.FS, name, encodeEpochs(lineage), filePerm); err != nil {
		return tiers.E(tiers.StorageFailed, "write", name, "%w", err)
	}
	l.lineage = lineage
	return nil
}

// Assign records that epoch e starts at s, durably (T6).
func (l *Log) Assign(e tiers.LeaderEpoch, s tiers.Offset) error {
	if err := l.usable("assign epoch"); err != nil {
		return err
	}
	lineage := l.lineage.Assign(e, s)
	if slices.Equal(lineage, l.lineage) {
		return nil
	}
	return l.setLineage(lineage)
}

// Sync makes every record below LogEnd durable. After a failed sync the log is
// Broken: nobody knows what is on disk, so it must be opened again (fsyncgate).
func (l *Log) Sync() error {
	if err := l.usable("sync"); err != nil {
		return err
	}
	if l.dirty == nil {
		return nil
	}
	if err := l.dirty.SyncData(); err != nil {
		return l.fail("sync", err)
	}
	l.flushed.Store(int64(l.end))
	l.dirty.release()
	l.dirty = nil
	return nil
}

// Roll closes the active segment and starts an empty one at LogEnd, with a
// producer snapshot at that offset. An empty active segment stays.
//
// The closed segment is durable, indexes included, before the new one exists, so
// only the last segment of a log can end with unsynced bytes.
func (l *Log) Roll() error {
	if err := l.usable("roll"); err != nil {
		return err
	}
	err := l.roll()
	l.o.Disk.noRoom(err)
	return err
}

func (l *Log) roll() error {
	old := l.active()
	if size, _ := old.extent(); size == 0 {
		return nil
	}
	l.unreserve()
	if err := l.Sync(); err != nil {
		return err
	}
	if err := l.writeSideFiles(old); err != nil {
		return err
	}
	l.ExpireProducers()
	if err := l.writeSnapshot(l.end, l.prods.snapshot()); err != nil {
		return err
	}
	next, err := l.create(l.end)
	if err != nil {
		return err
	}
	old.toFiles()
	l.setSegments(append(slices.Clip(l.segs), next))
	l.o.Disk.wantCheckpoint()
	return nil
}

// create makes an empty segment, durably. If that fails there must be none:
// appends go on behind its base.
func (l *Log) create(base tiers.Offset) (*segment, error) {
	s := newSegment(&l.o, l.dir, base)
	s.modified = l.o.Now()
	name := s.path(logSuffix)
	f, err := l.o.FS.OpenFile(name, openCreate, filePerm)
	if err == nil {
		err = f.Close()
	}
	if err == nil {
		err = l.o.FS.SyncDir(l.dir)
	}
	if err != nil {
		if uerr := errors.Join(removeIfThere(l.o.FS, name), l.o.FS.SyncDir(l.dir)); uerr != nil {
			return nil, l.fail("create segment", errors.Join(err, uerr))
		}
		return nil, tiers.E(tiers.StorageFailed, "create", name, "%w", err)
	}
	l.reserved = 0
	return s, nil
}

// Close syncs, writes what spares the next Open a scan, and closes the files.
// Readers may still use their snapshots. A log that is Broken, or whose side
// files could not be written, is recovered by the next Open. If that is in this
// process, and the log is Broken, Open keeps what was acknowledged and cuts what
// was not: see opening.doubt.
func (l *Log) Close() error {
	if l.closed {
		return nil
	}
	err := l.usable("close")
	if err == nil {
		err = l.settle()
	}
	l.closed = true
	if l.dirty != nil {
		l.dirty.release()
		l.dirty = nil
	}
	l.o.Disk.detach(l, err == nil)
	l.current.Release()
	return err
}

// settle makes everything durable that a clean start reads.
func (l *Log) settle() error {
	if err := l.Sync(); err != nil {
		return err
	}
	if err := l.writeSideFiles(l.active()); err != nil {
		return err
	}
	l.ExpireProducers()
	if err := l.writeSnapshot(l.end, l.prods.snapshot()); err != nil {
		return err
	}
	if err := l.o.FS.SyncDir(l.dir); err != nil {
		return tiers.E(tiers.StorageFailed, "sync folder", l.dir, "%w", err)
	}
	return nil
}

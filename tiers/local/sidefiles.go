package local

import (
	"errors"
	"io/fs"
	"path"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/fsys"
)

// writeSideFiles writes and syncs the indexes of a segment that has them in
// memory. The time index gets the newest timestamp as its last entry. Their
// names are durable with the next SyncDir.
func (l *Log) writeSideFiles(s *segment) error {
	s.mu.Lock()
	if !s.closed {
		s.addTime()
	}
	offsets, times, aborted := s.offsets, s.times, s.aborted
	s.mu.Unlock()
	if err := l.writeFile(s.path(indexSuffix), encodeOffsetIndex(offsets)); err != nil {
		return err
	}
	if err := l.writeFile(s.path(timeSuffix), encodeTimeIndex(times)); err != nil {
		return err
	}
	if len(aborted) == 0 {
		return l.removeFile(s.path(txnSuffix))
	}
	return l.writeFile(s.path(txnSuffix), encodeTxnIndex(aborted))
}

// toFiles makes readers use the index files, which are complete.
func (s *segment) toFiles() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.indexBytes = max(int64(len(s.offsets))*offsetEntrySize, int64(len(s.times))*timeEntrySize)
	s.closed, s.offsets, s.times = true, nil, nil
}

func (l *Log) writeSnapshot(at tiers.Offset, b []byte) error {
	return l.writeFile(path.Join(l.dir, fileName(at, snapshotSuffix)), b)
}

// writeFile writes and syncs a file in place: whoever reads it after a crash
// checks it.
func (l *Log) writeFile(name string, b []byte) error {
	f, err := l.o.FS.OpenFile(name, openCreate, filePerm)
	if err == nil {
		if _, err = f.Write(b); err == nil {
			err = f.Sync()
		}
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}
	if err != nil {
		return tiers.E(tiers.StorageFailed, "write", name, "%w", err)
	}
	return nil
}

func (l *Log) removeFile(name string) error {
	if err := removeIfThere(l.o.FS, name); err != nil {
		return tiers.E(tiers.StorageFailed, "remove", name, "%w", err)
	}
	return nil
}

func removeIfThere(fsy fsys.FS, name string) error {
	if err := fsy.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

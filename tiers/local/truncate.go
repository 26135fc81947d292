package local

import (
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/strandline-io/strandline/tiers"
)

// TruncateTo cuts the log so that it ends at o (T8), or at the start of the batch
// that o is inside of. It counts as a truncation if o < LogEnd. The lineage loses
// entries from o on in any case: one may be assigned that owns no record yet.
func (l *Log) TruncateTo(o tiers.Offset) error {
	if err := l.usable("truncate"); err != nil {
		return err
	}
	if o < 0 {
		return tiers.E(tiers.InvalidRequest, "truncate", l.place, "offset %d is negative", o)
	}
	if o >= l.end {
		return l.trimLineage(o)
	}
	if o < l.segs[0].base {
		return l.Restart(Start{LogStart: min(l.LogStart(), o), At: o, Lineage: l.lineage.TruncateEnd(o)})
	}
	s := l.segs[l.current.floor(o)]
	size, next := s.extent()
	h, _, ok, err := s.seek(newWalker(s.log, size, next, hopWindow), o)
	if err != nil {
		return l.current.readFailed(s, err)
	}
	if ok {
		o = min(o, h.BaseOffset)
	}
	return l.lower(o, min(o, l.LogStart()), func() error { return l.cutTo(o) })
}

func (l *Log) trimLineage(o tiers.Offset) error {
	lineage := l.lineage.TruncateEnd(o)
	if len(lineage) == len(l.lineage) {
		return nil
	}
	return l.setLineage(lineage)
}

// lower runs cut after the checkpoint files hold at most these values. If cut
// fails half way, nobody knows what is on disk.
func (l *Log) lower(point, start tiers.Offset, cut func() error) error {
	began := false
	err := l.o.Disk.lower(l, diskEntry{point: point, start: start, high: point}, func() error {
		began = true
		l.flushed.Store(min(l.flushed.Load(), int64(point)))
		l.high.Store(min(l.high.Load(), int64(point)))
		l.truncs++
		return cut()
	})
	switch {
	case err == nil:
		return nil
	case began:
		return l.fail("truncate", err)
	}
	return tiers.E(tiers.StorageFailed, "truncate", l.place, "%w", err)
}

// cutTo removes the records from o on, the newest first: after a crash the log
// is a prefix of what it was.
func (l *Log) cutTo(o tiers.Offset) error {
	keep := slices.IndexFunc(l.segs, func(s *segment) bool { return s.base > o })
	if keep < 0 {
		keep = len(l.segs)
	}
	for i := len(l.segs) - 1; i >= keep; i-- {
		if err := l.forgetSegment(l.segs[i]); err != nil {
			return err
		}
	}
	last, err := l.shorten(l.segs[keep-1], o)
	if err != nil {
		return err
	}
	l.setSegments(append(slices.Clone(l.segs[:keep-1]), last))
	_, l.end = last.extent()
	l.flushed.Store(int64(l.end)) // shorten has synced what stays
	l.high.Store(min(l.high.Load(), int64(l.end)))
	l.logStart.Store(min(l.logStart.Load(), int64(l.end)))
	l.reserved = 0
	if err := l.trimLineage(l.end); err != nil {
		return err
	}
	return l.reloadProducers(l.end)
}

// shorten cuts a segment at o and returns the one that takes its place. The old
// one keeps serving its readers with what stays.
func (l *Log) shorten(old *segment, o tiers.Offset) (*segment, error) {
	if l.dirty != nil {
		l.dirty.release()
		l.dirty = nil
	}
	s := newSegment(&l.o, l.dir, old.base)
	s.log = old.log.share()
	size, next := old.extent()
	h, err := s.log.acquire()
	if err != nil {
		return nil, err
	}
	defer h.release()
	pos, err := s.refill(newWalker(h, size, next, hopWindow), o, l.o.Config.IndexInterval)
	if err != nil {
		return nil, err
	}
	old.cut(pos, s.next)
	if err := h.Truncate(pos); err != nil {
		return nil, err
	}
	if err := h.Sync(); err != nil { // else bytes of the old history could follow new ones after a crash
		return nil, err
	}
	old.mu.RLock()
	defer old.mu.RUnlock()
	s.modified, s.first = l.o.Now(), old.first
	s.aborted = slices.DeleteFunc(slices.Clone(old.aborted), func(a AbortedTxn) bool { return a.Last >= s.next })
	return s, nil
}

// Restart drops everything and starts an empty log (full truncation).
func (l *Log) Restart(st Start) error {
	if err := l.usable("restart"); err != nil {
		return err
	}
	if err := st.valid(); err != nil {
		return tiers.E(tiers.InvalidRequest, "restart", l.place, "%w", err)
	}
	err := l.lower(min(st.At, l.Flushed()), min(st.LogStart, l.LogStart()), func() error {
		for _, s := range slices.Backward(l.segs) {
			if err := l.forgetSegment(s); err != nil {
				return err
			}
		}
		return l.begin(st)
	})
	if err != nil {
		return err
	}
	if err := l.o.Disk.raiseStart(l, st.LogStart, func() {}); err != nil {
		return l.fail("restart", err)
	}
	return nil
}

func (st Start) valid() error {
	switch {
	case st.LogStart < 0 || st.At < st.LogStart:
		return fmt.Errorf("B1: log start %d, local start %d", st.LogStart, st.At)
	case len(st.Lineage) > 0 && st.Lineage[len(st.Lineage)-1].Start > st.At:
		return fmt.Errorf("B5: lineage %s reaches beyond %d", st.Lineage, st.At)
	}
	return st.Lineage.Valid()
}

// begin makes an empty log of a folder without segments. The .log file comes
// last: until it is there the folder counts as empty.
func (l *Log) begin(st Start) error {
	if l.dirty != nil {
		l.dirty.release()
		l.dirty = nil
	}
	if err := l.removeSnapshots(func(tiers.Offset) bool { return true }); err != nil {
		return err
	}
	prods := newProducers(l.place)
	if len(st.Producers) > 0 {
		if err := prods.loadSnapshot(st.Producers, l.o.Now()); err != nil {
			return fmt.Errorf("producer snapshot at %d: %w", st.At, err)
		}
	}
	if err := l.writeSnapshot(st.At, prods.snapshot()); err != nil {
		return err
	}
	if err := l.setLineage(st.Lineage); err != nil {
		return err
	}
	s, err := l.create(st.At)
	if err != nil {
		return err
	}
	l.prods, l.end = prods, st.At
	l.flushed.Store(int64(st.At))
	l.logStart.Store(int64(st.LogStart))
	l.high.Store(int64(st.At))
	l.setSegments([]*segment{s})
	return nil
}

// forgetSegment drops a segment of a history that is cut: its readers see no
// more of it.
func (l *Log) forgetSegment(s *segment) error {
	s.cut(0, s.base)
	return l.drop(s)
}

// drop takes a segment out of the folder; its files go when no reader has it any
// more. The .log goes first and durably: a crash leaves no hole between the
// segments, and side files alone never make a log. If the .log is not
// doomed after an error, nothing was changed.
func (l *Log) drop(s *segment) error {
	l.removals++
	gone := fmt.Sprintf(".%d%s", l.removals, deletedSuffix)
	if err := s.log.rename(s.path(logSuffix) + gone); err != nil && !l.isGone(s.path(logSuffix)) {
		s.log.called(s.path(logSuffix))
		return err
	}
	s.log.doom()
	err := l.o.FS.SyncDir(l.dir)
	// The names must be given up in any case: another segment may get them.
	for _, f := range []*file{s.index, s.time} {
		f.doom()
		if rerr := f.rename(f.path() + gone); rerr != nil && !isNotExist(rerr) {
			err = errors.Join(err, rerr)
		}
	}
	return errors.Join(err, l.removeFile(s.path(txnSuffix)), l.removeFile(s.path(snapshotSuffix)))
}

// isGone reports that there is no file of that name for certain: what was reported
// to have failed has happened, now or earlier.
func (l *Log) isGone(name string) bool {
	_, err := l.o.FS.Stat(name)
	return isNotExist(err)
}

// DropBefore removes the closed segments that end at or below o from disk and
// moves LocalLogStart. It does not move LogStart. Files go only after readers
// have released them (report 091).
func (l *Log) DropBefore(o tiers.Offset) error {
	if err := l.usable("drop"); err != nil {
		return err
	}
	n := 0
	var err error
	for ; err == nil && n < len(l.segs)-1 && l.segs[n+1].base <= o; n++ {
		s := l.segs[n]
		if err = l.drop(s); err != nil && !s.log.isDoomed() {
			break
		}
	}
	if n > 0 {
		l.setSegments(slices.Clone(l.segs[n:]))
	}
	if err != nil {
		return tiers.E(tiers.StorageFailed, "drop", l.place, "%w", err)
	}
	return nil
}

// RaiseLogStart moves LogStart up to o and writes it to the disk's checkpoint. A
// lower o changes nothing.
func (l *Log) RaiseLogStart(o tiers.Offset) error {
	if err := l.usable("raise log start"); err != nil {
		return err
	}
	if o > l.end {
		return tiers.E(tiers.OffsetOutOfRange, "raise log start", l.place, "offset %d is above the log end %d", o, l.end)
	}
	if o <= l.LogStart() {
		return nil
	}
	if err := l.o.Disk.raiseStart(l, o, func() { l.logStart.Store(int64(o)) }); err != nil {
		return err
	}
	lineage := l.lineage.TruncateStart(o)
	if slices.Equal(lineage, l.lineage) {
		return nil
	}
	return l.setLineage(lineage)
}

// removeSnapshots removes the producer snapshots whose offset matches.
func (l *Log) removeSnapshots(match func(tiers.Offset) bool) error {
	list, err := l.o.FS.ReadDir(l.dir)
	if err != nil {
		return err
	}
	for _, e := range list {
		if o, suffix, ok := parseName(e.Name()); ok && suffix == snapshotSuffix && match(o) {
			if err := l.removeFile(path.Join(l.dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

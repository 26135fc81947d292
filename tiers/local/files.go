package local

import (
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/batch"
	"github.com/strandline-io/strandline/tiers/fsys"
)

// Files opens the closed segment with this base for the copier. A segment with a
// damaged batch is an error of kind CorruptMessage.
func (s *Snapshot) Files(base tiers.Offset) (*SegmentFiles, error) {
	i := s.floor(base)
	seg := s.segs[i]
	if seg.base != base || i+1 == len(s.segs) {
		return nil, tiers.E(tiers.OffsetOutOfRange, "open segment", s.place, "no closed segment begins at offset %d", base)
	}
	f := &SegmentFiles{Segment: seg.facts(s.segs[i+1].base), Log: seg.log}
	seg.mu.RLock()
	f.TxnIndex = encodeTxnIndex(seg.aborted)
	seg.mu.RUnlock()
	var err error
	if f.OffsetIndex, f.TimeIndex, err = seg.indexFiles(f.Segment, s.interval); err == nil {
		f.Producers, err = s.producersFile(i, f.Segment.Next)
	}
	if err != nil {
		return nil, s.readFailed(seg, err)
	}
	return f, nil
}

// indexFiles makes what the index files must hold of the log itself, and so reads
// every batch of the segment: what goes to the bucket is sound, and has indexes
// that fit it, whatever happened to the files on disk.
func (s *segment) indexFiles(facts Segment, interval int64) (offsets, times []byte, err error) {
	w := newWalker(s.log, facts.Size, facts.Next, int(min(scanWindow, max(facts.Size, batch.HeaderSize))))
	fresh := &segment{base: s.base, next: s.base, newest: -1, newestAt: s.base}
	for fresh.size < facts.Size {
		h, _, err := w.batch(fresh.size, fresh.next)
		if err != nil {
			return nil, nil, err
		}
		fresh.add(h, fresh.size, interval)
	}
	fresh.addTime()
	return encodeOffsetIndex(fresh.offsets), encodeTimeIndex(fresh.times), nil
}

// producersFile reads the producer snapshot at next, or makes it of an older one
// and the log.
func (s *Snapshot) producersFile(i int, next tiers.Offset) ([]byte, error) {
	b, err := fsys.ReadFile(s.fs, s.snapshotPath(next))
	if err == nil {
		_, err = decodeSnapshot(b)
	}
	if err == nil {
		return b, nil
	}
	s.out.Warn("a producer snapshot is made again from the log", "file", s.snapshotPath(next), "err", err)
	p, err := s.producersAt(s.segs[:i+1], next)
	if err != nil {
		return nil, err
	}
	return p.snapshot(), nil
}

package local

import (
	"slices"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/batch"
)

// FindTime returns the first record with timestamp >= ts and offset >= from and
// < end. ok is false if there is none. One batch is decompressed, up to
// batch.DefaultMaxDecompressed; if it is larger the answer is its first offset.
func (s *Snapshot) FindTime(ts int64, from, end tiers.Offset) (o tiers.Offset, at int64, ok bool, err error) {
	for i := s.floor(from); i < len(s.segs) && s.segs[i].base < end; i++ {
		seg := s.segs[i]
		if newest, _ := seg.newestTime(); newest < ts {
			continue
		}
		o, at, ok, err = seg.findTime(ts, from, end)
		if err != nil || ok {
			return o, at, ok && o < end, s.readFailed(seg, err)
		}
	}
	return 0, 0, false, nil
}

func (s *segment) newestTime() (ts int64, at tiers.Offset) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.newest, s.newestAt
}

// findTime is FindTime within a segment; a record at or behind end may be the
// answer, it is the first of this and all later segments then.
func (s *segment) findTime(ts int64, from, end tiers.Offset) (o tiers.Offset, at int64, ok bool, err error) {
	start := max(from, s.base)
	if e, found := s.floorTimeEntry(ts); found {
		start = max(start, s.base+tiers.Offset(e.rel))
	}
	err = s.eachBatch(start, end, func(w *walker, h batch.Header, pos int64) (bool, error) {
		if h.MaxTimestamp < ts {
			return true, nil
		}
		b, err := w.view(pos, h.Size())
		if err != nil {
			return false, err
		}
		o, at, ok, err = firstAt(b, h, ts, from)
		return !ok, err
	})
	return o, at, ok, err
}

// firstAt finds the first record of a batch with timestamp >= ts and offset >=
// from.
func firstAt(b []byte, h batch.Header, ts int64, from tiers.Offset) (o tiers.Offset, at int64, ok bool, err error) {
	if !batch.VerifyCRC(b) {
		return 0, 0, false, damage{0, "the CRC does not hold"}
	}
	err = batch.NewDecoder(0).Records(b, func(r batch.Record) bool {
		o, at, ok = r.Offset, r.Timestamp, r.Timestamp >= ts && r.Offset >= from
		return !ok
	})
	if tiers.KindOf(err) == tiers.MessageTooLarge {
		return max(h.BaseOffset, from), h.MaxTimestamp, true, nil
	}
	return o, at, ok, err
}

// floorTimeEntry returns the last entry of the time index that is not newer than
// ts: no record below its offset's batch is.
func (s *segment) floorTimeEntry(ts int64) (e timeEntry, ok bool) {
	s.mu.RLock()
	closed, times := s.closed, s.times
	s.mu.RUnlock()
	if !closed {
		if i := floorTime(times, ts); i >= 0 {
			return times[i], true
		}
		return e, false
	}
	e, ok, err := s.floorTimeInFile(ts)
	if err != nil {
		s.distrust(err)
		return e, false
	}
	return e, ok
}

// eachBatch calls f for the batches from the one that holds from on, up to those
// that begin at end, until f returns false.
func (s *segment) eachBatch(from, end tiers.Offset, f func(w *walker, h batch.Header, pos int64) (bool, error)) error {
	size, next := s.extent()
	w := newWalker(s.log, size, next, hopWindow)
	h, pos, ok, err := s.seek(w, from)
	for err == nil && ok && h.BaseOffset < end {
		if ok, err = f(w, h, pos); err != nil || !ok {
			break
		}
		pos += h.Size()
		if ok = pos < size; ok {
			h, err = w.header(pos, h.Next())
		}
	}
	if s.wasCut(size) {
		return nil // what was seen beyond the cut is stale, as the reader will learn from its tokens
	}
	return err
}

// MaxTimestamp returns the newest timestamp in [from,end) and the first offset
// that carries it.
func (s *Snapshot) MaxTimestamp(from, end tiers.Offset) (o tiers.Offset, at int64, ok bool, err error) {
	best := candidate{ts: -1}
	for i := s.floor(from); i < len(s.segs) && s.segs[i].base < end; i++ {
		seg := s.segs[i]
		if newest, _ := seg.newestTime(); newest <= best.ts {
			continue
		}
		if err := seg.newestBatch(&best, from, end, s.next(i) <= end); err != nil {
			return 0, 0, false, s.readFailed(seg, err)
		}
	}
	if best.ts < 0 {
		return 0, 0, false, nil
	}
	err = best.seg.eachBatch(best.base, best.base+1, func(w *walker, h batch.Header, pos int64) (bool, error) {
		b, err := w.view(pos, h.Size())
		if err == nil {
			o, at, err = newestRecord(b, h, from, end)
		}
		return false, err
	})
	return o, at, err == nil, s.readFailed(best.seg, err)
}

// candidate is the batch with the newest timestamp so far.
type candidate struct {
	seg  *segment
	base tiers.Offset
	ts   int64
}

// newestBatch makes best the first batch in [from, end) that is newer than it. If
// the whole segment is in the range, the time index knows.
func (s *segment) newestBatch(best *candidate, from, end tiers.Offset, toEnd bool) error {
	first, stop := from, end
	if from <= s.base && toEnd {
		_, at := s.newestTime()
		first, stop = at, at+1
	}
	return s.eachBatch(first, stop, func(w *walker, h batch.Header, pos int64) (bool, error) {
		ts := h.MaxTimestamp
		if ts > best.ts && (h.BaseOffset < from || h.Next() > end) { // only some of its records count
			b, err := w.view(pos, h.Size())
			if err == nil {
				_, ts, err = newestRecord(b, h, from, end)
			}
			if err != nil {
				return false, err
			}
		}
		if ts > best.ts {
			*best = candidate{s, h.BaseOffset, ts}
		}
		return true, nil
	})
}

// newestRecord returns the first record of a batch in [from, end) that carries
// the newest timestamp of them, -1 if there is none.
func newestRecord(b []byte, h batch.Header, from, end tiers.Offset) (o tiers.Offset, at int64, err error) {
	if !batch.VerifyCRC(b) {
		return 0, 0, damage{0, "the CRC does not hold"}
	}
	at = -1
	err = batch.NewDecoder(0).Records(b, func(r batch.Record) bool {
		if r.Offset >= from && r.Offset < end && r.Timestamp > at {
			o, at = r.Offset, r.Timestamp
		}
		return true
	})
	if tiers.KindOf(err) == tiers.MessageTooLarge {
		return max(h.BaseOffset, from), h.MaxTimestamp, nil
	}
	return o, at, err
}

// Aborted returns the aborted transactions that overlap [from, end), by first
// offset.
func (s *Snapshot) Aborted(from, end tiers.Offset) ([]AbortedTxn, error) {
	var out []AbortedTxn
	for i := s.floor(from); i < len(s.segs); i++ {
		seg := s.segs[i]
		seg.mu.RLock()
		aborted := seg.aborted
		seg.mu.RUnlock()
		for _, a := range aborted {
			if a.Last >= from && a.First < end {
				out = append(out, a)
			}
			// Every transaction that began below LastStable was decided here, so
			// what comes later does not reach below end.
			if a.LastStable >= end {
				return sortAborted(out), nil
			}
		}
	}
	return sortAborted(out), nil
}

func sortAborted(txns []AbortedTxn) []AbortedTxn {
	slices.SortFunc(txns, func(a, b AbortedTxn) int { return int(min(max(a.First-b.First, -1), 1)) })
	return txns
}

package local

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sort"
	"sync"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/batch"
)

// indexPage is how much of an index file is read at once: a page of the disk
// cache.
const indexPage = 4096

// windows are the buffers of readers that go from header to header.
type windows struct{ pool sync.Pool }

type window [hopWindow]byte

func (w *windows) get() *window {
	if b, ok := w.pool.Get().(*window); ok {
		return b
	}
	return new(window)
}

func (w *windows) put(b *window) { w.pool.Put(b) }

// floorEntry returns the index entry from which going forward meets the batch
// that holds o, or the first behind it.
func (s *segment) floorEntry(o tiers.Offset) (e offsetEntry, ok bool) {
	s.mu.RLock()
	closed, offsets := s.closed, s.offsets
	s.mu.RUnlock()
	rel := int64(o - s.base)
	if !closed {
		if i := floorOffset(offsets, rel); i >= 0 {
			return offsets[i], true
		}
		return e, false
	}
	e, ok, err := s.floorInFile(rel)
	if err != nil {
		s.distrust(err)
		return e, false
	}
	return e, ok
}

// distrust says once that an index is not used.
func (s *segment) distrust(err error) {
	if !s.warned.Swap(true) {
		s.out.Warn("an index does not fit its segment and is not used; it is made again at the next start", "segment", s.log.path(), "err", err)
	}
}

// floorInFile is floorOffset in the .index file: it halves until a page is left.
func (s *segment) floorInFile(rel int64) (e offsetEntry, ok bool, err error) {
	n, err := entryCount(s.index, offsetEntrySize)
	if err != nil {
		return e, false, err
	}
	page := s.windows.get()
	defer s.windows.put(page)
	b, err := narrow(s.index, page[:indexPage], n, offsetEntrySize, func(b []byte) bool { return int64(readOffsetEntry(b).rel) > rel })
	if err != nil {
		return e, false, err
	}
	i := sort.Search(len(b)/offsetEntrySize, func(i int) bool { return int64(readOffsetEntry(b[i*offsetEntrySize:]).rel) > rel })
	if i == 0 {
		return e, false, nil
	}
	return readOffsetEntry(b[(i-1)*offsetEntrySize:]), true, nil
}

// floorTimeInFile is floorTime in the .timeindex file.
func (s *segment) floorTimeInFile(ts int64) (e timeEntry, ok bool, err error) {
	n, err := entryCount(s.time, timeEntrySize)
	if err != nil {
		return e, false, err
	}
	above := func(b []byte) bool { return int64(binary.BigEndian.Uint64(b)) > ts }
	page := s.windows.get()
	defer s.windows.put(page)
	b, err := narrow(s.time, page[:indexPage], n, timeEntrySize, above)
	if err != nil {
		return e, false, err
	}
	i := sort.Search(len(b)/timeEntrySize, func(i int) bool { return above(b[i*timeEntrySize:]) })
	if i == 0 {
		return e, false, nil
	}
	return readTimeEntry(b[(i-1)*timeEntrySize:]), true, nil
}

func entryCount(f *file, size int64) (int64, error) {
	h, err := f.acquire()
	if err != nil {
		return 0, err
	}
	defer h.release()
	st, err := h.Stat()
	if err != nil {
		return 0, err
	}
	if st.Size()%size != 0 {
		return 0, fmt.Errorf("%d bytes are no whole number of entries", st.Size())
	}
	return st.Size() / size, nil
}

// narrow returns a page of entries that holds the last one which is not above,
// if there is one.
func narrow(f *file, page []byte, n, size int64, above func([]byte) bool) ([]byte, error) {
	low, high, fits := int64(0), n, int64(len(page))/size // the wanted entry is in [low, high)
	for high-low > fits {
		mid := (low + high) / 2
		if _, err := f.ReadAt(page[:size], mid*size); err != nil {
			return nil, err
		}
		if above(page) {
			high = mid
		} else {
			low = mid
		}
	}
	b := page[:(high-low)*size]
	if len(b) == 0 {
		return b, nil
	}
	_, err := f.ReadAt(b, low*size)
	return b, err
}

// seek returns the first batch whose last offset is at or above from. ok is
// false if the segment has none. Damaged bytes that end below from are passed
// over; others are a damage error.
func (s *segment) seek(w *walker, from tiers.Offset) (h batch.Header, pos int64, ok bool, err error) {
	e, indexed := s.floorEntry(from)
	if !indexed {
		return s.hop(w, 0, from)
	}
	if int64(e.pos) >= w.end { // cut off meanwhile, and so is what lies behind it
		return h, 0, false, nil
	}
	h, err = w.header(int64(e.pos), s.base)
	switch {
	case err != nil && !errors.As(err, new(damage)):
		return h, 0, false, err
	case err != nil || h.Last() != s.base+tiers.Offset(e.rel):
		s.distrust(fmt.Errorf("no batch that ends with offset %d at byte %d", s.base+tiers.Offset(e.rel), e.pos))
		return s.hop(w, 0, from)
	}
	return s.hop(w, int64(e.pos), from)
}

// hop goes forward from pos to the first batch whose last offset is at or above
// from.
func (s *segment) hop(w *walker, pos int64, from tiers.Offset) (h batch.Header, at int64, ok bool, err error) {
	least := s.base
	for pos < w.end {
		h, err = w.header(pos, least)
		if err != nil {
			if h, pos, err = passOver(w, pos, least, from, err); err != nil {
				return h, pos, false, err
			}
		}
		if h.Last() >= from {
			return h, pos, true, nil
		}
		pos, least = pos+h.Size(), h.Next()
	}
	return h, pos, false, nil
}

// resyncReach bounds how far a reader looks for the end of damaged bytes.
const resyncReach = 4 << 20

// passOver finds the first sound batch behind damaged bytes that all lie below
// from; otherwise it returns err.
func passOver(w *walker, pos int64, least, from tiers.Offset, err error) (batch.Header, int64, error) {
	if from <= least || !errors.As(err, new(damage)) {
		return batch.Header{}, pos, err
	}
	h, at, ok, rerr := w.resync(pos, min(w.end, pos+resyncReach), least, from+1)
	switch {
	case rerr != nil:
		return h, pos, rerr
	case !ok:
		return h, pos, err
	}
	return h, at, nil
}

// refill makes the indexes in memory again from the headers of its batches
// that end at or below o, and returns where they end.
func (s *segment) refill(w *walker, o tiers.Offset, interval int64) (pos int64, err error) {
	for pos < w.end {
		h, err := w.header(pos, s.next)
		if errors.As(err, new(damage)) {
			again, at, ok, rerr := w.resync(pos, w.end, s.next, o)
			if rerr != nil {
				return 0, rerr
			}
			if !ok {
				return 0, err
			}
			h, pos, err = again, at, nil
		}
		if err != nil {
			return 0, err
		}
		if h.Next() > o {
			break
		}
		s.add(h, pos, interval)
		pos += h.Size()
	}
	return pos, nil
}

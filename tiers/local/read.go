package local

import (
	"errors"
	"math"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/batch"
)

// Read returns whole batches from the one that holds from on (or the next one,
// where compaction left a hole), none of which ends above end. At most maxBytes,
// except that with minOne the first batch may be larger (KIP-74). The bytes are
// read into memory from alloc (len n wanted, return a slice of len n); nil alloc
// allocates. An empty result means that there is no batch in [from, end), or
// that the first is larger than maxBytes. Bytes that do not parse as a batch, or
// whose CRC does not hold, are an error of kind CorruptMessage where the result
// would begin with them; a result ends before them otherwise. A from below Start
// is of kind OffsetOutOfRange.
func (s *Snapshot) Read(from, end tiers.Offset, maxBytes int, minOne bool, alloc func(n int) []byte) ([]byte, error) {
	if from < s.Start() {
		return nil, tiers.E(tiers.OffsetOutOfRange, "read", s.place, "offset %d is below the local start %d", from, s.Start())
	}
	if alloc == nil {
		alloc = func(n int) []byte { return make([]byte, n) }
	}
	for i := s.floor(from); i < len(s.segs) && s.segs[i].base < end; i++ {
		b, found, err := s.segs[i].read(from, end, maxBytes, minOne, alloc)
		if err != nil || found {
			return b, s.readFailed(s.segs[i], err)
		}
	}
	return nil, nil
}

// readFailed names the kind of an error of a read, nil if err is nil.
func (s *Snapshot) readFailed(seg *segment, err error) error {
	var d damage
	switch {
	case err == nil:
		return nil
	case errors.As(err, &d):
		return tiers.E(tiers.CorruptMessage, "read", s.place, "%s: %w", seg.log.path(), err)
	}
	return tiers.E(tiers.StorageFailed, "read", s.place, "%s: %w", seg.log.path(), err)
}

// read is Read within a segment. found is false if it has no batch at or behind
// from.
func (s *segment) read(from, end tiers.Offset, maxBytes int, minOne bool, alloc func(int) []byte) (b []byte, found bool, err error) {
	h, err := s.log.acquire()
	if err != nil {
		return nil, false, err
	}
	defer h.release()
	size, next := s.extent()
	first, pos, ok, err := s.seekIn(h, size, next, from)
	switch {
	case s.wasCut(size): // the bytes may be those of another history by now
		return nil, false, nil
	case err != nil || !ok:
		return nil, false, err
	case first.Next() > end || first.Size() > int64(maxBytes) && !minOne:
		return nil, true, nil
	}
	b = alloc(int(min(size-pos, max(int64(maxBytes), first.Size()))))
	if _, err = h.ReadAt(b, pos); s.wasCut(size) {
		return nil, false, nil
	} else if err != nil {
		return nil, false, err
	}
	b, err = wholeBatches(b, first.BaseOffset, end)
	if d, damaged := errors.AsType[damage](err); damaged {
		err = damage{d.pos + pos, d.why}
	}
	return b, true, err
}

func (s *segment) seekIn(h *handle, size int64, next, from tiers.Offset) (first batch.Header, pos int64, ok bool, err error) {
	buf := s.windows.get()
	defer s.windows.put(buf)
	return s.seek(&walker{r: h, end: size, upto: next, buf: buf[:]}, from)
}

// wasCut reports whether a truncation has taken bytes below size.
func (s *segment) wasCut(size int64) bool {
	now, _ := s.extent()
	return now < size
}

// wholeBatches returns the sound batches at the start of b that end at or below
// end, the first of which has base offset least. If there is none because b
// begins with damaged bytes, that is the error.
func wholeBatches(b []byte, least, end tiers.Offset) ([]byte, error) {
	w := walker{end: int64(len(b)), upto: math.MaxInt64, buf: b, n: int64(len(b))}
	pos := int64(0)
	for w.end-pos >= batch.HeaderSize {
		h, err := w.header(pos, least)
		if err == nil && h.Next() > end {
			break
		}
		if err == nil && !batch.VerifyCRC(b[pos:pos+h.Size()]) {
			err = damage{pos, "the CRC does not hold"}
		}
		if err != nil {
			if pos == 0 {
				return nil, err
			}
			break
		}
		pos, least = pos+h.Size(), h.Next()
	}
	return b[:pos], nil
}

package local

import (
	"errors"
	"fmt"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/batch"
)

// indexSlack is how many index intervals may lie behind the last entry of an
// index before entries count as lost. Fewer only make look-ups slower, and the
// interval may have been larger when the entries were written.
const indexSlack = 16

// openClean opens the segments of a log that was closed cleanly. ok is false if
// the end is not where it was.
func (p *opening) openClean() (ok bool, err error) {
	last := len(p.found) - 1
	for i := range last {
		if err := p.openClosed(i); err != nil {
			return false, err
		}
	}
	if ok, err = p.openLast(p.found[last]); err != nil || !ok {
		return false, err
	}
	if err := p.mendLineage(len(p.found)); err != nil {
		return false, err
	}
	p.end = p.saved.clean
	p.prods, err = p.producersAt(p.found, p.end)
	return err == nil, err
}

// openLast makes a segment active whose indexes were written when it was closed.
func (p *opening) openLast(s *segment) (ok bool, err error) {
	size := p.sizes[s.base]
	offsets, err := p.readSide(s, indexSuffix)
	if err != nil {
		return false, err
	}
	times, err := p.readSide(s, timeSuffix)
	if err != nil {
		return false, err
	}
	txns, err := p.readSide(s, txnSuffix)
	if err != nil {
		return false, err
	}
	var errs [3]error
	s.offsets, errs[0] = decodeOffsetIndex(offsets, size)
	s.times, errs[1] = decodeTimeIndex(times)
	if s.aborted, errs[2] = decodeTxnIndex(txns); errs[2] == nil {
		errs[2] = within(s.aborted, s.base, p.saved.clean)
	}
	if err := errors.Join(errs[:]...); err != nil {
		p.o.Log.Warn("an index is damaged", "segment", s.path(logSuffix), "err", err)
		s.offsets, s.times, s.aborted = nil, nil, nil
		return false, nil
	}
	s.size = size
	t, why, err := p.tail(s, lastOffset(s.offsets))
	if err == nil && (why != "" || t.next != p.saved.clean || t.newest > newestOf(s.times)) {
		s.offsets, s.times, s.aborted, s.size = nil, nil, nil, 0
		return false, nil
	}
	if err != nil {
		return false, err
	}
	s.next, s.indexedAt = t.next, t.from
	if n := len(s.times); n > 0 {
		s.newest, s.newestAt = s.times[n-1].ts, s.base+tiers.Offset(s.times[n-1].rel)
	}
	p.setFirst(s)
	return true, nil
}

func lastOffset(entries []offsetEntry) (e offsetEntry) {
	if n := len(entries); n > 0 {
		return entries[n-1]
	}
	return e
}

func newestOf(entries []timeEntry) int64 {
	if n := len(entries); n > 0 {
		return entries[n-1].ts
	}
	return -1
}

// tailOf is what the batches behind the last index entry tell.
type tailOf struct {
	from   int64 // where the entry points
	next   tiers.Offset
	newest int64
}

// tail goes from the last entry of an offset index (zero: from the start) to the
// end of the segment. why is not empty if the entry does not fit, too many batches
// lie behind it, or the segment does not end with a whole batch.
func (p *opening) tail(s *segment, e offsetEntry) (t tailOf, why string, err error) {
	w := newWalker(s.log, s.size, p.upto(s), hopWindow)
	defer func() { p.rec.Bytes += w.bytes }()
	t = tailOf{from: int64(e.pos), next: s.base, newest: -1}
	most := indexSlack * max(p.o.Config.IndexInterval, 1)
	if e == (offsetEntry{}) { // no entry at all: the segment must be small, or the file was emptied
		most = p.o.Config.IndexInterval
	}
	for pos := t.from; pos < s.size; {
		h, err := w.header(pos, t.next)
		switch {
		case errors.As(err, new(damage)):
			return t, err.Error(), nil
		case err != nil:
			return t, "", err
		case pos == t.from && e != (offsetEntry{}) && h.Last() != s.base+tiers.Offset(e.rel):
			return t, fmt.Sprintf("the batch at byte %d ends with offset %d, its index entry says %d", pos, h.Last(), s.base+tiers.Offset(e.rel)), nil
		case pos-t.from > most:
			return t, "entries are missing at the end of the index", nil
		}
		t.newest = max(t.newest, h.MaxTimestamp)
		pos, t.next = pos+h.Size(), h.Next()
	}
	return t, "", nil
}

// openClosed opens a segment below the recovery point without reading it. Index
// files that do not fit it are made again (report 116).
func (p *opening) openClosed(i int) error {
	s := p.found[i]
	s.size, s.closed, s.next = p.sizes[s.base], true, p.found[i+1].base
	why, err := p.checkIndexes(s)
	if err != nil {
		return err
	}
	if why != "" {
		p.o.Log.Warn("an index does not fit its segment and is made again", "segment", s.path(logSuffix), "why", why)
		if err := p.remakeIndexes(s); err != nil {
			return err
		}
		p.rec.RebuiltIndexes++
	}
	return p.openTxnIndex(i)
}

// checkIndexes looks at the ends of the index files: that is where a crash, a cut
// and zeros show. why is empty if they fit.
func (p *opening) checkIndexes(s *segment) (why string, err error) {
	if !p.names[fileName(s.base, indexSuffix)] || !p.names[fileName(s.base, timeSuffix)] {
		return "an index file is missing", nil
	}
	first, last, n, why, err := ends(s.index, offsetEntrySize)
	if err != nil || why != "" {
		return why, err
	}
	var e offsetEntry
	if n > 0 {
		e = readOffsetEntry(last)
		if f := readOffsetEntry(first); n > 1 && (e.rel <= f.rel || e.pos <= f.pos) || int64(e.pos) >= s.size {
			return "the last entry of the offset index is not behind the first", nil
		}
	}
	s.indexBytes = n * offsetEntrySize
	t, why, err := p.tail(s, e)
	if err != nil || why != "" {
		return why, err
	}
	first, last, n, why, err = ends(s.time, timeEntrySize)
	if err != nil || why != "" {
		return why, err
	}
	s.indexBytes = max(s.indexBytes, n*timeEntrySize)
	if n == 0 {
		return whyIf(t.newest >= 0, "the time index is empty"), nil
	}
	newest := readTimeEntry(last)
	if n > 1 && newest.ts <= readTimeEntry(first).ts || newest.ts < t.newest {
		return "the last entry of the time index is not the newest", nil
	}
	s.newest, s.newestAt = newest.ts, s.base+tiers.Offset(newest.rel)
	return p.checkNewest(s)
}

func whyIf(cond bool, why string) string {
	if cond {
		return why
	}
	return ""
}

// checkNewest looks at the batch that the last entry of the time index names.
func (p *opening) checkNewest(s *segment) (why string, err error) {
	w := newWalker(s.log, s.size, p.upto(s), hopWindow)
	h, _, ok, err := s.seek(w, s.newestAt)
	p.rec.Bytes += w.bytes
	if d, damaged := errors.AsType[damage](err); damaged {
		return d.Error(), nil
	}
	return whyIf(!ok || h.Last() != s.newestAt || h.MaxTimestamp != s.newest, "the last entry of the time index names no batch"), err
}

// ends reads the first and the last entry of an index file.
func ends(f *file, size int64) (first, last []byte, n int64, why string, err error) {
	h, err := f.acquire()
	if err != nil {
		return nil, nil, 0, "", err
	}
	defer h.release()
	st, err := h.Stat()
	if err != nil || st.Size()%size != 0 {
		return nil, nil, 0, "an index file is no whole number of entries", err
	}
	if n = st.Size() / size; n == 0 {
		return nil, nil, 0, "", nil
	}
	first, last = make([]byte, size), make([]byte, size)
	if _, err = h.ReadAt(first, 0); err == nil {
		_, err = h.ReadAt(last, (n-1)*size)
	}
	return first, last, n, "", err
}

// remakeIndexes makes the indexes of a closed segment again from its headers. It
// is below the recovery point, so damage in it stays.
func (p *opening) remakeIndexes(s *segment) error {
	fresh := p.segment(s.base)
	size := p.sizes[s.base]
	w := newWalker(s.log, size, s.next, hopWindow)
	_, err := fresh.refill(w, s.next, p.o.Config.IndexInterval)
	p.rec.Bytes += w.bytes
	if d, damaged := errors.AsType[damage](err); damaged {
		p.rec.Damage = append(p.rec.Damage, Damage{s.base, d.pos, Range{fresh.next, s.next}, d.why})
		p.o.Log.Error("acknowledged records are damaged; reading them fails", "file", s.path(logSuffix), "err", err)
		err = nil
	}
	if err != nil {
		return err
	}
	fresh.addTime()
	s.index.close()
	s.time.close()
	if err := p.writeFile(s.path(indexSuffix), encodeOffsetIndex(fresh.offsets)); err != nil {
		return err
	}
	if err := p.writeFile(s.path(timeSuffix), encodeTimeIndex(fresh.times)); err != nil {
		return err
	}
	s.newest, s.newestAt = fresh.newest, fresh.newestAt
	s.indexBytes = max(int64(len(fresh.offsets))*offsetEntrySize, int64(len(fresh.times))*timeEntrySize)
	return p.o.FS.SyncDir(p.dir)
}

// openTxnIndex loads the aborted transactions of a closed segment.
func (p *opening) openTxnIndex(i int) error {
	s := p.found[i]
	b, err := p.readSide(s, txnSuffix)
	if err != nil {
		return err
	}
	if s.aborted, err = decodeTxnIndex(b); err == nil {
		err = within(s.aborted, s.base, s.next)
	}
	if err == nil {
		return nil
	}
	p.o.Log.Warn("a transaction index is damaged and made again", "segment", s.path(logSuffix), "err", err)
	p.rec.RebuiltIndexes++
	if s.aborted, err = p.findAborted(p.found[:i+1], s.next); err != nil {
		return err
	}
	return p.writeFile(s.path(txnSuffix), encodeTxnIndex(s.aborted))
}

// within checks that the markers of a transaction index are in its segment.
func within(txns []AbortedTxn, base, next tiers.Offset) error {
	if n := len(txns); n > 0 && (txns[0].Last < base || txns[n-1].Last >= next) {
		return fmt.Errorf("markers at %d to %d are not in [%d,%d)", txns[0].Last, txns[n-1].Last, base, next)
	}
	return nil
}

// findAborted makes the transaction index of the last of segs again.
func (f folder) findAborted(segs []*segment, next tiers.Offset) ([]AbortedTxn, error) {
	s := segs[len(segs)-1]
	prods, err := f.producersAt(segs[:len(segs)-1], s.base)
	if err != nil {
		return nil, err
	}
	d, now := batch.NewDecoder(0), f.now()
	var out []AbortedTxn
	err = s.eachBatch(s.base, next, func(w *walker, h batch.Header, pos int64) (bool, error) {
		var m marker
		if h.Control() {
			b, err := w.view(pos, h.Size())
			if err != nil {
				return false, err
			}
			if m, err = readMarker(d, b); err != nil {
				return false, damage{pos, err.Error()}
			}
		}
		if a, ok := prods.apply(h, m, now); ok {
			out = append(out, a)
		}
		return true, nil
	})
	if errors.As(err, new(damage)) {
		err = nil
	}
	return out, err
}

// eachHeader calls f for the batches of a segment that is not scanned; damage
// ends it.
func (p *opening) eachHeader(s *segment, f func(batch.Header)) error {
	err := s.eachBatch(s.base, s.next, func(_ *walker, h batch.Header, _ int64) (bool, error) {
		f(h)
		p.rec.Bytes += batch.HeaderSize
		return true, nil
	})
	if errors.As(err, new(damage)) {
		return nil
	}
	return err
}

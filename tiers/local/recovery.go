package local

import (
	"errors"
	"slices"
	"sort"
	"time"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/batch"
)

// openSegments opens the segments: as they are if the log was closed cleanly,
// else those from the recovery point on batch by batch.
func (p *opening) openSegments() error {
	p.point = max(p.saved.point, 0)
	if p.saved.clean != tiers.NoOffset {
		ok, err := p.openClean()
		if err != nil || ok {
			return err
		}
		p.o.Log.Warn("the log was closed cleanly, but its files do not look so: it is recovered", "end", p.saved.clean)
	}
	from := max(0, sort.Search(len(p.found), func(i int) bool { return p.found[i].base > p.point })-1)
	for i := from; i < len(p.found); i++ {
		p.found[i] = p.segment(p.found[i].base) // without what openClean put into it
	}
	for i := range from {
		if err := p.openClosed(i); err != nil {
			return err
		}
	}
	if err := p.mendLineage(from); err != nil {
		return err
	}
	p.ends = p.ends.TruncateEnd(p.found[from].base)
	prods, err := p.producersAt(p.found[:from], p.found[from].base)
	if err != nil {
		return err
	}
	p.prods = prods
	r := &rescan{opening: p, from: from, next: p.found[from].base, decoder: batch.NewDecoder(0), unsure: p.doubt()}
	return r.run()
}

// rescan goes through the segments from the recovery point on.
type rescan struct {
	*opening
	from    int
	next    tiers.Offset // after the last sound batch
	decoder *batch.Decoder
	lost    bool // the end of the last segment is damaged below the recovery point
	unsure  doubt
	again   int64 // where the bytes of the last segment begin that are written again
}

func (r *rescan) run() error {
	for i := r.from; i < len(r.found); i++ {
		if err := r.border(i); err != nil {
			return err
		}
		cut, err := r.scan(i)
		if err != nil {
			return err
		}
		r.rec.Scanned++
		if cut >= 0 {
			if err := r.cutAt(i, cut); err != nil {
				return err
			}
			break
		}
	}
	r.end = r.next
	if err := r.makeDurable(); err != nil {
		return err
	}
	if r.lost {
		return r.goOnAtPoint()
	}
	return nil
}

// border is what happens between two segments.
func (r *rescan) border(i int) error {
	s := r.found[i]
	if i > r.from && s.base > r.next && !r.lost {
		r.rec.Holes = append(r.rec.Holes, Range{r.next, s.base})
		r.o.Log.Warn("there is no batch between two segments", "from", r.next, "to", s.base)
	}
	r.lost = false
	r.next = max(r.next, s.base)
	if i == r.from || r.snapshots[s.base] {
		return nil
	}
	return r.writeSnapshot(s.base, r.prods.snapshot())
}

// scan reads segment i and makes its indexes again. It returns the first byte
// that must be cut, -1 if none.
func (r *rescan) scan(i int) (cut int64, err error) {
	s, size := r.found[i], r.sizes[r.found[i].base]
	w := newWalker(s.log, size, r.upto(s), int(min(scanWindow, max(size, batch.HeaderSize))))
	defer func() { r.rec.Bytes += w.bytes }()
	r.again = 0
	for pos := int64(0); pos < size; {
		if r.next <= r.point {
			r.again = pos
		}
		if r.next >= r.unsure.cut {
			return pos, nil
		}
		h, b, err := w.batch(pos, r.next)
		if err == nil && h.LeaderEpoch >= 0 && h.LeaderEpoch < r.ends.Last() && r.next >= r.point {
			err = damage{pos, "its leader epoch is older than that of the batch before it"}
		}
		if d, damaged := errors.AsType[damage](err); damaged {
			if r.next >= r.point {
				return pos, nil
			}
			if pos, err = r.keepDamage(s, w, d); err != nil {
				return -1, err
			}
			continue
		}
		if err != nil {
			return -1, err
		}
		r.take(s, h, b, pos)
		pos += h.Size()
	}
	s.size = size
	return -1, nil
}

// upto is where the offsets of a segment end: where the next one begins, else as
// far from its base as an index can tell.
func (p *opening) upto(s *segment) tiers.Offset {
	upto := s.base + maxRelative + 1
	for _, other := range p.found {
		if other.base > s.base {
			return min(upto, other.base)
		}
	}
	return upto
}

// keepDamage leaves damaged bytes below the recovery point where they are and
// returns where to go on: at the next sound batch, else at the segment's end.
func (r *rescan) keepDamage(s *segment, w *walker, d damage) (pos int64, err error) {
	h, at, ok, err := w.resync(d.pos, w.end, r.next, s.base+maxRelative)
	if err != nil {
		return 0, err
	}
	until := max(r.point, r.next)
	if ok {
		until = h.BaseOffset
		r.next = h.BaseOffset
		s.addIndexed(h, at) // so that readers find what lies behind
	} else {
		at, r.lost = w.end, true
	}
	dam := Damage{Segment: s.base, At: d.pos, Offsets: Range{s.next, until}, Why: d.why}
	r.rec.Damage = append(r.rec.Damage, dam)
	r.o.Log.Error("acknowledged records are damaged; reading them fails", "file", s.path(logSuffix), "byte", d.pos, "from", dam.Offsets.From, "to", until, "why", d.why)
	return at, nil
}

// take makes a sound batch part of the log.
func (r *rescan) take(s *segment, h batch.Header, b []byte, pos int64) {
	s.add(h, pos, r.o.Config.IndexInterval)
	r.see(h)
	r.next = h.Next()
	var m marker
	if h.Control() {
		var err error
		if m, err = readMarker(r.decoder, b); err != nil {
			r.o.Log.Warn("a control batch cannot be read and ends no transaction", "offset", h.BaseOffset, "err", err)
		}
	}
	if a, ok := r.prods.apply(h, m, r.o.Now()); ok {
		s.aborted = append(s.aborted, a)
	}
}

// see makes the lineage hold a batch.
func (p *opening) see(h batch.Header) {
	if h.LeaderEpoch < 0 {
		return
	}
	if l, err := p.ends.Append(h.LeaderEpoch, h.BaseOffset, h.BaseOffset); err == nil {
		p.ends = l
	}
}

// cutAt ends the log at byte pos of segment i. The segments behind it go first,
// the last one before the others, so that a crash in between finds the same end
// again.
func (r *rescan) cutAt(i int, pos int64) error {
	r.rec.TruncatedAt = r.next
	for _, s := range slices.Backward(r.found[i+1:]) {
		r.rec.TruncatedBytes += r.sizes[s.base]
		r.rec.LostSegments++
		if err := r.discard(s); err != nil {
			return err
		}
	}
	s := r.found[i]
	r.rec.TruncatedBytes += r.sizes[s.base] - pos
	r.o.Log.Warn("the end of the log is torn or damaged and cut", "file", s.path(logSuffix), "at", pos, "offset", r.next, "bytes", r.rec.TruncatedBytes, "segments", r.rec.LostSegments)
	h, err := s.log.acquire()
	if err != nil {
		return err
	}
	defer h.release()
	if err := h.Truncate(pos); err != nil {
		return err
	}
	s.size = pos
	r.found = r.found[:i+1]
	return nil
}

// makeDurable syncs what was scanned before anybody reads it (report 027), and
// writes the indexes of all but the last segment.
func (r *rescan) makeDurable() error {
	for i := r.from; i < len(r.found); i++ {
		s := r.found[i]
		if r.unsure.on && i == len(r.found)-1 {
			// Only the last one can have bytes that were not synced (Log.Roll).
			if err := s.rewrite(r.again, s.size); err != nil {
				return err
			}
		}
		if err := s.syncLog(); err != nil {
			return err
		}
		if i == len(r.found)-1 {
			r.setFirst(s)
			continue
		}
		if err := r.closeScanned(s, r.found[i+1].base); err != nil {
			return err
		}
	}
	return r.o.FS.SyncDir(r.dir)
}

func (r *rescan) closeScanned(s *segment, next tiers.Offset) error {
	if err := r.writeSideFiles(s); err != nil {
		return err
	}
	s.toFiles()
	s.next = next
	return nil
}

func (s *segment) syncLog() error {
	h, err := s.log.acquire()
	if err != nil {
		return err
	}
	defer h.release()
	return h.Sync()
}

// setFirst dates the first append of the active segment by its first record.
func (p *opening) setFirst(s *segment) {
	if s.size == 0 {
		return
	}
	s.first = s.modified
	h, err := newWalker(s.log, s.size, p.upto(s), batch.HeaderSize).header(0, s.base)
	if err == nil && h.FirstTimestamp >= 0 {
		s.first = time.UnixMilli(h.FirstTimestamp)
	}
}

// goOnAtPoint starts a segment at the recovery point behind damaged bytes, so
// that the offsets which they held are not given to other records.
func (r *rescan) goOnAtPoint() error {
	if err := r.closeScanned(r.found[len(r.found)-1], max(r.point, r.next)); err != nil {
		return err
	}
	r.end = max(r.point, r.next)
	s, err := r.create(r.end)
	if err != nil {
		return err
	}
	r.found = append(r.found, s)
	return nil
}

package local

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/fsys"
)

// opening is a log that is being opened. Its verbs are in open.go (the order of
// things), closed.go (segments that need no scan) and recovery.go (those that
// do).
type opening struct {
	*Log
	saved diskEntry    // what the disk's files say
	point tiers.Offset // the recovery point: what is below it was durable
	rec   Recovery

	sizes     map[tiers.Offset]int64     // of the .log files
	modified  map[tiers.Offset]time.Time // of the .log files
	snapshots map[tiers.Offset]bool      // offsets of the producer snapshots
	names     map[string]bool            // of all files in the folder

	found   []*segment   // by base
	began   tiers.Offset // where the lineage on disk begins, NoOffset if that is not known
	ends    tiers.Lineage
	earlier tiers.Lineage // of what is below the disk, if ends does not tell
	decided bool          // ends is the lineage of the whole log
	onDisk  []byte        // leader-epoch-checkpoint
}

// Open opens or creates the log, recovering what was not shut down cleanly
// (spec s1.5): every segment from the one that holds the recovery point on is
// read batch by batch, its indexes, the lineage and the producer state are made
// again, and the first batch that is torn, out of order or has a wrong CRC ends
// the log. What is served after Open was synced first, and the checkpoint moves
// last (report 027).
//
// Damage below the recovery point is not cut, since it was acknowledged: it is
// reported, and reading it fails. If it reaches the end of the log, a new segment
// begins at the recovery point, so that no offset is given twice.
func Open(o Options) (*Log, Recovery, error) {
	if err := o.valid(); err != nil {
		return nil, Recovery{}, err
	}
	l := &Log{o: o, folder: folder{fs: o.FS, dir: genDir(o.Dir, o.Gen), place: o.Name.String(), now: o.Now, out: o.Log}}
	saved, err := o.Disk.attach(l)
	if err != nil {
		return nil, Recovery{}, err
	}
	p := &opening{Log: l, saved: saved, rec: Recovery{TruncatedAt: tiers.NoOffset}}
	err = p.run()
	o.Disk.opened(l, err)
	if err != nil {
		p.giveUp()
		if tiers.KindOf(err) == tiers.Other {
			err = tiers.E(tiers.StorageFailed, "open log", l.place, "%w", err)
		}
		return nil, p.rec, err
	}
	p.rec.Clean = p.rec.Scanned == 0 && p.rec.RebuiltIndexes == 0
	return l, p.rec, nil
}

func (o Options) valid() error {
	switch {
	case o.FS == nil || o.Disk == nil || o.Now == nil || o.Log == nil:
		return tiers.E(tiers.Other, "open log", o.Dir, "FS, Disk, Now and Log must be given")
	case o.Gen < 1:
		return tiers.E(tiers.Other, "open log", o.Dir, "history generation %d, the first is 1", o.Gen)
	case o.Config.SegmentBytes <= 0 || o.Config.IndexInterval < 0:
		return tiers.E(tiers.InvalidConfig, "open log", o.Dir, "segment.bytes %d must be above 0, index.interval.bytes %d not below", o.Config.SegmentBytes, o.Config.IndexInterval)
	}
	return nil
}

func (p *opening) run() error {
	if err := fsys.MkdirAllSync(p.o.FS, p.dir, dirPerm); err != nil {
		return err
	}
	if err := claimDir(p.o); err != nil {
		return err
	}
	bases, err := p.list()
	if err != nil {
		return err
	}
	if len(bases) == 0 {
		return p.startEmpty(p.o.Empty)
	}
	p.checkStart(bases[0])
	if err := p.readLineage(bases[0]); err != nil {
		return err
	}
	for _, base := range bases {
		p.found = append(p.found, p.segment(base))
	}
	if err := p.openSegments(); err != nil {
		return err
	}
	start := p.start()
	if p.end < start {
		return p.startOver(start)
	}
	return p.finish(start)
}

func (p *opening) segment(base tiers.Offset) *segment {
	s := newSegment(&p.o, p.dir, base)
	s.modified = p.modified[base]
	return s
}

// list sorts out what is in the folder and returns the bases of the segments.
// Leftovers go: files that were dropped or not finished, side files without a
// segment.
func (p *opening) list() ([]tiers.Offset, error) {
	entries, err := p.o.FS.ReadDir(p.dir)
	if err != nil {
		return nil, err
	}
	p.sizes, p.modified = map[tiers.Offset]int64{}, map[tiers.Offset]time.Time{}
	p.snapshots, p.names = map[tiers.Offset]bool{}, map[string]bool{}
	var bases []tiers.Offset
	for _, e := range entries {
		base, suffix, ok := parseName(e.Name())
		p.names[e.Name()] = true
		switch {
		case ok && suffix == logSuffix:
			st, err := e.Info()
			if err != nil {
				return nil, err
			}
			bases = append(bases, base)
			p.sizes[base], p.modified[base] = st.Size(), st.ModTime()
		case ok && suffix == snapshotSuffix:
			p.snapshots[base] = true
		}
	}
	slices.Sort(bases)
	return bases, p.removeLeftovers()
}

func (p *opening) removeLeftovers() error {
	for name := range p.names {
		base, suffix, ok := parseName(name)
		_, has := p.sizes[base]
		side := suffix == indexSuffix || suffix == timeSuffix || suffix == txnSuffix
		if strings.HasSuffix(name, deletedSuffix) || strings.HasSuffix(name, fsys.TempSuffix) || ok && side && !has {
			if err := p.removeFile(path.Join(p.dir, name)); err != nil {
				return err
			}
			delete(p.names, name)
		}
	}
	return nil
}

// startEmpty makes the log of a folder without segments. What the checkpoints
// say belongs to files that are gone; it is lowered before anything is appended.
func (p *opening) startEmpty(st Start) error {
	if err := st.valid(); err != nil {
		return tiers.E(tiers.InvalidRequest, "open log", p.place, "start of an empty log: %w", err)
	}
	begin := func() error { return p.begin(st) }
	var err error
	if p.saved.point > st.At || p.saved.start > st.LogStart || p.saved.high > st.At {
		err = p.o.Disk.lower(p.Log, diskEntry{point: st.At, start: st.LogStart, high: st.At}, begin)
	} else {
		err = begin()
	}
	if err == nil && st.LogStart > 0 {
		err = p.o.Disk.raiseStart(p.Log, st.LogStart, func() {})
	}
	return err
}

// checkStart holds the log start of the checkpoint against what is known elsewhere.
func (p *opening) checkStart(first tiers.Offset) {
	if p.o.Known == nil || p.saved.start == tiers.NoOffset {
		return
	}
	known, kept := p.o.Known()
	if p.saved.start <= known || lowest(first, kept) >= p.saved.start {
		return
	}
	p.o.Log.Error("log-start-offset-checkpoint would hide records that nobody has deleted: its line is damaged and not used",
		"says", p.saved.start, "known", known, "first_on_disk", first, "first_elsewhere", kept)
	p.saved.start = known
}

// startOver empties a log whose start lies behind its end (s1.5).
func (p *opening) startOver(start tiers.Offset) error {
	p.o.Log.Warn("the log ends below its start and begins again there", "end", p.end, "start", start)
	for _, s := range slices.Backward(p.found) {
		if err := p.discard(s); err != nil {
			return err
		}
		p.rec.LostSegments++
	}
	p.found = nil
	return p.startEmpty(Start{LogStart: start, At: start, Lineage: p.ends.TruncateEnd(start).TruncateStart(start)})
}

// start is the log start: what the checkpoint says; where it says nothing, where
// the lineage begins (B5), or the first segment (C7).
func (p *opening) start() tiers.Offset {
	switch {
	case p.saved.start != tiers.NoOffset:
		return p.saved.start
	case p.began != tiers.NoOffset:
		return p.began
	}
	return p.found[0].base
}

// readLineage reads the epoch checkpoint. If it is damaged it is made again from
// the batches (report 117), and what is below the first of them is asked for: a
// lineage that does not reach down there would hide the bucket.
func (p *opening) readLineage(first tiers.Offset) error {
	file := path.Join(p.dir, epochFile)
	b, err := fsys.ReadFile(p.o.FS, file)
	if err != nil && !isNotExist(err) {
		return err
	}
	lineage, derr := decodeEpochs(b)
	p.ends, p.onDisk, p.decided, p.began = lineage, b, derr == nil, tiers.NoOffset
	if derr != nil || !p.reaches(lineage, first) {
		if p.earlier, err = p.o.earlier(first); err != nil {
			return err
		}
		p.decided = p.decided && len(p.earlier) == 0
	}
	switch {
	case !p.decided && len(p.earlier) > 0:
		p.began = p.earlier[0].Start
	case len(lineage) > 0:
		p.began = lineage[0].Start
	}
	if !p.decided {
		p.o.Log.Warn("the leader epoch checkpoint is damaged or too short and made again from the log", "file", file, "lineage", lineage, "below_the_disk", p.earlier, "err", derr)
	}
	return nil
}

// reaches reports whether l tells the epochs of all that is below first, as far
// as it is known where the log starts.
func (p *opening) reaches(l tiers.Lineage, first tiers.Offset) bool {
	if p.saved.start == tiers.NoOffset || p.saved.start >= first {
		return len(l) > 0 || first == 0
	}
	return len(l) > 0 && l[0].Start <= p.saved.start
}

// earlier is the lineage below first as the caller knows it.
func (o Options) earlier(first tiers.Offset) (tiers.Lineage, error) {
	known := o.Empty.Lineage
	if o.Earlier != nil {
		l, err := o.Earlier(first)
		if err != nil {
			return nil, err
		}
		if len(l) > 0 {
			known = l
		}
	}
	return known.TruncateEnd(first), nil
}

// mendLineage makes the lineage of offsets below from again, if its file did not
// tell: from the batches, and before them from what the caller knows of the whole
// log or what could be read of the file.
func (p *opening) mendLineage(from int) error {
	if p.decided {
		return nil
	}
	known := p.earlier
	if len(known) == 0 {
		known = p.ends.TruncateEnd(p.found[0].base)
	}
	p.ends = slices.Clone(known)
	for _, s := range p.found[:from] {
		if err := p.eachHeader(s, p.see); err != nil {
			return err
		}
	}
	p.decided = true
	return nil
}

// finish makes the parts a log, and its files fit it.
func (p *opening) finish(start tiers.Offset) error {
	p.lineage = p.ends.TruncateEnd(p.end).TruncateStart(start)
	if b := encodeEpochs(p.lineage); string(b) != string(p.onDisk) {
		if err := p.setLineage(p.lineage); err != nil {
			return err
		}
	}
	if p.end < p.saved.point {
		p.o.Log.Error("the log ends below its recovery point: acknowledged records are gone", "end", p.end, "recovery_point", p.saved.point)
		if err := p.o.Disk.lower(p.Log, diskEntry{point: p.end, start: start, high: p.end}, func() error { return nil }); err != nil {
			return err
		}
	}
	p.flushed.Store(int64(p.end))
	p.logStart.Store(int64(start))
	p.high.Store(int64(min(max(p.saved.high, start), p.end)))
	keep := map[tiers.Offset]bool{p.end: true}
	for _, s := range p.found {
		keep[s.base] = true
	}
	if err := p.removeSnapshots(func(o tiers.Offset) bool { return !keep[o] }); err != nil {
		return err
	}
	p.setSegments(p.found)
	return nil
}

// discard removes a segment that nobody reads.
func (p *opening) discard(s *segment) error {
	s.retain()
	defer s.release()
	return p.drop(s)
}

// giveUp lets go of the files.
func (p *opening) giveUp() {
	if p.current != nil {
		p.current.Release()
		return
	}
	for _, s := range p.found {
		s.log.close()
		s.index.close()
		s.time.close()
	}
}

func isNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// readSide reads a side file; missing is empty.
func (p *opening) readSide(s *segment, suffix string) ([]byte, error) {
	if !p.names[fileName(s.base, suffix)] {
		return nil, nil
	}
	b, err := fsys.ReadFile(p.o.FS, s.path(suffix))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", s.path(suffix), err)
	}
	p.rec.Bytes += int64(len(b))
	return b, nil
}

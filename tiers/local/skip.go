package local

import (
	"slices"

	"github.com/strandline-io/strandline/tiers"
)

// SkipTo has the log go on at o, above its end: the offsets in between were given
// to records that are gone, and are given to no others. What is on disk stays;
// readers go on behind the gap. A log without a record has nothing below o then,
// as after Restart.
func (l *Log) SkipTo(o tiers.Offset) error {
	if err := l.usable("skip"); err != nil {
		return err
	}
	active := l.active()
	size, _ := active.extent()
	switch {
	case o <= l.end:
		return nil
	case size == 0 && len(l.segs) == 1:
		return l.Restart(Start{LogStart: l.LogStart(), At: o, Lineage: l.lineage, Producers: l.prods.snapshot()})
	}
	if err := l.Sync(); err != nil {
		return err
	}
	if err := l.skipTo(o, active, size); err != nil {
		return l.fail("skip", err) // the folder is between two states
	}
	return nil
}

func (l *Log) skipTo(o tiers.Offset, active *segment, size int64) error {
	kept := l.segs
	if size == 0 {
		if err := l.drop(active); err != nil {
			return err
		}
		kept = l.segs[:len(l.segs)-1]
	} else {
		l.unreserve()
		if err := l.writeSideFiles(active); err != nil {
			return err
		}
	}
	if err := l.writeSnapshot(o, l.prods.snapshot()); err != nil {
		return err
	}
	next, err := l.create(o)
	if err != nil {
		return err
	}
	if size > 0 {
		active.toFiles()
	}
	l.end = o
	l.flushed.Store(int64(o))
	l.setSegments(append(slices.Clip(kept), next))
	return l.o.Disk.Checkpoint()
}

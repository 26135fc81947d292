package local

import (
	"sync"

	"github.com/strandline-io/strandline/tiers"
)

// A pass of retention raises the log starts of thousands of partitions, and each
// raise must be on disk before it is true (C6). All that wait while the disk's lock
// is taken go into one write: whoever gets the lock first does it for the others.

// wishes are what waits for the lock.
type wishes struct {
	mu      sync.Mutex
	raises  []*raise
	forgets []*forget
}

// raise is a log start that is to be written, and then made true by set.
type raise struct {
	log  *Log
	to   tiers.Offset
	set  func()
	done bool // guarded by the disk's lock, as is err
	err  error
}

// forget are partitions whose entries are to go.
type forget struct {
	ids  []tiers.PartitionID
	done bool // guarded by the disk's lock, as is err
	err  error
}

func (w *wishes) takeRaises() []*raise {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.raises
	w.raises = nil
	return out
}

func (w *wishes) takeForgets() []*forget {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.forgets
	w.forgets = nil
	return out
}

// raiseStart writes a new log start, and then has set make it true. The log's
// owner waits here, so set may run on another goroutine.
func (d *Disk) raiseStart(l *Log, o tiers.Offset, set func()) error {
	r := &raise{log: l, to: o, set: set}
	d.wishes.mu.Lock()
	d.wishes.raises = append(d.wishes.raises, r)
	d.wishes.mu.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !r.done {
		d.raiseAll(d.wishes.takeRaises())
	}
	return r.err
}

// raiseAll writes the log starts, of all files their own only. The caller holds the
// lock, and one of them is its own.
func (d *Disk) raiseAll(all []*raise) {
	for _, e := range d.parts {
		if e.log != nil {
			e.start = e.log.LogStart()
		}
	}
	was := map[*diskEntry]tiers.Offset{}
	for _, r := range all {
		if e := d.entryOf(r.log); e != nil {
			was[e], e.start = e.start, r.to // a log asks for one at a time
		}
	}
	err := d.putStarts(len(was) > 0)
	if err != nil {
		for e, start := range was {
			e.start = start
		}
	}
	for _, r := range all {
		r.done = true
		if d.entryOf(r.log) != nil && err != nil {
			r.err = err
			continue
		}
		r.set()
	}
}

// putStarts writes the log starts that the entries have. A disk without room has
// some in reserve for that: nothing below a log start goes before it is written.
func (d *Disk) putStarts(changed bool) error {
	if !changed {
		return nil
	}
	if err := d.usable(); err != nil {
		return err
	}
	b := d.encode(startsAt)
	err := d.putFile(startsAt, logStartFile, b)
	if err != nil && d.spendReserve(err) {
		err = d.putFile(startsAt, logStartFile, b)
	}
	return err
}

// Forget removes the entries of partitions: they never come back (C6), whatever a
// log that is still open does.
func (d *Disk) Forget(ids ...tiers.PartitionID) error {
	f := &forget{ids: ids}
	d.wishes.mu.Lock()
	d.wishes.forgets = append(d.wishes.forgets, f)
	d.wishes.mu.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !f.done {
		d.forgetAll(d.wishes.takeForgets())
	}
	return f.err
}

func (d *Disk) forgetAll(all []*forget) {
	for _, f := range all {
		for _, id := range f.ids {
			delete(d.parts, id)
		}
	}
	d.order = nil
	err := d.write()
	for _, f := range all {
		f.done, f.err = true, err
	}
}

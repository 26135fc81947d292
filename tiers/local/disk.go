package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/fsys"
)

// Disk is the owner of a data directory: its lock, its clean-shutdown marker,
// its open files and its checkpoint files (recovery-point-offset-checkpoint,
// log-start-offset-checkpoint, replication-offset-checkpoint). Sampling the logs
// and writing a file is one step under one lock (C2); truncation lowers the
// recovery point in the file first (C4).
type Disk struct {
	fs      fsys.FS
	dir     string
	out     hclog.Logger
	lock    io.Closer
	files   handles
	windows windows
	room    room
	due     chan struct{} // a checkpoint is wanted before the next one is due

	// scans bounds how many look-ups decompress records at once (report 069).
	scans chan struct{}

	// Buffers is memory for those who gather batches before they append them,
	// shared by all logs of the disk: one buffer for each that writes now, none
	// for those that rest.
	Buffers Buffers

	mu      sync.Mutex
	parts   map[tiers.PartitionID]*diskEntry
	order   []*diskEntry // of parts by id, nil: to be made again
	written [3][]byte    // what each checkpoint file holds, nil: not known
	closed  bool

	wishes wishes // what waits for the next write of the checkpoint files

	failed atomic.Pointer[error] // why the disk is offline; read without the lock
}

// startsAt is where the log starts are among the checkpoint files.
const startsAt = 1

// diskEntry is what the checkpoint files say of a partition. While its log is
// open the log's own values are newer.
type diskEntry struct {
	id                 tiers.PartitionID
	point, start, high tiers.Offset // NoOffset: no line
	clean              tiers.Offset // where the log ended when it was closed cleanly; NoOffset if it was not
	log                *Log
	busy               bool // its log is being opened
	suspect            bool // its log broke in this process: see Log.Close
}

// sample brings the values of an open log into the entry.
func (e *diskEntry) sample() {
	if l := e.log; l != nil {
		e.point, e.start, e.high = l.Flushed(), l.LogStart(), l.HighWatermark()
	}
}

// OpenDisk locks the directory and reads its checkpoints. It fails with
// fsys.ErrLocked, naming the directory, if another process has it. The
// clean-shutdown marker is taken away, durably, before anything can be written.
func OpenDisk(fs fsys.FS, dir string, log hclog.Logger) (*Disk, error) {
	d := &Disk{scans: make(chan struct{}, maxScans), due: make(chan struct{}, 1), fs: fs, dir: dir, out: log, files: handles{limit: maxOpenFiles}, parts: map[tiers.PartitionID]*diskEntry{}}
	if err := fsys.MkdirAllSync(fs, dir, dirPerm); err != nil {
		return nil, tiers.E(tiers.StorageFailed, "open disk", dir, "%w", err)
	}
	lock, err := fs.Lock(path.Join(dir, lockFile))
	if err != nil {
		return nil, tiers.E(tiers.StorageFailed, "open disk", dir, "lock the directory: %w", err)
	}
	d.lock = lock
	err = d.giveReserve()
	if err == nil {
		err = d.load()
	}
	if err != nil {
		return nil, errors.Join(tiers.E(tiers.StorageFailed, "open disk", dir, "%w", err), lock.Close())
	}
	return d, nil
}

func (d *Disk) load() error {
	for _, f := range []struct {
		name string
		set  func(*diskEntry, tiers.Offset)
	}{
		{recoveryPointFile, func(e *diskEntry, o tiers.Offset) { e.point = o }},
		{logStartFile, func(e *diskEntry, o tiers.Offset) { e.start = o }},
		{replicationFile, func(e *diskEntry, o tiers.Offset) { e.high = o }},
		{cleanFile, func(e *diskEntry, o tiers.Offset) { e.clean = o }},
	} {
		m, err := d.readCheckpoint(f.name)
		if err != nil {
			return err
		}
		for id, o := range m {
			f.set(d.entry(id), o)
		}
	}
	err := d.fs.Remove(path.Join(d.dir, cleanFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return d.fs.SyncDir(d.dir)
}

// readCheckpoint reads a checkpoint file. A missing or damaged one is empty
// (C7): every log is then recovered from its start.
func (d *Disk) readCheckpoint(name string) (map[tiers.PartitionID]tiers.Offset, error) {
	b, err := fsys.ReadFile(d.fs, path.Join(d.dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	m, err := decodeOffsets(b)
	if err != nil {
		d.out.Warn("a checkpoint is damaged and not used", "file", path.Join(d.dir, name), "err", err)
	}
	return m, nil
}

func (d *Disk) entry(id tiers.PartitionID) *diskEntry {
	e := d.parts[id]
	if e == nil {
		e = &diskEntry{id: id, point: tiers.NoOffset, start: tiers.NoOffset, high: tiers.NoOffset, clean: tiers.NoOffset}
		d.parts[id], d.order = e, nil
	}
	return e
}

// entryOf is the entry of a log, nil if it was forgotten while the log is open.
func (d *Disk) entryOf(l *Log) *diskEntry {
	if !l.sampled {
		return d.entry(l.o.ID)
	}
	if e := d.parts[l.o.ID]; e != nil && e.log == l {
		return e
	}
	return nil
}

// Failed returns why the disk is offline, nil while it is not.
func (d *Disk) Failed() error {
	if err := d.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// attach makes l the log of its partition, and returns what the files say of it.
func (d *Disk) attach(l *Log) (diskEntry, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch e := d.entry(l.o.ID); {
	case d.closed:
		return diskEntry{}, tiers.E(tiers.Closed, "open log", l.place, "the disk %s is closed", d.dir)
	case d.Failed() != nil:
		return diskEntry{}, d.Failed()
	case e.log != nil || e.busy:
		return diskEntry{}, tiers.E(tiers.Conflict, "open log", l.place, "the log is open already")
	default:
		found := *e
		e.clean, e.busy = tiers.NoOffset, true
		return found, nil
	}
}

// opened begins to sample l, if it could be opened. Until then its entry is what
// the files said.
func (d *Disk) opened(l *Log, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.entry(l.o.ID)
	e.busy = false
	if err == nil {
		e.log, l.sampled, e.suspect = l, true, false
	}
}

// detach ends the sampling of l. clean says that the next Open may trust what is
// on disk. If l broke, the next Open of this process may not trust even what it
// reads: after a failed fsync the file shows bytes that no disk has.
func (d *Disk) detach(l *Log, clean bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.parts[l.o.ID]
	if e == nil || e.log != l { // forgotten
		return
	}
	e.sample()
	e.log = nil
	if clean {
		e.clean = l.end
	}
	e.suspect = l.broken != nil
}

// maxScans is how many look-ups by time may decompress a batch at the same time.
const maxScans = 2

// Scan waits for the right to decompress records for a look-up. Clients choose what
// is looked up and producers what it decompresses to, so the memory of all of
// them together is bounded here. done gives the right back.
func (d *Disk) Scan(ctx context.Context) (done func(), err error) {
	select {
	case d.scans <- struct{}{}:
		return func() { <-d.scans }, nil
	case <-ctx.Done():
		return nil, tiers.E(tiers.TimedOut, "look up", d.dir, "waiting for other look-ups by time: %w", context.Cause(ctx))
	}
}

// Checkpoint samples every open log of the disk and writes the checkpoint files.
func (d *Disk) Checkpoint() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := d.write()
	d.noRoom(err)
	return err
}

// Due gets a value when a checkpoint is worth writing now: a segment was closed,
// and what is in it is not to be scanned, let alone cut, after a crash. Many that
// are closed at once ask for one.
func (d *Disk) Due() <-chan struct{} { return d.due }

func (d *Disk) wantCheckpoint() {
	select {
	case d.due <- struct{}{}:
	default: // asked for already
	}
}

// Mend brings a disk back that went offline because its recovery points could not
// be lowered: once it takes a write and an fsync, all checkpoint files are
// written again with the values that hold now, the lowered ones included.
// Nothing was cut when they could not be. A disk that is not offline is left
// alone. The error is why it stays offline.
func (d *Disk) Mend() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.Failed() == nil || d.closed {
		return nil
	}
	if err := d.probe(); err != nil {
		return tiers.E(tiers.StorageFailed, "mend disk", d.dir, "%w", err)
	}
	d.written = [3][]byte{} // what the files hold is not known
	if err := d.put(); err != nil {
		return err
	}
	d.failed.Store(nil)
	d.out.Info("the disk is back: its checkpoints could be written", "dir", d.dir)
	return nil
}

// lower changes a partition's entry to be at most as high as to (NoOffset: as it
// is), writes the files, and then, under the same lock, runs cut: no sampler can
// come between (C4). If the files cannot be written the disk goes offline and
// nothing was cut.
func (d *Disk) lower(l *Log, to diskEntry, cut func() error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.entryOf(l)
	if e == nil {
		return cut()
	}
	e.sample()
	log := e.log
	e.log = nil // not to be sampled while it is cut
	e.point, e.start, e.high = lowest(e.point, to.point), lowest(e.start, to.start), lowest(e.high, to.high)
	err := d.write()
	if err != nil {
		d.failed.Store(&err)
		d.out.Error("the disk goes offline: its recovery points could not be lowered", "dir", d.dir, "err", err)
	} else {
		err = cut()
	}
	e.log = log
	return err
}

// lowest is the smaller offset of those that are there.
func lowest(a, b tiers.Offset) tiers.Offset {
	if a == tiers.NoOffset || b == tiers.NoOffset {
		return max(a, b)
	}
	return min(a, b)
}

// write samples the open logs and replaces the files that change. The caller
// holds the lock.
func (d *Disk) write() error {
	if err := d.usable(); err != nil {
		return err
	}
	return d.put()
}

// usable is why the checkpoint files may not be written now.
func (d *Disk) usable() error {
	if d.closed {
		return tiers.E(tiers.Closed, "checkpoint", d.dir, "the disk is closed")
	}
	return d.Failed()
}

// put is write without a look at whether it may.
func (d *Disk) put() error {
	for _, e := range d.parts {
		e.sample()
	}
	for i, name := range [3]string{recoveryPointFile, logStartFile, replicationFile} {
		if err := d.putFile(i, name, d.encode(i)); err != nil {
			return err
		}
	}
	return nil
}

// putFile replaces a checkpoint file, if it changes.
func (d *Disk) putFile(i int, name string, b []byte) error {
	if d.written[i] != nil && string(b) == string(d.written[i]) {
		return nil
	}
	d.written[i] = nil
	if err := fsys.WriteFileAtomic(d.fs, path.Join(d.dir, name), b, filePerm); err != nil {
		return tiers.E(tiers.StorageFailed, "checkpoint", path.Join(d.dir, name), "%w", err)
	}
	d.written[i] = b
	return nil
}

// encode is the content of a checkpoint file, of the values in the entries.
func (d *Disk) encode(i int) []byte {
	if d.order == nil {
		d.order = slices.SortedFunc(maps.Values(d.parts), func(a, b *diskEntry) int { return byID(a.id, b.id) })
	}
	lines, n := make([]byte, 0, len(d.written[i])+lineRoom), 0
	for _, e := range d.order {
		if o := [3]tiers.Offset{e.point, e.start, e.high}[i]; o != tiers.NoOffset {
			lines, n = appendOffset(lines, e.id, o), n+1
		}
	}
	return append(fmt.Appendf(make([]byte, 0, len(lines)+lineRoom), "0\n%d\n", n), lines...)
}

// Close writes the checkpoints, then the clean-shutdown marker if every log was
// closed, and unlocks. The marker names the logs that may be trusted: those that
// were closed cleanly, or not opened since they were.
func (d *Disk) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	err := d.write()
	if err == nil {
		err = d.mark()
	}
	d.closed = true
	d.files.closeIdle()
	return errors.Join(err, d.lock.Close())
}

func (d *Disk) mark() error {
	clean := map[tiers.PartitionID]tiers.Offset{}
	var open []string
	for id, e := range d.parts {
		if e.log != nil {
			open = append(open, id.String())
		}
		if e.clean != tiers.NoOffset {
			clean[id] = e.clean
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("no clean-shutdown marker was written to %s, because logs are open: %s", d.dir, strings.Join(open, ", "))
	}
	return fsys.WriteFileAtomic(d.fs, path.Join(d.dir, cleanFile), encodeOffsets(clean), filePerm)
}

package local

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/fsys"
)

// A disk without room refuses appends to all of its logs at once, before there is
// no room left for what must go on: checkpoints, the control plane, and the
// deletions that make room. Reads, copies and deletions go on. It takes appends
// again by itself.

// ErrFull is why a log takes no records now, in the chain of an error of kind
// StorageFailed. Nothing was changed.
var ErrFull = errors.New("the disk is full")

const (
	reserveFile = "reserve" // room for a start on a disk that others have filled
	probeFile   = "probe"   // written to see whether the disk takes writes
	reserveSize = 4 << 20
	probeSize   = 4 << 10

	// maxProbePause is how many looks at the disk may pass between two probes.
	maxProbePause = 32
)

// Room is what is known of the free space of a disk, in bytes.
type Room struct {
	Free, Total int64 // zero until the first look
	Floor       int64 // appends are refused below it
	Full        error // why appends are refused now, nil while they are not
}

// room is the disk's own picture.
type room struct {
	full atomic.Pointer[error] // read by the logs with every append

	mu      sync.Mutex
	least   int64 // what KeepFree was given
	seen    Room
	blamed  bool // a write failed for want of room, whatever the free space says
	failed  bool // the last look at the free space failed: told once
	pause   int  // looks between two probes
	waiting int  // looks until the next probe
}

// KeepFree has the disk refuse appends while fewer than floor bytes of it are
// free, but never more than a twentieth of it, and keep a small file in reserve
// that is given up when there is no room to start. 0 only reacts to writes that
// fail.
func (d *Disk) KeepFree(floor int64) {
	d.room.mu.Lock()
	d.room.least = floor
	d.room.mu.Unlock()
	d.CheckRoom()
}

// Room returns what the last look at the disk has shown.
func (d *Disk) Room() Room {
	d.room.mu.Lock()
	defer d.room.mu.Unlock()
	return d.room.seen
}

// Full is why the disk takes no records now, nil while it does.
func (d *Disk) Full() error {
	if err := d.room.full.Load(); err != nil {
		return *err
	}
	return nil
}

// CheckRoom looks at the free space and shuts or opens the disk to appends. It is
// to be called regularly. After a write that failed for want of room a small
// file must be written and synced first, with growing pauses: a quota or a lack
// of inodes does not show in the free space.
func (d *Disk) CheckRoom() {
	r := &d.room
	r.mu.Lock()
	defer r.mu.Unlock()
	free, total, err := d.fs.Free(d.dir)
	if err != nil && !errors.Is(err, errors.ErrUnsupported) && !r.failed {
		d.out.Warn("the free space of the disk is not known", "dir", d.dir, "err", err)
	}
	r.failed = err != nil
	floor := min(r.least, total/20)
	r.seen.Free, r.seen.Total, r.seen.Floor = free, total, floor
	switch {
	case err == nil && free < floor:
		d.shut(fmt.Errorf("%w: %d bytes are free and %d are kept for what must go on (disk.min_free_bytes); make room, it goes on by itself", ErrFull, free, floor))
	case r.seen.Full == nil:
		d.keepReserve()
	case err == nil && free < floor+floor/4: // not to go to and fro at the border
	case r.blamed && !d.takesWrites():
	default:
		r.blamed, r.pause, r.waiting = false, 0, 0
		r.seen.Full = nil
		r.full.Store(nil)
		d.out.Info("the disk has room again and takes records", "dir", d.dir, "free", free)
	}
}

// wantsRoom reports whether a write failed for want of room.
func wantsRoom(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// noRoom notes a write that failed, if it did for want of room.
func (d *Disk) noRoom(err error) {
	if !wantsRoom(err) {
		return
	}
	r := &d.room
	r.mu.Lock()
	defer r.mu.Unlock()
	r.blamed = true
	d.shut(fmt.Errorf("%w: a write was refused (%w); make room, it goes on by itself", ErrFull, err))
}

// spendReserve removes the reserve for a write that deletions wait for, and
// reports whether there is room to try it again. The reserve is made again once
// there is plenty.
func (d *Disk) spendReserve(err error) bool {
	if !wantsRoom(err) {
		return false
	}
	d.noRoom(err) // appends must not take what the reserve leaves
	if d.fs.Remove(path.Join(d.dir, reserveFile)) != nil {
		return false
	}
	d.out.Warn("the disk is full: the reserve is given up for deletions to go on", "dir", d.dir, "reserve", reserveSize)
	return true
}

// shut refuses appends. The caller holds the lock.
func (d *Disk) shut(why error) {
	r := &d.room
	first := r.seen.Full == nil
	r.seen.Full = tiers.E(tiers.StorageFailed, "append", d.dir, "%w", why)
	full := r.seen.Full // of its own: whoever has loaded it reads it without the lock
	r.full.Store(&full)
	if first {
		d.out.Error("the disk takes no records until there is room: its partitions are read-only", "dir", d.dir, "err", why)
	}
}

// takesWrites tries a write, if it is time for one.
func (d *Disk) takesWrites() bool {
	r := &d.room
	if r.waiting > 0 {
		r.waiting--
		return false
	}
	if d.probe() == nil {
		return true
	}
	r.pause = min(max(1, 2*r.pause), maxProbePause)
	r.waiting = r.pause
	return false
}

// probe writes, syncs and removes a small file.
func (d *Disk) probe() error {
	name := path.Join(d.dir, probeFile)
	err := fsys.WriteFileAtomic(d.fs, name, make([]byte, probeSize), filePerm)
	if rerr := d.fs.Remove(name); err == nil && rerr != nil && !isNotExist(rerr) {
		err = rerr
	}
	return err
}

// keepReserve makes the reserve again, once there is plenty of room.
func (d *Disk) keepReserve() {
	r := &d.room
	if r.least <= 0 || r.seen.Free < r.seen.Floor+2*reserveSize {
		return
	}
	name := path.Join(d.dir, reserveFile)
	if st, err := d.fs.Stat(name); err == nil && st.Size() == reserveSize {
		return
	}
	// Bytes and not only a size: a sparse file would hold nothing in reserve.
	if err := fsys.WriteFileAtomic(d.fs, name, make([]byte, reserveSize), filePerm); err != nil {
		d.out.Debug("no room could be put in reserve", "file", name, "err", err)
	}
}

// giveReserve removes the reserve if there is no other room to start with.
func (d *Disk) giveReserve() error {
	free, _, unknown := d.fs.Free(d.dir)
	if unknown != nil || free >= reserveSize {
		return nil //nolint:nilerr // without a number the reserve stays
	}
	err := d.fs.Remove(path.Join(d.dir, reserveFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.out.Warn("the disk is full and there is no reserve: the start may fail for want of room", "dir", d.dir, "free", free)
		return nil
	case err == nil:
		d.out.Warn("the disk is full: the reserve is given up to start", "dir", d.dir, "free", free, "reserve", reserveSize)
	}
	return err
}

package sqlite

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/util/vfsutil"
	"github.com/ncruces/go-sqlite3/vfs"

	"github.com/strandline-io/strandline/tiers/fsys"
)

// The names under which SQLite knows the files of a disk.
const (
	mainName  = "control"
	imageName = "image-"
)

// disk is the VFS of one Store: the database and its journals on fsys, temporary
// files and images in memory. Locks are not needed: the lock file beside the
// database keeps others out, and there is one connection.
type disk struct {
	fs     fsys.FS
	path   string      // of the database
	failed atomic.Bool // an fsync failed: what is on disk is unknown

	mu     sync.Mutex
	images map[string]*image // copies of the database, by name
}

var _ vfs.VFS = (*disk)(nil)

// real is the path of a file that SQLite calls name.
func (d *disk) real(name string) string { return d.path + strings.TrimPrefix(name, mainName) }

// Open opens a file, or makes one in memory if it is temporary.
func (d *disk) Open(name string, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	if name == "" {
		return &image{}, flags | vfs.OPEN_MEMORY, nil
	}
	if strings.HasPrefix(name, imageName) {
		return d.openImage(name, flags)
	}
	mode := os.O_RDWR
	if flags&vfs.OPEN_CREATE != 0 {
		mode |= os.O_CREATE
	}
	f, err := d.fs.OpenFile(d.real(name), mode, 0o600)
	if err != nil {
		return nil, flags, err
	}
	return &file{f: f, disk: d, created: flags&vfs.OPEN_CREATE != 0}, flags, nil
}

func (d *disk) openImage(name string, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i, ok := d.images[name]; ok {
		return i, flags | vfs.OPEN_MEMORY, nil
	}
	return nil, flags, sqlite3.CANTOPEN
}

// Delete removes a journal.
func (d *disk) Delete(name string, syncDir bool) error {
	if err := d.fs.Remove(d.real(name)); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return vfs.SystemError(err, sqlite3.IOERR_DELETE_NOENT)
		}
		return err
	}
	if !syncDir {
		return nil
	}
	return d.synced(d.fs.SyncDir(path.Dir(d.path)))
}

// Access reports whether a file is there.
func (d *disk) Access(name string, _ vfs.AccessFlag) (bool, error) {
	if strings.HasPrefix(name, imageName) {
		return false, nil // Its journals: an image has none.
	}
	_, err := d.fs.Stat(d.real(name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// FullPathname leaves names as they are.
func (*disk) FullPathname(name string) (string, error) { return name, nil }

// synced notes whether an fsync failed.
func (d *disk) synced(err error) error {
	if err != nil {
		d.failed.Store(true)
	}
	return err
}

// file is an open file of SQLite's on fsys.
type file struct {
	f       fsys.File
	disk    *disk
	created bool // its name may not be durable yet
}

var _ vfs.File = (*file)(nil)

func (f *file) ReadAt(p []byte, off int64) (int, error) { return f.f.ReadAt(p, off) }
func (f *file) Truncate(size int64) error               { return f.f.Truncate(size) }
func (f *file) Close() error                            { return f.f.Close() }

// WriteAt writes. A full disk is told apart, since the store goes on after it.
func (f *file) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.f.WriteAt(p, off)
	if errors.Is(err, syscall.ENOSPC) {
		err = vfs.SystemError(err, sqlite3.FULL)
	}
	return n, err
}

// Sync makes content, size and, the first time, the name durable.
func (f *file) Sync(vfs.SyncFlag) error {
	if err := f.disk.synced(f.f.SyncData()); err != nil {
		return err
	}
	if f.created {
		if err := f.disk.synced(f.disk.fs.SyncDir(path.Dir(f.disk.path))); err != nil {
			return err
		}
		f.created = false
	}
	return nil
}

// Size is the file's size.
func (f *file) Size() (int64, error) {
	st, err := f.f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

func (*file) Lock(vfs.LockLevel) error         { return nil }
func (*file) Unlock(vfs.LockLevel) error       { return nil }
func (*file) CheckReservedLock() (bool, error) { return false, nil }
func (*file) SectorSize() int                  { return 4096 }

// DeviceCharacteristics: a write changes no byte around it even if the power
// fails, as SQLite assumes of every disk by default.
func (*file) DeviceCharacteristics() vfs.DeviceCharacteristic {
	return vfs.IOCAP_POWERSAFE_OVERWRITE | vfs.IOCAP_SUBPAGE_READ
}

// image is a file in memory that needs no lock.
type image struct{ vfsutil.SliceFile }

func (*image) Lock(vfs.LockLevel) error         { return nil }
func (*image) Unlock(vfs.LockLevel) error       { return nil }
func (*image) CheckReservedLock() (bool, error) { return false, nil }

package fsys

import (
	"io"
	"io/fs"
	"os"
)

// OS is the file system of the machine. It has no state: all values are equal.
//
// Linux and macOS are complete. Elsewhere Lock fails with errors.ErrUnsupported,
// so nothing that must own its folder starts there.
type OS struct{}

var _ FS = OS{}

// OpenFile is os.OpenFile.
func (OS) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	f, err := os.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

// Remove is os.Remove.
func (OS) Remove(name string) error { return os.Remove(name) }

// RemoveAll is os.RemoveAll.
func (OS) RemoveAll(name string) error { return os.RemoveAll(name) }

// Rename is os.Rename.
func (OS) Rename(oldName, newName string) error { return os.Rename(oldName, newName) }

// Link is os.Link.
func (OS) Link(oldName, newName string) error { return os.Link(oldName, newName) }

// MkdirAll is os.MkdirAll.
func (OS) MkdirAll(name string, perm fs.FileMode) error { return os.MkdirAll(name, perm) }

// ReadDir is os.ReadDir.
func (OS) ReadDir(name string) ([]fs.DirEntry, error) { return os.ReadDir(name) }

// Stat is os.Stat.
func (OS) Stat(name string) (fs.FileInfo, error) { return os.Stat(name) }

// SyncDir opens the folder and calls fsync on it.
func (OS) SyncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	return err
}

// Lock takes flock(2) on name. A lock belongs to the open file, not to the
// process, so a second Lock of the same process is refused as well. The file
// stays after unlocking: removing it would let two holders lock two files of the
// same name.
func (OS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	if err := lockFile(f); err != nil {
		_ = f.Close() // nothing was written to it
		return nil, &fs.PathError{Op: "lock", Path: name, Err: err}
	}
	return f, nil
}

// Free asks statfs(2) for the blocks that are free for an ordinary user.
func (OS) Free(name string) (free, total int64, err error) {
	free, total, err = diskFree(name)
	if err != nil {
		return 0, 0, &fs.PathError{Op: "statfs", Path: name, Err: err}
	}
	return free, total, nil
}

// osFile adds to *os.File what File wants beyond it.
type osFile struct{ *os.File }

// SyncData is fdatasync where there is one, Sync elsewhere.
func (f osFile) SyncData() error {
	if err := syncData(f.File); err != nil {
		return &fs.PathError{Op: "fdatasync", Path: f.Name(), Err: err}
	}
	return nil
}

// Preallocate reserves blocks; a file system that cannot is no error, a full
// disk is.
func (f osFile) Preallocate(size int64) error {
	if size <= 0 {
		return nil
	}
	if err := preallocate(f.File, size); err != nil {
		return &fs.PathError{Op: "fallocate", Path: f.Name(), Err: err}
	}
	return nil
}

// control runs call on the descriptor of f, again as long as a signal interrupts
// it. Unlike f.Fd it keeps the file from being closed meanwhile.
func control(f *os.File, interrupted error, call func(fd int) error) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var callErr error
	err = c.Control(func(fd uintptr) {
		for {
			if callErr = call(int(fd)); callErr != interrupted { //nolint:errorlint // a bare errno
				return
			}
		}
	})
	if err != nil {
		return fs.ErrClosed // the only error of Control, which hides it in a type of its own
	}
	return callErr
}

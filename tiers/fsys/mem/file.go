package mem

import (
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"syscall"
	"time"

	"github.com/strandline-io/strandline/tiers/fsys"
)

// file is an open file. It works on after its name is removed.
type file struct {
	fs     *FS
	n      *inode
	name   string
	flag   int
	pos    int64 // guarded by fs.mu
	closed bool  // guarded by fs.mu
}

func (f *file) Name() string { return f.name }

// usable says why an operation cannot be done, nil if it can.
func (f *file) usable(write bool) error {
	mode := f.flag & (os.O_RDONLY | os.O_WRONLY | os.O_RDWR)
	switch {
	case f.closed:
		return fs.ErrClosed
	case f.n.isDir():
		return syscall.EISDIR
	case write && mode == os.O_RDONLY, !write && mode == os.O_WRONLY:
		return syscall.EBADF
	}
	return nil
}

func (f *file) Read(p []byte) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	n, err := f.read(p, f.pos)
	f.pos += int64(n)
	return n, err
}

func (f *file) ReadAt(p []byte, off int64) (int, error) {
	f.fs.mu.RLock()
	defer f.fs.mu.RUnlock()
	n, err := f.read(p, off)
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}

func (f *file) read(p []byte, off int64) (int, error) {
	if err := f.usable(false); err != nil {
		return 0, fail("read", f.name, err)
	}
	if off < 0 {
		return 0, fail("read", f.name, syscall.EINVAL)
	}
	n := f.n.cached.readAt(p, off)
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (f *file) Write(p []byte) (n int, err error) {
	op := fsys.Op{Kind: fsys.OpWrite, Name: f.name, Off: -1, Len: len(p)}
	err = f.fs.change(op, func() error {
		if f.flag&os.O_APPEND != 0 {
			f.pos = f.n.size()
		}
		n, err = f.write(p, f.pos)
		f.pos += int64(n)
		return err
	})
	return n, err
}

func (f *file) WriteAt(p []byte, off int64) (n int, err error) {
	if f.flag&os.O_APPEND != 0 {
		return 0, fail("write", f.name, syscall.EINVAL)
	}
	op := fsys.Op{Kind: fsys.OpWrite, Name: f.name, Off: off, Len: len(p)}
	err = f.fs.change(op, func() error {
		n, err = f.write(p, off)
		return err
	})
	return n, err
}

// write puts down as much of p as there is room for.
func (f *file) write(p []byte, off int64) (int, error) {
	if err := f.usable(true); err != nil {
		return 0, fail("write", f.name, err)
	}
	if off < 0 {
		return 0, fail("write", f.name, syscall.EINVAL)
	}
	var full error
	if grow := off + int64(len(p)) - f.n.cached.size; f.fs.capacity > 0 && grow > 0 {
		if over := f.fs.used() + grow - f.fs.capacity; over > 0 {
			p = p[:max(0, int64(len(p))-over)]
			full = fail("write", f.name, syscall.ENOSPC)
		}
	}
	if len(p) > 0 {
		f.n.cached = f.n.cached.thaw()
		f.n.cached.writeAt(p, off)
		f.n.mtime = f.fs.now()
	}
	return len(p), full
}

func (f *file) Close() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if f.closed {
		return fail("close", f.name, fs.ErrClosed)
	}
	f.closed = true
	return nil
}

func (f *file) Stat() (fs.FileInfo, error) {
	f.fs.mu.RLock()
	defer f.fs.mu.RUnlock()
	if f.closed {
		return nil, fail("stat", f.name, fs.ErrClosed)
	}
	return f.n.stat(path.Base(clean(f.name))), nil
}

func (f *file) Truncate(size int64) error {
	return f.fs.change(fsys.Op{Kind: fsys.OpTruncate, Name: f.name, Off: size}, func() error {
		err := f.usable(true)
		if err == nil && size < 0 {
			err = syscall.EINVAL
		}
		if err != nil {
			return fail("truncate", f.name, err)
		}
		f.fs.truncate(f.n, size)
		return nil
	})
}

func (f *file) Sync() error { return f.sync(fsys.OpSync) }

func (f *file) SyncData() error { return f.sync(fsys.OpSyncData) }

func (f *file) sync(kind fsys.Kind) error {
	return f.fs.change(fsys.Op{Kind: kind, Name: f.name}, func() error {
		if f.closed {
			return fail("sync", f.name, fs.ErrClosed)
		}
		if !f.n.isDir() {
			f.n.synced = f.n.cached.freeze()
			f.n.low = f.n.synced.size
		}
		return nil
	})
}

func (f *file) Preallocate(size int64) error {
	return f.fs.change(fsys.Op{Kind: fsys.OpPreallocate, Name: f.name, Off: size}, func() error {
		if err := f.usable(true); err != nil {
			return fail("fallocate", f.name, err)
		}
		if grow := size - f.n.cached.size; f.fs.capacity > 0 && grow > 0 && f.fs.used()+grow > f.fs.capacity {
			return fail("fallocate", f.name, syscall.ENOSPC)
		}
		return nil
	})
}

func (n *inode) size() int64 {
	if n.isDir() {
		return 0
	}
	return n.cached.size
}

func (n *inode) stat(name string) fs.FileInfo {
	return fileStat{name: name, size: n.size(), mode: n.mode, mtime: n.mtime}
}

type fileStat struct {
	name  string
	size  int64
	mode  fs.FileMode
	mtime time.Time
}

func (s fileStat) Name() string       { return s.name }
func (s fileStat) Size() int64        { return s.size }
func (s fileStat) Mode() fs.FileMode  { return s.mode }
func (s fileStat) ModTime() time.Time { return s.mtime }
func (s fileStat) IsDir() bool        { return s.mode.IsDir() }
func (fileStat) Sys() any             { return nil }

func sortedNames(m map[string]*inode) []string { return slices.Sorted(maps.Keys(m)) }

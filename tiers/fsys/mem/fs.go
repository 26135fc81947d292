// Package mem is a file system in memory that knows what a power loss would
// leave.
//
// What a program sees is the page cache: every write and every name at once.
// What is durable is less: the content of a file as of its last Sync or
// SyncData, and the names of a folder as of its last SyncDir (creation, rename,
// removal and link alike; the name of a new folder is a name in its parent).
// Three copies show the difference, each a new FS that shares nothing that can
// be changed:
//
//	KillCopy      the process was killed: the page cache survives
//	SyncedCopy    power loss, the least that may be left: everything not synced is gone
//	CrashCopy     power loss, seeded: each sector not synced and each name not synced is there or not
//
// A copy costs time for each file and folder and nothing for their bytes, which
// are shared until one side writes, so a test may take copies at every operation:
//
//	fs := mem.New()
//	fs.OnOp(func(op fsys.Op) { points = append(points, point{acked, fs.SyncedCopy(), fs.CrashCopy(uint64(op.Seq))}) })
//	workload(fs)
//
// The rules of CrashCopy. A file's size is that of the last sync, the present
// one, the smallest in between, or any value among these. Each 512-byte sector
// that differs from the synced content is new with probability 1/2, else old,
// and zero where there is nothing old: writes are torn and reordered. A rename
// is one step, it happened or not. Steps that touch the same name or the same
// file happen in order: the later one only if the earlier one did, as on every
// journaling file system. A copy is what a disk holds, all of it durable.
//
// One lock guards an FS; everything is safe for concurrent use.
package mem

import (
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/strandline-io/strandline/tiers/fsys"
)

// FS is a file system in memory. Names are taken from its root, whether they
// begin with a slash or not.
type FS struct {
	mu       sync.RWMutex
	root     *inode
	pending  []step // changes of names that no SyncDir has made durable, in order
	locked   map[string]bool
	seq      int
	onOp     func(fsys.Op)
	now      func() time.Time
	capacity int64 // bytes of all files; 0 is no limit
}

var _ fsys.FS = (*FS)(nil)

// inode is a file or a folder.
type inode struct {
	mode  fs.FileMode
	mtime time.Time

	// Of a file. synced is frozen. low is the smallest size since it was taken.
	cached, synced *content
	low            int64

	// Of a folder: what is seen and what is durable.
	names, durable map[string]*inode
}

// step is one change of names that happens entirely or not at all.
type step struct{ changes []change }

// change makes name in dir stand for to; nil removes it. from is what it stood
// for.
type change struct {
	dir      *inode
	name     string
	from, to *inode
}

// New returns an empty FS.
func New() *FS {
	m := &FS{locked: map[string]bool{}, now: time.Now}
	m.root = m.newFolder(0o755)
	return m
}

// SetClock makes now the source of modification times.
func (m *FS) SetClock(now func() time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = now
}

// SetCapacity makes writes fail with ENOSPC that would take the files beyond
// size bytes; 0 is no limit.
func (m *FS) SetCapacity(size int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.capacity = size
}

// OnOp calls f after each operation that changes anything (fsys.OpMutation),
// before the operation returns to its caller. f may use the FS. An operation
// that fails is not reported.
func (m *FS) OnOp(f func(op fsys.Op)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.onOp = f
}

// Ops is the number of operations that OnOp reported or would have.
func (m *FS) Ops() int {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.seq
}

// change runs act under the lock and reports op if it went well.
func (m *FS) change(op fsys.Op, act func() error) error {
	m.mu.Lock()
	err := act()
	if err != nil {
		m.mu.Unlock()
		return err
	}
	m.seq++
	op.Seq = m.seq
	f := m.onOp
	m.mu.Unlock()
	if f != nil {
		f(op)
	}
	return nil
}

func (m *FS) newFolder(perm fs.FileMode) *inode {
	return &inode{mode: fs.ModeDir | perm, mtime: m.now(), names: map[string]*inode{}, durable: map[string]*inode{}}
}

func (m *FS) newFile(perm fs.FileMode) *inode {
	c := newContent().freeze()
	return &inode{mode: perm, mtime: m.now(), cached: c, synced: c}
}

func (n *inode) isDir() bool { return n.names != nil }

func clean(name string) string { return path.Clean("/" + name) }

func fail(op, name string, err error) error { return &fs.PathError{Op: op, Path: name, Err: err} }

// find walks to name.
func (m *FS) find(name string) (*inode, error) {
	n := m.root
	for part := range strings.SplitSeq(strings.TrimPrefix(clean(name), "/"), "/") {
		if part == "" {
			break
		}
		if !n.isDir() {
			return nil, syscall.ENOTDIR
		}
		if n = n.names[part]; n == nil {
			return nil, syscall.ENOENT
		}
	}
	return n, nil
}

// parent walks to the folder of name and returns it with the last part of name.
func (m *FS) parent(name string) (*inode, string, error) {
	name = clean(name)
	if name == "/" {
		return nil, "", syscall.EBUSY
	}
	dir, err := m.find(path.Dir(name))
	if err != nil {
		return nil, "", err
	}
	if !dir.isDir() {
		return nil, "", syscall.ENOTDIR
	}
	return dir, path.Base(name), nil
}

// apply carries out a step and remembers that it is not durable.
func (m *FS) apply(changes ...change) {
	for i := range changes {
		c := &changes[i]
		c.from = c.dir.names[c.name]
		if c.to == nil {
			delete(c.dir.names, c.name)
		} else {
			c.dir.names[c.name] = c.to
		}
		c.dir.mtime = m.now()
	}
	m.pending = append(m.pending, step{changes})
}

// OpenFile opens or creates a file, as os.OpenFile does.
func (m *FS) OpenFile(name string, flag int, perm fs.FileMode) (fsys.File, error) {
	var n *inode
	open := func() (err error) {
		n, err = m.open(name, flag, perm)
		if err != nil {
			return fail("open", name, err)
		}
		return nil
	}
	var err error
	if flag&(os.O_CREATE|os.O_TRUNC) != 0 {
		err = m.change(fsys.Op{Kind: fsys.OpCreate, Name: name}, open)
	} else {
		m.mu.RLock()
		err = open()
		m.mu.RUnlock()
	}
	if err != nil {
		return nil, err
	}
	return &file{fs: m, n: n, name: name, flag: flag}, nil
}

func (m *FS) open(name string, flag int, perm fs.FileMode) (*inode, error) {
	n, err := m.find(name)
	switch {
	case err == nil && flag&os.O_CREATE != 0 && flag&os.O_EXCL != 0:
		return nil, syscall.EEXIST
	case err == nil && n.isDir() && flag&(os.O_WRONLY|os.O_RDWR|os.O_TRUNC|os.O_CREATE) != 0:
		return nil, syscall.EISDIR
	case err == nil:
		if flag&os.O_TRUNC != 0 {
			m.truncate(n, 0)
		}
		return n, nil
	case flag&os.O_CREATE == 0:
		return nil, err
	}
	dir, last, err := m.parent(name)
	if err != nil {
		return nil, err
	}
	n = m.newFile(perm)
	m.apply(change{dir: dir, name: last, to: n})
	return n, nil
}

func (m *FS) truncate(n *inode, size int64) {
	n.cached = n.cached.thaw()
	n.cached.truncate(size)
	n.low = min(n.low, size)
	n.mtime = m.now()
}

// Remove removes a file or an empty folder.
func (m *FS) Remove(name string) error {
	return m.change(fsys.Op{Kind: fsys.OpRemove, Name: name}, func() error {
		dir, last, err := m.parent(name)
		if err != nil {
			return fail("remove", name, err)
		}
		n := dir.names[last]
		if n == nil {
			return fail("remove", name, syscall.ENOENT)
		}
		if n.isDir() && len(n.names) > 0 {
			return fail("remove", name, syscall.ENOTEMPTY)
		}
		m.apply(change{dir: dir, name: last})
		return nil
	})
}

// RemoveAll removes name and what is below it, one step for each name, so that
// CrashCopy may show it half done.
func (m *FS) RemoveAll(name string) error {
	return m.change(fsys.Op{Kind: fsys.OpRemoveAll, Name: name}, func() error {
		dir, last, err := m.parent(name)
		if err != nil {
			if err == syscall.ENOENT { //nolint:errorlint // a bare errno
				return nil
			}
			return fail("removeall", name, err)
		}
		m.removeTree(dir, last)
		return nil
	})
}

func (m *FS) removeTree(dir *inode, name string) {
	n := dir.names[name]
	if n == nil {
		return
	}
	for _, below := range sortedNames(n.names) {
		m.removeTree(n, below)
	}
	m.apply(change{dir: dir, name: name})
}

// Rename moves oldName to newName, which it replaces.
func (m *FS) Rename(oldName, newName string) error {
	return m.change(fsys.Op{Kind: fsys.OpRename, Name: oldName, NewName: newName}, func() error {
		if err := m.rename(oldName, newName); err != nil {
			return &os.LinkError{Op: "rename", Old: oldName, New: newName, Err: err}
		}
		return nil
	})
}

func (m *FS) rename(oldName, newName string) error {
	from, oldLast, err := m.parent(oldName)
	if err != nil {
		return err
	}
	to, newLast, err := m.parent(newName)
	if err != nil {
		return err
	}
	n, replaced := from.names[oldLast], to.names[newLast]
	switch {
	case n == nil:
		return syscall.ENOENT
	case n == replaced: // two names of one file: POSIX does nothing
		return nil
	case n.isDir() && strings.HasPrefix(clean(newName)+"/", clean(oldName)+"/"):
		return syscall.EINVAL
	case replaced != nil && replaced.isDir() && !n.isDir():
		return syscall.EISDIR
	case replaced != nil && !replaced.isDir() && n.isDir():
		return syscall.ENOTDIR
	case replaced != nil && len(replaced.names) > 0:
		return syscall.ENOTEMPTY
	}
	m.apply(change{dir: from, name: oldLast}, change{dir: to, name: newLast, to: n})
	return nil
}

// Link makes newName another name of the file oldName.
func (m *FS) Link(oldName, newName string) error {
	return m.change(fsys.Op{Kind: fsys.OpLink, Name: oldName, NewName: newName}, func() error {
		if err := m.link(oldName, newName); err != nil {
			return &os.LinkError{Op: "link", Old: oldName, New: newName, Err: err}
		}
		return nil
	})
}

func (m *FS) link(oldName, newName string) error {
	n, err := m.find(oldName)
	if err != nil {
		return err
	}
	if n.isDir() {
		return syscall.EPERM
	}
	dir, last, err := m.parent(newName)
	if err != nil {
		return err
	}
	if dir.names[last] != nil {
		return syscall.EEXIST
	}
	m.apply(change{dir: dir, name: last, to: n})
	return nil
}

// MkdirAll makes a folder and those above it, each as a step of its own.
func (m *FS) MkdirAll(name string, perm fs.FileMode) error {
	return m.change(fsys.Op{Kind: fsys.OpMkdir, Name: name}, func() error {
		n := m.root
		for part := range strings.SplitSeq(strings.TrimPrefix(clean(name), "/"), "/") {
			if part == "" {
				break
			}
			next := n.names[part]
			if next == nil {
				next = m.newFolder(perm)
				m.apply(change{dir: n, name: part, to: next})
			}
			if !next.isDir() {
				return fail("mkdir", name, syscall.ENOTDIR)
			}
			n = next
		}
		return nil
	})
}

// ReadDir lists a folder in name order.
func (m *FS) ReadDir(name string) ([]fs.DirEntry, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	n, err := m.find(name)
	if err == nil && !n.isDir() {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return nil, fail("readdir", name, err)
	}
	list := make([]fs.DirEntry, 0, len(n.names))
	for _, below := range sortedNames(n.names) {
		list = append(list, fs.FileInfoToDirEntry(n.names[below].stat(below)))
	}
	return list, nil
}

// Stat describes a file or folder.
func (m *FS) Stat(name string) (fs.FileInfo, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	n, err := m.find(name)
	if err != nil {
		return nil, fail("stat", name, err)
	}
	return n.stat(path.Base(clean(name))), nil
}

// Lock takes the lock of name, which is created if need be. Locks are not part
// of any copy.
func (m *FS) Lock(name string) (io.Closer, error) {
	f, err := m.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	key := clean(name)
	if m.locked[key] {
		return nil, fail("lock", name, fsys.ErrLocked)
	}
	m.locked[key] = true
	return &lock{fs: m, key: key}, nil
}

type lock struct {
	fs   *FS
	key  string
	once sync.Once
}

func (l *lock) Close() error {
	err := fs.ErrClosed
	l.once.Do(func() {
		l.fs.mu.Lock()
		defer l.fs.mu.Unlock()
		delete(l.fs.locked, l.key)
		err = nil
	})
	return err
}

// Free returns what SetCapacity left, of 1 TiB if there is no limit.
func (m *FS) Free(name string) (free, total int64, err error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if _, err := m.find(name); err != nil {
		return 0, 0, fail("statfs", name, err)
	}
	total = m.capacity
	if total == 0 {
		total = 1 << 40
	}
	return max(0, total-m.used()), total, nil
}

// used is the bytes of all files that have a name.
func (m *FS) used() int64 {
	var sum int64
	seen := map[*inode]bool{}
	var walk func(*inode)
	walk = func(n *inode) {
		if seen[n] {
			return
		}
		seen[n] = true
		if !n.isDir() {
			sum += n.cached.size
		}
		for _, below := range n.names {
			walk(below)
		}
	}
	walk(m.root)
	return sum
}

package local

import (
	"container/list"
	"sync"

	"github.com/strandline-io/strandline/tiers/fsys"
)

// maxOpenFiles bounds the idle open files of a disk. Files in use may go beyond
// it for as long as they are. It leaves room below 8,000 for the control plane
// and for sockets.
const maxOpenFiles = 7500

// handles keeps files open that were used lately. One lock guards it and the
// names and handles of all its files; opening and closing happen outside of it.
type handles struct {
	mu    sync.Mutex
	limit int
	open  int
	idle  list.List // of *handle, the one used last in front
}

// file is a file that is opened when it is needed. Its name may change while it
// is read.
type file struct {
	fs    fsys.FS
	cache *handles
	flag  int

	name   string  // guarded by cache.mu
	h      *handle // guarded by cache.mu
	owners int     // segments that it is of; guarded by cache.mu
	doomed bool    // it is removed when the last owner lets go; guarded by cache.mu
}

// handle is an open file and how many use it.
type handle struct {
	fsys.File
	of   *file
	refs int           // guarded by cache.mu
	elem *list.Element // guarded by cache.mu; not nil while idle
}

func (c *handles) file(fs fsys.FS, name string, flag int) *file {
	return &file{fs: fs, cache: c, flag: flag, name: name, owners: 1}
}

// acquire returns the open file; the caller must release it.
func (f *file) acquire() (*handle, error) {
	for {
		c := f.cache
		c.mu.Lock()
		if f.h != nil {
			h := f.h
			h.use()
			c.mu.Unlock()
			return h, nil
		}
		name := f.name
		c.mu.Unlock()

		opened, err := f.fs.OpenFile(name, f.flag, 0)
		h, again, err := f.install(name, opened, err)
		if !again {
			return h, err
		}
	}
}

// install makes opened the handle of f, unless f was renamed or opened
// meanwhile: a renamed file must be opened again, because its old name may have
// been given to another file before it was opened.
func (f *file) install(name string, opened fsys.File, err error) (h *handle, again bool, _ error) {
	c := f.cache
	c.mu.Lock()
	var drop []fsys.File
	switch {
	case f.name != name:
		again = true
	case err != nil:
		c.mu.Unlock()
		return nil, false, err
	case f.h != nil:
		h = f.h
		h.use()
	default:
		h = &handle{File: opened, of: f, refs: 1}
		f.h = h
		opened = nil
		c.open++
		drop = c.trim()
	}
	c.mu.Unlock()
	if opened != nil {
		drop = append(drop, opened)
	}
	closeAll(drop)
	return h, again, nil
}

// use counts a user. The caller holds the lock.
func (h *handle) use() {
	h.refs++
	if h.elem != nil {
		h.of.cache.idle.Remove(h.elem)
		h.elem = nil
	}
}

// release gives the handle back.
func (h *handle) release() {
	c := h.of.cache
	c.mu.Lock()
	var drop []fsys.File
	h.refs--
	if h.refs == 0 {
		if h.of.h != h { // f was closed meanwhile
			c.open--
			drop = append(drop, h.File)
		} else {
			h.elem = c.idle.PushFront(h)
			drop = c.trim()
		}
	}
	c.mu.Unlock()
	closeAll(drop)
}

// trim takes out the idle handles above the limit. The caller holds the lock.
func (c *handles) trim() []fsys.File {
	var drop []fsys.File
	for c.open > c.limit && c.idle.Len() > 0 {
		h := c.idle.Remove(c.idle.Back()).(*handle) // idle holds nothing else
		h.elem, h.of.h = nil, nil
		c.open--
		drop = append(drop, h.File)
	}
	return drop
}

// close closes the file as soon as nobody uses it.
func (f *file) close() {
	c := f.cache
	c.mu.Lock()
	h := f.h
	f.h = nil
	if h != nil && h.elem != nil {
		c.idle.Remove(h.elem)
		h.elem = nil
		c.open--
	} else {
		h = nil
	}
	c.mu.Unlock()
	if h != nil {
		closeAll([]fsys.File{h.File})
	}
}

// share counts one more owner.
func (f *file) share() *file {
	f.cache.mu.Lock()
	defer f.cache.mu.Unlock()
	f.owners++
	return f
}

// doom has the file removed when the last owner lets go of it.
func (f *file) doom() {
	f.cache.mu.Lock()
	defer f.cache.mu.Unlock()
	f.doomed = true
}

func (f *file) isDoomed() bool {
	f.cache.mu.Lock()
	defer f.cache.mu.Unlock()
	return f.doomed
}

// letGo ends an ownership. With the last one the file is closed and, if it is
// doomed, removed.
func (f *file) letGo() error {
	f.cache.mu.Lock()
	f.owners--
	last, remove, name := f.owners == 0, f.doomed, f.name
	f.cache.mu.Unlock()
	if !last {
		return nil
	}
	f.close()
	if !remove {
		return nil
	}
	return removeIfThere(f.fs, name)
}

// rename gives the file another name; readers follow, even if there is no such
// file or it could not be renamed: the old name may be given to another file.
func (f *file) rename(name string) error {
	c := f.cache
	c.mu.Lock()
	defer c.mu.Unlock()
	err := f.fs.Rename(f.name, name)
	f.name = name
	return err
}

// called says that the file has this name after all.
func (f *file) called(name string) {
	f.cache.mu.Lock()
	defer f.cache.mu.Unlock()
	f.name = name
}

func (f *file) path() string {
	f.cache.mu.Lock()
	defer f.cache.mu.Unlock()
	return f.name
}

// ReadAt reads from the file as io.ReaderAt.
func (f *file) ReadAt(p []byte, off int64) (int, error) {
	h, err := f.acquire()
	if err != nil {
		return 0, err
	}
	defer h.release()
	return h.File.ReadAt(p, off)
}

// closeAll closes files of which nothing is left to be written: what close
// reports then has no meaning.
func closeAll(files []fsys.File) {
	for _, f := range files {
		_ = f.Close() // synced, or only read
	}
}

// closeIdle closes the files that nobody uses.
func (c *handles) closeIdle() {
	c.mu.Lock()
	limit := c.limit
	c.limit = 0
	drop := c.trim()
	c.limit = limit
	c.mu.Unlock()
	closeAll(drop)
}

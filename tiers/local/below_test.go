package local

import (
	"io"
	"io/fs"

	"github.com/strandline-io/strandline/tiers/fsys"
)

// below is a file system whose root is a folder of another one.
type below struct {
	fsys.FS
	dir string
}

func (b below) OpenFile(name string, flag int, perm fs.FileMode) (fsys.File, error) {
	return b.FS.OpenFile(b.dir+name, flag, perm)
}
func (b below) Remove(name string) error                     { return b.FS.Remove(b.dir + name) }
func (b below) RemoveAll(name string) error                  { return b.FS.RemoveAll(b.dir + name) }
func (b below) Rename(o, n string) error                     { return b.FS.Rename(b.dir+o, b.dir+n) }
func (b below) Link(o, n string) error                       { return b.FS.Link(b.dir+o, b.dir+n) }
func (b below) MkdirAll(name string, perm fs.FileMode) error { return b.FS.MkdirAll(b.dir+name, perm) }
func (b below) ReadDir(name string) ([]fs.DirEntry, error)   { return b.FS.ReadDir(b.dir + name) }
func (b below) Stat(name string) (fs.FileInfo, error)        { return b.FS.Stat(b.dir + name) }
func (b below) SyncDir(name string) error                    { return b.FS.SyncDir(b.dir + name) }
func (b below) Lock(name string) (io.Closer, error)          { return b.FS.Lock(b.dir + name) }
func (b below) Free(name string) (int64, int64, error)       { return b.FS.Free(b.dir + name) }

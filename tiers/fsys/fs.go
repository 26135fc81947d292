// Package fsys is the file system seam: the one place of the tiers and of the
// folder-as-a-bucket driver that touches files. OS is the real thing, mem a twin
// in memory whose crash copies drop what was not synced, Faulty a wrapper that
// fails operations on schedule.
//
// All names are slash separated and passed through as they are. A File belongs
// to whoever opened it; ReadAt may be called from any goroutine at once.
package fsys

import (
	"errors"
	"io"
	"io/fs"
	"os"
)

// ErrLocked is returned by Lock when another process, or another caller in this
// one, holds the lock.
var ErrLocked = errors.New("locked by another process")

// The flags of OpenFile, which are those of package os, for whoever must not
// import that.
const (
	ReadOnly  = os.O_RDONLY
	WriteOnly = os.O_WRONLY
	ReadWrite = os.O_RDWR
	Append    = os.O_APPEND
	Create    = os.O_CREATE
	Exclusive = os.O_EXCL // with Create: the file must not exist
	Truncate  = os.O_TRUNC
)

// FS is what the tiers need of a file system. Errors satisfy errors.Is with
// fs.ErrNotExist and fs.ErrExist where those apply.
type FS interface {
	// OpenFile opens name with the flags of package os (os.O_RDWR, ...).
	OpenFile(name string, flag int, perm fs.FileMode) (File, error)
	Remove(name string) error
	// RemoveAll removes name and what is below it; a missing name is no error.
	RemoveAll(name string) error
	// Rename replaces newName. Durable only after SyncDir of the folder.
	Rename(oldName, newName string) error
	// Link makes newName another name of oldName, and fails with fs.ErrExist if
	// it is there already.
	Link(oldName, newName string) error
	MkdirAll(name string, perm fs.FileMode) error
	// ReadDir lists a folder in name order.
	ReadDir(name string) ([]fs.DirEntry, error)
	Stat(name string) (fs.FileInfo, error)
	// SyncDir makes the names in a folder durable.
	SyncDir(name string) error
	// Lock creates name if need be and takes an exclusive lock that ends with
	// the returned Closer or with the process. It does not wait: ErrLocked.
	Lock(name string) (io.Closer, error)
	// Free returns the bytes that an ordinary user may still write below name,
	// and the size of the disk.
	Free(name string) (free, total int64, err error)
}

// File is an open file.
type File interface {
	io.Reader
	io.Writer
	io.ReaderAt
	io.WriterAt
	io.Closer
	Name() string
	Stat() (fs.FileInfo, error)
	Truncate(size int64) error
	// Sync makes content and size durable (fsync).
	Sync() error
	// SyncData makes content durable, and the size where it changed (fdatasync).
	SyncData() error
	// Preallocate reserves room for size bytes without changing the file's size.
	// Where the file system cannot, nothing happens.
	Preallocate(size int64) error
}

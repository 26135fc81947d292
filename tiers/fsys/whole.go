package fsys

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
)

// TempSuffix ends the name of a file that WriteFileAtomic has not finished. Such
// a file may be left by a crash and is of no use.
const TempSuffix = ".tmp"

// ReadFile returns the content of name.
func ReadFile(fsys FS, name string) ([]byte, error) {
	f, err := fsys.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	b := make([]byte, 0, st.Size()+1)
	for {
		n, err := f.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if errors.Is(err, io.EOF) {
			return b, nil
		}
		if err != nil {
			return nil, err
		}
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
	}
}

// WriteFileAtomic replaces name by a file that holds data: temp, fsync, rename,
// fsync of the folder (C7). After a crash name is the old file or the new one,
// whole; after a nil return it is the new one. Two writers of one name at once
// are the caller's mistake.
func WriteFileAtomic(fsys FS, name string, data []byte, perm fs.FileMode) error {
	temp := name + TempSuffix
	if err := writeSynced(fsys, temp, data, perm); err != nil {
		return errors.Join(err, removeIfThere(fsys, temp))
	}
	if err := fsys.Rename(temp, name); err != nil {
		return errors.Join(err, removeIfThere(fsys, temp))
	}
	return fsys.SyncDir(path.Dir(name))
}

func writeSynced(fsys FS, name string, data []byte, perm fs.FileMode) error {
	f, err := fsys.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, perm)
	if err != nil {
		return err
	}
	if _, err = f.Write(data); err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

func removeIfThere(fsys FS, name string) error {
	if err := fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("clean up: %w", err)
	}
	return nil
}

// MkdirAllSync is MkdirAll whose folders are there after a crash. It syncs every
// folder above name: one that is there already may have been made by a process
// that was killed before it came to that. Folders that must not be read are
// passed over, as they are somebody else's.
func MkdirAllSync(fsys FS, name string, perm fs.FileMode) error {
	if err := fsys.MkdirAll(name, perm); err != nil {
		return err
	}
	for dir := path.Clean(name); path.Dir(dir) != dir; {
		dir = path.Dir(dir)
		if err := fsys.SyncDir(dir); err != nil && !errors.Is(err, fs.ErrPermission) {
			return err
		}
	}
	return nil
}

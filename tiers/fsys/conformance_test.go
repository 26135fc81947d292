package fsys_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"sync"
	"testing"

	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/fsys/mem"
)

// TestConformance holds the machine's file system, the twin in memory and a
// Faulty without faults to one list of expectations.
func TestConformance(t *testing.T) {
	t.Parallel()
	kinds := map[string]func(t *testing.T) (fsys.FS, string){
		"os": func(t *testing.T) (fsys.FS, string) { t.Helper(); return fsys.OS{}, t.TempDir() },
		"mem": func(t *testing.T) (fsys.FS, string) {
			t.Helper()
			m := mem.New()
			must(t, m.MkdirAll("/some/dir", 0o755))
			return m, "/some/dir"
		},
		"faulty": func(t *testing.T) (fsys.FS, string) { t.Helper(); return fsys.NewFaulty(fsys.OS{}), t.TempDir() },
	}
	checks := map[string]func(on){
		"read and write": checkReadWrite, "open flags": checkOpenFlags, "truncate": checkTruncate, "append": checkAppend,
		"names": checkNames, "rename": checkRename, "link": checkLink, "remove": checkRemove, "folders": checkFolders,
		"unlinked file": checkUnlinked, "closed file": checkClosed, "lock": checkLock, "preallocate": checkPreallocate,
		"free": checkFree, "whole files": checkWhole, "readers and a writer": checkConcurrent,
	}
	for kind, open := range kinds {
		for name, check := range checks {
			t.Run(kind+"/"+name, func(t *testing.T) {
				t.Parallel()
				f, dir := open(t)
				check(on{t, f, dir})
			})
		}
	}
}

// on is what a check works on.
type on struct {
	t   *testing.T
	fs  fsys.FS
	dir string
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func want[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s is %v, want %v", what, got, want)
	}
}

func wantErr(t *testing.T, what string, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("%s: error is %v, want %v", what, err, target)
	}
}

func create(t *testing.T, f fsys.FS, name, content string) fsys.File {
	t.Helper()
	file, err := f.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	must(t, err)
	n, err := file.Write([]byte(content))
	must(t, err)
	want(t, "bytes written", n, len(content))
	return file
}

func put(t *testing.T, f fsys.FS, name, content string) {
	t.Helper()
	must(t, create(t, f, name, content).Close())
}

func content(t *testing.T, f fsys.FS, name string) string {
	t.Helper()
	b, err := fsys.ReadFile(f, name)
	must(t, err)
	return string(b)
}

func list(t *testing.T, f fsys.FS, dir string) string {
	t.Helper()
	entries, err := f.ReadDir(dir)
	must(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return fmt.Sprint(names)
}

func checkReadWrite(c on) {
	t, f, dir := c.t, c.fs, c.dir
	file := create(t, f, path.Join(dir, "a"), "hello")
	defer file.Close()
	want(t, "name", file.Name(), path.Join(dir, "a"))
	_, err := file.WriteAt([]byte("J"), 0)
	must(t, err)
	_, err = file.WriteAt([]byte("!"), 10_000)
	must(t, err)
	st, err := file.Stat()
	must(t, err)
	want(t, "size", st.Size(), 10_001)
	want(t, "stat name", st.Name(), "a")
	b := make([]byte, 6)
	n, err := file.ReadAt(b, 0)
	must(t, err)
	want(t, "read", string(b[:n]), "Jello\x00")
	n, err = file.ReadAt(b, 9_999)
	wantErr(t, "read across the end", err, io.EOF)
	want(t, "read across the end", string(b[:n]), "\x00!")
	_, err = file.ReadAt(b, 10_001)
	wantErr(t, "read at the end", err, io.EOF)
	must(t, file.SyncData())
	must(t, file.Sync())
	got := content(t, f, path.Join(dir, "a"))
	if want := "Jello" + string(bytes.Repeat([]byte{0}, 9_995)) + "!"; got != want {
		t.Fatal("content differs")
	}
	// Read and Write share one position.
	_, err = file.Read(b)
	must(t, err)
	want(t, "read on after five bytes were written", b[0], 0)
}

func checkOpenFlags(c on) {
	t, f, dir := c.t, c.fs, c.dir
	name := path.Join(dir, "a")
	_, err := f.OpenFile(name, os.O_RDWR, 0)
	wantErr(t, "open missing", err, fs.ErrNotExist)
	put(t, f, name, "one")
	_, err = f.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	wantErr(t, "create existing", err, fs.ErrExist)
	want(t, "content", content(t, f, name), "one")
	ro, err := f.OpenFile(name, os.O_RDONLY, 0)
	must(t, err)
	defer ro.Close()
	if _, err = ro.Write([]byte("x")); err == nil {
		t.Fatal("a file opened for reading took a write")
	}
	wo, err := f.OpenFile(name, os.O_WRONLY, 0)
	must(t, err)
	defer wo.Close()
	if _, err = wo.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Fatalf("read of a file opened for writing: %v", err)
	}
	trunc, err := f.OpenFile(name, os.O_WRONLY|os.O_TRUNC, 0)
	must(t, err)
	must(t, trunc.Close())
	want(t, "content after O_TRUNC", content(t, f, name), "")
	_, err = f.OpenFile(path.Join(dir, "no/such"), os.O_RDWR|os.O_CREATE, 0o644)
	wantErr(t, "create in a missing folder", err, fs.ErrNotExist)
	_, err = f.OpenFile(dir, os.O_RDWR, 0)
	if err == nil {
		t.Fatal("a folder was opened for writing")
	}
}

func checkTruncate(c on) {
	t, f, dir := c.t, c.fs, c.dir
	file := create(t, f, path.Join(dir, "a"), "0123456789")
	defer file.Close()
	must(t, file.Truncate(4))
	want(t, "cut", content(t, f, file.Name()), "0123")
	must(t, file.Truncate(6))
	want(t, "grown", content(t, f, file.Name()), "0123\x00\x00")
	_, err := file.WriteAt(bytes.Repeat([]byte("x"), 9000), 0)
	must(t, err)
	must(t, file.Truncate(4097))
	must(t, file.Truncate(9000))
	want(t, "zeros after a cut", content(t, f, file.Name()), string(bytes.Repeat([]byte("x"), 4097))+string(make([]byte, 9000-4097)))
}

func checkAppend(c on) {
	t, f, dir := c.t, c.fs, c.dir
	name := path.Join(dir, "a")
	put(t, f, name, "one")
	file, err := f.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
	must(t, err)
	defer file.Close()
	_, err = file.Write([]byte("two"))
	must(t, err)
	want(t, "content", content(t, f, name), "onetwo")
	if _, err := file.WriteAt([]byte("x"), 0); err == nil {
		t.Fatal("WriteAt on a file opened with O_APPEND went well")
	}
}

func checkNames(c on) {
	t, f, dir := c.t, c.fs, c.dir
	for _, name := range []string{"b", "a", "c.log", "C"} {
		put(t, f, path.Join(dir, name), name)
	}
	must(t, f.MkdirAll(path.Join(dir, "bb/deep"), 0o755))
	want(t, "list", list(t, f, dir), "[C a b bb c.log]")
	entries, err := f.ReadDir(dir)
	must(t, err)
	want(t, "bb is a folder", entries[3].IsDir(), true)
	info, err := entries[4].Info()
	must(t, err)
	want(t, "size in the listing", info.Size(), 5)
	_, err = f.ReadDir(path.Join(dir, "none"))
	wantErr(t, "list missing", err, fs.ErrNotExist)
	if _, err = f.ReadDir(path.Join(dir, "a")); err == nil {
		t.Fatal("a file was listed")
	}
	must(t, f.SyncDir(dir))
	wantErr(t, "sync missing folder", f.SyncDir(path.Join(dir, "none")), fs.ErrNotExist)
}

func checkRename(c on) {
	t, f, dir := c.t, c.fs, c.dir
	a, b := path.Join(dir, "a"), path.Join(dir, "b")
	put(t, f, a, "A")
	put(t, f, b, "B")
	must(t, f.Rename(a, b))
	want(t, "list", list(t, f, dir), "[b]")
	want(t, "content", content(t, f, b), "A")
	wantErr(t, "rename missing", f.Rename(a, b), fs.ErrNotExist)
	must(t, f.MkdirAll(path.Join(dir, "d/e"), 0o755))
	must(t, f.Rename(b, path.Join(dir, "d/e/b")))
	must(t, f.Rename(path.Join(dir, "d"), path.Join(dir, "d2")))
	want(t, "moved folder", content(t, f, path.Join(dir, "d2/e/b")), "A")
	if err := f.Rename(path.Join(dir, "d2"), path.Join(dir, "d2/e/d")); err == nil {
		t.Fatal("a folder was moved into itself")
	}
	put(t, f, a, "A")
	if err := f.Rename(a, path.Join(dir, "d2")); err == nil {
		t.Fatal("a file replaced a folder")
	}
	if err := f.Rename(path.Join(dir, "d2"), a); err == nil {
		t.Fatal("a folder replaced a file")
	}
}

func checkLink(c on) {
	t, f, dir := c.t, c.fs, c.dir
	a, b := path.Join(dir, "a"), path.Join(dir, "b")
	put(t, f, a, "A")
	must(t, f.Link(a, b))
	wantErr(t, "link over", f.Link(a, b), fs.ErrExist)
	wantErr(t, "link missing", f.Link(path.Join(dir, "none"), path.Join(dir, "c")), fs.ErrNotExist)
	file, err := f.OpenFile(a, os.O_WRONLY, 0)
	must(t, err)
	_, err = file.Write([]byte("X"))
	must(t, err)
	must(t, file.Close())
	want(t, "other name", content(t, f, b), "X")
	must(t, f.Remove(a))
	want(t, "other name after removal", content(t, f, b), "X")
}

func checkRemove(c on) {
	t, f, dir := c.t, c.fs, c.dir
	wantErr(t, "remove missing", f.Remove(path.Join(dir, "a")), fs.ErrNotExist)
	put(t, f, path.Join(dir, "a"), "A")
	must(t, f.Remove(path.Join(dir, "a")))
	want(t, "list", list(t, f, dir), "[]")
	must(t, f.MkdirAll(path.Join(dir, "d/e/f"), 0o755))
	put(t, f, path.Join(dir, "d/e/x"), "")
	if err := f.Remove(path.Join(dir, "d")); err == nil {
		t.Fatal("a folder that is not empty was removed")
	}
	must(t, f.RemoveAll(path.Join(dir, "d")))
	must(t, f.RemoveAll(path.Join(dir, "d")))
	must(t, f.RemoveAll(path.Join(dir, "no/such")))
	want(t, "list", list(t, f, dir), "[]")
}

func checkFolders(c on) {
	t, f, dir := c.t, c.fs, c.dir
	must(t, f.MkdirAll(path.Join(dir, "x/y"), 0o755))
	must(t, f.MkdirAll(path.Join(dir, "x/y"), 0o755))
	must(t, fsys.MkdirAllSync(f, path.Join(dir, "x/y/z/w"), 0o755))
	st, err := f.Stat(path.Join(dir, "x/y/z/w"))
	must(t, err)
	want(t, "is a folder", st.IsDir(), true)
	put(t, f, path.Join(dir, "file"), "")
	if err = f.MkdirAll(path.Join(dir, "file/below"), 0o755); err == nil {
		t.Fatal("a folder was made below a file")
	}
	_, err = f.Stat(path.Join(dir, "none"))
	wantErr(t, "stat missing", err, fs.ErrNotExist)
}

func checkUnlinked(c on) {
	t, f, dir := c.t, c.fs, c.dir
	file := create(t, f, path.Join(dir, "a"), "still here")
	defer file.Close()
	must(t, f.Remove(path.Join(dir, "a")))
	put(t, f, path.Join(dir, "a"), "another")
	b := make([]byte, 10)
	_, err := file.ReadAt(b, 0)
	must(t, err)
	want(t, "read of a removed file", string(b), "still here")
}

func checkClosed(c on) {
	t, f, dir := c.t, c.fs, c.dir
	file := create(t, f, path.Join(dir, "a"), "x")
	must(t, file.Close())
	_, err := file.Write([]byte("y"))
	wantErr(t, "write", err, fs.ErrClosed)
	_, err = file.ReadAt(make([]byte, 1), 0)
	wantErr(t, "read", err, fs.ErrClosed)
	wantErr(t, "sync", file.Sync(), fs.ErrClosed)
	wantErr(t, "sync data", file.SyncData(), fs.ErrClosed)
	wantErr(t, "close", file.Close(), fs.ErrClosed)
}

func checkLock(c on) {
	t, f, dir := c.t, c.fs, c.dir
	name := path.Join(dir, "lock")
	l, err := f.Lock(name)
	must(t, err)
	_, err = f.Lock(name)
	wantErr(t, "second lock", err, fsys.ErrLocked)
	must(t, l.Close())
	l, err = f.Lock(name)
	must(t, err)
	must(t, l.Close())
}

func checkPreallocate(c on) {
	t, f, dir := c.t, c.fs, c.dir
	file := create(t, f, path.Join(dir, "a"), "x")
	defer file.Close()
	must(t, file.Preallocate(1<<20))
	must(t, file.Preallocate(0))
	st, err := file.Stat()
	must(t, err)
	want(t, "size", st.Size(), 1)
	must(t, file.Truncate(1))
}

func checkFree(c on) {
	t, f, dir := c.t, c.fs, c.dir
	free, total, err := f.Free(dir)
	must(t, err)
	if free <= 0 || total < free {
		t.Fatalf("%d bytes free of %d", free, total)
	}
	_, _, err = f.Free(path.Join(dir, "none"))
	wantErr(t, "free of a missing folder", err, fs.ErrNotExist)
}

func checkWhole(c on) {
	t, f, dir := c.t, c.fs, c.dir
	name := path.Join(dir, "a")
	_, err := fsys.ReadFile(f, name)
	wantErr(t, "read missing", err, fs.ErrNotExist)
	must(t, fsys.WriteFileAtomic(f, name, []byte("one"), 0o644))
	must(t, fsys.WriteFileAtomic(f, name, bytes.Repeat([]byte("two"), 5000), 0o644))
	want(t, "content", content(t, f, name), string(bytes.Repeat([]byte("two"), 5000)))
	want(t, "list", list(t, f, dir), "[a]")
}

func checkConcurrent(c on) {
	t, f, dir := c.t, c.fs, c.dir
	file := create(t, f, path.Join(dir, "a"), string(bytes.Repeat([]byte{7}, 64<<10)))
	defer file.Close()
	var wg sync.WaitGroup
	for r := range 4 {
		wg.Go(func() {
			b := make([]byte, 1000)
			for i := range 100 {
				if _, err := file.ReadAt(b, int64(i*500+r)); err != nil || slices.Max(b) != 7 || slices.Min(b) != 7 {
					t.Errorf("read %v %d..%d", err, slices.Min(b), slices.Max(b))
					return
				}
			}
		})
	}
	wg.Go(func() {
		for range 100 {
			if _, err := file.Write([]byte("more")); err != nil {
				t.Error(err)
				return
			}
		}
	})
	wg.Wait()
}

package fsys_test

import (
	"errors"
	"io"
	"os"
	"path"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/fsys/mem"
)

func newFaulty(t *testing.T) (*fsys.Faulty, *mem.FS, fsys.File) {
	t.Helper()
	m := mem.New()
	f := fsys.NewFaulty(m)
	file := create(t, f, "/a.log", "")
	t.Cleanup(func() { _ = file.Close() })
	return f, m, file
}

func TestFaultyNth(t *testing.T) {
	t.Parallel()
	f, m, file := newFaulty(t)
	hits := f.Add(fsys.Fault{Kinds: fsys.OpWrite, Name: ".log", Skip: 1, Times: 2, Err: syscall.ENOSPC})
	other := create(t, f, "/b.index", "not this one")
	must(t, other.Close())
	var got string
	for _, s := range []string{"1", "2", "3", "4"} {
		switch _, err := file.Write([]byte(s)); {
		case err == nil:
			got += s
		case !errors.Is(err, syscall.ENOSPC):
			t.Fatal(err)
		}
	}
	want(t, "writes that went well", got, "14")
	want(t, "content", content(t, m, "/a.log"), "14")
	want(t, "hits", hits(), 2)
}

func TestFaultySticky(t *testing.T) {
	t.Parallel()
	f, m, file := newFaulty(t)
	must(t, m.SyncDir("/"))
	f.Add(fsys.Fault{Kinds: fsys.OpAnySync, Err: syscall.EIO, Sticky: true})
	_, err := file.Write([]byte("x"))
	must(t, err)
	for range 3 {
		wantErr(t, "sync", file.Sync(), syscall.EIO)
		wantErr(t, "sync data", file.SyncData(), syscall.EIO)
		wantErr(t, "sync dir", f.SyncDir("/"), syscall.EIO)
	}
	want(t, "durable", content(t, m.SyncedCopy(), "/a.log"), "")
	f.Clear()
	must(t, file.Sync())
	want(t, "durable", content(t, m.SyncedCopy(), "/a.log"), "x")
}

func TestFaultyTornWrite(t *testing.T) {
	t.Parallel()
	f, m, file := newFaulty(t)
	f.Add(fsys.Fault{Kinds: fsys.OpWrite, Short: 3, Err: syscall.ENOSPC})
	n, err := file.WriteAt([]byte("hello"), 0)
	want(t, "written", n, 3)
	wantErr(t, "write", err, syscall.ENOSPC)
	want(t, "content", content(t, m, "/a.log"), "hel")
}

// An operation that happened and is reported as failed.
func TestFaultyApplied(t *testing.T) {
	t.Parallel()
	f, m, file := newFaulty(t)
	f.Add(fsys.Fault{Applied: true, Err: syscall.EIO, Sticky: true})
	n, err := file.Write([]byte("x"))
	want(t, "written", n, 1)
	wantErr(t, "write", err, syscall.EIO)
	wantErr(t, "sync", file.Sync(), syscall.EIO)
	wantErr(t, "rename", f.Rename("/a.log", "/b.log"), syscall.EIO)
	wantErr(t, "link", f.Link("/b.log", "/c.log"), syscall.EIO)
	wantErr(t, "mkdir", f.MkdirAll("/d", 0o755), syscall.EIO)
	wantErr(t, "sync dir", f.SyncDir("/"), syscall.EIO)
	_, err = f.OpenFile("/new", os.O_CREATE|os.O_RDWR, 0o644)
	wantErr(t, "create", err, syscall.EIO)
	_, err = f.Lock("/lock")
	wantErr(t, "lock", err, syscall.EIO)
	l, err := m.Lock("/lock") // it was let go of
	must(t, err)
	must(t, l.Close())
	want(t, "list", list(t, m, "/"), "[b.log c.log d lock new]")
	want(t, "durable", content(t, m.SyncedCopy(), "/b.log"), "x")
}

func TestFaultyEveryKind(t *testing.T) {
	t.Parallel()
	do := map[fsys.Kind]func(f fsys.FS, file fsys.File) error{
		fsys.OpCreate: func(f fsys.FS, _ fsys.File) error {
			_, err := f.OpenFile("/x", os.O_CREATE|os.O_RDWR, 0o644)
			return err
		},
		fsys.OpOpen:        func(f fsys.FS, _ fsys.File) error { _, err := f.OpenFile("/a.log", os.O_RDONLY, 0); return err },
		fsys.OpWrite:       func(_ fsys.FS, file fsys.File) error { _, err := file.Write([]byte("x")); return err },
		fsys.OpTruncate:    func(_ fsys.FS, file fsys.File) error { return file.Truncate(1) },
		fsys.OpSync:        func(_ fsys.FS, file fsys.File) error { return file.Sync() },
		fsys.OpSyncData:    func(_ fsys.FS, file fsys.File) error { return file.SyncData() },
		fsys.OpPreallocate: func(_ fsys.FS, file fsys.File) error { return file.Preallocate(10) },
		fsys.OpRead:        func(_ fsys.FS, file fsys.File) error { _, err := file.ReadAt(nil, 0); return err },
		fsys.OpClose:       func(_ fsys.FS, file fsys.File) error { return file.Close() },
		fsys.OpRename:      func(f fsys.FS, _ fsys.File) error { return f.Rename("/a.log", "/r") },
		fsys.OpLink:        func(f fsys.FS, _ fsys.File) error { return f.Link("/a.log", "/l") },
		fsys.OpRemove:      func(f fsys.FS, _ fsys.File) error { return f.Remove("/a.log") },
		fsys.OpRemoveAll:   func(f fsys.FS, _ fsys.File) error { return f.RemoveAll("/a.log") },
		fsys.OpMkdir:       func(f fsys.FS, _ fsys.File) error { return f.MkdirAll("/d", 0o755) },
		fsys.OpSyncDir:     func(f fsys.FS, _ fsys.File) error { return f.SyncDir("/") },
		fsys.OpReadDir:     func(f fsys.FS, _ fsys.File) error { _, err := f.ReadDir("/"); return err },
		fsys.OpStat:        func(f fsys.FS, _ fsys.File) error { _, err := f.Stat("/a.log"); return err },
		fsys.OpLock:        func(f fsys.FS, _ fsys.File) error { _, err := f.Lock("/lock"); return err },
		fsys.OpFree:        func(f fsys.FS, _ fsys.File) error { _, _, err := f.Free("/"); return err },
	}
	all := fsys.Kind(0)
	for kind, act := range do {
		all |= kind
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			f, m, file := newFaulty(t)
			before, ops := list(t, m, "/"), len(f.Ops(kind))
			hits := f.Add(fsys.Fault{Kinds: kind, Err: syscall.EIO})
			wantErr(t, "fault", act(f, file), syscall.EIO)
			want(t, "hits", hits(), 1)
			want(t, "names", list(t, m, "/"), before)
			want(t, "operations", len(f.Ops(kind)), ops+1)
			if kind != fsys.OpClose { // which closes in any case
				must(t, act(f, file))
			}
		})
	}
	want(t, "kinds that are tried", all, fsys.OpAny)
}

func TestFaultyHold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, _, file := newFaulty(t)
		hold, reached, done := make(chan struct{}), make(chan fsys.Op), make(chan error)
		f.Add(fsys.Fault{Kinds: fsys.OpSync, Hold: hold, Reached: reached})
		go func() { done <- file.Sync() }()
		want(t, "held", (<-reached).Name, "/a.log")
		synctest.Wait()
		select {
		case <-done:
			t.Fatal("the sync went on")
		default:
		}
		close(hold)
		must(t, <-done)
	})
}

// A write path that fails at any operation leaves the old file or the new one,
// and no temporary file unless even its removal fails.
func TestWriteFileAtomicFaults(t *testing.T) {
	t.Parallel()
	for _, applied := range []bool{false, true} {
		for n := range 5 { // create, write, sync, close, rename; then the sync of the folder
			m := mem.New()
			must(t, fsys.WriteFileAtomic(m, "/d.txt", []byte("old"), 0o644))
			f := fsys.NewFaulty(m)
			f.Add(fsys.Fault{Skip: n, Err: syscall.EIO, Applied: applied})
			wantErr(t, "write", fsys.WriteFileAtomic(f, "/d.txt", []byte("new"), 0o644), syscall.EIO)
			got := content(t, m, "/d.txt")
			if got != "old" && (!applied || n != 4 || got != "new") {
				t.Fatalf("fault %d, applied %t: content %q", n, applied, got)
			}
			want(t, "names", list(t, m, "/"), "[d.txt]")
		}
	}
}

func TestReadFileFaults(t *testing.T) {
	t.Parallel()
	f, _, file := newFaulty(t)
	_, err := file.Write(make([]byte, 5000))
	must(t, err)
	f.Add(fsys.Fault{Kinds: fsys.OpRead, Err: syscall.EIO})
	_, err = fsys.ReadFile(f, path.Join("/", "a.log"))
	wantErr(t, "read", err, syscall.EIO)
	f.Add(fsys.Fault{})
	_, err = fsys.ReadFile(f, "/a.log")
	wantErr(t, "default fault", err, io.ErrUnexpectedEOF)
}

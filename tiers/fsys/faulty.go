package fsys

import (
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync"
)

// Fault says which operations of a Faulty fail, and how. The zero value fails
// the first operation of any kind with io.ErrUnexpectedEOF; every field narrows
// or changes that.
type Fault struct {
	Kinds Kind   // OpAny if zero
	Name  string // part of the name, or of the new name; empty matches all

	Skip   int  // this many matching operations pass first
	Times  int  // then this many fail; 1 if zero
	Sticky bool // all that match from then on fail

	// Err is what the operation returns. If it is nil and Hold is set, the
	// operation is only held.
	Err error
	// Short makes a failing write write this many bytes first: a torn write.
	Short int
	// Applied makes the operation happen and then report Err: the caller cannot
	// know.
	Applied bool
	// Hold keeps the operation from going on until it is closed.
	Hold <-chan struct{}
	// Reached is sent the operation before Hold is waited for. The receiver must
	// not be late: the send blocks.
	Reached chan<- Op
}

// Faulty passes every operation on to another FS, except for those that its
// faults fail, tear or hold. It is safe for concurrent use.
type Faulty struct {
	under FS

	mu     sync.Mutex
	seq    int
	faults []*faultState
	log    []Op
}

type faultState struct {
	Fault
	seen, hit int
}

// NewFaulty returns a Faulty over under without faults.
func NewFaulty(under FS) *Faulty { return &Faulty{under: under} }

// Add puts a fault at the end of the schedule: the first that matches an
// operation is the one that strikes. The function that it returns tells how
// often it did.
func (f *Faulty) Add(fault Fault) (hits func() int) {
	if fault.Err == nil && fault.Hold == nil {
		fault.Err = io.ErrUnexpectedEOF
	}
	if fault.Kinds == 0 {
		fault.Kinds = OpAny
	}
	if fault.Times == 0 {
		fault.Times = 1
	}
	s := &faultState{Fault: fault}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = append(f.faults, s)
	return func() int {
		f.mu.Lock()
		defer f.mu.Unlock()
		return s.hit
	}
}

// Clear removes all faults. Operations that are held stay held until their
// channel is closed.
func (f *Faulty) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = nil
}

// Ops returns the operations so far that are of the given kinds.
func (f *Faulty) Ops(kinds Kind) []Op {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []Op
	for _, op := range f.log {
		if op.Kind&kinds != 0 {
			out = append(out, op)
		}
	}
	return out
}

// Under is the FS below.
func (f *Faulty) Under() FS { return f.under }

// strike finds the fault for op and counts it.
func (f *Faulty) strike(op Op) (fault Fault, ok bool, numbered Op) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seq++
	op.Seq = f.seq
	f.log = append(f.log, op)
	for _, s := range f.faults {
		if s.Kinds&op.Kind == 0 || !strings.Contains(op.Name, s.Name) && !strings.Contains(op.NewName, s.Name) {
			continue
		}
		s.seen++
		if s.seen <= s.Skip || !s.Sticky && s.hit >= s.Times {
			continue
		}
		s.hit++
		return s.Fault, true, op
	}
	return Fault{}, false, op
}

// do runs act unless a fault of op says otherwise.
func (f *Faulty) do(op Op, act func() error) error {
	fault, ok, op := f.strike(op)
	if !ok {
		return act()
	}
	fault.wait(op)
	if fault.Err == nil {
		return act()
	}
	if fault.Applied {
		if err := act(); err != nil {
			return err
		}
	}
	return &fs.PathError{Op: op.Kind.String(), Path: op.Name, Err: fault.Err}
}

func (fault Fault) wait(op Op) {
	if fault.Reached != nil {
		fault.Reached <- op
	}
	if fault.Hold != nil {
		<-fault.Hold
	}
}

// OpenFile opens through the schedule.
func (f *Faulty) OpenFile(name string, flag int, perm fs.FileMode) (file File, err error) {
	kind := OpOpen
	if flag&(os.O_CREATE|os.O_TRUNC) != 0 {
		kind = OpCreate
	}
	err = f.do(Op{Kind: kind, Name: name}, func() error {
		file, err = f.under.OpenFile(name, flag, perm)
		return err
	})
	if err != nil {
		if file != nil {
			_ = file.Close() // the caller is told that it was not opened
		}
		return nil, err
	}
	return &faultyFile{File: file, fs: f}, nil
}

// Remove removes through the schedule.
func (f *Faulty) Remove(name string) error {
	return f.do(Op{Kind: OpRemove, Name: name}, func() error { return f.under.Remove(name) })
}

// RemoveAll removes through the schedule.
func (f *Faulty) RemoveAll(name string) error {
	return f.do(Op{Kind: OpRemoveAll, Name: name}, func() error { return f.under.RemoveAll(name) })
}

// Rename renames through the schedule.
func (f *Faulty) Rename(oldName, newName string) error {
	return f.do(Op{Kind: OpRename, Name: oldName, NewName: newName}, func() error { return f.under.Rename(oldName, newName) })
}

// Link links through the schedule.
func (f *Faulty) Link(oldName, newName string) error {
	return f.do(Op{Kind: OpLink, Name: oldName, NewName: newName}, func() error { return f.under.Link(oldName, newName) })
}

// MkdirAll makes folders through the schedule.
func (f *Faulty) MkdirAll(name string, perm fs.FileMode) error {
	return f.do(Op{Kind: OpMkdir, Name: name}, func() error { return f.under.MkdirAll(name, perm) })
}

// ReadDir lists through the schedule.
func (f *Faulty) ReadDir(name string) (list []fs.DirEntry, err error) {
	err = f.do(Op{Kind: OpReadDir, Name: name}, func() error {
		list, err = f.under.ReadDir(name)
		return err
	})
	return list, err
}

// Stat asks through the schedule.
func (f *Faulty) Stat(name string) (st fs.FileInfo, err error) {
	err = f.do(Op{Kind: OpStat, Name: name}, func() error {
		st, err = f.under.Stat(name)
		return err
	})
	return st, err
}

// SyncDir syncs through the schedule.
func (f *Faulty) SyncDir(name string) error {
	return f.do(Op{Kind: OpSyncDir, Name: path.Clean(name)}, func() error { return f.under.SyncDir(name) })
}

// Lock locks through the schedule.
func (f *Faulty) Lock(name string) (c io.Closer, err error) {
	err = f.do(Op{Kind: OpLock, Name: name}, func() error {
		c, err = f.under.Lock(name)
		return err
	})
	if err != nil && c != nil {
		_ = c.Close() // the caller is told that it has no lock
		return nil, err
	}
	return c, err
}

// Free asks through the schedule.
func (f *Faulty) Free(name string) (free, total int64, err error) {
	err = f.do(Op{Kind: OpFree, Name: name}, func() error {
		free, total, err = f.under.Free(name)
		return err
	})
	return free, total, err
}

// faultyFile is an open file of a Faulty.
type faultyFile struct {
	File
	fs *Faulty
}

// write is do for writes, which may be torn.
func (f *faultyFile) write(off int64, p []byte, act func([]byte) (int, error)) (int, error) {
	fault, ok, op := f.fs.strike(Op{Kind: OpWrite, Name: f.Name(), Off: off, Len: len(p)})
	if !ok {
		return act(p)
	}
	fault.wait(op)
	if fault.Err == nil {
		return act(p)
	}
	failed := &fs.PathError{Op: "write", Path: f.Name(), Err: fault.Err}
	n := min(fault.Short, len(p))
	if fault.Applied {
		n = len(p)
	}
	if n == 0 {
		return 0, failed
	}
	n, err := act(p[:n])
	if err != nil {
		return n, err
	}
	return n, failed
}

func (f *faultyFile) Write(p []byte) (int, error) { return f.write(-1, p, f.File.Write) }

func (f *faultyFile) WriteAt(p []byte, off int64) (int, error) {
	return f.write(off, p, func(p []byte) (int, error) { return f.File.WriteAt(p, off) })
}

func (f *faultyFile) Read(p []byte) (n int, err error) {
	err = f.fs.do(Op{Kind: OpRead, Name: f.Name(), Off: -1, Len: len(p)}, func() error {
		n, err = f.File.Read(p)
		return err
	})
	return n, err
}

func (f *faultyFile) ReadAt(p []byte, off int64) (n int, err error) {
	err = f.fs.do(Op{Kind: OpRead, Name: f.Name(), Off: off, Len: len(p)}, func() error {
		n, err = f.File.ReadAt(p, off)
		return err
	})
	return n, err
}

func (f *faultyFile) Truncate(size int64) error {
	return f.fs.do(Op{Kind: OpTruncate, Name: f.Name(), Off: size}, func() error { return f.File.Truncate(size) })
}

func (f *faultyFile) Sync() error {
	return f.fs.do(Op{Kind: OpSync, Name: f.Name()}, f.File.Sync)
}

func (f *faultyFile) SyncData() error {
	return f.fs.do(Op{Kind: OpSyncData, Name: f.Name()}, f.File.SyncData)
}

func (f *faultyFile) Preallocate(size int64) error {
	return f.fs.do(Op{Kind: OpPreallocate, Name: f.Name(), Off: size}, func() error { return f.File.Preallocate(size) })
}

// Close always closes, since the caller lets go of the file in any case.
func (f *faultyFile) Close() error {
	err := f.fs.do(Op{Kind: OpClose, Name: f.Name()}, func() error { return nil })
	if cerr := f.File.Close(); err == nil {
		err = cerr
	}
	return err
}

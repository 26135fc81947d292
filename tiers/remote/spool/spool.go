// Package spool keeps pieces of segments that were read from the bucket on local
// disk, one file for each, up to a number of bytes. It is the second place of
// remote.Cache, for what does not fit into memory, and it outlives the process.
//
// Ownership: a Spool owns all files of its folder whose names it would give. mu
// owns the table of them and is never held across a call of the disk. One goroutine
// writes and evicts; readers read files, and remove damaged ones, by themselves.
//
// Invariants:
//
//   - Nothing in here is the only copy of anything, and nothing waits for it: what
//     cannot be written at once is not written, and what cannot be read is not
//     there.
//   - A file is written under another name and renamed once it is whole. It says
//     what it is and carries a CRC-32C of all of it, which is compared at every
//     read; a file that is wrong is removed, so the next reader gets the piece from
//     the bucket again (reports 030, 087). Nothing is synced: what a power loss
//     leaves of a file fails its check.
//   - All files count, companions, headers and those being written included, each
//     as the blocks that it takes. Before one is written, the least recently used
//     ones go until it fits.
//   - A disk that fails turns the spool off for a while, never a read.
package spool

import (
	"container/list"
	"errors"
	"io/fs"
	"path"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/remote"
)

// Options are what Open needs.
type Options struct {
	Dir        string // of nobody else; made if need be
	Bytes      int64  // of all files
	Log        hclog.Logger
	Registerer prometheus.Registerer // nil: nothing is shown
}

const (
	// waiting bounds the bytes of pieces that wait to be written. More of them are
	// not kept.
	waiting = 16 << 20
	// pause is how long the spool stays off after the disk failed.
	pause = time.Minute
	// patience is how long a read waits for the disk, and Close for a write.
	patience = 2 * time.Second
	// block is what file systems give files, at least.
	block = 4096
	// hanging is how many reads may hang at a time: with as many the disk is off,
	// since each takes a goroutine and a thread.
	hanging = 16
)

// Spool is a remote.PieceStore.
type Spool struct {
	fs  fsys.FS
	o   Options
	met metrics

	mu      sync.Mutex
	closed  bool
	off     time.Time // no use of the disk before
	hung    int       // reads that nobody waits for any more
	files   map[remote.PieceID]*file
	order   *list.List // of *file, the least recently used first
	used    int64      // bytes of files, and of the one that is being written
	queue   []write
	queued  int64
	wake    chan struct{} // has room for one
	stopped chan struct{} // closed when the writer has ended
}

var _ remote.PieceStore = (*Spool)(nil)

type file struct {
	id    remote.PieceID
	size  int64 // in blocks
	place *list.Element
}

type write struct {
	id remote.PieceID
	b  []byte
}

// Open adopts what is in the folder and starts to write. A folder that cannot be
// made or read is an error.
func Open(fsystem fsys.FS, o Options) (*Spool, error) {
	if o.Log == nil {
		o.Log = hclog.NewNullLogger()
	}
	if o.Bytes <= 0 {
		return nil, tiers.E(tiers.InvalidConfig, "open disk cache", o.Dir, "it may take %d bytes: give it some or leave it out", o.Bytes)
	}
	s := &Spool{
		fs: fsystem, o: o, files: map[remote.PieceID]*file{}, order: list.New(),
		wake: make(chan struct{}, 1), stopped: make(chan struct{}),
	}
	if err := s.adopt(); err != nil {
		return nil, tiers.E(tiers.StorageFailed, "open disk cache", o.Dir, "the folder must be one that this program may write: %w", err)
	}
	s.met = newMetrics(o.Registerer, s)
	go s.writer()
	return s, nil
}

func (s *Spool) remove(name string) error {
	if err := s.fs.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func blocks(n int64) int64 { return (n + block - 1) / block * block }

// add puts a file into the table. mu is held, or nobody else knows s yet.
func (s *Spool) add(id remote.PieceID, size int64) {
	f := &file{id: id, size: size}
	f.place = s.order.PushBack(f)
	s.files[id] = f
}

// evict removes the least recently used files until n bytes more fit, and counts
// those as used.
func (s *Spool) evict(n int64) error {
	for {
		f := s.victim(n)
		if f == nil {
			return nil
		}
		if err := s.unlink(f); err != nil {
			return err
		}
	}
}

// victim takes out of the table the file that should go next. If none needs to,
// the n bytes are used.
func (s *Spool) victim(n int64) *file {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used+n <= s.o.Bytes || s.order.Len() == 0 {
		s.used += n
		return nil
	}
	f, _ := s.order.Front().Value.(*file)
	s.forget(f)
	return f
}

// unlink removes a file that is out of the table. One that cannot be removed goes
// back, since it goes on taking its place.
func (s *Spool) unlink(f *file) error {
	err := s.remove(s.name(f.id))
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil || s.files[f.id] != nil {
		s.used -= f.size
	} else {
		s.add(f.id, f.size)
	}
	return err
}

// forget takes a file out of the table; its bytes stay used until it is removed.
// mu is held.
func (s *Spool) forget(f *file) {
	s.order.Remove(f.place)
	delete(s.files, f.id)
}

// Has reports whether the piece is in the table.
func (s *Spool) Has(id remote.PieceID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.files[id] != nil && !s.closed && !s.isOff()
}

// isOff reports whether the disk is left alone for now. mu is held.
func (s *Spool) isOff() bool { return s.hung >= hanging || time.Now().Before(s.off) }

// Get reads a piece.
func (s *Spool) Get(id remote.PieceID) []byte {
	s.mu.Lock()
	f := s.files[id]
	usable := f != nil && !s.closed && !s.isOff()
	if usable {
		s.order.MoveToBack(f.place)
	}
	s.mu.Unlock()
	if !usable {
		return nil
	}
	raw, err := s.read(s.name(id))
	if errors.Is(err, fs.ErrNotExist) { // evicted just now, or by somebody else's hand
		s.lost(id, f)
		return nil
	}
	if err != nil {
		s.fail("read", err)
		return nil
	}
	b, err := decode(id, raw)
	if err != nil {
		s.met.damaged.Inc()
		s.o.Log.Warn("a file of the disk cache is damaged: it is removed and read from the bucket again", "file", s.name(id), "error", err)
		s.Drop(id)
		return nil
	}
	s.met.read.Add(float64(len(b)))
	return b
}

var errSlow = errors.New("the disk does not answer")

// read reads a file, for a while: a disk that hangs must not hold up who could ask
// the bucket.
func (s *Spool) read(name string) ([]byte, error) {
	type outcome struct {
		b   []byte
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		b, err := fsys.ReadFile(s.fs, name)
		done <- outcome{b, err}
	}()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case o := <-done:
		return o.b, o.err
	case <-timer.C:
		s.hangs(1)
		go func() {
			<-done
			s.hangs(-1)
		}()
		return nil, errSlow
	}
}

func (s *Spool) hangs(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hung += n
}

// lost takes a file out of the table that is not there, unless it is a new one.
func (s *Spool) lost(id remote.PieceID, f *file) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.files[id] == f {
		s.forget(f)
		s.used -= f.size
	}
}

// Drop removes a piece.
func (s *Spool) Drop(id remote.PieceID) {
	s.mu.Lock()
	f := s.files[id]
	if f == nil || s.closed {
		s.mu.Unlock()
		return
	}
	s.forget(f)
	s.mu.Unlock()
	if err := s.unlink(f); err != nil {
		s.fail("remove", err)
	}
}

// Put has the piece written soon, if the writer is not behind.
func (s *Spool) Put(id remote.PieceID, b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := int64(len(b))
	switch {
	case s.closed || s.files[id] != nil || s.isOff() || fileSize(n) > s.o.Bytes:
		return
	case s.queued+n > waiting:
		s.met.skipped.Inc()
		return
	}
	s.queue = append(s.queue, write{id, b})
	s.queued += n
	select {
	case s.wake <- struct{}{}:
	default: // it is awake
	}
}

// writer writes what is queued until Close.
func (s *Spool) writer() {
	defer close(s.stopped)
	for range s.wake {
		for {
			w, ok := s.take()
			if !ok {
				break
			}
			s.write(w)
		}
	}
}

func (s *Spool) take() (w write, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.queue) == 0 {
		s.queue, s.queued = nil, 0
		return w, false
	}
	w = s.queue[0]
	s.queue = s.queue[1:]
	s.queued -= int64(len(w.b))
	return w, true
}

// write makes room and writes one file.
func (s *Spool) write(w write) {
	if !s.wanted(w.id) {
		return
	}
	size := fileSize(int64(len(w.b)))
	if err := s.evict(size); err != nil {
		s.fail("remove", err)
		return
	}
	err := s.writeFile(s.name(w.id), encode(w.id, w.b))
	if err != nil {
		s.fail("write", err)
	} else {
		s.met.written.Add(float64(len(w.b)))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil || s.files[w.id] != nil {
		s.used -= size
	} else {
		s.add(w.id, size)
	}
}

// wanted reports whether a file should be written still.
func (s *Spool) wanted(id remote.PieceID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.closed && !s.isOff() && s.files[id] == nil
}

// writeFile writes a temporary file and gives it its name. What is left of it after
// a failure is removed if the disk allows it, else at the next start.
func (s *Spool) writeFile(name string, b []byte) error {
	temp := name + fsys.TempSuffix
	err := s.writeTemp(temp, b)
	if err == nil {
		err = s.fs.Rename(temp, name)
	}
	if err != nil {
		return errors.Join(err, s.remove(temp))
	}
	return nil
}

func (s *Spool) writeTemp(temp string, b []byte) error {
	const flags = fsys.WriteOnly | fsys.Create | fsys.Truncate
	f, err := s.fs.OpenFile(temp, flags, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if err = s.fs.MkdirAll(path.Dir(temp), 0o700); err == nil {
			f, err = s.fs.OpenFile(temp, flags, 0o600)
		}
	}
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Close())
}

// fail leaves the disk alone for a while. Everything is read from the bucket
// meanwhile.
func (s *Spool) fail(op string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isOff() {
		return
	}
	s.off = time.Now().Add(pause)
	s.met.failures.Inc()
	s.o.Log.Warn("the disk cache is off for a while, and everything is read from the bucket: look at the disk of its folder, or set cache.disk_bytes to 0",
		"op", op, "folder", s.o.Dir, "again_in", pause, "error", err)
}

// Close waits for the write that runs, for a while. The files stay for the next start.
func (s *Spool) Close() {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.closed = true
	close(s.wake)
	s.mu.Unlock()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-s.stopped:
	case <-timer.C: // a disk that hangs
	}
}

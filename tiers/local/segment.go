package local

import (
	"path"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/batch"
	"github.com/strandline-io/strandline/tiers/fsys"
)

// segment is one .log file and its side files. The owner of the log changes it;
// readers, who hold a reference, see bytes only below its size, which is set
// after they were written.
//
// An active segment keeps its indexes in memory: they are written when it is
// closed, and after a crash it is scanned in any case. A closed one keeps them
// in its files. A truncation makes a new segment for the file and leaves the old
// one the bytes that stay, so nobody reads bytes that another history wrote.
type segment struct {
	base  tiers.Offset
	fs    fsys.FS
	dir   string
	log   *file
	index *file // of a closed segment
	time  *file // of a closed segment
	out   hclog.Logger

	windows *windows

	refs   atomic.Int32
	warned atomic.Bool // that the index is damaged

	mu         sync.RWMutex
	size       int64
	next       tiers.Offset // after the last batch
	closed     bool
	offsets    []offsetEntry // while active
	times      []timeEntry   // while active
	aborted    []AbortedTxn  // few, so they stay in memory
	indexedAt  int64         // position of the last batch with an index entry
	newest     int64         // timestamp, -1: none
	newestAt   tiers.Offset
	indexBytes int64 // of a closed segment
	first      time.Time
	modified   time.Time
}

func newSegment(o *Options, dir string, base tiers.Offset) *segment {
	s := &segment{
		base: base, fs: o.FS, dir: dir, out: o.Log, windows: &o.Disk.windows, next: base, newest: -1, newestAt: base,
		log:   o.Disk.files.file(o.FS, path.Join(dir, fileName(base, logSuffix)), openWrite),
		index: o.Disk.files.file(o.FS, path.Join(dir, fileName(base, indexSuffix)), openRead),
		time:  o.Disk.files.file(o.FS, path.Join(dir, fileName(base, timeSuffix)), openRead),
	}
	return s
}

func (s *segment) path(suffix string) string { return path.Join(s.dir, fileName(s.base, suffix)) }

// add takes in the batch at pos, which follows the last one. Its rule for index
// entries is that of Kafka's recovery: a batch gets one if more than interval
// bytes lie between it and the last that has one, whoever wrote them together.
func (s *segment) add(h batch.Header, pos, interval int64) {
	if h.MaxTimestamp > s.newest {
		s.newest, s.newestAt = h.MaxTimestamp, h.Last()
	}
	if pos-s.indexedAt > interval {
		s.addIndexed(h, pos)
	}
	s.size, s.next = pos+h.Size(), h.Next()
}

func (s *segment) addIndexed(h batch.Header, pos int64) {
	s.offsets = append(s.offsets, offsetEntry{uint32(h.Last() - s.base), uint32(pos)})
	s.indexedAt = pos
	s.addTime()
}

// addTime adds the newest timestamp to the time index if it rose.
func (s *segment) addTime() {
	if n := len(s.times); s.newest >= 0 && (n == 0 || s.newest > s.times[n-1].ts) {
		s.times = append(s.times, timeEntry{s.newest, uint32(s.newestAt - s.base)})
	}
}

// facts are what plan decides on.
func (s *segment) facts(next tiers.Offset) Segment {
	s.mu.RLock()
	defer s.mu.RUnlock()
	f := Segment{
		Base: s.base, Next: next, Size: s.size, IndexSize: s.indexBytes, MaxTimestamp: s.newest,
		FirstAppend: s.first, Modified: s.modified, Active: !s.closed, HasAborted: len(s.aborted) > 0,
	}
	if !s.closed {
		f.IndexSize = max(int64(len(s.offsets))*offsetEntrySize, int64(len(s.times))*timeEntrySize)
	}
	return f
}

func (s *segment) retain() { s.refs.Add(1) }

// release gives a reference back. With the last one the files are closed and, if
// the segment was dropped, removed.
func (s *segment) release() {
	if s.refs.Add(-1) > 0 {
		return
	}
	for _, f := range []*file{s.log, s.index, s.time} {
		if err := f.letGo(); err != nil {
			s.out.Warn("a dropped file could not be removed; the next start tries again", "err", err)
		}
	}
}

// cut makes bytes from size on unreadable.
func (s *segment) cut(size int64, next tiers.Offset) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if size < s.size {
		s.size, s.next = size, next
	}
}

func (s *segment) extent() (size int64, next tiers.Offset) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.size, s.next
}

package local

import (
	"bytes"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/batch"
	"github.com/strandline-io/strandline/tiers/fsys/mem"
)

// model is a log as a slice of batches.
type model struct {
	batches  [][]byte // all since the last restart, dropped ones too
	start    tiers.Offset
	logStart tiers.Offset
	end      tiers.Offset
	synced   tiers.Offset
	lineage  tiers.Lineage
	epoch    tiers.LeaderEpoch
	truncs   uint64
}

// from returns the batches from the one that holds o on.
func (m *model) from(o tiers.Offset) []byte {
	var out []byte
	for _, b := range m.batches {
		if headers(b)[0].Last() >= o {
			out = append(out, b...)
		}
	}
	return out
}

// TestModel compares a log with a slice, over random lives with crashes.
func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := newNode(t, mem.New())
		n.conf.IndexInterval = rapid.SampledFrom([]int64{0, 100, 4096}).Draw(rt, "interval")
		l := n.open()
		m := &model{}
		rt.Repeat(map[string]func(*rapid.T){
			"append": func(rt *rapid.T) {
				m.epoch += tiers.LeaderEpoch(rapid.IntRange(0, 1).Draw(rt, "epoch"))
				k := rapid.IntRange(1, 3).Draw(rt, "batches")
				var all []byte
				for range k {
					b := build(t, plain(m.epoch), m.end, rapid.IntRange(1, 5).Draw(rt, "records"))
					m.batches = append(m.batches, b)
					if m.lineage.Last() != m.epoch {
						m.lineage = m.lineage.Assign(m.epoch, m.end)
					}
					m.end = headers(b)[0].Next()
					all = append(all, b...)
				}
				must(t, put(l, all))
			},
			"sync":       func(*rapid.T) { must(t, l.Sync()); m.synced = m.end },
			"roll":       func(*rapid.T) { must(t, l.Roll()); m.synced = m.end },
			"checkpoint": func(*rapid.T) { must(t, n.disk.Checkpoint()) },
			"truncate": func(rt *rapid.T) {
				if m.end == m.start {
					rt.Skip("empty")
				}
				o := tiers.Offset(rapid.Int64Range(int64(m.start), int64(m.end)).Draw(rt, "to"))
				must(t, l.TruncateTo(o))
				truncs := m.truncs
				if o < m.end {
					m.truncs++
				}
				m.batches = slices.DeleteFunc(m.batches, func(b []byte) bool { return headers(b)[0].Next() > o })
				m.end = m.start
				if k := len(m.batches); k > 0 {
					m.end = max(m.start, headers(m.batches[k-1])[0].Next())
				}
				if m.logStart = min(m.logStart, m.end); m.truncs > truncs {
					m.synced = m.end // what stays was synced
				}
				m.lineage = m.lineage.TruncateEnd(m.end)
			},
			"drop": func(rt *rapid.T) {
				o := tiers.Offset(rapid.Int64Range(0, int64(m.end)).Draw(rt, "before"))
				must(t, l.DropBefore(o))
				if l.segs[0].base > max(o, m.start) {
					rt.Fatalf("dropped up to %d, asked for %d", l.segs[0].base, o)
				}
				m.start = l.segs[0].base
			},
			"raise": func(rt *rapid.T) {
				o := tiers.Offset(rapid.Int64Range(int64(m.logStart), int64(m.synced)).Draw(rt, "to"))
				if o < m.logStart {
					rt.Skip("below")
				}
				must(t, l.RaiseLogStart(o))
				if o > m.logStart {
					m.logStart, m.lineage = o, m.lineage.TruncateStart(o)
				}
			},
			"reopen": func(rt *rapid.T) {
				n.close()
				l = n.open()
				if !n.rec.Clean {
					rt.Fatalf("not clean: %+v", n.rec)
				}
				m.synced, m.truncs = m.end, 0
				m.lineage = m.lineage.TruncateEnd(m.end)
			},
			"power loss": func(*rapid.T) {
				l = n.losePower()
				m.batches = slices.DeleteFunc(m.batches, func(b []byte) bool { return headers(b)[0].Next() > m.synced })
				m.end, m.truncs = m.synced, 0
				m.lineage = m.lineage.TruncateEnd(m.end)
				if k := len(m.batches); k > 0 {
					m.epoch = max(m.epoch, headers(m.batches[k-1])[0].LeaderEpoch)
				}
			},
			"": func(rt *rapid.T) { m.check(rt, l) },
		})
		n.close()
	})
}

func (m *model) check(rt *rapid.T, l *Log) {
	if l.LogEnd() != m.end || l.LogStart() != m.logStart || l.LocalLogStart() != max(m.start, m.logStart) || l.Flushed() > m.end || l.Flushed() < m.synced || l.Truncations() != m.truncs {
		rt.Fatalf("end %d, start %d, local start %d, flushed %d, %d truncations; want %+v", l.LogEnd(), l.LogStart(), l.LocalLogStart(), l.Flushed(), l.Truncations(), m)
	}
	// An entry that owns no record may be there or not.
	if !slices.Equal(l.Lineage().TruncateEnd(m.end), m.lineage.TruncateEnd(m.end)) {
		rt.Fatalf("lineage %s, want %s", l.Lineage(), m.lineage)
	}
	s := l.Snapshot()
	defer s.Release()
	if m.start == m.end {
		return
	}
	o := tiers.Offset(rapid.Int64Range(int64(m.start), int64(m.end)-1).Draw(rt, "from"))
	limit := rapid.IntRange(0, 1000).Draw(rt, "limit")
	b, err := s.Read(o, m.end, limit, true, nil)
	want := m.from(o)
	if err != nil || len(b) == 0 || !bytes.HasPrefix(want, b) || len(b) > limit && len(headers(b)) > 1 {
		rt.Fatalf("read %d: %d bytes, %v", o, len(b), err)
	}
	if all := readAll(rt, s, o, m.end, 1<<20); !bytes.Equal(all, want) {
		rt.Fatalf("read all from %d: %d bytes, want %d", o, len(all), len(want))
	}
}

// Readers go on while the owner appends, rolls, drops and truncates. Run with
// -race.
func TestConcurrentReaders(t *testing.T) {
	n := newNode(t, mem.New())
	n.disk, _ = OpenDisk(n.fs, root, n.out)
	n.disk.files.limit = 3 // handles come and go
	l, _, err := Open(n.options())
	must(t, err)

	var mu sync.Mutex // of the published picture
	published, end := l.Snapshot(), tiers.Offset(0)
	publish := func() {
		s := l.Snapshot()
		mu.Lock()
		old := published
		published, end = s, l.LogEnd()
		mu.Unlock()
		old.Release()
	}
	current := func() (*Snapshot, tiers.Offset) {
		mu.Lock()
		defer mu.Unlock()
		published.Retain()
		return published, end
	}
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for i := range 4 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				s, end := current()
				readOnce(t, s, end, i)
				s.Release()
			}
		})
	}
	readers.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if err := n.disk.Checkpoint(); err != nil {
					t.Error(err)
				}
			}
		}
	})
	for i := range 400 {
		add(t, l, 1, 1+i%4)
		switch {
		case i%100 == 99:
			must(t, l.TruncateTo(l.LogEnd()-5))
		case i%10 == 5:
			must(t, l.Sync())
		case i%10 == 9:
			must(t, l.Roll())
		}
		if i%40 == 39 {
			must(t, l.DropBefore(l.LogEnd()-30))
		}
		publish()
	}
	close(stop)
	readers.Wait()
	published.Release()
	must(t, l.Close())
	if n.disk.files.open != 0 {
		t.Errorf("%d files are still open", n.disk.files.open)
	}
	must(t, n.disk.Close())
}

// readOnce uses a snapshot in every way.
func readOnce(t *testing.T, s *Snapshot, end tiers.Offset, i int) {
	t.Helper()
	from := s.Start()
	for from < end {
		b, err := s.Read(from, end, 200<<i, true, nil)
		if err != nil {
			t.Errorf("read %d of [%d,%d): %v", from, s.Start(), end, err)
			return
		}
		if len(b) == 0 { // truncated meanwhile
			break
		}
		for one := range batch.Split(b) {
			if one.BaseOffset != from {
				t.Errorf("read %d: the next batch is at %d", from, one.BaseOffset)
				return
			}
			from = one.Next()
		}
	}
	if _, _, _, err := s.FindTime(1_700_000_000_000+int64(s.Start())*10, s.Start(), end); err != nil {
		t.Errorf("find: %v", err)
	}
	if _, _, _, err := s.MaxTimestamp(s.Start(), end); err != nil {
		t.Errorf("max: %v", err)
	}
	if _, err := s.Aborted(s.Start(), end); err != nil {
		t.Errorf("aborted: %v", err)
	}
	if f, err := s.Files(s.Start()); err == nil && f.Segment.Base != s.Start() {
		t.Errorf("files: %+v", f)
	}
}

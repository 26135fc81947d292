package local

import (
	"path"
	"strings"
	"syscall"
	"testing"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/fsys/mem"
)

// TestSkipTo: no offset that was given is given again, what is there stays, and
// after a crash it is the same.
func TestSkipTo(t *testing.T) {
	for name, c := range map[string]struct {
		fill        func(l *Log)
		end, start  tiers.Offset
		first, last tiers.Offset // of the records that stay, exclusive
	}{
		"records in the active segment": {func(l *Log) { add(t, l, 1, 2); must(t, l.Roll()); add(t, l, 1, 2) }, 4, 0, 0, 4},
		"an empty active segment":       {func(l *Log) { add(t, l, 1, 2); must(t, l.Roll()) }, 2, 0, 0, 2},
		"an empty log":                  {func(*Log) {}, 0, 9, 0, 0},
	} {
		n := newNode(t, mem.New())
		l := n.open()
		must(t, l.Assign(1, 0))
		c.fill(l)
		if l.LogEnd() != c.end {
			t.Fatalf("%s: end %d", name, l.LogEnd())
		}
		must(t, l.SkipTo(c.end)) // nothing to skip
		must(t, l.SkipTo(9))
		before := content(t, l)
		for range 2 {
			if l.LogEnd() != 9 || l.LocalLogStart() != c.start || l.LogStart() != 0 {
				t.Errorf("%s: log [%d, disk from %d, %d)", name, l.LogStart(), l.LocalLogStart(), l.LogEnd())
			}
			if got := content(t, l); string(got) != string(before) || len(got) > 0 != (c.last > 0) {
				t.Errorf("%s: %d bytes, were %d", name, len(got), len(before))
			}
			s := l.Snapshot()
			if b, err := s.Read(max(s.Start(), c.last), 9, 1<<20, true, nil); len(b) > 0 || err != nil {
				t.Errorf("%s: the gap reads as %d bytes, %v", name, len(b), err)
			}
			s.Release()
			l = n.losePower()
		}
		add(t, l, 1, 1)
		s := l.Snapshot()
		b, err := s.Read(max(s.Start(), c.last), 10, 1<<20, true, nil)
		if err != nil || len(headers(b)) != 1 || headers(b)[0].BaseOffset != 9 {
			t.Errorf("%s: behind the gap: %d bytes, %v", name, len(b), err)
		}
		s.Release()
		n.close()
	}
}

// TestDropReportedAsFailed: a rename that happened is not tried for ever, readers
// keep what they hold, and the file goes; so does one that vanished.
func TestDropReportedAsFailed(t *testing.T) {
	for name, f := range map[string]fsys.Fault{
		"it happened":       {Kinds: fsys.OpRename, Name: deletedSuffix, Err: syscall.EIO, Applied: true},
		"it did not happen": {Kinds: fsys.OpRename, Name: deletedSuffix, Err: syscall.EIO},
		"nobody can tell":   {Kinds: fsys.OpRename, Name: deletedSuffix, Err: syscall.EIO, Applied: true},
	} {
		faulty := fsys.NewFaulty(mem.New())
		n := newNode(t, faulty)
		l := n.open()
		add(t, l, 1, 2)
		must(t, l.Roll())
		add(t, l, 1, 2)
		want := content(t, l)
		s := l.Snapshot()
		faulty.Add(f)
		if name == "nobody can tell" {
			faulty.Add(fsys.Fault{Kinds: fsys.OpStat, Err: syscall.EIO})
		}
		err := l.DropBefore(2)
		if (err == nil) != (name == "it happened") {
			t.Errorf("%s: %v", name, err)
		}
		faulty.Clear()
		must(t, l.DropBefore(2))
		if l.LocalLogStart() != 2 || l.Broken() != nil {
			t.Errorf("%s: the disk begins at %d, %v", name, l.LocalLogStart(), l.Broken())
		}
		if got := readAll(t, s, 0, 4, 1<<20); name != "nobody can tell" && string(got) != string(want) {
			t.Errorf("%s: a reader lost what it held", name)
		}
		s.Release()
		entries, err := faulty.ReadDir(path.Dir(n.file(0, logSuffix)))
		must(t, err)
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), deletedSuffix) && name != "nobody can tell" { // that one goes with the next start
				t.Errorf("%s: %s stays", name, e.Name())
			}
		}
		n.close()
	}
}

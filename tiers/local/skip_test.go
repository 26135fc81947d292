package local

import (
	"testing"

	"github.com/strandline-io/strandline/tiers"
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

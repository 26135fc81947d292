package local

import (
	"bytes"
	"path"
	"strings"
	"testing"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/fsys/mem"
)

// TestLogStartThatHidesRecords: log-start-offset-checkpoint has no checksum. A
// value above the row's that would hide records is not believed; one that hides
// nothing, or that the row has, is.
func TestLogStartThatHidesRecords(t *testing.T) {
	for name, c := range map[string]struct {
		says        tiers.Offset // the file
		known, kept tiers.Offset // elsewhere
		first       tiers.Offset // on disk
		want        tiers.Offset
		told        bool
	}{
		"records on disk":          {says: 4, known: 0, kept: tiers.NoOffset, want: 0, told: true},
		"the row has it":           {says: 4, known: 4, kept: tiers.NoOffset, want: 4},
		"the row has more":         {says: 4, known: 6, kept: tiers.NoOffset, want: 4}, // whoever knows the row raises it
		"the row has less":         {says: 4, known: 2, kept: tiers.NoOffset, want: 2, told: true},
		"records in the bucket":    {says: 3, known: 0, kept: 0, first: 4, want: 0, told: true},
		"bucket behind it":         {says: 3, known: 0, kept: 3, first: 4, want: 3},
		"nothing below in any":     {says: 4, known: 0, kept: tiers.NoOffset, first: 4, want: 4},
		"above the end of the log": {says: 99, known: 0, kept: tiers.NoOffset, want: 0, told: true},
	} {
		t.Run(name, func(t *testing.T) {
			disk := mem.New()
			n, said := watched(t, disk)
			l := n.open()
			var want []byte
			for range 4 {
				want = append(want, add(t, l, 1, 2)...)
				must(t, l.Roll())
			}
			if c.first > 0 {
				must(t, l.DropBefore(c.first))
			}
			n.close()
			file := path.Join(root, logStartFile)
			must(t, fsys.WriteFileAtomic(disk, file, encodeOffsets(map[tiers.PartitionID]tiers.Offset{partitionID(0): c.says}), filePerm))
			var err error
			n.disk, err = OpenDisk(disk, root, n.out)
			must(t, err)
			o := n.options()
			o.Known = func() (tiers.Offset, tiers.Offset) { return c.known, c.kept }
			said.Reset()
			l, _, err = Open(o)
			must(t, err)
			if l.LogStart() != c.want || l.LogEnd() != 8 || strings.Contains(said.String(), "would hide") != c.told {
				t.Errorf("log start %d, want %d, end %d\n%s", l.LogStart(), c.want, l.LogEnd(), said)
			}
			if c.first == 0 && c.want == 0 && !bytes.Equal(content(t, l), want) {
				t.Error("records are hidden")
			}
			n.log = l
			n.close()
			if got := line(t, disk, logStartFile, partitionID(0)); got != c.want {
				t.Errorf("the file says %d afterwards", got)
			}
		})
	}
}

package plan

import (
	"fmt"

	"github.com/strandline-io/strandline/remoteindex"
	"github.com/strandline-io/strandline/tiers"
)

// Mistrust compares the local segments with the copies that were made of them.
// Closed segments never change, so one that is not as long as its copy was
// changed from outside: a file was removed, emptied or replaced, and offsets would
// be skipped or served from other bytes. It returns the offset below which the
// local log is not to be used, 0 if there is none, and what is wrong. Segments in
// the lineage only: the copy of a tail that was discarded says nothing.
func Mistrust(segs []LocalSegment, rows []tiers.RemoteSegment, t remoteindex.Truth) (below tiers.Offset, why string) {
	byBase := make(map[tiers.Offset]LocalSegment, len(segs))
	for _, s := range segs {
		if !s.Active {
			byBase[s.Base] = s
		}
	}
	for _, row := range rows {
		s, ok := byBase[row.Base]
		if !ok || row.State != tiers.CopyFinished || s.Next <= below {
			continue
		}
		if from, end := remoteindex.SafeRange(row, t); from > row.Base && from > t.Start || end < row.End {
			continue
		}
		switch {
		case row.End != s.Next:
			below, why = s.Next, fmt.Sprintf("the local segments go on at %d after %d, the copy of [%d,%d) ends at %d", s.Next, s.Base, row.Base, row.End, row.End)
		case row.Size != s.Size:
			below, why = s.Next, fmt.Sprintf("the local segment [%d,%d) has %d bytes, its copy %d", s.Base, s.Next, s.Size, row.Size)
		}
	}
	return below, why
}

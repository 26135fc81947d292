package partition

// Distrust: at open, local segments are held against their copies. What somebody
// removed, emptied or replaced on disk is served from the bucket; if that cannot
// be, the partition does not open: offsets are never skipped in silence.

import (
	"slices"

	"github.com/strandline-io/strandline/remoteindex"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/plan"
)

// distrust gives up the local segments that are not what was copied, with all
// before them.
func (s *state) distrust() error {
	truth := remoteindex.Truth{Lineage: s.local.Lineage(), Start: s.local.LogStart(), Bound: s.local.LogEnd()}
	below, why := plan.Mistrust(localFacts(s.local.Segments()), slices.Collect(s.index.All()), truth)
	if below == 0 {
		return nil
	}
	if cover := s.index.Coverage(truth); cover < below {
		return tiers.E(tiers.StorageFailed, "open", s.place,
			"%s: files of the partition were removed or replaced, and the bucket has the log only up to %d: put the files back", why, cover)
	}
	s.log.Warn("local segments are not what was copied to the bucket: they are given up and served from there", "below", below, "why", why)
	s.incarnation++
	if err := s.local.DropBefore(below); err != nil {
		return tiers.E(tiers.StorageFailed, "open", s.place, "%w", err)
	}
	return nil
}

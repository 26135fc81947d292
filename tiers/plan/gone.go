package plan

import "github.com/strandline-io/strandline/tiers"

// Gone reports whether a readable segment may be removed now, whatever its age is:
// nobody can read it, because it lies below the floor that is published, or in
// epochs that the log has forgotten (R10). What TotalRetention deletes besides may
// go once its Floor is published.
func (f TotalFacts) Gone(r tiers.RemoteSegment) bool {
	return r.State == tiers.CopyFinished && f.before(r) && forgotten(r, f)
}

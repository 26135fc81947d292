package broker

import (
	"time"

	"github.com/strandline-io/strandline/tiers/local"
)

// Health says how the node is doing.
type Health struct {
	Fenced     error     // the claim was lost: nothing is served
	Publishing error     // why the last change of topics is not in the bucket yet
	ClaimAt    time.Time // when the claim was last seen to be ours; zero: never read yet, or no bucket
	Unclaimed  error     // why it is not known whether the claim is ours still: it could not be read, several times
	SnapshotAt time.Time // of the last snapshot in the bucket; zero: none is known
	Opening    int       // partitions that were not tried yet
	Partitions int       // all of them
	Offline    []string  // partitions that could not be opened or have failed, with the reason
	Disk       local.Room
	Full       error // why the disk takes no records now: the partitions are read-only
}

// Health looks at every partition.
func (b *Broker) Health() Health {
	h := Health{Offline: []string{}, SnapshotAt: *b.snapshotAt.Load()}
	h.ClaimAt, h.Unclaimed = b.claim.report()
	h.Disk = b.o.Disk.Room()
	h.Full = h.Disk.Full
	if e := b.fenced.Load(); e != nil {
		h.Fenced = e
	}
	if e := b.publishing.Load(); e != nil {
		h.Publishing = e
	}
	for _, s := range b.Catalog().slots() {
		h.Partitions++
		st := s.state.Load()
		switch {
		case st.offline:
			h.Offline = append(h.Offline, st.err.Error())
		case st.owner == nil:
			h.Opening++
		default:
			if err := st.owner.View().Err; err != nil && h.Fenced == nil {
				h.Offline = append(h.Offline, s.identity.Name.String()+": "+err.Error())
			}
		}
	}
	return h
}

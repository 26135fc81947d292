package broker

import (
	"errors"
	"time"

	"github.com/strandline-io/strandline/tiers/local"
	"github.com/strandline-io/strandline/tiers/partition"
	"github.com/strandline-io/strandline/tiers/remote"
)

// copiesMayFail is how long the copies of a partition may fail before health
// warns: a store that asks to slow down, or restarts, is no news.
const copiesMayFail = 2 * time.Minute

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

	Disk     local.Room
	DiskDown error // why the disk is offline with all of its partitions
	Full     error // why the disk takes no records now: the partitions are read-only

	HasBucket bool
	Bucket    error        // why the bucket did not answer when it was asked last (every few seconds)
	Stalled   int          // partitions whose copies have failed for a while
	StalledBy *CopiesFail  // the one that has failed for the longest
	Held      int          // partitions where a record dated in the future keeps what is older than retention.ms (report 110)
	HeldBy    []Held       // the first of them
	Sweeping  error        // why the last sweep was not complete
	Swept     *SweepReport // the last sweep, nil: none yet
}

// CopiesFail is a partition whose copies fail.
type CopiesFail struct {
	Partition string
	partition.CopyTrouble
}

// heldNamed is how many of the held partitions health names.
const heldNamed = 10

// Held is a partition that keeps more than retention.ms because of a record that is
// dated in the future.
type Held struct {
	Partition string
	partition.Future
}

// Health looks at every partition.
func (b *Broker) Health() Health {
	h := Health{Offline: []string{}, SnapshotAt: *b.snapshotAt.Load(), HasBucket: b.o.Cache != nil}
	h.ClaimAt, h.Unclaimed = b.claim.report()
	h.Bucket = b.claim.last()
	h.Disk, h.DiskDown = b.o.Disk.Room(), b.o.Disk.Failed()
	h.Full = h.Disk.Full
	b.sweeps.mu.Lock()
	h.Sweeping, h.Swept = b.sweeps.failing, b.sweeps.last
	b.sweeps.mu.Unlock()
	if e := b.fenced.Load(); e != nil {
		h.Fenced = e
	}
	if e := b.publishing.Load(); e != nil {
		h.Publishing = e
	}
	now := b.o.Now()
	for _, s := range b.Catalog().slots() {
		h.see(s, now)
	}
	return h
}

// see adds one partition.
func (h *Health) see(s *slot, now time.Time) {
	h.Partitions++
	st := s.state.Load()
	switch {
	case st.offline:
		h.Offline = append(h.Offline, st.err.Error())
		return
	case st.owner == nil:
		h.Opening++
		return
	}
	v, name := st.owner.View(), s.identity.Name.String()
	if v.Err != nil && h.Fenced == nil {
		h.Offline = append(h.Offline, name+": "+v.Err.Error())
	}
	if f := v.Held; f != nil {
		h.Held++
		if len(h.HeldBy) < heldNamed {
			h.HeldBy = append(h.HeldBy, Held{name, *f})
		}
	}
	if c := v.Copying; c != nil && v.Err == nil && now.Sub(c.Since) >= copiesMayFail {
		h.Stalled++
		if h.StalledBy == nil || c.Since.Before(h.StalledBy.Since) {
			h.StalledBy = &CopiesFail{name, *c}
		}
	}
}

// ReadOnly is why no partition takes records now, nil if they do.
func (b *Broker) ReadOnly() error { return b.o.Disk.Full() }

// BucketReason is in a word why the bucket does not answer: empty if it does.
func (h Health) BucketReason() string {
	if h.Bucket == nil {
		return ""
	}
	for _, r := range []struct {
		err  error
		word string
	}{
		{remote.ErrDenied, "denied"},
		{remote.ErrNoBucket, "no-bucket"},
		{remote.ErrThrottled, "throttled"},
		{remote.ErrUnavailable, "unavailable"},
	} {
		if errors.Is(h.Bucket, r.err) {
			return r.word
		}
	}
	return "other"
}

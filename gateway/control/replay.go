package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/remote"
)

// JournalReport says what ReadJournal found.
type JournalReport struct {
	Snapshot string `json:"snapshot"` // key of the snapshot that was used, empty if none
	// SnapshotGeneration is the generation of the claim under which it was written.
	SnapshotGeneration int64     `json:"snapshot_generation"`
	At                 time.Time `json:"at"`         // when the snapshot was written
	Changes            int       `json:"changes"`    // changes of topics applied after it
	LogStarts          int       `json:"log_starts"` // log starts that were raised after it
	Ignored            []string  `json:"ignored"`    // changes that a replaced node wrote too late
	Damaged            []string  `json:"damaged"`    // keys that did not decode, with the reason
	Missing            []Rev     `json:"missing"`    // revisions whose change is not in the bucket
	Generation         int64     `json:"generation"` // of the claim, 0 if there is none
}

// ReadJournal returns the newest valid snapshot with the changes after it
// applied, and what it read. A damaged snapshot is reported and the one before it
// is used. A bucket without a journal is a State without a cluster.
func ReadJournal(ctx context.Context, b remote.Bucket) (State, JournalReport, error) {
	rep := JournalReport{Ignored: []string{}, Damaged: []string{}, Missing: []Rev{}}
	claim, ok, err := ReadClaim(ctx, b)
	switch {
	case tiers.KindOf(err) == tiers.CorruptMessage:
		rep.Damaged = append(rep.Damaged, fmt.Sprintf("%s: %v", claimKey, err))
	case err != nil:
		return State{}, rep, claimError("read journal", b, err)
	case ok:
		rep.Generation = claim.Generation
	}
	names, err := listSnapshots(ctx, b)
	if err != nil {
		return State{}, rep, claimError("read journal", b, err)
	}
	st, used, err := readNewest(ctx, b, names, &rep)
	if err != nil {
		return State{}, rep, err
	}
	if st.Cluster == "" {
		st.Cluster = claim.Cluster
	}
	if err := applyChanges(ctx, b, &st, used, starts(names), &rep); err != nil {
		return State{}, rep, err
	}
	st.Sort()
	return st, rep, nil
}

// readNewest reads snapshots from the newest on until one decodes.
func readNewest(ctx context.Context, b remote.Bucket, names []snapshotName, rep *JournalReport) (State, snapshotName, error) {
	for _, n := range slices.Backward(names) {
		obj, err := b.Stat(ctx, n.key())
		if err != nil && !errors.Is(err, remote.ErrNotFound) {
			return State{}, n, claimError("read journal", b, err)
		}
		var st State
		damage, err := remote.ReadSound(ctx, b, n.key(), maxObject, func(raw []byte) (err error) {
			st, err = decodeSnapshot(raw)
			return err
		})
		if err != nil {
			return State{}, n, claimError("read journal", b, err)
		}
		if damage == nil {
			rep.Snapshot, rep.SnapshotGeneration, rep.At = n.key(), n.generation, obj.Modified
			return st, n, nil
		}
		rep.Damaged = append(rep.Damaged, fmt.Sprintf("%s: %v", n.key(), damage))
	}
	return State{}, snapshotName{}, nil
}

// start is where a generation began.
type start struct {
	generation int64
	rev        Rev
}

// starts returns the revision at which each generation began, from the names of
// its snapshots: a name tells it even if the snapshot itself is damaged.
func starts(names []snapshotName) []start {
	var out []start
	for _, n := range names {
		if i := len(out) - 1; i >= 0 && out[i].generation == n.generation {
			out[i].rev = min(out[i].rev, n.rev)
			continue
		}
		out = append(out, start{n.generation, n.rev})
	}
	return out
}

// applyChanges brings st forward by the changes after the snapshot that it came
// from. Per generation, changes count up to where the next generation began.
func applyChanges(ctx context.Context, b remote.Bucket, st *State, used snapshotName, gens []start, rep *JournalReport) error {
	all, err := listChanges(ctx, b)
	if err != nil {
		return claimError("read journal", b, err)
	}
	for _, c := range all {
		if c.rev <= used.rev && c.generation <= used.generation {
			continue
		}
		if !counts(c, used, gens) {
			rep.Ignored = append(rep.Ignored, changeKey(c.rev, c.generation))
			continue
		}
		var changes []Change
		damage, err := remote.ReadSound(ctx, b, changeKey(c.rev, c.generation), maxObject, func(raw []byte) (err error) {
			changes, err = decodeChanges(raw)
			if n := len(changes); err == nil && changes[n-1].Rev != c.rev {
				err = fmt.Errorf("ends with revision %d", changes[n-1].Rev)
			}
			return err
		})
		if err != nil {
			return claimError("read journal", b, err)
		}
		if damage != nil {
			rep.Damaged = append(rep.Damaged, fmt.Sprintf("%s: %v", changeKey(c.rev, c.generation), damage))
			continue
		}
		for _, change := range changes {
			replay(st, change, rep)
		}
	}
	return nil
}

// replay applies one change. A log start may come twice: a write whose answer was
// lost is repeated together with those that have come meanwhile.
func replay(st *State, c Change, rep *JournalReport) {
	for st.Rev+1 < c.Rev {
		st.Rev++
		rep.Missing = append(rep.Missing, st.Rev)
	}
	if c.Rev > st.Rev && c.Raised != nil {
		rep.LogStarts++
	} else if c.Raised == nil {
		rep.Changes++
	}
	st.apply(c)
}

// counts reports whether the change belongs to the history that used began: it is
// of a generation from there on, above where that generation began, and not above
// where the next one began.
func counts(c changeName, used snapshotName, gens []start) bool {
	if c.generation < used.generation {
		return false
	}
	for _, g := range gens {
		if g.generation > c.generation && c.rev > g.rev {
			return false // written late by a node that had been replaced
		}
		if g.generation == c.generation && c.rev <= g.rev {
			return false // a generation writes nothing below its start
		}
	}
	return true
}

// apply brings st forward by one change.
func (st *State) apply(c Change) {
	st.Rev = max(st.Rev, c.Rev)
	if c.Raised != nil {
		st.raise(*c.Raised)
		return
	}
	i := st.find(c.Topic.ID)
	switch {
	case c.Deleted:
		if i >= 0 {
			st.Topics = slices.Delete(st.Topics, i, i+1)
		}
		st.Offsets = slices.DeleteFunc(st.Offsets, func(o OffsetCommit) bool { return o.Partition.Topic == c.Topic.ID })
		for k := range st.Segments {
			if st.Segments[k].Partition.Topic == c.Topic.ID {
				st.Segments[k].State = tiers.DeleteStarted
			}
		}
	case i >= 0:
		st.Topics[i] = c.Topic
	default:
		st.Topics = append(st.Topics, c.Topic)
	}
}

func (st *State) find(id tiers.TopicID) int {
	return slices.IndexFunc(st.Topics, func(t Topic) bool { return t.ID == id })
}

// raise moves a log start up. A topic or history that is gone takes it along.
func (st *State) raise(r Raised) {
	i := st.find(r.Partition.Topic)
	if i < 0 || int(r.Partition.Index) >= len(st.Topics[i].Partitions) {
		return
	}
	if p := &st.Topics[i].Partitions[r.Partition.Index]; p.Gen == r.Gen {
		p.LogStart = max(p.LogStart, r.LogStart)
	}
}

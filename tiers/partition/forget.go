package partition

// Forget (KIP-950): remote storage was switched off with the wish that what is in
// the bucket goes. The log start moves to where the disk begins (retain.go). What
// the bucket holds from there on is on disk too; that is not believed but looked
// at, segment by segment, before its copy goes (remove.go): a disk that has lost
// or changed something keeps its copy, and tells.

import (
	"context"
	"time"

	"github.com/strandline-io/strandline/remoteindex"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/local"
)

// recheckAfter is when a segment that is not as it was copied is looked at again.
const recheckAfter = 10 * time.Minute

// forgetting is what is known of the segments on disk.
type forgetting struct {
	busy  bool
	era   uint64                        // counts the times that everything was forgotten
	sound map[tiers.SegmentID]bool      // the disk has what its copy has
	bad   map[tiers.SegmentID]time.Time // it has not: when to look again
	seen  *remoteindex.Index            // in which all was looked at
	again time.Time                     // when the first of bad is due
}

// forgetting reports whether what is in the bucket is to go.
func (s *state) forgetting() bool {
	return s.bucket && !s.config.Remote && s.config.Retention.ForgetRemote && !s.unknown()
}

// onPlanForget looks at the next segment that nobody has looked at yet.
func (s *state) onPlanForget() {
	f, v := &s.forget, s.view
	switch {
	case !s.forgetting():
		// What is on disk now may leave it before the next wish.
		s.forget = forgetting{busy: f.busy, era: f.era + 1}
		return
	case f.busy || s.copying != nil || v.LogStart < v.LocalLogStart:
		return
	case f.seen == v.index && (f.again.IsZero() || s.plannedAt.Before(f.again)):
		return
	}
	f.again = time.Time{}
	for row := range v.index.All() {
		if row.State != tiers.CopyFinished || row.End <= v.LogStart || f.sound[row.ID] {
			continue
		}
		if at, bad := f.bad[row.ID]; bad && s.plannedAt.Before(at) {
			if f.again.IsZero() || at.Before(f.again) {
				f.again = at
			}
			continue
		}
		f.busy = true
		s.todo = append(s.todo, checkJob{s.tokens(), f.era, s.id.Name, row, v, s.local.Segments()})
		return
	}
	f.seen = v.index
}

// checkJob holds a segment in the bucket against the disk.
type checkJob struct {
	tokens tokens
	era    uint64
	name   tiers.TopicPartition
	row    tiers.RemoteSegment
	view   *View
	onDisk []local.Segment // those of view
}

func (j checkJob) point() Point { return Point{"forget.check", j.name, j.row.Base} }

func (j checkJob) run(context.Context, tools) outcome { return checkDone{j, j.check()} }

// check returns why the disk cannot do without the copy.
func (j checkJob) check() error {
	from, end := remoteindex.SafeRange(j.row, j.view.truth())
	if end <= from {
		return nil // it was copied and then discarded: nobody can read it
	}
	if !j.view.files.share() {
		return tiers.E(tiers.Conflict, "check segment", j.name.String(), "the segments have changed meanwhile")
	}
	defer j.view.files.drop()
	for _, seg := range j.onDisk {
		if seg.Next <= from || seg.Base >= end {
			continue
		}
		if seg.Active {
			return tiers.E(tiers.Conflict, "check segment", j.name.String(), "base %d: records of the copy are in the active segment", seg.Base)
		}
		if err := j.compare(seg.Base); err != nil {
			return err
		}
	}
	return nil
}

// compare reads a local segment through. One that was cut otherwise than the copy
// cannot be compared with it: its own checksums must hold.
func (j checkJob) compare(base tiers.Offset) error {
	f, err := j.view.files.Files(base)
	if err != nil {
		return tiers.E(tiers.StorageFailed, "check segment", j.name.String(), "base %d: %w", base, err)
	}
	seg := f.Segment
	sums, err := sumRecords(f.Log, seg.Size, batchWalk{next: seg.Base, end: seg.Next, lineage: j.view.Lineage})
	switch {
	case err != nil:
		return tiers.E(tiers.CorruptMessage, "check segment", j.name.String(), "base %d: %w", seg.Base, err)
	case seg.Base == j.row.Base && seg.Next == j.row.End && (seg.Size != j.row.Size || sums.whole != j.row.CRC32C):
		return tiers.E(tiers.CorruptMessage, "check segment", j.name.String(),
			"base %d: the disk has %d bytes with CRC-32C %08x, the copy %d with %08x", seg.Base, seg.Size, sums.whole, j.row.Size, j.row.CRC32C)
	}
	return nil
}

type checkDone struct {
	checkJob
	err error
}

func (r checkDone) on(s *state) {
	f := &s.forget
	f.busy = false
	switch {
	case s.offline() != nil || r.tokens != s.tokens() || r.era != f.era || !s.forgetting():
	case r.err == nil:
		if f.sound == nil {
			f.sound = map[tiers.SegmentID]bool{}
		}
		f.sound[r.row.ID] = true
	default:
		if f.bad == nil {
			f.bad = map[tiers.SegmentID]time.Time{}
		}
		f.bad[r.row.ID] = s.now().Add(recheckAfter)
		s.metrics.retainFailed()
		s.log.Error("a segment is not on disk as it is in the bucket: its copy stays although remote storage was switched off",
			"base", r.row.Base, "end", r.row.End, "id", r.row.ID, "error", r.err)
		s.onRetainAnswer(r.err)
	}
}

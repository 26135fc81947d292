package partition

// Remove (R8, R11, reports 047, 126, 127): the one way in which objects of segments
// leave the bucket, whether retention, a trim, a switch-off or a failed copy is
// behind it:
//
//	condemned -> row DeleteStarted, out of the index and the View
//	          -> Retention.Delay, for readers that are on it still
//	          -> claim, objects -> row DeleteFinished
//
// What must go is derived from the rows and the log start, and from what copies
// have left behind: after a crash the next life finds the same. It is tried until
// it works; one key that cannot be deleted holds up no other.

import (
	"slices"
	"time"

	"github.com/strandline-io/strandline/remoteindex"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/plan"
)

const (
	removeBatch = 200 // segments of one job; each has two keys, a store takes 1,000
	removeAlone = 20  // of one job that deletes them one by one
	giveUpAfter = 3   // failures, one by one, after which such a job ends
)

// phase is how far the removal of a segment has come.
type phase uint8

const (
	condemned phase = iota // its row is to go to DeleteStarted
	marked                 // its objects are to go
	emptied                // its row is to go
)

// doomed is a segment on its way out.
type doomed struct {
	seg      tiers.RemoteSegment
	reason   string
	phase    phase
	since    time.Time // when its row went to DeleteStarted; zero: in an earlier life
	at       time.Time // when the next step may be taken
	failures int       // of this step, in a row
	err      error     // of the last of them
	alone    bool      // it failed in a batch: it is tried by itself
	noRow    bool      // only objects are left
	readable bool      // readers may be on it: it was in the index when its turn came
	derived  bool      // from the rows: it is pardoned if they say otherwise
}

// removing is what is on its way out.
type removing struct {
	list   []*doomed
	byID   map[tiers.SegmentID]*doomed
	busy   bool
	marks  bool    // what is under way changes rows from CopyFinished
	fenced bool    // the segments are somebody else's business now
	retry  backoff // of all that failed together
	seen   doomKey
	dirty  bool      // list has changed since wakeAt was set
	wakeAt time.Time // when the next step may be taken; zero: there is none
	raises []raised
	gauge  int // what the gauge holds of this partition
}

// doomKey is what the list was derived from.
type doomKey struct {
	index       *remoteindex.Index
	start       tiers.Offset
	copying     tiers.Offset
	truncations uint64
	sound       int // segments that may be forgotten
	known       bool
}

// raised is why the log start has moved to an offset.
type raised struct {
	to     tiers.Offset
	reason string
}

// note remembers the last few reasons.
func (r *removing) note(to tiers.Offset, reason string) {
	r.raises = append(r.raises, raised{to, reason})
	if len(r.raises) > 8 {
		r.raises = slices.Delete(r.raises, 0, 1)
	}
}

// reasonOf is why what ends at end lies below the log start.
func (r *removing) reasonOf(end tiers.Offset) string {
	for _, x := range r.raises {
		if end <= x.to {
			return x.reason
		}
	}
	return reasonBelow
}

// hurry has what failed tried again at once.
func (r *removing) hurry() {
	r.retry, r.dirty = backoff{}, true
	for _, d := range r.list {
		if d.failures > 0 {
			d.at = time.Time{}
		}
	}
}

// idle reports whether there is nothing to do now.
func (r *removing) idle(now time.Time) bool {
	return !r.busy && (r.fenced || r.wakeAt.IsZero() || now.Before(r.wakeAt))
}

// put puts a segment on the list, unless it is there.
func (r *removing) put(d doomed) {
	if r.byID[d.seg.ID] != nil {
		return
	}
	if r.byID == nil {
		r.byID = map[tiers.SegmentID]*doomed{}
	}
	r.byID[d.seg.ID] = &d
	r.list, r.dirty = append(r.list, &d), true
}

func (r *removing) drop(gone func(*doomed) bool) {
	r.list = slices.DeleteFunc(r.list, func(d *doomed) bool {
		if gone(d) {
			delete(r.byID, d.seg.ID)
			r.dirty = true
		}
		return r.byID[d.seg.ID] == nil
	})
}

// onUndo has what a copy left behind removed.
func (s *state) onUndo(seg tiers.RemoteSegment) {
	s.remove.put(doomed{seg: seg, reason: reasonLeftover})
}

// onRows takes over what the registry holds. Segments whose copy has not ended are
// left over, unless the copy under way owns them. Readers may still be on those
// that were readable until now.
func (s *state) onRows(rows []tiers.RemoteSegment) {
	before := s.index
	s.onIndex(rows)
	for _, row := range rows {
		switch ours := s.copying != nil && s.copying.seg.ID == row.ID; {
		case row.State == tiers.CopyStarted && !ours:
			s.onUndo(row)
		case row.State == tiers.DeleteStarted:
			s.onMarked(row, before)
		}
	}
}

// onMarked takes over a row in DeleteStarted: what an earlier life has left, or the
// answer to our own wish got lost. Readers may still be on a segment that was
// readable in the index of before.
func (s *state) onMarked(row tiers.RemoteSegment, before *remoteindex.Index) {
	r := &s.remove
	r.put(doomed{seg: row, reason: r.reasonOf(row.End)})
	d := r.byID[row.ID]
	if d.phase != condemned {
		return
	}
	d.phase, d.failures, d.err, d.at, r.dirty = marked, 0, nil, time.Time{}, true
	readable := d.readable
	if before != nil {
		old, ok := before.Get(row.ID)
		readable = readable || ok && old.State == tiers.CopyFinished
	}
	if readable {
		d.since, d.at = s.now(), s.now().Add(s.config.Retention.Delay)
	}
}

// onDoom derives what must go from what the View shows: readers find none of it
// any more.
func (s *state) onDoom() {
	r, v := &s.remove, s.view
	key := doomKey{v.index, v.LogStart, s.copyingAt(), s.local.Truncations(), 0, !s.unknown()}
	if s.forgetting() {
		key.sound = len(s.forget.sound)
	}
	if key == r.seen {
		return
	}
	r.seen = key
	facts := plan.TotalFacts{Lineage: v.Lineage, Floor: v.LogStart, Copying: key.copying}
	why := map[tiers.SegmentID]string{}
	for row := range v.index.All() {
		switch {
		case facts.Gone(row):
			why[row.ID] = r.reasonOf(row.End)
		case key.sound > 0 && s.forget.sound[row.ID] && row.State == tiers.CopyFinished && (key.copying == tiers.NoOffset || row.Base < key.copying):
			why[row.ID] = reasonDisable
		default:
			continue
		}
		r.put(doomed{seg: row, reason: why[row.ID], derived: true})
	}
	if key.known {
		for _, row := range v.index.Unreferenced() {
			if key.copying == tiers.NoOffset || row.Base < key.copying {
				why[row.ID] = reasonDuplicate
				r.put(doomed{seg: row, reason: reasonDuplicate, derived: true})
			}
		}
	}
	r.drop(func(d *doomed) bool { // pardoned, unless the rows are to say first what became of it
		return d.derived && d.phase == condemned && why[d.seg.ID] == "" && (key.known || !d.readable)
	})
}

// removeAt is when to go on removing by the clock; zero: something else wakes the
// loop, or there is nothing to do.
func (s *state) removeAt() time.Time {
	if s.remove.busy || s.remove.fenced {
		return time.Time{}
	}
	return s.remove.wakeAt
}

// onPlanRemove begins the next step for as many segments as can take it. What was
// derived from rows that are to be read again waits for them: rows that are read and
// rows that are marked would overtake each other.
func (s *state) onPlanRemove() {
	r := &s.remove
	if !s.bucket || r.busy || r.fenced {
		return
	}
	s.onDoom()
	if !r.dirty && (r.wakeAt.IsZero() || s.plannedAt.Before(r.wakeAt)) {
		return
	}
	s.metrics.condemned(&r.gauge, len(r.list))
	r.dirty = false
	j, wakeAt := r.next(s.plannedAt, s.indexOld || s.reloading)
	r.wakeAt = wakeAt
	if len(j.segs) == 0 {
		return
	}
	j.fence, j.name = s.fence(), s.id.Name
	r.busy, r.marks = true, j.phase == condemned
	if r.marks {
		s.onCondemned(j.segs)
	}
	s.todo = append(s.todo, j)
}

// onCondemned takes segments out of the index before their rows are marked: from
// here on they cover nothing, so the disk keeps what it has of them whatever the
// settings become while the job is under way.
func (s *state) onCondemned(segs []tiers.RemoteSegment) {
	ids := make([]tiers.SegmentID, len(segs))
	for i, seg := range segs {
		ids[i] = seg.ID
		if row, ok := s.index.Get(seg.ID); ok && row.State == tiers.CopyFinished {
			s.remove.byID[seg.ID].readable = true
		}
	}
	s.index, _ = s.index.MoveAll(ids, tiers.DeleteStarted)
}

// next chooses: what is nearly done first, what failed in company last. wakeAt is
// when to choose again if there is nothing now.
func (r *removing) next(now time.Time, stale bool) (j removeJob, wakeAt time.Time) {
	best := -1
	rank := func(d *doomed) int {
		n := 2 * int(emptied-d.phase)
		if d.alone {
			n++
		}
		return n
	}
	for _, d := range r.list {
		if stale && d.derived && d.phase == condemned {
			continue // reading the rows wakes the loop
		}
		at := d.at
		if at.Before(r.retry.at) {
			at = r.retry.at
		}
		switch n := rank(d); {
		case at.After(now):
			if wakeAt.IsZero() || at.Before(wakeAt) {
				wakeAt = at
			}
			continue
		case best < 0 || n < best:
			best, j = n, removeJob{phase: d.phase, alone: d.alone}
		case n > best:
			continue
		}
		if len(j.segs) < j.limit() {
			j.segs = append(j.segs, d.seg)
		}
	}
	if best >= 0 {
		wakeAt = now
	}
	return j, wakeAt
}

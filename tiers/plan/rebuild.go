package plan

import (
	"cmp"
	"slices"

	"github.com/strandline-io/strandline/remoteindex"
	"github.com/strandline-io/strandline/tiers"
)

// Found is what was found of one segment: objects in the bucket, a row in the
// snapshot of the control plane, or both.
type Found struct {
	Segment tiers.RemoteSegment // from the companion, from the row if there is none
	Lineage tiers.Lineage       // of the whole log below Segment.End; from the companion
	// Complete says that both objects are there and as long as the companion says.
	Complete bool
	// Row is the state of the row; 0 if there is none.
	Row tiers.SegmentState
}

// Prefer says which part of a log goes on where a hole has cut it.
type Prefer uint8

// What a rebuild keeps of a log with holes.
const (
	LongestRun Prefer = iota // the run with the most offsets, the newest of equals
	NewestRun                // the run with the newest records
	OldestRun                // the run at the start
)

// RebuildFacts is all that is known of one partition.
type RebuildFacts struct {
	Partition tiers.PartitionID
	Gen       tiers.HistoryGen // of the control plane's snapshot; 0: the highest that is found
	LogStart  tiers.Offset     // likewise; 0 if nothing is known
	Found     []Found
	Prefer    Prefer
}

// Range is the offsets [From, End).
type Range struct{ From, End tiers.Offset }

// Verdict says what becomes of a segment.
type Verdict uint8

// The verdicts. Everything but Keep stays in the bucket until the sweep and is
// reported.
const (
	Keep       Verdict = iota // serves a part of the log
	Redundant                 // other segments hold all of it: after a copy that was tried again
	Stale                     // it lies below the log start, whatever is left of it: to be deleted
	Discarded                 // its records were discarded by a later leader
	Stranded                  // good, but behind a hole from the run that is kept
	Incomplete                // an object is missing or cut
	Missing                   // a row names it and no object is there
	Deleting                  // its deletion had begun
	Elsewhere                 // of another partition or history
	Invalid                   // its facts contradict each other
)

// String is the verdict in reports.
func (v Verdict) String() string {
	return [...]string{
		"keep", "redundant", "below the log start", "discarded by a later leader", "behind a hole", "incomplete", "missing", "being deleted",
		"of another history", "invalid",
	}[v]
}

// Judged is a segment and what becomes of it.
type Judged struct {
	Segment tiers.RemoteSegment
	Verdict Verdict
}

// Rebuilt is the partition as it rises again.
type Rebuilt struct {
	Gen      tiers.HistoryGen
	LogStart tiers.Offset
	LogEnd   tiers.Offset  // the local log starts here, empty
	Lineage  tiers.Lineage // of [LogStart, LogEnd)
	// MinEpoch is the least leader epoch that the next leader may have: above each
	// that was found, so that offsets which were lost are not taken for those that
	// are written anew (B4).
	MinEpoch tiers.LeaderEpoch
	Rows     []tiers.RemoteSegment // to be CopyFinished
	// Producers is the segment whose producer snapshot the log starts with. Zero:
	// none ends at LogEnd.
	Producers tiers.SegmentID

	Judged   []Judged // every segment that was found, by base
	Gaps     []Range  // offsets that were in the log and are in no segment, the start included
	Overlaps []Range  // offsets that more than one good segment holds
}

// Rebuild decides how a partition rises from what was found. The newest leader's
// companions say which epoch each offset has; what contradicts them was
// discarded. The log is one contiguous run: a hole cannot be served, and offsets
// behind it would be in no tier (B8).
func Rebuild(f RebuildFacts) Rebuilt {
	f.Gen = f.gen()
	r := Rebuilt{Gen: f.Gen, LogStart: f.LogStart}
	good, known := r.sift(f)
	lineage, start, end := authority(good)
	truth := remoteindex.Truth{Lineage: lineage, Start: max(f.LogStart, start), Bound: end}
	pieces := r.pieces(good, truth)
	runs := r.runs(pieces)
	r.Gaps = gaps(runs, truth.Start, known)
	r.expire(truth.Start)
	if len(runs) == 0 {
		// Nothing is left to serve. Offsets that were given out are not given again.
		r.LogStart = max(truth.Start, known)
		r.LogEnd = r.LogStart
	} else {
		run := choose(runs, f.Prefer)
		r.LogStart, r.LogEnd = run.From, run.End
		r.Lineage = lineage.Slice(run.From, run.End)
		r.keep(f, pieces, run)
	}
	slices.SortStableFunc(r.Judged, func(a, b Judged) int {
		return cmp.Or(cmp.Compare(a.Segment.Base, b.Segment.Base), cmp.Compare(a.Segment.End, b.Segment.End), slices.Compare(a.Segment.ID[:], b.Segment.ID[:]))
	})
	return r
}

func (f RebuildFacts) gen() tiers.HistoryGen {
	g := f.Gen
	for _, s := range f.Found {
		if f.Gen == 0 && s.Segment.Partition == f.Partition {
			g = max(g, s.Segment.Gen)
		}
	}
	return g
}

func (r *Rebuilt) judge(s tiers.RemoteSegment, v Verdict) {
	r.Judged = append(r.Judged, Judged{s, v})
}

// sift takes what cannot serve anything out, and returns the end of what the log
// is known to have held.
func (r *Rebuilt) sift(f RebuildFacts) (good []Found, known tiers.Offset) {
	seen := map[tiers.SegmentID]bool{}
	for _, s := range f.Found {
		v := verdict(f, s)
		if seen[s.Segment.ID] {
			v = Invalid
		}
		seen[s.Segment.ID] = true
		if v == Elsewhere || v == Invalid {
			r.judge(s.Segment, v)
			continue
		}
		r.MinEpoch = max(r.MinEpoch, s.Segment.CopierEpoch+1, s.Segment.Epochs.Last()+1, s.Lineage.Last()+1)
		if v == Missing || v == Deleting {
			known = max(known, s.Segment.End)
		}
		if v != Keep {
			r.judge(s.Segment, v)
			continue
		}
		s.Segment.State = tiers.CopyFinished
		good = append(good, s)
	}
	return good, known
}

// expire judges what is missing below the start: its deletion had begun, and what
// went on purpose is no loss (reports 049 and 057). An upload that no row names and
// that was never whole has no known end: it stays incomplete.
func (r *Rebuilt) expire(start tiers.Offset) {
	for i, j := range r.Judged {
		missing := j.Verdict == Missing || j.Verdict == Incomplete
		if s := j.Segment; missing && s.Base < s.End && s.End <= start {
			r.Judged[i].Verdict = Stale
		}
	}
}

func verdict(f RebuildFacts, s Found) Verdict {
	facts := s.Segment
	facts.State = tiers.CopyFinished
	switch {
	case facts.Partition != f.Partition || facts.Gen != f.Gen:
		return Elsewhere
	case s.Row == tiers.DeleteStarted || s.Row == tiers.DeleteFinished:
		return Deleting
	case !s.Complete && s.Row == tiers.CopyFinished:
		return Missing
	case !s.Complete:
		return Incomplete
	case facts.Valid() != nil || s.Lineage.Valid() != nil || len(s.Lineage) == 0 || !fits(s):
		return Invalid
	}
	return Keep
}

// fits reports whether the lineage of the log and that of the segment agree
// where both speak.
func fits(s Found) bool {
	from, end := max(s.Segment.Base, s.Lineage[0].Start), s.Segment.End
	return s.Lineage[len(s.Lineage)-1].Start < end && remoteindex.Agree(s.Segment.Epochs, s.Lineage, from, end) == max(from, end)
}

// authority returns the lineage of the log, the start that its newest copies knew
// and the end that they reach. Later leaders are believed first. An earlier one
// adds the end of its log if it agrees with them as far as both reach: nobody
// knows then that it was discarded, and only committed records are copied (R1).
func authority(good []Found) (l tiers.Lineage, start, end tiers.Offset) {
	byLeader := slices.Clone(good)
	slices.SortStableFunc(byLeader, func(a, b Found) int {
		return cmp.Or(
			cmp.Compare(b.Segment.CopierEpoch, a.Segment.CopierEpoch), cmp.Compare(b.Lineage.Last(), a.Lineage.Last()),
			cmp.Compare(b.Segment.End, a.Segment.End), b.Segment.CreatedAt.Compare(a.Segment.CreatedAt),
		)
	})
	for _, s := range byLeader {
		if len(l) == 0 {
			l, start, end = s.Lineage, s.Lineage[0].Start, s.Segment.End
			continue
		}
		from, to := max(l[0].Start, s.Lineage[0].Start), min(end, s.Segment.End)
		if remoteindex.Agree(l, s.Lineage, from, to) < to || from >= end && s.Lineage[0].Epoch < l.Last() {
			continue
		}
		start = max(start, s.Lineage[0].Start)
		if s.Segment.End > end {
			l, end = extend(l, s.Lineage, end), s.Segment.End
		}
	}
	return l, start, end
}

// extend appends the entries of more that start at or above end.
func extend(l, more tiers.Lineage, end tiers.Offset) tiers.Lineage {
	l = slices.Clone(l)
	for _, e := range more {
		if e.Start >= end && e.Epoch > l.Last() {
			l = append(l, e)
		}
	}
	return l
}

// pieces returns the safe ranges of the segments that have one, by offset.
func (r *Rebuilt) pieces(good []Found, t remoteindex.Truth) []remoteindex.Piece {
	var out []remoteindex.Piece
	for _, s := range good {
		from, end := remoteindex.SafeRange(s.Segment, t)
		switch {
		case s.Segment.End <= t.Start:
			r.judge(s.Segment, Stale)
		case end <= from:
			r.judge(s.Segment, Discarded)
		default:
			out = append(out, remoteindex.Piece{Segment: s.Segment, From: from, End: end})
		}
	}
	slices.SortStableFunc(out, func(a, b remoteindex.Piece) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.End, b.End))
	})
	return out
}

// runs joins pieces, which are in order, and notes where they overlap.
func (r *Rebuilt) runs(pieces []remoteindex.Piece) []Range {
	var out []Range
	for _, p := range pieces {
		if len(out) == 0 || p.From > out[len(out)-1].End {
			out = append(out, Range{p.From, p.End})
			continue
		}
		last := &out[len(out)-1]
		if p.From < last.End {
			r.overlap(Range{p.From, min(p.End, last.End)})
		}
		last.End = max(last.End, p.End)
	}
	return out
}

func (r *Rebuilt) overlap(o Range) {
	if n := len(r.Overlaps); n > 0 && o.From <= r.Overlaps[n-1].End {
		r.Overlaps[n-1].End = max(r.Overlaps[n-1].End, o.End)
		return
	}
	r.Overlaps = append(r.Overlaps, o)
}

// gaps returns what the runs leave of [start, known).
func gaps(runs []Range, start, known tiers.Offset) []Range {
	var out []Range
	at := start
	for _, run := range runs {
		if run.From > at {
			out = append(out, Range{at, run.From})
		}
		at = run.End
	}
	if known > at {
		out = append(out, Range{at, known})
	}
	return out
}

func choose(runs []Range, p Prefer) Range {
	switch p {
	case NewestRun:
		return runs[len(runs)-1]
	case OldestRun:
		return runs[0]
	case LongestRun:
	}
	return slices.MaxFunc(runs, func(a, b Range) int {
		return cmp.Or(cmp.Compare(a.End-a.From, b.End-b.From), cmp.Compare(a.From, b.From))
	})
}

// keep judges the segments of the pieces and makes the rows.
func (r *Rebuilt) keep(f RebuildFacts, pieces []remoteindex.Piece, run Range) {
	var rows []tiers.RemoteSegment
	for _, p := range pieces {
		if p.From >= run.From && p.End <= run.End {
			rows = append(rows, p.Segment)
		} else {
			r.judge(p.Segment, Stranded)
		}
	}
	// The error names rows that are invalid or twice there: sift took them out.
	index, _ := remoteindex.New(f.Partition, f.Gen, rows)
	redundant := map[tiers.SegmentID]bool{}
	for _, s := range index.Unreferenced() {
		redundant[s.ID] = true
	}
	for _, s := range rows {
		if redundant[s.ID] {
			r.judge(s, Redundant)
			continue
		}
		r.judge(s, Keep)
		r.Rows = append(r.Rows, s)
		if s.End == run.End {
			r.Producers = s.ID
		}
	}
}

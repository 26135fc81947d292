package plan

import (
	"math/bits"
	"slices"
	"time"

	"github.com/strandline-io/strandline/remoteindex"
	"github.com/strandline-io/strandline/tiers"
)

// Limits say how much of a log is kept. A negative limit is none: Forever.
type Limits struct {
	Bytes int64
	Age   time.Duration
}

// Young reports whether a segment in the bucket is neither due by age nor held by
// a record from the future.
func (l Limits) Young(r tiers.RemoteSegment, now time.Time) bool {
	t := remoteTime(r)
	return l.Age < 0 || !t.After(now) && now.Sub(t) < l.Age
}

// DropOldest is the size rule of every tier (R9, R13): how many of the oldest
// units go so that what stays of total is as near to limit as can be, but never
// below it.
func DropOldest(sizes []int64, total, limit int64) int {
	if limit < 0 {
		return 0
	}
	over := total - limit
	for i, s := range sizes {
		if over -= s; over < 0 {
			return i
		}
	}
	return len(sizes)
}

// LocalFacts is what decides which local segments go.
type LocalFacts struct {
	Segments      []LocalSegment // by offset, the active one last
	LogStart      tiers.Offset
	HighWatermark tiers.Offset
	RemoteEnd     tiers.Offset // exclusive: what is safely in the bucket
	// Copied says that segments are being copied: those that are not in the
	// bucket stay then. Otherwise local disk is all that counts, and LogStart
	// moves with what goes (report 108).
	Copied bool
	Limits Limits // local.retention.* if Copied, retention.* if not
}

// LocalDrop says what local retention does.
type LocalDrop struct {
	Before   tiers.Offset // segments that end at or below it go; LocalLogStart moves there
	LogStart tiers.Offset // to be published before anything goes
	Roll     bool         // the active segment is due: close it, a later pass drops it
	ByAge    bool         // age, not size, was what made the last one due
	// Dated are the segments that leave the log by the age of their file, because
	// a record in them is dated in the future: tell (report 110). Only if not Copied;
	// else the bucket has them.
	Dated []Future
	// Held is the segment that stays by the age of its file for that reason, although
	// something behind it is due. Only if not Copied. Nil: none.
	Held *Future
}

// Future is a segment with a record that is dated in the future.
type Future struct {
	Base, Next   tiers.Offset
	MaxTimestamp int64 // milliseconds since 1970
}

// LocalRetention decides which segments leave the disk (R6): from the oldest on,
// until one is not due, not committed or, if segments are copied, not in the
// bucket. A segment below LogStart is due at once. Age is that of the newest
// record; one from the future or without a time counts by the file's time (report
// 110).
func LocalRetention(f LocalFacts, now time.Time) LocalDrop {
	d := LocalDrop{LogStart: f.LogStart}
	if len(f.Segments) == 0 {
		return d
	}
	d.Before = f.Segments[0].Base
	over := overBy(f.Segments, f.Limits.Bytes)
	for i, s := range f.Segments {
		bySize := f.Limits.Bytes >= 0 && over-s.Size >= 0
		due := s.Next <= f.LogStart || bySize || f.old(s, now)
		if !due && !f.Copied && slices.ContainsFunc(f.Segments[i+1:], func(s LocalSegment) bool { return f.old(s, now) }) {
			d.Held = future(s, now)
		}
		if s.Size == 0 || !due || f.HighWatermark < s.Next {
			return d
		}
		if s.Active {
			d.Roll = true
			return d
		}
		if f.Copied && s.Next > f.RemoteEnd && s.Next > f.LogStart {
			return d
		}
		over -= s.Size
		d.Before = s.Next
		if !f.Copied && s.Next > d.LogStart {
			d.LogStart, d.ByAge = s.Next, !bySize
			if dated := future(s, now); dated != nil && !bySize {
				d.Dated = append(d.Dated, *dated)
			}
		}
	}
	return d
}

// old reports whether a segment is due by age.
func (f LocalFacts) old(s LocalSegment, now time.Time) bool {
	return f.Limits.Age >= 0 && s.Size > 0 && now.Sub(localTime(s, now)) >= f.Limits.Age
}

// future returns what there is to tell of a segment that is dated in the future,
// nil if it is not.
func future(s LocalSegment, now time.Time) *Future {
	if s.Size == 0 || !time.UnixMilli(s.MaxTimestamp).After(now) {
		return nil
	}
	return &Future{s.Base, s.Next, s.MaxTimestamp}
}

func overBy(segs []LocalSegment, limit int64) int64 {
	var total int64
	for _, s := range segs {
		total += s.Size
	}
	return total - limit
}

func localTime(s LocalSegment, now time.Time) time.Time {
	if t := time.UnixMilli(s.MaxTimestamp); s.MaxTimestamp >= 0 && !t.After(now) {
		return t
	}
	return s.Modified
}

// TotalFacts is what decides which remote segments go.
type TotalFacts struct {
	Rows     []tiers.RemoteSegment // all, by base, whatever their state is
	Local    []LocalSegment        // by offset: each offset counts in one tier only (report 001)
	Lineage  tiers.Lineage         // authoritative
	Floor    tiers.Offset          // classic LogStart, switched X
	LogEnd   tiers.Offset
	Copying  tiers.Offset // base of the segment being copied, NoOffset if none is
	Switched bool         // switched or born object-first: the guard of R10 holds
	// Suspended keeps age and size from dropping anything: progress is not known
	// yet (report 001), or a rebuild has not ended (N1).
	Suspended bool
	Limits    Limits // retention.*
}

// TotalDrop says what total retention does.
type TotalDrop struct {
	Retry  []tiers.RemoteSegment // DeleteStarted already: finish these first
	Delete []tiers.RemoteSegment // in this order
	Floor  tiers.Offset          // to be published before the first object goes (R8)
	Left   int                   // segments of the log that stay
	ByAge  bool                  // age, not size, has moved Floor that far
	// Held is the segment that stays by age only because of a record from the
	// future: warn (report 110). Nil: none.
	Held *tiers.RemoteSegment
}

// TotalRetention decides which remote segments are deleted (R7, R10): those
// below the floor and of epochs that the log has forgotten, then from the oldest
// in the lineage on those that are due by age or size, until one is not.
func TotalRetention(f TotalFacts, now time.Time) TotalDrop {
	d := TotalDrop{Floor: f.Floor}
	for _, r := range f.Rows {
		switch {
		case r.State == tiers.DeleteStarted:
			d.Retry = append(d.Retry, r)
		case r.State == tiers.CopyFinished && f.before(r) && forgotten(r, f):
			d.Delete = append(d.Delete, r)
		}
	}
	live := f.live()
	d.Left = len(live.rows)
	if f.Suspended {
		return d
	}
	due := f.due(live, now)
	d.Left, d.ByAge, d.Held = len(live.rows)-due.n, due.byAge, due.held
	for _, r := range live.rows[:due.n] {
		d.Delete = append(d.Delete, r)
		d.Floor = max(d.Floor, r.End)
	}
	return d
}

// before reports whether a segment lies before the one that is being copied.
func (f TotalFacts) before(r tiers.RemoteSegment) bool {
	return f.Copying == tiers.NoOffset || r.Base < f.Copying
}

// forgotten reports whether a segment goes whatever its age is: it lies below
// the floor, or all its epochs are older than the lineage. The latter does not
// hold for a switched partition, whose lineage may be empty while it is rebuilt
// (s10.3). Kafka lets a segment below the floor stay if it ends in an epoch that
// is newer than the lineage's first, and may keep it for ever (report 125).
func forgotten(r tiers.RemoteSegment, f TotalFacts) bool {
	if r.End <= f.Floor {
		return true
	}
	return !f.Switched && len(f.Lineage) > 0 && r.Epochs.Last() < f.Lineage[0].Epoch
}

// living is what of a log can be due.
type living struct {
	rows  []tiers.RemoteSegment // in the lineage and not forgotten, by base
	ready int                   // of them, those that no record on disk only lies before
	local int64                 // bytes of local segments that no row covers
}

// live walks both tiers along the log.
func (f TotalFacts) live() living {
	var l living
	truth := remoteindex.Truth{Lineage: f.Lineage, Start: f.Floor, Bound: f.LogEnd}
	reach, gap := f.Floor, false
	local := f.Local
	for _, r := range f.Rows {
		if r.State != tiers.CopyFinished || forgotten(r, f) {
			continue
		}
		from, end := remoteindex.SafeRange(r, truth)
		if end <= from {
			continue
		}
		for len(local) > 0 && local[0].Next <= from { // behind the rows so far, before this one
			if local[0].Base >= reach && local[0].Next > f.Floor {
				l.local += local[0].Size
			}
			gap = gap || local[0].Next > reach && local[0].Size > 0
			local = local[1:]
		}
		gap = gap || len(local) > 0 && local[0].Base < from && from > reach && local[0].Size > 0
		reach = max(reach, end)
		if remoteindex.Within(r, f.Lineage, f.Floor, f.LogEnd) {
			l.rows = append(l.rows, r)
			if !gap && f.before(r) {
				l.ready = len(l.rows)
			}
		}
	}
	for _, s := range local {
		if s.Base >= reach && s.Next > f.Floor {
			l.local += s.Size
		}
	}
	return l
}

// overdue is how many of the oldest segments go, and why no more.
type overdue struct {
	n     int
	byAge bool
	held  *tiers.RemoteSegment
}

// due returns how many of the oldest segments go. Where segments overlap each
// offset counts once.
func (f TotalFacts) due(l living, now time.Time) overdue {
	sizes, total := make([]int64, len(l.rows)), l.local
	reach := f.Floor
	for i, r := range l.rows {
		if fresh := r.End - max(r.Base, min(reach, r.End)); i > 0 && fresh < r.End-r.Base {
			sizes[i] = share(r.Size, fresh, r.End-r.Base)
		} else {
			sizes[i] = r.Size
		}
		reach = max(reach, r.End)
		total += sizes[i]
	}
	bySize := min(DropOldest(sizes, total, f.Limits.Bytes), l.ready)
	if f.Limits.Age < 0 {
		return overdue{n: bySize}
	}
	ready := l.rows[:l.ready]
	byAge := slices.IndexFunc(ready, func(r tiers.RemoteSegment) bool { return now.Sub(remoteTime(r)) < f.Limits.Age })
	if byAge < 0 {
		byAge = len(ready)
	}
	d := overdue{n: max(bySize, byAge), byAge: byAge > bySize}
	if d.n == byAge && byAge < len(ready) && remoteTime(ready[byAge]).After(now) {
		d.held = &ready[byAge]
	}
	return d
}

// share is size * part / whole, without overflow; part < whole.
func share(size int64, part, whole tiers.Offset) int64 {
	hi, lo := bits.Mul64(uint64(size), uint64(part))
	q, _ := bits.Div64(hi, lo, uint64(whole))
	return int64(q)
}

// remoteTime is the time by which a remote segment ages: its newest record's,
// or that of the copy if no record carries one.
func remoteTime(r tiers.RemoteSegment) time.Time {
	if r.MaxTimestamp >= 0 {
		return time.UnixMilli(r.MaxTimestamp)
	}
	return r.CreatedAt
}

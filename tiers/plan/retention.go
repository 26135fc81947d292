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
	for _, s := range f.Segments {
		bySize := f.Limits.Bytes >= 0 && over-s.Size >= 0
		due := s.Next <= f.LogStart || bySize || f.Limits.Age >= 0 && now.Sub(localTime(s, now)) >= f.Limits.Age
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
		if !f.Copied {
			d.LogStart = max(d.LogStart, s.Next)
		}
	}
	return d
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

// LocalOnly sums up the local bytes that are not in the bucket, so that no
// offset is counted twice (report 001). A segment that is partly there counts as
// there.
func LocalOnly(segs []LocalSegment, remoteEnd tiers.Offset) int64 {
	var n int64
	for _, s := range segs {
		if s.Base >= remoteEnd {
			n += s.Size
		}
	}
	return n
}

// TotalFacts is what decides which remote segments go.
type TotalFacts struct {
	Rows      []tiers.RemoteSegment // all, by base, whatever their state is
	Lineage   tiers.Lineage         // authoritative
	Floor     tiers.Offset          // classic LogStart, switched X
	LogEnd    tiers.Offset
	LocalOnly int64        // bytes that are in no remote segment
	Copying   tiers.Offset // base of the segment being copied, NoOffset if none is
	Switched  bool         // switched or born object-first: the guard of R10 holds
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
	// Held is true if a record from the future is all that keeps a segment by
	// age: warn (report 110).
	Held bool
}

// TotalRetention decides which remote segments are deleted (R7, R10): those
// below the floor and of epochs that the log has forgotten, then from the oldest
// in the lineage on those that are due by age or size, until one is not.
func TotalRetention(f TotalFacts, now time.Time) TotalDrop {
	d := TotalDrop{Floor: f.Floor}
	live := make([]tiers.RemoteSegment, 0, len(f.Rows))
	for _, r := range f.Rows {
		switch {
		case r.State == tiers.DeleteStarted:
			d.Retry = append(d.Retry, r)
		case r.State != tiers.CopyFinished || f.Copying != tiers.NoOffset && r.Base >= f.Copying:
			// Not readable, or not before what is being copied.
		case forgotten(r, f):
			d.Delete = append(d.Delete, r)
		case remoteindex.Within(r, f.Lineage, f.Floor, f.LogEnd):
			live = append(live, r)
		}
	}
	if f.Suspended {
		return d
	}
	due, held := f.due(live, now)
	d.Held = held
	for _, r := range live[:due] {
		d.Delete = append(d.Delete, r)
		d.Floor = max(d.Floor, r.End)
	}
	return d
}

// forgotten reports whether a segment goes whatever its age is: it lies below
// the floor, or all its epochs are older than the lineage. The latter does not
// hold for a switched partition, whose lineage may be empty while it is rebuilt
// (s10.3).
func forgotten(r tiers.RemoteSegment, f TotalFacts) bool {
	if f.Switched {
		return r.End <= f.Floor
	}
	if len(f.Lineage) == 0 {
		return false
	}
	first, last := f.Lineage[0].Epoch, r.Epochs.Last()
	return last < first || last == first && r.End <= f.Floor
}

// due returns how many of the oldest segments go. Where segments overlap each
// offset counts once.
func (f TotalFacts) due(live []tiers.RemoteSegment, now time.Time) (n int, held bool) {
	sizes, total := make([]int64, len(live)), f.LocalOnly
	reach := f.Floor
	for i, r := range live {
		if fresh := r.End - max(r.Base, min(reach, r.End)); i > 0 && fresh < r.End-r.Base {
			sizes[i] = share(r.Size, fresh, r.End-r.Base)
		} else {
			sizes[i] = r.Size
		}
		reach = max(reach, r.End)
		total += sizes[i]
	}
	bySize := DropOldest(sizes, total, f.Limits.Bytes)
	byAge := 0
	if f.Limits.Age >= 0 {
		byAge = slices.IndexFunc(live, func(r tiers.RemoteSegment) bool { return now.Sub(remoteTime(r)) < f.Limits.Age })
		if byAge < 0 {
			byAge = len(live)
		}
		held = byAge < len(live) && bySize <= byAge && remoteTime(live[byAge]).After(now)
	}
	return max(bySize, byAge), held
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

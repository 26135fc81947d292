package plan

import (
	"cmp"
	"slices"
	"time"

	"github.com/strandline-io/strandline/tiers"
)

// PassFacts is what a retention pass over both tiers decides on.
type PassFacts struct {
	Total         TotalFacts // Local, Floor and LogEnd are those of the local tier too
	HighWatermark tiers.Offset
	RemoteEnd     tiers.Offset // exclusive: what is safely in the bucket
	Copied        bool         // segments are being copied
	Local         Limits       // local.retention.*; only if Copied
}

// Pass is what retention does next. First LogStart is published, then DropBefore
// can rise, so a pass that raised it is followed by another.
type Pass struct {
	LogStart   tiers.Offset // to be remembered and published
	DropBefore tiers.Offset // local segments that end at or below it go now: nobody misses them
	Roll       bool         // the active segment is due: close it
	ByAge      bool         // age has moved LogStart, not size
	Dated      []Future     // LocalDrop.Dated
	Held       *Future      // of either tier: stays by age only because of a record from the future
}

// Retention decides what a pass does with what is published now (R6-R10). Where
// segments are not copied the total limits hold on disk too, but only for what
// has become the oldest of the log: the bucket's segments go first (report 108).
func Retention(f PassFacts, now time.Time) Pass {
	total := TotalRetention(f.Total, now)
	p := Pass{LogStart: total.Floor, ByAge: total.ByAge}
	if h := total.Held; h != nil {
		p.Held = &Future{h.Base, h.End, h.MaxTimestamp}
	}
	local := LocalFacts{
		Segments: f.Total.Local, LogStart: f.Total.Floor, HighWatermark: f.HighWatermark, RemoteEnd: f.RemoteEnd, Copied: f.Copied, Limits: f.Local,
	}
	if f.Copied {
		d := LocalRetention(local, now)
		p.DropBefore, p.Roll = d.Before, d.Roll
		return p
	}
	local.Limits = Limits{Bytes: Forever, Age: Forever}
	p.DropBefore = LocalRetention(local, now).Before
	if total.Left > 0 || f.Total.Suspended {
		return p
	}
	local.LogStart, local.Limits = total.Floor, f.Total.Limits
	d := LocalRetention(local, now)
	p.Roll, p.Dated, p.Held = d.Roll, d.Dated, d.Held
	if d.LogStart > p.LogStart {
		p.LogStart, p.ByAge = d.LogStart, d.ByAge
	}
	return p
}

// Settle returns where the log start comes to rest if nothing is appended and
// pass follows pass: one closes the active segment that is due, and a later one
// deletes it. If segments are copied, those that are closed get into the bucket
// meanwhile, and then the total limits hold for them.
func Settle(f PassFacts, now time.Time) tiers.Offset {
	f.Total.Local, f.Total.Rows = slices.Clone(f.Total.Local), slices.Clone(f.Total.Rows)
	for {
		if f.Copied {
			f.copyClosed(now)
		}
		p := Retention(f, now)
		moved := p.LogStart > f.Total.Floor
		f.Total.Floor = p.LogStart
		f.Total.Lineage = f.Total.Lineage.TruncateStart(p.LogStart)
		f.RemoteEnd = max(f.RemoteEnd, p.LogStart)
		f.Total.Local = slices.DeleteFunc(f.Total.Local, func(s LocalSegment) bool { return !s.Active && s.Next <= p.DropBefore })
		switch {
		case p.Roll:
			f.closeActive()
		case !moved:
			return f.Total.Floor
		}
	}
}

// DueOnceCopied reports whether a pass has something to do if every closed segment
// is in the bucket.
func DueOnceCopied(f PassFacts, now time.Time) bool {
	f.Total.Rows = slices.Clone(f.Total.Rows)
	f.copyClosed(now)
	p := Retention(f, now)
	return p.Roll || p.LogStart > f.Total.Floor || p.DropBefore > f.Total.Local[0].Base
}

// closeActive puts an empty active segment behind the last one, which is due no more.
func (f *PassFacts) closeActive() {
	local := f.Total.Local
	last := &local[len(local)-1]
	last.Active = false
	f.Total.Local = append(local, LocalSegment{Base: last.Next, Next: last.Next, Active: true})
}

// copyClosed adds the rows that the copies of what is closed will have.
func (f *PassFacts) copyClosed(now time.Time) {
	t := &f.Total
	for _, s := range t.Local {
		if s.Active || s.Size == 0 || s.Next <= f.RemoteEnd {
			continue
		}
		t.Rows = append(t.Rows, tiers.RemoteSegment{
			Base: s.Base, End: s.Next, Size: s.Size, MaxTimestamp: s.MaxTimestamp, CreatedAt: now,
			Epochs: SegmentLineage(t.Lineage, s.Base, s.Next), State: tiers.CopyFinished,
		})
		f.RemoteEnd = s.Next
	}
	slices.SortStableFunc(t.Rows, func(a, b tiers.RemoteSegment) int { return cmp.Compare(a.Base, b.Base) })
}

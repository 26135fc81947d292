package plan

import (
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

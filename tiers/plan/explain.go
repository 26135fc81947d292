package plan

import (
	"fmt"
	"strings"
	"time"

	"github.com/strandline-io/strandline/tiers"
)

// Placement is what is known of one segment, which may be in both tiers.
type Placement struct {
	Base, Next   tiers.Offset
	Size         int64
	MaxTimestamp int64     // newest record's, milliseconds since 1970, -1 if none
	Modified     time.Time // of the file; zero if it is not on disk
	Created      time.Time // of the copy; zero if there is none
	FirstAppend  time.Time // of the active one
	OnDisk       bool
	Active       bool
	InBucket     bool     // and readable there
	Discarded    bool     // it holds records of a log that was given up: nobody reads it
	Copy         *Copying // it is to be copied; nil: it is not
	Removal      *Removal // it is leaving the bucket; nil: it is not
}

// Copying is how far the copy of a segment is.
type Copying struct {
	Ahead     int  // segments that are copied before it
	Running   bool // it is being copied
	Undecided bool // a transaction in it is open, or it is not committed
	Failures  int  // in a row
	Why       string
	Next      time.Time // of the next try
}

// Removal is how far the removal of a segment from the bucket is.
type Removal struct {
	Marked   bool      // its row is in DeleteStarted: no reader finds it any more
	Emptied  bool      // its objects are gone, its row is not
	Since    time.Time // when it was marked; zero: before this node started
	At       time.Time // of the next step
	Failures int       // in a row
	Why      string
}

// ExplainFacts is what holds for all segments of a log.
type ExplainFacts struct {
	LogStart    tiers.Offset
	Copied      bool // segments are being copied
	Paused      bool // they would be, but for remote.log.copy.disable
	Limits      Limits
	Local       Limits // only if Copied
	Roll        RollLimits
	LocalBytes  int64        // on disk
	TotalBytes  int64        // of the log, each counted once
	Held        tiers.Offset // base of the segment that a record from the future keeps, NoOffset: none
	Unavailable bool         // it is not known what the bucket holds
	Now         time.Time
}

// Explain says in words why a segment is where it is and what happens to it next.
func Explain(p Placement, f ExplainFacts) string {
	var parts []string
	say := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	switch {
	case p.Active:
		say("%s", explainActive(p, f))
	case p.Removal != nil:
		say("%s", explainRemoval(p, f))
	case p.Copy != nil && p.Next > f.LogStart:
		say("%s", explainCopy(*p.Copy, f))
	}
	switch below := p.Next <= f.LogStart; {
	case p.Active:
	case below && p.OnDisk:
		say("below the log start: its file goes next")
	case below && p.Removal == nil:
		say("below the log start: it leaves the bucket next")
	case p.Discarded:
		say("nobody reads it: it holds records of a log that was discarded, and goes once the log has passed it")
	case p.Removal != nil:
	default:
		if p.OnDisk && p.InBucket {
			say("%s", explainLocal(p, f))
		}
		say("%s", explainTotal(p, f))
	}
	return strings.Join(parts, "; ")
}

func explainActive(p Placement, f ExplainFacts) string {
	if p.Size == 0 {
		return "active: empty"
	}
	limits, name := f.Limits, "retention"
	if f.Copied {
		limits, name = f.Local, "local.retention"
	}
	a := LocalSegment{Size: p.Size, MaxTimestamp: p.MaxTimestamp, FirstAppend: p.FirstAppend, Modified: p.Modified}
	due := localTime(a, f.Now).Add(limits.Age)
	out := "active: closes at " + Bytes(f.Roll.Bytes)
	switch {
	case limits.Bytes == 0:
		return "active: closes at the next pass once all older ones may leave the disk (" + name + ".bytes=0)"
	case limits.Age >= 0 && !due.After(f.Now):
		return "active: closes at the next pass once all older ones may leave the disk (" + name + ".ms has ended)"
	}
	if roll := f.Now.Add(f.Roll.Age - age(a, f.Now)); f.Roll.Age > 0 && (limits.Age < 0 || !roll.After(due)) {
		return out + " or on " + stamp(roll)
	}
	if limits.Age < 0 {
		return out
	}
	return out + " or on " + stamp(due) + " (" + name + ".ms)"
}

func explainRemoval(p Placement, f ExplainFacts) string {
	r := *p.Removal
	out := "leaves the bucket: its row is marked next"
	switch {
	case r.Emptied:
		out = "its objects are gone, its row goes next"
	case r.Marked && r.Since.IsZero():
		out = "being deleted since before this node started"
	case r.Marked:
		out = "being deleted since " + stamp(r.Since)
	}
	if r.Failures > 0 {
		return out + fmt.Sprintf(", failed %d times: %s, next try in %s", r.Failures, r.Why, Duration(r.At.Sub(f.Now)))
	}
	if r.Marked && !r.Emptied && r.At.After(f.Now) {
		return out + ": its objects go in " + Duration(r.At.Sub(f.Now)) + ", readers may be on them"
	}
	return out
}

func explainCopy(c Copying, f ExplainFacts) string {
	switch {
	case c.Running:
		return "being copied to the bucket"
	case f.Paused:
		return "not in the bucket: copies are paused (remote.log.copy.disable)"
	case c.Ahead > 0:
		return fmt.Sprintf("waiting to be copied behind %d others", c.Ahead)
	case c.Undecided:
		return "waiting to be copied: a transaction in it is open, or its records are not committed yet"
	case c.Failures > 0:
		return fmt.Sprintf("its copy failed %d times: %s, next try in %s", c.Failures, c.Why, Duration(c.Next.Sub(f.Now)))
	}
	return "to be copied next"
}

// explainLocal says why a segment that is in the bucket is on disk as well.
func explainLocal(p Placement, f ExplainFacts) string {
	s := LocalSegment{MaxTimestamp: p.MaxTimestamp, Modified: p.Modified}
	size := ""
	if f.Local.Bytes >= 0 {
		size = fmt.Sprintf("%s of local.retention.bytes=%s are used", Bytes(f.LocalBytes), Bytes(f.Local.Bytes))
	}
	switch left := f.Local.Age - f.Now.Sub(localTime(s, f.Now)); {
	case !f.Copied:
		return "on disk too, where the total limits hold as nothing is copied"
	case f.Local.Age >= 0 && left <= 0, f.Local.Bytes >= 0 && f.LocalBytes-p.Size >= f.Local.Bytes:
		return "on disk too: it goes from there once all older ones did"
	case f.Local.Age >= 0 && size != "":
		return "on disk too, for " + Duration(left) + " more (local.retention.ms), or by size: " + size
	case f.Local.Age >= 0:
		return "on disk too, for " + Duration(left) + " more (local.retention.ms)"
	case size != "":
		return "on disk too: " + size
	}
	return "on disk too: no local limit is set"
}

// explainTotal says why a segment is kept at all.
func explainTotal(p Placement, f ExplainFacts) string {
	aged := localTime(LocalSegment{MaxTimestamp: p.MaxTimestamp, Modified: p.Modified}, f.Now)
	if p.InBucket {
		aged = remoteTime(tiers.RemoteSegment{MaxTimestamp: p.MaxTimestamp, CreatedAt: p.Created})
	}
	left := f.Limits.Age - f.Now.Sub(aged)
	size := ""
	if f.Limits.Bytes >= 0 {
		size = fmt.Sprintf("%s of retention.bytes=%s are used", Bytes(f.TotalBytes), Bytes(f.Limits.Bytes))
	}
	turn := "once all older ones are gone"
	if p.Base <= f.LogStart {
		turn = "at the next pass"
	}
	over := f.Limits.Bytes >= 0 && f.TotalBytes-p.Size >= f.Limits.Bytes
	switch {
	case f.Unavailable:
		return "kept: it is not known what the bucket holds, so nothing is due"
	case f.Limits.Age < 0 && f.Limits.Bytes < 0:
		return "kept for ever: no limit is set"
	case over && !p.InBucket && f.Copied:
		return "kept until it is copied, and then by size: " + size
	case over:
		return "due by size " + turn + ": " + size
	case f.Limits.Age < 0:
		return "kept: " + size
	case p.InBucket && aged.After(f.Now):
		return "kept: a record dated " + stamp(aged) + ", in the future, holds it by age; a size limit still applies"
	case left <= 0 && !p.InBucket && f.Copied:
		return "kept until it is copied, although retention.ms has ended"
	case left <= 0 && f.Held != tiers.NoOffset && f.Held < p.Base:
		return fmt.Sprintf("kept: the segment at %d, which a record from the future holds, is older", f.Held)
	case left <= 0:
		return "due by age " + turn
	}
	out := "kept for " + Duration(left) + " more (retention.ms" + byFile(p, f.Now) + ")"
	if size != "" {
		out += ", or by size: " + size
	}
	return out
}

// byFile says that it is the time of its file that a segment on disk ages by, and
// why (report 110).
func byFile(p Placement, now time.Time) string {
	switch {
	case p.InBucket:
		return ""
	case p.MaxTimestamp < 0:
		return ", from its last append: its records carry no time"
	case time.UnixMilli(p.MaxTimestamp).After(now):
		return ", from its last append: a record in it is dated " + stamp(time.UnixMilli(p.MaxTimestamp)) + ", in the future"
	}
	return ""
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

// Bytes prints a size for people.
func Bytes(n int64) string {
	unit, units := float64(n), []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	i := 0
	for unit >= 1024 && i < len(units)-1 {
		unit, i = unit/1024, i+1
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", unit), ".0") + " " + units[i]
}

// Duration prints a time span for people, in its two largest units.
func Duration(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < 0:
		return "0s"
	case d >= day:
		return fmt.Sprintf("%dd %dh", d/day, d%day/time.Hour)
	case d >= time.Hour:
		return fmt.Sprintf("%dh %dm", d/time.Hour, d%time.Hour/time.Minute)
	case d >= time.Minute:
		return fmt.Sprintf("%dm %ds", d/time.Minute, d%time.Minute/time.Second)
	}
	return fmt.Sprintf("%ds", (d+time.Second-1)/time.Second)
}

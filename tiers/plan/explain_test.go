package plan

import (
	"testing"
	"time"

	"github.com/strandline-io/strandline/tiers"
)

func TestExplain(t *testing.T) {
	const mib = 1 << 20
	ms := func(ago time.Duration) int64 { return noon().Add(-ago).UnixMilli() }
	facts := func(change func(*ExplainFacts)) ExplainFacts {
		f := ExplainFacts{
			Copied: true, Limits: none(), Local: none(), Roll: RollLimits{Bytes: 1 << 30, Age: 7 * 24 * time.Hour},
			LocalBytes: 300 * mib, TotalBytes: 1229 * mib, Held: tiers.NoOffset, Now: noon(),
		}
		if change != nil {
			change(&f)
		}
		return f
	}
	both := Placement{Base: 10, Next: 20, Size: 100 * mib, MaxTimestamp: ms(time.Hour), Modified: noon(), Created: noon(), OnDisk: true, InBucket: true}
	active := Placement{Base: 20, Next: 30, Size: mib, MaxTimestamp: ms(time.Hour), Modified: noon(), FirstAppend: noon(), OnDisk: true, Active: true}
	remote, onDisk := both, both
	remote.OnDisk, onDisk.InBucket = false, false
	copying := func(c Copying) Placement { p := onDisk; p.Copy = &c; return p }
	removal := func(r Removal) Placement { p := remote; p.InBucket, p.Removal = !r.Marked, &r; return p }
	week := func(f *ExplainFacts) { f.Limits.Age = 7 * 24 * time.Hour }
	for _, c := range []struct {
		p    Placement
		f    ExplainFacts
		want string
	}{
		{Placement{Active: true, OnDisk: true, Size: 5, FirstAppend: noon().Add(-24 * time.Hour)}, facts(nil), "active: closes at 1 GiB or on 2023-11-20 22:13 UTC"},
		{Placement{Active: true, OnDisk: true, Size: 5}, facts(func(f *ExplainFacts) { f.Roll.Age = 0 }), "active: closes at 1 GiB"},
		{Placement{Active: true, OnDisk: true}, facts(nil), "active: empty"},
		{active, facts(func(f *ExplainFacts) { f.Local.Age = 4 * time.Hour }), "active: closes at 1 GiB or on 2023-11-15 01:13 UTC (local.retention.ms)"},
		{active, facts(func(f *ExplainFacts) { f.Local.Age = 400 * time.Hour }), "active: closes at 1 GiB or on 2023-11-21 22:13 UTC"},
		{active, facts(func(f *ExplainFacts) { f.Local.Age, f.Roll.Age = 4*time.Hour, 0 }), "active: closes at 1 GiB or on 2023-11-15 01:13 UTC (local.retention.ms)"},
		{active, facts(func(f *ExplainFacts) { f.Local.Age = time.Hour }), "active: closes at the next pass once all older ones may leave the disk (local.retention.ms has ended)"},
		{active, facts(func(f *ExplainFacts) { f.Limits.Age = time.Hour }), "active: closes at 1 GiB or on 2023-11-21 22:13 UTC"}, // only once it is copied
		{active, facts(func(f *ExplainFacts) { f.Copied, f.Limits.Age = false, time.Hour }), "active: closes at the next pass once all older ones may leave the disk (retention.ms has ended)"},
		{active, facts(func(f *ExplainFacts) { f.Local.Bytes = 0 }), "active: closes at the next pass once all older ones may leave the disk (local.retention.bytes=0)"},
		{active, facts(func(f *ExplainFacts) { f.Local.Bytes = 1 }), "active: closes at 1 GiB or on 2023-11-21 22:13 UTC"}, // size counts closed ones
		{copying(Copying{Running: true}), facts(nil), "being copied to the bucket; kept for ever: no limit is set"},
		{copying(Copying{Ahead: 3}), facts(week), "waiting to be copied behind 3 others; kept for 6d 23h more (retention.ms)"},
		{copying(Copying{}), facts(nil), "to be copied next; kept for ever: no limit is set"},
		{copying(Copying{Undecided: true}), facts(nil), "waiting to be copied: a transaction in it is open, or its records are not committed yet; kept for ever: no limit is set"},
		{copying(Copying{Failures: 4, Why: "access denied", Next: noon().Add(20 * time.Second)}), facts(nil), "its copy failed 4 times: access denied, next try in 20s; kept for ever: no limit is set"},
		{copying(Copying{}), facts(func(f *ExplainFacts) { f.Copied, f.Paused = false, true; week(f) }), "not in the bucket: copies are paused (remote.log.copy.disable); kept for 6d 23h more (retention.ms)"},
		{copying(Copying{}), facts(func(f *ExplainFacts) { f.Limits.Age = time.Minute }), "to be copied next; kept until it is copied, although retention.ms has ended"},
		{copying(Copying{}), facts(func(f *ExplainFacts) { f.Limits.Bytes = mib }), "to be copied next; kept until it is copied, and then by size: 1.2 GiB of retention.bytes=1 MiB are used"},
		{both, facts(func(f *ExplainFacts) { f.Local.Age = 4 * time.Hour }), "on disk too, for 3h 0m more (local.retention.ms); kept for ever: no limit is set"},
		{both, facts(func(f *ExplainFacts) { f.Local = Limits{400 * mib, 4 * time.Hour} }), "on disk too, for 3h 0m more (local.retention.ms), or by size: 300 MiB of local.retention.bytes=400 MiB are used; kept for ever: no limit is set"},
		{both, facts(func(f *ExplainFacts) { f.Local.Bytes = 400 * mib }), "on disk too: 300 MiB of local.retention.bytes=400 MiB are used; kept for ever: no limit is set"},
		{both, facts(func(f *ExplainFacts) { f.Local.Bytes = 200 * mib }), "on disk too: it goes from there once all older ones did; kept for ever: no limit is set"},
		{both, facts(nil), "on disk too: no local limit is set; kept for ever: no limit is set"},
		{both, facts(func(f *ExplainFacts) { f.Copied = false; week(f) }), "on disk too, where the total limits hold as nothing is copied; kept for 6d 23h more (retention.ms)"},
		{remote, facts(week), "kept for 6d 23h more (retention.ms)"},
		{remote, facts(func(f *ExplainFacts) { week(f); f.Limits.Bytes = 2 << 30 }), "kept for 6d 23h more (retention.ms), or by size: 1.2 GiB of retention.bytes=2 GiB are used"},
		{remote, facts(func(f *ExplainFacts) { f.Limits.Bytes = 2 << 30 }), "kept: 1.2 GiB of retention.bytes=2 GiB are used"},
		{remote, facts(func(f *ExplainFacts) { f.Limits.Bytes = 1 << 30 }), "due by size once all older ones are gone: 1.2 GiB of retention.bytes=1 GiB are used"},
		{remote, facts(func(f *ExplainFacts) { f.Limits.Age = time.Minute }), "due by age once all older ones are gone"},
		{remote, facts(func(f *ExplainFacts) { f.Limits.Age, f.LogStart = time.Minute, 10 }), "due by age at the next pass"}, // older ones are below the log start
		{remote, facts(func(f *ExplainFacts) { f.Limits.Bytes, f.LogStart = 1<<30, 15 }), "due by size at the next pass: 1.2 GiB of retention.bytes=1 GiB are used"},
		{remote, facts(func(f *ExplainFacts) { f.Limits.Age, f.Held = time.Minute, 0 }), "kept: the segment at 0, which a record from the future holds, is older"},
		{remote, facts(func(f *ExplainFacts) { week(f); f.Unavailable = true }), "kept: it is not known what the bucket holds, so nothing is due"},
		{removal(Removal{}), facts(func(f *ExplainFacts) { f.LogStart = 20 }), "leaves the bucket: its row is marked next"},
		{removal(Removal{Marked: true, Since: noon().Add(-20 * time.Second), At: noon().Add(40 * time.Second)}), facts(func(f *ExplainFacts) { f.LogStart = 20 }), "being deleted since 2023-11-14 22:13 UTC: its objects go in 40s, readers may be on them"},
		{removal(Removal{Marked: true, At: noon().Add(time.Minute), Failures: 2, Why: "access denied"}), facts(func(f *ExplainFacts) { f.LogStart = 20 }), "being deleted since before this node started, failed 2 times: access denied, next try in 1m 0s"},
		{removal(Removal{Marked: true, Emptied: true}), facts(nil), "its objects are gone, its row goes next"},
		{remote, facts(func(f *ExplainFacts) { f.LogStart = 20 }), "below the log start: it leaves the bucket next"},
		{onDisk, facts(func(f *ExplainFacts) { f.LogStart = 20 }), "below the log start: its file goes next"},
	} {
		if got := Explain(c.p, c.f); got != c.want {
			t.Errorf("%+v\n%q\nwant %q", c.p, got, c.want)
		}
	}
	disk := onDisk
	disk.MaxTimestamp = noon().AddDate(10, 0, 0).UnixMilli()
	if got, want := Explain(disk, facts(week)), "kept for 7d 0h more (retention.ms, from its last append: a record in it is dated 2033-11-14 22:13 UTC, in the future)"; got != want {
		t.Errorf("%q", got)
	}
	disk.MaxTimestamp = -1
	if got, want := Explain(disk, facts(week)), "kept for 7d 0h more (retention.ms, from its last append: its records carry no time)"; got != want {
		t.Errorf("%q", got)
	}
	future := remote
	future.MaxTimestamp = noon().AddDate(10, 0, 0).UnixMilli()
	if got, want := Explain(future, facts(week)), "kept: a record dated 2033-11-14 22:13 UTC, in the future, holds it by age; a size limit still applies"; got != want {
		t.Errorf("%q", got)
	}
	future.Discarded = true
	if got, want := Explain(future, facts(week)), "nobody reads it: it holds records of a log that was discarded, and goes once the log has passed it"; got != want {
		t.Errorf("%q", got)
	}
}

func TestForPeople(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1 KiB", 1536: "1.5 KiB", 1 << 30: "1 GiB", 1 << 60: "1024 PiB"} {
		if got := Bytes(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{-1: "0s", 0: "0s", time.Millisecond: "1s", time.Minute: "1m 0s", 90 * time.Minute: "1h 30m", 51 * time.Hour: "2d 3h"} {
		if got := Duration(d); got != want {
			t.Errorf("%d: %q, want %q", d, got, want)
		}
	}
}

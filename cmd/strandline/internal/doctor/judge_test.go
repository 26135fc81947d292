package doctor

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/strandline-io/strandline/gateway"
	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/tiers/remote"
)

// all are n times the same duration.
func all(d time.Duration) []time.Duration { return []time.Duration{d, d, d, d} }

func TestJudgements(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	claim := &control.ClaimRecord{Cluster: "c", Generation: 3, Node: 1, At: at}
	for _, c := range []struct {
		name  string
		check Check
		want  Status
		says  string // part of Found or Advice
	}{
		{"clock: fine", judgeClock(at, time.Second, time.Second+200*time.Millisecond, true), OK, "2026-05-04"},
		{"clock: before its time", judgeClock(time.Unix(90, 0), time.Second, time.Second, true), Failed, "clock is wrong"},
		{"clock: after it", judgeClock(at.AddDate(100, 0, 0), time.Second, time.Second, true), Failed, "clock is wrong"},
		{"clock: set forward", judgeClock(at, time.Second, time.Hour, true), Warn, "was set by 59m59s"},
		{"clock: set back", judgeClock(at, time.Second, -time.Second, true), Warn, "was set by -2s"},
		{"clock: nobody keeps it", judgeClock(at, time.Second, time.Second, false), Warn, "chrony"},

		{"skew: the same", judgeSkew(at, at.Truncate(time.Second), at.Add(time.Millisecond)), OK, "agrees"},
		{"skew: within a second of the write", judgeSkew(at.Add(900*time.Millisecond), at, at.Add(950*time.Millisecond)), OK, "agrees"},
		{"skew: ahead", judgeSkew(at, at.Add(10*time.Second), at.Add(time.Second)), Warn, "9s ahead"},
		{"skew: behind", judgeSkew(at, at.Add(-10*time.Second), at.Add(time.Second)), Warn, "9s behind"},
		{"skew: far", judgeSkew(at, at.Add(time.Hour), at), Failed, "ahead"},
		{"skew: not told", judgeSkew(at, time.Time{}, at), Skipped, "does not tell"},

		{"files: enough", judgeFiles(18_000, 10_000), OK, ""},
		{"files: not for all connections", judgeFiles(17_999, 10_000), Warn, "kafka.max_connections"},
		{"files: not for segments", judgeFiles(7_999, 10), Failed, "ulimit"},

		{"memory: unknown", judgeMemory(0, "", 1<<30), Skipped, "1.0 GiB"},
		{"memory: enough", judgeMemory(4<<30, "of this machine", 1<<30), OK, "4.0 GiB"},
		{"memory: tight", judgeMemory(1<<30, "of the control group", 1<<30-1<<20), Warn, "page cache"},
		{"memory: too little", judgeMemory(1<<30-1, "of the control group", 1<<30), Failed, "killed"},

		{"file system: local", judgeFileSystem("xfs"), OK, "xfs"},
		{"file system: unknown", judgeFileSystem(""), Skipped, ""},
		{"file system: nfs", judgeFileSystem("nfs"), Warn, "local disk"},
		{"file system: tmpfs", judgeFileSystem("tmpfs"), Warn, "reboot"},
		{"file system: overlay", judgeFileSystem("overlay"), Warn, "volume"},
		{"file system: fuse", judgeFileSystem("fuse"), Warn, "fsync"},

		{"space: enough", judgeSpace(50<<30, 100<<30), OK, "50.0 GiB"},
		{"space: a small part", judgeSpace(50<<30, 1000<<30), Warn, "retention"},
		{"space: little", judgeSpace(1<<30, 2<<30), Warn, "retention"},
		{"space: none", judgeSpace(1<<20, 100<<30), Failed, "make room"},
		{"inodes: enough", judgeInodes(lowInodes), OK, ""},
		{"inodes: few", judgeInodes(lowInodes - 1), Warn, "segment.bytes"},

		{"cache: fits", judgeCacheDisk(100<<30, 10<<30, true), OK, "10.0 GiB"},
		{"cache: leaves little", judgeCacheDisk(12<<30, 10<<30, true), Warn, "cache.dir"},
		{"cache: leaves little of its own disk", judgeCacheDisk(12<<30, 10<<30, false), OK, ""},
		{"cache: too large", judgeCacheDisk(9<<30, 10<<30, false), Warn, "cache.disk_bytes"},

		{"sync: fast", judgeSyncs(all(200*time.Microsecond), all(400*time.Microsecond)), OK, "200µs"},
		{"sync: a lie", judgeSyncs(all(2*time.Microsecond), all(9*time.Microsecond)), Warn, "power cut"},
		{"sync: slow", judgeSyncs(all(9*time.Millisecond), all(21*time.Millisecond)), Warn, "slow"},
		{"sync: very slow", judgeSyncs(all(50*time.Millisecond), all(101*time.Millisecond)), Warn, "faster disk"},

		{"latency: fine", judgeLatency(map[string][]time.Duration{"put": all(20 * time.Millisecond)}), OK, "PUT p50 20ms"},
		{"latency: slow", judgeLatency(map[string][]time.Duration{"list": all(2 * time.Second)}), Warn, "closer"},
		{"throughput: fine", judgeThroughput(100<<20, 50<<20), OK, "100.0 MiB/s"},
		{"throughput: slow", judgeThroughput(100<<20, 1<<20), Warn, "slow"},

		{"claim: a new bucket", judgeStanding(gateway.Standing{New: true}, "/d", false), OK, "no cluster"},
		{"claim: the bucket is another one", judgeStanding(gateway.Standing{Used: true}, "/d", false), Warn, "check bucket"},
		{"claim: ours", judgeStanding(gateway.Standing{Claim: claim, Known: true}, "/d", false), OK, "is held"},
		{"claim: ours, running", judgeStanding(gateway.Standing{Claim: claim, Known: true}, "/d", true), OK, "the node that runs"},
		{"claim: the disk is new", judgeStanding(gateway.Standing{Claim: claim, New: true}, "/d", false), Failed, "rebuild --bucket URL --data /d"},
		{"claim: another's", judgeStanding(gateway.Standing{Claim: claim}, "/d", false), Failed, "--take-over"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.check.Status != c.want || !strings.Contains(c.check.Found+c.check.Advice, c.says) {
				t.Errorf("%+v, want %s with %q", c.check, c.want, c.says)
			}
			if bad := c.check.Status == Warn || c.check.Status == Failed; bad != (c.check.Advice != "") {
				t.Errorf("%+v: what is wrong, and only that, comes with advice", c.check)
			}
		})
	}
}

func TestJudgeSettings(t *testing.T) {
	t.Parallel()
	none := map[string]error{}
	for name, c := range map[string]struct {
		s    remote.Settings
		want Status
		says string
	}{
		"nothing set": {remote.Settings{Prefix: "main/", Unread: none}, OK, "versioning off"},
		"expires the prefix": {
			remote.Settings{Prefix: "main/", Rules: []remote.LifecycleRule{{ID: "r", Enabled: true, Prefix: "ma", Expires: true, ExpireDays: 9}}, Unread: none},
			Failed, `"r" deletes objects`,
		},
		"expires a part of the prefix": {
			remote.Settings{Prefix: "main/", Rules: []remote.LifecycleRule{{ID: "r", Enabled: true, Prefix: "main/topics/", Expires: true}}, Unread: none},
			Failed, `"r" deletes objects`,
		},
		"expires the whole bucket": {
			remote.Settings{Rules: []remote.LifecycleRule{{ID: "r", Enabled: true, Expires: true}}, Unread: none}, Failed, `"r" deletes objects`,
		},
		"expires a neighbour": {
			remote.Settings{Prefix: "main/", Rules: []remote.LifecycleRule{{ID: "r", Enabled: true, Prefix: "logs/", Expires: true}}, Unread: none}, OK, "1 lifecycle rules",
		},
		"off": {
			remote.Settings{Rules: []remote.LifecycleRule{{ID: "r", Expires: true}}, Unread: none}, OK, "",
		},
		"archives": {
			remote.Settings{Rules: []remote.LifecycleRule{{ID: "r", Enabled: true, Moves: []string{"STANDARD_IA", "GLACIER"}}}, Unread: none}, Failed, "GLACIER",
		},
		"moves to where it can be read": {
			remote.Settings{Rules: []remote.LifecycleRule{{ID: "r", Enabled: true, Moves: []string{"STANDARD_IA", "GLACIER_IR"}}}, Unread: none}, OK, "",
		},
		"drops uploads early": {
			remote.Settings{Rules: []remote.LifecycleRule{{ID: "r", Enabled: true, AbortAfter: 24 * time.Hour}}, Unread: none}, Warn, "two days",
		},
		"drops uploads in time": {
			remote.Settings{Rules: []remote.LifecycleRule{{ID: "r", Enabled: true, AbortAfter: 48 * time.Hour}}, Unread: none}, OK, "",
		},
		"keeps versions": {remote.Settings{Versioning: "Enabled", Unread: none}, Warn, "paid for"},
		"keeps versions for a while": {
			remote.Settings{Versioning: "Enabled", Rules: []remote.LifecycleRule{{Enabled: true, OldVersions: true}}, Unread: none}, OK, "versioning enabled",
		},
		"keeps versions, rules unknown": {
			remote.Settings{Versioning: "Enabled", Unread: map[string]error{"lifecycle": remote.ErrDenied}}, OK, "lifecycle cannot be read: the keys may not",
		},
		"a failure stays one": {
			remote.Settings{Versioning: "Enabled", Rules: []remote.LifecycleRule{{ID: "r", Enabled: true, Expires: true}}, Unread: none}, Failed, "versions are kept",
		},
		"no lifecycle, as of versitygw": {
			remote.Settings{Unread: map[string]error{"lifecycle": fmt.Errorf("x: %w", errors.ErrUnsupported)}}, OK, "the store has no lifecycle settings",
		},
		"nothing can be read": {
			remote.Settings{Unread: map[string]error{"lifecycle": remote.ErrDenied, "versioning": errors.ErrUnsupported}}, Skipped, "not supported",
		},
	} {
		got := judgeSettings(c.s)
		if got.Status != c.want || !strings.Contains(got.Found+got.Advice, c.says) {
			t.Errorf("%s: %+v, want %s with %q", name, got, c.want, c.says)
		}
	}
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	for says, err := range map[string]error{
		"create the bucket":    fmt.Errorf("x: %w", remote.ErrNoBucket),
		"check the keys":       fmt.Errorf("x: %w", remote.ErrDenied),
		"check the endpoint":   fmt.Errorf("x: %w", remote.ErrUnavailable),
		"set region":           fmt.Errorf("%w: the request was made for the wrong region: x", remote.ErrDenied),
		"AWS_ACCESS_KEY_ID":    fmt.Errorf("%w: NoCredentials: x", remote.ErrDenied),
		"set this machine's":   fmt.Errorf("%w: RequestTimeTooSkewed", remote.ErrDenied),
		"what the store has":   errors.New("something else"),
		"asks to slow down":    remote.ErrThrottled,
		"did not answer in ti": fmt.Errorf("%w", errDeadline()),
	} {
		if c := unreachable("bucket", "s3://b", err); !strings.Contains(c.Advice, says) {
			t.Errorf("%v: %+v", err, c)
		}
	}
}

func TestQuantile(t *testing.T) {
	t.Parallel()
	if q := quantile(nil, 50); q != 0 {
		t.Error(q)
	}
	var ds []time.Duration
	for i := 100; i > 0; i-- {
		ds = append(ds, time.Duration(i))
	}
	for q, want := range map[int]time.Duration{1: 1, 50: 50, 99: 99, 100: 100} {
		if got := quantile(ds, q); got != want {
			t.Errorf("p%d of 1..100 is %d", q, got)
		}
	}
	if got := quantile(ds[:1], 99); got != 100 {
		t.Error(got)
	}
}

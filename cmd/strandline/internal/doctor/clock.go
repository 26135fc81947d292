package doctor

import (
	"time"
)

const (
	// stepTolerance is how far the wall clock and the monotonic clock may part
	// during a run: slewing stays far below, a step does not.
	stepTolerance = 250 * time.Millisecond
	// bucketWarn and bucketFail bound how far the store's clock may be off. S3
	// refuses requests from 15 minutes on; ages of unnamed objects are told by the
	// store's clock.
	bucketWarn = 5 * time.Second
	bucketFail = 5 * time.Minute
)

// judgeClock looks at the wall clock, from which records get their time and
// retention its ages. steady and wall are how long a run took by the monotonic
// clock and by that one.
func judgeClock(at time.Time, steady, wall time.Duration, kept bool) Check {
	c := ok("clock", "%s", at.UTC().Format(time.RFC3339))
	switch year := at.UTC().Year(); {
	case year < 2024 || year > 2100:
		return c.fail("this machine's clock is wrong: set it, and keep it right with chrony or systemd-timesyncd; records get their time from it")
	case (wall - steady).Abs() > stepTolerance:
		c.Found += ", it was set by " + (wall - steady).Round(time.Millisecond).String() + " during this run"
		return c.warn("have it slewed rather than stepped (chrony, systemd-timesyncd): records and retention go by it")
	case !kept:
		c.Found += ", not synchronized, as the kernel says"
		return c.warn("run chrony or systemd-timesyncd, unless something outside keeps this machine's clock: retention and the ages of objects go by it")
	}
	return c
}

// judgeSkew compares the store's time of an object with this machine's before
// and after it was written. The store tells whole seconds.
func judgeSkew(before, stored, after time.Time) Check {
	var off time.Duration
	switch {
	case stored.IsZero():
		return skip("bucket.clock", "the store does not tell when an object was written")
	case stored.After(after):
		off = stored.Sub(after)
	case stored.Add(time.Second).Before(before):
		off = stored.Add(time.Second).Sub(before)
	}
	c := ok("bucket.clock", "the store's clock agrees with this machine's")
	c.Values = map[string]float64{"skew_s": off.Seconds()}
	if off != 0 {
		c.Found = "the store's clock is " + off.Abs().Round(100*time.Millisecond).String() + map[bool]string{true: " ahead", false: " behind"}[off > 0]
	}
	switch {
	case off.Abs() > bucketFail:
		return c.fail("set this machine's clock, or the store's: requests are refused when they are too far apart, and objects would be taken for older or younger than they are")
	case off.Abs() > bucketWarn:
		return c.warn("synchronize both clocks")
	}
	return c
}

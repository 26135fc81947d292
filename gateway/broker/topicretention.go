package broker

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/strandline-io/strandline/tiers/partition"
)

// sameAsTotal is the value of local.retention.* that stands for retention.*
// (KIP-405).
const sameAsTotal = -2

// retentionSettings say when records go. local.retention.* may be -2 in the
// configuration while it is put together: settleRetention ends that.
func retentionSettings() []TopicSetting {
	return []TopicSetting{
		integer("retention.ms", "log.retention.ms", TypeLong, week, -1, math.MaxInt64,
			"How long records are kept, in milliseconds from the newest timestamp of their segment; -1 is for ever. A timestamp in the future counts as it is in the bucket, "+
				"and holds the segment, and what is behind it, until then. On disk, where nothing is copied, the time of the last append stands in for one. "+
				"Either way a warning tells. Without any timestamp a segment ages from its copy, or on disk from the last append.",
			func(c *partition.Config, n int64) { c.Retention.Total.Age = age(n) }),
		integer("retention.bytes", "log.retention.bytes", TypeLong, "-1", -1, math.MaxInt64,
			"How many bytes of a partition are kept in both tiers together, each counted once. The oldest segments go as long as no less than this stays; -1 is no limit.",
			func(c *partition.Config, n int64) { c.Retention.Total.Bytes = n }),
		integer("local.retention.ms", "log.local.retention.ms", TypeLong, "-2", sameAsTotal, math.MaxInt64,
			"How long segments that are in the bucket stay on local disk as well; -2 is retention.ms, -1 for ever. It runs from their newest timestamp, "+
				"or from the last append if that is missing or lies in the future: such a record keeps nothing on disk.",
			func(c *partition.Config, n int64) { c.Retention.Local.Age = age(n) }),
		integer("local.retention.bytes", "log.local.retention.bytes", TypeLong, "-2", sameAsTotal, math.MaxInt64,
			"How many bytes of a partition stay on local disk once they are in the bucket; -2 is retention.bytes, -1 no limit.",
			func(c *partition.Config, n int64) { c.Retention.Local.Bytes = n }),
		integer("file.delete.delay.ms", "log.segment.delete.delay.ms", TypeLong, "60000", 0, math.MaxInt64,
			"Milliseconds that an object stays in the bucket after nothing leads to it any more, for readers that are on it. Local files go once no reader holds them.",
			func(c *partition.Config, n int64) { c.Retention.Delay = millis(n) }),
	}
}

// age is a limit in milliseconds. Negative ones keep their meaning.
func age(n int64) time.Duration {
	if n < 0 {
		return time.Duration(n)
	}
	return millis(n)
}

// settleRetention gives the local limits their values, never wider than the total
// ones, and keeps what was not said from deleting anything.
func (s *topicSettings) settleRetention(c *partition.Config, set map[string]string) {
	r := &c.Retention
	r.Local.Bytes = narrower(r.Local.Bytes, r.Total.Bytes)
	r.Local.Age = time.Duration(narrower(int64(r.Local.Age), int64(r.Total.Age)))
	// A node that lost its bucket from its configuration, or got other defaults,
	// must not take that for the wish to delete: the topic itself must say it.
	r.ForgetRemote = r.ForgetRemote && s.bucket && !c.Remote && set[enableRemote] == "false"
}

// narrower is local within total; -1 is no limit.
func narrower(local, total int64) int64 {
	switch {
	case local == sameAsTotal || local == -1:
		return total
	case total == -1:
		return local
	}
	return min(local, total)
}

// checkTogether checks settings that must agree with each other, whatever their
// source.
func (s *topicSettings) checkTogether(set map[string]string) error {
	number := func(name string) int64 {
		v, _ := s.value(s.byName[name], set)
		n, _ := strconv.ParseInt(v, 10, 64) // was checked
		return n
	}
	for _, unit := range []string{"ms", "bytes"} {
		if !s.remote(set) {
			break // Kafka does not look at local.* either where nothing is copied
		}
		total, local := number("retention."+unit), number("local.retention."+unit)
		if total != -1 && local != sameAsTotal && (local == -1 || local > total) {
			return refusal(fmt.Sprintf("local.retention.%s=%d is more than retention.%s=%d: what local disk holds is part of the whole; use -2 for the same",
				unit, local, unit, total))
		}
	}
	if low, high := number("min.compaction.lag.ms"), number("max.compaction.lag.ms"); low > high {
		return refusal(fmt.Sprintf("min.compaction.lag.ms=%d is more than max.compaction.lag.ms=%d", low, high))
	}
	return nil
}

const enableRemote = "remote.storage.enable"

// remote reports whether segments are copied under these settings.
func (s *topicSettings) remote(set map[string]string) bool {
	v, _ := s.value(s.byName[enableRemote], set)
	return v == "true"
}

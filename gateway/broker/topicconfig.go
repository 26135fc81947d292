package broker

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/partition"
)

// TopicSetting is one setting of topics: Kafka's name, type, default and bounds.
type TopicSetting struct {
	Name    string
	Broker  string // Kafka's name of the node's default, "" if it has none
	Type    int8   // ConfigType on the wire
	Default string
	Valid   string // the values that are accepted, in words
	Stored  bool   // accepted and kept, without effect on this server
	Doc     string

	check func(value string) (string, error) // the value as it is stored, or why not
	apply func(c *partition.Config, value string)
}

// Types of settings, ConfigType on the wire (KIP-569).
const (
	TypeBoolean = 1
	TypeString  = 2
	TypeInt     = 3
	TypeLong    = 5
	TypeDouble  = 6
	TypeList    = 7
)

// Sources of settings, ConfigSource on the wire (KIP-226).
const (
	SourceTopic   = 1
	SourceStatic  = 4
	SourceDefault = 5
)

const (
	week     = "604800000"
	forever  = "9223372036854775807"
	hour     = "3600000"
	noBucket = "this node has no bucket: set bucket first"
)

// TopicSettings lists all settings of topics, by name. bucket says whether the
// node has one.
func TopicSettings(bucket bool) []TopicSetting {
	all := slices.Concat(segmentSettings(), messageSettings(), tierSettings(bucket), retentionSettings(), ownSettings(), storedSettings())
	slices.SortFunc(all, func(a, b TopicSetting) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func segmentSettings() []TopicSetting {
	return []TopicSetting{
		integer("segment.bytes", "log.segment.bytes", TypeInt, "1073741824", 14, math.MaxInt32,
			"Size in bytes at which the active segment is closed. Only closed segments are copied to the bucket.",
			func(c *partition.Config, n int64) { c.Local.SegmentBytes = n }),
		integer("segment.ms", "log.roll.ms", TypeLong, week, 1, math.MaxInt64,
			"Age of its first record, in milliseconds, at which the active segment is closed.",
			func(c *partition.Config, n int64) { c.Local.SegmentAge = millis(n) }),
		integer("segment.index.bytes", "log.index.size.max.bytes", TypeInt, "10485760", 12, math.MaxInt32,
			"Size of an index file at which the active segment is closed.",
			func(c *partition.Config, n int64) { c.Local.IndexBytes = n }),
		integer("index.interval.bytes", "log.index.interval.bytes", TypeInt, "4096", 0, math.MaxInt32,
			"Bytes of records between two entries of the offset index.",
			func(c *partition.Config, n int64) { c.Local.IndexInterval = n }),
	}
}

func messageSettings() []TopicSetting {
	return []TopicSetting{
		integer("max.message.bytes", "message.max.bytes", TypeInt, "1048588", 1, math.MaxInt32,
			"Largest record batch that is accepted, compressed as it comes.",
			func(c *partition.Config, n int64) { c.MaxMessageBytes = n }),
		oneOf("message.timestamp.type", "log.message.timestamp.type", "CreateTime", []string{"CreateTime", "LogAppendTime"},
			"Whether a record keeps the time that its producer gave it or gets the time of its append.",
			func(c *partition.Config, v string) { c.LogAppendTime = v == "LogAppendTime" }),
		integer("message.timestamp.before.max.ms", "log.message.timestamp.before.max.ms", TypeLong, forever, 0, math.MaxInt64,
			"How far before the node's clock a record's timestamp may be. Not looked at with LogAppendTime.",
			func(c *partition.Config, n int64) { c.TimestampBefore = window(n) }),
		integer("message.timestamp.after.max.ms", "log.message.timestamp.after.max.ms", TypeLong, hour, 0, math.MaxInt64,
			"How far after the node's clock a record's timestamp may be. Not looked at with LogAppendTime.",
			func(c *partition.Config, n int64) { c.TimestampAfter = window(n) }),
	}
}

func tierSettings(bucket bool) []TopicSetting {
	enabled := "false"
	if bucket {
		enabled = "true"
	}
	enable := boolean("remote.storage.enable", "", enabled,
		"Whether closed segments are copied to the bucket. True by default on a node that has one. It is switched off for a topic together "+
			"with remote.log.delete.on.disable=true alone, which deletes what is only in the bucket; remote.log.copy.disable=true keeps it.",
		func(c *partition.Config, on bool) { c.Remote = on })
	parse := enable.check
	enable.check = func(v string) (string, error) {
		v, err := parse(v)
		if err == nil && v == "true" && !bucket {
			return "", refusal(noBucket)
		}
		return v, err
	}
	return []TopicSetting{
		enable,
		boolean("remote.log.copy.disable", "", "false",
			"Whether copying to the bucket is paused (KIP-950). What is there stays readable until retention.* ends; "+
				"local disk keeps everything else that retention.* keeps, and local.retention.* does not count.",
			func(c *partition.Config, on bool) { c.Retention.CopyPaused = on }),
		boolean("remote.log.delete.on.disable", "", "false",
			"Whether setting remote.storage.enable=false deletes what is in the bucket (KIP-950): the log starts where local disk does then.",
			func(c *partition.Config, on bool) { c.Retention.ForgetRemote = on }),
	}
}

func ownSettings() []TopicSetting {
	acks := []string{"fsync", "interval", "os"}
	return []TopicSetting{
		oneOf("strandline.ack", "", "fsync", acks,
			"When a batch is acknowledged: fsync, once it survives a power loss; interval, once it is written, with a sync every "+
				"strandline.flush.interval.ms; os, once it is written, with the operating system syncing when it likes. "+
				"interval and os can lose acknowledged records when the machine fails, not when the process does.",
			func(c *partition.Config, v string) { c.Ack = partition.Ack(slices.Index(acks, v)) }),
		integer("strandline.flush.interval.ms", "", TypeLong, "1000", 1, math.MaxInt64,
			"Milliseconds between two syncs where strandline.ack is interval.",
			func(c *partition.Config, n int64) { c.FlushEvery = millis(n) }),
	}
}

// millis is n milliseconds, or the longest duration there is.
func millis(n int64) time.Duration {
	if n > math.MaxInt64/int64(time.Millisecond) {
		return math.MaxInt64
	}
	return time.Duration(n) * time.Millisecond
}

// window is a limit on timestamps: 0 stands for none in partition.Config, and the
// longest for none in Kafka. A limit of 0 becomes the narrowest one.
func window(n int64) time.Duration {
	d := millis(n)
	if d == math.MaxInt64 {
		return 0
	}
	return max(d, time.Millisecond)
}

// topicSettings is the table with the node's defaults in it.
type topicSettings struct {
	list   []TopicSetting
	byName map[string]*TopicSetting
	static map[string]string // the node's own defaults
	bucket bool              // the node has one
}

func newTopicSettings(bucket bool, defaults map[string]string) (*topicSettings, error) {
	s := &topicSettings{list: TopicSettings(bucket), byName: map[string]*TopicSetting{}, bucket: bucket}
	for i := range s.list {
		s.byName[s.list[i].Name] = &s.list[i]
	}
	static, err := s.check("open broker", "defaults of topics", defaults)
	s.static = static
	return s, err
}

// CheckTopicDefaults returns nil if a node may have these defaults for topics.
func CheckTopicDefaults(bucket bool, defaults map[string]string) error {
	_, err := newTopicSettings(bucket, defaults)
	return err
}

// find returns the setting, or an error that names the closest one.
func (s *topicSettings) find(op, place, name string) (*TopicSetting, error) {
	if t, ok := s.byName[name]; ok {
		return t, nil
	}
	names := make([]string, len(s.list))
	for i := range s.list {
		names[i] = s.list[i].Name
	}
	if near := Closest(name, names); near != "" {
		return nil, tiers.E(tiers.InvalidConfig, op, place, "unknown setting %q: did you mean %q?", name, near)
	}
	return nil, tiers.E(tiers.InvalidConfig, op, place, "unknown setting %q", name)
}

// check validates what was set, one by one and together, and returns it in the
// form that is stored.
func (s *topicSettings) check(op, place string, set map[string]string) (map[string]string, error) {
	out := make(map[string]string, len(set))
	for name, value := range set {
		t, err := s.find(op, place, name)
		if err != nil {
			return nil, err
		}
		v, err := t.check(value)
		if err != nil {
			return nil, tiers.E(tiers.InvalidConfig, op, place, "%s=%q: %w", name, value, err)
		}
		out[name] = v
	}
	if err := s.checkTogether(out); err != nil {
		return nil, tiers.E(tiers.InvalidConfig, op, place, "%w", err)
	}
	return out, nil
}

// value is the setting that holds, and where it comes from.
func (s *topicSettings) value(t *TopicSetting, set map[string]string) (value string, source int8) {
	if v, ok := set[t.Name]; ok {
		return v, SourceTopic
	}
	if v, ok := s.static[t.Name]; ok {
		return v, SourceStatic
	}
	return t.Default, SourceDefault
}

// config is what the settings mean to a partition.
func (s *topicSettings) config(set map[string]string) partition.Config {
	var c partition.Config
	c.Retention.On = true
	for i := range s.list {
		t := &s.list[i]
		if t.apply != nil {
			v, _ := s.value(t, set)
			t.apply(&c, v)
		}
	}
	s.settleRetention(&c, set)
	return c
}

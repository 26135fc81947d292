package broker

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/strandline-io/strandline/tiers/partition"
)

// storedSettings are those of Kafka that are accepted and described, so that
// tools and clients work, but that change nothing here. Values that would
// promise what this server does not do are refused with the reason.
func storedSettings() []TopicSetting {
	list := []TopicSetting{
		fixed("cleanup.policy", "log.cleanup.policy", TypeList, "delete", "compaction is not offered by this version: use delete",
			"What happens to old records. Only delete is offered."),
		fixed("compression.type", "compression.type", TypeString, "producer", "batches are stored as the producer sent them, never compressed again",
			"Compression of stored batches. Only producer is offered: the bytes stay as they came."),
		fixed("min.insync.replicas", "min.insync.replicas", TypeInt, "1", "a single node holds one copy: a write would never be acknowledged",
			"Copies that acks=all waits for. A single node holds one."),
		integer("segment.jitter.ms", "log.roll.jitter.ms", TypeLong, "0", 0, math.MaxInt64, "Random part of segment.ms.", nil),
		integer("flush.messages", "log.flush.interval.messages", TypeLong, forever, 1, math.MaxInt64, "Records between two syncs. strandline.ack decides here.", nil),
		integer("flush.ms", "log.flush.interval.ms", TypeLong, forever, 0, math.MaxInt64, "Milliseconds between two syncs. strandline.ack decides here.", nil),
		integer("delete.retention.ms", "log.cleaner.delete.retention.ms", TypeLong, "86400000", 0, math.MaxInt64, "How long compaction keeps tombstones.", nil),
		integer("min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms", TypeLong, "0", 0, math.MaxInt64, "Age below which records are not compacted.", nil),
		integer("max.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms", TypeLong, forever, 1, math.MaxInt64, "Age at which records must be compacted.", nil),
		ratio("min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio", "0.5", "Share of a log that must be dirty before it is compacted."),
		integer("compression.gzip.level", "compression.gzip.level", TypeInt, "-1", -1, 9, "Level of gzip, where the server compresses.", nil),
		integer("compression.lz4.level", "compression.lz4.level", TypeInt, "9", 1, 17, "Level of lz4, where the server compresses.", nil),
		integer("compression.zstd.level", "compression.zstd.level", TypeInt, "3", -131072, 22, "Level of zstd, where the server compresses.", nil),
		boolean("preallocate", "log.preallocate", "false", "Whether a new segment file is preallocated. Room is reserved as the log grows.", nil),
		boolean("unclean.leader.election.enable", "unclean.leader.election.enable", "false", "Whether a replica that lags may lead. A single node has none.", nil),
		list("leader.replication.throttled.replicas", "Replicas whose reads by followers are throttled."),
		list("follower.replication.throttled.replicas", "Replicas whose fetches are throttled."),
	}
	for i := range list {
		if list[i].Valid == list[i].Default {
			continue // it says what is true here
		}
		list[i].Stored = true
		list[i].Doc += " Stored without effect."
	}
	return list
}

// refusal is a reason why a value is not accepted.
type refusal string

func (r refusal) Error() string { return string(r) }

func integer(name, broker string, kind int8, otherwise string, low, high int64, doc string, apply func(*partition.Config, int64)) TopicSetting {
	t := TopicSetting{
		Name: name, Broker: broker, Type: kind, Default: otherwise, Doc: doc,
		Valid: fmt.Sprintf("%d to %d", low, high),
	}
	if high == math.MaxInt64 {
		t.Valid = fmt.Sprintf("at least %d", low)
	}
	t.check = func(value string) (string, error) {
		n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
		if err != nil {
			return "", refusal("not a whole number")
		}
		if n < low || n > high {
			return "", refusal("not in range: " + t.Valid)
		}
		return strconv.FormatInt(n, 10), nil
	}
	if apply != nil {
		t.apply = func(c *partition.Config, value string) {
			n, _ := strconv.ParseInt(value, 10, 64) // was checked
			apply(c, n)
		}
	}
	return t
}

func boolean(name, broker, otherwise, doc string, apply func(*partition.Config, bool)) TopicSetting {
	t := TopicSetting{Name: name, Broker: broker, Type: TypeBoolean, Default: otherwise, Doc: doc, Valid: "true or false"}
	t.check = func(value string) (string, error) {
		switch v := strings.ToLower(strings.TrimSpace(value)); v {
		case "true", "false":
			return v, nil
		}
		return "", refusal("neither true nor false")
	}
	if apply != nil {
		t.apply = func(c *partition.Config, value string) { apply(c, value == "true") }
	}
	return t
}

func oneOf(name, broker, otherwise string, words []string, doc string, apply func(*partition.Config, string)) TopicSetting {
	t := TopicSetting{Name: name, Broker: broker, Type: TypeString, Default: otherwise, Doc: doc, Valid: strings.Join(words, ", "), apply: apply}
	t.check = func(value string) (string, error) {
		for _, w := range words {
			if w == value {
				return w, nil
			}
		}
		return "", refusal("choose one of " + t.Valid)
	}
	return t
}

// fixed is a setting of which one value alone tells the truth.
func fixed(name, broker string, kind int8, only, why, doc string) TopicSetting {
	t := TopicSetting{Name: name, Broker: broker, Type: kind, Default: only, Doc: doc, Valid: only}
	t.check = func(value string) (string, error) {
		if strings.TrimSpace(value) == only {
			return only, nil
		}
		return "", refusal("only " + only + " is accepted: " + why)
	}
	return t
}

func ratio(name, broker, otherwise, doc string) TopicSetting {
	t := TopicSetting{Name: name, Broker: broker, Type: TypeDouble, Default: otherwise, Doc: doc, Valid: "0 to 1"}
	t.check = func(value string) (string, error) {
		f, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil || math.IsNaN(f) || f < 0 || f > 1 {
			return "", refusal("not a number from 0 to 1")
		}
		return strconv.FormatFloat(f, 'g', -1, 64), nil
	}
	return t
}

func list(name, doc string) TopicSetting {
	t := TopicSetting{Name: name, Type: TypeList, Doc: doc, Valid: "words with commas between them"}
	t.check = func(value string) (string, error) { return strings.Join(words(value), ","), nil }
	return t
}

// words splits the value of a list.
func words(value string) []string {
	var out []string
	for w := range strings.SplitSeq(value, ",") {
		if w = strings.TrimSpace(w); w != "" {
			out = append(out, w)
		}
	}
	return out
}

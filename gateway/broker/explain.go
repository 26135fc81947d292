package broker

import (
	"context"
	"fmt"
	"time"

	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/partition"
)

// Sums adds the segments of a partition up, in bytes.
type Sums struct {
	Local, Remote int64 // what is in both counts in both
	Both          int64
	CopyLag       int64 // closed segments that are not in the bucket and should be
}

// Total counts each byte once.
func (s Sums) Total() int64 { return s.Local + s.Remote - s.Both }

// Explained says why the segments of a partition are where they are.
type Explained struct {
	Marks    tiers.Watermarks
	Segments []partition.SegmentInfo
	Sums     Sums
	Next     []string // what retention will do next, in words
}

// Explain looks at a partition.
func (b *Broker) Explain(ctx context.Context, topic string, index int32) (Explained, error) {
	t, ok := b.Catalog().Topic(topic)
	if !ok {
		return Explained{}, tiers.E(tiers.UnknownTopicOrPartition, "explain segments", topic, "there is no such topic")
	}
	h, err := b.holdings(ctx, topic, index)
	if err != nil {
		return Explained{}, err
	}
	c := b.settings.config(t.Configs)
	f, err := b.forecast(ctx, topic, index, c)
	if err != nil {
		return Explained{}, err
	}
	return Explained{h.marks, h.segments, b.SumOf(t, h.segments), h.next(f, c, b.o.Now())}, nil
}

// SumOf adds up segments of a partition of t.
func (b *Broker) SumOf(t control.Topic, segments []partition.SegmentInfo) Sums {
	copied := b.settings.remote(t.Configs)
	var out Sums
	for _, s := range segments {
		out.Local += localBytes(s)
		out.Remote += remoteBytes(s)
		switch {
		case s.Tier == "both":
			out.Both += s.Bytes
		case s.Tier == "local" && s.State != "active" && copied:
			out.CopyLag += s.Bytes
		}
	}
	return out
}

// next says what retention does next by c, the total limits first.
func (h holdings) next(e partition.Forecast, c partition.Config, now time.Time) []string {
	var out []string
	total := c.Retention.Total
	if e.NewStart > e.LogStart {
		out = append(out, fmt.Sprintf("the next passes move the log start from %d to %d: %d segments go, %d bytes on disk and %d in the bucket",
			e.LogStart, e.NewStart, e.Segments, e.LocalBytes, e.RemoteBytes))
	} else {
		out = append(out, h.nextByAge(total.Age, now))
	}
	if total.Bytes < 0 {
		return append(out, "by size: retention.bytes sets no limit")
	}
	var size, active int64
	for _, s := range h.segments {
		if s.Readable() {
			size += s.Bytes
		}
		if s.State == "active" {
			active = s.Bytes
		}
	}
	says := fmt.Sprintf("by size: %d bytes of retention.bytes=%d", size, total.Bytes)
	if active > 0 && size > total.Bytes && total.Bytes > 0 {
		says += fmt.Sprintf(", %d of them in the active segment, which stays until it is closed", active)
	}
	return append(out, says)
}

// nextByAge says when the oldest segment is due.
func (h holdings) nextByAge(limit time.Duration, now time.Time) string {
	if limit < 0 {
		return "by age: retention.ms sets no limit"
	}
	for _, s := range h.segments {
		switch {
		case s.Next <= h.marks.LogStart, !s.Readable():
			continue
		case s.State == "active":
			return "by age: the oldest records are in the active segment, which is closed first"
		case s.MaxTimestamp < 0:
			return fmt.Sprintf("by age: the oldest segment, [%d,%d), has no timestamps and ages from its copy or file on", s.Base, s.Next)
		}
		at := time.UnixMilli(s.MaxTimestamp)
		if at.After(now) {
			return fmt.Sprintf("by age: the oldest segment, [%d,%d), is held by a record from the future, %s", s.Base, s.Next, stamp(s.MaxTimestamp))
		}
		return fmt.Sprintf("by age: the oldest segment, [%d,%d), is due at %s", s.Base, s.Next, stamp(at.Add(limit).UnixMilli()))
	}
	return "by age: there are no records"
}

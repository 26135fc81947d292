package broker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/partition"
	"github.com/strandline-io/strandline/tiers/plan"
)

// Effect is what the next passes of retention delete of one partition: whole
// segments below a start. It is a forecast: records that come meanwhile change it.
type Effect struct {
	Partition   int32
	LogStart    tiers.Offset // now
	NewStart    tiers.Offset // then
	Segments    int          // below it, each counted once
	LocalBytes  int64        // of files that go
	RemoteBytes int64        // of objects that go
	Unknown     error        // the partition could not be asked; everything else is zero then
}

// AlterEffects says what a change of settings deletes beyond what the present
// ones do, by partition; those of which nothing more goes are left out. The
// change is checked, and nothing is changed. Error kinds are those of AlterConfigs.
func (b *Broker) AlterEffects(ctx context.Context, topic string, ops []ConfigOp, replace bool) ([]Effect, error) {
	t, ok := b.Catalog().Topic(topic)
	if !ok {
		return nil, tiers.E(tiers.UnknownTopicOrPartition, "alter configs", topic, "there is no such topic")
	}
	next, err := b.settings.alter(t, ops, replace)
	if err != nil {
		return nil, b.explainSwitchOff(ctx, topic, err)
	}
	before, after := b.settings.config(t.Configs), b.settings.config(next)
	var out []Effect
	for _, p := range t.Partitions {
		e := Effect{Partition: p.Index}
		held, err := b.holdings(ctx, t, p.Index)
		if err != nil {
			e.Unknown = err
		} else {
			e = held.effect(p.Index, after, b.o.Now())
			if old := held.effect(p.Index, before, b.o.Now()); e.NewStart <= old.NewStart && e.RemoteBytes <= old.RemoteBytes {
				continue
			}
		}
		if e.Unknown == nil || deletesMore(before, after) {
			out = append(out, e)
		}
	}
	return out, nil
}

// deletesMore reports whether a partition could lose more under after than under
// before, whatever it holds.
func deletesMore(before, after partition.Config) bool {
	a, b := after.Retention, before.Retention
	lower := func(n, old int64) bool { return n >= 0 && (old < 0 || n < old) }
	return a.ForgetRemote && !b.ForgetRemote || lower(a.Total.Bytes, b.Total.Bytes) || lower(int64(a.Total.Age), int64(b.Total.Age))
}

// holdings is what a partition has, at one moment.
type holdings struct {
	marks    tiers.Watermarks
	lineage  tiers.Lineage
	segments []partition.SegmentInfo
}

func (b *Broker) holdings(ctx context.Context, t control.Topic, index int32) (holdings, error) {
	o, err := b.Owner(t.Name, index)
	if err != nil {
		return holdings{}, err
	}
	segments, err := o.Segments(ctx)
	v := o.View()
	return holdings{v.Watermarks, v.Lineage, segments}, err
}

// effect applies the rules of retention (R6-R10) to what is there.
func (h holdings) effect(index int32, c partition.Config, now time.Time) Effect {
	e := Effect{Partition: index, LogStart: h.marks.LogStart, NewStart: h.startUnder(c, now)}
	for _, s := range h.segments {
		below := s.Next <= e.NewStart
		if below {
			e.Segments++
			e.LocalBytes += localBytes(s)
		}
		if below || c.Retention.ForgetRemote {
			e.RemoteBytes += remoteBytes(s)
		}
	}
	return e
}

// startUnder is the log start that retention by c leads to.
func (h holdings) startUnder(c partition.Config, now time.Time) tiers.Offset {
	start := h.marks.LogStart
	if c.Retention.ForgetRemote {
		start = max(start, h.marks.LocalLogStart)
	}
	rows, local := h.facts(now)
	p := plan.Retention(plan.PassFacts{
		Total: plan.TotalFacts{
			Rows: rows, Local: local, Lineage: h.lineage, Floor: start, LogEnd: h.marks.LogEnd, Copying: tiers.NoOffset, Limits: c.Retention.Total,
		},
		HighWatermark: h.marks.HighWatermark, RemoteEnd: h.marks.RemoteEnd, Copied: c.Remote && !c.Retention.CopyPaused, Local: c.Retention.Local,
	}, now)
	return max(start, p.LogStart)
}

// facts are the segments as package plan wants them. What is not known of a
// segment without timestamps is its age: it counts as new.
func (h holdings) facts(now time.Time) (rows []tiers.RemoteSegment, local []plan.LocalSegment) {
	for _, s := range h.segments {
		if s.Tier != "remote" {
			local = append(local, plan.LocalSegment{
				Base: s.Base, Next: s.Next, Size: s.Bytes, MaxTimestamp: s.MaxTimestamp, FirstAppend: now, Modified: now, Active: s.State == "active",
			})
		}
		if s.Tier != "local" && readable(s) {
			rows = append(rows, tiers.RemoteSegment{
				Base: s.Base, End: s.Next, Epochs: s.Epochs, State: tiers.CopyFinished, MaxTimestamp: s.MaxTimestamp, Size: s.Bytes, CreatedAt: now,
			})
		}
	}
	return rows, local
}

// readable reports whether the bucket's copy serves records.
func readable(s partition.SegmentInfo) bool { return s.State == tiers.CopyFinished.String() }

func localBytes(s partition.SegmentInfo) int64 {
	if s.Tier == "remote" {
		return 0
	}
	return s.Bytes
}

func remoteBytes(s partition.SegmentInfo) int64 {
	if s.Tier == "local" {
		return 0
	}
	return s.Bytes
}

// explainSwitchOff adds to the refusal of a switch-off what it would delete, and
// the ways out. Another error stays as it is.
func (b *Broker) explainSwitchOff(ctx context.Context, topic string, err error) error {
	t, ok := b.Catalog().Topic(topic)
	if !ok || !errors.Is(err, errSwitchOff) {
		return err
	}
	var segments int
	var offsets tiers.Offset
	var size int64
	var unknown []string
	for _, p := range t.Partitions {
		held, err := b.holdings(ctx, t, p.Index)
		if err != nil {
			unknown = append(unknown, fmt.Sprint(p.Index))
			continue
		}
		offsets += held.marks.LocalLogStart - held.marks.LogStart
		for _, s := range held.segments {
			if s.Tier == "remote" && readable(s) && s.Base < held.marks.LocalLogStart && s.Next > held.marks.LogStart {
				segments++
				size += s.Bytes
			}
		}
	}
	also := ""
	if len(unknown) > 0 {
		also = fmt.Sprintf(" (not counting what could not be asked: partitions %s)", strings.Join(unknown, ", "))
	}
	return tiers.E(tiers.InvalidConfig, "alter configs", topic,
		"%w: it would delete what is in the bucket only, %d offsets in %d segments of %d bytes%s. "+
			"To keep them readable and copy nothing more, set remote.storage.enable=true,remote.log.copy.disable=true. "+
			"To delete them, set remote.storage.enable=false,remote.log.delete.on.disable=true",
		errSwitchOff, offsets, segments, size, also)
}

package broker

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/partition"
)

// Effect is what retention deletes of one partition under new settings.
type Effect struct {
	Partition int32
	partition.Forecast
	Unknown error // the partition could not be asked; everything else is zero then
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
		var old partition.Forecast
		if old, e.Unknown = b.forecast(ctx, topic, p.Index, before); e.Unknown == nil {
			e.Forecast, e.Unknown = b.forecast(ctx, topic, p.Index, after)
		}
		more := e.NewStart > old.NewStart || e.RemoteBytes > old.RemoteBytes
		if more || e.Unknown != nil && deletesMore(before, after) {
			out = append(out, e)
		}
	}
	return out, nil
}

// forecast asks a partition what retention by c deletes.
func (b *Broker) forecast(ctx context.Context, topic string, index int32, c partition.Config) (partition.Forecast, error) {
	o, err := b.Owner(topic, index)
	if err != nil {
		return partition.Forecast{}, err
	}
	return o.Forecast(ctx, c)
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
	segments []partition.SegmentInfo
}

func (b *Broker) holdings(ctx context.Context, topic string, index int32) (holdings, error) {
	o, err := b.Owner(topic, index)
	if err != nil {
		return holdings{}, err
	}
	segments, err := o.Segments(ctx)
	return holdings{o.View().Watermarks, segments}, err
}

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
		held, err := b.holdings(ctx, topic, p.Index)
		if err != nil {
			unknown = append(unknown, fmt.Sprint(p.Index))
			continue
		}
		offsets += held.marks.LocalLogStart - held.marks.LogStart
		for _, s := range held.segments {
			if s.Tier == "remote" && s.Readable() && s.Base < held.marks.LocalLogStart && s.Next > held.marks.LogStart {
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

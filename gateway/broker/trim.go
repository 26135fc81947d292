package broker

import (
	"context"
	"time"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/partition"
)

// Trim says up to where the records of a partition are to go.
type Trim struct {
	// To is the first offset that stays; tiers.NoOffset is the high watermark. Nil:
	// Before says it.
	To *tiers.Offset
	// Before, in milliseconds since 1970, is a time none of whose records may go, nor
	// any later one, unless AllowNewer. Without To it also says where to trim to: the
	// first record with a timestamp >= Before, the high watermark if there is none.
	// Records with an earlier timestamp behind that one stay (report 036).
	Before     *int64
	AllowNewer bool
}

// Trimmed is what a trim deletes.
type Trimmed struct {
	LogStart    tiers.Offset // before it
	Offset      tiers.Offset // after it, not below LogStart
	Segments    int          // readable ones that it takes the last record of
	LocalBytes  int64        // of files that go
	RemoteBytes int64        // of objects that go
	Newest      int64        // newest timestamp that goes, -1 if no record carries one
	Newer       bool         // Newest is not before Trim.Before
}

// PlanTrim says what Trim would do now.
func (b *Broker) PlanTrim(ctx context.Context, topic string, index int32, t Trim) (Trimmed, error) {
	o, err := b.Owner(topic, index)
	if err != nil {
		return Trimmed{}, err
	}
	return planTrim(ctx, o, t)
}

// Trim deletes what lies below an offset, in every tier, and says what went. It
// refuses to delete what is not older than Trim.Before unless that is allowed.
func (b *Broker) Trim(ctx context.Context, topic string, index int32, t Trim) (Trimmed, error) {
	o, err := b.Owner(topic, index)
	if err != nil {
		return Trimmed{}, err
	}
	out, err := planTrim(ctx, o, t)
	if err != nil {
		return out, err
	}
	if out.Newer && !t.AllowNewer {
		return out, tiers.E(tiers.InvalidRequest, "trim", o.Identity().Name.String(),
			"nothing was deleted: below offset %d there are records up to %s, which is not before %s: trim to a lower offset, or allow newer records to go",
			out.Offset, stamp(out.Newest), stamp(*t.Before))
	}
	start, err := o.DeleteRecords(ctx, out.Offset)
	if err != nil {
		return out, err
	}
	out.Offset = start
	return out, nil
}

// trimmable is what planTrim asks of an owner.
type trimmable interface {
	Identity() partition.Identity
	View() *partition.View
	ListOffset(ctx context.Context, ts int64, iso partition.Isolation, current tiers.LeaderEpoch) (partition.OffsetAt, error)
	Segments(ctx context.Context) ([]partition.SegmentInfo, error)
}

func planTrim(ctx context.Context, o trimmable, t Trim) (Trimmed, error) {
	segments, err := o.Segments(ctx)
	if err != nil {
		return Trimmed{}, err
	}
	v := o.View()
	to, err := trimOffset(ctx, o, v, t)
	if err != nil {
		return Trimmed{}, err
	}
	out := Trimmed{LogStart: v.LogStart, Offset: max(to, v.LogStart), Newest: -1}
	for _, s := range segments {
		if s.Ends(v.LogStart, out.Offset) {
			out.Segments++
			out.LocalBytes += localBytes(s)
			out.RemoteBytes += remoteBytes(s)
		}
	}
	if out.Newest, err = newest(ctx, o, segments, out.LogStart, out.Offset); err != nil {
		return Trimmed{}, err
	}
	out.Newer = t.Before != nil && out.Newest >= *t.Before
	return out, nil
}

// trimOffset is the offset that t means.
func trimOffset(ctx context.Context, o trimmable, v *partition.View, t Trim) (tiers.Offset, error) {
	place := o.Identity().Name.String()
	switch {
	case t.To == nil && t.Before == nil:
		return 0, tiers.E(tiers.InvalidRequest, "trim", place, "say up to where: an offset, latest, or a time")
	case t.Before != nil && *t.Before < 0:
		return 0, tiers.E(tiers.InvalidRequest, "trim", place, "the time %d is before 1970", *t.Before)
	case t.To != nil && *t.To == tiers.NoOffset:
		return v.HighWatermark, nil
	case t.To != nil && (*t.To < 0 || *t.To > v.HighWatermark):
		return 0, tiers.E(tiers.OffsetOutOfRange, "trim", place, "offset %d is not in [0,%d]: the high watermark is %d", *t.To, v.HighWatermark, v.HighWatermark)
	case t.To != nil:
		return *t.To, nil
	}
	at, err := o.ListOffset(ctx, *t.Before, partition.ReadUncommitted, tiers.NoEpoch)
	if err != nil {
		return 0, err
	}
	if at.Offset == tiers.NoOffset {
		return v.HighWatermark, nil
	}
	return at.Offset, nil
}

// newest is the newest timestamp of the offsets [start, to), -1 if there is none.
// Segments wholly in there tell it; in those that reach out it is searched, by
// asking for the first record that is as new as a guess: it takes about as many
// look-ups as a timestamp has bits.
func newest(ctx context.Context, o trimmable, segments []partition.SegmentInfo, start, to tiers.Offset) (int64, error) {
	low, high := int64(-1), int64(-1) // the answer is in [low, high]
	for _, s := range segments {
		switch {
		case s.Next <= start || s.Base >= to:
		case s.Base >= start && s.Next <= to:
			low = max(low, s.MaxTimestamp)
		default:
			high = max(high, s.MaxTimestamp)
		}
	}
	for guess := high; low < high; guess = low + (high-low+1)/2 {
		at, err := o.ListOffset(ctx, guess, partition.ReadUncommitted, tiers.NoEpoch)
		if err != nil {
			return 0, err
		}
		if at.Offset != tiers.NoOffset && at.Offset < to {
			low = max(at.Timestamp, guess)
		} else {
			high = guess - 1
		}
	}
	return low, nil
}

// stamp prints a record's time.
func stamp(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }

// Retain runs a retention pass of a partition now and waits for its end.
func (b *Broker) Retain(ctx context.Context, topic string, index int32) error {
	o, err := b.Owner(topic, index)
	if err != nil {
		return err
	}
	return o.Retain(ctx)
}

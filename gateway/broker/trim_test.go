package broker

import (
	"context"
	"errors"
	"testing"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/partition"
)

// stamped is a log of which only the timestamps matter: one record per offset from
// 0 on, in segments of a few records.
type stamped struct {
	times   []int64
	start   tiers.Offset
	size    int // records of a segment
	lookups int
	err     error
}

func (*stamped) Identity() partition.Identity {
	return partition.Identity{Name: tiers.TopicPartition{Topic: "t", Partition: 0}}
}

func (s *stamped) View() *partition.View {
	end := tiers.Offset(len(s.times))
	return &partition.View{Watermarks: tiers.Watermarks{LogStart: s.start, HighWatermark: end, LastStable: end, LogEnd: end}}
}

func (s *stamped) ListOffset(_ context.Context, ts int64, _ partition.Isolation, _ tiers.LeaderEpoch) (partition.OffsetAt, error) {
	s.lookups++
	if s.err != nil {
		return partition.OffsetAt{}, s.err
	}
	for o := int(s.start); o < len(s.times); o++ {
		if s.times[o] >= ts {
			return partition.OffsetAt{Offset: tiers.Offset(o), Timestamp: s.times[o]}, nil
		}
	}
	return partition.OffsetAt{Offset: tiers.NoOffset, Timestamp: -1}, nil
}

func (s *stamped) Segments(context.Context) ([]partition.SegmentInfo, error) {
	var out []partition.SegmentInfo
	for base := 0; base < len(s.times); base += s.size {
		next := min(base+s.size, len(s.times))
		info := partition.SegmentInfo{Base: tiers.Offset(base), Next: tiers.Offset(next), Tier: "both", Bytes: 10, MaxTimestamp: -1}
		for _, ts := range s.times[base:next] {
			info.MaxTimestamp = max(info.MaxTimestamp, ts)
		}
		out = append(out, info)
	}
	return out, nil
}

// TestReport036TrimByTime: times that are not in order. The first record that is
// not older stays, and so does everything behind it, though some of that is older.
func TestReport036TrimByTime(t *testing.T) {
	times := []int64{100_000, 50_000, 900_000, 60_000}
	for _, size := range []int{1, 2, 3, 4, 9} {
		for _, c := range []struct {
			start  tiers.Offset
			trim   Trim
			offset tiers.Offset
			newest int64
			newer  bool
		}{
			{0, Trim{Before: new(int64(90_000))}, 0, -1, false},
			{0, Trim{Before: new(int64(100_000))}, 0, -1, false},
			{0, Trim{Before: new(int64(100_001))}, 2, 100_000, false},
			{0, Trim{Before: new(int64(900_000))}, 2, 100_000, false},
			{0, Trim{Before: new(int64(900_001))}, 4, 900_000, false}, // none is as new: all go
			{1, Trim{Before: new(int64(900_000))}, 2, 50_000, false},  // what was trimmed before tells nothing
			{3, Trim{Before: new(int64(55_000))}, 3, -1, false},
			// To and Before: an offset, and a promise that nothing newer goes.
			{0, Trim{To: new(tiers.Offset(4)), Before: new(int64(500_000))}, 4, 900_000, true},
			{0, Trim{To: new(tiers.Offset(3)), Before: new(int64(500_000))}, 3, 900_000, true},
			{0, Trim{To: new(tiers.Offset(2)), Before: new(int64(500_000))}, 2, 100_000, false},
			{0, Trim{To: new(tiers.Offset(2)), Before: new(int64(100_000))}, 2, 100_000, true},
			{0, Trim{To: new(tiers.Offset(0)), Before: new(int64(0))}, 0, -1, false},
			{0, Trim{To: new(tiers.NoOffset)}, 4, 900_000, false},
			{3, Trim{To: new(tiers.Offset(1))}, 3, -1, false},
		} {
			s := &stamped{times: times, start: c.start, size: size}
			got, err := planTrim(t.Context(), s, c.trim)
			if err != nil {
				t.Fatal(err)
			}
			if got.Offset != c.offset || got.Newest != c.newest || got.Newer != c.newer || got.LogStart != c.start {
				t.Errorf("segments of %d, start %d, %+v:\n got %+v, want %+v", size, c.start, c.trim, got, c)
			}
			if s.lookups > 45 {
				t.Errorf("%d look-ups", s.lookups)
			}
		}
	}
}

func TestTrimCountsWhatGoes(t *testing.T) {
	s := &stamped{times: []int64{1, 2, 3, 4, 5, 6, 7}, size: 3}
	for to, want := range map[tiers.Offset]int{0: 0, 2: 0, 3: 1, 5: 1, 6: 2, 7: 3} {
		got, err := planTrim(t.Context(), s, Trim{To: &to})
		if err != nil {
			t.Fatal(err)
		}
		if got.Segments != want || got.LocalBytes != int64(10*want) || got.RemoteBytes != int64(10*want) || got.Newest != max(int64(to), 0) && to > 0 {
			t.Errorf("to %d: %+v", to, got)
		}
	}
}

// TestTrimCountsNothingThatIsGone: not what lies below the log start.
func TestTrimCountsNothingThatIsGone(t *testing.T) {
	s := &stamped{times: []int64{1, 2, 3, 4, 5, 6, 7}, size: 3, start: 3}
	for to, want := range map[tiers.Offset]int{0: 0, 3: 0, 5: 0, 6: 1, 7: 2} {
		got, err := planTrim(t.Context(), s, Trim{To: &to})
		if err != nil || got.Segments != want || got.LocalBytes != int64(10*want) || got.RemoteBytes != int64(10*want) {
			t.Errorf("to %d: %+v, %v", to, got, err)
		}
	}
}

func TestTrimRefusals(t *testing.T) {
	s := &stamped{times: []int64{1, 2, 3}, size: 2}
	for name, c := range map[string]struct {
		trim Trim
		kind tiers.Kind
	}{
		"nothing said":         {Trim{}, tiers.InvalidRequest},
		"beyond the end":       {Trim{To: new(tiers.Offset(4))}, tiers.OffsetOutOfRange},
		"negative":             {Trim{To: new(tiers.Offset(-2))}, tiers.OffsetOutOfRange},
		"before all time":      {Trim{Before: new(int64(-1))}, tiers.InvalidRequest},
		"beyond it, and times": {Trim{To: new(tiers.Offset(4)), Before: new(int64(1))}, tiers.OffsetOutOfRange},
	} {
		_, err := planTrim(t.Context(), s, c.trim)
		wantKind(t, name, err, c.kind)
	}
	away := errors.New("away")
	s.err = away
	for _, trim := range []Trim{{Before: new(int64(2))}, {To: new(tiers.Offset(1))}} {
		if _, err := planTrim(t.Context(), s, trim); !errors.Is(err, away) {
			t.Errorf("%+v: %v", trim, err)
		}
	}
}

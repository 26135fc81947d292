package partition

import (
	"fmt"
	"math"
	"testing"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/batch"
)

// timed is a log whose timestamps go up and down over both tiers:
//
//	[0,3)  100 101 102   bucket
//	[3,6)  500 501 502   bucket: the newest of all
//	[6,9)  200 201 202   both
//	[9,11) 300 502       disk, active: 502 again, later
func timed(t *testing.T, config func(*Config)) *driven {
	t.Helper()
	w := newWorld(t)
	if config != nil {
		config(&w.config)
	}
	d := w.drive()
	plain := func(ts int64, vs ...string) []byte { return build(batch.Builder{ProducerID: -1}, ts, vs...) }
	d.must(plain(100, "0", "1", "2"))
	d.roll()
	d.must(plain(500, "3", "4", "5"))
	d.roll()
	d.must(plain(200, "6"), plain(201, "7", "8"))
	d.roll()
	d.must(plain(300, "9"), plain(502, "10"))
	d.runAll()
	if w.config.Remote {
		d.dropLocal(6)
	}
	return d
}

// look is an answer as offset@timestamp/epoch.
func look(t *testing.T, o *Owner, ts int64, iso Isolation) string {
	t.Helper()
	at, err := o.ListOffset(t.Context(), ts, iso, tiers.NoEpoch)
	if err != nil {
		t.Fatalf("list offset %d: %v", ts, err)
	}
	return fmt.Sprintf("%d@%d/%d", at.Offset, at.Timestamp, at.Epoch)
}

// TestListOffset: the classic column of s6.5.
func TestListOffset(t *testing.T) {
	d := timed(t, nil)
	for _, c := range []struct {
		ts   int64
		want string
	}{
		{Earliest, "0@-1/1"},
		{EarliestLocal, "6@-1/1"},
		{Latest, "11@-1/1"},
		{LatestTiered, "8@-1/1"},
		{EarliestPendingUpload, "9@-1/1"},
		{MaxTimestamp, "5@502/1"}, // report 082: the first that carries it, in the bucket
		{0, "0@100/1"},
		{100, "0@100/1"},
		{102, "2@102/1"},
		{103, "3@500/1"},
		{200, "3@500/1"},
		{501, "4@501/1"},
		{502, "5@502/1"},
		{503, "-1@-1/-1"},
		{math.MaxInt64, "-1@-1/-1"},
	} {
		if got := look(t, d.Owner, c.ts, ReadUncommitted); got != c.want {
			t.Errorf("list offset %d: %s, want %s", c.ts, got, c.want)
		}
	}
	_, err := d.ListOffset(t.Context(), -9, ReadUncommitted, tiers.NoEpoch)
	wantKind(t, err, tiers.UnsupportedVersion)
	_, err = d.ListOffset(t.Context(), Latest, ReadUncommitted, 0)
	wantKind(t, err, tiers.FencedLeaderEpoch)
	_, err = d.ListOffset(t.Context(), Latest, ReadUncommitted, 2)
	wantKind(t, err, tiers.UnknownLeaderEpoch)
	d.end()
}

// TestReport078: what the bucket holds below the log start is not found by time,
// and hides nothing.
func TestReport078TimeAndTheLogStart(t *testing.T) {
	model := map[tiers.Offset]int64{0: 100, 1: 101, 2: 102, 3: 500, 4: 501, 5: 502, 6: 200, 7: 201, 8: 202, 9: 300, 10: 502}
	for start := range tiers.Offset(11) {
		d := timed(t, nil)
		d.step(func(s *state) {
			if err := s.local.RaiseLogStart(start); err != nil {
				t.Fatal(err)
			}
		})
		newest, at := tiers.NoOffset, int64(-1)
		for o := start; o <= 10; o++ {
			if model[o] > at {
				newest, at = o, model[o]
			}
		}
		if got, want := look(t, d.Owner, MaxTimestamp, ReadUncommitted), fmt.Sprintf("%d@%d/1", newest, at); got != want {
			t.Errorf("log start %d: newest %s, want %s", start, got, want)
		}
		for _, ts := range []int64{0, 100, 101, 102, 103, 200, 202, 250, 300, 301, 500, 501, 502, 503} {
			want := "-1@-1/-1"
			for o := start; o <= 10; o++ {
				if model[o] >= ts {
					want = fmt.Sprintf("%d@%d/1", o, model[o])
					break
				}
			}
			if got := look(t, d.Owner, ts, ReadUncommitted); got != want {
				t.Errorf("log start %d, time %d: %s, want %s", start, ts, got, want)
			}
		}
		d.end()
	}
}

// TestNewestInPartOfASegment: the newest record of a segment lies below the log
// start; the rest of the segment still counts.
func TestNewestInPartOfASegment(t *testing.T) {
	w := newWorld(t)
	d := w.drive()
	plain := func(ts int64, vs ...string) []byte { return build(batch.Builder{ProducerID: -1}, ts, vs...) }
	d.must(plain(900, "0"), plain(600, "1", "2"), plain(10, "3"))
	d.roll()
	d.must(plain(500, "4"))
	d.runAll()
	d.dropLocal(4)
	for start, want := range []string{"0@900/1", "2@601/1", "2@601/1", "4@500/1"} {
		d.step(func(s *state) {
			if err := s.local.RaiseLogStart(tiers.Offset(start)); err != nil {
				t.Fatal(err)
			}
		})
		if got := look(t, d.Owner, MaxTimestamp, ReadUncommitted); got != want {
			t.Errorf("log start %d: newest %s, want %s", start, got, want)
		}
	}
	d.end()
}

// TestReport080: an empty active segment is all that is on disk; the bucket is
// asked.
func TestReport080TimeWithEmptyDisk(t *testing.T) {
	d := timed(t, nil)
	d.roll()
	d.runAll()
	d.dropLocal(11)
	if v := d.View(); v.LocalLogStart != 11 || v.RemoteEnd != 11 {
		t.Fatalf("%+v", v.Watermarks)
	}
	for ts, want := range map[int64]string{300: "3@500/1", 502: "5@502/1", MaxTimestamp: "5@502/1", 503: "-1@-1/-1", EarliestLocal: "11@-1/1"} {
		if got := look(t, d.Owner, ts, ReadUncommitted); got != want {
			t.Errorf("list offset %d: %s, want %s", ts, got, want)
		}
	}
	d.end()
}

// TestListOffsetUntiered: nothing was copied and nothing will be.
func TestListOffsetUntiered(t *testing.T) {
	d := timed(t, func(c *Config) { c.Remote = false })
	for ts, want := range map[int64]string{LatestTiered: "-1@-1/-1", EarliestPendingUpload: "-1@-1/-1", Latest: "11@-1/1"} {
		if got := look(t, d.Owner, ts, ReadUncommitted); got != want {
			t.Errorf("list offset %d: %s, want %s", ts, got, want)
		}
	}
	d.end()
	w := newWorld(t)
	d = w.drive()
	d.fill(1)
	for ts, want := range map[int64]string{LatestTiered: "-1@-1/-1", EarliestPendingUpload: "0@-1/1"} {
		if got := look(t, d.Owner, ts, ReadUncommitted); got != want {
			t.Errorf("nothing copied yet, list offset %d: %s, want %s", ts, got, want)
		}
	}
	d.end()
}

// TestListOffsetIsolation: read_committed ends at the last stable offset, for
// times too.
func TestListOffsetIsolation(t *testing.T) {
	w := newWorld(t)
	d := w.drive()
	d.must(one("0"), build(batch.Builder{ProducerID: 9, Transactional: true}, 5000, "1"), build(batch.Builder{ProducerID: -1}, 6000, "2"))
	for _, c := range []struct {
		ts   int64
		iso  Isolation
		want string
	}{
		{Latest, ReadUncommitted, "3@-1/1"},
		{Latest, ReadCommitted, "1@-1/1"},
		{5000, ReadUncommitted, "1@5000/1"},
		{5000, ReadCommitted, "-1@-1/-1"},
		{MaxTimestamp, ReadUncommitted, "2@6000/1"},
		{MaxTimestamp, ReadCommitted, "0@1000/1"},
	} {
		if got := look(t, d.Owner, c.ts, c.iso); got != c.want {
			t.Errorf("list offset %d, isolation %d: %s, want %s", c.ts, c.iso, got, c.want)
		}
	}
	d.end()
}

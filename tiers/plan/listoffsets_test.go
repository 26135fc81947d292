package plan

import (
	"slices"
	"testing"

	"github.com/strandline-io/strandline/remoteindex"
	"github.com/strandline-io/strandline/tiers"
)

func listFacts(tb testing.TB, segs ...tiers.RemoteSegment) ListFacts {
	tb.Helper()
	return ListFacts{FetchFacts: view(), Index: readable(tb, segs...), Pending: true}
}

// at is a segment with the newest timestamp ts.
func at(s tiers.RemoteSegment, ts int64) tiers.RemoteSegment {
	s.MaxTimestamp = ts
	return s
}

// TV-R6, as far as a classic topic goes: LogStart in the place of X, log end in
// that of the WAL.
func TestTVR6_ListOffset(t *testing.T) {
	f := listFacts(t)
	for _, c := range []struct {
		name string
		ask  ListAsk
		bend func(*ListFacts)
		want tiers.Offset
		e    tiers.LeaderEpoch
	}{
		{"-2", ListAsk{Earliest, false, tiers.NoEpoch}, nil, 40, 1},
		{"-4", ListAsk{EarliestLocal, false, tiers.NoEpoch}, nil, 100, 1},
		{"-1", ListAsk{Latest, false, 3}, nil, 140, 3},
		{"-1, read_committed", ListAsk{Latest, true, tiers.NoEpoch}, nil, 130, 3},
		{"-5", ListAsk{LatestTiered, false, tiers.NoEpoch}, nil, 119, 3},
		{"-5, nothing is tiered", ListAsk{LatestTiered, false, tiers.NoEpoch}, func(f *ListFacts) { f.RemoteEnd = 40 }, -1, -1},
		{"-6", ListAsk{EarliestPendingUpload, false, tiers.NoEpoch}, nil, 120, 3},
		{"-6, nothing is tiered", ListAsk{EarliestPendingUpload, false, tiers.NoEpoch}, func(f *ListFacts) { f.RemoteEnd = 0 }, 40, 1},
		{"-6, not known", ListAsk{EarliestPendingUpload, false, tiers.NoEpoch}, func(f *ListFacts) { f.Pending = false }, -1, -1},
		{"-1, no lineage", ListAsk{Latest, false, tiers.NoEpoch}, func(f *ListFacts) { f.Lineage = nil }, 140, -1},
	} {
		g := f
		if c.bend != nil {
			c.bend(&g)
		}
		p, err := ListOffset(g, c.ask)
		if err != nil || p.How != Known || p.Offset != c.want || p.Epoch != c.e || p.Pieces != nil {
			t.Errorf("%s: %+v, %v; want %d of epoch %d", c.name, p, err, c.want, c.e)
		}
	}
	for ts, kind := range map[int64]tiers.Kind{-7: tiers.UnsupportedVersion, -100: tiers.UnsupportedVersion} {
		if _, err := ListOffset(f, ListAsk{ts, false, tiers.NoEpoch}); tiers.KindOf(err) != kind {
			t.Errorf("%d: %v", ts, err)
		}
	}
	if _, err := ListOffset(f, ListAsk{Latest, false, 2}); tiers.KindOf(err) != tiers.FencedLeaderEpoch {
		t.Error(err)
	}
	if _, err := ListOffset(f, ListAsk{Latest, false, 4}); tiers.KindOf(err) != tiers.UnknownLeaderEpoch {
		t.Error(err)
	}
}

func ranges(pieces []remoteindex.Piece) (out []Range) {
	for _, p := range pieces {
		out = append(out, Range{p.From, p.End})
	}
	return out
}

// Reports 078, 080, 082: a search by time sees each tier, and nothing of a segment
// that is below the log start or on disk already.
func TestReport078_080_082_SearchesSeeEachVisibleTier(t *testing.T) {
	f := listFacts(t, at(remote(1, 0, 59, lin(1, 0)), 100), at(remote(2, 60, 89, lin(1, 60)), 50), at(remote(3, 90, 119, lin(1, 90, 3, 110)), 70))
	for _, c := range []struct {
		ts     int64
		how    How
		pieces []Range
	}{
		{0, First, []Range{{40, 60}, {60, 90}, {90, 100}}},
		{60, First, []Range{{40, 60}, {90, 100}}},
		{71, First, []Range{{40, 60}}},
		{101, First, nil},
		{MaxTimestamp, Newest, []Range{{40, 60}, {90, 100}, {60, 90}}},
	} {
		p, err := ListOffset(f, ListAsk{c.ts, false, tiers.NoEpoch})
		if err != nil || p.How != c.how || !slices.Equal(ranges(p.Pieces), c.pieces) || p.LocalFrom != 100 || p.End != 140 || p.Offset != tiers.NoOffset {
			t.Errorf("%d: %+v, %v; want %v", c.ts, p, err, c.pieces)
		}
	}
	if p, err := ListOffset(f, ListAsk{0, true, tiers.NoEpoch}); err != nil || p.End != 130 {
		t.Errorf("read_committed: %+v, %v", p, err)
	}
	empty := f // Report 080: nothing but an empty active segment is local.
	empty.LocalLogStart, empty.RemoteEnd, empty.LastStable, empty.HighWatermark, empty.LogEnd = 120, 120, 120, 120, 120
	if p, err := ListOffset(empty, ListAsk{60, false, tiers.NoEpoch}); err != nil || !slices.Equal(ranges(p.Pieces), []Range{{40, 60}, {90, 120}}) {
		t.Errorf("all is remote: %+v, %v", p, err)
	}
}

func TestTiesOfTheNewestAreInOffsetOrder(t *testing.T) {
	f := listFacts(t, at(remote(1, 40, 59, lin(1, 40)), 70), at(remote(2, 60, 89, lin(1, 60)), 80), at(remote(3, 90, 119, lin(1, 90, 3, 110)), 80))
	p, err := ListOffset(f, ListAsk{MaxTimestamp, false, tiers.NoEpoch})
	if err != nil || !slices.Equal(ranges(p.Pieces), []Range{{60, 90}, {90, 100}, {40, 60}}) {
		t.Fatalf("%v, %v", ranges(p.Pieces), err)
	}
}

// A hole is never an answer: a later record would look like the first.
func TestSearchRefusesHoles(t *testing.T) {
	for _, f := range []ListFacts{listFacts(t, remote(1, 40, 59, lin(1, 40)), remote(3, 90, 119, lin(1, 90, 3, 110))), {FetchFacts: view()}} {
		if _, err := ListOffset(f, ListAsk{0, false, tiers.NoEpoch}); tiers.KindOf(err) != tiers.OffsetNotAvailable {
			t.Error(err)
		}
	}
	local := ListFacts{FetchFacts: view()}
	local.LocalLogStart = local.LogStart
	if p, err := ListOffset(local, ListAsk{0, false, tiers.NoEpoch}); err != nil || p.LocalFrom != 40 {
		t.Errorf("a topic that was never tiered: %+v, %v", p, err)
	}
}

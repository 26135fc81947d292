package plan

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/strandline-io/strandline/remoteindex"
	"github.com/strandline-io/strandline/tiers"
)

// found is a whole upload of segment s by the leader of epoch by, whose log had
// lineage l.
func found(s tiers.RemoteSegment, by tiers.LeaderEpoch, l tiers.Lineage) Found {
	s.CopierEpoch = by
	return Found{Segment: s, Lineage: l.TruncateEnd(s.End), Complete: true}
}

func verdicts(r Rebuilt) map[tiers.Offset]Verdict {
	out := map[tiers.Offset]Verdict{}
	for _, j := range r.Judged {
		out[j.Segment.Base] = j.Verdict
	}
	return out
}

func TestRebuild(t *testing.T) {
	l := lin(1, 0, 2, 50)
	a, b, c := remote(1, 0, 39, lin(1, 0)), remote(2, 40, 59, lin(1, 40, 2, 50)), remote(3, 60, 99, lin(2, 60))
	all := []Found{found(c, 2, l), found(a, 1, l), found(b, 2, l)}
	with := func(f ...Found) []Found { return append(slices.Clone(all), f...) }
	bend := func(i int, g func(*Found)) []Found {
		out := slices.Clone(all)
		g(&out[i])
		return out
	}
	for _, tc := range []struct {
		name       string
		f          RebuildFacts
		start, end tiers.Offset
		lineage    tiers.Lineage
		minEpoch   tiers.LeaderEpoch
		rows       []tiers.Offset
		gaps       []Range
		overlaps   []Range
		producers  int
	}{
		{"nothing", RebuildFacts{}, 0, 0, nil, 0, nil, nil, nil, 0},
		{"nothing but a log start", RebuildFacts{LogStart: 70}, 70, 70, nil, 0, nil, nil, nil, 0},
		{"whole", RebuildFacts{Found: all}, 0, 100, l, 3, []tiers.Offset{0, 40, 60}, nil, nil, 3},
		{"the log start of the snapshot counts", RebuildFacts{Found: all, LogStart: 45}, 45, 100, lin(1, 45, 2, 50), 3, []tiers.Offset{40, 60}, nil, nil, 3},
		{
			"so does that of the newest copy",
			RebuildFacts{Found: bend(0, func(f *Found) { f.Lineage = lin(2, 60) })},
			60, 100, lin(2, 60), 3,
			[]tiers.Offset{60},
			nil, nil, 3,
		},
		{"the first is gone", RebuildFacts{Found: []Found{all[0], all[2]}}, 40, 100, lin(1, 40, 2, 50), 3, []tiers.Offset{40, 60}, []Range{{0, 40}}, nil, 3},
		{
			"a hole: the longest run",
			RebuildFacts{Found: []Found{all[0], all[1]}},
			60, 100, lin(2, 60), 3,
			[]tiers.Offset{60},
			[]Range{{40, 60}},
			nil, 3,
		},
		{
			"a hole: the oldest run",
			RebuildFacts{Found: []Found{all[0], all[1]}, Prefer: OldestRun},
			0, 40, lin(1, 0), 3,
			[]tiers.Offset{0},
			[]Range{{40, 60}},
			nil, 1,
		},
		{
			"a row whose objects are gone",
			RebuildFacts{Found: bend(0, func(f *Found) { f.Complete, f.Row = false, tiers.CopyFinished })},
			0, 60, lin(1, 0, 2, 50), 3,
			[]tiers.Offset{0, 40},
			[]Range{{60, 100}},
			nil, 2,
		},
		{
			"an upload that was cut off",
			RebuildFacts{Found: bend(0, func(f *Found) { f.Complete, f.Row = false, tiers.CopyStarted })},
			0, 60, lin(1, 0, 2, 50), 3,
			[]tiers.Offset{0, 40},
			nil, nil, 2,
		},
		{
			"an upload whose row lags",
			RebuildFacts{Found: bend(0, func(f *Found) { f.Row = tiers.CopyStarted })},
			0, 100, l, 3,
			[]tiers.Offset{0, 40, 60},
			nil, nil, 3,
		},
		{
			"a deletion had begun",
			RebuildFacts{Found: bend(1, func(f *Found) { f.Row = tiers.DeleteStarted })},
			40, 100, lin(1, 40, 2, 50), 3,
			[]tiers.Offset{40, 60},
			[]Range{{0, 40}},
			nil, 3,
		},
		{
			"a copy that was tried again",
			RebuildFacts{Found: with(found(remote(4, 40, 99, lin(1, 40, 2, 50)), 2, l))},
			0, 100, l, 3,
			[]tiers.Offset{0, 40},
			nil,
			[]Range{{40, 100}},
			4,
		},
		{
			"a segment within another",
			RebuildFacts{Found: with(found(remote(4, 70, 79, lin(2, 70)), 2, l), found(remote(5, 100, 109, lin(2, 100)), 2, l))},
			0, 110, l, 3,
			[]tiers.Offset{0, 40, 60, 100},
			nil,
			[]Range{{70, 80}},
			5,
		},
		{
			"a hole was filled after the log start had moved",
			RebuildFacts{Found: bend(2, func(f *Found) { f.Lineage = f.Lineage.TruncateStart(45) })},
			45, 100, lin(1, 45, 2, 50), 3,
			[]tiers.Offset{40, 60},
			nil, nil, 3,
		},
		{"all is below the log start", RebuildFacts{Found: all, LogStart: 500}, 500, 500, nil, 3, nil, nil, nil, 0},
	} {
		f := tc.f
		f.Partition = tiers.PartitionID{Index: 3}
		r := Rebuild(f)
		if r.LogStart != tc.start || r.LogEnd != tc.end || !slices.Equal(r.Lineage, tc.lineage) || r.MinEpoch != tc.minEpoch {
			t.Errorf("%s: [%d,%d) %s, next epoch %d; want [%d,%d) %s, %d", tc.name, r.LogStart, r.LogEnd, r.Lineage, r.MinEpoch, tc.start, tc.end, tc.lineage, tc.minEpoch)
		}
		if !slices.Equal(bases(r.Rows), tc.rows) || !slices.Equal(r.Gaps, tc.gaps) || !slices.Equal(r.Overlaps, tc.overlaps) {
			t.Errorf("%s: rows %v, gaps %v, overlaps %v; want %v, %v, %v", tc.name, bases(r.Rows), r.Gaps, r.Overlaps, tc.rows, tc.gaps, tc.overlaps)
		}
		if int(r.Producers[7]) != tc.producers {
			t.Errorf("%s: producers of segment %d, want %d", tc.name, r.Producers[7], tc.producers)
		}
		if len(r.Judged) != len(f.Found) {
			t.Errorf("%s: %d of %d segments are judged", tc.name, len(r.Judged), len(f.Found))
		}
	}
}

// Report 013 without a control plane: epoch 1 copied [0,100), lost the leadership
// at 60, epoch 2 went on there.
func TestReport013_RebuildLeavesTheDiscardedTailOut(t *testing.T) {
	old := found(remote(1, 0, 99, lin(1, 0)), 1, lin(1, 0))
	tail := found(remote(3, 100, 119, lin(1, 100)), 1, lin(1, 0))
	now := found(remote(2, 60, 89, lin(2, 60)), 2, lin(1, 0, 2, 60))
	r := Rebuild(RebuildFacts{Partition: tiers.PartitionID{Index: 3}, Found: []Found{tail, old, now}})
	if r.LogStart != 0 || r.LogEnd != 90 || !slices.Equal(r.Lineage, lin(1, 0, 2, 60)) || r.Producers != now.Segment.ID {
		t.Errorf("[%d,%d) %s", r.LogStart, r.LogEnd, r.Lineage)
	}
	if v := verdicts(r); v[0] != Keep || v[60] != Keep || v[100] != Discarded || len(r.Overlaps) != 0 {
		t.Errorf("%v, overlaps %v", v, r.Overlaps)
	}
}

// A later leader that copies an old segment says nothing of what is behind it:
// what an earlier one copied there stays, unless the later one contradicts it.
func TestRebuildBelievesTheLaterLeader(t *testing.T) {
	a := found(remote(1, 0, 49, lin(1, 0)), 3, lin(1, 0))
	b := found(remote(2, 50, 99, lin(1, 50, 2, 80)), 2, lin(1, 0, 2, 80))
	r := Rebuild(RebuildFacts{Partition: tiers.PartitionID{Index: 3}, Found: []Found{a, b}})
	if r.LogEnd != 100 || !slices.Equal(r.Lineage, lin(1, 0, 2, 80)) || r.MinEpoch != 4 {
		t.Errorf("[%d,%d) %s, next epoch %d", r.LogStart, r.LogEnd, r.Lineage, r.MinEpoch)
	}
	c := found(remote(3, 50, 89, lin(1, 50)), 3, lin(1, 0)) // Epoch 3 has epoch 1 at 80: epoch 2 was discarded.
	r = Rebuild(RebuildFacts{Partition: tiers.PartitionID{Index: 3}, Found: []Found{a, b, c}})
	if r.LogEnd != 90 || !slices.Equal(r.Lineage, lin(1, 0)) || len(r.Rows) != 2 && len(r.Rows) != 3 {
		t.Errorf("[%d,%d) %s, rows %v", r.LogStart, r.LogEnd, r.Lineage, bases(r.Rows))
	}
}

// An earlier leader that contradicts the later one below its end says nothing of
// what is behind it either, though its later epochs would fit there.
func TestRebuildTakesNothingFromADiscardedLog(t *testing.T) {
	a := found(remote(1, 0, 89, lin(1, 0)), 6, lin(1, 0))
	b := found(remote(2, 95, 109, lin(5, 95)), 5, lin(1, 0, 2, 70, 5, 95))
	r := Rebuild(RebuildFacts{Partition: tiers.PartitionID{Index: 3}, Found: []Found{a, b}})
	if v := verdicts(r); r.LogEnd != 90 || !slices.Equal(r.Lineage, lin(1, 0)) || v[95] != Discarded || len(r.Gaps) != 0 {
		t.Errorf("[%d,%d) %s, gaps %v, %v", r.LogStart, r.LogEnd, r.Lineage, r.Gaps, v)
	}
}

// An earlier leader whose log began where the later one's ends says nothing of
// the start.
func TestRebuildDoesNotMoveTheStartToADiscardedLog(t *testing.T) {
	a := found(remote(1, 0, 39, lin(5, 0)), 5, lin(5, 0))
	b := found(remote(2, 100, 119, lin(2, 100)), 2, lin(2, 100))
	r := Rebuild(RebuildFacts{Partition: tiers.PartitionID{Index: 3}, Found: []Found{a, b}})
	if v := verdicts(r); r.LogStart != 0 || r.LogEnd != 40 || v[100] != Discarded {
		t.Errorf("[%d,%d), %v", r.LogStart, r.LogEnd, v)
	}
}

func TestRebuildJudges(t *testing.T) {
	p := tiers.PartitionID{Index: 3}
	l := lin(1, 0)
	bent := func(base tiers.Offset, g func(*Found)) Found {
		f := found(remote(int(base)+1, base, base+9, lin(1, int64(base))), 1, l)
		g(&f)
		return f
	}
	r := Rebuild(RebuildFacts{Partition: p, LogStart: 20, Found: []Found{
		bent(0, func(f *Found) { f.Segment.Gen = 0 }),
		bent(10, func(*Found) {}),
		bent(20, func(*Found) {}),
		bent(30, func(f *Found) { f.Lineage = nil }),
		bent(40, func(f *Found) { f.Lineage = lin(1, 0, 2, 45) }),
		bent(50, func(f *Found) { f.Segment.Size = 0 }),
		bent(60, func(f *Found) { f.Segment.Partition.Index = 4 }),
		bent(70, func(f *Found) { f.Complete = false }),
		bent(80, func(f *Found) { f.Complete, f.Row = false, tiers.CopyFinished }),
		bent(90, func(f *Found) { f.Row = tiers.DeleteStarted }),
		bent(200, func(f *Found) { f.Segment.ID = tiers.SegmentID{7: 21} }), // The id of the one at 20.
	}})
	want := map[tiers.Offset]Verdict{0: Elsewhere, 10: Stale, 20: Keep, 30: Invalid, 40: Invalid, 50: Invalid, 60: Elsewhere, 70: Incomplete, 80: Missing, 90: Deleting, 200: Invalid}
	got := verdicts(r)
	for base, v := range want {
		if got[base] != v {
			t.Errorf("segment %d: %s, want %s", base, got[base], v)
		}
	}
	if r.Gen != 1 || r.LogStart != 20 || r.LogEnd != 30 || !slices.Equal(r.Gaps, []Range{{30, 100}}) {
		t.Errorf("history %d, [%d,%d), gaps %v", r.Gen, r.LogStart, r.LogEnd, r.Gaps)
	}
	stranded := Rebuild(RebuildFacts{Partition: p, Prefer: NewestRun, Found: []Found{bent(0, func(*Found) {}), bent(10, func(*Found) {}), bent(30, func(*Found) {})}})
	if v := verdicts(stranded); v[0] != Stranded || v[10] != Stranded || v[30] != Keep || stranded.LogStart != 30 {
		t.Errorf("%v, log start %d", v, stranded.LogStart)
	}
	if v := verdicts(Rebuild(RebuildFacts{Partition: p, Gen: 2, Found: []Found{bent(0, func(*Found) {})}})); v[0] != Elsewhere {
		t.Errorf("a history before the purge: %s", v[0])
	}
	if all := Rebuild(RebuildFacts{Partition: p, Found: []Found{bent(10, func(f *Found) { f.Complete, f.Row = false, tiers.CopyFinished })}}); all.LogStart != 20 || all.LogEnd != 20 {
		t.Errorf("all objects are gone: [%d,%d), offsets would be given out twice", all.LogStart, all.LogEnd)
	}
}

// TestReport049_WhatIsMissingBelowTheStartIsNoLoss: retention raises the start,
// then deletes; the rows of the last snapshot still say that all is there.
func TestReport049_WhatIsMissingBelowTheStartIsNoLoss(t *testing.T) {
	l := lin(1, 0)
	a, b, c := remote(1, 0, 19, l), remote(2, 20, 39, lin(1, 20)), remote(3, 40, 59, lin(1, 40))
	all := []Found{found(a, 1, l), found(b, 1, l), found(c, 1, l)}
	for i := range all {
		all[i].Row = tiers.CopyFinished
	}
	all[0].Complete, all[1].Complete = false, false
	for start, want := range map[tiers.Offset][3]Verdict{
		0:  {Missing, Missing, Keep},
		20: {Stale, Missing, Keep},
		39: {Stale, Missing, Keep},
		40: {Stale, Stale, Keep},
		45: {Stale, Stale, Keep},
		60: {Stale, Stale, Stale},
		70: {Stale, Stale, Stale},
	} {
		r := Rebuild(RebuildFacts{Partition: a.Partition, LogStart: start, Found: all})
		v := verdicts(r)
		if got := [3]Verdict{v[0], v[20], v[40]}; got != want {
			t.Errorf("log start %d: %v, want %v", start, got, want)
		}
		if lost := start < 40; (len(r.Gaps) > 0) != lost || r.LogStart != max(start, 40) || r.LogEnd != max(start, 60) {
			t.Errorf("log start %d: [%d,%d), gaps %v", start, r.LogStart, r.LogEnd, r.Gaps)
		}
	}
	unknown := found(tiers.RemoteSegment{ID: tiers.SegmentID{9}, Partition: a.Partition, Gen: 1, Base: 10}, 1, l)
	unknown.Complete = false
	if v := verdicts(Rebuild(RebuildFacts{Partition: a.Partition, LogStart: 45, Found: append(all, unknown)})); v[10] != Incomplete {
		t.Errorf("an upload whose end nobody knows: %s", v[10])
	}
}

// A log lives, truncates and moves its start, copying as it goes; some uploads are
// lost. What Rebuild keeps is the log's own, and if none is lost it is all of it.
func TestRebuildFindsTheLogAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := tiers.PartitionID{Index: 3}
		var l tiers.Lineage
		var all []Found
		epoch, end, copied, start := tiers.LeaderEpoch(0), tiers.Offset(0), tiers.Offset(0), tiers.Offset(0)
		for range rapid.IntRange(1, 14).Draw(t, "steps") {
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0: // A new leader, which may have less than was copied.
				epoch++
				if cut := end - tiers.Offset(rapid.IntRange(0, 5).Draw(t, "cut")); cut > start {
					end = cut
					l = l.TruncateEnd(end)
				}
				copied = min(copied, end)
			case 1:
				if s := start + tiers.Offset(rapid.IntRange(0, 3).Draw(t, "raise")); s < copied {
					start, l = s, l.TruncateStart(s)
				}
			default:
				var err error
				if l, err = l.Append(epoch, end, end); err != nil {
					t.Fatal(err)
				}
				end += tiers.Offset(rapid.IntRange(1, 9).Draw(t, "records"))
				s := remote(len(all)+1, copied, end-1, SegmentLineage(l, copied, end))
				s.CreatedAt = time.Unix(int64(len(all)), 0)
				all = append(all, found(s, epoch, l))
				copied = end
			}
		}
		lost := map[int]bool{}
		var left []Found
		for i, f := range all {
			if lost[i] = rapid.IntRange(0, 9).Draw(t, "lost") == 0; !lost[i] {
				left = append(left, f)
			}
		}
		r := Rebuild(RebuildFacts{Partition: p, LogStart: start, Found: rapid.Permutation(left).Draw(t, "order")})
		if len(r.Judged) != len(left) || r.LogStart < start || r.LogEnd < r.LogStart {
			t.Fatalf("%+v", r)
		}
		if r.LogEnd > r.LogStart {
			if err := r.Lineage.Valid(); err != nil || len(r.Lineage) == 0 || r.Lineage[0].Start != r.LogStart {
				t.Fatalf("[%d,%d) %s: %v", r.LogStart, r.LogEnd, r.Lineage, err)
			}
		}
		x, err := remoteindex.New(p, 1, r.Rows)
		if err != nil {
			t.Fatal(err)
		}
		for o := r.LogStart; o < r.LogEnd; o++ {
			if _, ok := x.ByEpochOffset(r.Lineage.EpochFor(o), o); !ok {
				t.Fatalf("offset %d of [%d,%d) is in no row", o, r.LogStart, r.LogEnd)
			}
		}
		if len(left) < len(all) || len(all) == 0 {
			return
		}
		// What the newest leader knows and has copied comes back. Beyond it there may be
		// what it discarded without having copied anything there since.
		last := all[len(all)-1]
		if last.Segment.CopierEpoch != epoch || last.Segment.End != end {
			return
		}
		if r.LogEnd != end && end > start || len(r.Gaps) > 0 {
			t.Fatalf("the log [%d,%d) comes back as [%d,%d), gaps %v", start, end, r.LogStart, r.LogEnd, r.Gaps)
		}
		for o := r.LogStart; o < end; o++ {
			if r.Lineage.EpochFor(o) != l.EpochFor(o) {
				t.Fatalf("offset %d: epoch %d, was %d in %s", o, r.Lineage.EpochFor(o), l.EpochFor(o), l)
			}
		}
	})
}

package bench

import (
	"strings"
	"testing"
)

// entry is a record of a log.
type entry struct {
	partition int32
	stamp
	harm func([]byte) []byte
}

func book(entries ...entry) *ledger {
	l := newLedger()
	for i, e := range entries {
		b := make([]byte, 64)
		seal(b, e.stamp, l.table)
		if e.harm != nil {
			b = e.harm(b)
		}
		l.add(e.partition, int64(i), b)
	}
	return l
}

func rec(partition int32, producer uint32, number uint64) entry {
	return entry{partition: partition, stamp: stamp{run: 1, producer: producer, number: number}}
}

func TestLedger(t *testing.T) {
	t.Parallel()
	flip := func(b []byte) []byte { b[40] ^= 1; return b }
	foreign := func([]byte) []byte { return []byte("a record of somebody else") }
	huge := entry{stamp: stamp{run: 1, number: maxNumber}}
	for name, c := range map[string]struct {
		entries []entry
		want    Verification
		says    string
	}{
		"all there":                       {[]entry{rec(0, 1, 0), rec(1, 1, 1), rec(0, 1, 2), rec(0, 2, 0)}, Verification{Records: 4, Producers: 2}, ""},
		"missing":                         {[]entry{rec(0, 1, 0), rec(0, 1, 3)}, Verification{Records: 2, Producers: 1, Missing: 2}, "2 of its first 4"},
		"doubled":                         {[]entry{rec(0, 1, 0), rec(0, 1, 0)}, Verification{Records: 2, Producers: 1, Doubled: 1}, "is there twice"},
		"doubled in another partition":    {[]entry{rec(0, 1, 0), rec(1, 1, 0)}, Verification{Records: 2, Producers: 1, Doubled: 1}, "is there twice"},
		"reordered":                       {[]entry{rec(0, 1, 1), rec(0, 1, 0)}, Verification{Records: 2, Producers: 1, Reordered: 1}, "comes after 1"},
		"not reordered across partitions": {[]entry{rec(0, 1, 1), rec(1, 1, 0)}, Verification{Records: 2, Producers: 1}, ""},
		"damaged":                         {[]entry{rec(0, 1, 0), {0, stamp{1, 1, 1}, flip}}, Verification{Records: 2, Producers: 1, Damaged: 1}, "offset 1: the record is damaged"},
		"a number without end":            {[]entry{huge}, Verification{Records: 1, Damaged: 1}, "its number is"},
		"foreign":                         {[]entry{rec(0, 1, 0), {harm: foreign}}, Verification{Records: 2, Producers: 1, Foreign: 1}, ""},
	} {
		got := *book(c.entries...).verification(nil, 0)
		problems := strings.Join(got.Problems, "; ")
		got.Problems = nil
		if got.Records != c.want.Records || got.Producers != c.want.Producers || got.Missing != c.want.Missing || got.Doubled != c.want.Doubled ||
			got.Reordered != c.want.Reordered || got.Damaged != c.want.Damaged || got.Foreign != c.want.Foreign {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
		if (c.says == "") != (problems == "") || !strings.Contains(problems, c.says) {
			t.Errorf("%s: told %q, want %q", name, problems, c.says)
		}
		if ok := got.OK(); ok != (got.Damaged+got.Doubled+got.Reordered == 0) {
			t.Errorf("%s: OK is %t", name, ok)
		}
	}
}

// Ledgers of different partitions make one.
func TestLedgerMerge(t *testing.T) {
	t.Parallel()
	l := book(rec(0, 1, 0), rec(0, 1, 2), rec(0, 2, 0))
	l.merge(book(rec(1, 1, 1), rec(1, 1, 200), rec(1, 3, 0), rec(1, 2, 0)))
	v := l.verification(nil, 0)
	if v.Records != 7 || v.Producers != 3 || v.Missing != 197 || v.Doubled != 1 || v.OK() {
		t.Errorf("%+v", v)
	}
}

func TestProblemsAreFew(t *testing.T) {
	t.Parallel()
	var entries []entry
	for range 100 {
		entries = append(entries, rec(0, 1, 0))
	}
	if v := book(entries...).verification(nil, 0); len(v.Problems) != maxProblems || v.Doubled != 99 {
		t.Errorf("%+v", v)
	}
}

// What is missing is excused by log starts only as far as these explain it: it
// was below the start of a partition, and there are no more of them than that.
// Nothing but the number that is expected shows a tail that is gone.
func TestLostRecords(t *testing.T) {
	t.Parallel()
	gap := []entry{rec(0, 1, 0), rec(1, 1, 1), rec(0, 1, 3)} // 2 is missing, of partition 0 or 1
	for name, c := range map[string]struct {
		entries       []entry
		starts        map[int32]int64
		expected      int64
		missing, lost int64
	}{
		"from the beginning":                   {gap, map[int32]int64{0: 0, 1: 0}, 0, 1, 1},
		"behind the first of a trimmed one":    {gap, map[int32]int64{0: 5, 1: 0}, 0, 1, 1},
		"in front of the first of it":          {[]entry{rec(0, 1, 2), rec(1, 1, 1)}, map[int32]int64{0: 1, 1: 0}, 0, 1, 0},
		"more than were trimmed":               {[]entry{rec(0, 1, 9), rec(1, 1, 1)}, map[int32]int64{0: 3, 1: 0}, 0, 8, 5},
		"another producer's partition":         {gap, map[int32]int64{0: 0, 2: 4}, 0, 1, 0},
		"all there":                            {[]entry{rec(0, 1, 0), rec(1, 1, 1)}, nil, 2, 0, 0},
		"a tail that is gone":                  {[]entry{rec(0, 1, 0), rec(1, 1, 1)}, nil, 5, 3, 3},
		"a producer that is gone":              {[]entry{rec(0, 1, 0), rec(1, 1, 1)}, nil, 102, 100, 100},
		"trimmed, and the rest is there":       {[]entry{rec(0, 1, 2), rec(1, 1, 3)}, map[int32]int64{0: 1, 1: 1}, 4, 2, 0},
		"trimmed, and a tail that is gone":     {[]entry{rec(0, 1, 2), rec(1, 1, 3)}, map[int32]int64{0: 1, 1: 1}, 10, 8, 6},
		"trimmed, and a gap and a tail":        {[]entry{rec(0, 1, 2), rec(1, 1, 5)}, map[int32]int64{0: 1, 1: 1}, 8, 6, 4},
		"more than expected":                   {[]entry{rec(0, 1, 0), rec(1, 1, 1)}, nil, 1, 0, 0},
		"a gap, and as many others as thought": {gap, map[int32]int64{0: 0}, 3, 1, 1},
	} {
		v := book(c.entries...).verification(c.starts, c.expected)
		if v.Missing != c.missing || v.Lost != c.lost {
			t.Errorf("%s: %d missing, %d lost, want %d and %d", name, v.Missing, v.Lost, c.missing, c.lost)
		}
		if (len(v.Problems) == 0) != (c.missing == 0) {
			t.Errorf("%s: told %q", name, v.Problems)
		}
	}
	l := book(rec(0, 1, 0), rec(0, 1, 4))
	l.merge(book(rec(1, 1, 3)))
	if v := l.verification(map[int32]int64{1: 2}, 0); v.Missing != 2 || v.Lost != 0 {
		t.Errorf("of two ledgers: %+v", v)
	}
}

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
		got := *book(c.entries...).verification()
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
	v := l.verification()
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
	if v := book(entries...).verification(); len(v.Problems) != maxProblems || v.Doubled != 99 {
		t.Errorf("%+v", v)
	}
}

package bench

import (
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"math"
	"math/bits"
)

// maxProblems bounds the problems that are told one by one.
const maxProblems = 10

// Verification is what a consumer found when it checked every record.
type Verification struct {
	Records   int64    `json:"records"`
	Producers int      `json:"producers"` // runs times producers whose records were seen
	Foreign   int64    `json:"foreign"`   // not written by a benchmark: not checked
	Damaged   int64    `json:"damaged"`
	Doubled   int64    `json:"doubled"`
	Reordered int64    `json:"reordered"` // a lower number after a higher one of the same producer
	Missing   int64    `json:"missing"`   // numbers below the highest one that never came, or what there is less than was expected
	Lost      int64    `json:"lost"`      // of Missing, those that no log start above 0 explains
	Expected  int64    `json:"expected,omitempty"`
	Excused   bool     `json:"excused"`  // what is missing was not read, or may have been deleted
	Problems  []string `json:"problems"` // the first ones
}

// OK reports whether every record was there once, in order and undamaged.
// Missing is the caller's to judge: retention may have taken what is missing, and
// the records behind the highest number of a producer are missed by nobody who
// does not know how many there were.
func (v *Verification) OK() bool { return v.Damaged == 0 && v.Doubled == 0 && v.Reordered == 0 }

// source is who wrote a record.
type source struct {
	run      uint64
	producer uint32
}

// place is where one producer's records are in order.
type place struct {
	source
	partition int32
}

// seen are the numbers of one producer.
type seen struct {
	bits []uint64
	next uint64 // above the highest one
}

// maxNumber bounds the numbers that are believed, and so the memory for them.
const maxNumber = 1 << 36

func (s *seen) add(n uint64) (again bool) {
	word := int(n / 64)
	for len(s.bits) <= word {
		s.bits = append(s.bits, 0)
	}
	again = s.bits[word]&(1<<(n%64)) != 0
	s.bits[word] |= 1 << (n % 64)
	s.next = max(s.next, n+1)
	return again
}

// missing counts the numbers below a bound that never came.
func (s *seen) missing(below uint64) (n uint64) {
	for i := range min(below, s.next) {
		if s.bits[i/64]&(1<<(i%64)) == 0 {
			n++
		}
	}
	return n
}

func (s *seen) count() (n uint64) {
	for _, w := range s.bits {
		n += uint64(bits.OnesCount64(w))
	}
	return n
}

// ledger checks records. It belongs to one goroutine.
type ledger struct {
	table   *crc32.Table
	sources map[source]*seen
	first   map[place]uint64 // the lowest number
	last    map[place]uint64 // the number that is expected next at least
	found   Verification
}

func newLedger() *ledger {
	return &ledger{table: castagnoli(), sources: map[source]*seen{}, first: map[place]uint64{}, last: map[place]uint64{}, found: Verification{Problems: []string{}}}
}

func (l *ledger) problem(format string, args ...any) {
	if len(l.found.Problems) < maxProblems {
		l.found.Problems = append(l.found.Problems, fmt.Sprintf(format, args...))
	}
}

// add checks the next record of a partition.
func (l *ledger) add(partition int32, offset int64, value []byte) {
	l.found.Records++
	st, err := open(value, l.table)
	switch {
	case errors.Is(err, errNoStamp):
		l.found.Foreign++
		return
	case err == nil && st.number >= maxNumber:
		err = fmt.Errorf("its number is %d", st.number)
	}
	if err != nil {
		l.found.Damaged++
		l.problem("partition %d, offset %d: the record is damaged: %v", partition, offset, err)
		return
	}
	src := source{st.run, st.producer}
	if l.sources[src] == nil {
		l.sources[src] = &seen{}
	}
	if l.sources[src].add(st.number) {
		l.found.Doubled++
		l.problem("partition %d, offset %d: record %d of producer %d is there twice", partition, offset, st.number, st.producer)
	}
	p := place{src, partition}
	if first, ok := l.first[p]; !ok || st.number < first {
		l.first[p] = st.number
	}
	if next := l.last[p]; st.number+1 < next {
		l.found.Reordered++
		l.problem("partition %d, offset %d: record %d of producer %d comes after %d", partition, offset, st.number, st.producer, next-1)
	}
	l.last[p] = max(l.last[p], st.number+1)
}

// merge brings the records of another ledger, of other partitions, into l. A
// record that both have is there twice.
func (l *ledger) merge(o *ledger) {
	maps.Copy(l.first, o.first)
	for src, theirs := range o.sources {
		ours := l.sources[src]
		if ours == nil {
			l.sources[src] = theirs
			continue
		}
		for len(ours.bits) < len(theirs.bits) {
			ours.bits = append(ours.bits, 0)
		}
		for i, w := range theirs.bits {
			l.found.Doubled += int64(bits.OnesCount64(ours.bits[i] & w))
			ours.bits[i] |= w
		}
		ours.next = max(ours.next, theirs.next)
	}
	l.found.Records += o.found.Records
	l.found.Foreign += o.found.Foreign
	l.found.Damaged += o.found.Damaged
	l.found.Doubled += o.found.Doubled
	l.found.Reordered += o.found.Reordered
	for _, p := range o.found.Problems {
		l.problem("%s", p)
	}
}

// verification counts what is missing and returns everything. starts are the log
// starts of the partitions: what was below them may have been deleted. expected
// is how many records there should be, 0: nobody knows.
func (l *ledger) verification(starts map[int32]int64, expected int64) *Verification {
	v := l.found
	v.Producers, v.Expected = len(l.sources), expected
	var have, below, deleted int64
	for _, start := range starts {
		deleted += start
	}
	for src, s := range l.sources {
		have += int64(s.count())
		n := s.next - s.count()
		if n == 0 {
			continue
		}
		v.Missing += int64(n)
		below += int64(s.missing(l.explained(src, starts)))
		if len(v.Problems) < maxProblems {
			v.Problems = append(v.Problems, fmt.Sprintf("producer %d of run %016x: %d of its first %d records are not there", src.producer, src.run, n, s.next))
		}
	}
	v.Lost = v.Missing - min(below, deleted)
	if expected == 0 {
		return &v
	}
	if short := expected - have; short > v.Missing && len(v.Problems) < maxProblems {
		v.Problems = append(v.Problems, fmt.Sprintf("%d records are there and %d were expected", have, expected))
	}
	v.Missing, v.Lost = max(v.Missing, expected-have), max(v.Lost, expected-have-deleted)
	return &v
}

// explained is the number below which a producer's records may have been in front
// of a log start: in each partition they are in order.
func (l *ledger) explained(src source, starts map[int32]int64) (below uint64) {
	for p, start := range starts {
		first, ok := l.first[place{src, p}]
		switch {
		case start == 0:
		case ok:
			below = max(below, first)
		default:
			below = math.MaxUint64
		}
	}
	return below
}

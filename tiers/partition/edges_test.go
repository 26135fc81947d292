package partition

import (
	"fmt"
	"testing"

	"github.com/strandline-io/strandline/remoteindex"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/batch"
	"github.com/strandline-io/strandline/tiers/remote"
)

// TestR15AbsenceIsNotOutOfRange: rows that lack a segment of the log have lost
// something. A consumer that were told "out of range" would reset and skip what is
// behind it; it is told to try again.
func TestR15AbsenceIsNotOutOfRange(t *testing.T) {
	_, d := tiered(t)
	v, drop := d.pinned()
	var rows []tiers.RemoteSegment
	for row := range v.index.All() {
		if row.Base != 2 {
			rows = append(rows, row)
		}
	}
	x, err := remoteindex.New(d.s.id.ID, d.s.id.Gen, rows)
	if err != nil {
		t.Fatal(err)
	}
	lost := *v
	lost.index = x
	for from := range tiers.Offset(8) {
		_, err := d.readUnder(t.Context(), &lost, read(from))
		want := tiers.Other
		if from == 2 || from == 3 {
			want = tiers.NotLeader
		}
		if tiers.KindOf(err) != want || (err == nil) != (want == tiers.Other) {
			t.Errorf("offset %d: %v", from, err)
		}
	}
	drop()
	d.end()
}

// TestR16AbortBehindASegmentWithOthers: aborts of a segment that do not overlap
// what is read do not end the search for the one that does.
func TestR16AbortBehindASegmentWithOthers(t *testing.T) {
	w := newWorld(t)
	d := w.drive()
	d.must(build(batch.Builder{ProducerID: 11, Transactional: true}, 1000, "0"))
	d.mark(11, false) // 0 1
	d.must(txn(0, "2"), one("3"))
	d.roll()
	d.mark(9, false) // 4
	d.roll()
	d.must(one("5"))
	d.runAll()
	for _, drop := range []tiers.Offset{0, 4, 5} {
		d.dropLocal(drop)
		r := read(2)
		r.Isolation = ReadCommitted
		if got := fmt.Sprint(aborted(mustRead(t, d.Owner, r).Aborted)); got != "[9:2-4]" {
			t.Errorf("local from %d: aborted %s", drop, got)
		}
	}
	d.end()
}

// TestR2CompanionOfAnother: a store that gives back a companion that is whole, but
// not the one that was sent, has not stored the segment.
func TestR2CompanionOfAnother(t *testing.T) {
	w := newWorld(t)
	w.cache.Close()
	w.cache = remote.NewCache(lyingBucket{w.bucket, ".meta", func(b []byte) []byte {
		m, err := remote.DecodeMeta(b)
		if err != nil {
			t.Fatal(err)
		}
		m.TopicName = "others" // As long as the right one.
		if b, err = remote.EncodeMeta(m); err != nil {
			t.Fatal(err)
		}
		return b
	}, map[string]uint32{}}, remote.CacheOptions{})
	d := w.drive()
	d.fill(3)
	d.roll()
	d.runAll()
	if v := d.View(); v.RemoteEnd != 0 || len(w.bucket.Keys("")) != 0 {
		t.Fatalf("remote end %d, keys %v", v.RemoteEnd, w.bucket.Keys(""))
	}
	d.end()
}

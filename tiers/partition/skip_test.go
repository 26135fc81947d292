package partition

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/batch"
)

// TestReadDoesNotSkipALargeBatch: a batch that is larger than the reader asked
// for ends the answer; what comes behind it is not answered in its place,
// whichever tier it is in (R15).
func TestReadDoesNotSkipALargeBatch(t *testing.T) {
	large := strings.Repeat("x", 5000)
	for _, c := range []struct {
		name string
		drop tiers.Offset // what is in the bucket only ends here
	}{{"next segment of the bucket", 4}, {"from the bucket to the disk", 2}, {"on disk", 0}} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			d := w.drive()
			for range 2 {
				d.must(one(large), one("small"))
				d.roll()
			}
			d.must(one("tail"))
			d.runAll()
			d.dropLocal(c.drop)
			r := read(0)
			r.MaxBytes, r.MinOne = 1000, false
			if res := mustRead(t, d.Owner, r); len(res.Records) != 0 {
				t.Fatalf("offset 0 was skipped: got %d records", len(values(t, res.Records)))
			}
			r.MinOne = true
			if got := values(t, mustRead(t, d.Owner, r).Records); got[0] != large {
				t.Fatalf("got %d records, offset 0 is not among them", len(got))
			}
			d.end()
		})
	}
}

// TestReadBeginsAtFrom: the first batch of an answer holds the offset that was
// asked for, whatever the sizes, the limits and the tiers are. An answer is empty
// only where that batch is larger than what was asked for.
func TestReadBeginsAtFrom(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t)
		d := w.drive()
		var sizes []int64
		var bases, bounds []tiers.Offset
		for range rapid.IntRange(1, 5).Draw(rt, "segments") {
			for range rapid.IntRange(1, 4).Draw(rt, "batches") {
				vs := make([]string, rapid.IntRange(1, 3).Draw(rt, "records"))
				for i := range vs {
					vs[i] = strings.Repeat("v", rapid.SampledFrom([]int{1, 100, 900, 3000}).Draw(rt, "value"))
				}
				b := many(vs...)
				bases, sizes = append(bases, d.View().LogEnd), append(sizes, int64(len(b)))
				d.must(b)
			}
			d.roll()
			bounds = append(bounds, d.View().LogEnd)
		}
		d.runAll()
		d.dropLocal(rapid.SampledFrom(append(bounds, 0)).Draw(rt, "local start"))
		end := d.View().HighWatermark
		for at := range 8 {
			r := read(tiers.Offset(rapid.IntRange(0, int(end)-1).Draw(rt, "from")))
			r.MaxBytes, r.MinOne = rapid.IntRange(0, 5000).Draw(rt, "max"), rapid.Bool().Draw(rt, "min one")
			res, err := d.Read(t.Context(), r)
			if err != nil {
				rt.Fatal(err)
			}
			i := 0
			for i+1 < len(bases) && bases[i+1] <= r.From {
				i++
			}
			fits := r.MinOne || sizes[i] <= int64(r.MaxBytes)
			if !fits {
				if len(res.Records) > 0 {
					rt.Fatalf("%d: from %d: %d bytes, the first batch of %d does not fit into %d", at, r.From, len(res.Records), sizes[i], r.MaxBytes)
				}
				continue
			}
			h, err := batch.Parse(res.Records)
			if err != nil || h.BaseOffset != bases[i] {
				rt.Fatalf("%d: from %d: begins at %d, want %d (%v)", at, r.From, h.BaseOffset, bases[i], err)
			}
		}
		d.end()
		w.stop()
	})
}

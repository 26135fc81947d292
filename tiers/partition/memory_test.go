package partition

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/local"
)

// TestProducersExpireByTheClock: an idle partition forgets its producers, and is
// woken for it only while it has some.
func TestProducersExpireByTheClock(t *testing.T) {
	w := newWorld(t)
	clock := time.Unix(1000, 0)
	w.now = func() time.Time { return clock }
	d := w.drive()
	d.step((*state).onTick)
	if got := d.s.untilWake(); got != retainEvery {
		t.Fatalf("without producers: wakes after %s", got)
	}
	d.must(idempotent(5, 0, 0, "0"))
	d.s.retain.every, d.s.retain.at = 24*time.Hour, clock.Add(48*time.Hour)
	if got := d.s.untilWake(); got != expiryInterval {
		t.Fatalf("with a producer: wakes after %s", got)
	}
	for wakes := 0; d.s.local.Producers().Len() > 0; wakes++ {
		if wakes > 200 {
			t.Fatal("the producer is never forgotten")
		}
		if age := clock.Sub(time.Unix(1000, 0)); age > 24*time.Hour+expiryInterval {
			t.Fatalf("remembered after %s", age)
		}
		clock = clock.Add(d.s.untilWake())
		d.step((*state).onTick)
	}
	if age := clock.Sub(time.Unix(1000, 0)); age <= 24*time.Hour {
		t.Fatalf("forgotten after %s", age)
	}
	d.end()
}

// TestGroupMemoryIsShared: partitions that wrote groups keep no memory for the
// next one.
func TestGroupMemoryIsShared(t *testing.T) {
	const partitions, size = 24, 1 << 19
	w := newWorld(t)
	w.stop()
	w.files = fsys.OS{}
	root := t.TempDir()
	disk, err := local.OpenDisk(w.files, root, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	w.startOn(disk)
	w.config.Remote, w.config.Ack = false, AckOS
	w.config.Local.SegmentBytes = 8 << 20
	all := make([]*driven, partitions)
	for i := range all {
		w.id.ID.Index, w.id.Name.Partition = int32(i), int32(i)
		w.tweak = func(d *Deps) { d.Dir = filepath.Join(root, fmt.Sprint("orders-", i)) }
		all[i] = w.drive()
	}
	a, b := one(strings.Repeat("a", size)), one(strings.Repeat("b", size))
	before := heap()
	for _, d := range all {
		for _, c := range d.append(a, b) {
			if c.err != nil {
				t.Fatal(c.err)
			}
		}
	}
	if kept := heap() - before; kept > partitions*size/2 {
		t.Errorf("%d partitions at rest keep %d bytes", partitions, kept)
	}
	for _, d := range all {
		if got := values(t, mustRead(t, d.Owner, ReadRequest{From: 0, CurrentEpoch: tiers.NoEpoch, FetchedEpoch: tiers.NoEpoch, MaxBytes: 4 << 20}).Records); len(got) != 2 || got[1][0] != 'b' {
			t.Fatalf("%d records", len(got))
		}
		d.end()
	}
}

// heap is the memory that is in use after what nobody needs was given back; what
// pools keep goes with the second round.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

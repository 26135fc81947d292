package local

import (
	"math"
	"testing"
	"time"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/batch"
	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/fsys/mem"
)

// idempotent is the header of a batch of n records of a producer.
func idempotent(id int64, epoch int16, seq int32, base tiers.Offset, n int32) batch.Header {
	return batch.Header{ProducerID: id, ProducerEpoch: epoch, BaseSequence: seq, BaseOffset: base, LastOffsetDelta: n - 1, Count: n}
}

func transactional(h batch.Header) batch.Header {
	h.Attributes |= 16
	return h
}

// withBatches is the state after batches.
func withBatches(hs ...batch.Header) *Producers {
	p := newProducers("a-0")
	for _, h := range hs {
		p.apply(h, marker{}, time.Time{})
	}
	return p
}

func TestProducersCheck(t *testing.T) {
	six := []batch.Header{}
	for i := range int32(6) {
		six = append(six, idempotent(7, 1, i*10, tiers.Offset(100+i*10), 10))
	}
	unknownStart := []batch.Header{idempotent(7, 1, 40, 100, 10)}
	wrapped := []batch.Header{idempotent(7, 1, math.MaxInt32-4, 100, 10)} // sequences max-4 .. 4
	open := []batch.Header{transactional(idempotent(7, 1, 0, 100, 10))}
	none := tiers.Kind(255)
	cases := []struct {
		name    string
		state   []batch.Header
		pending []batch.Header
		h       batch.Header
		kind    tiers.Kind // none: it passes
		dup     tiers.Offset
	}{
		{"no producer id", six, nil, idempotent(-1, -1, -1, 0, 1), none, 0},
		{"unknown producer, sequence 0", nil, nil, idempotent(7, 0, 0, 0, 1), none, 0},
		{"unknown producer, any sequence, as in Kafka", nil, nil, idempotent(7, 0, 17, 0, 1), none, 0},
		{"next", six, nil, idempotent(7, 1, 60, 0, 1), none, 0},
		{"gap", six, nil, idempotent(7, 1, 61, 0, 1), tiers.OutOfOrderSequence, 0},
		{"last again", six, nil, idempotent(7, 1, 50, 0, 10), none, 150},
		{"fifth again", six, nil, idempotent(7, 1, 10, 0, 10), none, 110},
		{"sixth again", six, nil, idempotent(7, 1, 0, 0, 10), tiers.DuplicateSequence, 0},
		{"part of the last", six, nil, idempotent(7, 1, 55, 0, 5), tiers.DuplicateSequence, 0},
		{"overlap of the last and the next", six, nil, idempotent(7, 1, 55, 0, 10), tiers.OutOfOrderSequence, 0},
		{"below a start that is not 0 may never have been written", unknownStart, nil, idempotent(7, 1, 30, 0, 10), tiers.OutOfOrderSequence, 0},
		{"old epoch", six, nil, idempotent(7, 0, 60, 0, 1), tiers.InvalidProducerEpoch, 0},
		{"old epoch, remembered sequences", six, nil, idempotent(7, 0, 50, 0, 10), tiers.InvalidProducerEpoch, 0},
		{"new epoch begins at 0", six, nil, idempotent(7, 2, 0, 0, 1), none, 0},
		{"new epoch begins elsewhere", six, nil, idempotent(7, 2, 60, 0, 1), tiers.OutOfOrderSequence, 0},
		{"other producer", six, nil, idempotent(8, 0, 0, 0, 1), none, 0},
		{"after a wrap", wrapped, nil, idempotent(7, 1, 5, 0, 1), none, 0},
		{"wrapped again", wrapped, nil, idempotent(7, 1, math.MaxInt32-4, 0, 10), none, 100},
		{"after the largest comes 0", []batch.Header{idempotent(7, 1, math.MaxInt32, 100, 1)}, nil, idempotent(7, 1, 0, 0, 1), none, 0},
		{"pending", six, []batch.Header{idempotent(7, 1, 60, 160, 10)}, idempotent(7, 1, 70, 0, 1), none, 0},
		{"pending again", six, []batch.Header{idempotent(7, 1, 60, 160, 10)}, idempotent(7, 1, 60, 0, 10), none, 160},
		{"pending of an unknown producer", nil, []batch.Header{idempotent(7, 0, 0, 160, 10)}, idempotent(7, 0, 11, 0, 10), tiers.OutOfOrderSequence, 0},
		{"pending of another producer", six, []batch.Header{idempotent(8, 1, 60, 160, 10)}, idempotent(7, 1, 60, 0, 10), none, 0},
		{"inside of the transaction", open, nil, transactional(idempotent(7, 1, 10, 0, 1)), none, 0},
		{"outside of the open transaction", open, nil, idempotent(7, 1, 10, 0, 1), tiers.InvalidRecord, 0},
	}
	for _, c := range cases {
		base, dup, err := withBatches(c.state...).Check(c.h, c.pending)
		kind := none
		if err != nil {
			kind = tiers.KindOf(err)
		}
		if kind != c.kind || dup != (c.dup != 0) || base != c.dup {
			t.Errorf("%s: base %d, duplicate %t, %v", c.name, base, dup, err)
		}
	}
}

// Check must not change the state, whatever is pending.
func TestProducersCheckChangesNothing(t *testing.T) {
	p := withBatches(idempotent(7, 1, 0, 100, 10))
	before := string(p.snapshot())
	for range 3 {
		if _, _, err := p.Check(idempotent(7, 1, 20, 0, 1), []batch.Header{idempotent(7, 1, 10, 110, 10)}); err != nil {
			t.Fatal(err)
		}
	}
	if string(p.snapshot()) != before {
		t.Error("Check changed the state")
	}
}

func TestProducersTransactions(t *testing.T) {
	p := withBatches(
		transactional(idempotent(7, 0, 0, 100, 5)),
		transactional(idempotent(8, 0, 0, 105, 5)),
		transactional(idempotent(7, 0, 5, 110, 5)),
	)
	if got := p.firstUndecided(115); got != 100 {
		t.Errorf("first undecided %d, want 100", got)
	}
	end := func(id int64, epoch int16, at tiers.Offset, abort bool) (AbortedTxn, bool) {
		h := idempotent(id, epoch, -1, at, 1)
		h.Attributes |= 16 | 32
		return p.apply(h, marker{ends: true, abort: abort, coordinatorEpoch: 1}, time.Time{})
	}
	a, ok := end(7, 0, 115, true)
	if want := (AbortedTxn{7, 100, 115, 105}); !ok || a != want {
		t.Errorf("aborted %+v, %t, want %+v", a, ok, want)
	}
	if got := p.firstUndecided(116); got != 105 {
		t.Errorf("first undecided %d, want 105", got)
	}
	if a, ok := end(8, 1, 116, false); ok { // the marker of a bumped epoch (KIP-890)
		t.Errorf("a commit gave the index entry %+v", a)
	}
	if got := p.firstUndecided(117); got != 117 {
		t.Errorf("first undecided %d, want the end", got)
	}
	if a, ok := end(8, 1, 117, true); ok {
		t.Errorf("an abort without records gave the index entry %+v", a)
	}
	if _, _, err := p.Check(transactional(idempotent(8, 1, 0, 0, 1)), nil); err != nil {
		t.Errorf("sequence 0 after the marker of a new epoch: %v", err)
	}
	if _, _, err := p.Check(transactional(idempotent(8, 1, 5, 0, 1)), nil); tiers.KindOf(err) != tiers.OutOfOrderSequence {
		t.Errorf("sequence 5 after the marker of a new epoch: %v", err)
	}
}

func TestProducersExpire(t *testing.T) {
	p := newProducers("a-0")
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	p.apply(idempotent(7, 0, 0, 0, 1), marker{}, at(10))
	p.apply(idempotent(8, 0, 0, 1, 1), marker{}, at(20))
	p.apply(transactional(idempotent(9, 0, 0, 2, 1)), marker{}, at(10))
	if n := p.Expire(at(20)); n != 1 || p.byID[7] != nil || p.byID[8] == nil || p.byID[9] == nil {
		t.Errorf("expired %d, left %v", n, p.byID)
	}
}

// A producer that is silent for longer than Config.ProducerExpiry is in no
// snapshot that a roll or a clean stop makes (producer.id.expiration.ms).
func TestExpiredProducersAreInNoSnapshot(t *testing.T) {
	for _, how := range []string{"roll", "clean"} {
		n := newNode(t, mem.New())
		l := n.open()
		must(t, put(l, build(t, batch.Builder{LeaderEpoch: 1, ProducerID: 7}, l.LogEnd(), 1)))
		n.clock.t = n.clock.t.Add(24 * time.Hour)
		must(t, put(l, build(t, batch.Builder{LeaderEpoch: 1, ProducerID: 8}, l.LogEnd(), 1)))
		if got := l.ExpireProducers(); got != 0 || l.Producers().Len() != 2 {
			t.Errorf("%s: %d expired after just a day", how, got)
		}
		n.clock.t = n.clock.t.Add(time.Millisecond)
		if how == "roll" {
			must(t, l.Roll())
			if l.Producers().Len() != 1 {
				t.Errorf("%d producers after the roll, want 1", l.Producers().Len())
			}
		}
		must(t, l.Close())
		must(t, n.disk.Close())
		l = n.open()
		if p := l.Producers(); p.Len() != 1 || p.byID[8] == nil {
			t.Errorf("%s: %v after the next start", how, p.byID)
		}
		n.conf.ProducerExpiry = time.Hour
		l.Configure(n.conf)
		n.clock.t = n.clock.t.Add(time.Hour + 1)
		if l.ExpireProducers() != 1 {
			t.Errorf("%s: the setting does not count", how)
		}
		must(t, l.Close())
		must(t, n.disk.Close())
	}
}

// The last five batches of a producer are known after a clean stop, after a crash
// in the middle of a segment, and after a crash right after a roll.
func TestProducersSurviveRestart(t *testing.T) {
	for _, how := range []string{"clean", "crash", "roll, crash", "truncate"} {
		n := newNode(t, mem.New())
		l := n.open()
		b := batch.Builder{LeaderEpoch: 1, ProducerID: 7, ProducerEpoch: 2}
		for i := range int32(8) {
			b.BaseSequence = i * 2
			must(t, put(l, build(t, b, l.LogEnd(), 2)))
		}
		must(t, l.Sync())
		switch how {
		case "clean":
			n.close()
			l = n.open()
		case "crash":
			l = n.losePower()
		case "roll, crash":
			must(t, l.Roll())
			l = n.losePower()
		case "truncate":
			must(t, l.Roll())
			add(t, l, 1, 1)
			must(t, l.TruncateTo(16))
		}
		for i := range int32(8) {
			base, dup, err := l.Producers().Check(idempotent(7, 2, i*2, 0, 2), nil)
			switch {
			case i >= 3 && (!dup || base != tiers.Offset(i*2)):
				t.Errorf("%s: batch %d again: base %d, duplicate %t, %v", how, i, base, dup, err)
			case i < 3 && err == nil:
				t.Errorf("%s: batch %d again was accepted", how, i)
			}
		}
		if _, dup, err := l.Producers().Check(idempotent(7, 2, 16, 0, 1), nil); dup || err != nil {
			t.Errorf("%s: the next sequence: %t, %v", how, dup, err)
		}
		n.close()
	}
}

// A producer snapshot that is damaged or missing is replaced by an older one and
// a replay.
func TestProducersReplayFromOlderSnapshot(t *testing.T) {
	for _, damage := range []string{"missing", "zeroed", "cut"} {
		n := newNode(t, mem.New())
		l := n.open()
		b := batch.Builder{LeaderEpoch: 1, ProducerID: 7}
		for i := range int32(6) {
			b.BaseSequence = i
			must(t, put(l, build(t, b, l.LogEnd(), 1)))
			if i%2 == 1 {
				must(t, l.Roll())
			}
		}
		must(t, n.disk.Checkpoint())
		for _, base := range []tiers.Offset{4, 6} {
			spoil(t, n.fs, n.file(base, snapshotSuffix), damage)
		}
		l = n.crash()
		if n.rec.Scanned != 1 {
			t.Errorf("%s: scanned %d segments", damage, n.rec.Scanned)
		}
		for i := int32(1); i < 6; i++ {
			if base, dup, err := l.Producers().Check(idempotent(7, 0, i, 0, 1), nil); !dup || base != tiers.Offset(i) {
				t.Errorf("%s: batch %d again: base %d, duplicate %t, %v", damage, i, base, dup, err)
			}
		}
		n.close()
	}
}

// A snapshot of a history that was cut is not used for the one that follows.
func TestProducerSnapshotOfCutHistory(t *testing.T) {
	n := newNode(t, mem.New())
	l := n.open()
	b := batch.Builder{LeaderEpoch: 1, ProducerID: 7}
	for i := range int32(4) {
		b.BaseSequence = i
		must(t, put(l, build(t, b, l.LogEnd(), 1)))
	}
	n.close() // snapshot at 4: sequence 3
	l = n.open()
	must(t, l.TruncateTo(2))
	add(t, l, 2, 4)
	must(t, l.Roll()) // at 6
	must(t, n.disk.Checkpoint())
	spoil(t, n.fs, n.file(6, snapshotSuffix), "zeroed")
	l = n.crash()
	if _, dup, err := l.Producers().Check(idempotent(7, 0, 2, 0, 1), nil); dup || err != nil {
		t.Errorf("sequence 2 comes next: duplicate %t, %v", dup, err)
	}
	n.close()
}

// spoil damages a file.
func spoil(tb testing.TB, fs fsys.FS, name, how string) {
	tb.Helper()
	b, err := fsys.ReadFile(fs, name)
	must(tb, err)
	switch how {
	case "missing":
		must(tb, fs.Remove(name))
		return
	case "empty":
		b = nil
	case "zeroed":
		clear(b)
	case "cut":
		b = b[:len(b)/2]
	case "cut by an entry":
		b = b[:max(0, len(b)-12)]
	case "extended by zeros":
		b = append(b, make([]byte, 24)...)
	case "extended by garbage":
		for range 24 {
			b = append(b, 0xa5)
		}
	default:
		tb.Fatalf("unknown damage %q", how)
	}
	must(tb, fsys.WriteFileAtomic(fs, name, b, 0o644))
}

package local

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/batch"
)

// keptBatches is how many batches of a producer are remembered, so that it may
// have as many in flight and send any of them again.
const keptBatches = 5

// noSequence stands for the sequence of a producer without batches.
const noSequence int32 = -1

// Producers is the state of producers of one partition (spec s1.4): per producer
// id its epoch, its last five batches and its open transaction. It belongs to
// the owner of the log.
type Producers struct {
	place string
	byID  map[int64]*producer
	open  map[int64]tiers.Offset // first offset of the open transaction, by producer id
}

// producer is what is known of one producer id.
type producer struct {
	epoch            int16
	coordinatorEpoch int32
	timestamp        int64        // newest of its last batch or marker
	txnFirst         tiers.Offset // NoOffset: no open transaction
	seen             time.Time    // when it last wrote, or was read from disk
	// whole says that the batches of this epoch were seen from sequence 0 on, so
	// a sequence below the last one is known to be in the log.
	whole   bool
	batches [keptBatches]producerBatch
	n       int
}

type producerBatch struct {
	lastSequence int32
	last         tiers.Offset
	delta        int32 // number of records minus one
	timestamp    int64
}

func (b producerBatch) firstSequence() int32 { return wrap(int64(b.lastSequence) - int64(b.delta)) }
func (b producerBatch) base() tiers.Offset   { return b.last - tiers.Offset(b.delta) }

// wrap brings a sequence into [0, 2^31): the one after the largest is 0.
func wrap(s int64) int32 { return int32(s & math.MaxInt32) }

func newProducers(place string) *Producers {
	return &Producers{place: place, byID: map[int64]*producer{}, open: map[int64]tiers.Offset{}}
}

// Check says whether a batch of a client may be appended. duplicate is true if it
// was appended before: then base is the offset that it got. The error kinds are
// InvalidProducerEpoch (47), OutOfOrderSequence (45), DuplicateSequence (46),
// InvalidRecord for a batch outside of its producer's open transaction. A batch
// without a producer id always passes. pending are the headers of batches that
// will be appended before it.
//
// As in Kafka, a producer of which nothing is known may begin with any sequence:
// its records may have been removed by retention.
func (p *Producers) Check(h batch.Header, pending []batch.Header) (base tiers.Offset, duplicate bool, err error) {
	if h.ProducerID < 0 {
		return 0, false, nil
	}
	var now producer
	known := p.byID[h.ProducerID]
	if known != nil {
		now = *known
	}
	for _, q := range pending {
		if q.ProducerID != h.ProducerID {
			continue
		}
		if known == nil {
			now, known = producer{txnFirst: tiers.NoOffset}, &now
		}
		now.expect(q)
	}
	if known == nil {
		return 0, false, nil
	}
	if b, ok := now.find(h); ok {
		return b.base(), true, nil
	}
	return 0, false, now.check(h, p.place)
}

// find returns the remembered batch with exactly these sequences.
func (p *producer) find(h batch.Header) (producerBatch, bool) {
	if h.ProducerEpoch != p.epoch {
		return producerBatch{}, false
	}
	for _, b := range p.batches[:p.n] {
		if b.firstSequence() == h.BaseSequence && b.lastSequence == h.LastSequence() {
			return b, true
		}
	}
	return producerBatch{}, false
}

// check is Kafka's ProducerAppendInfo for data batches of clients.
func (p *producer) check(h batch.Header, place string) error {
	const op = "check producer"
	last := p.lastSequence()
	switch {
	case h.ProducerEpoch < p.epoch:
		return tiers.E(tiers.InvalidProducerEpoch, op, place, "producer %d has epoch %d, the newest is %d: a newer producer took over", h.ProducerID, h.ProducerEpoch, p.epoch)
	case p.txnFirst != tiers.NoOffset && !h.Transactional():
		return tiers.E(tiers.InvalidRecord, op, place, "producer %d has an open transaction since offset %d, its batch is not part of one", h.ProducerID, p.txnFirst)
	case h.ProducerEpoch > p.epoch && h.BaseSequence != 0:
		return tiers.E(tiers.OutOfOrderSequence, op, place, "producer %d begins epoch %d with sequence %d, not 0", h.ProducerID, h.ProducerEpoch, h.BaseSequence)
	case h.ProducerEpoch > p.epoch || h.BaseSequence == p.nextSequence():
		return nil
	case p.wroteLongAgo(h):
		return tiers.E(tiers.DuplicateSequence, op, place, "producer %d wrote sequences %d to %d long before %d", h.ProducerID, h.BaseSequence, h.LastSequence(), last)
	}
	return tiers.E(tiers.OutOfOrderSequence, op, place, "producer %d sends sequence %d, %d comes after %d", h.ProducerID, h.BaseSequence, p.nextSequence(), last)
}

func (p *producer) lastSequence() int32 {
	if p.n == 0 {
		return noSequence
	}
	return p.batches[p.n-1].lastSequence
}

// nextSequence is the sequence that must come; 0 after the largest, and for a
// producer of which only a marker is known.
func (p *producer) nextSequence() int32 { return wrap(int64(p.lastSequence()) + 1) }

// wroteLongAgo reports whether the sequences of h are known to be in the log.
// Those that are more than half the circle of sequences behind may be ahead.
func (p *producer) wroteLongAgo(h batch.Header) bool {
	first, last := h.BaseSequence, h.LastSequence()
	return p.whole && first <= last && last <= p.lastSequence() && p.lastSequence()-first < math.MaxInt32/2
}

// add takes in a batch of records that was appended.
func (p *producer) add(h batch.Header) {
	p.meet(h.ProducerEpoch)
	if p.n == 0 {
		p.whole = h.BaseSequence == 0
	}
	if p.n == keptBatches {
		copy(p.batches[:], p.batches[1:])
		p.n--
	}
	p.batches[p.n] = producerBatch{h.LastSequence(), h.Last(), h.LastOffsetDelta, h.MaxTimestamp}
	p.n++
	p.timestamp = h.MaxTimestamp
	if h.Transactional() && p.txnFirst == tiers.NoOffset {
		p.txnFirst = h.BaseOffset
	}
}

// expect takes in a batch that will be appended.
func (p *producer) expect(h batch.Header) {
	if !h.Control() {
		p.add(h)
		return
	}
	p.meet(h.ProducerEpoch)
	p.txnFirst = tiers.NoOffset
}

// meet drops the batches of older epochs.
func (p *producer) meet(epoch int16) {
	if epoch != p.epoch {
		p.epoch, p.n = epoch, 0
	}
}

// marker is the record of a control batch that ends a transaction.
type marker struct {
	ends             bool // it is one at all
	abort            bool
	coordinatorEpoch int32
}

// readMarker reads the record of a control batch. Other kinds of control records
// and one that compaction emptied end nothing.
func readMarker(d *batch.Decoder, b []byte) (m marker, err error) {
	be := binary.BigEndian
	err = d.Records(b, func(r batch.Record) bool {
		if len(r.Key) < 4 || len(r.Value) < 6 { // version and type; version and coordinator epoch
			return false
		}
		kind := be.Uint16(r.Key[2:])
		m = marker{ends: kind <= 1, abort: kind == 0, coordinatorEpoch: int32(be.Uint32(r.Value[2:]))}
		return false
	})
	return m, err
}

// apply takes in a batch that is in the log. aborted is the entry that the
// transaction index gets, if one was aborted.
func (p *Producers) apply(h batch.Header, m marker, now time.Time) (aborted AbortedTxn, ok bool) {
	if h.ProducerID < 0 || h.Control() && !m.ends {
		return AbortedTxn{}, false
	}
	one := p.byID[h.ProducerID]
	if one == nil {
		one = &producer{epoch: h.ProducerEpoch, coordinatorEpoch: -1, txnFirst: tiers.NoOffset}
		p.byID[h.ProducerID] = one
	}
	one.seen = now
	if !h.Control() {
		one.add(h)
		if one.txnFirst != tiers.NoOffset {
			p.open[h.ProducerID] = one.txnFirst
		}
		return AbortedTxn{}, false
	}
	first := one.txnFirst
	delete(p.open, h.ProducerID)
	one.meet(h.ProducerEpoch)
	one.coordinatorEpoch, one.timestamp, one.txnFirst = m.coordinatorEpoch, h.MaxTimestamp, tiers.NoOffset
	if first == tiers.NoOffset || !m.abort {
		return AbortedTxn{}, false
	}
	return AbortedTxn{h.ProducerID, first, h.BaseOffset, p.firstUndecided(h.BaseOffset + 1)}, true
}

// firstUndecided is the first offset of the oldest open transaction, end if
// there is none.
func (p *Producers) firstUndecided(end tiers.Offset) tiers.Offset {
	for _, first := range p.open {
		end = min(end, first)
	}
	return end
}

// Expire forgets producers that have written nothing since before, and returns
// how many. Those with an open transaction stay. A restart counts as writing.
func (p *Producers) Expire(before time.Time) int {
	n := len(p.byID)
	maps.DeleteFunc(p.byID, func(_ int64, one *producer) bool {
		return one.txnFirst == tiers.NoOffset && one.seen.Before(before)
	})
	return n - len(p.byID)
}

// Len is the number of producers that are remembered.
func (p *Producers) Len() int { return len(p.byID) }

// producerExpiry is how long a producer is remembered after its last write unless
// Config says: the default of Kafka's producer.id.expiration.ms.
const producerExpiry = 24 * time.Hour

// ExpireProducers forgets the producers that have written nothing for
// Config.ProducerExpiry, and returns how many. Every snapshot does it first, so
// that none brings them back.
func (l *Log) ExpireProducers() int {
	after := l.o.Config.ProducerExpiry
	if after <= 0 {
		after = producerExpiry
	}
	return l.prods.Expire(l.o.Now().Add(-after))
}

// snapshot is the content of a .snapshot file, by producer id.
func (p *Producers) snapshot() []byte {
	var entries []snapshotEntry
	for _, id := range slices.Sorted(maps.Keys(p.byID)) {
		one := p.byID[id]
		e := snapshotEntry{id: id, epoch: one.epoch, coordinatorEpoch: one.coordinatorEpoch, txnFirst: tiers.NoOffset}
		for _, b := range one.batches[:max(one.n, 1)-1] {
			e.lastSequence, e.lastOffset, e.offsetDelta, e.timestamp = b.lastSequence, b.last, b.delta, b.timestamp
			entries = append(entries, e)
		}
		e.lastSequence, e.lastOffset, e.offsetDelta = noSequence, tiers.NoOffset, 0
		if one.n > 0 {
			b := one.batches[one.n-1]
			e.lastSequence, e.lastOffset, e.offsetDelta = b.lastSequence, b.last, b.delta
		}
		e.timestamp, e.txnFirst = one.timestamp, one.txnFirst
		entries = append(entries, e)
	}
	return encodeSnapshot(entries)
}

// loadSnapshot replaces the state by that of a .snapshot file.
func (p *Producers) loadSnapshot(b []byte, now time.Time) error {
	entries, err := decodeSnapshot(b)
	if err != nil {
		return err
	}
	p.byID, p.open = make(map[int64]*producer, len(entries)), map[int64]tiers.Offset{}
	for _, e := range entries {
		one := p.byID[e.id]
		if one == nil || one.epoch != e.epoch {
			one = &producer{epoch: e.epoch, seen: now}
			p.byID[e.id] = one
		}
		one.coordinatorEpoch, one.timestamp, one.txnFirst = e.coordinatorEpoch, e.timestamp, max(e.txnFirst, tiers.NoOffset)
		if one.txnFirst != tiers.NoOffset {
			p.open[e.id] = one.txnFirst
		}
		if e.lastOffset < 0 {
			continue
		}
		if one.n == keptBatches {
			copy(one.batches[:], one.batches[1:])
			one.n--
		}
		one.batches[one.n] = producerBatch{e.lastSequence, e.lastOffset, e.offsetDelta, e.timestamp}
		one.n++
		one.whole = one.n == 1 && one.batches[0].firstSequence() == 0 || one.n > 1 && one.whole
	}
	return nil
}

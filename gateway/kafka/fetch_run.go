package kafka

import (
	"context"
	"encoding/binary"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/partition"
)

// pull is one partition of a fetch, and what it gave so far. While a fetch waits
// for more, what was read is kept and reading goes on behind it, so that every
// byte is read once.
type pull struct {
	want wanted
	log  partitionLog

	code      int16
	view      *partition.View // of the last read; nil: none yet
	at        tiers.Offset    // where to read on
	records   [][]byte
	size      int
	aborted   []aborted
	diverging *partition.EpochEnd
	cold      coldState
	promised  int  // bytes of the answer that its read from the bucket may use
	first     bool // which may be one batch larger than that

	pointed             bool // leader and leaderEpoch are set
	leader, leaderEpoch int32
}

// aborted is an aborted transaction that a read_committed consumer must skip.
type aborted struct{ producer, first int64 }

// coldState is how far reading a partition from the bucket has come.
type coldState int8

const (
	coldNone   coldState = iota
	coldQueued           // for one of maxColds places
	coldRunning
	coldOver // one per fetch
)

// watermarks are what the client is told of the log.
func (p *pull) watermarks() (high, start tiers.Offset) {
	if p.view == nil {
		return tiers.NoOffset, tiers.NoOffset
	}
	return p.view.HighWatermark, p.view.LogStart
}

// settled reports whether there is nothing more to find out.
func (p *pull) settled() bool { return p.code != codeNone || p.diverging != nil || p.log == nil }

// fetching is a Fetch while it is served. The handler's goroutine owns it.
//
// Partitions that are on local disk are read in order. Those whose next record is
// in the bucket only are read aside, so that a slow bucket holds up nobody else:
// when the time is over or others have enough, the answer goes out without them.
// What they asked the bucket for still arrives and is there for the next fetch
// (report 060).
type fetching struct {
	srv      *Server
	pulls    []*pull
	iso      partition.Isolation
	minBytes int
	maxBytes int
	deadline time.Time

	size     int
	ready    bool // there is a reason to answer now: an error, or records with more behind them
	buffers  []buffer
	reserved int64

	colds    int  // running
	promised int  // bytes of the answer, to those
	first    bool // to one of those: that it may bring a batch larger than the limits
	coldDone chan coldRead
	left     chan struct{} // closed when nobody waits for the cold ones any more
	coldCtx  context.Context
	hotCtx   context.Context
}

const (
	// maxColds is how many partitions one fetch reads from the bucket at once.
	maxColds = 4
	// coldGrace is how long a fetch that has enough waits for partitions in the
	// bucket all the same: what is in the chunk cache by now gets its turn.
	coldGrace = 20 * time.Millisecond
	// coldLeast is the least time that a read from the bucket is given.
	coldLeast = 10 * time.Millisecond
	// hotExtra is how much longer than that a read from the local disk may take.
	hotExtra = time.Second
)

func (s *Server) newFetching(c *call, req *kmsg.FetchRequest, parts []wanted) *fetching {
	f := &fetching{
		srv: s, iso: partition.Isolation(req.IsolationLevel),
		maxBytes: min(max(int(req.MaxBytes), 0), s.lim.FetchMaxBytes),
		deadline: c.arrived.Add(s.fetchWait(req.MaxWaitMillis)),
		coldDone: make(chan coldRead), left: make(chan struct{}),
	}
	if f.iso != partition.ReadCommitted {
		f.iso = partition.ReadUncommitted
	}
	f.minBytes = min(int(req.MinBytes), f.maxBytes)
	block := make([]pull, len(parts))
	f.pulls = make([]*pull, 0, len(parts))
	for i, w := range parts {
		p := &block[i]
		p.want, p.at = w, w.offset
		p.log, p.code = s.locate(w)
		f.ready = f.ready || p.code != codeNone
		f.pulls = append(f.pulls, p)
	}
	return f
}

// run reads until there is enough to answer with or the time is over.
func (f *fetching) run(c *call) {
	var cancel, cancelCold context.CancelFunc
	until := f.coldDeadline()
	f.hotCtx, cancel = context.WithDeadline(c.gone, until.Add(hotExtra))
	defer cancel()
	f.coldCtx, cancelCold = context.WithDeadline(f.hotCtx, until)
	defer cancelCold()
	defer close(f.left)
	f.sweep()
	if !f.enough() && time.Now().Before(f.deadline) || f.colds > 0 {
		f.wait(c.gone)
	}
}

func (f *fetching) coldDeadline() time.Time {
	if least := time.Now().Add(coldLeast); f.deadline.Before(least) {
		return least
	}
	return f.deadline
}

// wait sleeps until a partition has news, reads it, and so on. Subscriptions come
// before the sweep that could find nothing, so that no news is missed.
func (f *fetching) wait(gone context.Context) {
	news := make(chan struct{}, 1)
	for _, p := range f.pulls {
		if p.log != nil {
			defer p.log.Subscribe(news)()
		}
	}
	f.sweep()
	timer := time.NewTimer(time.Until(f.deadline))
	defer timer.Stop()
	for !f.enough() {
		select {
		case <-news:
			f.sweep()
		case r := <-f.coldDone:
			f.warmed(r)
		case <-timer.C:
			f.lastColds(gone)
			return
		case <-f.srv.drain:
			return
		case <-gone.Done():
			return
		}
	}
	f.lastColds(gone)
}

// enough reports whether the answer should go out now.
func (f *fetching) enough() bool {
	return f.ready || f.size > 0 && f.size >= f.minBytes || f.minBytes <= 0 && f.colds == 0
}

// sweep reads every partition that may have something new.
func (f *fetching) sweep() {
	for _, p := range f.pulls {
		if p.settled() || p.cold == coldRunning || p.cold == coldQueued {
			continue
		}
		v := p.log.View()
		if p.view == v {
			continue
		}
		first := p.view == nil
		f.otherHistory(p, v)
		p.view = v
		if p.at < v.LocalLogStart && p.at >= v.LogStart {
			f.goCold(p)
			continue
		}
		f.readHot(p, first)
	}
}

// room is how much of a partition may still be read, and whether one batch may be
// larger than that: the first of the whole answer, or a consumer could get stuck
// before it (KIP-74). What is promised to reads from the bucket is taken, so that
// all of them together stay within the limit.
func (f *fetching) room(p *pull) (n int, minOne bool) {
	return max(min(p.want.maxBytes-p.size, f.maxBytes-f.size-f.promised), 0), f.size == 0
}

// fitting is as many whole batches of records as the answer has room for: another
// tier may have brought a batch larger than all of it meanwhile. What is left out
// is in the cache for the next fetch.
func (f *fetching) fitting(records []byte) []byte {
	left := f.maxBytes - f.size
	if f.size == 0 || len(records) <= left {
		return records
	}
	f.ready = true
	n := 0
	for size := batchSize(records); size > 0 && n+size <= left; size = batchSize(records[n:]) {
		n += size
	}
	return records[:n]
}

// batchSize is the size of the first batch; 0 if there is no whole one.
func batchSize(records []byte) int {
	if len(records) < 12 {
		return 0
	}
	if n := int(int32(binary.BigEndian.Uint32(records[8:]))) + 12; n >= 27 && n <= len(records) {
		return n
	}
	return 0
}

// readHot reads a partition from the local disk. When the answer is full it does
// so once, for the errors that there may be.
func (f *fetching) readHot(p *pull, first bool) {
	n, minOne := f.room(p)
	if n == 0 && !minOne && !first {
		return
	}
	if n > 0 {
		n = f.reserve(n)
		if n == 0 {
			return
		}
	}
	r := f.read(f.hotCtx, p, n, minOne)
	f.bring(p, r)
}

// readOutcome is what a read of one partition gave.
type readOutcome struct {
	res      partition.ReadResult
	err      error
	buffers  []buffer
	reserved int64
}

// read asks the partition. It is safe to be called on another goroutine.
func (f *fetching) read(ctx context.Context, p *pull, n int, minOne bool) readOutcome {
	out := readOutcome{reserved: int64(n)}
	req := partition.ReadRequest{
		From: p.at, CurrentEpoch: p.want.current, FetchedEpoch: p.want.fetched, MaxBytes: n, MinOne: minOne, Isolation: f.iso,
		Alloc: func(n int) []byte {
			b := f.srv.buffers.get(n)
			out.buffers = append(out.buffers, b)
			return b.bytes()
		},
	}
	if p.size > 0 {
		req.FetchedEpoch = tiers.NoEpoch // it was of the record before the first
	}
	out.res, out.err = p.log.Read(ctx, req)
	out.reserved = f.srv.settle(out.reserved, out.buffers)
	return out
}

// settle makes what is reserved match what was allocated. A batch larger than all
// that was asked for may exceed the budget: it is one, and it must get through.
func (s *Server) settle(reserved int64, bs []buffer) int64 {
	used := int64(0)
	for _, b := range bs {
		used += int64(cap(b.bytes()))
	}
	if used < reserved {
		s.responses.Release(reserved - used)
		return used
	}
	if s.responses.TryAcquire(used - reserved) {
		return used
	}
	return reserved
}

// bring adds what was read to the answer.
func (f *fetching) bring(p *pull, r readOutcome) {
	f.buffers = append(f.buffers, r.buffers...)
	f.reserved += r.reserved
	if r.res.View != nil {
		if had := p.size > 0; f.otherHistory(p, r.res.View) && had {
			return // it was read behind what is gone; the change is news, so it is read again
		}
		p.view = r.res.View
	}
	if r.err != nil {
		f.fail(p, r.err)
		return
	}
	p.diverging = r.res.Diverging
	f.ready = f.ready || p.diverging != nil
	for _, t := range r.res.Aborted {
		p.abort(aborted{t.ProducerID, int64(t.First)})
	}
	records := f.fitting(r.res.Records)
	if n := len(records); n > 0 {
		p.records = append(p.records, records)
		p.size += n
		f.size += n
		p.at = nextAfter(records, p.at)
		f.ready = f.ready || p.at < f.readable(p)
	}
}

// readable is the end of what the consumer may read. Waiting makes sense only for
// who has come there: what a bucket gives at once may be less than min_bytes, and
// every fetch would wait for nothing.
func (f *fetching) readable(p *pull) tiers.Offset {
	switch {
	case p.view == nil:
		return tiers.NoOffset
	case f.iso == partition.ReadCommitted:
		return p.view.LastStable
	}
	return p.view.HighWatermark
}

// otherHistory forgets what was read before the log's history changed, if it did.
func (f *fetching) otherHistory(p *pull, v *partition.View) bool {
	if p.view == nil || p.view.History == v.History && p.view.Epoch == v.Epoch {
		return false
	}
	f.size -= p.size
	p.records, p.size, p.aborted, p.at = nil, 0, nil, p.want.offset
	return true
}

// fail settles a partition with an error, unless it already has records: those go
// out now and the error comes again with the next fetch. That the time was over
// is no error.
func (f *fetching) fail(p *pull, err error) {
	code := codeOf(err)
	switch {
	case p.size > 0:
		f.ready = true
	case code == codeTimedOut:
	default:
		p.code, f.ready = code, true
	}
}

// abort adds an aborted transaction once.
func (p *pull) abort(t aborted) {
	if slices.Contains(p.aborted, t) {
		return
	}
	p.aborted = append(p.aborted, t)
}

// nextAfter is the offset after the last batch of whole batches.
func nextAfter(records []byte, at tiers.Offset) tiers.Offset {
	for n := batchSize(records); n > 0; n = batchSize(records) {
		base := int64(binary.BigEndian.Uint64(records))
		at = tiers.Offset(base + int64(int32(binary.BigEndian.Uint32(records[23:]))) + 1)
		records = records[n:]
	}
	return at
}

// reserve takes up to n bytes of the budget for responses. A fetch that holds
// nothing waits for it until its time is over, one that holds something goes out
// with that: nobody waits for bytes while holding others.
func (f *fetching) reserve(n int) int {
	n = min(n, f.srv.lim.InFlightResponseBytes)
	if f.srv.responses.TryAcquire(int64(n)) {
		return n
	}
	if f.reserved > 0 || f.colds > 0 {
		return 0
	}
	n = min(n, 1<<20)
	if f.srv.responses.Acquire(f.coldCtx, int64(n)) != nil {
		return 0
	}
	return n
}

// release gives back what the answer held.
func (f *fetching) release() {
	for _, b := range f.buffers {
		f.srv.buffers.put(b)
	}
	f.srv.responses.Release(f.reserved)
	f.buffers, f.reserved = nil, 0
}

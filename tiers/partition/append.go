package partition

// Append: the caller's goroutine checks the batch, the loop writes what has
// gathered in one go, syncs once where the topic asks for it, publishes the View
// and then tells everybody.

import (
	"context"
	"time"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/batch"
)

// AppendRequest is one batch of a Produce request.
type AppendRequest struct {
	// Batch is exactly one record batch v2 as it came over the wire. Append
	// stamps it in place, so the caller must not use it afterwards.
	Batch []byte
	// AllowZstd is false for clients that are too old for it (Produce < 7).
	AllowZstd bool
}

// AppendResult is where a batch went.
type AppendResult struct {
	Base       tiers.Offset
	AppendTime int64 // milliseconds since 1970, -1 unless the topic stamps the append time
	LogStart   tiers.Offset
}

// drainBytes bounds what one step of the loop writes: a group commit. Everybody
// in it waits for its one sync, so it should not be much larger than what a disk
// takes while it syncs.
const drainBytes = 4 << 20

// appendCall is an append on its way through the loop. Its fields belong to
// whoever has it: the caller until it is sent and after done is closed, the loop
// in between.
type appendCall struct {
	data   []byte
	header batch.Header
	result AppendResult
	err    error
	done   chan struct{}
}

// Append validates the batch, gives it offsets, writes it and returns when the
// topic's ack mode is met. A duplicate of an idempotent producer's recent batch
// is a success with the offset that it got the first time. If ctx ends first the
// outcome is unknown to the caller: TimedOut.
func (o *Owner) Append(ctx context.Context, r AppendRequest) (AppendResult, error) {
	began := o.deps.Now()
	if err := o.refusal("append"); err != nil {
		return AppendResult{}, err
	}
	h, err := checkAppend(r, *o.config.Load(), began, o.place)
	if err != nil {
		return AppendResult{}, err
	}
	res, err := o.hand(ctx, &appendCall{data: r.Batch, header: h, done: make(chan struct{})})
	if err != nil {
		return AppendResult{}, err
	}
	if err := o.fencedErr("append"); err != nil {
		return AppendResult{}, err // it is written, but this node must not say so
	}
	o.deps.Metrics.appended(o.deps.Now().Sub(began), len(r.Batch))
	return res, nil
}

// hand gives c to the loop and waits for the answer.
func (o *Owner) hand(ctx context.Context, c *appendCall) (AppendResult, error) {
	bytes := min(int64(len(c.data)), o.roomSize)
	if err := o.room.Acquire(ctx, bytes); err != nil {
		return AppendResult{}, tiers.E(tiers.TimedOut, "append", o.place, "waiting behind %d bytes of other appends, nothing was written: %w", o.roomSize, context.Cause(ctx))
	}
	select {
	case o.appends <- c:
	case <-ctx.Done():
		o.room.Release(bytes)
		return AppendResult{}, tiers.E(tiers.TimedOut, "append", o.place, "nothing was written: %w", context.Cause(ctx))
	case <-o.closing:
		o.room.Release(bytes)
		return AppendResult{}, o.closed("append")
	case <-o.fence:
		o.room.Release(bytes)
		return AppendResult{}, o.fencedErr("append")
	}
	select {
	case <-c.done:
		return c.result, c.err
	case <-ctx.Done():
		return AppendResult{}, tiers.E(tiers.TimedOut, "append", o.place, "the batch may have been written: %w", context.Cause(ctx))
	}
}

// checkAppend is the part of the validation that needs no state, in the order of
// Kafka: the batch itself, then codec and timestamps.
func checkAppend(r AppendRequest, c Config, now time.Time, place string) (batch.Header, error) {
	h, err := batch.Check(r.Batch, batch.Limits{MaxBytes: c.MaxMessageBytes})
	if err != nil {
		return h, tiers.E(tiers.Other, "append", place, "%w", err)
	}
	switch {
	case h.Codec() == batch.Zstd && !r.AllowZstd:
		return h, tiers.E(tiers.UnsupportedCompression, "append", place, "zstd needs Produce version 7 (KIP-110)")
	case h.Transactional():
		// Without a coordinator nobody would ever write the marker: the last
		// stable offset, and copying with it, would stop here for ever.
		return h, tiers.E(tiers.InvalidRequest, "append", place, "transactional batches are not supported")
	}
	if c.LogAppendTime {
		return h, nil
	}
	return h, checkTimestamps(h, c, now, place)
}

// checkTimestamps compares the batch's first and newest timestamp with the
// topic's bounds. Producers write the first record's timestamp into the header,
// so that records need not be decompressed; -1 is "no timestamp" and passes.
func checkTimestamps(h batch.Header, c Config, now time.Time, place string) error {
	if oldest := now.Add(-c.TimestampBefore).UnixMilli(); c.TimestampBefore > 0 && h.FirstTimestamp >= 0 && h.FirstTimestamp < oldest {
		return tiers.E(tiers.InvalidTimestamp, "append", place, "timestamp %d is more than %s ago (message.timestamp.before.max.ms)", h.FirstTimestamp, c.TimestampBefore)
	}
	if newest := now.Add(c.TimestampAfter).UnixMilli(); c.TimestampAfter > 0 && h.MaxTimestamp > newest {
		return tiers.E(tiers.InvalidTimestamp, "append", place, "timestamp %d is more than %s ahead (message.timestamp.after.max.ms)", h.MaxTimestamp, c.TimestampAfter)
	}
	return nil
}

// drain adds to c what waits at the door by now, up to drainBytes.
func (o *Owner) drain(c *appendCall) []*appendCall {
	calls, size := []*appendCall{c}, len(c.data)
	for size < drainBytes {
		select {
		case c := <-o.appends:
			calls, size = append(calls, c), size+len(c.data)
		default:
			return calls
		}
	}
	return calls
}

// onAppend writes the batches of calls and settles what each is to be told. The
// loop tells them once the View is out.
func (s *state) onAppend(calls []*appendCall) {
	if err := s.shut(); err != nil {
		for _, c := range calls {
			c.err = err
		}
		return
	}
	g := gathered{start: s.local.LogEnd(), next: s.local.LogEnd()}
	for _, c := range calls {
		s.onGather(&g, c)
	}
	s.onWrite(&g)
	s.onCommit(&g)
}

// shut is why an append is refused in the loop.
func (s *state) shut() error {
	if s.closing {
		return tiers.E(tiers.Closed, "append", s.place, "the partition is being closed on this node")
	}
	return s.offline()
}

// gathered is what one step of the loop has collected.
type gathered struct {
	start   tiers.Offset   // log end when the step began
	next    tiers.Offset   // offset of the next batch
	data    []byte         // stamped batches not yet written, one after the other
	group   *[]byte        // the memory of data if there is more than one
	headers []batch.Header // theirs
	calls   []*appendCall  // theirs
	written []*appendCall  // in the log, not yet promised
	repeats []*appendCall  // duplicates of a batch of this very step
	err     error          // why nothing more of this step is written
}

// onGather stamps one batch and puts it behind those gathered before it, or
// settles that it is refused or a duplicate.
func (s *state) onGather(g *gathered, c *appendCall) {
	if g.err != nil {
		c.err = g.err
		return
	}
	base, duplicate, err := s.local.Producers().Check(c.header, g.headers)
	switch {
	case err != nil:
		c.err = tiers.E(tiers.Other, "append", s.place, "%w", err)
		return
	case duplicate:
		// When the first one was stamped is not kept.
		c.result = AppendResult{Base: base, AppendTime: -1, LogStart: s.local.LogStart()}
		if base >= g.start {
			g.repeats = append(g.repeats, c)
		}
		return
	}
	if s.rollBefore(g, c.header) {
		s.onWrite(g)
		if g.err == nil {
			g.err = s.onRoll()
		}
		if g.err != nil {
			c.err = g.err
			return
		}
	}
	s.stamp(g, c)
}

// stamp gives the batch its offsets, its leader epoch and, where the topic says
// so, its timestamp.
func (s *state) stamp(g *gathered, c *appendCall) {
	if s.config.LogAppendTime {
		batch.StampAppendTime(c.data, s.now().UnixMilli())
	}
	batch.Stamp(c.data, g.next, s.id.Epoch)
	h, err := batch.Parse(c.data)
	if err != nil { // it parsed a moment ago: the caller still writes to it
		c.err = tiers.E(tiers.CorruptMessage, "append", s.place, "%w", err)
		return
	}
	c.header, c.result = h, s.result(h, g.next)
	g.next = h.Next()
	g.headers, g.calls = append(g.headers, h), append(g.calls, c)
	switch len(g.calls) {
	case 1:
		g.data = c.data // the only one most of the time: no copy
	case 2:
		g.group = s.buffers.Get()
		*g.group = append(append((*g.group)[:0], g.data...), c.data...)
		g.data = *g.group
	default:
		*g.group = append(*g.group, c.data...)
		g.data = *g.group
	}
}

func (s *state) result(h batch.Header, base tiers.Offset) AppendResult {
	r := AppendResult{Base: base, AppendTime: -1, LogStart: s.local.LogStart()}
	if s.config.LogAppendTime {
		r.AppendTime = h.MaxTimestamp
	}
	return r
}

// onWrite writes what was gathered: one append.
func (s *state) onWrite(g *gathered) {
	if len(g.calls) == 0 {
		return
	}
	if err := s.local.Append(g.data, g.headers); err != nil {
		g.err = s.diskFailed("append", err)
		for _, c := range g.calls {
			c.err = g.err
		}
		g.next = s.local.LogEnd()
	} else {
		g.written = append(g.written, g.calls...)
	}
	if g.group != nil {
		s.buffers.Put(g.group)
	}
	g.data, g.group, g.headers, g.calls = nil, nil, nil, nil
}

// onCommit does what the ack mode asks before the promises are kept. If it
// fails, or the log broke meanwhile, nobody knows what is on disk: everybody is
// told so.
func (s *state) onCommit(g *gathered) {
	if len(g.written) > 0 && s.failed == nil {
		switch s.config.Ack {
		case AckFsync:
			_ = s.sync() // the error is in s.failed, see below
		case AckInterval:
			if s.flushAt.IsZero() {
				s.flushAt = s.now().Add(s.config.FlushEvery)
			}
		case AckOS:
		}
	}
	if s.failed != nil {
		g.err = s.failed
	}
	for _, c := range g.written {
		c.err = s.failed
	}
	for _, c := range g.repeats {
		c.err = g.err
	}
}

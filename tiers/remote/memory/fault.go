package memory

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/strandline-io/strandline/tiers/remote"
)

// Op is a set of kinds of calls.
type Op uint16

// The kinds of calls.
const (
	OpPut Op = 1 << iota
	OpGet
	OpReadAt
	OpStat
	OpList
	OpDelete // one for each key
	OpAbort
	opEnd

	OpAny  = opEnd - 1
	OpRead = OpGet | OpReadAt
)

// String lists the kinds in o.
func (o Op) String() string {
	var names []string
	for i, name := range []string{"put", "get", "readat", "stat", "list", "delete", "abort"} {
		if o&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, "|")
}

// Call is one call, as the log has it.
type Call struct {
	Seq int // counts from 1
	Op  Op
	Key string // the prefix of a listing
	Off int64
	Len int64
	If  remote.Cond
	Err error // what the caller got
}

// Fault says which calls fail, and how. The zero value fails the first call of
// any kind with remote.ErrUnavailable; every field narrows or changes that.
type Fault struct {
	Ops  Op     // OpAny if zero
	Key  string // part of the key; empty matches all
	Skip int    // this many matching calls pass first

	Times  int  // then this many fail; 1 if zero
	Sticky bool // all that match from then on fail

	// Err is what the call returns. If it is nil and Hold, Cut or Flip is set,
	// the call only has those.
	Err error
	// Applied makes the call happen and then fail with Err: a lost response.
	Applied bool
	// Hold keeps the call from going on until it is closed or the call's context
	// ends: latency.
	Hold <-chan struct{}
	// Reached is sent the call before Hold is waited for; the send blocks.
	Reached chan<- Call

	// Cut ends the body of a read after CutAfter bytes with Err, which defaults
	// to io.ErrUnexpectedEOF, and a listing after CutAfter objects.
	Cut      bool
	CutAfter int64
	// Flip changes one bit of the body of a read, at FlipAt.
	Flip   bool
	FlipAt int64
}

type faultState struct {
	Fault
	seen, hit int
}

// Add puts a fault at the end of the schedule: the first that matches a call is
// the one that strikes. The function that it returns tells how often it did.
func (b *Bucket) Add(fault Fault) (hits func() int) {
	switch {
	case fault.Err == nil && fault.Cut:
		fault.Err = io.ErrUnexpectedEOF
	case fault.Err == nil && fault.Hold == nil && !fault.Flip:
		fault.Err = remote.ErrUnavailable
	}
	if fault.Ops == 0 {
		fault.Ops = OpAny
	}
	if fault.Times == 0 {
		fault.Times = 1
	}
	s := &faultState{Fault: fault}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults = append(b.faults, s)
	return func() int {
		b.mu.Lock()
		defer b.mu.Unlock()
		return s.hit
	}
}

// Clear removes all faults. Calls that are held stay held until their channel is
// closed or their context ends.
func (b *Bucket) Clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults = nil
}

// Calls returns the calls so far of the given kinds whose key contains part.
func (b *Bucket) Calls(ops Op, part string) []Call {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []Call
	for _, c := range b.log {
		if c.Op&ops != 0 && strings.Contains(c.Key, part) {
			out = append(out, c)
		}
	}
	return out
}

// enter logs a call and finds the fault that strikes it.
func (b *Bucket) enter(call *Call) (*Fault, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seq++
	call.Seq = b.seq
	b.log = append(b.log, *call)
	if b.closed {
		return nil, fmt.Errorf("%w: the bucket is closed", remote.ErrUnavailable)
	}
	for _, s := range b.faults {
		if s.Ops&call.Op == 0 || !strings.Contains(call.Key, s.Key) {
			continue
		}
		s.seen++
		if s.seen <= s.Skip || !s.Sticky && s.hit >= s.Times {
			continue
		}
		s.hit++
		return &s.Fault, nil
	}
	return nil, nil
}

// do checks, logs and runs a call with the fault that strikes it, nil for none.
func (b *Bucket) do(ctx context.Context, call Call, act func(*Fault) error) error {
	fault, err := b.enter(&call)
	if err == nil {
		err = b.run(ctx, call, fault, act)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.log[call.Seq-1].Err = err
	return err
}

func (*Bucket) run(ctx context.Context, call Call, fault *Fault, act func(*Fault) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if call.Op&(OpList|OpAbort) == 0 {
		if err := remote.CheckKey(call.Key); err != nil {
			return err
		}
	}
	if fault == nil {
		return act(nil)
	}
	if err := fault.wait(ctx, call); err != nil {
		return err
	}
	if fault.Err == nil || fault.Cut {
		return act(fault)
	}
	if fault.Applied {
		if err := act(nil); err != nil {
			return err
		}
	}
	return fault.Err
}

func (f *Fault) wait(ctx context.Context, call Call) error {
	if f.Reached != nil {
		f.Reached <- call
	}
	if f.Hold == nil {
		return nil
	}
	select {
	case <-f.Hold:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// body is the reader of a read: flipped, cut, and ended by its context as the
// body of an HTTP response is.
func (f *Fault) body(ctx context.Context, b []byte) io.ReadCloser {
	r := &reader{ctx: ctx, rest: b}
	if f == nil {
		return r
	}
	if f.Flip && f.FlipAt < int64(len(b)) {
		r.rest = bytes.Clone(b)
		r.rest[f.FlipAt] ^= 1
	}
	if f.Cut && f.CutAfter < int64(len(r.rest)) {
		r.rest, r.end = r.rest[:f.CutAfter], f.Err
	}
	return r
}

type reader struct {
	ctx  context.Context
	rest []byte
	end  error // instead of io.EOF
}

func (r *reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	if len(r.rest) == 0 && len(p) > 0 {
		if r.end != nil {
			return 0, r.end
		}
		return 0, io.EOF
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func (r *reader) Close() error {
	r.rest, r.end = nil, io.ErrClosedPipe
	return nil
}

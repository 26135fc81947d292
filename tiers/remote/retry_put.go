package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
)

// Put sends the whole body again after a failure.
func (r *retrier) Put(ctx context.Context, key string, body Body, o PutOptions) (out Object, err error) {
	if o.If != (Cond{}) {
		return r.putIf(ctx, key, body, o)
	}
	err = r.do(ctx, "put", key, body.Size(), func(ctx context.Context) error {
		out, err = r.Bucket.Put(ctx, key, body, o)
		return err
	})
	return out, err
}

// putIf is Put with a condition. It trusts a driver that does not say
// ErrUnknownOutcome as far as to try again at once, but a try that then fails on
// the condition may still have failed on the one before it.
func (r *retrier) putIf(ctx context.Context, key string, body Body, o PutOptions) (Object, error) {
	ctx, cancel := WithPatience(ctx, r.o.ConditionalTimeout+transferTime(body.Size()), errCallTimeout)
	defer cancel()
	t := r.tries("put", key)
	var doubt error // the failure before this try that tells most
	for {
		var out Object
		err := r.attempt(ctx, body.Size(), func(ctx context.Context) (err error) {
			out, err = r.Bucket.Put(ctx, key, body, o)
			return err
		})
		lost := errors.Is(err, ErrPrecondition)
		switch {
		case err == nil:
			return out, nil
		case lost && doubt == nil:
			return Object{}, Fail("put", key, err)
		case !lost && (doubt == nil || mayHaveHappened(err)):
			doubt = err
		}
		if lost || mayHaveHappened(err) {
			out, now, rerr := r.readBack(ctx, key, body, o.If)
			switch {
			case rerr != nil:
				return Object{}, Fail("put", key, unknown(doubt, rerr))
			case now == isOurs:
				return out, nil
			case now == changed && mayHaveHappened(doubt):
				return Object{}, Fail("put", key, unknown(doubt, errors.New("another object is there now")))
			case now == changed:
				return Object{}, Fail("put", key, fmt.Errorf("%w, after: %w", ErrPrecondition, doubt))
			}
		}
		if lost { // the store contradicts itself: nothing has changed
			err = doubt
		}
		if again := t.again(ctx, err); again != nil {
			if mayHaveHappened(doubt) || mayHaveHappened(again) {
				again = unknown(again, nil)
			}
			return Object{}, Fail("put", key, again)
		}
	}
}

func mayHaveHappened(err error) bool {
	return errors.Is(err, ErrUnknownOutcome) || errors.Is(err, errAttemptTimeout) || errors.Is(err, errCallTimeout)
}

func unknown(err, why error) error {
	if !errors.Is(err, ErrUnknownOutcome) {
		err = fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
	}
	if why != nil {
		err = fmt.Errorf("%w; read back: %w", err, why)
	}
	return err
}

// found is what a read back shows of a conditional Put.
type found uint8

const (
	unchanged found = iota // the condition holds still: nothing has happened yet
	isOurs
	changed // by somebody, after or instead of us
)

// readBack looks what became of a Put whose outcome is not known.
func (r *retrier) readBack(ctx context.Context, key string, body Body, cond Cond) (Object, found, error) {
	stored, out, err := r.Get(ctx, key, Range{})
	if errors.Is(err, ErrNotFound) {
		if cond.Absent {
			return Object{}, unchanged, nil
		}
		return Object{}, changed, nil
	}
	if err != nil {
		return Object{}, changed, err
	}
	defer func() { _ = stored.Close() }() // it was only read
	same := out.Size == body.Size()
	if same {
		if same, err = sameBytes(stored, body); err != nil {
			return Object{}, changed, err
		}
	}
	switch {
	case same && out.ETag != cond.ETag:
		return out, isOurs, nil
	case !cond.Absent && out.ETag == cond.ETag:
		return out, unchanged, nil
	}
	return out, changed, nil
}

// sameBytes compares what is stored with what was sent. Equal CRC-32Cs would not
// do: two writers may have sent different bodies.
func sameBytes(stored io.Reader, body Body) (bool, error) {
	sent, err := body.Open(0, body.Size())
	if err != nil {
		return false, fmt.Errorf("read the body: %w", err)
	}
	defer func() { _ = sent.Close() }() // it was only read
	a, b := make([]byte, 32<<10), make([]byte, 32<<10)
	for {
		n, errA := io.ReadFull(stored, a)
		m, errB := io.ReadFull(sent, b)
		switch {
		case errA != nil && !errors.Is(errA, io.EOF) && !errors.Is(errA, io.ErrUnexpectedEOF):
			return false, errA
		case errB != nil && !errors.Is(errB, io.EOF) && !errors.Is(errB, io.ErrUnexpectedEOF):
			return false, fmt.Errorf("read the body: %w", errB)
		case !bytes.Equal(a[:n], b[:m]):
			return false, nil
		case errA != nil:
			return true, nil
		}
	}
}

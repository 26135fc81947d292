package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
)

// soundTries is how often ReadSound asks for an object.
const soundTries = 4

// ReadSound reads an object of up to limit bytes and has decode take it. What does
// not decode is read again: a bit that flips on the way is not damage, and whoever
// rebuilds a cluster from objects must not leave one out for it. damage is why the
// object itself cannot be used: it came the same way twice, is missing or too large.
// err is anything else, and ErrUnavailable if no two reads agree.
func ReadSound(ctx context.Context, b Bucket, key string, limit int64, decode func(raw []byte) error) (damage, err error) {
	var last []byte
	var lastFault error
	for range soundTries {
		raw, err := readWhole(ctx, b, key, limit)
		if err != nil && !ofTheObject(err) {
			return nil, err
		}
		fault := err
		if fault == nil {
			if fault = decode(raw); fault == nil {
				return nil, nil
			}
		}
		if errors.Is(fault, ErrNotFound) || errors.Is(fault, errTooLarge) ||
			lastFault != nil && fault.Error() == lastFault.Error() && bytes.Equal(raw, last) {
			return fault, nil
		}
		last, lastFault = raw, fault
	}
	return nil, Fail("read object", key, fmt.Errorf("%w: each read gives other bytes, the last ones: %w", ErrUnavailable, lastFault))
}

// ofTheObject reports whether an error may be that of the object and not of the
// store.
func ofTheObject(err error) bool {
	for _, kind := range []error{ErrNotFound, ErrChecksum, ErrRange, errTooLarge} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

var errTooLarge = errors.New("the object is too large")

func readWhole(ctx context.Context, b Bucket, key string, limit int64) (raw []byte, err error) {
	rc, o, err := b.Get(ctx, key, Range{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rc.Close()) }()
	if o.Size > limit {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", errTooLarge, o.Size, limit)
	}
	raw, err = io.ReadAll(io.LimitReader(rc, limit+1))
	if err == nil && int64(len(raw)) > limit {
		err = fmt.Errorf("%w: more than %d bytes", errTooLarge, limit)
	}
	return raw, err
}

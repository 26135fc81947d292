package remote

import (
	"fmt"
	"iter"
	"strings"
)

// Span returns the bytes [off, end) that r selects of an object of the given
// size. An r that begins at the end or beyond it is ErrRange, except that all of
// an empty object is not; one that reaches beyond the end is cut, as S3 does it.
func (r Range) Span(size int64) (off, end int64, err error) {
	if r.Off < 0 || r.Len < 0 || r.Off >= size && (r.Off > 0 || r.Len > 0) {
		return 0, 0, fmt.Errorf("%w: %d bytes from %d of %d", ErrRange, r.Len, r.Off, size)
	}
	if r.Len == 0 || r.Len > size-r.Off {
		return r.Off, size, nil
	}
	return r.Off, r.Off + r.Len, nil
}

// ReadAtSpan is Span for ReadAt with a buffer of n bytes: the bytes [from, to)
// to read, and whether they are fewer than asked for (io.EOF). Reading nothing
// is always possible; reading at the end or beyond it is ErrRange.
func ReadAtSpan(n int, off, size int64) (from, to int64, short bool, err error) {
	if n == 0 && off >= 0 {
		return off, off, false, nil
	}
	from, to, err = Range{Off: off, Len: int64(n)}.Span(size)
	return from, to, to-from < int64(n), err
}

// Check returns ErrPrecondition if c does not hold for a key that exists with
// the given ETag, or does not exist. An ETag that is asked of a missing key is
// ErrPrecondition too: whoever counted on it has lost (object stores differ:
// 404 or 412).
func (c Cond) Check(exists bool, etag string) error {
	switch {
	case c.Absent && exists:
		return fmt.Errorf("%w: it exists already", ErrPrecondition)
	case c.ETag != "" && !exists:
		return fmt.Errorf("%w: it does not exist", ErrPrecondition)
	case c.ETag != "" && c.ETag != etag:
		return fmt.Errorf("%w: its ETag is %s, not %s", ErrPrecondition, etag, c.ETag)
	}
	return nil
}

// Select picks from all objects of a bucket, in order of their keys, those that
// o asks for, and puts common prefixes in the place of what they hold. A common
// prefix is there if a key below it is above StartAfter, as in S3.
func Select(all iter.Seq[Object], o ListOptions) iter.Seq[Object] {
	return func(yield func(Object) bool) {
		last := ""
		for obj := range all {
			rest, ok := strings.CutPrefix(obj.Key, o.Prefix)
			if !ok || obj.Key <= o.StartAfter {
				continue
			}
			if o.Delimiter != "" {
				if head, _, found := strings.Cut(rest, o.Delimiter); found {
					obj = Object{Key: o.Prefix + head + o.Delimiter, IsPrefix: true}
				}
			}
			if obj.IsPrefix && obj.Key == last {
				continue
			}
			last = obj.Key
			if !yield(obj) {
				return
			}
		}
	}
}

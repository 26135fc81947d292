// Package memory is a bucket in memory: the twin of an object store for tests,
// with a schedule of faults, a log of calls, and the manners of S3: an ETag is
// the MD5 of the content, listings are in byte order, a Put is seen whole or not
// at all. Every method may be called from any goroutine.
package memory

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/strandline-io/strandline/tiers/remote"
)

// Bucket is a bucket in memory. Its state belongs to mu.
type Bucket struct {
	mu      sync.Mutex
	objects map[string]object
	now     func() time.Time
	caps    remote.Caps
	lenient bool
	closed  bool

	seq    int
	log    []Call
	faults []*faultState
}

// object is never changed, only replaced.
type object struct {
	body     []byte
	etag     string
	crc      uint32
	modified time.Time
}

var _ remote.Bucket = (*Bucket)(nil)

// New returns an empty bucket.
func New() *Bucket {
	return &Bucket{
		objects: map[string]object{},
		now:     time.Now,
		caps:    remote.Caps{ConditionalPut: true, StoresCRC32C: true},
	}
}

// SetClock makes now the source of modification times.
func (b *Bucket) SetClock(now func() time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now = now
}

// IgnoreConditions makes the bucket accept every Put, as some object stores do
// (report 008).
func (b *Bucket) IgnoreConditions() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lenient = true
}

// ForgetCRC makes the bucket one that does not tell CRC32C.
func (b *Bucket) ForgetCRC() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.caps.StoresCRC32C = false
}

// Clone returns a bucket with the same objects and neither faults nor log.
func (b *Bucket) Clone() *Bucket { return b.CloneAnd(func() {}) }

// CloneAnd is Clone, with f run at the same moment: no call of the bucket ends
// between the two.
func (b *Bucket) CloneAnd(f func()) *Bucket {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
	return &Bucket{objects: maps.Clone(b.objects), now: b.now, caps: b.caps, lenient: b.lenient}
}

// Keys returns the keys that begin with prefix, in order, past faults and log.
func (b *Bucket) Keys(prefix string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var keys []string
	for key := range b.objects {
		if strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// Bytes returns a copy of an object, past faults and log.
func (b *Bucket) Bytes(key string) ([]byte, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o, ok := b.objects[key]
	return bytes.Clone(o.body), ok
}

// FlipBit damages a stored object at offset off, where its checksums do not
// notice: a disk that rots.
func (b *Bucket) FlipBit(key string, off int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	o, ok := b.objects[key]
	if !ok || off < 0 || off >= int64(len(o.body)) {
		return fmt.Errorf("flip a bit of %q at %d: %w", key, off, remote.ErrNotFound)
	}
	o.body = bytes.Clone(o.body)
	o.body[off] ^= 1
	b.objects[key] = o
	return nil
}

// Put stores an object.
func (b *Bucket) Put(ctx context.Context, key string, body remote.Body, o remote.PutOptions) (out remote.Object, err error) {
	call := Call{Op: OpPut, Key: key, Len: body.Size(), If: o.If}
	err = b.do(ctx, call, func(*Fault) error {
		out, err = b.put(ctx, key, body, o)
		return err
	})
	if err != nil {
		return remote.Object{}, remote.Fail("put", key, err)
	}
	return out, nil
}

func (b *Bucket) put(ctx context.Context, key string, body remote.Body, o remote.PutOptions) (remote.Object, error) {
	content, crc, err := read(body)
	if err != nil {
		return remote.Object{}, err
	}
	sum := md5.Sum(content)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := ctx.Err(); err != nil { // from here on the Put happens
		return remote.Object{}, err
	}
	old, ok := b.objects[key]
	if err := o.If.Check(ok, old.etag); err != nil && !b.lenient {
		return remote.Object{}, err
	}
	n := object{body: content, etag: `"` + hex.EncodeToString(sum[:]) + `"`, crc: crc, modified: b.now().UTC()}
	b.objects[key] = n
	return b.describe(key, n), nil
}

// read takes in a body and holds it to its size and CRC-32C.
func read(body remote.Body) ([]byte, uint32, error) {
	r, err := body.Open(0, body.Size())
	if err != nil {
		return nil, 0, fmt.Errorf("read the body: %w", err)
	}
	content := make([]byte, body.Size())
	_, err = io.ReadFull(r, content)
	if cerr := r.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read the body: %w", err)
	}
	want, err := remote.BodyCRC32C(body)
	if err != nil {
		return nil, 0, err
	}
	if got := remote.CRC32C(content); got != want {
		return nil, 0, fmt.Errorf("%w: CRC-32C of the body is %08x, was announced as %08x", remote.ErrChecksum, got, want)
	}
	return content, want, nil
}

func (b *Bucket) describe(key string, o object) remote.Object {
	out := remote.Object{Key: key, Size: int64(len(o.body)), ETag: o.etag, Modified: o.modified}
	if b.caps.StoresCRC32C {
		out.CRC32C, out.HasCRC = o.crc, true
	}
	return out
}

// lookUp returns an object and its description.
func (b *Bucket) lookUp(key string) (object, remote.Object, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o, ok := b.objects[key]
	if !ok {
		return object{}, remote.Object{}, remote.ErrNotFound
	}
	return o, b.describe(key, o), nil
}

// Get opens an object.
func (b *Bucket) Get(ctx context.Context, key string, r remote.Range) (body io.ReadCloser, out remote.Object, err error) {
	call := Call{Op: OpGet, Key: key, Off: r.Off, Len: r.Len}
	err = b.do(ctx, call, func(fault *Fault) error {
		var o object
		o, out, err = b.lookUp(key)
		if err != nil {
			return err
		}
		if err = (remote.Cond{ETag: r.ETag}).Check(true, out.ETag); err != nil {
			return err
		}
		var off, end int64
		if off, end, err = r.Span(out.Size); err == nil {
			body = fault.body(ctx, o.body[off:end])
		}
		return err
	})
	if err != nil {
		return nil, remote.Object{}, remote.Fail("get", key, err)
	}
	return body, out, nil
}

// ReadAt reads a part of an object.
func (b *Bucket) ReadAt(ctx context.Context, key string, dst []byte, off int64) (n int, err error) {
	call := Call{Op: OpReadAt, Key: key, Off: off, Len: int64(len(dst))}
	var end error
	err = b.do(ctx, call, func(fault *Fault) error {
		o, out, lerr := b.lookUp(key)
		if lerr != nil {
			return lerr
		}
		from, to, short, serr := remote.ReadAtSpan(len(dst), off, out.Size)
		if serr != nil {
			return serr
		}
		if n, err = io.ReadFull(fault.body(ctx, o.body[from:to]), dst[:to-from]); err != nil {
			return fmt.Errorf("%w: %w", remote.ErrUnavailable, err)
		}
		if short {
			end = io.EOF
		}
		return nil
	})
	if err != nil {
		return n, remote.Fail("read", key, err)
	}
	return n, end
}

// Stat describes an object.
func (b *Bucket) Stat(ctx context.Context, key string) (out remote.Object, err error) {
	err = b.do(ctx, Call{Op: OpStat, Key: key}, func(*Fault) error {
		_, out, err = b.lookUp(key)
		return err
	})
	return out, remote.Fail("stat", key, err)
}

// List yields what was there when it began.
func (b *Bucket) List(ctx context.Context, o remote.ListOptions) iter.Seq2[remote.Object, error] {
	return func(yield func(remote.Object, error) bool) {
		var all []remote.Object
		breakAt, broken := -1, error(nil)
		err := b.do(ctx, Call{Op: OpList, Key: o.Prefix}, func(fault *Fault) error {
			all = b.all()
			if fault != nil && fault.Cut {
				breakAt, broken = int(fault.CutAfter), fault.Err
			}
			return nil
		})
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			yield(remote.Object{}, remote.Fail("list", o.Prefix, err))
			return
		}
		n := 0
		for out := range remote.Select(slices.Values(all), o) {
			if n == breakAt {
				yield(remote.Object{}, remote.Fail("list", o.Prefix, broken))
				return
			}
			n++
			if err := ctx.Err(); err != nil {
				yield(remote.Object{}, remote.Fail("list", o.Prefix, err))
				return
			}
			if !yield(out, nil) {
				return
			}
		}
	}
}

func (b *Bucket) all() []remote.Object {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]remote.Object, 0, len(b.objects))
	for _, key := range slices.Sorted(maps.Keys(b.objects)) {
		all = append(all, b.describe(key, b.objects[key]))
	}
	return all
}

// Delete removes objects.
func (b *Bucket) Delete(ctx context.Context, keys ...string) error {
	var errs []error
	for _, key := range keys {
		err := b.do(ctx, Call{Op: OpDelete, Key: key}, func(*Fault) error {
			b.mu.Lock()
			defer b.mu.Unlock()
			delete(b.objects, key)
			return nil
		})
		errs = append(errs, remote.Fail("delete", key, err))
	}
	return errors.Join(errs...)
}

// AbortStale finds nothing: a Put leaves nothing behind.
func (b *Bucket) AbortStale(ctx context.Context, _ time.Duration) (int, error) {
	return 0, remote.Fail("abort stale uploads", "", b.do(ctx, Call{Op: OpAbort}, func(*Fault) error { return nil }))
}

// Caps says that the bucket can do everything, unless it was told to forget.
func (b *Bucket) Caps() remote.Caps {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.caps
}

// String is the bucket's URL.
func (*Bucket) String() string { return "memory:" }

// Close makes every later call fail.
func (b *Bucket) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	return nil
}

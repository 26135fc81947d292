// Package dir is a folder as a bucket. Several processes of one host may share
// it; it is not made for network file systems.
//
//	ROOT/objects/KEY   one file for each object: the body, then a trailer with its size, CRC-32C and ETag
//	ROOT/tmp/          objects that are being written
//	ROOT/locks/00..ff  what conditional writes and removals hold, chosen by the key
//
// Invariants:
//
//   - A file below objects/ is whole and never changes: it is written under tmp/,
//     synced, and then gets its name by link(2) or rename(2).
//   - Whoever gives a name to an object or takes it away holds the key's lock,
//     except create-if-absent: link(2) refuses a name that exists.
//   - A call that succeeded survives a power loss: the folder is synced, and so is
//     every folder above it.
//
// Folders that hold nothing any more stay.
package dir

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"sync"
	"time"

	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/remote"
)

// StaleAfter is the age of a temporary file that Open removes. A file that is
// being written is younger, since each write touches it.
const StaleAfter = time.Hour

// Options qualify Open.
type Options struct {
	Now func() time.Time // default time.Now
	// Existing refuses a root that is missing with ErrNoBucket, and makes nothing
	// then. Without it Open makes the folder.
	Existing bool
}

// Bucket is a folder as a bucket. Its state is on disk, but for what it knows of
// it: the folders that are durable, and who holds which lock in this process.
type Bucket struct {
	fs    fsys.FS
	root  string
	now   func() time.Time
	locks [lockCount]chan struct{} // a token in it: somebody here holds or waits for the file

	mu      sync.Mutex
	durable map[string]bool // folders whose names are synced
}

var _ remote.Bucket = (*Bucket)(nil)

// Open opens the folder root, which it makes if need be, and removes temporary
// files that a crash has left.
func Open(f fsys.FS, root string, o Options) (*Bucket, error) {
	b := &Bucket{fs: f, root: path.Clean(root), now: o.Now, durable: map[string]bool{}}
	if b.now == nil {
		b.now = time.Now
	}
	for i := range b.locks {
		b.locks[i] = make(chan struct{}, 1)
	}
	if o.Existing {
		if _, err := f.Stat(b.root); errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%w: the folder %s is gone", remote.ErrNoBucket, b.root)
		}
	}
	for _, dir := range []string{b.objects(), b.temps(), b.root + "/locks"} {
		if err := fsys.MkdirAllSync(f, dir, 0o755); err != nil {
			return nil, remote.Fail("open bucket", b.String(), err)
		}
	}
	if _, err := b.AbortStale(context.Background(), StaleAfter); err != nil {
		return nil, err
	}
	return b, nil
}

func (b *Bucket) objects() string { return b.root + "/objects" }

func (b *Bucket) temps() string { return b.root + "/tmp" }

func (b *Bucket) file(key string) string { return b.objects() + "/" + key }

// String is the bucket's URL.
func (b *Bucket) String() string { return "dir:" + b.root }

// Close has nothing to do.
func (*Bucket) Close() error { return nil }

// Caps says that the bucket can do everything.
func (*Bucket) Caps() remote.Caps { return remote.Caps{ConditionalPut: true, StoresCRC32C: true} }

// diskError makes an error of the file system one of the seam: a name that is
// not there is a missing object, everything else may pass (a full disk).
func diskError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist), isNotDir(err):
		return remote.ErrNotFound
	}
	return fmt.Errorf("%w: %w", remote.ErrUnavailable, err)
}

// missing tells an object that is not there from a bucket that is not there: an
// unmounted disk, a folder that was moved away. Then nothing is known of objects.
func (b *Bucket) missing(err error) error {
	if !errors.Is(err, remote.ErrNotFound) {
		return err
	}
	if _, stat := b.fs.Stat(b.objects()); errors.Is(stat, fs.ErrNotExist) {
		return fmt.Errorf("%w: the folder %s is gone", remote.ErrNoBucket, b.objects())
	}
	return err
}

// opened is an object's file and what its trailer says.
type opened struct {
	file fsys.File
	trailer
}

// open opens an object.
func (b *Bucket) open(ctx context.Context, key string) (*opened, error) {
	if err := remote.CheckKey(key); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f, err := b.fs.OpenFile(b.file(key), fsys.ReadOnly, 0)
	if err != nil {
		return nil, b.missing(diskError(err))
	}
	t, err := readTrailer(f)
	if err != nil {
		_ = f.Close() // it was only read
		return nil, err
	}
	return &opened{f, t}, nil
}

func readTrailer(f fsys.File) (trailer, error) {
	st, err := f.Stat()
	if err != nil {
		return trailer{}, diskError(err)
	}
	if st.IsDir() {
		return trailer{}, remote.ErrNotFound
	}
	end := make([]byte, min(st.Size(), trailerSize))
	if _, err = f.ReadAt(end, st.Size()-int64(len(end))); err != nil {
		return trailer{}, diskError(err)
	}
	n, err := trailerLen(end)
	if err != nil {
		return trailer{}, err
	}
	if n > len(end) && int64(n) <= st.Size() {
		end = make([]byte, n)
		if _, err = f.ReadAt(end, st.Size()-int64(n)); err != nil {
			return trailer{}, diskError(err)
		}
	}
	return decodeTrailer(end, st.Size())
}

// Get opens an object. A read of all of it ends with ErrChecksum if its bytes
// are not those that were written.
func (b *Bucket) Get(ctx context.Context, key string, r remote.Range) (io.ReadCloser, remote.Object, error) {
	o, err := b.open(ctx, key)
	if err != nil {
		return nil, remote.Object{}, remote.Fail("get", key, err)
	}
	off, end, err := r.Span(o.size)
	if cerr := (remote.Cond{ETag: r.ETag}).Check(true, o.object(key).ETag); cerr != nil {
		err = cerr
	}
	if err != nil {
		_ = o.file.Close() // it was only read
		return nil, remote.Object{}, remote.Fail("get", key, err)
	}
	body := &body{ctx: ctx, key: key, o: o, off: off, end: end, whole: off == 0 && end == o.size}
	return body, o.object(key), nil
}

// body reads the bytes [off, end) of an object.
type body struct {
	ctx      context.Context
	key      string
	o        *opened
	off, end int64
	whole    bool // compare the CRC-32C at the end
	crc      uint32
}

func (b *body) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, remote.Fail("get", b.key, err)
	}
	if b.off == b.end {
		if b.whole && b.crc != b.o.crc {
			return 0, remote.Fail("get", b.key, fmt.Errorf("%w: CRC-32C of the body is %08x, the trailer says %08x", remote.ErrChecksum, b.crc, b.o.crc))
		}
		return 0, io.EOF
	}
	n, err := b.o.file.ReadAt(p[:min(int64(len(p)), b.end-b.off)], b.off)
	b.off += int64(n)
	if b.whole {
		b.crc = remote.UpdateCRC32C(b.crc, p[:n])
	}
	return n, remote.Fail("get", b.key, diskError(err))
}

func (b *body) Close() error { return remote.Fail("get", b.key, diskError(b.o.file.Close())) }

// ReadAt reads a part of an object.
func (b *Bucket) ReadAt(ctx context.Context, key string, dst []byte, off int64) (int, error) {
	o, err := b.open(ctx, key)
	if err != nil {
		return 0, remote.Fail("read", key, err)
	}
	defer func() { _ = o.file.Close() }() // it was only read
	from, to, short, err := remote.ReadAtSpan(len(dst), off, o.size)
	if err != nil {
		return 0, remote.Fail("read", key, err)
	}
	n, err := o.file.ReadAt(dst[:to-from], from)
	if err != nil {
		return n, remote.Fail("read", key, diskError(err))
	}
	if short {
		return n, io.EOF
	}
	return n, nil
}

// Stat describes an object.
func (b *Bucket) Stat(ctx context.Context, key string) (remote.Object, error) {
	o, err := b.open(ctx, key)
	if err != nil {
		return remote.Object{}, remote.Fail("stat", key, err)
	}
	return o.object(key), remote.Fail("stat", key, diskError(o.file.Close()))
}

// AbortStale removes temporary files that nobody has written to for the given
// time.
func (b *Bucket) AbortStale(ctx context.Context, olderThan time.Duration) (int, error) {
	const op = "remove temporary files"
	entries, err := b.fs.ReadDir(b.temps())
	if err != nil {
		return 0, remote.Fail(op, b.String(), diskError(err))
	}
	limit, n := b.now().Add(-olderThan), 0
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return n, remote.Fail(op, b.String(), err)
		}
		st, err := e.Info()
		if err == nil && !st.ModTime().Before(limit) {
			continue
		}
		if err == nil {
			err = b.fs.Remove(b.temps() + "/" + e.Name())
		}
		switch {
		case err == nil:
			n++
		case !errors.Is(err, fs.ErrNotExist): // else its writer was faster
			return n, remote.Fail(op, b.String(), diskError(err))
		}
	}
	return n, nil
}

// unique is 16 random bytes.
func unique() (id [16]byte, name string) {
	_, _ = rand.Read(id[:]) // never fails
	return id, hex.EncodeToString(id[:])
}

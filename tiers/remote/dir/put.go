package dir

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"path"
	"syscall"
	"time"

	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/remote"
)

const lockCount = 256

// lockWait bounds the pause between two tries to take a lock file that another
// process holds. It holds it for a few system calls.
const lockWait = 20 * time.Millisecond

func isNotDir(err error) bool { return errors.Is(err, syscall.ENOTDIR) }

// Put stores an object.
func (b *Bucket) Put(ctx context.Context, key string, body remote.Body, o remote.PutOptions) (remote.Object, error) {
	out, err := b.put(ctx, key, body, o.If)
	if err != nil {
		return remote.Object{}, remote.Fail("put", key, err)
	}
	return out, nil
}

func (b *Bucket) put(ctx context.Context, key string, body remote.Body, cond remote.Cond) (remote.Object, error) {
	if err := remote.CheckKey(key); err != nil {
		return remote.Object{}, err
	}
	if cond.Absent && cond.ETag != "" {
		return remote.Object{}, fmt.Errorf("%w: no object can be absent and have an ETag", remote.ErrPrecondition)
	}
	if err := b.mkdir(path.Dir(b.file(key))); err != nil {
		return remote.Object{}, err
	}
	temp, t, err := b.writeTemp(ctx, body)
	if err != nil {
		return remote.Object{}, err
	}
	if cond.Absent {
		err = b.link(ctx, temp, key)
	} else {
		err = b.replace(ctx, temp, key, cond)
	}
	return t.object(key), err
}

// mkdir makes a folder and syncs those above it, unless this process has done so
// before: another one may have made them and not got to it.
func (b *Bucket) mkdir(dir string) error {
	b.mu.Lock()
	known := b.durable[dir]
	b.mu.Unlock()
	if known {
		return nil
	}
	if err := b.missing(remote.ErrNotFound); !errors.Is(err, remote.ErrNotFound) {
		return err // it is not for a Put to make the bucket
	}
	if err := b.fs.MkdirAll(dir, 0o755); err != nil {
		if isNotDir(err) || errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("%w: an object has the name of a folder that it needs: %w", remote.ErrBadKey, err)
		}
		return b.missing(diskError(err))
	}
	for up := dir; up != b.objects(); up = path.Dir(up) {
		if err := b.fs.SyncDir(path.Dir(up)); err != nil {
			return b.missing(diskError(err))
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.durable[dir] = true
	return nil
}

// writeTemp writes a whole object under a temporary name.
func (b *Bucket) writeTemp(ctx context.Context, body remote.Body) (name string, t trailer, err error) {
	t = trailer{size: body.Size(), written: b.now().UTC()}
	var random string
	t.etag, random = unique()
	name = b.temps() + "/" + random
	f, err := b.fs.OpenFile(name, fsys.WriteOnly|fsys.Create|fsys.Exclusive, 0o644)
	if err != nil {
		return "", t, b.missing(diskError(err))
	}
	if t.crc, err = copyBody(ctx, f, body); err == nil {
		err = finish(f, t)
	}
	if cerr := f.Close(); err == nil {
		err = diskError(cerr)
	}
	if err != nil {
		return "", t, b.dropTemp(name, err)
	}
	return name, t, nil
}

// dropTemp removes a temporary file after err. If that fails too, AbortStale
// will do it.
func (b *Bucket) dropTemp(name string, err error) error {
	if rerr := b.fs.Remove(name); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
		return fmt.Errorf("%w; its temporary file stays: %w", err, rerr)
	}
	return err
}

// tempError is diskError for a temporary file that was to get its name. It may be
// gone if the Put took so long that it was taken for an abandoned one.
func tempError(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: the temporary file or the folder was removed: %w", remote.ErrUnavailable, err)
	}
	return diskError(err)
}

func finish(f fsys.File, t trailer) error {
	if _, err := f.Write(t.encode()); err != nil {
		return diskError(err)
	}
	return diskError(f.Sync())
}

// copyBody writes the body and returns its CRC-32C, which is the one that came
// with it.
func copyBody(ctx context.Context, f io.Writer, body remote.Body) (crc uint32, err error) {
	r, err := body.Open(0, body.Size())
	if err != nil {
		return 0, fmt.Errorf("read the body: %w", err)
	}
	defer func() { _ = r.Close() }() // it was only read
	buf := make([]byte, min(body.Size(), 256<<10))
	for left := body.Size(); left > 0; {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		part := buf[:min(left, int64(len(buf)))]
		if _, err := io.ReadFull(r, part); err != nil {
			return 0, fmt.Errorf("read the body: %d bytes before its end: %w", left, err)
		}
		if _, err := f.Write(part); err != nil {
			return 0, diskError(err)
		}
		crc = remote.UpdateCRC32C(crc, part)
		left -= int64(len(part))
	}
	if want, known := remote.KnownCRC32C(body); known && want != crc {
		return 0, fmt.Errorf("%w: CRC-32C of the body is %08x, was announced as %08x", remote.ErrChecksum, crc, want)
	}
	return crc, nil
}

// link gives the object its name if there is none of that name.
func (b *Bucket) link(ctx context.Context, temp, key string) error {
	if err := ctx.Err(); err != nil {
		return b.dropTemp(temp, err)
	}
	err := b.fs.Link(temp, b.file(key))
	if errors.Is(err, fs.ErrExist) {
		return b.dropTemp(temp, fmt.Errorf("%w: it exists already", remote.ErrPrecondition))
	}
	if err != nil {
		return b.dropTemp(temp, tempError(err))
	}
	if err := b.syncFolder(key); err != nil {
		return err
	}
	if err := b.fs.Remove(temp); err != nil {
		return nil //nolint:nilerr // the object is there; AbortStale removes its other name
	}
	return nil
}

// replace gives the object its name if cond holds, in the place of another one.
func (b *Bucket) replace(ctx context.Context, temp, key string, cond remote.Cond) error {
	unlock, err := b.lock(ctx, key)
	if err != nil {
		return b.dropTemp(temp, err)
	}
	defer unlock()
	if err := b.check(ctx, key, cond); err != nil {
		return b.dropTemp(temp, err)
	}
	if err := b.fs.Rename(temp, b.file(key)); err != nil {
		if errors.Is(err, syscall.EISDIR) || errors.Is(err, fs.ErrExist) {
			err = fmt.Errorf("%w: a folder has its name: %w", remote.ErrBadKey, err)
		} else {
			err = tempError(err)
		}
		return b.dropTemp(temp, err)
	}
	return b.syncFolder(key)
}

// syncFolder makes a name durable. If that fails nobody knows what a crash would
// leave.
func (b *Bucket) syncFolder(key string) error {
	if err := b.fs.SyncDir(path.Dir(b.file(key))); err != nil {
		return fmt.Errorf("%w: %w", remote.ErrUnknownOutcome, b.missing(diskError(err)))
	}
	return nil
}

// check compares the ETag of the object that is there. The caller holds the lock.
func (b *Bucket) check(ctx context.Context, key string, cond remote.Cond) error {
	if cond.ETag == "" {
		return ctx.Err()
	}
	now, err := b.open(ctx, key)
	if errors.Is(err, remote.ErrNotFound) {
		return cond.Check(false, "")
	}
	if err != nil {
		return err
	}
	if err := now.file.Close(); err != nil {
		return b.missing(diskError(err))
	}
	return cond.Check(true, now.object(key).ETag)
}

// lock takes the lock of a key, first in this process and then among all. It
// ends with ctx.
func (b *Bucket) lock(ctx context.Context, key string) (unlock func(), err error) {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key)) // never fails
	i := h.Sum32() % lockCount
	select {
	case b.locks[i] <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	held, err := b.lockFile(ctx, fmt.Sprintf("%s/locks/%02x", b.root, i))
	if err != nil {
		<-b.locks[i]
		return nil, err
	}
	return func() {
		_ = held.Close() // nothing was written to it, and closing unlocks in any case
		<-b.locks[i]
	}, nil
}

// lockFile tries until the lock is free. There is no call that waits for a lock
// and can be told to stop.
func (b *Bucket) lockFile(ctx context.Context, name string) (io.Closer, error) {
	for wait := time.Millisecond; ; wait = min(2*wait, lockWait) {
		held, err := b.fs.Lock(name)
		if err == nil {
			return held, nil
		}
		if !errors.Is(err, fsys.ErrLocked) {
			return nil, b.missing(diskError(err))
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		}
	}
}

// Delete removes objects.
func (b *Bucket) Delete(ctx context.Context, keys ...string) error {
	folders := map[string]string{} // the last key removed from each
	var errs []error
	for _, key := range keys {
		removed, err := b.remove(ctx, key)
		if removed {
			folders[path.Dir(key)] = key
		}
		errs = append(errs, remote.Fail("delete", key, err))
	}
	for _, key := range folders {
		errs = append(errs, remote.Fail("delete", key, b.syncFolder(key)))
	}
	return errors.Join(errs...)
}

func (b *Bucket) remove(ctx context.Context, key string) (bool, error) {
	if err := remote.CheckKey(key); err != nil {
		return false, err
	}
	unlock, err := b.lock(ctx, key)
	if err != nil {
		return false, err
	}
	defer unlock()
	if err = ctx.Err(); err != nil {
		return false, err
	}
	st, err := b.fs.Stat(b.file(key))
	if err == nil && !st.IsDir() {
		err = b.fs.Remove(b.file(key))
	} else if err == nil {
		return false, nil // a folder is no object
	}
	if err = b.missing(diskError(err)); errors.Is(err, remote.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

package dir

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"slices"
	"strings"

	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/remote"
)

// List yields the objects that o selects. It opens each, to tell its size and
// ETag. One whose trailer is damaged is yielded without an ETag: whoever reads it
// is told, whoever looks for others goes on.
func (b *Bucket) List(ctx context.Context, o remote.ListOptions) iter.Seq2[remote.Object, error] {
	return func(yield func(remote.Object, error) bool) {
		l := &listing{b: b, ctx: ctx, o: o, yield: yield}
		dir := o.Prefix[:strings.LastIndexByte(o.Prefix, '/')+1] // what all keys have in common
		if dir != "" && remote.CheckKey(strings.TrimSuffix(dir, "/")) != nil {
			return // no key is like that
		}
		if err := l.walk(dir); err != nil && !errors.Is(err, errStop) {
			yield(remote.Object{}, remote.Fail("list", o.Prefix, err))
		}
	}
}

// errStop ends a walk whose consumer has left.
var errStop = errors.New("stop")

type listing struct {
	b     *Bucket
	ctx   context.Context
	o     remote.ListOptions
	yield func(remote.Object, error) bool
}

// walk visits the folder dir, which is empty or ends with a slash, in the order
// of keys: a folder counts with its slash.
func (l *listing) walk(dir string) error {
	if err := l.ctx.Err(); err != nil {
		return err
	}
	names, err := l.names(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := l.visit(dir + name); err != nil {
			return err
		}
	}
	return nil
}

func (l *listing) names(dir string) ([]string, error) {
	entries, err := l.b.fs.ReadDir(l.b.file(dir))
	if errors.Is(err, fs.ErrNotExist) || isNotDir(err) {
		if err := l.b.missing(remote.ErrNotFound); !errors.Is(err, remote.ErrNotFound) {
			return nil, err
		}
		return nil, nil
	}
	if err != nil {
		return nil, diskError(err)
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
		if e.IsDir() {
			names[i] += "/"
		}
	}
	slices.Sort(names)
	return names, nil
}

func (l *listing) visit(key string) error {
	folder := strings.HasSuffix(key, "/")
	switch {
	case folder && !strings.HasPrefix(key, l.o.Prefix) && !strings.HasPrefix(l.o.Prefix, key),
		!folder && !strings.HasPrefix(key, l.o.Prefix):
		return nil
	case key <= l.o.StartAfter && (!folder || !strings.HasPrefix(l.o.StartAfter, key)):
		return nil
	case l.o.Delimiter == "/" && folder && strings.HasPrefix(key, l.o.Prefix):
		return l.common(key)
	case folder:
		return l.walk(key)
	}
	obj, err := l.object(key)
	if errors.Is(err, remote.ErrNotFound) {
		return nil // removed meanwhile
	}
	if err != nil {
		return err
	}
	return l.emit(obj)
}

func (l *listing) emit(obj remote.Object) error {
	if err := l.ctx.Err(); err != nil {
		return err
	}
	if !l.yield(obj, nil) {
		return errStop
	}
	return nil
}

// common yields a folder as a common prefix if it holds a key that is asked for.
func (l *listing) common(folder string) error {
	found := false
	below := &listing{b: l.b, ctx: l.ctx, o: remote.ListOptions{Prefix: folder, StartAfter: l.o.StartAfter}}
	below.yield = func(remote.Object, error) bool { found = true; return false }
	if err := below.walk(folder); err != nil && !errors.Is(err, errStop) {
		return err
	}
	if !found {
		return nil
	}
	return l.emit(remote.Object{Key: folder, IsPrefix: true})
}

func (l *listing) object(key string) (remote.Object, error) {
	f, err := l.b.fs.OpenFile(l.b.file(key), fsys.ReadOnly, 0)
	if err != nil {
		return remote.Object{}, diskError(err)
	}
	defer func() { _ = f.Close() }() // it was only read
	t, err := readTrailer(f)
	if err == nil {
		return t.object(key), nil
	}
	st, serr := f.Stat()
	if serr != nil || !errors.Is(err, remote.ErrChecksum) {
		return remote.Object{}, err
	}
	return remote.Object{Key: key, Size: max(0, st.Size()-trailerSize), Modified: st.ModTime().UTC()}, nil
}

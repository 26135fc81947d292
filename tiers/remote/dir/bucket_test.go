package dir_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/fsys/mem"
	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/buckettest"
	"github.com/strandline-io/strandline/tiers/remote/dir"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, f fsys.FS, root string) *dir.Bucket {
	t.Helper()
	b, err := dir.Open(f, root, dir.Options{})
	must(t, err)
	return b
}

func TestAcceptance(t *testing.T) {
	t.Parallel()
	t.Run("disk", func(t *testing.T) {
		t.Parallel()
		buckettest.Run(t, func(t *testing.T) remote.Bucket { t.Helper(); return open(t, fsys.OS{}, t.TempDir()) })
	})
	t.Run("shared", func(t *testing.T) {
		t.Parallel()
		buckettest.Run(t, func(t *testing.T) remote.Bucket {
			t.Helper()
			root := t.TempDir()
			return &pair{Bucket: open(t, fsys.OS{}, root), other: open(t, fsys.OS{}, root)}
		})
	})
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		buckettest.Run(t, func(t *testing.T) remote.Bucket { t.Helper(); return open(t, mem.New(), "/bucket") })
	})
}

// pair is one folder as two processes see it: every second write and removal is
// the other one's.
type pair struct {
	remote.Bucket
	other remote.Bucket
	n     atomic.Int64
}

func (p *pair) next() remote.Bucket {
	if p.n.Add(1)%2 == 0 {
		return p.other
	}
	return p.Bucket
}

func (p *pair) Put(ctx context.Context, key string, body remote.Body, o remote.PutOptions) (remote.Object, error) {
	return p.next().Put(ctx, key, body, o)
}

func (p *pair) Delete(ctx context.Context, keys ...string) error {
	return p.next().Delete(ctx, keys...)
}

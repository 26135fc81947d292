package dir_test

import (
	"errors"
	"testing"

	"github.com/strandline-io/strandline/tiers/fsys/mem"
	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/dir"
)

// TestBucketGone: the folder is away, as when its disk is not mounted. Nothing is
// said of objects then: not that they are missing, and not that they were removed.
func TestBucketGone(t *testing.T) {
	files := mem.New()
	b, err := dir.Open(files, "/bucket", dir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Put(t.Context(), "a/b", remote.BytesBody([]byte("x")), remote.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := files.Rename("/bucket", "/elsewhere"); err != nil {
		t.Fatal(err)
	}
	_, _, get := b.Get(t.Context(), "a/b", remote.Range{})
	_, stat := b.Stat(t.Context(), "a/b")
	_, readAt := b.ReadAt(t.Context(), "a/b", make([]byte, 1), 0)
	var list error
	for _, err := range b.List(t.Context(), remote.ListOptions{Prefix: "a/"}) {
		list = err
	}
	_, put := b.Put(t.Context(), "c/d", remote.BytesBody([]byte("x")), remote.PutOptions{})
	if _, err := files.Stat("/bucket"); err == nil {
		t.Error("a Put made the folder of the bucket")
	}
	for op, err := range map[string]error{"get": get, "put": put, "stat": stat, "read": readAt, "list": list, "delete": b.Delete(t.Context(), "a/b")} {
		if err == nil || errors.Is(err, remote.ErrNotFound) {
			t.Errorf("%s: %v", op, err)
		}
	}
	if err := files.Rename("/elsewhere", "/bucket"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Stat(t.Context(), "a/b"); err != nil {
		t.Fatal("it is back:", err)
	}
}

package dir_test

import (
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
		buckettest.Run(t, func(t *testing.T) remote.Bucket { return open(t, fsys.OS{}, t.TempDir()) })
	})
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		buckettest.Run(t, func(t *testing.T) remote.Bucket { return open(t, mem.New(), "/bucket") })
	})
}

package gateway

import (
	"context"
	"errors"
	"io/fs"
	"slices"

	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/remote"
)

// Standing is how a data directory and a bucket stand to each other: what a start
// would find. Looking at it changes neither.
type Standing struct {
	Claim *control.ClaimRecord // who holds the bucket; nil: nobody ever did
	// New says that the data directory has no control plane.
	New bool
	// Known says that the claim was left by a start of this data directory.
	Known bool
	// Used says that the data directory was started with a bucket before.
	Used bool
}

// Stand compares the data directory of c with the bucket b. Error kinds:
// StorageFailed, RemoteUnavailable, CorruptMessage for a damaged claim.
func Stand(ctx context.Context, files fsys.FS, c Config, b remote.Bucket) (s Standing, err error) {
	path := c.DataDir + "/" + ControlFile
	switch _, err := files.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
		s.New = true
	case err != nil:
		return s, tiers.E(tiers.StorageFailed, "look at", path, "%w", err)
	}
	starts, err := readStarts(files, c.DataDir)
	if err != nil {
		return s, err
	}
	s.Used = len(starts) > 0
	rec, ok, err := control.ReadClaim(ctx, b)
	if err != nil {
		return s, err
	}
	if ok {
		s.Claim, s.Known = &rec, slices.Contains(starts, rec.Instance)
	}
	return s, nil
}

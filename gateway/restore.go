package gateway

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/strandline-io/strandline/gateway/control/sqlite"
	"github.com/strandline-io/strandline/gateway/rebuild"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/local"
	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/dir"
)

// RebuildDeps is what a rebuild is handed besides the configuration. Every field
// may be left out.
type RebuildDeps struct {
	DryRun bool
	FS     fsys.FS          // nil: the machine's
	Bucket remote.Bucket    // nil: what Config.Bucket names
	Log    hclog.Logger     // nil: nothing is logged
	Now    func() time.Time // nil: time.Now
}

// Rebuild brings the cluster of the configured bucket back into the configured
// data directory, which must be empty or missing. A dry run makes nothing there.
func Rebuild(ctx context.Context, c Config, d RebuildDeps) (rep rebuild.Report, err error) {
	base := Deps{FS: d.FS, Log: d.Log, Now: d.Now, Registry: prometheus.NewRegistry()}.withDefaults()
	b := d.Bucket
	if b == nil {
		if b, err = openConfigured(ctx, c, dir.Options{Existing: true}); err != nil {
			return rep, err
		}
		if b == nil {
			return rep, tiers.E(tiers.InvalidConfig, "rebuild", "", "no bucket is configured")
		}
		defer func() { err = errors.Join(err, b.Close()) }()
	}
	b = remote.WithRetry(b, remote.RetryOptions{})
	if err := checkEmpty(base.FS, c.DataDir); err != nil {
		return rep, err
	}
	o := rebuild.Options{DryRun: d.DryRun, Node: tiers.NodeID(c.NodeID), Now: base.Now, Log: base.Log}
	if d.DryRun {
		return rebuild.Run(ctx, b, nil, o)
	}
	// The claim fences the node that has the bucket only where conditions hold.
	if err := testBucket(ctx, "rebuild", b); err != nil {
		return rep, err
	}
	disk, err := local.OpenDisk(base.FS, c.DataDir, base.Log)
	if err != nil {
		return rep, err
	}
	defer func() { err = errors.Join(err, disk.Close()) }()
	store, err := sqlite.Open(base.FS, c.DataDir+"/"+ControlFile, sqlite.Options{Now: base.Now})
	if err != nil {
		return rep, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	// The starts of a directory that holds a cluster are what its claim is known by.
	if err := rebuild.CheckEmpty(ctx, store); err != nil {
		return rep, err
	}
	o.Instance = "rebuild-" + uuid.NewString()
	if err := writeStarts(base.FS, c.DataDir, []string{o.Instance}); err != nil {
		return rep, err
	}
	return rebuild.Run(ctx, b, store, o)
}

// lostFound is the folder that mkfs makes in the root of a file system.
const lostFound = "lost+found"

// cacheFolder is the disk cache's place in a data directory. Nothing in it counts.
const cacheFolder = "cache"

// checkEmpty refuses a data directory with partitions in it. The files of a
// rebuild that was cut off do not count: whether the control plane is empty is
// asked of it.
func checkEmpty(files fsys.FS, dir string) error {
	entries, err := files.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return tiers.E(tiers.StorageFailed, "rebuild", dir, "%w", err)
	}
	for _, e := range entries {
		if e.IsDir() && e.Name() != lostFound && e.Name() != cacheFolder {
			return tiers.E(tiers.Conflict, "rebuild", dir, "the folder %s is in it already: rebuild into an empty directory", e.Name())
		}
	}
	return nil
}

package gateway

import (
	"context"
	"errors"
	"io/fs"
	"strings"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/dir"
	"github.com/strandline-io/strandline/tiers/remote/memory"
	"github.com/strandline-io/strandline/tiers/remote/minio"
	"github.com/strandline-io/strandline/tiers/remote/s3"
	"github.com/strandline-io/strandline/tiers/remote/s3wire"
	"github.com/strandline-io/strandline/tiers/remote/spool"
)

// OpenBucket opens the bucket that a configuration names, without retries. The
// caller closes it. Without a bucket it returns nil. A folder that is missing is
// made.
func OpenBucket(ctx context.Context, c Config) (remote.Bucket, error) {
	return openConfigured(ctx, c, dir.Options{})
}

// openConfigured is OpenBucket with options for a folder.
func openConfigured(ctx context.Context, c Config, folder dir.Options) (remote.Bucket, error) {
	scheme, rest, _ := strings.Cut(c.Bucket, ":")
	switch scheme {
	case "":
		return nil, nil
	case "memory":
		return memory.New(), nil
	case "dir":
		return openDir(rest, folder)
	}
	conf, driver, err := c.s3Bucket()
	if err != nil {
		return nil, tiers.E(tiers.InvalidConfig, "open bucket", redactURL(c.Bucket), "%w", err)
	}
	if driver == s3wire.DriverMinio {
		return minio.Open(conf)
	}
	return s3.Open(ctx, conf)
}

func openDir(path string, o dir.Options) (remote.Bucket, error) {
	b, err := dir.Open(fsys.OS{}, path, o)
	switch {
	case err == nil:
		return b, nil
	case errors.Is(err, remote.ErrNoBucket):
		return nil, tiers.E(tiers.InvalidConfig, "open bucket", "dir:"+path,
			"mount it, or correct bucket; it is not made, since what was copied would be missing from it (a bucket that is to begin anew needs an empty folder): %w", err)
	}
	return nil, err // and no b: a nil *dir.Bucket in an interface is not nil
}

// usedBucket reports whether the data directory has been used with a bucket. What
// cannot be looked at counts: a folder that is missing is then not made.
func (n *Node) usedBucket() bool {
	_, err := n.d.FS.Stat(n.c.DataDir + "/" + StartsFile)
	return !errors.Is(err, fs.ErrNotExist)
}

// openBucket opens the bucket and asks it to show that it keeps its promises.
func (n *Node) openBucket(ctx context.Context) error {
	b := n.d.Bucket
	if b == nil {
		opened, err := openConfigured(ctx, n.c, dir.Options{Existing: n.usedBucket()})
		if err != nil || opened == nil {
			return err
		}
		n.onStop("close the bucket", func(context.Context) error { return opened.Close() })
		b = opened
	}
	if n.c.Bucket == "memory:" {
		n.d.Log.Warn("the bucket is in memory: what is copied there is gone when this process ends")
	}
	n.gate = remote.NewGate(remote.GateOptions{Limits: n.c.Limits, Registerer: n.d.Registry})
	b = remote.WithGate(b, n.gate)
	b = remote.WithRetry(remote.WithMetrics(b, n.d.Registry), remote.RetryOptions{Logger: n.d.Log.Named("bucket"), Registerer: n.d.Registry})
	if n.c.BucketHedge {
		b = remote.WithHedge(b, remote.HedgeOptions{Registerer: n.d.Registry})
	}
	if err := testBucket(ctx, "start", b); err != nil {
		return err
	}
	n.bucket = b
	o := remote.CacheOptions{Bytes: n.c.CacheBytes, MetaBytes: n.c.CacheMetaBytes, Registerer: n.d.Registry}
	if s := n.openSpool(); s != nil { // a nil *Spool in an interface would not be nil
		o.Disk = s
	}
	n.cache = remote.NewCache(b, o)
	n.onStop("close the cache", func(context.Context) error { n.cache.Close(); return nil })
	return nil
}

// openSpool opens the disk cache, if there is to be one. A folder that cannot be
// used costs the disk cache and not the node: all of it is in the bucket.
func (n *Node) openSpool() *spool.Spool {
	if n.c.CacheDiskBytes == 0 {
		return nil
	}
	folder := n.c.CacheDir
	if folder == "" {
		folder = n.c.DataDir + "/" + cacheFolder
	}
	s, err := spool.Open(n.d.FS, spool.Options{Dir: folder, Bytes: n.c.CacheDiskBytes, Log: n.d.Log.Named("disk-cache"), Registerer: n.d.Registry})
	if err != nil {
		n.d.Log.Warn("there is no disk cache before the next start, and everything is read from the bucket", "folder", folder, "error", err)
		return nil
	}
	n.onStop("close the disk cache", func(context.Context) error { s.Close(); return nil })
	return s
}

// testBucket asks a bucket to keep its promises before anybody relies on them,
// and says what to do about one that does not.
func testBucket(ctx context.Context, op string, b remote.Bucket) error {
	err := remote.SelfTest(ctx, b)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, remote.ErrNoBucket):
		return tiers.E(tiers.InvalidConfig, op, b.String(), "the bucket does not exist: create it first: %w", err)
	case errors.Is(err, remote.ErrDenied):
		return tiers.E(tiers.InvalidConfig, op, b.String(), "the keys are refused: check them and that they may get, put, delete and list: %w", err)
	case errors.Is(err, remote.ErrUnavailable), errors.Is(err, remote.ErrThrottled):
		return tiers.E(tiers.RemoteUnavailable, op, b.String(), "the bucket cannot be reached: check the endpoint (its scheme and port too) and the network, then try again: %w", err)
	}
	return tiers.E(tiers.InvalidConfig, op, b.String(), "the bucket failed its self-test: %w", err)
}

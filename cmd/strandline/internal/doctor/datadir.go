package doctor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/strandline-io/strandline/gateway"
	"github.com/strandline-io/strandline/tiers/fsys"
)

const (
	// probePrefix begins the names of files that are tried things with.
	probePrefix = ".strandline-doctor-"

	// Free space, in bytes and as a part of the disk, below which a node should
	// not be left alone.
	lowSpace  = 5 << 30
	noSpace   = 256 << 20
	lowParts  = 10
	lowInodes = 100_000 // a segment takes four

	cacheFolder = "cache" // in the data directory, unless cache.dir names another

	syncTime  = 5 * time.Second // at most, for each size
	syncCount = 200             // and so many, unless the options say otherwise
)

// dataDir checks the data directory and its disk.
func (e *exam) dataDir(ctx context.Context) []Check {
	dir := path.Clean(e.c.DataDir)
	if e.c.DataDir == "" || !path.IsAbs(dir) {
		return []Check{skip("data_dir", "it is not set")} // the configuration's check says what to do
	}
	st, err := e.fs.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		above := e.existing(dir)
		return append([]Check{ok("data_dir", "%s does not exist yet: the first start makes it", dir)}, e.disk(ctx, above)...)
	case err != nil:
		return []Check{ok("data_dir", "%v", err).fail("let the user that runs the node read and write %s", dir)}
	case !st.IsDir():
		return []Check{ok("data_dir", "%s is not a folder", dir).fail("give the node a folder")}
	}
	e.running = lockHolder(path.Join(dir, ".lock"))
	return append([]Check{e.contents(dir, st)}, e.disk(ctx, dir)...)
}

// existing is the closest folder above dir that exists.
func (e *exam) existing(dir string) string {
	for dir != "/" {
		dir = path.Dir(dir)
		if _, err := e.fs.Stat(dir); err == nil {
			break
		}
	}
	return dir
}

// contents checks what is in the data directory, without its lock.
func (e *exam) contents(dir string, st fs.FileInfo) Check {
	entries, err := e.fs.ReadDir(dir)
	if err != nil {
		return ok("data_dir", "%v", err).fail("let the user that runs the node read %s", dir)
	}
	partitions, control := 0, false
	for _, d := range entries {
		control = control || d.Name() == gateway.ControlFile
		if d.IsDir() && d.Name() != "lost+found" && !strings.HasPrefix(d.Name(), ".") && d.Name() != cacheFolder {
			partitions++
		}
	}
	c := ok("data_dir", "%s: %d partitions, %s", dir, partitions, e.running)
	switch {
	case !control && partitions > 0:
		c.Found = fmt.Sprintf("%s has %d folders of partitions and no %s", dir, partitions, gateway.ControlFile)
		return c.fail("put the file back; or, if the node has a bucket, run `strandline rebuild` into another, empty directory, which brings back what was copied")
	case !control:
		c.Found = fmt.Sprintf("%s is empty, %s", dir, e.running)
	}
	if st.Mode().Perm()&0o002 != 0 {
		c.Found += fmt.Sprintf(", every user may write to it (mode %04o)", st.Mode().Perm())
		return c.warn("chmod o-w %s: whoever writes there can change records", dir)
	}
	return c
}

// disk checks the disk of a folder.
func (e *exam) disk(ctx context.Context, dir string) []Check {
	checks := []Check{judgeFileSystem(fileSystem(dir))}
	free, total, err := e.fs.Free(dir)
	if err != nil {
		checks = append(checks, skip("disk.space", "%v", err))
	} else {
		checks = append(checks, judgeSpace(free, total))
	}
	if left, known := freeInodes(dir); known {
		checks = append(checks, judgeInodes(left))
	}
	checks = append(checks, e.cacheDisk(path.Clean(e.c.DataDir))...)
	small, large, err := e.syncs(ctx, dir)
	if err != nil {
		return append(checks, syncFailed(dir, err))
	}
	return append(checks, judgeSyncs(small, large))
}

// cacheDisk checks that what the cache may take on disk is there.
func (e *exam) cacheDisk(dataDir string) []Check {
	want := e.c.CacheDiskBytes
	if want == 0 {
		return nil
	}
	dir := e.c.CacheDir
	if dir == "" {
		dir = path.Join(dataDir, cacheFolder)
	}
	if _, err := e.fs.Stat(dir); err != nil {
		dir = e.existing(dir)
	}
	free, _, err := e.fs.Free(dir)
	if err != nil {
		return []Check{skip("cache.disk", "%v", err)}
	}
	return []Check{judgeCacheDisk(free, want, e.c.CacheDir == "")}
}

func judgeCacheDisk(free, want int64, shared bool) Check {
	c := ok("cache.disk", "cache.disk_bytes = %s, %s free", human(want), human(free))
	c.Values = map[string]float64{"free_bytes": float64(free), "wanted_bytes": float64(want)}
	switch {
	case want > free:
		return c.warn("lower cache.disk_bytes, unless the cache has filled already: it may take more than there is")
	case shared && free-want < lowSpace:
		return c.warn("it shares the disk with the data directory and may leave it less than %s: lower cache.disk_bytes, or give cache.dir a disk of its own", human(lowSpace))
	}
	return c
}

// judgeFileSystem knows the file systems that do not keep what they promise.
func judgeFileSystem(name string) Check {
	c := ok("disk.filesystem", "%s", name)
	switch name {
	case "":
		return skip("disk.filesystem", "its kind is not known on this system")
	case "nfs", "smb", "cifs", "9p", "ceph", "afs":
		return c.warn("use a local disk: locks and fsync of a network file system are what its server makes of them, and an outage stops every partition")
	case "tmpfs", "ramfs":
		return c.warn("use a disk: this is memory, and a reboot takes what was not copied to the bucket")
	case "overlay":
		return c.warn("mount a volume there: this is the container's own layer, which goes with the container")
	case "fuse":
		return c.warn("use a local disk: what fsync promises depends on the program behind this file system")
	}
	return c
}

func judgeSpace(free, total int64) Check {
	c := ok("disk.space", "%s free of %s", human(free), human(total))
	c.Values = map[string]float64{"free_bytes": float64(free), "total_bytes": float64(total)}
	switch {
	case free < noSpace:
		return c.fail("make room: appends are refused when the disk is full")
	case free < lowSpace, free < total/lowParts:
		return c.warn("make room, or lower local.retention.bytes or local.retention.ms of topics: appends are refused when the disk is full")
	}
	return c
}

func judgeInodes(free uint64) Check {
	c := ok("disk.inodes", "%d free", free)
	c.Values = map[string]float64{"free": float64(free)}
	if free < lowInodes {
		return c.warn("a segment takes four files: use larger segments (segment.bytes), or a file system with more inodes")
	}
	return c
}

// syncs measures appends of 4 KiB and of 64 KiB, each followed by fdatasync, as
// an acknowledged batch is.
func (e *exam) syncs(ctx context.Context, dir string) (small, large []time.Duration, err error) {
	e.removeProbes(dir)
	name := path.Join(dir, probePrefix+rand.Text())
	f, err := e.fs.OpenFile(name, fsys.WriteOnly|fsys.Create|fsys.Exclusive, 0o600)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		cerr := f.Close()
		if rerr := e.fs.Remove(name); !errors.Is(rerr, fs.ErrNotExist) {
			cerr = errors.Join(cerr, rerr)
		}
		err = errors.Join(err, cerr)
	}()
	if small, err = e.appends(ctx, f, make([]byte, 4<<10)); err != nil {
		return nil, nil, err
	}
	large, err = e.appends(ctx, f, make([]byte, 64<<10))
	return small, large, err
}

// removeProbes removes what a doctor that was killed has left.
func (e *exam) removeProbes(dir string) {
	entries, err := e.fs.ReadDir(dir)
	if err != nil {
		return // what follows will say so
	}
	for _, d := range entries {
		if strings.HasPrefix(d.Name(), probePrefix) {
			_ = e.fs.Remove(path.Join(dir, d.Name())) // a running one may remove it first
		}
	}
}

func (e *exam) appends(ctx context.Context, f fsys.File, b []byte) ([]time.Duration, error) {
	var took []time.Duration
	for begin := time.Now(); len(took) < e.syncsEach && time.Since(begin) < syncTime; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		began := time.Now()
		if _, err := f.Write(b); err != nil {
			return nil, err
		}
		if err := f.SyncData(); err != nil {
			return nil, err
		}
		took = append(took, time.Since(began))
	}
	return took, nil
}

func syncFailed(dir string, err error) Check {
	c := ok("disk.sync", "%v", err)
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return skip("disk.sync", "interrupted")
	case errors.Is(err, fs.ErrPermission), isReadOnly(err):
		return c.fail("let the user that runs the node write to %s", dir)
	case isFull(err):
		return c.fail("the disk is full: make room")
	}
	return c.fail("the disk does not take writes: look at the kernel's log (dmesg) and at the disk itself")
}

// judgeSyncs says what the disk costs an acknowledgement.
func judgeSyncs(small, large []time.Duration) Check {
	s50, s99 := quantile(small, 50), quantile(small, 99)
	l50, l99 := quantile(large, 50), quantile(large, 99)
	c := ok("disk.sync", "write and fdatasync of 4 KiB: p50 %s, p99 %s; of 64 KiB: p50 %s, p99 %s", round(s50), round(s99), round(l50), round(l99))
	c.Values = map[string]float64{
		"sync_4k_p50_ms": millis(s50), "sync_4k_p99_ms": millis(s99), "sync_64k_p50_ms": millis(l50), "sync_64k_p99_ms": millis(l99),
	}
	switch {
	case s50 < 8*time.Microsecond:
		return c.warn("no disk is that fast: something acknowledges before the data is safe (a write cache without a battery, memory), and a power cut may take acknowledged records")
	case l99 > 100*time.Millisecond:
		return c.warn("producers wait for it with strandline.ack=fsync: use a faster disk, or one that nothing else keeps busy; strandline.ack=interval waits for no sync and may lose the last second")
	case l99 > 20*time.Millisecond:
		return c.warn("slow for strandline.ack=fsync: producers see it as latency, batches that wait together share a sync")
	}
	return c
}

// quantile is the value that q percent of all are not above.
func quantile(all []time.Duration, q int) time.Duration {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[(len(sorted)*q+99)/100-1]
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// round keeps the digits that mean something.
func round(d time.Duration) time.Duration {
	if d < time.Millisecond {
		return d.Round(time.Microsecond)
	}
	return d.Round(10 * time.Microsecond)
}

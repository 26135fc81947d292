package doctor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"github.com/strandline-io/strandline/gateway"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/remote"
)

const (
	bucketTime  = 2 * time.Minute // for all checks of the bucket together
	cleanUpTime = 30 * time.Second

	smallObject = 4 << 10
	smallCount  = 20
	largeObject = 16 << 20
)

// bucketChecks checks the bucket. What it writes is removed at the end.
func (e *exam) bucketChecks(ctx context.Context) []Check {
	if done := e.openBucket(ctx); done != nil {
		if e.c.Bucket == "" || e.c.Bucket == "memory:" {
			return done
		}
		return unlooked(done)
	}
	if e.given == nil {
		defer func(b remote.Bucket) { _ = b.Close() }(e.bucket) // connections that idle
	}
	r := &recorder{Bucket: e.bucket, folders: map[string]bool{}}
	e.bucket = r
	defer e.removeFolders(r)
	ctx, cancel := context.WithTimeout(ctx, bucketTime)
	defer cancel()
	began := time.Now()
	if err := e.reach(ctx); err != nil {
		return unlooked([]Check{unreachable("bucket", e.bucket.String(), err)})
	}
	first := ok("bucket", "%s answers after %s", e.bucket, round(time.Since(began)))
	if !e.bucket.Caps().StoresCRC32C {
		first.Found += ", without checksums of whole objects (checksum=md5 in its URL)"
	}
	checks := []Check{first, e.selfTest(ctx)}
	if checks[1].Status == OK {
		checks = append(checks, e.probes(ctx)...)
	} else {
		checks = append(checks, skipped(probeNames())...)
	}
	return append(checks, e.standing(ctx), e.settings(ctx))
}

// probeNames are the checks of probes.
func probeNames() []string {
	return []string{"bucket.latency", "bucket.clock", "bucket.throughput"}
}

// afterBucket are the checks that need a bucket that answers.
func afterBucket() []string {
	return append(append([]string{"bucket.promises"}, probeNames()...), "bucket.claim", "bucket.settings")
}

// unlooked adds the checks that need a bucket, none of which was made.
func unlooked(checks []Check) []Check { return append(checks, skipped(afterBucket())...) }

func skipped(names []string) []Check {
	var out []Check
	for _, name := range names {
		out = append(out, skip(name, "not looked at: see the check of the bucket above"))
	}
	return out
}

// recorder notes the folders that objects are written to.
type recorder struct {
	remote.Bucket
	folders map[string]bool
}

func (r *recorder) Put(ctx context.Context, key string, body remote.Body, o remote.PutOptions) (remote.Object, error) {
	r.folders[path.Dir(key)] = true
	return r.Bucket.Put(ctx, key, body, o)
}

// Settings is remote.SettingsReader, where the bucket is one.
func (r *recorder) Settings(ctx context.Context) (remote.Settings, error) {
	if s, ok := r.Bucket.(remote.SettingsReader); ok {
		return s.Settings(ctx)
	}
	return remote.Settings{}, errors.ErrUnsupported
}

// removeFolders removes the folders that objects leave behind in a bucket that is
// a folder. One that holds something is not removed.
func (e *exam) removeFolders(r *recorder) {
	root, isDir := strings.CutPrefix(r.String(), "dir:")
	if !isDir {
		return
	}
	for folder := range r.folders {
		_ = e.fs.Remove(path.Join(root, "objects", folder))
	}
}

// openBucket opens it, or returns what there is to say without one.
func (e *exam) openBucket(ctx context.Context) []Check {
	if e.bucket = e.given; e.bucket != nil {
		return nil
	}
	c := ok("bucket", "none is configured")
	folder, isDir := strings.CutPrefix(e.c.Bucket, "dir:")
	switch {
	case e.c.Bucket == "":
		return []Check{c.warn("set bucket: until then every record is on this disk only")}
	case e.c.Bucket == "memory:":
		c.Found = "it is in the memory of a node"
		return []Check{c.warn("set bucket to a folder or an S3 bucket: what is copied into memory goes with the process")}
	case isDir:
		if _, err := e.fs.Stat(folder); err != nil {
			// Opening it would make it.
			return []Check{e.missingFolder(folder, err)}
		}
	}
	b, err := gateway.OpenBucket(ctx, e.c)
	if err != nil {
		return []Check{unreachable("bucket", e.c.Bucket, err)}
	}
	e.bucket = b
	return nil
}

// missingFolder is what there is to say of a folder that is not there.
func (e *exam) missingFolder(folder string, err error) Check {
	c := ok("bucket", "%v", err)
	if _, err := e.fs.Stat(e.c.DataDir + "/" + gateway.StartsFile); err == nil {
		return c.fail("mount it, or correct bucket: this data directory was in use with a bucket, and the folder is gone; a node does not start")
	}
	c.Found = folder + " does not exist yet: the first start makes it"
	return c
}

// reach asks for one object that is not there.
func (e *exam) reach(ctx context.Context) error {
	_, err := e.bucket.Stat(ctx, remote.SelfTestPrefix+rand.Text())
	if errors.Is(err, remote.ErrNotFound) {
		return nil
	}
	return err
}

// unreachable says what to do about a bucket that does not let itself be used.
func unreachable(name, where string, err error) Check {
	c := ok(name, "%v", err)
	switch {
	case err == nil:
		return c
	case strings.Contains(err.Error(), "RequestTimeTooSkewed"):
		return c.fail("set this machine's clock: the store refuses requests whose time is more than 15 minutes off")
	case strings.Contains(err.Error(), "wrong region"):
		return c.fail("set region in the bucket's URL (region=NAME) to that of the bucket, and endpoint to one of that region if it is set")
	case strings.Contains(err.Error(), "NoCredentials"):
		return c.fail("set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment, or s3.access_key and s3.secret_key, or give the machine a role: there are no keys")
	case errors.Is(err, remote.ErrNoBucket):
		return c.fail("create the bucket %s, or correct its name", where)
	case errors.Is(err, remote.ErrDenied):
		return c.fail("check the keys, and that they may get, put, delete and list below the prefix (s3:GetObject, PutObject, DeleteObject, ListBucket, AbortMultipartUpload, ListBucketMultipartUploads)")
	case errors.Is(err, context.Canceled):
		return skip(name, "interrupted")
	case errors.Is(err, context.DeadlineExceeded):
		return c.fail("it did not answer in time: check the endpoint, the network and the store")
	case errors.Is(err, remote.ErrThrottled):
		return c.warn("the store asks to slow down: see what else uses it, and try again")
	case errors.Is(err, remote.ErrUnavailable):
		return c.fail("check the endpoint, the region, the network and the store, then try again")
	}
	return c.fail("the message says what the store has against it; check the URL, the region and the keys")
}

// selfTest is the one that a start makes.
func (e *exam) selfTest(ctx context.Context) Check {
	err := remote.SelfTest(ctx, e.bucket)
	c := ok("bucket.promises", "what was written is read and listed at once, ranges, checksums and conditions hold")
	switch {
	case err == nil:
		return c
	case tiers.KindOf(err) == tiers.InvalidConfig:
		c.Found = err.Error()
		return c.fail("use another store or another version of it: a node refuses to start on this one")
	}
	return unreachable(c.Name, e.bucket.String(), err)
}

// probes measures requests, and removes the objects that it writes, also after an
// interrupt.
func (e *exam) probes(ctx context.Context) (checks []Check) {
	p := &prober{b: e.bucket, prefix: remote.SelfTestPrefix + "doctor-" + rand.Text() + "/"}
	defer func() {
		if err := p.cleanUp(ctx); err != nil {
			c := ok("bucket.cleanup", "%v", err)
			checks = append(checks, c.fail("remove the objects below %s by hand", p.prefix))
		}
	}()
	latency, err := p.latency(ctx)
	if err != nil {
		return []Check{unreachable("bucket.latency", e.bucket.String(), err)}
	}
	checks = append(checks, judgeLatency(latency), judgeSkew(p.before, p.stored, p.after))
	up, down, err := p.throughput(ctx)
	if err != nil {
		return append(checks, unreachable("bucket.throughput", e.bucket.String(), err))
	}
	return append(checks, judgeThroughput(up, down))
}

// prober writes objects, below a prefix of its own.
type prober struct {
	b      remote.Bucket
	prefix string
	keys   []string

	before, stored, after time.Time // of the first object
}

func (p *prober) cleanUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTime)
	defer cancel()
	return p.b.Delete(ctx, p.keys...)
}

func (p *prober) key(name string) string {
	key := p.prefix + name
	p.keys = append(p.keys, key)
	return key
}

// latency times requests on small objects, by the name of the request.
func (p *prober) latency(ctx context.Context) (map[string][]time.Duration, error) {
	out := make(map[string][]time.Duration)
	body, got := make([]byte, smallObject), make([]byte, smallObject)
	if _, err := rand.Read(body); err != nil {
		return nil, err
	}
	for i := range smallCount {
		key := p.key(fmt.Sprint("small-", i))
		for _, r := range []struct {
			name string
			do   func() error
		}{
			{"put", func() error { _, err := p.b.Put(ctx, key, remote.BytesBody(body), remote.PutOptions{}); return err }},
			{"get", func() error { _, err := p.b.ReadAt(ctx, key, got, 0); return err }},
			{"list", func() error { return p.list(ctx) }},
			{"delete", func() error { return p.b.Delete(ctx, key) }},
		} {
			if i == 0 && r.name == "get" {
				if err := p.clock(ctx, key); err != nil {
					return nil, err
				}
			}
			began := time.Now()
			err := r.do()
			took := time.Since(began)
			if i == 0 && r.name == "put" {
				p.before, p.after = began, began.Add(took)
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", r.name, err)
			}
			out[r.name] = append(out[r.name], took)
		}
	}
	return out, nil
}

// clock asks when the store says that the object was written.
func (p *prober) clock(ctx context.Context, key string) error {
	o, err := p.b.Stat(ctx, key)
	p.stored = o.Modified
	return err
}

func (p *prober) list(ctx context.Context) error {
	for _, err := range p.b.List(ctx, remote.ListOptions{Prefix: p.prefix}) {
		if err != nil {
			return err
		}
	}
	return nil
}

// throughput writes one large object and reads it back, in bytes per second.
func (p *prober) throughput(ctx context.Context) (up, down float64, err error) {
	body := make([]byte, largeObject)
	if _, err := rand.Read(body); err != nil {
		return 0, 0, err
	}
	key := p.key("large")
	began := time.Now()
	if _, err := p.b.Put(ctx, key, remote.BytesBody(body), remote.PutOptions{}); err != nil {
		return 0, 0, fmt.Errorf("put: %w", err)
	}
	up = rate(began)
	began = time.Now()
	rc, _, err := p.b.Get(ctx, key, remote.Range{})
	if err != nil {
		return 0, 0, fmt.Errorf("get: %w", err)
	}
	got, err := io.ReadAll(rc)
	if err = errors.Join(err, rc.Close()); err != nil {
		return 0, 0, fmt.Errorf("get: %w", err)
	}
	down = rate(began)
	if remote.CRC32C(got) != remote.CRC32C(body) {
		return 0, 0, fmt.Errorf("get: %w: %d bytes were written, and %d others came back", remote.ErrChecksum, len(body), len(got))
	}
	return up, down, nil
}

func rate(began time.Time) float64 { return largeObject / max(time.Since(began).Seconds(), 1e-9) }

func judgeLatency(all map[string][]time.Duration) Check {
	c := ok("bucket.latency", "")
	c.Values = make(map[string]float64)
	var parts []string
	worst := time.Duration(0)
	for _, name := range []string{"put", "get", "list", "delete"} {
		p50, p99 := quantile(all[name], 50), quantile(all[name], 99)
		parts = append(parts, fmt.Sprintf("%s p50 %s p99 %s", strings.ToUpper(name), round(p50), round(p99)))
		c.Values[name+"_p50_ms"], c.Values[name+"_p99_ms"] = millis(p50), millis(p99)
		worst = max(worst, p50)
	}
	c.Found = "4 KiB: " + strings.Join(parts, ", ")
	if worst > time.Second {
		return c.warn("requests take long: cold reads wait for several of them; use a store that is closer, or see what keeps it busy")
	}
	return c
}

func judgeThroughput(up, down float64) Check {
	c := ok("bucket.throughput", "16 MiB: PUT %s/s, GET %s/s, in one request", human(int64(up)), human(int64(down)))
	c.Values = map[string]float64{"put_bytes_per_s": up, "get_bytes_per_s": down}
	if min(up, down) < 4<<20 {
		return c.warn("slow: segments must leave at least as fast as records come in; use a store that is closer, or see what keeps it busy")
	}
	return c
}

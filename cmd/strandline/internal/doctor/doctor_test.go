package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/strandline-io/strandline/gateway"
	"github.com/strandline-io/strandline/testenv/s3srv"
	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

// syncs are enough to see that they are measured.
const syncs = 20

func TestMain(m *testing.M) { os.Exit(s3srv.Main(m)) }

func errDeadline() error { return context.DeadlineExceeded }

// loaded is a configuration in folders of the test.
func loaded(t *testing.T) *gateway.Loaded {
	t.Helper()
	root := t.TempDir()
	l, err := gateway.Load(gateway.Sources{Flags: map[string]string{
		"data-dir": filepath.Join(root, "data"), "bucket": "dir:" + filepath.Join(root, "bucket"),
		"kafka-listen": "127.0.0.1:0", "admin-listen": "127.0.0.1:0", "kafka-max-connections": "100",
	}})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// check returns the check of a name.
func check(t *testing.T, r Report, name string) Check {
	t.Helper()
	for _, c := range r.Checks {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("no check %s in %+v", name, r)
	return Check{}
}

// want compares the status of a check, and what it says.
func want(t *testing.T, r Report, name string, s Status, says string) {
	t.Helper()
	if c := check(t, r, name); c.Status != s || !strings.Contains(c.Found+" "+c.Advice, says) {
		t.Errorf("%+v, want %s with %q", c, s, says)
	}
}

// tree lists everything below the folders, with sizes and times of files.
func tree(t *testing.T, roots ...string) string {
	t.Helper()
	var b strings.Builder
	for _, root := range roots {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				if os.IsNotExist(err) {
					return nil
				}
				return err
			}
			if d.Name() == "locks" { // a bucket's 256 lock files, which come one by one and hold nothing
				return fs.SkipDir
			}
			st, err := d.Info()
			if err == nil && !d.IsDir() {
				fmt.Fprintf(&b, "%s %d %s\n", path, st.Size(), st.ModTime())
			} else {
				fmt.Fprintln(&b, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// start starts a node on the configuration, as serve does.
func start(t *testing.T, l *gateway.Loaded) *gateway.Node {
	t.Helper()
	n, err := gateway.Start(t.Context(), l.Config, gateway.Deps{})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func stop(t *testing.T, n *gateway.Node) {
	t.Helper()
	if err := n.Stop(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
}

func folders(l *gateway.Loaded) []string {
	return []string{l.DataDir, strings.TrimPrefix(l.Config.Bucket, "dir:")}
}

// Before the first start nothing is there, and nothing is made.
func TestBeforeTheFirstStart(t *testing.T) {
	l := loaded(t)
	r := Run(t.Context(), Options{Syncs: syncs, Loaded: l})
	want(t, r, "config", OK, "")
	want(t, r, "data_dir", OK, "the first start makes it")
	want(t, r, "disk.sync", check(t, r, "disk.sync").Status, "fdatasync")
	want(t, r, "bucket", OK, "the first start makes it")
	if r.Count(Failed) > 0 || r.Running {
		t.Errorf("%+v", r)
	}
	if left := tree(t, filepath.Dir(l.DataDir)); strings.Count(left, "\n") != 1 {
		t.Errorf("left behind:\n%s", left)
	}
}

// Next to a node and after it, everything is looked at and nothing changes: not
// the lock, not the claim, not a file.
func TestNextToANode(t *testing.T) {
	l := loaded(t)
	n := start(t, l)
	l.Config.Kafka.Listen, l.Config.Admin.Listen = n.KafkaAddr(), n.AdminAddr()
	r := Run(t.Context(), Options{Syncs: syncs, Loaded: l})
	want(t, r, "kafka.listen", OK, "is used by")
	want(t, r, "admin.listen", OK, "is used by")
	want(t, r, "bucket.claim", OK, "is held")
	want(t, r, "bucket.promises", OK, "")
	if r.Count(Failed) > 0 {
		t.Errorf("%+v", r)
	}
	if fileSystem(l.DataDir) == "ext4" && !r.Running {
		t.Error("the node that runs was not seen")
	}
	stop(t, n)
	before := tree(t, folders(l)...)
	r = Run(t.Context(), Options{Syncs: syncs, Loaded: l})
	want(t, r, "bucket.claim", OK, "was released")
	for _, c := range r.Checks {
		if c.Name == "cache.disk" {
			t.Errorf("there is no disk cache: %+v", c)
		}
	}
	cached := *l
	cached.CacheDiskBytes = 1 << 60
	want(t, Run(t.Context(), Options{Syncs: syncs, Loaded: &cached}), "cache.disk", Warn, "lower cache.disk_bytes")
	want(t, r, "data_dir", OK, "0 partitions")
	want(t, r, "kafka.listen", OK, "free")
	if r.Count(Failed) > 0 || r.Running {
		t.Errorf("%+v", r)
	}
	if after := tree(t, folders(l)...); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	// What a killed doctor left is removed by the next one.
	stale := filepath.Join(l.DataDir, probePrefix+"x")
	if err := os.WriteFile(stale, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	Run(t.Context(), Options{Syncs: syncs, Loaded: l})
	if after := tree(t, folders(l)...); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	stop(t, start(t, l)) // and a node starts on what is there
}

// The states of a data directory that a start refuses.
func TestDataDirsThatAreRefused(t *testing.T) {
	l := loaded(t)
	stop(t, start(t, l))
	other := *l
	other.DataDir += "-2"
	want(t, Run(t.Context(), Options{Syncs: syncs, Loaded: &other}), "bucket.claim", Failed, "strandline rebuild")

	if err := os.MkdirAll(filepath.Join(other.DataDir, "0123-0"), 0o750); err != nil {
		t.Fatal(err)
	}
	want(t, Run(t.Context(), Options{Syncs: syncs, Loaded: &other}), "data_dir", Failed, gateway.ControlFile)

	file := *l
	file.DataDir = filepath.Join(l.DataDir, gateway.ControlFile)
	want(t, Run(t.Context(), Options{Syncs: syncs, Loaded: &file}), "data_dir", Failed, "not a folder")

	gone := *l
	gone.Config.Bucket += "-2"
	r := Run(t.Context(), Options{Syncs: syncs, Loaded: &gone})
	want(t, r, "bucket", Failed, "the folder is gone")
	for _, name := range afterBucket() {
		want(t, r, name, Skipped, "not looked at")
	}

	if err := os.Chmod(l.DataDir, 0o777); err != nil { //nolint:gosec // that is what is looked at
		t.Fatal(err)
	}
	want(t, Run(t.Context(), Options{Syncs: syncs, Loaded: l}), "data_dir", Warn, "chmod o-w")
}

func TestConfigurationThatIsRefused(t *testing.T) {
	l := loaded(t)
	l.Config.DataDir, l.Config.Bucket = "relative", ""
	l.Config.Kafka.Listen = "0.0.0.0:9092"
	r := Run(t.Context(), Options{Syncs: syncs, Loaded: l})
	want(t, r, "config", Failed, "relative")
	want(t, r, "config", Failed, "kafka.allow_plaintext")
	want(t, r, "data_dir", Skipped, "")
	want(t, r, "bucket", Warn, "this disk only")
	l.Config.Bucket = "memory:"
	want(t, Run(t.Context(), Options{Syncs: syncs, Loaded: l}), "bucket", Warn, "goes with the process")
	l = loaded(t)
	l.Warnings = []string{"unknown environment variable"}
	want(t, Run(t.Context(), Options{Syncs: syncs, Loaded: l}), "config", Warn, "unknown environment variable")
}

// A port that somebody else has, and names that lead nowhere.
func TestListeners(t *testing.T) {
	l := loaded(t)
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	l.Config.Kafka.Listen = taken.Addr().String()
	l.Config.Kafka.Advertised = "host.invalid:9092"
	r := Run(t.Context(), Options{Syncs: syncs, Loaded: l})
	want(t, r, "kafka.listen", Failed, "ss -ltnp")
	want(t, r, "kafka.advertised", Warn, "host.invalid")
	l.Config.Kafka.Listen, l.Config.Kafka.Advertised = "192.0.2.1:9092", "localhost:9092"
	r = Run(t.Context(), Options{Syncs: syncs, Loaded: l})
	want(t, r, "kafka.listen", Failed, "an address of this machine")
	want(t, r, "kafka.advertised", OK, "127.0.0.1")

	n := start(t, loaded(t)) // a node with another data directory
	l.Config.Kafka.Listen, l.Config.Admin.Listen = n.KafkaAddr(), n.AdminAddr()
	want(t, Run(t.Context(), Options{Syncs: syncs, Loaded: l}), "kafka.listen", Failed, n.Cluster())
	stop(t, n)
}

// A disk that is full, read-only or broken: what to do, and no file is left.
func TestDisksThatFail(t *testing.T) {
	for says, f := range map[string]fsys.Fault{
		"make room":        {Kinds: fsys.OpWrite, Skip: 3, Err: syscall.ENOSPC},
		"write to":         {Kinds: fsys.OpCreate, Err: syscall.EROFS},
		"let the user":     {Kinds: fsys.OpCreate, Err: fs.ErrPermission},
		"the kernel's log": {Kinds: fsys.OpSyncData, Skip: 5, Err: syscall.EIO},
		"dmesg":            {Kinds: fsys.OpSyncData, Skip: syncs + 1, Err: syscall.EIO},
	} {
		l := loaded(t)
		stop(t, start(t, l))
		before := tree(t, l.DataDir)
		faulty := fsys.NewFaulty(fsys.OS{})
		f.Name = probePrefix
		hits := faulty.Add(f)
		r := Run(t.Context(), Options{Syncs: syncs, Loaded: l, FS: faulty})
		want(t, r, "disk.sync", Failed, says)
		if hits() != 1 {
			t.Errorf("%s: the disk did not fail", says)
		}
		if r.Status != Failed || tree(t, l.DataDir) != before {
			t.Errorf("%s: %s, left behind:\n%s", says, r.Status, tree(t, l.DataDir))
		}
	}
	l := loaded(t)
	stop(t, start(t, l))
	faulty := fsys.NewFaulty(fsys.OS{})
	faulty.Add(fsys.Fault{Kinds: fsys.OpReadDir, Err: fs.ErrPermission})
	want(t, Run(t.Context(), Options{Syncs: syncs, Loaded: l, FS: faulty}), "data_dir", Failed, "read")
}

// Stores that break what a node relies on, or do not let it in.
func TestBucketsThatFail(t *testing.T) {
	careless := memory.New()
	careless.IgnoreConditions()
	want(t, Run(t.Context(), Options{Syncs: syncs, Loaded: loaded(t), Bucket: careless}), "bucket.promises", Failed, "another store")
	for _, c := range []struct {
		fault memory.Fault
		name  string
		says  string
	}{
		{memory.Fault{Ops: memory.OpStat, Err: remote.ErrDenied}, "bucket", "check the keys"},
		{memory.Fault{Ops: memory.OpStat, Err: remote.ErrNoBucket}, "bucket", "create the bucket"},
		{memory.Fault{Ops: memory.OpPut, Err: remote.ErrDenied}, "bucket.promises", "PutObject"},
		{memory.Fault{Ops: memory.OpDelete, Err: remote.ErrDenied, Sticky: true}, "bucket.promises", "DeleteObject"},
		{memory.Fault{Ops: memory.OpPut, Key: "small-3", Err: remote.ErrUnavailable}, "bucket.latency", "the network"},
		{memory.Fault{Ops: memory.OpGet, Key: "large", Err: remote.ErrUnavailable}, "bucket.throughput", "the network"},
		{memory.Fault{Ops: memory.OpGet, Key: "large", Flip: true, FlipAt: 1000}, "bucket.throughput", "others came back"},
		{memory.Fault{Ops: memory.OpDelete, Key: "large", Err: remote.ErrDenied}, "bucket.cleanup", "by hand"},
		{memory.Fault{Ops: memory.OpGet, Key: "cluster/claim", Err: remote.ErrUnavailable}, "bucket.claim", "the network"},
	} {
		b := memory.New()
		b.Add(c.fault)
		r := Run(t.Context(), Options{Syncs: syncs, Loaded: loaded(t), Bucket: b})
		want(t, r, c.name, Failed, c.says)
		if left := b.Keys(""); c.fault.Ops != memory.OpDelete && len(left) > 0 {
			t.Errorf("%s: left behind: %q", c.name, left)
		}
	}
}

// Wherever it is interrupted, nothing is left.
func TestInterrupted(t *testing.T) {
	for key, ops := range map[string]memory.Op{
		"read": memory.OpPut, "claim": memory.OpPut, "small-0": memory.OpPut, "small-1": memory.OpReadAt, "small-7": memory.OpDelete, "large": memory.OpGet,
	} {
		b := memory.New()
		ctx, cancel := context.WithCancel(t.Context())
		reached := make(chan memory.Call)
		b.Add(memory.Fault{Ops: ops, Key: key, Hold: make(chan struct{}), Reached: reached})
		go func() { <-reached; cancel() }()
		r := Run(ctx, Options{Syncs: syncs, Loaded: loaded(t), Bucket: b})
		if !r.Interrupted || r.Count(Failed) > 0 {
			t.Errorf("at %s: %+v", key, r)
		}
		if left := b.Keys(""); len(left) > 0 {
			t.Errorf("at %s: left behind: %q", key, left)
		}
	}
	l := loaded(t)
	stop(t, start(t, l))
	before := tree(t, folders(l)...)
	ctx, cancel := context.WithCancel(t.Context())
	faulty := fsys.NewFaulty(fsys.OS{})
	reached := make(chan fsys.Op)
	faulty.Add(fsys.Fault{Kinds: fsys.OpSyncData, Name: probePrefix, Skip: 7, Hold: ctx.Done(), Reached: reached})
	go func() { <-reached; cancel() }()
	r := Run(ctx, Options{Syncs: syncs, Loaded: l, FS: faulty})
	want(t, r, "disk.sync", Skipped, "interrupted")
	if !r.Interrupted || tree(t, folders(l)...) != before {
		t.Errorf("%+v, left behind:\n%s", r, tree(t, folders(l)...))
	}
}

// The real server, with both drivers: a good bucket, one that is missing, and
// keys that are wrong.
func TestRealStore(t *testing.T) {
	srv := s3srv.Start(t)
	for _, driver := range []string{"s3", "minio"} {
		t.Run(driver, func(t *testing.T) {
			b := srv.Bucket(t)
			l := loaded(t)
			l.Config.Bucket = b.URL(driver, "main")
			l.Config.S3 = gateway.S3Config{AccessKey: b.AccessKey, SecretKey: b.SecretKey}
			r := Run(t.Context(), Options{Syncs: syncs, Loaded: l})
			for _, name := range []string{"bucket", "bucket.promises", "bucket.latency", "bucket.throughput", "bucket.claim", "bucket.clock"} {
				want(t, r, name, OK, "")
			}
			if c := check(t, r, "bucket.settings"); strings.Contains(c.Found, "checksum") {
				t.Errorf("%+v", c)
			}
			if c := check(t, r, "bucket.throughput"); c.Values["put_bytes_per_s"] <= 0 || c.Values["get_bytes_per_s"] <= 0 {
				t.Errorf("%+v", c)
			}
			opened, err := gateway.OpenBucket(t.Context(), l.Config)
			if err != nil {
				t.Fatal(err)
			}
			for o, err := range opened.List(t.Context(), remote.ListOptions{}) {
				t.Errorf("left behind: %s, %v", o.Key, err)
			}
			if err := opened.Close(); err != nil {
				t.Fatal(err)
			}
			missing := *l
			missing.Config.Bucket = strings.Replace(l.Config.Bucket, b.Name, b.Name+"-none", 1)
			want(t, Run(t.Context(), Options{Syncs: syncs, Loaded: &missing}), "bucket", Failed, "create the bucket")
			denied := *l
			denied.Config.S3.SecretKey = "wrong"
			want(t, Run(t.Context(), Options{Syncs: syncs, Loaded: &denied}), "bucket", Failed, "check the keys")
			away := *l
			away.Config.Bucket = "s3://nobody/p?endpoint=http://127.0.0.1:1&region=us-east-1&driver=" + driver
			want(t, Run(t.Context(), Options{Syncs: syncs, Loaded: &away}), "bucket", Failed, "check the endpoint")
		})
	}
}

// Both forms have every check; JSON has no null.
func TestReportForms(t *testing.T) {
	r := Run(t.Context(), Options{Syncs: syncs, Loaded: loaded(t), Bucket: memory.New()})
	js, err := json.Marshal(r)
	if err != nil || bytes.Contains(js, []byte("null")) {
		t.Fatalf("%s, %v", js, err)
	}
	var text strings.Builder
	if n, err := r.WriteTo(&text); err != nil || int(n) != text.Len() {
		t.Fatal(n, err)
	}
	var back Report
	if err := json.Unmarshal(js, &back); err != nil {
		t.Fatal(err)
	}
	for _, c := range back.Checks {
		if !strings.Contains(text.String(), c.Name) {
			t.Errorf("%s is not in the text:\n%s", c.Name, text.String())
		}
	}
	worst := []Status{OK, Warn, Failed}
	if slices.Index(worst, back.Status) < 0 {
		t.Error(back.Status)
	}
	total := r.Count(OK) + r.Count(Warn) + r.Count(Failed) + r.Count(Skipped)
	if total != len(r.Checks) || total < 12 {
		t.Errorf("%d checks, %d of a known status", len(r.Checks), total)
	}
}

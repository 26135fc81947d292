package doctor

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/strandline-io/strandline/tiers/fsys"
)

func TestParseLimits(t *testing.T) {
	t.Parallel()
	if n := parseMemTotal("MemFree: 1 kB\nMemTotal:       24622104 kB\nBuffers: 2 kB\n"); n != 24622104<<10 {
		t.Error(n)
	}
	for s, want := range map[string]int64{"": 0, "MemTotal: many kB": 0} {
		if n := parseMemTotal(s); n != want {
			t.Errorf("%q: %d", s, n)
		}
	}
	for s, want := range map[string]int64{"max\n": 0, "536870912\n": 512 << 20, "9223372036854771712\n": 0, "": 0} {
		if n := parseLimit(s); n != want {
			t.Errorf("%q: %d", s, n)
		}
	}
	got := limitFiles("9:cpu,memory:/a/b\n4:cpuset:/x\n0::/sys.slice/node\nnonsense\n")
	want := []string{
		"/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.limit_in_bytes",
		"/sys/fs/cgroup/sys.slice/node/memory.max", "/sys/fs/cgroup/sys.slice/memory.max", "/sys/fs/cgroup/memory.max",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// The machine that runs this has memory and may open files.
func TestLimitsOfThisMachine(t *testing.T) {
	t.Parallel()
	if n, what := memoryLimit(); n < 1<<20 || what == "" {
		t.Error(n, what)
	}
	if n, err := openFileLimit(); n < 16 || err != nil {
		t.Error(n, err)
	}
	if fileSystem(t.TempDir()) == "" {
		t.Error("the file system has no name")
	}
}

func TestFindLock(t *testing.T) {
	t.Parallel()
	const locks = `1: POSIX  ADVISORY  WRITE 77 fe:00:1311 0 EOF
2: -> FLOCK  ADVISORY  WRITE 78 fe:00:1311 0 EOF
3: FLOCK  ADVISORY  WRITE 4242 fe:00:1312 0 EOF
4: FLOCK  ADVISORY  WRITE 4243 08:110:1311 0 EOF
`
	dev := func(major, minor uint64) uint64 {
		return (major&0xfff)<<8 | (major&^0xfff)<<32 | minor&0xff | (minor&^0xff)<<12
	}
	if h := findLock(locks, dev(0xfe, 0), 1312); h.pid != 4242 || !h.held {
		t.Errorf("%+v", h)
	}
	if h := findLock(locks, dev(8, 0x110), 1311); h.pid != 4243 {
		t.Errorf("a minor number above 255: %+v", h)
	}
	if h := findLock(locks, dev(0xfe, 0), 1311); h.held {
		t.Errorf("that is no flock: %+v", h)
	}
}

// The lock that a node takes is seen, and not taken.
func TestLockHolder(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), ".lock")
	if h := lockHolder(file); h.held || !h.known {
		t.Errorf("no file: %+v", h)
	}
	lock, err := fsys.OS{}.Lock(file)
	if err != nil {
		t.Fatal(err)
	}
	if h := lockHolder(file); fileSystem(file) == "ext4" && (!h.held || h.pid != os.Getpid()) {
		t.Errorf("held by this process: %+v", h)
	}
	closed(t, lock)
	if h := lockHolder(file); h.held {
		t.Errorf("given back: %+v", h)
	}
}

func closed(t *testing.T, c io.Closer) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

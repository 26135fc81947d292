package mem_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/fsys/mem"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// tree is the whole content of a file system, folders with a slash.
func tree(t *testing.T, m *mem.FS) map[string]string {
	t.Helper()
	out := map[string]string{}
	var walk func(dir string)
	walk = func(dir string) {
		list, err := m.ReadDir(dir)
		must(t, err)
		for _, e := range list {
			name := dir + e.Name()
			if e.IsDir() {
				out[name+"/"] = ""
				walk(name + "/")
				continue
			}
			b, err := fsys.ReadFile(m, name)
			must(t, err)
			out[name] = string(b)
		}
	}
	walk("/")
	return out
}

func wantTree(t *testing.T, what string, m *mem.FS, want map[string]string) {
	t.Helper()
	if got := tree(t, m); !maps.Equal(got, want) {
		t.Fatalf("%s: %q, want %q", what, got, want)
	}
}

func create(t *testing.T, m *mem.FS, name, content string) fsys.File {
	t.Helper()
	f, err := m.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	must(t, err)
	_, err = f.Write([]byte(content))
	must(t, err)
	return f
}

// seen collects what CrashCopy makes of a state over many seeds.
func seen(t *testing.T, m *mem.FS, describe func(map[string]string) string) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for seed := range uint64(300) {
		out[describe(tree(t, m.CrashCopy(seed)))] = true
	}
	return out
}

func names(tree map[string]string) string { return fmt.Sprint(slices.Sorted(maps.Keys(tree))) }

func whole(tree map[string]string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(tree)) {
		parts = append(parts, name+"="+tree[name])
	}
	return strings.Join(parts, " ")
}

func wantSeen(t *testing.T, what string, got map[string]bool, want ...string) {
	t.Helper()
	slices.Sort(want)
	if keys := slices.Sorted(maps.Keys(got)); !slices.Equal(keys, want) {
		t.Fatalf("%s: saw %q, want %q", what, keys, want)
	}
}

func TestContentNeedsSync(t *testing.T) {
	t.Parallel()
	for _, sync := range []func(fsys.File) error{fsys.File.Sync, fsys.File.SyncData} {
		m := mem.New()
		f := create(t, m, "/a", "old")
		must(t, sync(f))
		must(t, m.SyncDir("/"))
		_, err := f.Write([]byte("new"))
		must(t, err)
		wantTree(t, "killed", m.KillCopy(), map[string]string{"/a": "oldnew"})
		wantTree(t, "power loss", m.SyncedCopy(), map[string]string{"/a": "old"})
		must(t, sync(f))
		wantTree(t, "power loss after sync", m.SyncedCopy(), map[string]string{"/a": "oldnew"})
		wantSeen(t, "any power loss after sync", seen(t, m, whole), "/a=oldnew")
	}
}

func TestNamesNeedSyncDir(t *testing.T) {
	t.Parallel()
	m := mem.New()
	must(t, create(t, m, "/a", "A").Sync())
	wantTree(t, "a file whose folder was not synced", m.SyncedCopy(), map[string]string{})
	wantSeen(t, "creation", seen(t, m, whole), "", "/a=A")
	must(t, m.SyncDir("/"))
	wantTree(t, "synced", m.SyncedCopy(), map[string]string{"/a": "A"})

	must(t, m.Rename("/a", "/b"))
	wantTree(t, "rename", m.SyncedCopy(), map[string]string{"/a": "A"})
	wantSeen(t, "rename", seen(t, m, whole), "/a=A", "/b=A")
	must(t, m.SyncDir("/"))
	wantSeen(t, "rename, synced", seen(t, m, whole), "/b=A")

	must(t, m.Link("/b", "/c"))
	wantSeen(t, "link", seen(t, m, whole), "/b=A", "/b=A /c=A")
	must(t, m.SyncDir("/"))
	must(t, m.Remove("/b"))
	wantSeen(t, "removal", seen(t, m, whole), "/b=A /c=A", "/c=A")
	must(t, m.SyncDir("/"))
	wantSeen(t, "removal, synced", seen(t, m, whole), "/c=A")
}

func TestFoldersAreNames(t *testing.T) {
	t.Parallel()
	m := mem.New()
	must(t, m.MkdirAll("/d/e", 0o755))
	must(t, create(t, m, "/d/e/f", "F").Sync())
	must(t, m.SyncDir("/d/e"))
	wantTree(t, "the folder above was not synced", m.SyncedCopy(), map[string]string{})
	must(t, m.SyncDir("/d"))
	wantTree(t, "nor the one above that", m.SyncedCopy(), map[string]string{})
	must(t, m.SyncDir("/"))
	wantTree(t, "all synced", m.SyncedCopy(), map[string]string{"/d/": "", "/d/e/": "", "/d/e/f": "F"})
	must(t, m.RemoveAll("/d"))
	wantSeen(t, "removal of a tree", seen(t, m, names), "[/d/ /d/e/ /d/e/f]", "[/d/ /d/e/]", "[/d/]", "[]")
	must(t, m.SyncDir("/"))
	wantSeen(t, "removal of a tree, synced", seen(t, m, names), "[]")
}

func TestMkdirAllSync(t *testing.T) {
	t.Parallel()
	m := mem.New()
	must(t, m.MkdirAll("/d", 0o755)) // by somebody who was killed before the sync
	must(t, fsys.MkdirAllSync(m, "/d/e/f", 0o755))
	wantTree(t, "power loss", m.SyncedCopy(), map[string]string{"/d/": "", "/d/e/": "", "/d/e/f/": ""})
}

// A rename is one step, and a later step on the same name or file does not
// overtake it: nothing that was durable is lost between the two.
func TestStepsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	m := mem.New()
	must(t, create(t, m, "/a", "A").Sync())
	must(t, create(t, m, "/c", "C").Sync())
	must(t, m.SyncDir("/"))
	must(t, m.Rename("/a", "/b"))
	must(t, m.Rename("/c", "/a"))
	wantSeen(t, "two renames", seen(t, m, whole), "/a=A /c=C", "/b=A /c=C", "/a=C /b=A")

	m = mem.New()
	must(t, m.MkdirAll("/x", 0o755))
	must(t, m.MkdirAll("/y", 0o755))
	must(t, create(t, m, "/x/a", "A").Sync())
	must(t, m.SyncDir("/"))
	must(t, m.SyncDir("/x"))
	must(t, m.Rename("/x/a", "/y/a"))
	wantSeen(t, "between folders", seen(t, m, names), "[/x/ /x/a /y/]", "[/x/ /y/ /y/a]")
	must(t, m.SyncDir("/y"))
	wantSeen(t, "between folders, one synced", seen(t, m, names), "[/x/ /y/ /y/a]")
}

// What a rename rests on becomes durable with it, in another folder too.
func TestSyncDirTakesWhatCameBefore(t *testing.T) {
	t.Parallel()
	m := mem.New()
	must(t, m.MkdirAll("/x", 0o755))
	must(t, m.MkdirAll("/y", 0o755))
	must(t, m.SyncDir("/"))
	must(t, create(t, m, "/x/a", "A").Sync())
	must(t, create(t, m, "/x/other", "").Sync())
	must(t, m.Rename("/x/a", "/x/b"))
	must(t, m.Link("/x/b", "/y/b"))
	must(t, m.SyncDir("/y"))
	wantTree(t, "least", m.SyncedCopy(), map[string]string{"/x/": "", "/x/b": "A", "/y/": "", "/y/b": "A"})
}

func TestTornWrites(t *testing.T) {
	t.Parallel()
	m := mem.New()
	f := create(t, m, "/a", strings.Repeat("o", 2048))
	must(t, f.Sync())
	must(t, m.SyncDir("/"))
	_, err := f.WriteAt(bytes.Repeat([]byte("n"), 2048), 0)
	must(t, err)
	got := seen(t, m, func(tree map[string]string) string {
		var b strings.Builder
		for s := tree["/a"]; s != ""; s = s[512:] {
			if s[:512] != strings.Repeat(s[:1], 512) {
				t.Fatal("a sector is torn")
			}
			b.WriteByte(s[0])
		}
		return b.String()
	})
	if len(got) != 16 || !got["onon"] || !got["nnnn"] || !got["oooo"] {
		t.Fatalf("saw %v, want all mixtures of four sectors", got)
	}
}

func TestSizesAfterPowerLoss(t *testing.T) {
	t.Parallel()
	m := mem.New()
	f := create(t, m, "/a", strings.Repeat("o", 1000))
	must(t, f.Sync())
	must(t, m.SyncDir("/"))
	_, err := f.Write(bytes.Repeat([]byte("n"), 1000))
	must(t, err)
	sizes := map[int]bool{}
	for seed := range uint64(300) {
		got := tree(t, m.CrashCopy(seed))["/a"]
		sizes[len(got)] = true
		if len(got) < 1000 || len(got) > 2000 || strings.Trim(got[:512], "o") != "" || strings.Trim(got, "on\x00") != "" {
			t.Fatalf("%d bytes", len(got))
		}
		if strings.Contains(got[:1000], "\x00") || strings.Contains(got[:1000], "n") {
			t.Fatal("bytes that were synced are gone")
		}
	}
	if !sizes[1000] || !sizes[2000] || len(sizes) < 50 {
		t.Fatalf("%d sizes", len(sizes))
	}
	must(t, f.Truncate(300))
	_, err = f.WriteAt([]byte("x"), 5000)
	must(t, err)
	sizes = map[int]bool{}
	for seed := range uint64(300) {
		sizes[len(tree(t, m.CrashCopy(seed))["/a"])] = true
	}
	if !sizes[300] || !sizes[1000] || !sizes[5001] {
		t.Fatal("want the synced, the smallest and the present size among those of a file that was cut and has grown")
	}
}

func TestCopiesShareNothing(t *testing.T) {
	t.Parallel()
	m := mem.New()
	f := create(t, m, "/a", "one")
	kill, crash := m.KillCopy(), m.CrashCopy(1)
	_, err := f.WriteAt([]byte("two"), 0)
	must(t, err)
	create(t, kill, "/a", "XXX")
	create(t, crash, "/b", "YYY")
	wantTree(t, "original", m, map[string]string{"/a": "two"})
	wantTree(t, "kill copy", kill, map[string]string{"/a": "XXX"})
	if tree(t, crash)["/b"] != "YYY" {
		t.Fatal("crash copy")
	}
	// A kill copy remembers what is not durable.
	wantTree(t, "power loss after kill", kill.SyncedCopy(), map[string]string{})
	must(t, kill.SyncDir("/"))
	wantTree(t, "power loss after kill and sync of names", kill.SyncedCopy(), map[string]string{"/a": ""})
	// Two names of one file stay one file.
	must(t, m.Link("/a", "/l"))
	for _, c := range []*mem.FS{m.KillCopy(), func() *mem.FS { must(t, m.SyncDir("/")); return m.SyncedCopy() }()} {
		create(t, c, "/l", "ZZZ")
		if got := tree(t, c); got["/a"] != "ZZZ" {
			t.Fatalf("%q", got)
		}
	}
	// Locks end with the process.
	l, err := m.Lock("/lock")
	must(t, err)
	defer l.Close()
	_, err = m.KillCopy().Lock("/lock")
	must(t, err)
}

func TestCrashCopyIsReproducible(t *testing.T) {
	t.Parallel()
	run := func() *mem.FS {
		m := mem.New()
		for i := range 20 {
			create(t, m, fmt.Sprintf("/%d", i), strings.Repeat("x", 3000))
		}
		return m
	}
	a, b := run(), run()
	for seed := range uint64(20) {
		if !maps.Equal(tree(t, a.CrashCopy(seed)), tree(t, b.CrashCopy(seed))) {
			t.Fatalf("seed %d gives two copies", seed)
		}
	}
}

// The write path of whole files leaves the old or the new file at any moment, and
// the new one after it returned.
func TestReport117AtomicWriteAtEveryOperation(t *testing.T) {
	t.Parallel()
	m := mem.New()
	contents := []string{strings.Repeat("a", 3000), strings.Repeat("b", 5000), "c"}
	acked := 0
	check := func(what string, c *mem.FS) {
		got, ok := tree(t, c)["/checkpoint"]
		if !ok && acked == 0 {
			return
		}
		if got != contents[max(0, acked-1)] && (acked == len(contents) || got != contents[acked]) {
			t.Fatalf("%s with %d writes acknowledged: %d bytes of %.1q", what, acked, len(got), got)
		}
	}
	m.OnOp(func(op fsys.Op) {
		check(fmt.Sprintf("killed after %v", op.Kind), m.KillCopy())
		check(fmt.Sprintf("least after %v", op.Kind), m.SyncedCopy())
		for seed := range uint64(20) {
			check(fmt.Sprintf("seed %d after %v", seed, op.Kind), m.CrashCopy(seed))
		}
	})
	for i, c := range contents {
		must(t, fsys.WriteFileAtomic(m, "/checkpoint", []byte(c), 0o644))
		acked = i + 1
		check("acknowledged", m.SyncedCopy())
	}
	if n := m.Ops(); n != 5*len(contents) { // create, write, sync, rename, sync of the folder
		t.Fatalf("%d operations", n)
	}
}

// Every crash copy lies between the least and what the process saw: no name and
// no byte that never was.
func TestCrashCopiesInventNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		m := mem.New()
		dirs := []string{"/", "/d", "/d/e"}
		must(t, m.MkdirAll("/d/e", 0o755))
		fills := map[string]bool{}
		for i := range rapid.IntRange(1, 40).Draw(rt, "steps") {
			dir := rapid.SampledFrom(dirs).Draw(rt, "dir")
			name := strings.TrimSuffix(dir, "/") + "/" + rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "name")
			other := strings.TrimSuffix(rapid.SampledFrom(dirs).Draw(rt, "other dir"), "/") + "/" + rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "other")
			// Names may be missing or taken: the operation then fails and changes nothing.
			switch rapid.IntRange(0, 6).Draw(rt, "kind") {
			case 0, 1:
				f, err := m.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
				must(t, err)
				fill := string(rune('A' + i%26))
				fills[fill] = true
				_, err = f.WriteAt([]byte(strings.Repeat(fill, rapid.IntRange(1, 6000).Draw(rt, "len"))), rapid.Int64Range(0, 6000).Draw(rt, "off"))
				must(t, err)
				if rapid.Bool().Draw(rt, "sync") {
					must(t, f.Sync())
				}
			case 2:
				_ = m.Rename(name, other)
			case 3:
				_ = m.Link(name, other)
			case 4:
				_ = m.Remove(name)
			case 5:
				must(t, m.SyncDir(dir))
			case 6:
				if f, err := m.OpenFile(name, os.O_RDWR, 0); err == nil {
					must(t, f.Truncate(rapid.Int64Range(0, 9000).Draw(rt, "size")))
				}
			}
		}
		c := m.CrashCopy(rapid.Uint64().Draw(rt, "seed"))
		for name, content := range tree(t, c) {
			if strings.HasSuffix(name, "/") {
				continue
			}
			for _, r := range strings.Trim(content, "\x00") {
				if r != 0 && !fills[string(r)] {
					rt.Fatalf("%s holds %q", name, r)
				}
			}
		}
		// Once everything is synced, every copy is what the process saw.
		for _, dir := range dirs {
			must(t, m.SyncDir(dir))
		}
		for name := range tree(t, m) {
			if !strings.HasSuffix(name, "/") {
				f, err := m.OpenFile(name, os.O_RDWR, 0)
				must(t, err)
				must(t, f.Sync())
			}
		}
		want := tree(t, m)
		for _, c := range []*mem.FS{m.SyncedCopy(), m.KillCopy(), m.CrashCopy(7)} {
			if got := tree(t, c); !maps.Equal(got, want) {
				rt.Fatalf("synced, yet %q is not %q", names(got), names(want))
			}
		}
	})
}

func TestFullDisk(t *testing.T) {
	t.Parallel()
	m := mem.New()
	m.SetCapacity(1000)
	f := create(t, m, "/a", strings.Repeat("x", 600))
	n, err := f.Write(bytes.Repeat([]byte("y"), 600))
	if n != 400 || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("wrote %d, %v", n, err)
	}
	if err = f.Preallocate(1001); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	_, err = f.WriteAt([]byte("over"), 0) // no more room is needed for that
	must(t, err)
	free, total, err := m.Free("/")
	if must(t, err); free != 0 || total != 1000 {
		t.Fatalf("%d of %d free", free, total)
	}
	must(t, m.Remove("/a"))
	if free, _, err = m.Free("/"); err != nil || free != 1000 {
		t.Fatalf("%d free, %v", free, err)
	}
}

func TestOnOp(t *testing.T) {
	t.Parallel()
	m := mem.New()
	var got []string
	m.OnOp(func(op fsys.Op) { got = append(got, fmt.Sprint(op.Seq, " ", op.Kind, op.Name)) })
	f := create(t, m, "/a", "x")
	_, err := f.ReadAt(make([]byte, 1), 0)
	must(t, err)
	must(t, f.SyncData())
	must(t, m.Rename("/a", "/b"))
	if err := m.Remove("/none"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	must(t, m.SyncDir("/"))
	if fmt.Sprint(got) != "[1 create/a 2 write/a 3 syncdata/a 4 rename/a 5 syncdir/]" || m.Ops() != 5 {
		t.Fatalf("%v, %d", got, m.Ops())
	}
}

func TestConcurrentCopies(t *testing.T) {
	t.Parallel()
	m := mem.New()
	m.OnOp(func(op fsys.Op) {
		if op.Seq%10 == 0 {
			m.CrashCopy(uint64(op.Seq))
			m.KillCopy()
		}
	})
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			name := fmt.Sprintf("/%d", w)
			f, err := m.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
			if err != nil {
				t.Error(err)
				return
			}
			for i := range 100 {
				_, err := f.Write(bytes.Repeat([]byte{byte(i)}, 100))
				if err = errors.Join(err, f.Sync(), m.SyncDir("/")); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if got := tree(t, m.SyncedCopy()); len(got) != 4 || len(got["/3"]) != 10_000 {
		t.Fatalf("%d files", len(got))
	}
}

// A copy of files with many bytes costs as little as one of empty files.
func BenchmarkCrashCopy(b *testing.B) {
	m := mem.New()
	for i := range 50 {
		f, err := m.OpenFile(fmt.Sprintf("/%d", i), os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			b.Fatal(err)
		}
		if _, err = f.Write(make([]byte, 1<<20)); err != nil {
			b.Fatal(err)
		}
		if err = f.Sync(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for i := range b.N {
		m.CrashCopy(uint64(i))
	}
}

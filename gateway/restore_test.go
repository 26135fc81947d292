package gateway

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"testing"

	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/fsys/mem"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

// TestRebuildTestsTheStoreFirst: on one that ignores conditions its claim fences
// nobody, so two nodes would write two histories. Nothing is taken there.
func TestRebuildTestsTheStoreFirst(t *testing.T) {
	c := testConfig(t)
	b := memory.New()
	n := startNode(t, c, Deps{Bucket: b})
	produce(t, n, 0, 10)
	before, _, err := control.ReadClaim(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	c.DataDir = "/rebuilt"
	disk := mem.New()
	b.IgnoreConditions()
	_, err = Rebuild(t.Context(), c, RebuildDeps{FS: disk, Bucket: b})
	wantKind(t, "rebuild", err, tiers.InvalidConfig, "self-test", "condition")
	if after, _, err := control.ReadClaim(t.Context(), b); err != nil || after.Generation != before.Generation {
		t.Errorf("the claim was taken: %+v, %v", after, err)
	}
	if files, err := disk.ReadDir(c.DataDir); err == nil {
		t.Errorf("the data directory was made, with %d files", len(files))
	}
	if rep, err := Rebuild(t.Context(), c, RebuildDeps{FS: disk, Bucket: b, DryRun: true}); err != nil || rep.Cluster != n.Cluster() {
		t.Errorf("a dry run takes nothing and needs no conditions: %+v, %v", rep, err)
	}
}

// TestDryRunWritesNothing, not even what the self-test does.
func TestDryRunWritesNothing(t *testing.T) {
	c := testConfig(t)
	b := memory.New()
	n := startNode(t, c, Deps{Bucket: b})
	produce(t, n, 0, 10)
	stopNode(t, n)
	before := len(b.Calls(memory.OpPut|memory.OpDelete, ""))
	if _, err := Rebuild(t.Context(), c, RebuildDeps{FS: mem.New(), Bucket: b, DryRun: true}); err != nil {
		t.Fatal(err)
	}
	if after := len(b.Calls(memory.OpPut|memory.OpDelete, "")); after != before {
		t.Errorf("%d writes", after-before)
	}
}

// TestRebuildIntoAFreshFileSystem: mkfs makes lost+found in the mount's root.
func TestRebuildIntoAFreshFileSystem(t *testing.T) {
	c := testConfig(t)
	b := memory.New()
	n := startNode(t, c, Deps{Bucket: b})
	produce(t, n, 0, 10)
	stopNode(t, n)
	c.DataDir = "/mount"
	for name, want := range map[string]tiers.Kind{"lost+found": tiers.Other, "orders-0": tiers.Conflict} {
		disk := mem.New()
		if err := disk.MkdirAll(c.DataDir+"/"+name, 0o700); err != nil {
			t.Fatal(err)
		}
		_, err := Rebuild(t.Context(), c, RebuildDeps{FS: disk, Bucket: b})
		if (err != nil) != (want != tiers.Other) || tiers.KindOf(err) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSecondRebuildLeavesTheFirstOne: the directory that a rebuild filled is
// refused to the next one, and serves afterwards as if that had not been.
func TestSecondRebuildLeavesTheFirstOne(t *testing.T) {
	c := testConfig(t)
	b := memory.New()
	n := startNode(t, c, Deps{Bucket: b})
	produce(t, n, 0, 10)
	stopNode(t, n)
	c.DataDir = "/rebuilt"
	disk := mem.New()
	if _, err := Rebuild(t.Context(), c, RebuildDeps{FS: disk, Bucket: b}); err != nil {
		t.Fatal(err)
	}
	before, err := readStarts(disk, c.DataDir)
	if err != nil || len(before) != 1 {
		t.Fatal(before, err)
	}
	_, err = Rebuild(t.Context(), c, RebuildDeps{FS: disk, Bucket: b})
	wantKind(t, "the second rebuild", err, tiers.Conflict, "holds a cluster")
	if after, err := readStarts(disk, c.DataDir); err != nil || !slices.Equal(after, before) {
		t.Errorf("starts %q, %v, want %q", after, err, before)
	}
	stopNode(t, startNode(t, c, Deps{FS: disk, Bucket: b}))
}

// TestBucketFolderThatIsGone: a disk that is not mounted is no reason to begin an
// empty bucket. The first start makes the folder, none after it does.
func TestBucketFolderThatIsGone(t *testing.T) {
	c := testConfig(t)
	folder := t.TempDir() + "/bucket"
	c.Bucket = "dir:" + folder
	stopNode(t, startNode(t, c, Deps{}))
	if err := os.Rename(folder, folder+"-elsewhere"); err != nil {
		t.Fatal(err)
	}
	_, err := Start(t.Context(), c, Deps{})
	wantKind(t, "start", err, tiers.InvalidConfig, "mount it, or correct bucket", "is gone")
	other := c
	other.DataDir = t.TempDir()
	for _, dry := range []bool{true, false} {
		_, err = Rebuild(t.Context(), other, RebuildDeps{DryRun: dry})
		wantKind(t, "rebuild", err, tiers.InvalidConfig, "mount it, or correct bucket")
	}
	if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("the folder was made: %v", err)
	}
	if err := os.Rename(folder+"-elsewhere", folder); err != nil {
		t.Fatal(err)
	}
	stopNode(t, startNode(t, c, Deps{}))
}

package fsys_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/strandline-io/strandline/tiers/fsys"
)

const lockChild = "FSYS_TEST_LOCK"

// TestMain is also the other process of TestLockOfAnotherProcess: it takes the
// lock, says what came of it and holds it until its input ends.
func TestMain(m *testing.M) {
	name := os.Getenv(lockChild)
	if name == "" {
		os.Exit(m.Run())
	}
	_, err := fsys.OS{}.Lock(name)
	fmt.Println(err == nil, errors.Is(err, fsys.ErrLocked))
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

// lockInChild starts a process that takes the lock of name and returns what it
// said. stop makes it exit without unlocking.
func lockInChild(t *testing.T, name string) (said string, stop func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), lockChild+"="+name)
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	said, err = bufio.NewReader(out).ReadString('\n')
	must(t, err)
	return said, func() {
		must(t, in.Close())
		must(t, cmd.Wait())
	}
}

func TestLockOfAnotherProcess(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "lock")
	said, stop := lockInChild(t, name)
	want(t, "child took the lock", said, "true false\n")
	_, err := fsys.OS{}.Lock(name)
	wantErr(t, "lock", err, fsys.ErrLocked)
	stop()
	l, err := fsys.OS{}.Lock(name) // it ended with its process
	must(t, err)
	said, stop = lockInChild(t, name)
	want(t, "child took the lock", said, "false true\n")
	stop()
	must(t, l.Close())
}

// Preallocated blocks are the file's, its size stays.
func TestPreallocateReservesBlocks(t *testing.T) {
	t.Parallel()
	f := create(t, fsys.OS{}, filepath.Join(t.TempDir(), "a"), "x")
	defer f.Close()
	before, err := f.Stat()
	must(t, err)
	must(t, f.Preallocate(8<<20))
	after, err := f.Stat()
	must(t, err)
	want(t, "size", after.Size(), 1)
	if b, a := blocks(before), blocks(after); a >= 0 && a <= b {
		t.Logf("this file system does not preallocate: %d blocks, then %d", b, a)
	}
	_, err = f.WriteAt([]byte("y"), 4<<20)
	must(t, err)
	must(t, f.SyncData())
}

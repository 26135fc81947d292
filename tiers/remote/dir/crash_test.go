package dir_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/fsys/mem"
	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/dir"
)

func content(t *testing.T, b remote.Bucket, key string) (string, error) {
	t.Helper()
	r, _, err := b.Get(t.Context(), key, remote.Range{})
	if err != nil {
		return "", err
	}
	defer r.Close()
	got, err := io.ReadAll(r)
	return string(got), err
}

// history is what a workload has done: for each key the contents that a crash may
// leave now. "" is no object.
type history struct {
	allowed map[string][]string
	crashes int
}

// check opens what a crash left and compares: every object is whole, and one of
// those that it may be.
func (h *history) check(t *testing.T, what string, m *mem.FS) {
	t.Helper()
	h.crashes++
	b, err := dir.Open(m, "/bucket", dir.Options{})
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	var listed []string
	for o, lerr := range b.List(t.Context(), remote.ListOptions{}) {
		if lerr != nil || o.ETag == "" {
			t.Fatalf("%s: list: %+v, %v", what, o, lerr)
		}
		listed = append(listed, o.Key)
	}
	for key, allowed := range h.allowed {
		var got string
		if got, err = content(t, b, key); errors.Is(err, remote.ErrNotFound) {
			got, err = "", nil
		}
		if err != nil || !slices.Contains(allowed, got) {
			t.Fatalf("%s: %s has %d bytes (%.10q), %v, want one of %d contents", what, key, len(got), got, err, len(allowed))
		}
		if (got != "") != slices.Contains(listed, key) {
			t.Fatalf("%s: %s is listed: %t", what, key, got == "")
		}
	}
	// It goes on from there.
	if _, err = b.Put(t.Context(), "topics/after", remote.BytesBody([]byte("x")), remote.PutOptions{}); err != nil {
		t.Fatalf("%s: put: %v", what, err)
	}
}

// A crash at every file operation of a workload leaves each object whole or
// absent, and what was acknowledged as it was.
func TestCrashAtEveryOperation(t *testing.T) {
	t.Parallel()
	m, h := mem.New(), &history{allowed: map[string][]string{}}
	b := open(t, m, "/bucket")
	m.OnOp(func(op fsys.Op) {
		what := fmt.Sprintf("after %d %v %s", op.Seq, op.Kind, op.Name)
		h.check(t, "killed "+what, m.KillCopy())
		h.check(t, "power loss "+what, m.SyncedCopy())
		for seed := range uint64(5) {
			h.check(t, fmt.Sprintf("power loss %s, seed %d", what, seed), m.CrashCopy(seed))
		}
	})
	step := func(key, body string, act func() error) {
		was := h.allowed[key]
		h.allowed[key] = append(slices.Clone(was), body)
		if len(was) == 0 {
			h.allowed[key] = []string{"", body}
		}
		must(t, act())
		h.allowed[key] = []string{body}
		h.check(t, "acknowledged "+key, m.SyncedCopy())
	}
	put := func(key, body string, cond remote.Cond) {
		step(key, body, func() error {
			_, err := b.Put(t.Context(), key, remote.BytesBody([]byte(body)), remote.PutOptions{If: cond})
			return err
		})
	}
	put("topics/a/1.log", strings.Repeat("a", 3000), remote.Cond{})
	put("cluster/claim", "first", remote.Cond{Absent: true})
	o, err := b.Stat(t.Context(), "cluster/claim")
	must(t, err)
	put("cluster/claim", strings.Repeat("second", 300), remote.Cond{ETag: o.ETag})
	put("topics/a/1.log", "overwritten", remote.Cond{})
	step("topics/a/1.log", "", func() error { return b.Delete(t.Context(), "topics/a/1.log") })
	if h.crashes < 100 {
		t.Fatalf("only %d crashes were tried", h.crashes)
	}
}

// A file operation that fails, or happens and is reported as failed, leaves each
// object whole or absent too, and an error unless the object is there.
func TestEveryOperationFails(t *testing.T) {
	t.Parallel()
	for _, cond := range []remote.Cond{{}, {Absent: true}} {
		for _, applied := range []bool{false, true} {
			for n := range 30 {
				m := mem.New()
				f := fsys.NewFaulty(m)
				b := open(t, f, "/bucket")
				hits := f.Add(fsys.Fault{Skip: n, Err: syscall.EIO, Applied: applied})
				_, err := b.Put(t.Context(), "a/b/c", remote.BytesBody([]byte("body")), remote.PutOptions{If: cond})
				f.Clear()
				got, gerr := content(t, open(t, m.KillCopy(), "/bucket"), "a/b/c")
				switch {
				case err == nil && got != "body":
					t.Fatalf("fault %d applied %t: put went well and left %q, %v", n, applied, got, gerr)
				case err != nil && got != "" && !applied && !errors.Is(err, remote.ErrUnknownOutcome):
					t.Fatalf("fault %d: put failed with %v and left %q", n, err, got)
				case err != nil && !errors.Is(err, remote.ErrUnavailable):
					t.Fatalf("fault %d applied %t: %v", n, applied, err)
				}
				if hits() == 0 {
					break
				}
			}
		}
	}
}

func TestFullDiskMayPass(t *testing.T) {
	t.Parallel()
	m := mem.New()
	b := open(t, m, "/bucket")
	m.SetCapacity(1000)
	_, err := b.Put(t.Context(), "k", remote.BytesBody(make([]byte, 2000)), remote.PutOptions{})
	if !errors.Is(err, remote.ErrUnavailable) || !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	list, err := m.ReadDir("/bucket/tmp")
	if must(t, err); len(list) != 0 {
		t.Fatal("the temporary file stays on a full disk")
	}
	_, err = b.Put(t.Context(), "k", remote.BytesBody(make([]byte, 200)), remote.PutOptions{})
	must(t, err)
}

func TestStaleFiles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := mem.New()
		open(t, m, "/bucket")
		must(t, fsys.WriteFileAtomic(m, "/bucket/tmp/old", []byte("x"), 0o644))
		time.Sleep(50 * time.Minute) // in a bubble: no waiting
		must(t, fsys.WriteFileAtomic(m, "/bucket/tmp/young", []byte("x"), 0o644))
		time.Sleep(15 * time.Minute)
		b := open(t, m, "/bucket")
		list, err := m.ReadDir("/bucket/tmp")
		if must(t, err); len(list) != 1 || list[0].Name() != "young" {
			t.Fatalf("%v", list)
		}
		time.Sleep(time.Second)
		if n, err := b.AbortStale(t.Context(), 0); err != nil || n != 1 {
			t.Fatalf("%d, %v", n, err)
		}
	})
}

// A Put whose temporary file was taken for an abandoned one fails and can be
// tried again.
func TestPutThatLostItsFile(t *testing.T) {
	t.Parallel()
	for _, cond := range []remote.Cond{{}, {Absent: true}} {
		m := mem.New()
		b := open(t, m, "/bucket")
		m.OnOp(func(op fsys.Op) {
			if op.Kind == fsys.OpSync {
				m.OnOp(nil)
				must(t, m.RemoveAll(op.Name))
			}
		})
		_, err := b.Put(t.Context(), "k", remote.BytesBody([]byte("x")), remote.PutOptions{If: cond})
		if !errors.Is(err, remote.ErrUnavailable) || errors.Is(err, remote.ErrNotFound) {
			t.Fatal(err)
		}
		_, err = b.Put(t.Context(), "k", remote.BytesBody([]byte("x")), remote.PutOptions{If: cond})
		must(t, err)
	}
}

func TestDamagedObjects(t *testing.T) {
	t.Parallel()
	m := mem.New()
	b := open(t, m, "/bucket")
	body := bytes.Repeat([]byte("x"), 100)
	for _, key := range []string{"a", "b", "c"} {
		_, err := b.Put(t.Context(), key, remote.BytesBody(body), remote.PutOptions{})
		must(t, err)
	}
	good, err := fsys.ReadFile(m, "/bucket/objects/b")
	must(t, err)
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 4
		must(t, fsys.WriteFileAtomic(m, "/bucket/objects/b", bad, 0o644))
		if got, err := content(t, b, "b"); !errors.Is(err, remote.ErrChecksum) {
			t.Fatalf("byte %d: %q, %v", i, got, err)
		}
	}
	for n := range good {
		must(t, fsys.WriteFileAtomic(m, "/bucket/objects/b", good[:n], 0o644))
		_, err := b.Stat(t.Context(), "b")
		if !errors.Is(err, remote.ErrChecksum) {
			t.Fatalf("cut to %d bytes: %v", n, err)
		}
	}
	var got []string
	for o, err := range b.List(t.Context(), remote.ListOptions{}) {
		must(t, err)
		got = append(got, fmt.Sprint(o.Key, " ", o.ETag != ""))
	}
	if fmt.Sprint(got) != "[a true b false c true]" {
		t.Fatalf("list of a bucket with a damaged object: %v", got)
	}
	must(t, b.Delete(t.Context(), "b"))
}

// A lock that another process holds is waited for, as long as the context lets.
func TestLockOfAnotherProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := mem.New()
		b, other := open(t, m, "/bucket"), open(t, m, "/bucket")
		o, err := b.Put(t.Context(), "k", remote.BytesBody([]byte("1")), remote.PutOptions{})
		must(t, err)
		list, err := m.ReadDir("/bucket/locks")
		if must(t, err); len(list) != 1 {
			t.Fatalf("%v", list)
		}
		held, err := m.Lock("/bucket/locks/" + list[0].Name())
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = other.Put(ctx, "k", remote.BytesBody([]byte("2")), remote.PutOptions{If: remote.Cond{ETag: o.ETag}})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() {
			_, perr := other.Put(t.Context(), "k", remote.BytesBody([]byte("3")), remote.PutOptions{If: remote.Cond{ETag: o.ETag}})
			done <- perr
		}()
		time.Sleep(time.Minute)
		must(t, held.Close())
		must(t, <-done)
		_, err = b.Put(t.Context(), "k", remote.BytesBody([]byte("4")), remote.PutOptions{If: remote.Cond{ETag: o.ETag}})
		if !errors.Is(err, remote.ErrPrecondition) {
			t.Fatal(err)
		}
		list, err = m.ReadDir("/bucket/tmp")
		if must(t, err); len(list) != 0 {
			t.Fatalf("temporary files are left: %v", list)
		}
	})
}

func TestKeyThatIsAFolder(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]fsys.FS{"disk": fsys.OS{}, "memory": mem.New()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := open(t, f, t.TempDir()+"/new/bucket")
			_, err := b.Put(t.Context(), "a/b", remote.BytesBody(nil), remote.PutOptions{})
			must(t, err)
			for _, cond := range []remote.Cond{{}, {Absent: true}} {
				for _, key := range []string{"a", "a/b/c"} {
					if _, err = b.Put(t.Context(), key, remote.BytesBody(nil), remote.PutOptions{If: cond}); err == nil {
						t.Fatalf("put of %s beside a/b went well", key)
					}
				}
			}
			must(t, b.Delete(t.Context(), "a"))
			_, err = b.Stat(t.Context(), "a/b")
			must(t, err)
			_, err = b.Stat(t.Context(), "a/b/c")
			if !errors.Is(err, remote.ErrNotFound) {
				t.Fatal(err)
			}
		})
	}
}

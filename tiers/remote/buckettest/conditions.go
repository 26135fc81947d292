package buckettest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/strandline-io/strandline/tiers/remote"
)

func absent(ctx context.Context, b remote.Bucket, key, body string) error {
	_, err := b.Put(ctx, key, remote.BytesBody([]byte(body)), remote.PutOptions{If: remote.Cond{Absent: true}})
	return err
}

func match(ctx context.Context, b remote.Bucket, key, etag, body string) (remote.Object, error) {
	return b.Put(ctx, key, remote.BytesBody([]byte(body)), remote.PutOptions{If: remote.Cond{ETag: etag}})
}

// conditional skips nothing silently: a store without conditions must say so and
// refuse them.
func conditional(t *testing.T, b remote.Bucket) bool {
	t.Helper()
	if b.Caps().ConditionalPut {
		return true
	}
	if err := absent(t.Context(), b, "refused", "x"); err == nil {
		t.Fatal("Caps denies conditional puts, yet one went well")
	}
	wantAbsent(t, b, "refused")
	return false
}

func checkAbsent(c on) {
	t, b := c.t, c.b
	if !conditional(t, b) {
		return
	}
	if err := absent(t.Context(), b, "k", "one"); err != nil {
		t.Fatal(err)
	}
	wantErr(t, "second create", absent(t.Context(), b, "k", "two"), remote.ErrPrecondition)
	wantErr(t, "create of the same content", absent(t.Context(), b, "k", "one"), remote.ErrPrecondition)
	got, _ := get(t, b, "k", remote.Range{})
	wantBytes(t, "get", got, []byte("one"))
	if err := b.Delete(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	if err := absent(t.Context(), b, "k", "three"); err != nil {
		t.Fatalf("create after delete: %v", err)
	}
}

// insist repeats a call while the store answers that nothing is known yet.
func insist(call func() error) error {
	for {
		if err := call(); !errors.Is(err, remote.ErrConflict) {
			return err
		}
	}
}

func checkAbsentRace(c on) {
	t, b := c.t, c.b
	if !conditional(t, b) {
		return
	}
	const writers = 32
	for round := range 5 {
		key := fmt.Sprintf("race/%d", round)
		errs := make([]error, writers)
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				errs[w] = insist(func() error { return absent(t.Context(), b, key, fmt.Sprint("writer ", w)) })
			})
		}
		wg.Wait()
		winner := -1
		for w, err := range errs {
			switch {
			case err == nil && winner < 0:
				winner = w
			case err == nil:
				t.Fatalf("writers %d and %d both created %s", winner, w, key)
			case !errors.Is(err, remote.ErrPrecondition):
				t.Fatalf("writer %d: %v", w, err)
			}
		}
		if winner < 0 {
			t.Fatal("nobody won")
		}
		got, _ := get(t, b, key, remote.Range{})
		wantBytes(t, "get", got, []byte(fmt.Sprint("writer ", winner)))
	}
}

func checkMatch(c on) {
	t, b := c.t, c.b
	if !conditional(t, b) {
		return
	}
	_, err := match(t.Context(), b, "none", `"5d41402abc4b2a76b9719d911017c592"`, "x")
	wantErr(t, "match on a missing key", err, remote.ErrPrecondition)
	wantAbsent(t, b, "none")
	first := put(t, b, "k", []byte("one"))
	second, err := match(t.Context(), b, "k", first.ETag, "two")
	if err != nil {
		t.Fatal(err)
	}
	if second.ETag == first.ETag || second.ETag == "" {
		t.Fatalf("ETag went from %q to %q", first.ETag, second.ETag)
	}
	_, err = match(t.Context(), b, "k", first.ETag, "three")
	wantErr(t, "stale match", err, remote.ErrPrecondition)
	got, o := get(t, b, "k", remote.Range{})
	wantBytes(t, "get", got, []byte("two"))
	if _, err = match(t.Context(), b, "k", o.ETag, "four"); err != nil {
		t.Fatalf("match with the ETag of a get: %v", err)
	}
}

func checkCounter(c on) {
	t, b := c.t, c.b
	if !conditional(t, b) {
		return
	}
	const writers, each = 8, 5
	put(t, b, "counter", []byte("0"))
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				if err := increment(t.Context(), b, fmt.Sprintf("%d.%d", w, i)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	got, _ := get(t, b, "counter", remote.Range{})
	var n int
	if _, err := fmt.Sscan(string(got), &n); err != nil || n != writers*each {
		t.Fatalf("counter is %q after %d increments", got, writers*each)
	}
}

// increment adds one to the counter. The nonce keeps two bodies from being equal.
func increment(ctx context.Context, b remote.Bucket, nonce string) error {
	for {
		body, o, err := read(ctx, b, "counter", remote.Range{})
		if err != nil {
			return err
		}
		var n int
		if _, err = fmt.Sscan(string(body), &n); err != nil {
			return fmt.Errorf("counter %q: %w", body, err)
		}
		_, err = match(ctx, b, "counter", o.ETag, fmt.Sprint(n+1, " ", nonce))
		if !errors.Is(err, remote.ErrPrecondition) && !errors.Is(err, remote.ErrConflict) {
			return err
		}
	}
}

func checkBothConditions(c on) {
	t, b := c.t, c.b
	o := put(t, b, "k", []byte("one"))
	_, err := b.Put(t.Context(), "k", remote.BytesBody([]byte("two")), remote.PutOptions{If: remote.Cond{Absent: true, ETag: o.ETag}})
	if err == nil {
		t.Fatal("a condition that cannot hold was taken")
	}
	got, _ := get(t, b, "k", remote.Range{})
	wantBytes(t, "get", got, []byte("one"))
}

// Package buckettest is the acceptance suite of remote.Bucket. Every driver
// passes it, against every store that it is said to work with.
//
// It holds no state. A bucket under test belongs to one subtest, which leaves
// its objects behind: whoever opens buckets gives each a prefix or folder of its
// own and throws that away.
package buckettest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/strandline-io/strandline/tiers/remote"
)

// Run holds the driver to the contract of remote.Bucket. open returns an empty
// bucket, which Run closes. What a driver's Caps deny is not asked of it, but it
// must then refuse conditions instead of ignoring them.
func Run(t *testing.T, open func(t *testing.T) remote.Bucket) {
	t.Helper()
	for _, c := range []struct {
		name  string
		check func(on)
	}{
		{"round trip", checkRoundTrip},
		{"body is read from its offset", checkBodySection},
		{"ranges", checkRanges},
		{"missing object", checkMissing},
		{"illegal keys", checkKeys},
		{"overwrite", checkOverwrite},
		{"create if absent", checkAbsent},
		{"create if absent by 32 writers", checkAbsentRace},
		{"match ETag", checkMatch},
		{"compare and swap", checkCounter},
		{"both conditions", checkBothConditions},
		{"list", checkList},
		{"list 2500 and delete", checkListMany},
		{"delete", checkDelete},
		{"checksum is kept", checkCRC},
		{"wrong checksum", checkWrongCRC},
		{"short and failing bodies", checkBadBodies},
		{"cancelled put", checkCancelledPut},
		{"cancelled calls", checkCancelled},
		{"read after write", checkReadAfterWrite},
		{"overwrites are never torn", checkTorn},
		{"abort stale", checkAbortStale},
		{"name", checkName},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := open(t)
			t.Cleanup(func() {
				if err := b.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
			})
			c.check(on{t, b})
		})
	}
}

// on is what a check works on.
type on struct {
	t *testing.T
	b remote.Bucket
}

// noise is reproducible bytes that do not compress.
func noise(seed uint64, n int) []byte {
	b := make([]byte, n)
	rng := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	_, _ = rng.Read(b) // never fails
	return b
}

func put(t *testing.T, b remote.Bucket, key string, body []byte) remote.Object {
	t.Helper()
	o, err := b.Put(t.Context(), key, remote.BytesBody(body), remote.PutOptions{})
	if err != nil {
		t.Fatalf("put %s: %v", key, err)
	}
	return o
}

func get(t *testing.T, b remote.Bucket, key string, r remote.Range) ([]byte, remote.Object) {
	t.Helper()
	body, o, err := read(t.Context(), b, key, r)
	if err != nil {
		t.Fatalf("get %s %v: %v", key, r, err)
	}
	return body, o
}

func read(ctx context.Context, b remote.Bucket, key string, r remote.Range) ([]byte, remote.Object, error) {
	body, o, err := b.Get(ctx, key, r)
	if err != nil {
		return nil, o, err
	}
	content, err := io.ReadAll(body)
	if cerr := body.Close(); err == nil {
		err = cerr
	}
	return content, o, err
}

func wantErr(t *testing.T, what string, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("%s: error is %v, want %v", what, err, target)
	}
}

func wantBytes(t *testing.T, what string, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Fatalf("%s: got %d bytes, want %d, or they differ", what, len(got), len(want))
	}
}

func wantAbsent(t *testing.T, b remote.Bucket, key string) {
	t.Helper()
	if o, err := b.Stat(context.WithoutCancel(t.Context()), key); !errors.Is(err, remote.ErrNotFound) {
		t.Fatalf("stat %s: %+v, %v, want %v", key, o, err, remote.ErrNotFound)
	}
}

func checkRoundTrip(c on) {
	t, b := c.t, c.b
	for _, size := range []int{0, 1, 4095, 1 << 20, 5<<20 + 17} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			key := fmt.Sprintf("a/%d.log", size)
			body := noise(uint64(size), size)
			stored := put(t, b, key, body)
			if stored.Key != key || stored.Size != int64(size) || stored.ETag == "" {
				t.Fatalf("put returned %+v", stored)
			}
			got, o := get(t, b, key, remote.Range{})
			wantBytes(t, "get", got, body)
			st, err := b.Stat(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			for what, o := range map[string]remote.Object{"get": o, "stat": st} {
				if o.Key != key || o.Size != int64(size) || o.ETag != stored.ETag || o.Modified.IsZero() || o.IsPrefix {
					t.Fatalf("%s returned %+v after put returned %+v", what, o, stored)
				}
			}
		})
	}
}

func checkBodySection(c on) {
	t, b := c.t, c.b
	all := noise(1, 1000)
	body := remote.ReaderAtBody(bytes.NewReader(all), 100, 500)
	if _, err := b.Put(t.Context(), "section", body, remote.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	got, _ := get(t, b, "section", remote.Range{})
	wantBytes(t, "get", got, all[100:600])
}

func checkRanges(c on) {
	t, b := c.t, c.b
	const size = 3000
	body := noise(2, size)
	put(t, b, "r", body)
	put(t, b, "empty", nil)
	for _, r := range []remote.Range{{}, {Off: 0, Len: 1}, {Off: 1000, Len: 500}, {Off: 2999}, {Off: 2999, Len: 1}, {Off: 2900, Len: 500}, {Off: 500}} {
		got, o := get(t, b, "r", r)
		end := int64(size)
		if r.Len > 0 {
			end = min(end, r.Off+r.Len)
		}
		wantBytes(t, fmt.Sprintf("range %v", r), got, body[r.Off:end])
		if o.Size != size {
			t.Fatalf("range %v: size is %d, want that of the object", r, o.Size)
		}
	}
	for _, r := range []remote.Range{{Off: size}, {Off: size, Len: 1}, {Off: size + 1000, Len: 10}, {Off: -1, Len: 10}, {Off: 0, Len: -1}} {
		_, _, err := b.Get(t.Context(), "r", r)
		wantErr(t, fmt.Sprintf("range %v", r), err, remote.ErrRange)
	}
	_, o := get(t, b, "r", remote.Range{})
	same, _ := get(t, b, "r", remote.Range{Off: 7, Len: 20, ETag: o.ETag})
	wantBytes(t, "range of a known object", same, body[7:27])
	for _, r := range []remote.Range{{ETag: "0123"}, {Off: 5, ETag: "0123"}, {Off: 5, Len: 10, ETag: "0123"}} {
		_, _, err := b.Get(t.Context(), "r", r)
		wantErr(t, fmt.Sprintf("range %v of another object", r), err, remote.ErrPrecondition)
	}
	buf := make([]byte, 100)
	for _, c := range []struct {
		off int64
		n   int
		err error
	}{{0, 100, nil}, {1234, 100, nil}, {2900, 100, nil}, {2950, 50, io.EOF}, {2999, 1, io.EOF}, {3000, 0, remote.ErrRange}, {9000, 0, remote.ErrRange}, {-1, 0, remote.ErrRange}} {
		n, err := b.ReadAt(t.Context(), "r", buf, c.off)
		if n != c.n || !errors.Is(err, c.err) {
			t.Fatalf("read at %d: %d, %v, want %d, %v", c.off, n, err, c.n, c.err)
		}
		from := min(max(0, c.off), size)
		wantBytes(t, "read at", buf[:n], body[from:from+int64(n)])
	}
	if n, err := b.ReadAt(t.Context(), "r", nil, 10); n != 0 || err != nil {
		t.Fatalf("read of nothing: %d, %v", n, err)
	}
	_, err := b.ReadAt(t.Context(), "empty", buf, 0)
	wantErr(t, "read of an empty object", err, remote.ErrRange)
}

func checkMissing(c on) {
	t, b := c.t, c.b
	_, _, err := b.Get(t.Context(), "none/at/all", remote.Range{})
	wantErr(t, "get", err, remote.ErrNotFound)
	_, _, err = b.Get(t.Context(), "none/at/all", remote.Range{Off: 5, Len: 5})
	wantErr(t, "get a range", err, remote.ErrNotFound)
	_, err = b.ReadAt(t.Context(), "none/at/all", make([]byte, 10), 0)
	wantErr(t, "read at", err, remote.ErrNotFound)
	wantAbsent(t, b, "none/at/all")
	put(t, b, "folder/object", []byte("x"))
	wantAbsent(t, b, "folder")
}

func checkKeys(c on) {
	t, b := c.t, c.b
	put(t, b, "good", []byte("x"))
	for _, key := range []string{"", "/", "/a", "a/", "a//b", "a b", "über", "a\x00b", "../a", "a/./b", "a\\b", "a+b", "a%20b", string(bytes.Repeat([]byte("x"), 201))} {
		_, err := b.Put(t.Context(), key, remote.BytesBody(nil), remote.PutOptions{})
		wantErr(t, fmt.Sprintf("put %q", key), err, remote.ErrBadKey)
		_, _, err = b.Get(t.Context(), key, remote.Range{})
		wantErr(t, fmt.Sprintf("get %q", key), err, remote.ErrBadKey)
		_, err = b.ReadAt(t.Context(), key, make([]byte, 1), 0)
		wantErr(t, fmt.Sprintf("read %q", key), err, remote.ErrBadKey)
		_, err = b.Stat(t.Context(), key)
		wantErr(t, fmt.Sprintf("stat %q", key), err, remote.ErrBadKey)
		wantErr(t, fmt.Sprintf("delete %q", key), b.Delete(t.Context(), key), remote.ErrBadKey)
	}
	long := "topics/" + string(bytes.Repeat([]byte("x"), 200)) + "/AZaz09._=-"
	put(t, b, long, []byte("long"))
	got, _ := get(t, b, long, remote.Range{})
	wantBytes(t, "long key", got, []byte("long"))
}

func checkOverwrite(c on) {
	t, b := c.t, c.b
	first := put(t, b, "k", []byte("first, the longer one"))
	second := put(t, b, "k", []byte("second"))
	if first.ETag == second.ETag {
		t.Fatalf("two contents have the ETag %s", first.ETag)
	}
	got, o := get(t, b, "k", remote.Range{})
	wantBytes(t, "get", got, []byte("second"))
	if o.ETag != second.ETag || o.Size != 6 {
		t.Fatalf("get returned %+v, put %+v", o, second)
	}
}

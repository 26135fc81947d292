package buckettest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/strandline-io/strandline/tiers/remote"
)

func checkCRC(c on) {
	t, b := c.t, c.b
	body := noise(3, 100_000)
	put(t, b, "k", body)
	o, err := b.Stat(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	if o.HasCRC != b.Caps().StoresCRC32C {
		t.Fatalf("stat tells a CRC-32C: %t, Caps says %t", o.HasCRC, b.Caps().StoresCRC32C)
	}
	if o.HasCRC && o.CRC32C != remote.CRC32C(body) {
		t.Fatalf("CRC-32C is %08x, want %08x", o.CRC32C, remote.CRC32C(body))
	}
}

func checkWrongCRC(c on) {
	t, b := c.t, c.b
	body := noise(4, 70_000)
	wrong := remote.WithCRC(remote.BytesBody(body), remote.CRC32C(body)+1)
	_, err := b.Put(t.Context(), "k", wrong, remote.PutOptions{})
	wantErr(t, "put", err, remote.ErrChecksum)
	wantAbsent(t, b, "k")
	right := remote.WithCRC(remote.BytesBody(body), remote.CRC32C(body))
	if _, err = b.Put(t.Context(), "k", right, remote.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err = b.Put(t.Context(), "k", remote.WithCRC(remote.BytesBody(body[1:]), 7), remote.PutOptions{})
	wantErr(t, "overwrite", err, remote.ErrChecksum)
	got, _ := get(t, b, "k", remote.Range{})
	wantBytes(t, "get", got, body)
}

// badBody is a body of size bytes whose reader calls hook once half of it was
// read. An error of hook is the reader's.
type badBody struct {
	remote.Body
	hook func() error
}

func (b badBody) Open(off, n int64) (io.ReadSeekCloser, error) {
	r, err := b.Body.Open(off, n)
	return &badReader{r, b.hook, b.Size() / 2}, err
}

type badReader struct {
	io.ReadSeekCloser
	hook func() error
	left int64
}

func (r *badReader) Read(p []byte) (int, error) {
	if r.left <= 0 {
		if err := r.hook(); err != nil {
			return 0, err
		}
	}
	n, err := r.ReadSeekCloser.Read(p[:min(len(p), 32<<10)])
	r.left -= int64(n)
	return n, err
}

// longBody claims one byte more than there is.
type longBody struct{ remote.Body }

func (b longBody) Size() int64 { return b.Body.Size() + 1 }

func (b longBody) Open(off, n int64) (io.ReadSeekCloser, error) {
	return b.Body.Open(off, min(n, b.Body.Size()-off))
}

func checkBadBodies(c on) {
	t, b := c.t, c.b
	broken := errors.New("the disk is broken")
	body := remote.BytesBody(noise(5, 300_000))
	crc, err := remote.BodyCRC32C(body)
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.Put(t.Context(), "k", badBody{body, func() error { return broken }}, remote.PutOptions{})
	wantErr(t, "put of a body that cannot be read", err, broken)
	_, err = b.Put(t.Context(), "k", remote.WithCRC(badBody{body, func() error { return broken }}, crc), remote.PutOptions{})
	if err == nil {
		t.Fatal("a body that cannot be read was put")
	}
	if _, err = b.Put(t.Context(), "k", longBody{body}, remote.PutOptions{}); err == nil {
		t.Fatal("a body that is shorter than its size was put")
	}
	if _, err = b.Put(t.Context(), "k", remote.WithCRC(longBody{body}, crc), remote.PutOptions{}); err == nil {
		t.Fatal("a body that is shorter than its size was put")
	}
	wantAbsent(t, b, "k")
}

func checkCancelledPut(c on) {
	t, b := c.t, c.b
	body := remote.BytesBody(noise(6, 3<<20))
	crc, err := remote.BodyCRC32C(body)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	hook := func() error { cancel(); return nil }
	_, err = b.Put(ctx, "k", remote.WithCRC(badBody{body, hook}, crc), remote.PutOptions{})
	if err == nil {
		t.Fatal("put went well although its context was cancelled half way")
	}
	wantAbsent(t, b, "k")
	if got := keys(t, b, remote.ListOptions{}); len(got) != 0 {
		t.Fatalf("left behind: %v", got)
	}
}

func checkCancelled(c on) {
	t, b := c.t, c.b
	put(t, b, "k", []byte("x"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.Put(ctx, "k", remote.BytesBody([]byte("new")), remote.PutOptions{})
	wantErr(t, "put", err, context.Canceled)
	_, _, err = read(ctx, b, "k", remote.Range{})
	wantErr(t, "get", err, context.Canceled)
	_, err = b.ReadAt(ctx, "k", make([]byte, 1), 0)
	wantErr(t, "read at", err, context.Canceled)
	_, err = b.Stat(ctx, "k")
	wantErr(t, "stat", err, context.Canceled)
	wantErr(t, "delete", b.Delete(ctx, "k"), context.Canceled)
	n := 0
	for _, err := range b.List(ctx, remote.ListOptions{}) {
		wantErr(t, "list", err, context.Canceled)
		n++
	}
	if n != 1 {
		t.Fatalf("a cancelled listing yielded %d times, want one error", n)
	}
	got, _ := get(t, b, "k", remote.Range{})
	wantBytes(t, "get", got, []byte("x"))
}

func checkReadAfterWrite(c on) {
	t, b := c.t, c.b
	for i := range 50 {
		key := fmt.Sprintf("raw/%d", i)
		put(t, b, key, []byte(key))
		got, _ := get(t, b, key, remote.Range{})
		wantBytes(t, "get", got, []byte(key))
		if got := keys(t, b, remote.ListOptions{Prefix: key}); !slices.Contains(got, key) {
			t.Fatalf("%s is not listed", key)
		}
		if err := b.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		wantAbsent(t, b, key)
	}
}

func checkTorn(c on) {
	t, b := c.t, c.b
	content := func(w int) []byte { return bytes.Repeat([]byte{byte('a' + w)}, 200_000+w*50_000) }
	put(t, b, "k", content(0))
	stop := make(chan struct{})
	var writers, readers sync.WaitGroup
	for w := range 2 {
		writers.Go(func() {
			for range 25 {
				if _, err := b.Put(t.Context(), "k", remote.BytesBody(content(w)), remote.PutOptions{}); err != nil {
					t.Errorf("put: %v", err)
					return
				}
			}
		})
	}
	for range 3 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				got, o, err := read(t.Context(), b, "k", remote.Range{})
				if err != nil || len(got) == 0 || !bytes.Equal(got, content(int(got[0]-'a'))) || o.Size != int64(len(got)) {
					t.Errorf("read %d bytes, %+v, %v: torn", len(got), o, err)
					return
				}
			}
		})
	}
	writers.Wait()
	close(stop)
	readers.Wait()
}

func checkAbortStale(c on) {
	t, b := c.t, c.b
	put(t, b, "k", []byte("x"))
	if _, err := b.AbortStale(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if n, err := b.AbortStale(t.Context(), time.Hour); err != nil || n != 0 {
		t.Fatalf("second run: %d, %v", n, err)
	}
	got, _ := get(t, b, "k", remote.Range{})
	wantBytes(t, "get", got, []byte("x"))
}

func checkName(c on) {
	t, b := c.t, c.b
	if b.String() == "" {
		t.Fatal("the bucket has no name")
	}
}

package memory_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"

	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

func put(ctx context.Context, b remote.Bucket, key, body string) error {
	_, err := b.Put(ctx, key, remote.BytesBody([]byte(body)), remote.PutOptions{})
	return err
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Faults strike the calls that they name, in turn, as often as they say.
func TestFaultNth(t *testing.T) {
	t.Parallel()
	b := memory.New()
	hits := b.Add(memory.Fault{Ops: memory.OpPut, Key: ".log", Skip: 1, Times: 2, Err: remote.ErrThrottled})
	for i, key := range []string{"a.log", "b.meta", "b.log", "c.log", "d.log"} {
		err := put(t.Context(), b, key, key)
		if failed := i == 2 || i == 3; failed != errors.Is(err, remote.ErrThrottled) || !failed && err != nil {
			t.Fatalf("%s: %v", key, err)
		}
	}
	if _, ok := b.Bytes("b.log"); ok || hits() != 2 || len(b.Keys("")) != 3 {
		t.Fatalf("%d hits, keys %v", hits(), b.Keys(""))
	}
	calls := b.Calls(memory.OpPut, "b")
	if len(calls) != 2 || calls[0].Err != nil || !errors.Is(calls[1].Err, remote.ErrThrottled) || calls[1].Seq != 3 || calls[1].Len != 5 {
		t.Fatalf("%+v", calls)
	}
	b.Add(memory.Fault{Sticky: true})
	for range 3 {
		if _, err := b.Stat(t.Context(), "a.log"); !errors.Is(err, remote.ErrUnavailable) {
			t.Fatal(err)
		}
	}
	b.Clear()
	_, err := b.Stat(t.Context(), "a.log")
	must(t, err)
}

// The store has done it and its answer is lost.
func TestFaultApplied(t *testing.T) {
	t.Parallel()
	b := memory.New()
	b.Add(memory.Fault{Applied: true, Err: remote.ErrUnknownOutcome, Times: 2})
	if err := put(t.Context(), b, "k", "there"); !errors.Is(err, remote.ErrUnknownOutcome) {
		t.Fatal(err)
	}
	if got, _ := b.Bytes("k"); string(got) != "there" {
		t.Fatalf("%q", got)
	}
	if err := b.Delete(t.Context(), "k"); !errors.Is(err, remote.ErrUnknownOutcome) || len(b.Keys("")) != 0 {
		t.Fatalf("%v, keys %v", err, b.Keys(""))
	}
}

func TestFaultHold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		hold, reached := make(chan struct{}), make(chan memory.Call)
		b.Add(memory.Fault{Ops: memory.OpPut, Hold: hold, Reached: reached, Times: 2})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- put(ctx, b, "left", "x") }()
		if call := <-reached; call.Key != "left" {
			t.Fatalf("%+v", call)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		go func() { done <- put(t.Context(), b, "held", "x") }()
		<-reached
		synctest.Wait()
		if keys := b.Keys(""); len(keys) != 0 {
			t.Fatalf("%v", keys)
		}
		close(hold)
		must(t, <-done)
	})
}

func TestFaultBodies(t *testing.T) {
	t.Parallel()
	b := memory.New()
	must(t, put(t.Context(), b, "k", "0123456789"))
	read := func() (string, error) {
		r, _, err := b.Get(t.Context(), "k", remote.Range{Off: 2})
		must(t, err)
		defer r.Close()
		got, err := io.ReadAll(r)
		return string(got), err
	}
	b.Add(memory.Fault{Ops: memory.OpGet, Cut: true, CutAfter: 3})
	if got, err := read(); got != "234" || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatalf("%q, %v", got, err)
	}
	b.Add(memory.Fault{Ops: memory.OpGet, Flip: true, FlipAt: 1})
	if got, err := read(); got != "22456789" || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	if got, err := read(); got != "23456789" || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	b.Add(memory.Fault{Ops: memory.OpReadAt, Cut: true, CutAfter: 4})
	buf := make([]byte, 10)
	if n, err := b.ReadAt(t.Context(), "k", buf, 0); n != 4 || !errors.Is(err, remote.ErrUnavailable) {
		t.Fatalf("%d, %v", n, err)
	}
	must(t, b.FlipBit("k", 0))
	if got, _ := b.Bytes("k"); !bytes.Equal(got, []byte("1123456789")) {
		t.Fatalf("%q", got)
	}
	if err := b.FlipBit("k", 10); !errors.Is(err, remote.ErrNotFound) {
		t.Fatal(err)
	}
}

// A listing that breaks off is an error, after what came before.
func TestReport104FaultListing(t *testing.T) {
	t.Parallel()
	b := memory.New()
	for _, key := range []string{"a", "b", "c"} {
		must(t, put(t.Context(), b, key, ""))
	}
	b.Add(memory.Fault{Ops: memory.OpList, Cut: true, CutAfter: 2, Err: remote.ErrUnavailable})
	var keys []string
	var last error
	for o, err := range b.List(t.Context(), remote.ListOptions{}) {
		if last = err; err == nil {
			keys = append(keys, o.Key)
		}
	}
	if len(keys) != 2 || !errors.Is(last, remote.ErrUnavailable) {
		t.Fatalf("%v, %v", keys, last)
	}
}

func TestCloneAndClose(t *testing.T) {
	t.Parallel()
	b := memory.New()
	must(t, put(t.Context(), b, "k", "one"))
	b.Add(memory.Fault{Sticky: true})
	c := b.Clone()
	must(t, put(t.Context(), c, "k", "two"))
	if got, _ := b.Bytes("k"); string(got) != "one" {
		t.Fatalf("%q", got)
	}
	must(t, c.Close())
	if err := put(t.Context(), c, "k", "x"); !errors.Is(err, remote.ErrUnavailable) {
		t.Fatal(err)
	}
}

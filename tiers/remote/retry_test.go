package remote_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/buckettest"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

// full makes every wait as long as it may be.
func full(limit time.Duration) time.Duration { return limit }

func retrying(m *memory.Bucket) remote.Bucket {
	return remote.WithRetry(m, remote.RetryOptions{Jitter: full})
}

func TestRetryAcceptance(t *testing.T) {
	t.Parallel()
	buckettest.Run(t, func(*testing.T) remote.Bucket { return retrying(memory.New()) })
}

var calls = map[string]struct {
	op  memory.Op
	try func(context.Context, remote.Bucket) error
}{
	"put": {memory.OpPut, func(ctx context.Context, b remote.Bucket) error {
		_, err := b.Put(ctx, "k", remote.BytesBody([]byte("body")), remote.PutOptions{})
		return err
	}},
	"get": {memory.OpGet, func(ctx context.Context, b remote.Bucket) error {
		r, _, err := b.Get(ctx, "k", remote.Range{})
		if err == nil {
			_, err = io.ReadAll(r)
			_ = r.Close()
		}
		return err
	}},
	"read": {memory.OpReadAt, func(ctx context.Context, b remote.Bucket) error {
		_, err := b.ReadAt(ctx, "k", make([]byte, 4), 0)
		return err
	}},
	"stat": {memory.OpStat, func(ctx context.Context, b remote.Bucket) error {
		_, err := b.Stat(ctx, "k")
		return err
	}},
	"list": {memory.OpList, func(ctx context.Context, b remote.Bucket) error {
		for _, err := range b.List(ctx, remote.ListOptions{}) {
			if err != nil {
				return err
			}
		}
		return nil
	}},
	"delete": {memory.OpDelete, func(ctx context.Context, b remote.Bucket) error { return b.Delete(ctx, "k") }},
	"abort": {memory.OpAbort, func(ctx context.Context, b remote.Bucket) error {
		_, err := b.AbortStale(ctx, time.Hour)
		return err
	}},
}

func newWithK(t *testing.T) *memory.Bucket {
	t.Helper()
	m := memory.New()
	_, err := m.Put(t.Context(), "k", remote.BytesBody([]byte("body")), remote.PutOptions{})
	must(t, err)
	return m
}

func TestRetryWhatPasses(t *testing.T) {
	t.Parallel()
	for name, c := range calls {
		for _, cause := range []error{remote.ErrUnavailable, remote.ErrThrottled, remote.ErrConflict, remote.ErrUnknownOutcome} {
			synctest.Test(t, func(t *testing.T) {
				m := newWithK(t)
				hits := m.Add(memory.Fault{Ops: c.op, Err: fmt.Errorf("the store says 503: %w", cause), Times: 5})
				start := time.Now()
				if err := c.try(t.Context(), retrying(m)); err != nil || hits() != 5 {
					t.Fatalf("%s after %d faults: %v", name, hits(), err)
				}
				want := (100 + 200 + 400 + 800 + 1600) * time.Millisecond
				if errors.Is(cause, remote.ErrThrottled) {
					want = (500 + 1000 + 2000 + 3000 + 3000) * time.Millisecond
				}
				if took := time.Since(start); took != want {
					t.Fatalf("%s waited %v, want %v", name, took, want)
				}
			})
		}
	}
}

func TestRetryGivesUp(t *testing.T) {
	t.Parallel()
	for name, c := range calls {
		synctest.Test(t, func(t *testing.T) {
			m := newWithK(t)
			hits := m.Add(memory.Fault{Ops: c.op, Sticky: true})
			err := c.try(t.Context(), retrying(m))
			if !errors.Is(err, remote.ErrUnavailable) || tiers.KindOf(err) != tiers.RemoteUnavailable || hits() != 6 {
				t.Fatalf("%s: %v after %d attempts", name, err, hits())
			}
		})
	}
}

func TestRetryNotWhatTheStoreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range calls {
		for _, cause := range []error{remote.ErrNotFound, remote.ErrPrecondition, remote.ErrDenied, remote.ErrRange, remote.ErrBadKey, remote.ErrChecksum, remote.ErrNoBucket} {
			synctest.Test(t, func(t *testing.T) {
				m := newWithK(t)
				hits := m.Add(memory.Fault{Ops: c.op, Err: cause, Sticky: true})
				start := time.Now()
				if err := c.try(t.Context(), retrying(m)); !errors.Is(err, cause) || hits() != 1 || time.Since(start) != 0 {
					t.Fatalf("%s: %v after %d attempts and %v", name, err, hits(), time.Since(start))
				}
			})
		}
	}
}

// An answer that never comes ends with its attempt; the whole call ends with its
// own limit, and with the caller's.
func TestRetryTimeouts(t *testing.T) {
	t.Parallel()
	for name, c := range calls {
		if name == "list" {
			continue // its driver has a limit for each page
		}
		synctest.Test(t, func(t *testing.T) {
			m := newWithK(t)
			m.Add(memory.Fault{Ops: c.op, Hold: make(chan struct{})})
			start := time.Now()
			err := c.try(t.Context(), retrying(m))
			if took := time.Since(start); err != nil || took < 10*time.Second || took > 11*time.Second {
				t.Fatalf("%s: %v after %v", name, err, took)
			}
		})
		synctest.Test(t, func(t *testing.T) {
			m := newWithK(t)
			m.Add(memory.Fault{Ops: c.op, Hold: make(chan struct{}), Sticky: true})
			start := time.Now()
			err := c.try(t.Context(), retrying(m))
			if took := time.Since(start); !errors.Is(err, remote.ErrUnavailable) || took < 50*time.Second || took > 66*time.Second {
				t.Fatalf("%s: %v after %v", name, err, took)
			}
		})
		synctest.Test(t, func(t *testing.T) {
			m := newWithK(t)
			m.Add(memory.Fault{Ops: c.op, Sticky: true, Err: remote.ErrThrottled})
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			start := time.Now()
			err := c.try(ctx, retrying(m))
			if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, remote.ErrThrottled) || time.Since(start) != 2*time.Second {
				t.Fatalf("%s: %v after %v", name, err, time.Since(start))
			}
		})
	}
}

// Each attempt sends the whole body, and the log shows what the store said.
func TestReport062RetrySendsTheWholeBody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := memory.New()
		var log bytes.Buffer
		b := remote.WithRetry(m, remote.RetryOptions{Logger: hclog.New(&hclog.LoggerOptions{Level: hclog.Debug, Output: &log})})
		hits := m.Add(memory.Fault{Ops: memory.OpPut, Err: fmt.Errorf("503 SlowDown: %w", remote.ErrThrottled)})
		body := &drained{Body: remote.BytesBody([]byte("all of it"))}
		_, err := b.Put(t.Context(), "k", body, remote.PutOptions{})
		must(t, err)
		if got, _ := m.Bytes("k"); string(got) != "all of it" || hits() != 1 || len(m.Calls(memory.OpPut, "k")) != 2 {
			t.Fatalf("%q after %d faults and %d attempts", got, hits(), len(m.Calls(memory.OpPut, "k")))
		}
		if !strings.Contains(log.String(), "503 SlowDown") {
			t.Fatalf("log: %s", log.String())
		}
	})
}

// drained is a body that notes how often it was opened.
type drained struct {
	remote.Body
	opened int
}

func (d *drained) Open(off, n int64) (io.ReadSeekCloser, error) {
	d.opened++
	return d.Body.Open(off, n)
}

// A store that fails for everybody gets fewer attempts, each after the longest
// wait.
func TestRetryBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newWithK(t)
		b := retrying(m)
		m.Add(memory.Fault{Ops: memory.OpStat, Sticky: true})
		var last time.Duration
		for range 20 {
			start := time.Now()
			if _, err := b.Stat(t.Context(), "k"); err == nil {
				t.Fatal("no error")
			}
			last = time.Since(start)
		}
		if last < 12*time.Second {
			t.Fatalf("the 20th call gave up after %v", last)
		}
		m.Clear()
		for range 100 {
			_, err := b.Stat(t.Context(), "k")
			must(t, err)
		}
		m.Add(memory.Fault{Ops: memory.OpStat})
		start := time.Now()
		_, err := b.Stat(t.Context(), "k")
		if must(t, err); time.Since(start) != 100*time.Millisecond {
			t.Fatalf("waited %v although calls have gone well", time.Since(start))
		}
	})
}

func TestRetryResumesACutBody(t *testing.T) {
	t.Parallel()
	records, _ := sample(100_000)
	for _, r := range []remote.Range{{}, {Off: 1000, Len: 50_000}, {Off: 99_000}} {
		synctest.Test(t, func(t *testing.T) {
			m := memory.New()
			_, err := m.Put(t.Context(), "k", remote.BytesBody(records), remote.PutOptions{})
			must(t, err)
			m.Add(memory.Fault{Ops: memory.OpGet, Cut: true, CutAfter: 700, Times: 2})
			m.Add(memory.Fault{Ops: memory.OpGet})
			m.Add(memory.Fault{Ops: memory.OpGet, Cut: true, CutAfter: 0, Err: io.EOF}) // ends early as if it were whole
			body, o, err := retrying(m).Get(t.Context(), "k", r)
			must(t, err)
			off, end, err := r.Span(o.Size)
			must(t, err)
			got, err := io.ReadAll(body)
			must(t, err)
			must(t, body.Close())
			if !bytes.Equal(got, records[off:end]) {
				t.Fatalf("range %v: %d bytes, want %d, or they differ", r, len(got), end-off)
			}
			reads := m.Calls(memory.OpGet, "k")
			if reads[1].Off != off+700 || end-off > 1400 && reads[2].Off != off+1400 {
				t.Fatalf("%+v", reads)
			}
		})
	}
}

func TestRetryDoesNotJoinTwoObjects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newWithK(t)
		m.Add(memory.Fault{Ops: memory.OpGet, Cut: true, CutAfter: 2})
		body, _, err := retrying(m).Get(t.Context(), "k", remote.Range{})
		must(t, err)
		_, err = m.Put(t.Context(), "k", remote.BytesBody([]byte("next")), remote.PutOptions{})
		must(t, err)
		got, err := io.ReadAll(body)
		if string(got) != "bo" || !errors.Is(err, remote.ErrPrecondition) {
			t.Fatalf("%q, %v", got, err)
		}
		must(t, body.Close())
		if _, err = body.Read(make([]byte, 1)); err == nil {
			t.Fatal("a closed body was read")
		}
	})
}

func TestRetryBodyThatStaysCut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newWithK(t)
		hits := m.Add(memory.Fault{Ops: memory.OpGet, Cut: true, Sticky: true})
		body, _, err := retrying(m).Get(t.Context(), "k", remote.Range{})
		must(t, err)
		defer body.Close()
		if got, err := io.ReadAll(body); len(got) > 0 || !errors.Is(err, remote.ErrUnavailable) || hits() != 6 {
			t.Fatalf("%q, %v after %d attempts", got, err, hits())
		}
	})
}

func TestRetryListGoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := memory.New()
		for _, key := range []string{"a", "b/1", "b/2", "c/1", "d"} {
			_, err := m.Put(t.Context(), key, remote.BytesBody(nil), remote.PutOptions{})
			must(t, err)
		}
		for _, c := range []struct {
			o    remote.ListOptions
			want string
		}{{remote.ListOptions{}, "[a b/1 b/2 c/1 d]"}, {remote.ListOptions{Delimiter: "/"}, "[a b/ c/ d]"}} {
			m.Add(memory.Fault{Ops: memory.OpList, Cut: true, CutAfter: 2, Err: remote.ErrUnavailable})
			m.Add(memory.Fault{Ops: memory.OpList, Times: 4})
			m.Add(memory.Fault{Ops: memory.OpList, Cut: true, CutAfter: 1, Err: remote.ErrUnavailable})
			var got []string
			for o, err := range retrying(m).List(t.Context(), c.o) {
				must(t, err)
				got = append(got, o.Key)
			}
			if fmt.Sprint(got) != c.want {
				t.Fatalf("%v, want %s", got, c.want)
			}
			m.Clear()
		}
	})
}

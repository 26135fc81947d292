package remote_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

func putIf(ctx context.Context, b remote.Bucket, body string, cond remote.Cond) (remote.Object, error) {
	return b.Put(ctx, "claim", remote.BytesBody([]byte(body)), remote.PutOptions{If: cond})
}

// conds runs a test for both conditions: on an empty bucket and on one that
// holds "old".
func conds(t *testing.T, test func(t *testing.T, m *memory.Bucket, b remote.Bucket, cond remote.Cond)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := memory.New()
		test(t, m, retrying(m), remote.Cond{Absent: true})
	})
	synctest.Test(t, func(t *testing.T) {
		m := memory.New()
		o, err := putIf(t.Context(), m, "old", remote.Cond{})
		must(t, err)
		test(t, m, retrying(m), remote.Cond{ETag: o.ETag})
	})
}

func wantClaim(t *testing.T, m *memory.Bucket, want string) {
	t.Helper()
	if got, _ := m.Bytes("claim"); string(got) != want {
		t.Fatalf("claim is %q, want %q", got, want)
	}
}

// The store writes and its answer is lost: a repetition would fail on our own
// success, so the object is read back.
func TestConditionalPutLostResponse(t *testing.T) {
	t.Parallel()
	conds(t, func(t *testing.T, m *memory.Bucket, b remote.Bucket, cond remote.Cond) {
		t.Helper()
		for _, lost := range []error{remote.ErrUnknownOutcome, remote.ErrThrottled, remote.ErrConflict, remote.ErrUnavailable} {
			m.Add(memory.Fault{Ops: memory.OpPut, Applied: true, Err: lost})
			o, err := putIf(t.Context(), b, "ours "+lost.Error(), cond)
			must(t, err)
			st, err := m.Stat(t.Context(), "claim")
			if must(t, err); st.ETag != o.ETag {
				t.Fatalf("returned ETag %s, the object has %s", o.ETag, st.ETag)
			}
			wantClaim(t, m, "ours "+lost.Error())
			cond = remote.Cond{ETag: o.ETag}
		}
	})
}

func TestConditionalPutThatDidNotHappenIsTriedAgain(t *testing.T) {
	t.Parallel()
	conds(t, func(t *testing.T, m *memory.Bucket, b remote.Bucket, cond remote.Cond) {
		t.Helper()
		hits := m.Add(memory.Fault{Ops: memory.OpPut, Err: remote.ErrUnknownOutcome, Times: 3})
		m.Add(memory.Fault{Ops: memory.OpGet}) // the read back has its own retries
		_, err := putIf(t.Context(), b, "ours", cond)
		if must(t, err); hits() != 3 {
			t.Fatalf("%d faults", hits())
		}
		wantClaim(t, m, "ours")
	})
}

func TestConditionalPutLost(t *testing.T) {
	t.Parallel()
	conds(t, func(t *testing.T, m *memory.Bucket, b remote.Bucket, cond remote.Cond) {
		t.Helper()
		_, err := putIf(t.Context(), m, "theirs", remote.Cond{})
		must(t, err)
		puts := len(m.Calls(memory.OpPut, ""))
		_, err = putIf(t.Context(), b, "ours", cond)
		if !errors.Is(err, remote.ErrPrecondition) || tiers.KindOf(err) != tiers.Conflict || len(m.Calls(memory.OpPut, "")) != puts+1 {
			t.Fatal(err)
		}
		// The store only asked to come back: that it is lost is certain.
		m.Add(memory.Fault{Ops: memory.OpPut, Err: remote.ErrConflict})
		_, err = putIf(t.Context(), b, "ours", cond)
		if !errors.Is(err, remote.ErrPrecondition) || errors.Is(err, remote.ErrUnknownOutcome) || tiers.KindOf(err) != tiers.Conflict {
			t.Fatal(err)
		}
		wantClaim(t, m, "theirs")
	})
}

// Somebody else's object is there after an unknown outcome. Ours may have been
// there in between, so nobody can say that it is lost.
func TestConditionalPutUnknown(t *testing.T) {
	t.Parallel()
	conds(t, func(t *testing.T, m *memory.Bucket, b remote.Bucket, cond remote.Cond) {
		t.Helper()
		hold, reached := make(chan struct{}), make(chan memory.Call)
		m.Add(memory.Fault{Ops: memory.OpGet, Hold: hold, Reached: reached})
		m.Add(memory.Fault{Ops: memory.OpPut, Applied: true, Err: remote.ErrUnknownOutcome})
		failed := make(chan error, 1)
		go func() {
			_, err := putIf(t.Context(), b, "ours", cond)
			failed <- err
		}()
		<-reached
		_, err := putIf(t.Context(), m, "theirs", remote.Cond{})
		must(t, err)
		close(hold)
		if err := <-failed; !errors.Is(err, remote.ErrUnknownOutcome) || errors.Is(err, remote.ErrPrecondition) || tiers.KindOf(err) != tiers.RemoteUnavailable {
			t.Fatal(err)
		}
		wantClaim(t, m, "theirs")
	})
}

// The store does not answer any more: the outcome stays unknown and says so.
func TestConditionalPutStoreGoesAway(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]memory.Fault{
		"everything": {Sticky: true, Err: remote.ErrUnknownOutcome},
		"read back":  {Ops: memory.OpGet, Sticky: true},
		"puts":       {Ops: memory.OpPut, Sticky: true, Err: remote.ErrUnknownOutcome},
		"no answer":  {Ops: memory.OpPut, Sticky: true, Hold: make(chan struct{})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				fault.Hold = nil
				if name == "no answer" {
					fault.Hold = make(chan struct{})
				}
				m := memory.New()
				m.Add(memory.Fault{Ops: memory.OpPut, Err: remote.ErrUnknownOutcome})
				m.Add(fault)
				start := time.Now()
				_, err := putIf(t.Context(), retrying(m), "ours", remote.Cond{Absent: true})
				if !errors.Is(err, remote.ErrUnknownOutcome) || time.Since(start) > 16*time.Second {
					t.Fatalf("%v after %v", err, time.Since(start))
				}
			})
		})
	}
}

func TestConditionalPutRefused(t *testing.T) {
	t.Parallel()
	conds(t, func(t *testing.T, m *memory.Bucket, b remote.Bucket, cond remote.Cond) {
		t.Helper()
		for _, cause := range []error{remote.ErrDenied, remote.ErrNoBucket, remote.ErrChecksum} {
			puts := len(m.Calls(memory.OpPut, ""))
			m.Add(memory.Fault{Ops: memory.OpPut, Err: cause})
			if _, err := putIf(t.Context(), b, "ours", cond); !errors.Is(err, cause) || len(m.Calls(memory.OpPut, "")) != puts+1 {
				t.Fatal(err)
			}
		}
	})
}

// 16 writers create one object while every second answer is lost: one of them
// knows that it won, the others know that they lost or do not know.
func TestConditionalPutRaceWithLostResponses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := memory.New()
		b := retrying(m)
		m.Add(memory.Fault{Ops: memory.OpPut, Applied: true, Err: remote.ErrUnknownOutcome, Times: 8})
		var wg sync.WaitGroup
		errs := make([]error, 16)
		for w := range errs {
			wg.Go(func() { _, errs[w] = putIf(t.Context(), b, string(rune('a'+w)), remote.Cond{Absent: true}) })
		}
		wg.Wait()
		won := 0
		for w, err := range errs {
			switch {
			case err == nil:
				won++
				wantClaim(t, m, string(rune('a'+w)))
			case !errors.Is(err, remote.ErrPrecondition) && !errors.Is(err, remote.ErrUnknownOutcome):
				t.Fatal(err)
			}
		}
		if won != 1 {
			t.Fatalf("%d writers won", won)
		}
	})
}

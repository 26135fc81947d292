package remote_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/buckettest"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

func TestSelfTestPasses(t *testing.T) {
	t.Parallel()
	m := memory.New()
	for range 2 {
		must(t, remote.SelfTest(t.Context(), m))
		must(t, remote.SelfTest(t.Context(), remote.WithRetry(m, remote.RetryOptions{})))
	}
	if left := m.Keys(""); len(left) > 0 {
		t.Fatalf("left behind: %v", left)
	}
}

// A store that takes conditional writes for plain ones is refused, and the error
// says what it lacks.
func TestReport008SelfTestNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil func(*memory.Bucket)
		want  string
	}{
		"conditions ignored": {(*memory.Bucket).IgnoreConditions, "conditional writes are not obeyed: If-None-Match: * on an object that exists"},
		"If-Match ignored":   {(*memory.Bucket).IgnoreConditions, "If-Match on an object that does not exist"},
		"ranges ignored": {func(m *memory.Bucket) {
			m.Add(memory.Fault{Ops: memory.OpReadAt, Flip: true})
		}, "a range of bytes is not the one that was asked for"},
		"body changed": {func(m *memory.Bucket) {
			m.Add(memory.Fault{Ops: memory.OpGet, Flip: true})
		}, "bytes were written"},
		"not read after write": {func(m *memory.Bucket) {
			m.Add(memory.Fault{Ops: memory.OpGet, Err: remote.ErrNotFound})
		}, "cannot be read right after"},
		"missing object found": {func(m *memory.Bucket) {
			m.Add(memory.Fault{Ops: memory.OpStat, Key: "none", Err: errors.New("200 OK")})
		}, "a missing object is told to be missing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := memory.New()
			c.spoil(m)
			err := remote.SelfTest(t.Context(), m)
			if tiers.KindOf(err) != tiers.InvalidConfig || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error is %v, want one that says %q", err, c.want)
			}
			if left := m.Keys(""); len(left) > 0 {
				t.Fatalf("left behind: %v", left)
			}
		})
	}
}

// without is a bucket whose capabilities are less than those of the one below.
type without struct {
	remote.Bucket
	caps remote.Caps
}

func (w without) Caps() remote.Caps { return w.caps }

func TestSelfTestOfAStoreWithoutConditions(t *testing.T) {
	t.Parallel()
	err := remote.SelfTest(t.Context(), without{memory.New(), remote.Caps{StoresCRC32C: true}})
	if err == nil || !strings.Contains(err.Error(), "conditional writes (If-None-Match, If-Match) are not supported") {
		t.Fatal(err)
	}
	m := memory.New()
	m.ForgetCRC()
	must(t, remote.SelfTest(t.Context(), m))
	err = remote.SelfTest(t.Context(), without{m, remote.Caps{StoresCRC32C: true, ConditionalPut: true}})
	if err == nil || !strings.Contains(err.Error(), "is not kept") {
		t.Fatal(err)
	}
}

// careless lists nothing and does not look at checksums.
type careless struct{ *memory.Bucket }

func (careless) List(context.Context, remote.ListOptions) iter.Seq2[remote.Object, error] {
	return func(func(remote.Object, error) bool) {}
}

func (c careless) Put(ctx context.Context, key string, body remote.Body, o remote.PutOptions) (remote.Object, error) {
	return c.Bucket.Put(ctx, key, struct{ remote.Body }{body}, o)
}

func TestSelfTestOfACarelessStore(t *testing.T) {
	t.Parallel()
	err := remote.SelfTest(t.Context(), careless{memory.New()})
	for _, want := range []string{"not listed right after", "whose checksum is wrong is not refused"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Fatalf("error is %v, want one that says %q", err, want)
		}
	}
}

func TestSelfTestOfAStoreThatIsAway(t *testing.T) {
	t.Parallel()
	for _, cause := range []error{remote.ErrUnavailable, remote.ErrDenied, remote.ErrNoBucket} {
		for _, op := range []memory.Op{memory.OpPut, memory.OpGet, memory.OpReadAt, memory.OpList} {
			m := memory.New()
			m.Add(memory.Fault{Ops: op, Err: cause})
			if err := remote.SelfTest(t.Context(), m); !errors.Is(err, cause) || tiers.KindOf(err) != tiers.RemoteUnavailable {
				t.Fatalf("%v of %v: %v", cause, op, err)
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	m := memory.New()
	reached := make(chan memory.Call, 1)
	m.Add(memory.Fault{Ops: memory.OpList, Hold: make(chan struct{}), Reached: reached})
	go func() { <-reached; cancel() }()
	if err := remote.SelfTest(ctx, m); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if left := m.Keys(""); len(left) > 0 {
		t.Fatalf("left behind: %v", left)
	}
	m.Add(memory.Fault{Ops: memory.OpDelete, Sticky: true})
	if err := remote.SelfTest(t.Context(), m); !errors.Is(err, remote.ErrUnavailable) || !strings.Contains(err.Error(), remote.SelfTestPrefix) {
		t.Fatal(err)
	}
}

func TestMetricsAcceptance(t *testing.T) {
	t.Parallel()
	buckettest.Run(t, func(*testing.T) remote.Bucket { return remote.WithMetrics(memory.New(), nil) })
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	m := newWithK(t)
	b := remote.WithMetrics(m, reg)
	remote.WithMetrics(m, reg) // a second one shares the series
	for _, c := range calls {
		must(t, c.try(t.Context(), b))
	}
	if err := calls["stat"].try(t.Context(), b); !errors.Is(err, remote.ErrNotFound) {
		must(t, err)
	}
	m.Add(memory.Fault{Ops: memory.OpList, Err: remote.ErrThrottled})
	if err := calls["list"].try(t.Context(), b); !errors.Is(err, remote.ErrThrottled) {
		t.Fatal(err)
	}
	got := gathered(t, reg)
	if got["strandline_object_requests_total"] != 8 || got["strandline_object_duration_seconds"] != 8 || got["strandline_object_bytes_total"] < 8 {
		t.Fatalf("%v", got)
	}
}

package bench

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/strandline-io/strandline/gateway"
	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

func rebuildOptions(t *testing.T, b *memory.Bucket) RebuildOptions {
	t.Helper()
	o := RebuildOptions{
		Config: gateway.DefaultConfig(), Bucket: b, Work: t.TempDir(), Segments: 21, Partitions: 4, CompanionBytes: 1000, Known: 50, Log: hclog.NewNullLogger(),
	}
	if err := o.Valid(); err != nil {
		t.Fatal(err)
	}
	return o
}

// Everything that was made comes back, known or not, and is removed in the end.
func TestRebuild(t *testing.T) {
	for known, want := range map[int]int{0: 0, 50: 10, 100: 21} {
		b := memory.New()
		o := rebuildOptions(t, b)
		o.Known = known
		rep, err := Rebuild(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if rep.Known != want || rep.Dry == nil || rep.Real == nil || rep.Dry.Gets < 21 || rep.Real.Gets < 21 || rep.Real.SegmentsPerSecond <= 0 {
			t.Errorf("%+v, %+v, %+v", rep, rep.Dry, rep.Real)
		}
		// What the snapshot does not know is looked at once more.
		if unknown := int64(21 - want); rep.Dry.Stats < unknown || rep.Dry.Stats > unknown+2 {
			t.Errorf("%d HEAD requests for %d known segments", rep.Dry.Stats, want)
		}
		if left := b.Keys(""); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
		if _, err := os.Stat(filepath.Join(o.Work, "rebuilt", gateway.ControlFile)); err != nil {
			t.Errorf("the real rebuild made nothing: %v", err)
		}
		var text strings.Builder
		if n, err := rep.WriteTo(&text); err != nil || int(n) != text.Len() || !strings.Contains(text.String(), "segments/s") {
			t.Errorf("%d, %v: %s", n, err, text.String())
		}
	}
}

// A prefix that holds anything is neither filled nor emptied.
func TestRebuildRefusesAPrefixInUse(t *testing.T) {
	b := memory.New()
	if _, err := b.Put(t.Context(), "precious", remote.BytesBody([]byte("x")), remote.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := Rebuild(t.Context(), rebuildOptions(t, b)); !errors.Is(err, ErrRefused) {
		t.Errorf("%v", err)
	}
	if left := b.Keys(""); len(left) != 1 {
		t.Errorf("%q", left)
	}
}

// An interrupt leaves nothing behind either.
func TestRebuildInterrupted(t *testing.T) {
	for _, f := range []memory.Fault{{Ops: memory.OpPut, Skip: 10}, {Ops: memory.OpRead, Skip: 5}} {
		b := memory.New()
		ctx, cancel := context.WithCancel(t.Context())
		reached := make(chan memory.Call)
		f.Hold, f.Reached = make(chan struct{}), reached
		b.Add(f)
		go func() { <-reached; cancel() }()
		rep, err := Rebuild(ctx, rebuildOptions(t, b))
		if err != nil || !rep.Interrupted || rep.Real != nil {
			t.Errorf("%+v, %v", rep, err)
		}
		if left := b.Keys(""); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
	}
}

func TestRebuildOptionsThatMakeNoSense(t *testing.T) {
	for says, change := range map[string]func(*RebuildOptions){
		"--segments":        func(o *RebuildOptions) { o.Segments = 0 },
		"--partitions":      func(o *RebuildOptions) { o.Partitions = 22 },
		"--companion-bytes": func(o *RebuildOptions) { o.CompanionBytes = 1 << 30 },
		"--known":           func(o *RebuildOptions) { o.Known = 101 },
	} {
		o := rebuildOptions(t, memory.New())
		change(&o)
		if err := o.Valid(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}

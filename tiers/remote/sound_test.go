package remote_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

// TestReadSound: what flips on the way is read again, what is damaged in the bucket
// is told as damage, and what is neither is an error to try again after.
func TestReadSound(t *testing.T) {
	flip := func(at int64, times int) memory.Fault {
		return memory.Fault{Ops: memory.OpRead, Flip: true, FlipAt: at, Times: times}
	}
	for name, c := range map[string]struct {
		faults  []memory.Fault
		stored  string
		damaged bool
		err     error
		reads   int
	}{
		"sound":     {stored: "sound", reads: 1},
		"one flip":  {stored: "sound", faults: []memory.Fault{flip(2, 1)}, reads: 2},
		"two flips": {stored: "sound", faults: []memory.Fault{flip(2, 1), flip(3, 1)}, reads: 3},
		"one cut":   {stored: "sound", faults: []memory.Fault{{Ops: memory.OpRead, Cut: true, CutAfter: 2, Err: remote.ErrChecksum}}, reads: 2},
		"rotten":    {stored: "s0und", damaged: true, reads: 2},
		"missing":   {damaged: true, reads: 1},
		"too large": {stored: "sound and more", damaged: true, reads: 1},
		"never the same": {
			stored: "sound", err: remote.ErrUnavailable, reads: 4,
			faults: []memory.Fault{flip(0, 1), flip(1, 1), flip(2, 1), flip(3, 1)},
		},
		"away": {stored: "sound", faults: []memory.Fault{{Ops: memory.OpRead, Err: remote.ErrThrottled}}, err: remote.ErrThrottled, reads: 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := memory.New()
			if c.stored != "" {
				if _, err := b.Put(t.Context(), "cluster/x", remote.BytesBody([]byte(c.stored)), remote.PutOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			for _, f := range c.faults {
				b.Add(f)
			}
			got := ""
			damage, err := remote.ReadSound(t.Context(), b, "cluster/x", 8, func(raw []byte) error {
				if string(raw) != "sound" {
					return errors.New("it does not decode")
				}
				got = string(raw)
				return nil
			})
			if !errors.Is(err, c.err) || (damage != nil) != c.damaged || (got == "sound") != (c.err == nil && !c.damaged) {
				t.Errorf("%q, damage %v, error %v", got, damage, err)
			}
			if n := len(slices.Collect(slices.Values(b.Calls(memory.OpRead, "cluster/x")))); n != c.reads {
				t.Errorf("%d reads, want %d", n, c.reads)
			}
		})
	}
}

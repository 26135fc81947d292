package local

import (
	"context"
	"testing"

	"github.com/strandline-io/strandline/tiers"
)

// TestReport069LookUpsShareMemory: no more than maxScans look-ups decompress at
// once; the others wait, as long as their callers do.
func TestReport069LookUpsShareMemory(t *testing.T) {
	d := &Disk{scans: make(chan struct{}, maxScans), dir: "/d"}
	var done []func()
	for range maxScans {
		f, err := d.Scan(t.Context())
		must(t, err)
		done = append(done, f)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.Scan(ctx); tiers.KindOf(err) != tiers.TimedOut {
		t.Fatal(err)
	}
	done[0]()
	if _, err := d.Scan(t.Context()); err != nil {
		t.Fatal(err)
	}
}

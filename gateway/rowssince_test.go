package gateway

import (
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/fsys/mem"
)

// TestGoldenRowsSince holds the file to its format page, and to its meaning: it is
// kept through starts and begins anew with a take-over or when it is not understood.
func TestGoldenRowsSince(t *testing.T) {
	files := mem.New()
	if err := files.MkdirAll("/data", 0o755); err != nil {
		t.Fatal(err)
	}
	const path = "/data/" + RowsSinceFile
	first := time.Date(2026, 5, 1, 12, 0, 0, 500, time.UTC)
	var said strings.Builder
	log := hclog.New(&hclog.LoggerOptions{Output: &said})
	at := func(now time.Time, anew bool) time.Time {
		t.Helper()
		since, err := rowsSince(files, "/data", now, anew, log)
		if err != nil {
			t.Fatal(err)
		}
		return since
	}
	want := time.Date(2026, 5, 1, 12, 0, 1, 0, time.UTC)
	if got := at(first, false); !got.Equal(want) || got.Before(first) {
		t.Errorf("first start: %s", got)
	}
	if raw, err := fsys.ReadFile(files, path); err != nil || string(raw) != "0\n2026-05-01T12:00:01Z\nend\n" {
		t.Errorf("%q, %v", raw, err)
	}
	if got := at(first.Add(time.Hour), false); !got.Equal(want) || said.Len() > 0 {
		t.Errorf("second start: %s, %s", got, said.String())
	}
	if got := at(first.Add(2*time.Hour), true); !got.Equal(want.Add(2 * time.Hour)) {
		t.Errorf("take-over: %s", got)
	}
	if got := at(first.Add(3*time.Hour), false); !got.Equal(want.Add(2 * time.Hour)) {
		t.Errorf("after the take-over: %s", got)
	}
	for i, damaged := range []string{"", "0\n2026-05-01T12:00:01Z\n", "1\n2026-05-01T12:00:01Z\nend\n", "0\nyesterday\nend\n", "0\n2026-05-01T12:00:01Z\nend\nmore"} {
		if err := fsys.WriteFileAtomic(files, path, []byte(damaged), 0o600); err != nil {
			t.Fatal(err)
		}
		now := first.Add(time.Duration(4+i) * time.Hour)
		if got := at(now, false); got.Before(now) || !strings.Contains(said.String(), "begins anew") {
			t.Errorf("%q: %s, %s", damaged, got, said.String())
		}
	}
	faulty := fsys.NewFaulty(files)
	faulty.Add(fsys.Fault{Kinds: fsys.OpRead})
	if _, err := rowsSince(faulty, "/data", first, false, log); err == nil {
		t.Error("a file that cannot be read counts as none")
	}
}

func FuzzRowsSince(f *testing.F) {
	for _, seed := range []string{"", "0\n2026-05-01T12:00:01Z\nend\n", "0\n\nend\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if at, err := decodeRowsSince(s); err == nil && !strings.HasPrefix(s, "0\n") {
			t.Errorf("%q is %s", s, at)
		}
	})
}

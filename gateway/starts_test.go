package gateway

import (
	"slices"
	"strings"
	"testing"

	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/fsys/mem"
)

// TestGoldenStarts holds the file to its format page.
func TestGoldenStarts(t *testing.T) {
	files := mem.New()
	if err := files.MkdirAll("/data", 0o755); err != nil {
		t.Fatal(err)
	}
	if starts, err := readStarts(files, "/data"); err != nil || starts != nil {
		t.Fatal(starts, err)
	}
	if err := writeStarts(files, "/data", []string{"a-1", "b-2"}); err != nil {
		t.Fatal(err)
	}
	raw, err := fsys.ReadFile(files, "/data/"+StartsFile)
	if err != nil || string(raw) != "0\na-1\nb-2\nend\n" {
		t.Fatalf("%q, %v", raw, err)
	}
	starts, err := readStarts(files, "/data")
	if err != nil || !slices.Equal(starts, []string{"a-1", "b-2"}) {
		t.Fatal(starts, err)
	}
}

func TestStartsThatAreDamaged(t *testing.T) {
	for _, s := range []string{"", "0", "0\n", "1\na\nend\n", "0\na\n", "0\nend\n", "0\na\nen"} {
		if starts, err := decodeStarts(s); err == nil {
			t.Errorf("%q: %v", s, starts)
		}
	}
}

// TestNextStarts: a start that never got the claim must not be forgotten before
// it is known that it did not.
func TestNextStarts(t *testing.T) {
	for _, c := range []struct {
		known        []string
		holder, want string
	}{
		{nil, "", "new"},
		{[]string{"a"}, "a", "a new"},
		{[]string{"a", "b"}, "b", "b new"},
		{[]string{"a", "b"}, "a", "a new"},
		{[]string{"a"}, "other", "new"}, // taken over
	} {
		if got := strings.Join(nextStarts(c.known, c.holder, "new"), " "); got != c.want {
			t.Errorf("%v, held by %q: %s, want %s", c.known, c.holder, got, c.want)
		}
	}
}

func FuzzStarts(f *testing.F) {
	f.Add("0\na-1\nb-2\nend\n")
	f.Fuzz(func(t *testing.T, s string) {
		starts, err := decodeStarts(s)
		if err != nil {
			return
		}
		if again := "0\n" + strings.Join(starts, "\n") + "\nend\n"; again != s {
			t.Fatalf("%q was read as %q", s, again)
		}
	})
}

package mutants

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// module writes a module with one package, whose tests are of every kind that the
// runner must tell apart.
func module(t *testing.T) *Runner {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module small\n\ngo 1.26\n",
		"p/p.go": `package p

func Add(a, b int) int {
	return a + b
}

func Down(n int) (steps int) {
	for n > 0 {
		n = n - 1
		steps++
	}
	return steps
}
`,
		"p/p_test.go": `package p

import (
	"os"
	"testing"
)

func TestAdd(t *testing.T) {
	if _, err := os.Stat("p_test.go"); err != nil {
		t.Fatal(err)
	}
	if Add(1, 2) != 3 {
		t.Fatal("1 and 2")
	}
}

func TestWeak(t *testing.T) {
	if Add(0, 0) != 0 {
		t.Fatal("0 and 0")
	}
}

func TestDown(t *testing.T) {
	if Down(3) != 3 {
		t.Fatal("3")
	}
}

func TestBroken(t *testing.T) { t.Fatal("always") }

func TestLeftOut(t *testing.T) { t.Skip("not here") }
`,
	} {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return &Runner{Root: dir, Temp: t.TempDir()}
}

func TestRunner(t *testing.T) {
	r := module(t)
	minus := []Hunk{{"p/p.go", []string{"return a + b"}, []string{"return a - b"}}}
	stays := []Hunk{{"p/p.go", []string{"n = n - 1"}, []string{"n = n - 0"}}}
	for _, c := range []struct {
		what string
		m    Mutant
		// Of the outcome, or of the error.
		killed    bool
		how, fail string
	}{
		{what: "killed", m: Mutant{Run: "^TestAdd$", Hunks: minus}, killed: true, how: "--- FAIL: TestAdd"},
		{what: "killed by a panic", m: Mutant{Run: "^TestAdd$", Hunks: []Hunk{{"p/p.go", []string{"return a + b"}, []string{"panic(a)"}}}}, killed: true, how: "panic: 1"},
		{what: "alive", m: Mutant{Run: "^TestWeak$", Hunks: minus}, how: "its tests passed"},
		{what: "hangs", m: Mutant{Run: "^TestDown$", Hunks: stays, Limit: time.Second}, how: "its tests did not end within 1s"},
		{what: "may hang", m: Mutant{Run: "^TestDown$", Hunks: stays, Limit: time.Second, HangKills: true}, killed: true, how: "its tests did not end within 1s"},
		{what: "does not build", m: Mutant{Run: "^TestAdd$", Hunks: []Hunk{{"p/p.go", []string{"return a + b"}, []string{"return"}}}}, fail: "it does not build, so it shows nothing"},
		{what: "does not fit", m: Mutant{Run: "^TestAdd$", Hunks: []Hunk{{"p/p.go", []string{"return a * b"}, nil}}}, fail: "the text is gone"},
		{what: "names no test", m: Mutant{Run: "^TestNone$", Hunks: minus}, fail: "there is no such test"},
		{what: "names a test that fails anyway", m: Mutant{Run: "^TestBroken$", Hunks: minus}, fail: "without a mutant: exit status 1"},
		{what: "names a test that is left out", m: Mutant{Run: "^Test(Add|LeftOut)$", Hunks: minus}, fail: "a test is left out here"},
		{what: "names no package", m: Mutant{Run: "^TestAdd$", Hunks: minus, Package: "./q"}, fail: "go list ./q"},
	} {
		c.m.Name = "m"
		if c.m.Package == "" {
			c.m.Package = "./p"
		}
		if c.m.Limit == 0 {
			c.m.Limit = defaultLimit
		}
		o, err := r.Run(t.Context(), c.m)
		if c.fail != "" {
			if err == nil || !strings.Contains(err.Error(), c.fail) {
				t.Errorf("%s: %+v, error %v, want one with %q", c.what, o, err, c.fail)
			}
			continue
		}
		if err != nil || o.Killed != c.killed || !strings.HasPrefix(o.How, c.how) {
			t.Errorf("%s: %+v, %v, want killed %v by %q", c.what, o, err, c.killed, c.how)
		}
	}
	// What was built for them is gone.
	left, err := filepath.Glob(filepath.Join(r.Temp, "mutant*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// Random tests would kill a mutant on some days only, and leave files behind.
func TestRandomTestsHaveASeed(t *testing.T) {
	r := runner(t)
	for pkg, want := range map[string]int{"./tiers": 2, "./gateway/control/controltest": 2, "./testenv/layers": 0} {
		flags, err := r.rapidFlags(t.Context(), pkg)
		if err != nil || len(flags) != want {
			t.Errorf("%s: %v, %v", pkg, flags, err)
		}
	}
}

func TestRunnerEndsWithItsContext(t *testing.T) {
	r := module(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	m := Mutant{Name: "m", Package: "./p", Run: "^TestAdd$", Limit: defaultLimit, Hunks: []Hunk{{"p/p.go", []string{"return a + b"}, []string{"return a - b"}}}}
	if o, err := r.Run(ctx, m); !errors.Is(err, context.Canceled) {
		t.Errorf("%+v, %v", o, err)
	}
}

package mutants

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// grace is what a test binary gets beyond its own limit to print its stacks.
const grace = 10 * time.Second

// Runner builds and runs the tests of mutants. Its methods may be called at the
// same time.
type Runner struct {
	Root string // of the module
	Temp string // a folder for binaries and patched files

	mu    sync.Mutex
	plain map[string]*plain // by package
}

// plain is the test binary of a package without a mutant.
type plain struct {
	sync.Mutex

	binary string
	flags  []string         // that its test binaries take besides those of testing
	runs   map[string]error // by regular expression: nil if the tests pass
}

// Outcome is what became of a mutant.
type Outcome struct {
	Killed bool
	How    string // the first line that says so, or that it survived
	Output string // of the tests
}

// Run builds the tests of m with it and runs them. An error means that nothing
// is known: m does not fit the code, does not build, or its tests fail anyway.
func (r *Runner) Run(ctx context.Context, m Mutant) (Outcome, error) {
	flags, err := r.passes(ctx, m)
	if err != nil {
		return Outcome{}, err
	}
	dir, err := os.MkdirTemp(r.Temp, "mutant")
	if err != nil {
		return Outcome{}, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // the folder above goes with the test
	overlay, err := r.overlay(dir, m)
	if err != nil {
		return Outcome{}, err
	}
	binary, err := r.build(ctx, dir, m.Package, "-overlay="+overlay)
	if err != nil {
		return Outcome{}, fmt.Errorf("%s: it does not build, so it shows nothing: %w", m.Name, err)
	}
	out, hung, err := r.test(ctx, binary, m, flags)
	if hung {
		return Outcome{Killed: m.HangKills, How: fmt.Sprintf("its tests did not end within %s", m.Limit), Output: out}, nil
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.Exited() {
		return Outcome{Killed: true, How: verdict(out), Output: out}, nil
	}
	if err != nil {
		return Outcome{}, fmt.Errorf("%s: run its tests: %w\n%s", m.Name, err, out)
	}
	return Outcome{How: "its tests passed", Output: out}, nil
}

// passes sees to it, once for each package and regular expression, that there are
// such tests and that they pass without a mutant. It returns the flags to run them
// with.
func (r *Runner) passes(ctx context.Context, m Mutant) ([]string, error) {
	r.mu.Lock()
	if r.plain == nil {
		r.plain = map[string]*plain{}
	}
	p := r.plain[m.Package]
	if p == nil {
		p = &plain{runs: map[string]error{}}
		r.plain[m.Package] = p
	}
	r.mu.Unlock()

	p.Lock()
	defer p.Unlock()
	if err, known := p.runs[m.Run]; known {
		return p.flags, err
	}
	err := r.pass(ctx, p, m)
	if err != nil {
		err = fmt.Errorf("go test -run '%s' %s, without a mutant: %w", m.Run, m.Package, err)
	}
	p.runs[m.Run] = err
	return p.flags, err
}

func (r *Runner) pass(ctx context.Context, p *plain, m Mutant) error {
	if p.binary == "" {
		dir, err := os.MkdirTemp(r.Temp, "plain")
		if err != nil {
			return err
		}
		if p.flags, err = r.rapidFlags(ctx, m.Package); err != nil {
			return err
		}
		if p.binary, err = r.build(ctx, dir, m.Package); err != nil {
			return err
		}
	}
	out, hung, err := r.test(ctx, p.binary, m, p.flags)
	switch {
	case hung:
		return fmt.Errorf("it does not end within %s\n%s", m.Limit, out)
	case err != nil:
		return fmt.Errorf("%w\n%s", err, out)
	case !strings.Contains(out, "\n--- PASS: ") && !strings.HasPrefix(out, "--- PASS: "):
		return fmt.Errorf("there is no such test\n%s", out)
	case strings.Contains(out, "--- SKIP: "):
		return fmt.Errorf("a test is left out here, so it could not notice\n%s", out)
	}
	return nil
}

// overlay writes the files that m changes, and the list that go build reads.
func (r *Runner) overlay(dir string, m Mutant) (string, error) {
	changed, err := m.Apply(r.read)
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for i, file := range files(changed) {
		patched := filepath.Join(dir, fmt.Sprintf("%d-%s", i, filepath.Base(file)))
		if err := os.WriteFile(patched, []byte(changed[file]), 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(r.Root, filepath.FromSlash(file))] = patched
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, list, 0o600)
}

func (r *Runner) read(file string) (string, error) {
	b, err := os.ReadFile(filepath.Join(r.Root, filepath.FromSlash(file)))
	return string(b), err
}

// build makes a test binary without what only a debugger needs: linking is most
// of the time.
func (r *Runner) build(ctx context.Context, dir, pkg string, flags ...string) (string, error) {
	binary := filepath.Join(dir, "tests.exe")
	args := slices.Concat([]string{"test", "-c", "-ldflags=-s -w", "-o", binary}, flags, []string{pkg})
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = r.Root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go test -c %s: %w\n%s", pkg, err, out)
	}
	return binary, nil
}

// rapidFlags keep the random tests of a package from being so, and from writing
// what they find into its folder. Only a binary with rapid in it takes them.
func (r *Runner) rapidFlags(ctx context.Context, pkg string) ([]string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-deps", "-test", pkg)
	cmd.Dir = r.Root
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w\n%s", pkg, err, out)
	}
	if !slices.Contains(strings.Fields(string(out)), "pgregory.net/rapid") {
		return nil, nil
	}
	return []string{"-rapid.seed=1", "-rapid.nofailfile"}, nil
}

// test runs the tests of m in a binary, in the folder of their package. hung says
// that they were ended by their limit.
func (r *Runner) test(ctx context.Context, binary string, m Mutant, flags []string) (out string, hung bool, err error) {
	limited, cancel := context.WithTimeout(ctx, m.Limit+grace)
	defer cancel()
	var b bytes.Buffer
	args := append([]string{"-test.run=" + m.Run, "-test.v", "-test.failfast", "-test.timeout=" + m.Limit.String()}, flags...)
	cmd := exec.CommandContext(limited, binary, args...)
	cmd.Dir = filepath.Join(r.Root, filepath.FromSlash(m.Package))
	cmd.Stdout, cmd.Stderr = &b, &b
	cmd.WaitDelay = time.Second
	err = cmd.Run()
	out = b.String()
	if ctx.Err() != nil {
		return out, false, ctx.Err()
	}
	return out, limited.Err() != nil || strings.Contains(out, "panic: test timed out after "), err
}

// verdict is the line of a failed run that says most.
func verdict(out string) string {
	for _, mark := range []string{"panic: ", "fatal error: ", "--- FAIL: ", "goleak: "} {
		for line := range strings.Lines(out) {
			if strings.HasPrefix(strings.TrimSpace(line), mark) {
				return strings.TrimSpace(line)
			}
		}
	}
	return "its tests failed"
}

package testenv

import (
	"os"
	"os/exec"
	"testing"
)

// Tool returns the path of a program that a test needs. Where it is missing the
// test is left out and says how to get it; in CI that is a failure.
func Tool(t testing.TB, name, install string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	if os.Getenv("CI") != "" {
		t.Fatalf("%s is missing: %s", name, install)
	}
	t.Skipf("%s is missing; to run this test: %s", name, install)
	return ""
}

package s3srv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	module       = "module github.com/strandline-io/strandline\n"
	serverFolder = "testenv/s3srv/server"
	buildCommand = "cd " + serverFolder + " && go tool -n versitygw"
)

// findBinary returns the program to start.
func findBinary(ctx context.Context) (string, error) {
	if bin := os.Getenv(envBinary); bin != "" {
		if _, err := os.Stat(bin); err != nil {
			return "", fmt.Errorf("%s: %w", envBinary, err)
		}
		return filepath.Abs(bin)
	}
	root, err := moduleRoot()
	if err != nil {
		return "", noServer(err)
	}
	cmd := exec.CommandContext(ctx, "go", "tool", "-n", "versitygw")
	cmd.Dir = filepath.Join(root, serverFolder)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", noServer(fmt.Errorf("%w\n%s", err, stderr.String()))
	}
	return strings.TrimSpace(string(out)), nil
}

func noServer(err error) error {
	return fmt.Errorf("no S3 server to test with: run `%s` once (it takes minutes), or set %s to a versitygw, or %s to a server: %w", buildCommand, envBinary, envEndpoint, err)
}

// moduleRoot looks for go.mod from the working folder upwards: that of a test is
// its package's.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		b, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(b), module) {
			return dir, nil
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", err
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("the working folder is not within the module")
		}
		dir = up
	}
}

// Package binary runs the real program as a child process: built once per test
// binary, started on free loopback ports, killed or stopped by pid.
package binary

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// startTimeout bounds how long the program may take to serve, recovery included.
const startTimeout = 60 * time.Second

// Build compiles the program and returns its path. Flags, such as -race, go to
// go build.
func Build(t testing.TB, flags ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "strandline")
	args := append([]string{"build", "-o", out}, flags...)
	cmd := exec.CommandContext(t.Context(), "go", append(args, "github.com/strandline-io/strandline/cmd/strandline")...)
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, b)
	}
	return out
}

// Run runs the program to its end and returns what it printed.
func Run(ctx context.Context, path string, env []string, args ...string) (stdout, stderr string, err error) {
	cmd := exec.CommandContext(ctx, path, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.Env = append(os.Environ(), env...)
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// Options say how to serve.
type Options struct {
	Path string // of the program
	// Config is the YAML of the configuration file, without listen addresses.
	Config string
	Env    []string
	// Kafka and Admin are listen addresses; empty is a free loopback port.
	Kafka, Admin string
}

// Process is a running `strandline serve`.
type Process struct {
	Kafka, Admin string // addresses
	cmd          *exec.Cmd
	done         chan struct{}
	err          error // of Wait, once done is closed
	log          *log
}

// Serve starts the program and returns once it serves. The test's end kills it.
func Serve(t testing.TB, o Options) *Process {
	t.Helper()
	p, err := Start(t, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Start is Serve for a program that may refuse to start: the error has what it
// printed.
func Start(t testing.TB, o Options) (*Process, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "strandline.yaml")
	if err := os.WriteFile(file, []byte(o.Config), 0o600); err != nil {
		return nil, err
	}
	kafka, admin := o.Kafka, o.Admin
	if kafka == "" {
		kafka = "127.0.0.1:0"
	}
	if admin == "" {
		admin = "127.0.0.1:0"
	}
	cmd := exec.Command(o.Path, "serve", "--config", file) //nolint:noctx // ended by pid, so that a test can choose the signal
	cmd.Env = append(os.Environ(), o.Env...)
	cmd.Env = append(cmd.Env, "STRANDLINE_KAFKA_LISTEN="+kafka, "STRANDLINE_ADMIN_LISTEN="+admin)
	dieWithParent(cmd)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p := &Process{cmd: cmd, done: make(chan struct{}), log: &log{}}
	cmd.Stderr = p.log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ready := make(chan string, 1)
	go func() {
		defer close(p.done)
		for sc := bufio.NewScanner(stdout); sc.Scan(); {
			if line, ok := strings.CutPrefix(sc.Text(), "ready "); ok {
				ready <- line
			}
		}
		p.err = cmd.Wait()
	}()
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("log of the program:\n%s", p.Log())
		}
	})
	select {
	case line := <-ready:
		_, err := fmt.Sscanf(line, "kafka=%s admin=%s", &p.Kafka, &p.Admin)
		return p, err
	case <-p.done:
		return nil, fmt.Errorf("strandline serve ended before it served: %w\n%s", p.err, p.Log())
	case <-time.After(startTimeout):
		p.Kill()
		return nil, fmt.Errorf("strandline serve does not serve after %s\n%s", startTimeout, p.Log())
	}
}

// Pid is the process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Kill ends the process with SIGKILL and waits.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// Stop ends the process with SIGTERM and waits. An exit code other than 0 is an
// error.
func (p *Process) Stop(ctx context.Context) error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		p.Kill()
		return fmt.Errorf("strandline serve did not stop: %w\n%s", ctx.Err(), p.Log())
	}
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Log returns what the process printed to its log so far.
func (p *Process) Log() string { return p.log.String() }

type log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

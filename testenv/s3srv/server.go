package s3srv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Environment variables.
const (
	envEndpoint = "STRANDLINE_TEST_S3_ENDPOINT"
	envAccess   = "STRANDLINE_TEST_S3_ACCESS_KEY"
	envSecret   = "STRANDLINE_TEST_S3_SECRET_KEY"
	envRegion   = "STRANDLINE_TEST_S3_REGION"
	envBinary   = "STRANDLINE_TEST_S3_BIN"
	// EnvDriver names the one driver that shared tests should use: s3 or minio.
	EnvDriver = "STRANDLINE_TEST_S3_DRIVER"
)

const (
	readyTime = 10 * time.Second
	stopTime  = 5 * time.Second
	pollEvery = 10 * time.Millisecond
)

// Server is a running S3 server.
type Server struct {
	Endpoint  string
	Region    string
	AccessKey string
	SecretKey string

	// Of a child; zero for a server from the environment.
	binary string
	dir    string
	port   int
	mu     sync.Mutex
	child  *child
}

// shared is the server of the whole test binary. It exists only between the
// start and the end of Main.
var shared struct { //nolint:gochecknoglobals // one process per test binary can only be known to the binary
	mu     sync.Mutex
	inMain bool
	server *Server
}

// Main is for TestMain: it runs the tests, then stops the server that they
// shared.
//
//	func TestMain(m *testing.M) { os.Exit(s3srv.Main(m)) }
func Main(m *testing.M) int {
	shared.mu.Lock()
	shared.inMain = true
	shared.mu.Unlock()
	code := m.Run()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server != nil {
		if err := shared.server.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stop the S3 server:", err)
			code = max(code, 1)
		}
	}
	return code
}

// Start returns the server of this test binary, or one that ends with the test
// where TestMain is not Main.
func Start(tb testing.TB) *Server {
	tb.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if !shared.inMain {
		return StartOwn(tb)
	}
	if shared.server == nil {
		s, err := Launch(context.Background())
		if err != nil {
			tb.Fatal(err)
		}
		shared.server = s
	}
	return shared.server
}

// StartOwn starts a server for this test alone, which may crash it. It is
// always a child: a server from the environment cannot be crashed.
func StartOwn(tb testing.TB) *Server {
	tb.Helper()
	s, err := launchChild(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Stop(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

// Launch finds or starts a server. It is for those that have no test at hand;
// they call Stop.
func Launch(ctx context.Context) (*Server, error) {
	endpoint := os.Getenv(envEndpoint)
	if endpoint == "" {
		return launchChild(ctx)
	}
	s := &Server{
		Endpoint:  endpoint,
		Region:    cmp.Or(os.Getenv(envRegion), "us-east-1"),
		AccessKey: os.Getenv(envAccess),
		SecretKey: os.Getenv(envSecret),
	}
	if s.AccessKey == "" || s.SecretKey == "" {
		return nil, fmt.Errorf("%s is set: set %s and %s too", envEndpoint, envAccess, envSecret)
	}
	return s, nil
}

func launchChild(ctx context.Context) (*Server, error) {
	binary, err := findBinary(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := makeDir()
	if err != nil {
		return nil, err
	}
	s := &Server{Region: "us-east-1", AccessKey: "strandline-test", SecretKey: "strandline-test-secret", binary: binary, dir: dir}
	// A free port may be taken before the child binds it.
	for range 3 {
		if s.port, err = freePort(ctx); err != nil {
			break
		}
		s.Endpoint = fmt.Sprintf("http://127.0.0.1:%d", s.port)
		if err = s.run(ctx); err == nil {
			return s, nil
		}
	}
	return nil, errors.Join(err, os.RemoveAll(dir))
}

func freePort(ctx context.Context) (int, error) {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer func() { _ = ln.Close() }()
	return ln.Addr().(*net.TCPAddr).Port, nil
}

// makeDir makes the server's folder where user xattrs work: beside the test
// binary, which the go command removes by itself, else in the temporary folder.
func makeDir() (string, error) {
	var tried []error
	for _, root := range roots() {
		dir, err := os.MkdirTemp(root, "s3srv-")
		if err == nil {
			if err = checkXattrs(dir); err == nil {
				return filepath.Abs(dir)
			}
			err = errors.Join(err, os.RemoveAll(dir))
		}
		tried = append(tried, fmt.Errorf("%s: %w", root, err))
	}
	return "", fmt.Errorf("no folder for the S3 server's data: it needs user xattrs (ext4, xfs, btrfs, tmpfs); point TMPDIR at one that has them: %w", errors.Join(tried...))
}

func roots() []string {
	var r []string
	if exe, err := os.Executable(); err == nil {
		r = append(r, filepath.Dir(exe))
	}
	return append(r, os.TempDir())
}

// child is one process.
type child struct {
	cmd    *exec.Cmd
	output tail
	exited chan struct{}
	err    error // once exited
}

// run starts a process on the server's folder and port and waits until it
// answers.
func (s *Server) run(ctx context.Context) error {
	c, err := spawn(s.binary, s.port, s.dir, s.AccessKey, s.SecretKey)
	if err != nil {
		return fmt.Errorf("start the S3 server %s: %w", s.binary, err)
	}
	if err := c.waitReady(ctx, s.Endpoint+"/healthz"); err != nil {
		return errors.Join(fmt.Errorf("start the S3 server %s: %w\n%s", s.binary, err, c.output.String()), c.end(os.Kill))
	}
	s.mu.Lock()
	s.child = c
	s.mu.Unlock()
	return nil
}

func spawn(binary string, port int, dir, access, secret string) (*child, error) {
	//nolint:noctx // it outlives the context of whoever asked for it first
	cmd := exec.Command(binary, "--port", fmt.Sprintf("127.0.0.1:%d", port), "--keep-alive", "--quiet", "--health", "/healthz", "posix", dir)
	cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+access, "ROOT_SECRET_KEY="+secret)
	c := &child{cmd: cmd, exited: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &c.output, &c.output
	dieWithParent(cmd)
	started := make(chan error, 1)
	go func() {
		// The child dies when the thread that started it ends: keep it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			c.err = cmd.Wait()
		}
		close(c.exited)
	}()
	return c, <-started
}

func (c *child) waitReady(ctx context.Context, health string) error {
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for {
		if answers(ctx, client, health) {
			return nil
		}
		select {
		case <-c.exited:
			return fmt.Errorf("it ended: %w", c.err)
		case <-ctx.Done():
			return fmt.Errorf("it did not answer on %s within %s", health, readyTime)
		case <-tick.C:
		}
	}
}

func answers(ctx context.Context, client *http.Client, url string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return false
	}
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// end sends a signal and waits; a child that does not heed it is killed.
func (c *child) end(sig os.Signal) error {
	if err := c.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-c.exited:
		return nil
	case <-time.After(stopTime):
	}
	if err := c.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-c.exited
	return nil
}

// Crash kills the child with SIGKILL. Its folder stays.
func (s *Server) Crash() error { return s.endChild(os.Kill) }

// Restart starts the child again, on the same port and folder.
func (s *Server) Restart(ctx context.Context) error { return s.run(ctx) }

// Stop ends the child in good order and removes its folder.
func (s *Server) Stop() error {
	if s.dir == "" {
		return nil
	}
	return errors.Join(s.endChild(syscall.SIGTERM), os.RemoveAll(s.dir))
}

func (s *Server) endChild(sig os.Signal) error {
	s.mu.Lock()
	c := s.child
	s.child = nil
	s.mu.Unlock()
	if c == nil {
		return nil
	}
	return c.end(sig)
}

// tail keeps the end of what a child prints.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

const tailSize = 8 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if over := len(t.buf) - tailSize; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}

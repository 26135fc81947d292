package s3srv

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

func TestStartSharesOneServer(t *testing.T) {
	a, b := Start(t), Start(t)
	if a != b {
		t.Errorf("two servers: %s and %s", a.Endpoint, b.Endpoint)
	}
	x, y := a.Bucket(t), b.Bucket(t)
	if x.Name == y.Name {
		t.Error("two tests got the same bucket")
	}
	if n, err := a.UnfinishedUploads(t.Context(), x.Name); n != 0 || err != nil {
		t.Error(n, err)
	}
}

// TestCrash shows that what was acknowledged is there after SIGKILL, on the same
// address, and that the folder goes with Stop.
func TestCrash(t *testing.T) {
	s := StartOwn(t)
	b := s.Bucket(t)
	client, err := s.client()
	if err != nil {
		t.Fatal(err)
	}
	if _, err = client.PutObject(t.Context(), b.Name, "k", strings.NewReader("v"), 1, minio.PutObjectOptions{}); err != nil {
		t.Fatal(err)
	}
	if err = s.Crash(); err != nil {
		t.Fatal(err)
	}
	if answers(t.Context(), http.DefaultClient, s.Endpoint+"/healthz") {
		t.Fatal("it still answers after SIGKILL")
	}
	if err = s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	o, err := client.GetObject(t.Context(), b.Name, "k", minio.GetObjectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(o); string(got) != "v" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(s.dir); !os.IsNotExist(err) {
		t.Errorf("folder %s: %v", s.dir, err)
	}
}

func TestServerFromEnvironment(t *testing.T) {
	running := Start(t)
	t.Setenv(envEndpoint, running.Endpoint)
	t.Setenv(envAccess, "")
	if _, err := Launch(t.Context()); err == nil || !strings.Contains(err.Error(), envAccess) {
		t.Errorf("without keys: %v", err)
	}
	t.Setenv(envAccess, running.AccessKey)
	t.Setenv(envSecret, running.SecretKey)
	s := launchHere(t)
	var name string
	t.Run("bucket", func(t *testing.T) {
		name = s.Bucket(t).Name
		client, err := s.client()
		if err != nil {
			t.Fatal(err)
		}
		if _, err = client.PutObject(t.Context(), name, "a/b", strings.NewReader("v"), 1, minio.PutObjectOptions{}); err != nil {
			t.Fatal(err)
		}
		core := minio.Core{Client: client}
		if _, err = core.NewMultipartUpload(t.Context(), name, "a/c", minio.PutObjectOptions{}); err != nil {
			t.Fatal(err)
		}
		if n, err := s.UnfinishedUploads(t.Context(), name); n != 1 || err != nil {
			t.Error(n, err)
		}
	})
	client, err := s.client()
	if err != nil {
		t.Fatal(err)
	}
	if exists, err := client.BucketExists(t.Context(), name); exists || err != nil {
		t.Errorf("bucket %s was left on somebody's server: %v", name, err)
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
}

func launchHere(t *testing.T) *Server {
	t.Helper()
	s, err := Launch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestNoServerSaysWhatToDo(t *testing.T) {
	t.Setenv(envBinary, filepath.Join(t.TempDir(), "absent"))
	if _, err := launchChild(t.Context()); err == nil || !strings.Contains(err.Error(), envBinary) {
		t.Errorf("a program that is not there: %v", err)
	}
	t.Setenv(envBinary, "")
	t.Chdir(t.TempDir())
	_, err := launchChild(t.Context())
	if err == nil {
		t.Fatal("a server was found outside of the module")
	}
	for _, word := range []string{buildCommand, envBinary, envEndpoint} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("the error does not name %s: %v", word, err)
		}
	}
}

func TestChildThatFailsShowsItsOutput(t *testing.T) {
	fake := filepath.Join(t.TempDir(), "fake")
	if err := os.WriteFile(fake, []byte("#!/bin/sh\necho no way >&2\nexit 3\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv(envBinary, fake)
	_, err := launchChild(context.Background())
	if err == nil || !strings.Contains(err.Error(), "no way") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("got %v", err)
	}
}

func TestTailKeepsTheEnd(t *testing.T) {
	var out tail
	for range 100 {
		_, _ = out.Write([]byte(strings.Repeat("x", 1000)))
	}
	_, _ = out.Write([]byte("end"))
	if got := out.String(); len(got) != tailSize || !strings.HasSuffix(got, "end") {
		t.Errorf("%d bytes, ending in %q", len(got), got[len(got)-5:])
	}
}

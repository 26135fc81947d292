package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/strandline-io/strandline/cmd/strandline/internal/bench"
	"github.com/strandline-io/strandline/cmd/strandline/internal/doctor"
	"github.com/strandline-io/strandline/gateway"
)

// run runs a command line as main does and returns what it printed.
func run(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := root()
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	err = cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// isUsage reports whether the program would end with 2.
func isUsage(err error) bool {
	_, ok := errors.AsType[usageError](err)
	return ok
}

// parse decodes JSON that knows no other members than v.
func parse(t *testing.T, s string, v any) {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(s))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		t.Fatalf("%v in %s", err, s)
	}
}

func TestBenchCommands(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	at := c.ListenAddrs()[0]
	out, err := run(t, "bench", "produce", "-b", at, "--create", "--partitions", "2", "--replicas", "1", "--records", "300", "--record-size", "1KiB", "--json")
	if err != nil {
		t.Fatal(err)
	}
	var rep bench.Report
	parse(t, out, &rep)
	if rep.Records != 300 || rep.Bytes != 300<<10 || rep.Partitions != 2 || rep.Topic != bench.TopicPrefix || rep.Latency.Count != 300 {
		t.Errorf("%+v", rep)
	}
	if out, err = run(t, "bench", "consume", "-b", at, "--verify", "--json"); err != nil {
		t.Fatal(err)
	}
	rep = bench.Report{}
	parse(t, out, &rep)
	if rep.Records != 300 || rep.Verify.Records != 300 || rep.Verify.Missing != 0 {
		t.Errorf("%+v", rep)
	}
	if out, err = run(t, "bench", "cold", "-b", at, "--cleanup"); err != nil || !strings.Contains(out, "cold "+bench.TopicPrefix) || !strings.Contains(out, "note: without --admin") {
		t.Errorf("%v: %s", err, out)
	}
	if out, err = run(t, "bench", "consume", "-b", at); err == nil || isUsage(err) || out != "" {
		t.Errorf("a topic that is gone: %v, %s", err, out)
	}
}

func TestBenchUsage(t *testing.T) {
	for _, args := range [][]string{
		{"produce", "extra"},
		{"produce", "--records", "-1"},
		{"produce", "--record-size", "1"},
		{"produce", "--record-size", "many"},
		{"produce", "--record-size", "3GiB"},
		{"produce", "--brokers", " , "},
		{"produce", "--topic", ""},
		{"produce", "--acks", "two"},
		{"produce", "--set", "no value"},
		{"consume", "--concurrency", "0"},
		{"consume", "--fetch-bytes", "4GiB"},
		{"cold", "--evict"},
		{"cold", "--bucket", "dir:" + t.TempDir()},
		{"cold", "--range-bytes", "0"},
		{"rebuild", "--segments", "0"},
		{"rebuild", "--bucket", "gopher:x"},
		{"nothing"},
	} {
		if out, err := run(t, append([]string{"bench"}, args...)...); !isUsage(err) || out != "" {
			t.Errorf("%q: %v, %s", args, err, out)
		}
	}
}

func TestBenchRebuildCommand(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	scratch := t.TempDir()
	for _, args := range [][]string{nil, {"--bucket", "dir:" + scratch}} {
		out, err := run(t, append([]string{"bench", "rebuild", "--segments", "12", "--partitions", "3", "--companion-bytes", "1KiB", "--json"}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		var rep bench.RebuildReport
		parse(t, out, &rep)
		if rep.Segments != 12 || rep.Known != 6 || rep.Dry.Seconds <= 0 || rep.Real.Seconds <= 0 {
			t.Errorf("%+v", rep)
		}
	}
	for _, dir := range []string{scratch, os.Getenv("TMPDIR")} {
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("left behind in %s: %v, %v", dir, left, err)
		}
	}
}

func TestOwnPrefix(t *testing.T) {
	for in, want := range map[string]string{
		"":                       "dir:/work/bucket",
		"dir:/x":                 "dir:/x/strandline-bench-",
		"s3://b?region=r":        "s3://b/strandline-bench-",
		"s3://b/p/?driver=minio": "s3://b/p/strandline-bench-",
	} {
		got, err := ownPrefix(in, "/work")
		if err != nil || !strings.HasPrefix(got, want) {
			t.Errorf("%q: %q, %v", in, got, err)
		}
		if _, query, ok := strings.Cut(in, "?"); ok && !strings.HasSuffix(got, "?"+query) {
			t.Errorf("%q has lost its options: %q", in, got)
		}
		if again, _ := ownPrefix(in, "/work"); in != "" && again == got {
			t.Errorf("%q: not a prefix of its own: %q", in, got)
		}
	}
}

func TestDoctorCommand(t *testing.T) {
	root := t.TempDir()
	args := []string{
		"doctor", "--data-dir", filepath.Join(root, "data"), "--bucket", "dir:" + filepath.Join(root, "bucket"),
		"--kafka-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--kafka-max-connections", "100",
	}
	out, err := run(t, append(args, "--json")...)
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var rep doctor.Report
	parse(t, out, &rep)
	if rep.Status == doctor.Failed || len(rep.Checks) < 8 {
		t.Errorf("%+v", rep)
	}
	if out, err = run(t, args...); err != nil || !strings.Contains(out, "disk.sync") {
		t.Errorf("%v: %s", err, out)
	}
	// A failure ends with 1, whatever the form, and what cannot be understood with 2.
	bad := append(args, "--bucket", "dir:relative")
	if out, err = run(t, append(bad, "--json")...); err == nil || isUsage(err) || !strings.Contains(err.Error(), "checks failed") {
		t.Errorf("%v: %s", err, out)
	}
	parse(t, out, &rep)
	if rep.Status != doctor.Failed {
		t.Errorf("%+v", rep)
	}
	if _, err = run(t, append(args, "--node-id", "x")...); !isUsage(err) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	cmd := doctorCommand()
	cmd.SetArgs(args[1:])
	cmd.SetOut(&bytes.Buffer{})
	if err := cmd.ExecuteContext(ctx); err == nil || err.Error() != "interrupted" {
		t.Error(err)
	}
}

// TestServeRefusesAConfiguration with 2, whether the text of it is refused or
// what it names.
func TestServeRefusesAConfiguration(t *testing.T) {
	data, gone := t.TempDir(), "dir:"+filepath.Join(t.TempDir(), "gone")
	if err := os.WriteFile(filepath.Join(data, gateway.StartsFile), []byte("0\na\nend\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for says, args := range map[string][]string{
		"is relative":    {"--data-dir", "data"},
		"mount it":       {"--data-dir", data, "--bucket", gone},
		"two slashes":    {"--data-dir", data, "--bucket", "s3:/logs"},
		"data_dir is no": {},
	} {
		args = append([]string{"serve", "--kafka-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"}, args...)
		if _, err := run(t, args...); !isUsage(err) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: %v", args, err)
		}
	}
}

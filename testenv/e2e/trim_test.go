package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/strandline-io/strandline/testenv"
	"github.com/strandline-io/strandline/testenv/binary"
)

// TestReport025TrimWithTheRealProgram: the command trims, kcat sees the earliest
// offset, and it stays through a stop, a kill and the loss of the disk.
func TestReport025TrimWithTheRealProgram(t *testing.T) {
	testenv.Tool(t, "kcat", "apt-get install kcat")
	path := binary.Build(t)
	dir := t.TempDir()
	data, bucket := filepath.Join(dir, "data"), "dir:"+filepath.Join(dir, "bucket")
	o := binary.Options{Path: path, Config: fmt.Sprintf("data_dir: %q\nbucket: %q\n", data, bucket)}
	p := binary.Serve(t, o)
	createTopic(t, p.Kafka, "trim", 1, tinySegments())
	var in bytes.Buffer
	for i := range 5000 {
		fmt.Fprintf(&in, "value %d, long enough to fill a few segments\n", i)
	}
	kcat(t, in.Bytes(), "-b", p.Kafka, "-P", "-t", "trim", "-p", "0", "-X", "batch.num.messages=50")
	copyEverything(t, p.Admin, "trim", 1)
	ctx, cancel := context.WithTimeout(t.Context(), waitFor)
	defer cancel()
	strandline := func(args ...string) string {
		t.Helper()
		out, errs, err := binary.Run(ctx, path, nil, args...)
		if err != nil {
			t.Fatalf("%v: %v\n%s\n%s", args, err, out, errs)
		}
		return out
	}
	earliest := func(when string, want int) {
		t.Helper()
		if got := strings.TrimSpace(kcat(t, nil, "-b", p.Kafka, "-Q", "-t", "trim:0:-2")); !strings.HasSuffix(got, " "+strconv.Itoa(want)) {
			t.Errorf("%s: kcat says %q, want %d", when, got, want)
		}
		first := kcat(t, nil, "-b", p.Kafka, "-C", "-t", "trim", "-p", "0", "-o", "beginning", "-c", "1", "-e", "-q", "-f", "%o %s")
		if wantFirst := fmt.Sprintf("%d value %d, ", want, want); !strings.HasPrefix(first, wantFirst) {
			t.Errorf("%s: the first record is %q, want %q", when, first, wantFirst)
		}
	}
	if out := strandline("topic", "trim", "trim/0", "--to", "2345", "--admin", p.Admin); !strings.Contains(out, "a dry run, nothing was deleted") {
		t.Error(out)
	}
	earliest("after a dry run", 0)
	strandline("topic", "trim", "trim/0", "--to", "2345", "--yes", "--admin", p.Admin)
	earliest("after the trim", 2345)
	if err := p.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	p = binary.Serve(t, o)
	earliest("after a restart", 2345)
	strandline("topic", "trim", "trim", "--to", "latest", "--before", "2000-01-01", "--admin", p.Admin) // a dry run, too
	strandline("topic", "trim", "trim/0", "--to", "3456", "--yes", "--admin", p.Admin)
	p.Kill()
	p = binary.Serve(t, o)
	earliest("after a kill", 3456)
	strandline("topic", "trim", "trim/0", "--to", "4000", "--yes", "--admin", p.Admin)
	p.Kill()
	if err := os.RemoveAll(data); err != nil {
		t.Fatal(err)
	}
	strandline("rebuild", "--bucket", bucket, "--data", data)
	p = binary.Serve(t, o)
	earliest("after the disk was lost", 4000)
	strandline("segments", "trim/0", "--explain", "--admin", p.Admin)
}

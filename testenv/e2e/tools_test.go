package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/strandline-io/strandline/testenv/binary"
	"github.com/strandline-io/strandline/testenv/s3srv"
)

// measured is what the tests read of a report of `strandline bench`.
type measured struct {
	Records   int64   `json:"records"`
	MiB       float64 `json:"mib_per_s"`
	FirstByte float64 `json:"first_byte_ms"`
	Latency   *struct {
		P50 float64 `json:"p50_ms"`
		P99 float64 `json:"p99_ms"`
	} `json:"latency"`
	Server *struct {
		RSS int64 `json:"rss_bytes"`
	} `json:"server"`
	Verify *struct {
		Records int64 `json:"records"`
		Missing int64 `json:"missing"`
	} `json:"verify"`
	Cold *struct {
		RemoteOnly int64 `json:"remote_only_offsets"`
		Plain      struct {
			MiB       float64 `json:"mib_per_s"`
			FirstByte float64 `json:"first_byte_ms"`
		} `json:"plain"`
		Ratio float64 `json:"ratio_to_plain"`
	} `json:"cold"`
	Rebuild *struct {
		Seconds float64 `json:"seconds"`
	} `json:"rebuild"`
}

// toolbox is a node of the real program on a bucket, and the program's tools.
type toolbox struct {
	testing.TB
	path   string
	env    []string
	bucket string

	options binary.Options
	node    *binary.Process
}

// newToolbox starts a node. The bucket's URL is a folder's, or one of the real
// server for a driver.
func newToolbox(t testing.TB, driver string) *toolbox {
	t.Helper()
	b := &toolbox{TB: t, path: binary.Build(t), bucket: "dir:" + t.TempDir()}
	if driver != "dir" {
		s := s3srv.Start(t).Bucket(t)
		b.bucket = s.URL(driver, "main")
		b.env = []string{"AWS_ACCESS_KEY_ID=" + s.AccessKey, "AWS_SECRET_ACCESS_KEY=" + s.SecretKey}
	}
	b.options = binary.Options{
		Path: b.path, Env: b.env, Config: fmt.Sprintf("data_dir: %q\nbucket: %q\n", filepath.Join(t.TempDir(), "data"), b.bucket),
	}
	b.node = binary.Serve(t, b.options)
	return b
}

// bench runs `strandline bench` against the node, with --json.
func (b *toolbox) bench(args ...string) measured {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), 2*waitFor)
	defer cancel()
	args = append([]string{"bench"}, append(args, "--json")...)
	out, errs, err := binary.Run(ctx, b.path, b.env, args...)
	if err != nil {
		b.Fatalf("strandline %s: %v\n%s%s", strings.Join(args, " "), err, out, errs)
	}
	var m measured
	if err := json.Unmarshal([]byte(out), &m); err != nil {
		b.Fatalf("%v in %s", err, out)
	}
	return m
}

func (b *toolbox) produce(records int, more ...string) measured {
	b.Helper()
	return b.bench(append([]string{"produce", "-b", b.node.Kafka, "--create", "--records", strconv.Itoa(records)}, more...)...)
}

func (b *toolbox) cold(more ...string) measured {
	b.Helper()
	return b.bench(append([]string{"cold", "-b", b.node.Kafka, "--admin", b.node.Admin, "--evict", "--bucket", b.bucket}, more...)...)
}

// TestTools runs each tool of the real program against the real program: what is
// produced is consumed from local disk and from the bucket alone, a rebuild is
// timed in a prefix of its own next to it, and the doctor finds nothing wrong.
func TestTools(t *testing.T) {
	for _, driver := range []string{"dir", "s3", "minio"} {
		t.Run(driver, func(t *testing.T) {
			b := newToolbox(t, driver)
			const records = 20_000
			p := b.produce(records, "--admin", b.node.Admin, "--set", "segment.bytes=1048576", "--idempotent")
			if p.Records != records || p.Latency == nil || p.Server.RSS < 1<<20 {
				t.Errorf("%+v", p)
			}
			c := b.bench("consume", "-b", b.node.Kafka, "--verify")
			if c.Records != records || c.Verify.Records != records || c.Verify.Missing != 0 || c.FirstByte <= 0 {
				t.Errorf("%+v", c)
			}
			cold := b.cold("--verify")
			if cold.Records != records || cold.Verify.Missing != 0 || cold.Cold.RemoteOnly != records || cold.Cold.Ratio <= 0 || cold.Cold.Plain.MiB <= 0 {
				t.Errorf("%+v", cold)
			}
			r := b.bench("rebuild", "--segments", "50", "--companion-bytes", "4KiB", "--bucket", b.bucket)
			if r.Rebuild == nil || r.Rebuild.Seconds <= 0 {
				t.Errorf("%+v", r)
			}
			out, errs, err := binary.Run(t.Context(), b.path, b.env, "doctor", "--data-dir", filepath.Join(t.TempDir(), "new"), "--bucket", b.bucket,
				"--kafka-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--kafka-max-connections", "100")
			if err == nil || !strings.Contains(out, "strandline rebuild") || !strings.Contains(errs, "1 of") {
				t.Errorf("a new data directory on a bucket in use: %v\n%s%s", err, out, errs)
			}
		})
	}
}

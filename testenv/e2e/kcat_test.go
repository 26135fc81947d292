package e2e

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline-io/strandline/testenv"
	"github.com/strandline-io/strandline/testenv/binary"
	"github.com/strandline-io/strandline/testenv/s3srv"
)

// codecs are kcat's names of the codecs and the numbers that batches carry.
func codecs() map[string]uint8 {
	return map[string]uint8{"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
}

// kcat runs kcat and returns what it printed.
func kcat(t *testing.T, stdin []byte, args ...string) string {
	t.Helper()
	path := testenv.Tool(t, "kcat", "apt-get install kcat")
	ctx, cancel := context.WithTimeout(t.Context(), waitFor)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdin = bytes.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("kcat %s: %v\n%s", strings.Join(args, " "), err, errs.String())
	}
	return out.String()
}

// TestKcat: librdkafka with every codec against the real program on a real S3
// server, with both drivers. The batches are stored in the codec that was asked
// for (trap T1), and all of them are the same after the disk was lost.
func TestKcat(t *testing.T) {
	testenv.Tool(t, "kcat", "apt-get install kcat")
	path := binary.Build(t)
	for _, driver := range []string{"s3", "minio"} {
		t.Run(driver, func(t *testing.T) {
			b := s3srv.Start(t).Bucket(t)
			kcatRoundTrip(t, path, b.URL(driver, ""), []string{"AWS_ACCESS_KEY_ID=" + b.AccessKey, "AWS_SECRET_ACCESS_KEY=" + b.SecretKey})
		})
	}
}

func kcatRoundTrip(t *testing.T, path, bucket string, env []string) {
	t.Helper()
	const partitions, each = 4, 10_000 // with 5 codecs: 200,000 records
	data := filepath.Join(t.TempDir(), "data")
	o := binary.Options{Path: path, Env: env, Config: fmt.Sprintf("data_dir: %q\nbucket: %q\n", data, bucket)}
	p := binary.Serve(t, o)
	createTopic(t, p.Kafka, "kcat", partitions, tinySegments())
	names := slices.Sorted(maps.Keys(codecs()))
	want := make(map[int32][]string)
	for part := range partitions {
		for _, codec := range names {
			var in bytes.Buffer
			for i := range each {
				line := fmt.Sprintf("k%d:value %d of partition %d in %s, long enough to be worth compressing", i, i, part, codec)
				fmt.Fprintln(&in, line)
				want[int32(part)] = append(want[int32(part)], codec+" "+line)
			}
			kcat(t, in.Bytes(), "-b", p.Kafka, "-P", "-t", "kcat", "-p", strconv.Itoa(part), "-K:", "-z", codec, "-H", "codec="+codec)
		}
	}
	before := kcatAll(t, p.Kafka)
	copyEverything(t, p.Admin, "kcat", partitions)
	ctx, cancel := context.WithTimeout(t.Context(), waitFor)
	defer cancel()
	if err := p.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(data); err != nil {
		t.Fatal(err)
	}
	if out, errs, err := binary.Run(ctx, path, env, "rebuild", "--bucket", bucket, "--data", data); err != nil {
		t.Fatalf("rebuild: %v\n%s\n%s", err, out, errs)
	}
	p = binary.Serve(t, o)
	if after := kcatAll(t, p.Kafka); after != before {
		t.Errorf("kcat prints something else after the rebuild: %d bytes instead of %d", len(after), len(before))
	}
	sameCodecs(t, p.Kafka, want)
	kcatQueries(t, p.Kafka, int64(each*len(names)))
}

// kcatAll prints the whole topic, partition by partition.
func kcatAll(t *testing.T, addr string) string {
	t.Helper()
	var out strings.Builder
	for part := range 4 {
		out.WriteString(kcat(t, nil, "-b", addr, "-C", "-t", "kcat", "-p", strconv.Itoa(part), "-o", "beginning", "-e", "-q", "-f", `%p/%o %T %k %s %h\n`))
	}
	return out.String()
}

// sameCodecs reads the topic with franz-go, which tells the codec of each batch.
func sameCodecs(t *testing.T, addr string, want map[int32][]string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitFor)
	defer cancel()
	total := 0
	for _, lines := range want {
		total += len(lines)
	}
	cl := client(t, addr, kgo.ConsumeTopics("kcat"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	next, stored := make(map[int32]int64), make(map[string]int)
	for n := 0; n < total; {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			t.Fatalf("after %d of %d records: %v", n, total, err)
		}
		fs.EachRecord(func(r *kgo.Record) {
			n++
			at := next[r.Partition]
			next[r.Partition]++
			codec, line, _ := strings.Cut(want[r.Partition][at], " ")
			if r.Offset != at || string(r.Key)+":"+string(r.Value) != line {
				t.Fatalf("partition %d: offset %d holds %s:%s, want offset %d with %s", r.Partition, r.Offset, r.Key, r.Value, at, line)
			}
			switch r.Attrs.CompressionType() {
			case codecs()[codec]:
				stored[codec]++
			case 0: // librdkafka sends a batch of one or two records as it is, if a codec makes it larger
			default:
				t.Fatalf("partition %d, offset %d: codec %d, want %s", r.Partition, r.Offset, r.Attrs.CompressionType(), codec)
			}
			if len(r.Headers) != 1 || r.Headers[0].Key != "codec" || string(r.Headers[0].Value) != codec {
				t.Fatalf("partition %d, offset %d: headers %v", r.Partition, r.Offset, r.Headers)
			}
		})
	}
	for codec := range codecs() {
		if share := total / len(codecs()); stored[codec] < share*9/10 {
			t.Errorf("%d of %d records are stored in %s", stored[codec], share, codec)
		}
	}
}

// kcatQueries asks for offsets, the tail and the metadata.
func kcatQueries(t *testing.T, addr string, end int64) {
	t.Helper()
	out := kcat(t, nil, "-b", addr, "-Q", "-t", "kcat:0:-2", "-t", "kcat:1:-1")
	if !strings.Contains(out, "kcat [0] offset 0") || !strings.Contains(out, fmt.Sprintf("kcat [1] offset %d", end)) {
		t.Errorf("kcat -Q: %s", out)
	}
	if out := kcat(t, nil, "-b", addr, "-C", "-t", "kcat", "-p", "2", "-o", "-5", "-e", "-q", "-f", `%o\n`); strings.Count(out, "\n") != 5 {
		t.Errorf("kcat -o -5: %q", out)
	}
	if out := kcat(t, nil, "-b", addr, "-L"); !strings.Contains(out, `topic "kcat" with 4 partitions`) {
		t.Errorf("kcat -L: %s", out)
	}
}

package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/strandline-io/strandline/testenv/binary"
	"github.com/strandline-io/strandline/testenv/s3srv"
)

// tinySegments make a topic that rolls and copies all the time.
func tinySegments() map[string]string {
	return map[string]string{"segment.bytes": "65536", "index.interval.bytes": "1024"}
}

// post calls the admin interface, and waits for what it asks.
func post(t testing.TB, admin, path string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitFor)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+admin+path, strings.NewReader(`{"wait":true}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, _ := io.ReadAll(res.Body)
	if res.StatusCode/100 != 2 {
		t.Fatalf("POST %s: %s: %s", path, res.Status, body)
	}
}

// copyEverything closes the active segments and waits until all are copied.
func copyEverything(t testing.TB, admin, topic string, partitions int) {
	t.Helper()
	for p := range partitions {
		post(t, admin, fmt.Sprintf("/v1/topics/%s/partitions/%d/roll", topic, p))
		post(t, admin, fmt.Sprintf("/v1/topics/%s/partitions/%d/copy", topic, p))
	}
}

// TestLostDisk: 200,000 records over four partitions of tiny segments, the data
// directory wiped, a rebuild from the bucket alone: the same offsets, keys,
// values, headers and timestamps in the same order, with either driver.
func TestLostDisk(t *testing.T) {
	path := binary.Build(t)
	for _, driver := range []string{"s3", "minio"} {
		t.Run(driver, func(t *testing.T) {
			b := s3srv.Start(t).Bucket(t)
			lostDisk(t, path, b.URL(driver, "main"), []string{"AWS_ACCESS_KEY_ID=" + b.AccessKey, "AWS_SECRET_ACCESS_KEY=" + b.SecretKey}, 200_000)
		})
	}
	t.Run("dir", func(t *testing.T) {
		lostDisk(t, path, "dir:"+t.TempDir(), nil, 20_000)
	})
}

func lostDisk(t *testing.T, path, bucket string, env []string, n int) {
	t.Helper()
	const partitions = 4
	data := filepath.Join(t.TempDir(), "data")
	o := binary.Options{Path: path, Env: env, Config: fmt.Sprintf("data_dir: %q\nbucket: %q\n", data, bucket)}
	p := binary.Serve(t, o)
	createTopic(t, p.Kafka, "events", partitions, tinySegments())
	acked := produce(t, p.Kafka, partitions, n)
	if acked.len() != n {
		t.Fatalf("%d records were acknowledged", acked.len())
	}
	adm := kadm.NewClient(client(t, p.Kafka))
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: "events", Partition: 2, At: 1234, LeaderEpoch: -1, Metadata: "mark"})
	if err := adm.CommitAllOffsets(t.Context(), "billing", offsets); err != nil {
		t.Fatal(err)
	}
	before, err := adm.ListTopics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	copyEverything(t, p.Admin, "events", partitions)
	ctx, cancel := context.WithTimeout(t.Context(), waitFor)
	defer cancel()
	if err := p.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(data); err != nil {
		t.Fatal(err)
	}

	// Serving on an empty directory must not hide that there is a cluster.
	if _, err := binary.Start(t, o); err == nil || !strings.Contains(err.Error(), "rebuild") {
		t.Fatalf("an empty data directory was served although the bucket holds a cluster: %v", err)
	}
	if err := os.RemoveAll(data); err != nil {
		t.Fatal(err)
	}
	out, errs, err := binary.Run(ctx, path, env, "rebuild", "--bucket", bucket, "--data", data, "--dry-run")
	if err != nil || !strings.Contains(out, "events") {
		t.Fatalf("dry run: %v\n%s\n%s", err, out, errs)
	}
	if _, err := os.Stat(data); err == nil {
		t.Fatal("a dry run made the data directory")
	}
	out, errs, err = binary.Run(ctx, path, env, "rebuild", "--bucket", bucket, "--data", data)
	if err != nil {
		t.Fatalf("rebuild: %v\n%s\n%s", err, out, errs)
	}

	p = binary.Serve(t, o)
	same(t, consume(t, p.Kafka, "events", n), acked)
	adm = kadm.NewClient(client(t, p.Kafka))
	after, err := adm.ListTopics(t.Context())
	if err != nil || after["events"].ID != before["events"].ID {
		t.Errorf("topic id %v instead of %v (%v)", after["events"].ID, before["events"].ID, err)
	}
	fetched, err := adm.FetchOffsets(t.Context(), "billing")
	if got, ok := fetched.Lookup("events", 2); err != nil || !ok || got.At != 1234 || got.Metadata != "mark" {
		t.Errorf("committed offset %+v, %v", got, err)
	}
	starts, err := adm.ListStartOffsets(t.Context(), "events")
	if err != nil {
		t.Fatal(err)
	}
	starts.Each(func(o kadm.ListedOffset) {
		if o.Offset != 0 || o.Err != nil {
			t.Errorf("earliest of partition %d is %d, %v", o.Partition, o.Offset, o.Err)
		}
	})
	byTime(t, adm, acked)
	// The log goes on where it ended, in a new epoch.
	again := produce(t, p.Kafka, partitions, 40)
	for part, rs := range again.part {
		if want := acked.part[part][len(acked.part[part])-1].offset + 1; rs[0].offset != want {
			t.Errorf("partition %d goes on at %d instead of %d", part, rs[0].offset, want)
		}
	}
}

// byTime looks offsets up by time in the remote tier.
func byTime(t *testing.T, adm *kadm.Client, acked *books) {
	t.Helper()
	for part, rs := range acked.part {
		at := rs[len(rs)/3].timestamp
		want := int64(-1)
		for _, r := range rs {
			if r.timestamp >= at {
				want = r.offset
				break
			}
		}
		got, err := adm.ListOffsetsAfterMilli(t.Context(), at, "events")
		if err != nil {
			t.Fatal(err)
		}
		if o, ok := got.Lookup("events", part); !ok || o.Err != nil || o.Offset != want {
			t.Errorf("partition %d at %s: offset %d (%v) instead of %d", part, time.UnixMilli(at), o.Offset, o.Err, want)
		}
	}
}

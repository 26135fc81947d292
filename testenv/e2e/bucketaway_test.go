package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/strandline-io/strandline/testenv/binary"
)

// TestNoControlPlane: control.db is gone while folders of partitions are there. A
// start would begin an empty cluster over them.
func TestNoControlPlane(t *testing.T) {
	path := binary.Build(t)
	for _, bucket := range []string{"", "dir:" + t.TempDir()} {
		data := filepath.Join(t.TempDir(), "data")
		o := binary.Options{Path: path, Config: fmt.Sprintf("data_dir: %q\nbucket: %q\n", data, bucket)}
		p := binary.Serve(t, o)
		createTopic(t, p.Kafka, "events", 1, nil)
		produce(t, p.Kafka, 1, 50)
		p.Kill()
		matches, err := filepath.Glob(data + "/control.db*")
		if err != nil || len(matches) == 0 {
			t.Fatal(matches, err)
		}
		for _, m := range matches {
			if err := os.Remove(m); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := binary.Start(t, o); err == nil || !strings.Contains(err.Error(), "control.db") {
			t.Errorf("bucket %q: %v", bucket, err)
		}
	}
}

// TestBucketFolderAway: the folder of the bucket is away for longer than the claim
// is re-read. That is no loss of the claim.
func TestBucketFolderAway(t *testing.T) {
	root := filepath.Join(t.TempDir(), "bucket")
	o := binary.Options{
		Path:   binary.Build(t),
		Config: fmt.Sprintf("data_dir: %q\nbucket: %q\n", filepath.Join(t.TempDir(), "data"), "dir:"+root),
	}
	p := binary.Serve(t, o)
	createTopic(t, p.Kafka, "events", 1, tinySegments())
	if err := os.Rename(root, root+".away"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-time.After(12 * time.Second): // the claim is read every 10 s
	case <-p.Done():
		t.Fatal("the node ended")
	}
	acked := produce(t, p.Kafka, 1, 5000)
	if err := os.Rename(root+".away", root); err != nil {
		t.Fatal(err)
	}
	copyEverything(t, p.Admin, "events", 1)
	same(t, consume(t, p.Kafka, "events", 5000), acked)
	res, err := http.Get("http://" + p.Admin + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Fatal(res.Status)
	}
}

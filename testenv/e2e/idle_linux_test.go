package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline-io/strandline/testenv/binary"
)

// What 10,000 idle partitions may cost.
const (
	idlePartitions = 10_000
	idleMemory     = 2 << 30
	idleFiles      = 8000
)

// TestIdlePartitions holds the real program with many partitions, each with a
// record, against what 10,000 of them may cost: while they are made and written
// to, after a clean restart, and after kill -9. The default is a tenth of them,
// and of the memory beyond an empty node's; STRANDLINE_SOAK=1 runs all.
func TestIdlePartitions(t *testing.T) {
	n := idlePartitions / 10
	if os.Getenv("STRANDLINE_SOAK") != "" {
		n = idlePartitions
	}
	o := binary.Options{
		Path: binary.Build(t), Kafka: freePort(t),
		Config: fmt.Sprintf("data_dir: %q\nbucket: %q\nlog: {level: warn}\n", filepath.Join(t.TempDir(), "data"), "dir:"+t.TempDir()),
	}
	p := binary.Serve(t, o)
	empty := processOf(t, p.Pid())
	check := func(when string, p *binary.Process) {
		t.Helper()
		now := processOf(t, p.Pid())
		t.Logf("%s: %d MiB resident, %d at most, %d files", when, now.rss>>20, now.peak>>20, now.files)
		share := int64(idlePartitions / n)
		if grown, may := now.peak-empty.rss, (idleMemory-empty.rss)/share; grown > may {
			t.Errorf("%s: %d partitions take %d MiB, more than %d", when, n, grown>>20, may>>20)
		}
		if may := min(idleFiles-1, empty.files+n+20); now.files > may { // one file each, and some connections
			t.Errorf("%s: %d files are open, more than %d", when, now.files, may)
		}
	}
	began := time.Now()
	admin := kadm.NewClient(client(t, p.Kafka))
	const perTopic = 1000
	for i := range n / perTopic {
		if _, err := admin.CreateTopic(t.Context(), perTopic, 1, nil, fmt.Sprint("idle-", i)); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("made in %s", time.Since(began))
	began = time.Now()
	oneEach(t, p.Kafka, n/perTopic, perTopic)
	t.Logf("a record in each: %s", time.Since(began))
	check("written to", p)
	for _, how := range []struct {
		name string
		end  func()
	}{
		{"stopped", func() {
			if err := p.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
		}},
		{"killed", func() { p.Kill() }},
	} {
		how.end()
		began = time.Now()
		p = binary.Serve(t, o)
		serving := time.Since(began)
		allThere(t, p.Kafka, n/perTopic, perTopic)
		t.Logf("%s and started: serving after %s, every partition after %s", how.name, serving, time.Since(began))
		check(how.name, p)
	}
}

// oneEach writes a record to every partition.
func oneEach(t *testing.T, addr string, topics, perTopic int) {
	t.Helper()
	cl := client(t, addr, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MaxBufferedRecords(topics*perTopic))
	for i := range topics {
		for part := range perTopic {
			cl.Produce(t.Context(), &kgo.Record{Topic: fmt.Sprint("idle-", i), Partition: int32(part), Value: []byte("x")}, func(_ *kgo.Record, err error) {
				if err != nil {
					t.Error(err)
				}
			})
		}
	}
	if err := cl.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	cl.Close()
}

// allThere waits until every partition is open and tells its one record.
func allThere(t *testing.T, addr string, topics, perTopic int) {
	t.Helper()
	admin := kadm.NewClient(client(t, addr))
	for i := range topics {
		topic := fmt.Sprint("idle-", i)
		for deadline := time.Now().Add(waitFor); ; {
			ends, err := admin.ListEndOffsets(t.Context(), topic)
			missing := perTopic
			ends.Each(func(o kadm.ListedOffset) {
				if o.Err == nil && o.Offset == 1 {
					missing--
				}
			})
			if err == nil && missing == 0 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: %d partitions are not there: %v", topic, missing, err)
			}
		}
	}
}

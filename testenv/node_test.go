package testenv_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline-io/strandline/testenv"
	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/fsys/mem"
	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

func kafka(t *testing.T, n *testenv.Node, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(n.KafkaAddr())}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// write produces n values of about 100 bytes one after the other, from a number
// on, each acknowledged.
func write(t *testing.T, n *testenv.Node, from, count int) {
	t.Helper()
	ctx, cancel := n.Context()
	defer cancel()
	cl := kafka(t, n, kgo.DefaultProduceTopic("log"))
	for i := from; i < from+count; i++ {
		if err := cl.ProduceSync(ctx, &kgo.Record{Value: fmt.Appendf(nil, "%090d", i)}).FirstErr(); err != nil {
			t.Fatalf("record %d: %v", i, err)
		}
	}
	cl.Close()
}

// expect consumes from the start and wants exactly the values 0 to count.
func expect(t *testing.T, n *testenv.Node, count int) {
	t.Helper()
	between(t, n, 0, count)
}

// between consumes from the start and wants exactly the values from to count.
func between(t *testing.T, n *testenv.Node, from, count int) {
	t.Helper()
	ctx, cancel := n.Context()
	defer cancel()
	cl := kafka(t, n, kgo.ConsumeTopics("log"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	for i := from; i < count; {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			t.Fatalf("after %d of %d records: %v", i, count, err)
		}
		fs.EachRecord(func(r *kgo.Record) {
			if want := fmt.Sprintf("%090d", i); string(r.Value) != want || r.Offset != int64(i) {
				t.Fatalf("offset %d holds %s, want offset %d", r.Offset, r.Value, i)
			}
			i++
		})
	}
	cl.Close()
}

func settings() map[string]string { return map[string]string{"segment.bytes": "2048"} }

// TestPowerCuts: whatever was acknowledged in fsync mode is there after a power
// loss, and after another one during the life that followed.
func TestPowerCuts(t *testing.T) {
	n := testenv.Start(t)
	n.CreateTopic("log", 1, settings())
	total := 0
	for seed := range uint64(6) {
		write(t, n, total, 30)
		total += 30
		n = n.Reopen(seed)
		expect(t, n, total)
	}
}

// TestRebuildOfANode: everything that was copied comes back on an empty disk.
func TestRebuildOfANode(t *testing.T) {
	n := testenv.Start(t)
	n.CreateTopic("log", 1, settings())
	write(t, n, 0, 100)
	ctx, cancel := n.Context()
	defer cancel()
	if err := n.Admin().Roll(ctx, "log", 0); err != nil {
		t.Fatal(err)
	}
	if err := n.Admin().Copy(ctx, "log", 0, true); err != nil {
		t.Fatal(err)
	}
	n = n.Rebuild()
	expect(t, n, 100)
	write(t, n, 100, 20)
	expect(t, n, 120)
	n = n.Reopen(1)
	expect(t, n, 120)
}

// TestBucketDown: while the bucket does not answer, producing and consuming go
// on; afterwards everything is copied.
func TestBucketDown(t *testing.T) {
	n := testenv.Start(t)
	n.CreateTopic("log", 1, settings())
	n.Bucket.Add(memory.Fault{Key: "topics/", Sticky: true, Err: remote.ErrUnavailable})
	write(t, n, 0, 100)
	expect(t, n, 100)
	n.Bucket.Clear()
	ctx, cancel := n.Context()
	defer cancel()
	if err := n.Admin().Copy(ctx, "log", 0, true); err != nil {
		t.Fatal(err)
	}
	if n.Bucket.Keys("topics/") == nil {
		t.Fatal("nothing was copied")
	}
	n = n.Rebuild()
	expect(t, n, int(rebuiltEnd(t, n)))
}

// TestRebuildWithAGap: objects of a segment in the middle are gone. The longer part
// of the log comes back, serves, and goes on.
func TestRebuildWithAGap(t *testing.T) {
	for _, missing := range []int{1, 4} { // of six segments: the tail is longer, the head is longer
		n := testenv.Start(t)
		n.CreateTopic("log", 1, settings())
		write(t, n, 0, 140)
		ctx, cancel := n.Context()
		defer cancel()
		if err := errors.Join(n.Admin().Roll(ctx, "log", 0), n.Admin().Copy(ctx, "log", 0, true)); err != nil {
			t.Fatal(err)
		}
		keys := n.Bucket.Keys("topics/")
		if len(keys) != 12 {
			t.Fatal(len(keys), "objects, want two for each of six segments")
		}
		if err := n.Bucket.Delete(ctx, keys[2*missing], keys[2*missing+1]); err != nil {
			t.Fatal(err)
		}
		n = n.Rebuild()
		d, err := n.Admin().Topic(ctx, "log")
		if err != nil || d.Detail[0].State != "online" {
			t.Fatalf("%+v, %v", d, err)
		}
		from, end := d.Detail[0].LogStart, d.Detail[0].LogEnd
		if (from == 0) == (missing == 1) || end-from < 80 {
			t.Fatalf("[%d,%d) came back", from, end)
		}
		write(t, n, int(end), 10)
		between(t, n, int(from), int(end)+10)
	}
}

// TestOldDirectoryAfterARebuild: the machine that was replaced comes back. Its
// data directory must not take the bucket over: copied records of the rebuilt
// log would be replaced by its own.
func TestOldDirectoryAfterARebuild(t *testing.T) {
	old := testenv.Start(t)
	old.CreateTopic("log", 1, settings())
	write(t, old, 0, 60)
	// What is to come back must be in the bucket.
	ctx, cancel := old.Context()
	defer cancel()
	if err := old.Admin().Copy(ctx, "log", 0, true); err != nil {
		t.Fatal(err)
	}
	disk := old.FS
	fresh := old.Rebuild()
	end := int(rebuiltEnd(t, fresh))
	write(t, fresh, end, 20)
	fresh.Shutdown()
	if _, err := testenv.Open(t, fresh.Config, disk.KillCopy(), fresh.Bucket); err == nil || !strings.Contains(err.Error(), "rebuild") {
		t.Fatalf("the old directory was served: %v", err)
	}
	again, err := testenv.Open(t, fresh.Config, fresh.FS, fresh.Bucket)
	if err != nil {
		t.Fatal("the rebuilt directory:", err)
	}
	expect(t, again, end+20)
}

// TestClonedDirectory: a copy of a data directory is started, then the original
// again.
func TestClonedDirectory(t *testing.T) {
	original := testenv.Start(t)
	original.CreateTopic("log", 1, settings())
	write(t, original, 0, 30)
	original.Shutdown()
	disk := original.FS.KillCopy()
	clone, err := testenv.Open(t, original.Config, original.FS.KillCopy(), original.Bucket)
	if err != nil {
		t.Fatal(err)
	}
	write(t, clone, 30, 30)
	clone.Shutdown()
	if _, err := testenv.Open(t, original.Config, disk, original.Bucket); err == nil || !strings.Contains(err.Error(), "take-over") {
		t.Fatalf("two directories use one bucket in turn: %v", err)
	}
}

// TestLocalFilesRemoved: a copied segment in the middle, or all of them, vanish from
// the disk or are emptied while the node is down. The bucket has them: nothing is
// skipped.
func TestLocalFilesRemoved(t *testing.T) {
	for name, damage := range map[string]func(fs *mem.FS, logs []string) error{
		"middle removed":  func(fs *mem.FS, logs []string) error { return fs.Remove(logs[2]) },
		"first removed":   func(fs *mem.FS, logs []string) error { return fs.Remove(logs[0]) },
		"middle emptied":  func(fs *mem.FS, logs []string) error { return fsys.WriteFileAtomic(fs, logs[1], nil, 0o600) },
		"one for another": func(fs *mem.FS, logs []string) error { return fs.Rename(logs[1], logs[2]) },
		"a byte flipped": func(fs *mem.FS, logs []string) error {
			b, err := fsys.ReadFile(fs, logs[1])
			if err != nil {
				return err
			}
			b[len(b)-3] ^= 4
			return fsys.WriteFileAtomic(fs, logs[1], b, 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := testenv.Start(t)
			n.CreateTopic("log", 1, settings())
			write(t, n, 0, 140)
			ctx, cancel := n.Context()
			defer cancel()
			if err := errors.Join(n.Admin().Roll(ctx, "log", 0), n.Admin().Copy(ctx, "log", 0, true)); err != nil {
				t.Fatal(err)
			}
			write(t, n, 140, 5)
			n.Shutdown()
			logs := logFiles(t, n.FS)
			if len(logs) < 6 {
				t.Fatal(logs)
			}
			if err := damage(n.FS, logs); err != nil {
				t.Fatal(err)
			}
			again, err := testenv.Open(t, n.Config, n.FS, n.Bucket)
			if err != nil {
				t.Fatal(err)
			}
			expect(t, again, 145)
			write(t, again, 145, 5)
			expect(t, again, 150)
		})
	}
}

// logFiles are the .log files of the only partition, in order.
func logFiles(t *testing.T, files *mem.FS) (logs []string) {
	t.Helper()
	parts, err := files.ReadDir(testenv.DataDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range parts {
		if !p.IsDir() {
			continue
		}
		dir := testenv.DataDir + "/" + p.Name() + "/h1"
		segments, err := files.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range segments {
			if strings.HasSuffix(s.Name(), ".log") {
				logs = append(logs, dir+"/"+s.Name())
			}
		}
	}
	return logs
}

func rebuiltEnd(t *testing.T, n *testenv.Node) int64 {
	t.Helper()
	ctx, cancel := n.Context()
	defer cancel()
	d, err := n.Admin().Topic(ctx, "log")
	if err != nil {
		t.Fatal(err)
	}
	if d.Detail[0].LogEnd == 0 {
		t.Fatal("nothing came back")
	}
	return d.Detail[0].LogEnd
}

// TestCrashAtEachPointOfACopy: the power goes at each border of a copy. Nothing
// is lost, and after the restart the segment is in the bucket once, with no
// object that nothing names.
func TestCrashAtEachPointOfACopy(t *testing.T) {
	for _, point := range []string{"copy.planned", "copy.started", "copy.uploaded", "copy.finished"} {
		t.Run(point, func(t *testing.T) {
			n := testenv.Start(t)
			n.CreateTopic("log", 1, settings())
			gate := n.Scheduler.Hold(point, "log")
			write(t, n, 0, 60)
			gate.Wait(t)
			n = n.Reopen(7)
			expect(t, n, 60)
			ctx, cancel := n.Context()
			defer cancel()
			if err := n.Admin().Copy(ctx, "log", 0, true); err != nil {
				t.Fatal(err)
			}
			noOrphans(t, n)
			n = n.Rebuild()
			expect(t, n, int(rebuiltEnd(t, n)))
		})
	}
}

// noOrphans waits until every object of a segment is one that the partition
// lists, two per segment.
func noOrphans(t *testing.T, n *testenv.Node) {
	t.Helper()
	ctx, cancel := n.Context()
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	var seen string
	for {
		segments, err := n.Admin().Segments(ctx, "log", 0)
		if err != nil {
			t.Fatalf("%v; last seen: %s", err, seen)
		}
		named := 0
		for _, s := range segments {
			if s.Tier != "local" {
				named++
			}
		}
		keys := n.Bucket.Keys("topics/")
		if len(keys) == 2*named {
			return
		}
		seen = fmt.Sprintf("%d objects, %d segments: %v %+v", len(keys), named, keys, segments)
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal(seen)
		}
	}
}

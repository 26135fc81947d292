package e2e

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline-io/strandline/testenv/binary"
)

// TestKilledNodeReadsPastItsRecoveryPointOnly: a start after kill -9 with 200
// segments on local disk reads what came after the recovery point, not the log.
// What a process reads is counted by the kernel; that of a start on an empty
// directory is not counted.
func TestKilledNodeReadsPastItsRecoveryPointOnly(t *testing.T) {
	const segments, segment = 200, 1 << 20
	o := binary.Options{
		Path: binary.Build(t), Kafka: freePort(t),
		Config: fmt.Sprintf("data_dir: %q\nlog: {level: warn}\n", filepath.Join(t.TempDir(), "data")),
	}
	p := binary.Serve(t, o)
	empty := processOf(t, p.Pid()).read
	createTopic(t, p.Kafka, "log", 1, map[string]string{"segment.bytes": fmt.Sprint(segment)})
	records := fillLog(t, p.Kafka, segments*segment)
	p.Kill()
	began := time.Now()
	p = binary.Serve(t, o)
	admin := kadm.NewClient(client(t, p.Kafka))
	for deadline := time.Now().Add(waitFor); ; {
		ends, err := admin.ListEndOffsets(t.Context(), "log")
		if end, ok := ends.Lookup("log", 0); err == nil && ok && end.Err == nil {
			if end.Offset != records {
				t.Fatalf("the log ends at %d, %d were acknowledged", end.Offset, records)
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the partition does not open: %v", err)
		}
	}
	took := time.Since(began)
	read := processOf(t, p.Pid()).read - empty
	t.Logf("%d segments of %d MiB: open %s after the start, %.1f MiB read", segments, segment>>20, took, float64(read)/(1<<20))
	// Indexes are read whole, 1/200 of the log; the active segment and the one
	// before it are checked. An eighth leaves room for a recovery point that is
	// some seconds old.
	if read > segments*segment/8 {
		t.Errorf("%d bytes were read of a log of %d", read, segments*segment)
	}
}

// fillLog writes records until the log has so many bytes, and returns how many.
func fillLog(t *testing.T, addr string, bytes int) int64 {
	t.Helper()
	cl := client(t, addr, kgo.DefaultProduceTopic("log"), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerBatchMaxBytes(256<<10))
	value := make([]byte, 4<<10)
	records := int64(0)
	for n := 0; n < bytes; n += len(value) {
		records++
		cl.Produce(t.Context(), &kgo.Record{Value: value}, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Error(err)
			}
		})
	}
	if err := cl.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	return records
}

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
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
	data := filepath.Join(t.TempDir(), "data")
	o := binary.Options{
		Path: binary.Build(t), Kafka: freePort(t),
		Config: fmt.Sprintf("data_dir: %q\nlog: {level: warn}\n", data),
	}
	p := binary.Serve(t, o)
	empty := processOf(t, p.Pid()).read
	createTopic(t, p.Kafka, "log", 1, map[string]string{"segment.bytes": fmt.Sprint(segment)})
	records := fillLog(t, p.Kafka, segments*segment)
	p.Kill()
	point := recoveryPoint(t, filepath.Join(data, "recovery-point-offset-checkpoint"))
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
	// Behind the recovery point all is read, which a busy disk lets fall back by some
	// segments; before it indexes are, 1/200 of the log, and the end of each segment.
	behind := (records - point) * (segments * segment / records) * 11 / 10
	if read > behind+segments*segment/16 {
		t.Errorf("%d bytes were read, %d lie behind the recovery point %d of %d", read, behind, point, records)
	}
}

// recoveryPoint reads the checkpoint of a disk with one partition.
func recoveryPoint(t *testing.T, file string) int64 {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Fields(string(b))
	point, err := strconv.ParseInt(words[len(words)-1], 10, 64)
	if err != nil {
		t.Fatalf("%q: %v", b, err)
	}
	return point
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

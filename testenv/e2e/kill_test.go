package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline-io/strandline/testenv/binary"
)

// rounds is how often TestKill kills; STRANDLINE_SOAK=1 multiplies it.
func rounds() int {
	if os.Getenv("STRANDLINE_SOAK") != "" {
		return 300
	}
	return 30
}

// freePort takes a port that the program gets at every start, so that producers
// find it again.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// TestKill kills the program at random moments while idempotent producers write:
// nothing that was acknowledged is lost, nothing is there twice, and every
// producer's records are in its order.
func TestKill(t *testing.T) {
	const producers = 4
	path := binary.Build(t)
	o := binary.Options{
		Path: path, Kafka: freePort(t),
		Config: fmt.Sprintf("data_dir: %q\nbucket: %q\n", filepath.Join(t.TempDir(), "data"), "dir:"+t.TempDir()),
	}
	p := binary.Serve(t, o)
	createTopic(t, p.Kafka, "killed", producers, tinySegments())

	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // not for secrets
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
	defer stop()
	var acked [producers]atomic.Int64
	finish := make(chan struct{})
	done := make(chan error, producers)
	for i := range producers {
		go func() { done <- write(ctx, o.Kafka, int32(i), &acked[i], finish) }()
	}
	for round := range rounds() {
		before := acked[round%producers].Load()
		select {
		case <-time.After(time.Duration(random.IntN(400)) * time.Millisecond): // the moment of the kill
		case err := <-done:
			t.Fatal(err)
		}
		p.Kill()
		p = binary.Serve(t, o)
		for acked[round%producers].Load() <= before { // progress in each round
			select {
			case <-time.After(5 * time.Millisecond):
			case err := <-done:
				t.Fatal(err)
			case <-ctx.Done():
				t.Fatalf("no progress after kill %d", round)
			}
		}
	}
	close(finish)
	total := 0
	for range producers {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	for i := range acked {
		total += int(acked[i].Load())
	}
	t.Logf("%d records were acknowledged", total)
	got := consume(t, o.Kafka, "killed", total)
	for part, rs := range got.part {
		if int64(len(rs)) != acked[part].Load() {
			t.Errorf("partition %d: %d records, %d were acknowledged", part, len(rs), acked[part].Load())
		}
		for i, r := range rs {
			if r.value != strconv.Itoa(i) {
				t.Fatalf("partition %d: record %d has the value %s: lost, doubled or out of order", part, i, r.value)
			}
			if i > 0 && r.offset <= rs[i-1].offset {
				t.Fatalf("partition %d: offset %d after %d", part, r.offset, rs[i-1].offset)
			}
		}
	}
}

// write produces 0, 1, 2, ... to a partition until finish is closed, and counts
// what was acknowledged. Every record that was sent is acknowledged in the end.
func write(ctx context.Context, addr string, part int32, acked *atomic.Int64, finish <-chan struct{}) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.DefaultProduceTopic("killed"), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(time.Millisecond), kgo.MaxBufferedRecords(500), kgo.RecordRetries(1<<30), kgo.RequestRetries(1<<30),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }), kgo.RetryTimeout(5*time.Minute))
	if err != nil {
		return err
	}
	defer cl.Close()
	var failed atomic.Pointer[error]
	for i := 0; ; i++ {
		select {
		case <-finish:
			if err := cl.Flush(ctx); err != nil {
				return err
			}
			if e := failed.Load(); e != nil {
				return *e
			}
			return nil
		case <-ctx.Done():
			return ctx.Err()
		default:
		}
		cl.Produce(ctx, &kgo.Record{Partition: part, Value: []byte(strconv.Itoa(i))}, func(_ *kgo.Record, err error) {
			if err != nil {
				err = errors.Join(fmt.Errorf("partition %d", part), err)
				failed.Store(&err)
				return
			}
			acked.Add(1)
		})
		if e := failed.Load(); e != nil {
			return *e
		}
	}
}

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// waitFor bounds everything that a test waits for.
const waitFor = 2 * time.Minute

// client returns a client of the address; it ends with the test.
func client(t testing.TB, addr string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(addr), kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// createTopic makes a topic with the settings.
func createTopic(t testing.TB, addr, name string, partitions int32, settings map[string]string) {
	t.Helper()
	configs := make(map[string]*string)
	for k, v := range settings {
		configs[k] = &v
	}
	r, err := kadm.NewClient(client(t, addr)).CreateTopic(t.Context(), partitions, 1, configs, name)
	if err != nil || r.Err != nil {
		t.Fatal(err, r.Err, r.ErrMessage)
	}
}

// record is what must come back.
type record struct {
	offset    int64
	timestamp int64
	key       string
	value     string
	headers   string
}

func recordOf(r *kgo.Record) record {
	var h bytes.Buffer
	for _, x := range r.Headers {
		fmt.Fprintf(&h, "%q=%q,", x.Key, x.Value)
	}
	key := "null"
	if r.Key != nil {
		key = fmt.Sprintf("%q", r.Key)
	}
	return record{r.Offset, r.Timestamp.UnixMilli(), key, string(r.Value), h.String()}
}

// books are the records of a topic by partition, in order of offset.
type books struct {
	mu   sync.Mutex
	part map[int32][]record
}

func (b *books) add(r *kgo.Record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.part == nil {
		b.part = make(map[int32][]record)
	}
	b.part[r.Partition] = append(b.part[r.Partition], recordOf(r))
}

func (b *books) len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, rs := range b.part {
		n += len(rs)
	}
	return n
}

func (b *books) sort() {
	for _, rs := range b.part {
		slices.SortFunc(rs, func(x, y record) int { return int(x.offset - y.offset) })
	}
}

// produce sends n numbered records to "events", a share with each codec, and returns what was
// acknowledged.
func produce(t testing.TB, addr string, partitions, n int) *books {
	t.Helper()
	acked := &books{}
	codecs := []kgo.CompressionCodec{
		kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression(),
	}
	for i, codec := range codecs {
		cl := client(t, addr, kgo.DefaultProduceTopic("events"), kgo.ProducerBatchCompression(codec),
			kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(2*time.Millisecond), kgo.ProducerBatchMaxBytes(16<<10))
		for k := i; k < n; k += len(codecs) {
			cl.Produce(t.Context(), numbered(k, partitions), func(r *kgo.Record, err error) {
				if err != nil {
					t.Errorf("record %s: %v", r.Key, err)
					return
				}
				acked.add(r)
			})
		}
		if err := cl.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
	acked.sort()
	return acked
}

// numbered is record k: null and empty keys, values and headers among them.
func numbered(k, partitions int) *kgo.Record {
	r := &kgo.Record{
		Partition: int32(k % partitions),
		Key:       fmt.Appendf(nil, "key-%d", k),
		Value:     fmt.Appendf(nil, "value %d of a record that is long enough to fill a segment", k),
		Timestamp: time.UnixMilli(1_700_000_000_000 + int64(k)),
	}
	switch k % 11 {
	case 3:
		r.Key = nil
	case 5:
		r.Key = []byte{}
	case 7:
		r.Headers = []kgo.RecordHeader{{Key: "h", Value: fmt.Append(nil, k)}, {Key: "empty"}, {Key: "h", Value: []byte("again")}}
	}
	return r
}

// consume reads every partition from the earliest offset until n records came.
func consume(t testing.TB, addr, topic string, n int, opts ...kgo.Opt) *books {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitFor)
	defer cancel()
	got := &books{}
	cl := client(t, addr, append([]kgo.Opt{
		kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}, opts...)...)
	for count := 0; count < n; {
		fs := cl.PollFetches(ctx)
		if err := fs.Err0(); err != nil {
			t.Fatalf("after %d of %d records: %v", count, n, err)
		}
		fs.EachError(func(topic string, p int32, err error) { t.Errorf("%s-%d: %v", topic, p, err) })
		fs.EachRecord(func(r *kgo.Record) {
			got.add(r)
			count++
		})
	}
	return got
}

// same fails the test where the two differ. Both are in the order of arrival or
// of offsets: consumers deliver in order, so an inversion is a difference, too.
func same(t testing.TB, got, want *books) {
	t.Helper()
	for p, w := range want.part {
		g := got.part[p]
		if len(g) != len(w) {
			t.Errorf("partition %d: %d records instead of %d", p, len(g), len(w))
		}
		for i := range min(len(g), len(w)) {
			if g[i] != w[i] {
				t.Errorf("partition %d, place %d: %+v instead of %+v", p, i, g[i], w[i])
				break
			}
		}
	}
	if len(got.part) != len(want.part) {
		t.Errorf("%d partitions instead of %d", len(got.part), len(want.part))
	}
}

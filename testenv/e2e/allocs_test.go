package e2e

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/batch"
)

// allocSlack is how many allocations two requests may differ by: timers and
// tickers of the node fall into some of the measured requests.
const allocSlack = 3

// wire sends requests that were encoded before, and reads answers into one
// buffer: it allocates nothing itself.
type wire struct {
	t    testing.TB
	conn net.Conn
	buf  []byte
}

func dialWire(t testing.TB, addr string) *wire {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &wire{t: t, conn: conn, buf: make([]byte, 4<<20)}
}

func encodeRequest(r kmsg.Request) []byte {
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("allocs")).AppendRequest(nil, r, 1)
}

// call returns the answer's body, which the next call overwrites.
func (w *wire) call(req []byte) []byte {
	w.t.Helper()
	if _, err := w.conn.Write(req); err != nil {
		w.t.Fatal(err)
	}
	if _, err := io.ReadFull(w.conn, w.buf[:4]); err != nil {
		w.t.Fatal(err)
	}
	n := binary.BigEndian.Uint32(w.buf)
	if _, err := io.ReadFull(w.conn, w.buf[:n]); err != nil {
		w.t.Fatal(err)
	}
	return w.buf[5:n] // correlation id, no tags
}

func produceRequest(t testing.TB, topic string, records int) *kmsg.ProduceRequest {
	t.Helper()
	rs := make([]batch.Record, records)
	for i := range rs {
		rs[i] = batch.Record{Offset: tiers.Offset(i), Timestamp: time.Now().UnixMilli(), Value: make([]byte, 100)}
	}
	raw, err := batch.Builder{ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}.Build(rs)
	if err != nil {
		t.Fatal(err)
	}
	r := kmsg.NewPtrProduceRequest()
	r.Version, r.Acks, r.TimeoutMillis = 9, -1, 10_000
	p := kmsg.NewProduceRequestTopicPartition()
	p.Records = raw
	r.Topics = []kmsg.ProduceRequestTopic{{Topic: topic, Partitions: []kmsg.ProduceRequestTopicPartition{p}}}
	return r
}

func fetchRequest(topic string) *kmsg.FetchRequest {
	r := kmsg.NewPtrFetchRequest()
	r.Version, r.MaxWaitMillis, r.MinBytes, r.MaxBytes = 12, 1000, 1, 3<<20
	p := kmsg.NewFetchRequestTopicPartition()
	p.PartitionMaxBytes = 3 << 20
	r.Topics = []kmsg.FetchRequestTopic{{Topic: topic, Partitions: []kmsg.FetchRequestTopicPartition{p}}}
	return r
}

// TestRequestsAllocateAConstantNumberOfTimes compares requests of 10 and of 1,000
// records, over the real listener: what a node allocates does not depend on how
// many records a request carries.
func TestRequestsAllocateAConstantNumberOfTimes(t *testing.T) {
	n := diskNode(t) // a disk in memory would allocate for each page
	w := dialWire(t, n.KafkaAddr())
	allocs := map[string][2]float64{}
	for i, records := range []int{10, 1000} {
		topic := fmt.Sprint("records-", records)
		createTopic(t, n.KafkaAddr(), topic, 1, nil)
		produce := produceRequest(t, topic, records)
		req := encodeRequest(produce)
		resp := kmsg.NewPtrProduceResponse()
		resp.Version = produce.Version
		if err := resp.ReadFrom(w.call(req)); err != nil || resp.Topics[0].Partitions[0].ErrorCode != 0 {
			t.Fatalf("%+v, %v", resp, err)
		}
		fetch := fetchRequest(topic)
		fetchReq := encodeRequest(fetch)
		fetched := kmsg.NewPtrFetchResponse()
		fetched.Version = fetch.Version
		if err := fetched.ReadFrom(w.call(fetchReq)); err != nil {
			t.Fatal(err)
		}
		// The fetch is of this one batch: it is measured before there are more.
		if got, want := len(fetched.Topics[0].Partitions[0].RecordBatches), len(produce.Topics[0].Partitions[0].Records); got != want {
			t.Fatalf("%d bytes were fetched, %d produced", got, want)
		}
		fetches, produces := allocs["fetch"], allocs["produce"]
		fetches[i] = testing.AllocsPerRun(300, func() { w.call(fetchReq) })
		produces[i] = testing.AllocsPerRun(300, func() { w.call(req) })
		allocs["fetch"], allocs["produce"] = fetches, produces
	}
	for name, a := range allocs {
		t.Logf("%s: %.1f allocations for 10 records, %.1f for 1,000", name, a[0], a[1])
		if d := a[1] - a[0]; d > allocSlack || d < -allocSlack {
			t.Errorf("%s: %.1f allocations for 10 records, %.1f for 1,000", name, a[0], a[1])
		}
		if a[0] < 1 || a[1] > 200 {
			t.Errorf("%s: %.1f and %.1f allocations: is the node measured at all?", name, a[0], a[1])
		}
	}
}

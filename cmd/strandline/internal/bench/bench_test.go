package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/testenv"
)

// servers runs f against franz-go's kfake and against a node: the benchmarks
// use nothing that only one of them has.
func servers(t *testing.T, f func(t *testing.T, brokers []string)) {
	t.Helper()
	t.Run("kfake", func(t *testing.T) { f(t, fake(t).ListenAddrs()) })
	t.Run("node", func(t *testing.T) { f(t, []string{testenv.Start(t).KafkaAddr()}) })
}

func fake(t *testing.T) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func produceOptions(brokers []string, records int64) ProduceOptions {
	return ProduceOptions{
		Target:       Target{Brokers: brokers, Topic: TopicPrefix},
		TopicOptions: TopicOptions{Create: true, Partitions: 4, Replicas: 1},
		Limits:       Limits{Records: records},
		RecordSize:   100, Fill: FillRandom, Acks: "all", Compression: "none", Clients: 1, Buffered: 1000, Idempotent: true,
	}
}

func consumeOptions(brokers []string) ConsumeOptions {
	return ConsumeOptions{
		Target: Target{Brokers: brokers, Topic: TopicPrefix}, Clients: 1, MaxBytes: 1 << 20, MaxPartitionBytes: 1 << 20, Verify: true,
	}
}

func mustProduce(t *testing.T, o ProduceOptions) Report {
	t.Helper()
	if err := o.Valid(); err != nil {
		t.Fatal(err)
	}
	rep, err := Produce(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

// ends is the number of records in a topic.
func ends(t *testing.T, brokers []string, topic string) int64 {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	listed, err := kadm.NewClient(cl).ListEndOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	var n int64
	listed.Each(func(o kadm.ListedOffset) { n += o.Offset })
	return n
}

// What is produced is counted, timed, and there; what is consumed is all of it.
func TestProduceAndConsume(t *testing.T) {
	servers(t, func(t *testing.T, brokers []string) {
		t.Helper()
		for _, change := range []func(*ProduceOptions){
			func(*ProduceOptions) {},
			func(o *ProduceOptions) { o.Clients = 3 },
			func(o *ProduceOptions) { o.Idempotent, o.Acks = false, "1" },
			func(o *ProduceOptions) { o.Idempotent, o.Acks = false, "0" },
			func(o *ProduceOptions) { o.Compression, o.Fill, o.BatchBytes = "zstd", FillText, 4<<10 },
			func(o *ProduceOptions) { o.Records, o.Sync = 20, true },
			func(o *ProduceOptions) { o.Records, o.Bytes = 0, 100*1000 },
			func(o *ProduceOptions) { o.Buffered = 1 },
		} {
			o := produceOptions(brokers, 1000)
			change(&o)
			o.Cleanup = true
			want := o.count()
			o.Cleanup = false
			rep := mustProduce(t, o)
			if rep.Records != want || rep.Bytes != want*100 || rep.Partitions != 4 || rep.Latency.Count != want || rep.Interrupted ||
				rep.RecordsPerSecond <= 0 || rep.MiBPerSecond <= 0 || rep.Latency.Max < rep.Latency.P50 || rep.Client.AllocsPerRecord <= 0 {
				t.Errorf("%+v, want %d records", rep, want)
			}
			c := consumeOptions(brokers)
			c.Clients, c.Cleanup = 3, true
			got, err := Consume(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			if o.Acks != "0" && (got.Records != want || got.Bytes != want*100 || got.Verify.Records != want || !got.Verify.OK() || got.Verify.Missing != 0 || got.FirstByte <= 0 || got.Latency == nil) {
				t.Errorf("%+v, %+v, want %d records", got, got.Verify, want)
			}
		}
	})
}

// Limits of a consumer end it early, without an error.
func TestConsumeLimits(t *testing.T) {
	servers(t, func(t *testing.T, brokers []string) {
		t.Helper()
		o := produceOptions(brokers, 2000)
		o.BatchBytes = 2 << 10
		mustProduce(t, o)
		c := consumeOptions(brokers)
		c.MaxBytes, c.MaxPartitionBytes, c.Records = 2<<10, 2<<10, 10
		rep, err := Consume(t.Context(), c)
		if err != nil || rep.Records < 10 || rep.Records >= 2000 {
			t.Errorf("%+v, %v", rep, err)
		}
		c.Records, c.Bytes = 0, 1000
		if rep, err = Consume(t.Context(), c); err != nil || rep.Bytes < 1000 || rep.Records >= 2000 {
			t.Errorf("%+v, %v", rep, err)
		}
	})
}

// Somebody's topic is neither made, nor written to, nor deleted without being
// asked.
func TestRefusals(t *testing.T) {
	servers(t, func(t *testing.T, brokers []string) {
		t.Helper()
		o := produceOptions(brokers, 10)
		o.Create = false
		if _, err := Produce(t.Context(), o); !errors.Is(err, kerr.UnknownTopicOrPartition) || !strings.Contains(err.Error(), "produce --create") {
			t.Errorf("%v", err)
		}
		if _, err := Consume(t.Context(), consumeOptions(brokers)); !errors.Is(err, kerr.UnknownTopicOrPartition) {
			t.Errorf("the refused run has made the topic: %v", err)
		}
		o = produceOptions(brokers, 10)
		o.Topic = "orders"
		mustProduce(t, o)
		_, err := Produce(t.Context(), o)
		if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "--yes") {
			t.Errorf("%v", err)
		}
		o.Yes, o.Cleanup = true, true
		if _, err := Produce(t.Context(), o); !errors.Is(err, ErrRefused) {
			t.Errorf("%v", err)
		}
		c := consumeOptions(brokers)
		c.Topic, c.Cleanup = "orders", true
		if _, err := Consume(t.Context(), c); !errors.Is(err, ErrRefused) {
			t.Errorf("%v", err)
		}
		if n := ends(t, brokers, "orders"); n != 10 {
			t.Errorf("%d records", n)
		}
		o.Cleanup = false
		mustProduce(t, o)
		if n := ends(t, brokers, "orders"); n != 20 {
			t.Errorf("%d records", n)
		}
	})
}

// A topic that a run made goes with --cleanup, whatever its name; and so does
// one with a benchmark's name that was there before.
func TestCleanup(t *testing.T) {
	servers(t, func(t *testing.T, brokers []string) {
		t.Helper()
		o := produceOptions(brokers, 10)
		o.Topic, o.Cleanup = "made", true
		mustProduce(t, o)
		c := consumeOptions(brokers)
		c.Topic = "made"
		if _, err := Consume(t.Context(), c); !errors.Is(err, kerr.UnknownTopicOrPartition) {
			t.Errorf("%v", err)
		}
		o = produceOptions(brokers, 10)
		mustProduce(t, o)
		o.Cleanup = true
		mustProduce(t, o)
		if _, err := Consume(t.Context(), consumeOptions(brokers)); !errors.Is(err, kerr.UnknownTopicOrPartition) {
			t.Errorf("%v", err)
		}
	})
}

// A topic gets its settings, and a server that refuses them says why.
func TestCreateWithSettings(t *testing.T) {
	n := testenv.Start(t)
	o := produceOptions([]string{n.KafkaAddr()}, 10)
	o.Settings = map[string]string{"segment.bytes": "4096", "strandline.ack": "interval"}
	mustProduce(t, o)
	topic, err := n.Admin().Topic(t.Context(), TopicPrefix)
	if err != nil || topic.Configs["segment.bytes"] != "4096" || topic.Configs["strandline.ack"] != "interval" {
		t.Errorf("%+v, %v", topic, err)
	}
	o.Topic, o.Settings = "other", map[string]string{"segment.bytes": "few"}
	if _, err := Produce(t.Context(), o); err == nil || !strings.Contains(err.Error(), "segment.bytes") {
		t.Error(err)
	}
}

// With a rate, a record that had to wait behind a server that stalls has waited
// since it was due: the stall cannot hide (coordinated omission).
func TestRateShowsAStall(t *testing.T) {
	const stall = 400 * time.Millisecond
	c := fake(t)
	var once sync.Once
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		once.Do(func() { wait(t.Context(), time.NewTimer(stall), stall) })
		return nil, nil, false
	})
	o := produceOptions(c.ListenAddrs(), 500)
	o.Rate, o.Buffered = 1000, 20 // the client itself is full at once
	rep := mustProduce(t, o)
	if rep.Records != 500 || rep.Latency.Max < 350 {
		t.Errorf("%+v, %+v", rep, rep.Latency)
	}
	// Some 400 records were due in the stall; their mean wait is half of it.
	if rep.Latency.P50 < 50 || rep.Latency.Mean < 80 {
		t.Errorf("the stall hides: %+v", rep.Latency)
	}
	if rep.Seconds < 0.49 {
		t.Errorf("500 records at 1000/s took %.2f s", rep.Seconds)
	}
}

// An interrupt reports what was acknowledged, and that is what is in the log.
func TestProduceInterrupted(t *testing.T) {
	servers(t, func(t *testing.T, brokers []string) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		o := produceOptions(brokers, 0)
		o.Duration = time.Hour
		go func() {
			for ends(t, brokers, TopicPrefix) < 100 && t.Context().Err() == nil {
				wait(t.Context(), time.NewTimer(0), time.Millisecond)
			}
			cancel()
		}()
		mustProduce(t, produceOptions(brokers, 1)) // makes the topic
		rep, err := Produce(ctx, o)
		if err != nil || !rep.Interrupted || rep.Records < 99 || rep.Seconds <= 0 {
			t.Errorf("%+v, %v", rep, err)
		}
		if n := ends(t, brokers, TopicPrefix); n != rep.Records+1 {
			t.Errorf("%d records are there, %d were counted", n, rep.Records+1)
		}
		got, err := Consume(t.Context(), consumeOptions(brokers))
		if err != nil || got.Verify.Missing != 0 || got.Verify.Producers != 2 {
			t.Errorf("%+v, %v", got.Verify, err)
		}
		stopped, stop := context.WithCancel(t.Context())
		stop()
		if _, err := Consume(stopped, consumeOptions(brokers)); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// What is written while a consumer reads is not its business.
func TestConsumeEndsWhereItBegan(t *testing.T) {
	r := &reader{left: map[int32]int64{0: 3, 1: 2}}
	control := kgo.Record{Partition: 1, Offset: 1, Value: []byte("commit"), Attrs: kgo.NewRecordAttrs(kgo.RecordAttrsOpts{Control: true})}
	for _, rec := range []kgo.Record{
		{Partition: 0, Offset: 0, Value: []byte("a")},
		{Partition: 0, Offset: 2, Value: []byte("bc")},
		{Partition: 0, Offset: 3, Value: []byte("late")},
		{Partition: 1, Offset: 0, Key: []byte("k")},
		{Partition: 1, Offset: 2},
		control,
		{Partition: 1, Offset: 3},
		{Partition: 2},
	} {
		r.take(&rec)
	}
	if r.records != 3 || r.bytes != 4 || len(r.left) != 0 {
		t.Errorf("%d records, %d bytes, %v left", r.records, r.bytes, r.left)
	}
}

// Time ends a run, which is no error either.
func TestDuration(t *testing.T) {
	c := fake(t)
	o := produceOptions(c.ListenAddrs(), 0)
	o.Duration = 50 * time.Millisecond
	rep := mustProduce(t, o)
	if rep.Interrupted || rep.Records == 0 || rep.Seconds < 0.05 {
		t.Errorf("%+v", rep)
	}
}

// A record that is refused ends the run with the reason.
func TestRecordThatIsRefused(t *testing.T) {
	n := testenv.Start(t)
	o := produceOptions([]string{n.KafkaAddr()}, 1000)
	o.Settings = map[string]string{"max.message.bytes": "1024"}
	o.RecordSize = 4 << 10
	rep, err := Produce(t.Context(), o)
	if !errors.Is(err, kerr.MessageTooLarge) || rep.Records != 0 {
		t.Errorf("%+v, %v", rep, err)
	}
}

// A consumer that checks finds records that are there twice, damaged, or gone.
func TestConsumeFindsWhatIsWrong(t *testing.T) {
	for says, values := range map[string][][]byte{
		"doubled":             {sealed(0), sealed(1), sealed(1)},
		"reordered":           {sealed(1), sealed(0)},
		"damaged":             {sealed(0), append(sealed(1), 'x')},
		"missing":             {sealed(0), sealed(2)},
		"nothing to verify":   {[]byte("hello")},
		"produced: 1 damaged": {append(sealed(0), 'x')},
	} {
		brokers := []string{seeded(t)}
		cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range values {
			if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: TopicPrefix, Value: v}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		cl.Close()
		rep, err := Consume(t.Context(), consumeOptions(brokers))
		if err == nil || !strings.Contains(err.Error(), says) || rep.Records != int64(len(values)) {
			t.Errorf("%s: %+v, %v", says, rep.Verify, err)
		}
		o := consumeOptions(brokers)
		o.Verify = false
		if rep, err = Consume(t.Context(), o); err != nil || rep.Verify != nil {
			t.Errorf("%s: without looking: %v", says, err)
		}
	}
}

// TestConsumeMissesATail: the number that produce prints is what a consumer has to
// find, and a log start above 0 excuses what is below it alone.
func TestConsumeMissesATail(t *testing.T) {
	servers(t, func(t *testing.T, brokers []string) {
		t.Helper()
		rep := mustProduce(t, produceOptions(brokers, 1000))
		var text strings.Builder
		if _, err := rep.WriteTo(&text); err != nil || !strings.Contains(text.String(), "--expect 1000 ") {
			t.Fatalf("%v: %s", err, text.String())
		}
		c := consumeOptions(brokers)
		c.Expect = 1000
		if got, err := Consume(t.Context(), c); err != nil || got.Verify.Missing != 0 || got.Verify.Expected != 1000 || len(got.Notes) != 0 {
			t.Errorf("%+v, %v", got, err)
		}
		c.Expect = 1003
		got, err := Consume(t.Context(), c)
		if err == nil || !strings.Contains(err.Error(), "3 records are missing") || got.Verify.Missing != 3 || got.Verify.Lost != 3 || got.Verify.Excused {
			t.Errorf("%+v, %v", got.Verify, err)
		}
		trimTo(t, brokers, 2, 10)
		c.Expect = 1000
		if got, err = Consume(t.Context(), c); err != nil || got.Verify.Missing != 10 || got.Verify.Lost != 0 || !got.Verify.Excused {
			t.Errorf("trimmed: %+v, %v", got.Verify, err)
		}
		c.Expect = 1003
		if got, err = Consume(t.Context(), c); err == nil || !strings.Contains(err.Error(), "3 records are missing") || got.Verify.Excused {
			t.Errorf("trimmed, and a tail that is gone: %+v, %v", got.Verify, err)
		}
		c.Expect = 0
		if got, err = Consume(t.Context(), c); err != nil || !got.Verify.Excused {
			t.Errorf("nothing is expected: %+v, %v", got.Verify, err)
		}
	})
}

// trimTo deletes the records of a partition below an offset.
func trimTo(t *testing.T, brokers []string, partition int32, offset int64) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	offsets := kadm.Offsets{}
	offsets.AddOffset(TopicPrefix, partition, offset, -1)
	resp, err := kadm.NewClient(cl).DeleteRecords(t.Context(), offsets)
	if err == nil {
		err = resp.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func sealed(number uint64) []byte {
	b := make([]byte, 50)
	seal(b, stamp{run: 1, producer: 1, number: number}, castagnoli())
	return b
}

// Each error of the way to the server says what to do.
func TestErrorsOfTheServer(t *testing.T) {
	closing, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer closing.Close()
	go func() {
		for {
			c, err := closing.Accept()
			if err != nil {
				return
			}
			_, _ = io.ReadFull(c, make([]byte, 4))
			_ = c.Close()
		}
	}()
	for says, broker := range map[string]string{
		"start the server":        "127.0.0.1:1",
		"closes the connection":   closing.Addr().String(),
		"the name of host.invali": "host.invalid:9092",
	} {
		o := produceOptions([]string{broker}, 1)
		if _, err := Produce(t.Context(), o); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", broker, err)
		}
	}
	target := Target{Brokers: []string{"b:1"}, Topic: "t"}
	for says, err := range map[string]error{
		"without TLS and without a user": kerr.TopicAuthorizationFailed,
		"in time":                        fmt.Errorf("x: %w", context.DeadlineExceeded),
		"b:1: something":                 errors.New("something"),
	} {
		if got := target.explain(err); !errors.Is(got, err) || !strings.Contains(got.Error(), says) {
			t.Error(got)
		}
	}
	if target.explain(nil) != nil {
		t.Error("an error of nothing")
	}
	if _, err := Consume(t.Context(), ConsumeOptions{Target: Target{Brokers: []string{seeded(t)}, Topic: TopicPrefix}, Clients: 1, MaxBytes: 1, MaxPartitionBytes: 1}); err == nil || !strings.Contains(err.Error(), "is empty") {
		t.Error(err)
	}
}

// seeded is a server with the topic, which is empty.
func seeded(t *testing.T) string {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, TopicPrefix))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c.ListenAddrs()[0]
}

func TestOptionsThatMakeNoSense(t *testing.T) {
	for says, change := range map[string]func(*ProduceOptions){
		"--record-size": func(o *ProduceOptions) { o.RecordSize = MinRecordSize - 1 },
		"--fill":        func(o *ProduceOptions) { o.Fill = "zeroes" },
		"--concurrency": func(o *ProduceOptions) { o.Clients = 0 },
		"--rate":        func(o *ProduceOptions) { o.Rate = -1 },
		"how long":      func(o *ProduceOptions) { o.Limits = Limits{} },
		"--idempotent":  func(o *ProduceOptions) { o.Acks = "1" },
		"--acks":        func(o *ProduceOptions) { o.Acks, o.Idempotent = "2", false },
		"--compression": func(o *ProduceOptions) { o.Compression = "rar" },
	} {
		o := produceOptions(nil, 1)
		change(&o)
		if err := o.Valid(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
	for says, o := range map[string]ConsumeOptions{
		"--concurrency": {}, "--fetch-bytes": {Clients: 1, MaxPartitionBytes: 1}, "--partition-bytes": {Clients: 1, MaxBytes: 1},
		"needs --verify": {Clients: 1, MaxBytes: 1, MaxPartitionBytes: 1, Expect: 1}, "a number of records": {Clients: 1, MaxBytes: 1, MaxPartitionBytes: 1, Verify: true, Expect: -1},
	} {
		if err := o.Valid(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}

// The report of a node's metrics, and both forms of a report.
func TestReportForms(t *testing.T) {
	n := testenv.Start(t)
	o := produceOptions([]string{n.KafkaAddr()}, 100)
	o.Admin = n.AdminAddr()
	rep := mustProduce(t, o)
	if rep.Server == nil || rep.Server.RSSBytes < 1<<20 || rep.Server.OpenFiles < 3 {
		t.Errorf("%+v", rep.Server)
	}
	js, err := json.Marshal(rep)
	if err != nil || bytes.Contains(js, []byte("null")) {
		t.Fatalf("%s, %v", js, err)
	}
	var back map[string]any
	if err := json.Unmarshal(js, &back); err != nil || back["records"] != 100.0 || back["bytes"] != 10_000.0 {
		t.Errorf("%v, %v", back, err)
	}
	var text strings.Builder
	if k, err := rep.WriteTo(&text); err != nil || int(k) != text.Len() {
		t.Fatal(k, err)
	}
	for _, line := range []string{"produce " + TopicPrefix, "records", "MiB/s", "p99.9", "allocations/record", "server"} {
		if !strings.Contains(text.String(), line) {
			t.Errorf("no %q in\n%s", line, text.String())
		}
	}
	o.Admin = "127.0.0.1:1"
	if _, err := Produce(t.Context(), o); err == nil || !strings.Contains(err.Error(), "--admin") {
		t.Error(err)
	}
}

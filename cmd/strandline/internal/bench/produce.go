package bench

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"
)

const (
	// grace is how long records that were sent may still be acknowledged when a
	// run ends early.
	grace = 10 * time.Second
	// deliveryTime bounds one record, retries included.
	deliveryTime = 2 * time.Minute
	// bufferBytes bounds the payloads of one run that wait in its clients.
	bufferBytes = 256 << 20
)

// Limits end a run: whichever comes first. Zero is none.
type Limits struct {
	Records  int64
	Bytes    int64
	Duration time.Duration
}

// ProduceOptions say what to produce.
type ProduceOptions struct {
	Target
	TopicOptions
	Limits
	RecordSize  int
	Fill        string // FillRandom or FillText
	Acks        string // all, 1 or 0
	Compression string // none, gzip, snappy, lz4 or zstd
	BatchBytes  int32  // 0: the client's default
	Linger      time.Duration
	Clients     int
	Buffered    int     // records that a client holds at most
	Rate        float64 // records per second in all; 0: as fast as it goes
	Idempotent  bool
	Sync        bool // each client waits for one record before it sends the next
}

// Valid returns nil if the options make sense.
func (o *ProduceOptions) Valid() error {
	switch {
	case o.RecordSize < MinRecordSize:
		return fmt.Errorf("--record-size %d: a record has at least %d bytes, for its number and checksum", o.RecordSize, MinRecordSize)
	case o.Fill != FillRandom && o.Fill != FillText:
		return fmt.Errorf("--fill %q: choose %s or %s", o.Fill, FillRandom, FillText)
	case o.Clients < 1 || o.Buffered < 1:
		return errors.New("--concurrency and --buffered are at least 1")
	case o.Rate < 0:
		return errors.New("--rate is not negative")
	case o.Limits == Limits{}:
		return errors.New("say how long: --records, --bytes or --duration")
	case o.Idempotent && o.Acks != "all":
		return errors.New("--idempotent needs --acks all")
	}
	_, err := o.client()
	return err
}

// count is the number of records after which the run is over, 0: none.
func (o *ProduceOptions) count() int64 {
	n := o.Records
	if o.Bytes > 0 {
		if b := (o.Bytes + int64(o.RecordSize) - 1) / int64(o.RecordSize); n == 0 || b < n {
			n = b
		}
	}
	return n
}

// client are the options of each client.
func (o *ProduceOptions) client() ([]kgo.Opt, error) {
	opts := []kgo.Opt{
		kgo.DefaultProduceTopic(o.Topic), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()), kgo.ProducerLinger(o.Linger),
		kgo.MaxBufferedRecords(o.buffered()), kgo.RecordDeliveryTimeout(deliveryTime), kgo.AllowIdempotentProduceCancellation(),
	}
	acks := map[string]kgo.Acks{"all": kgo.AllISRAcks(), "1": kgo.LeaderAck(), "0": kgo.NoAck()}
	a, ok := acks[o.Acks]
	if !ok {
		return nil, fmt.Errorf("--acks %q: choose all, 1 or 0", o.Acks)
	}
	opts = append(opts, kgo.RequiredAcks(a))
	if !o.Idempotent {
		opts = append(opts, kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(5))
	}
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	c, ok := codecs[o.Compression]
	if !ok {
		return nil, fmt.Errorf("--compression %q: choose none, gzip, snappy, lz4 or zstd", o.Compression)
	}
	opts = append(opts, kgo.ProducerBatchCompression(c))
	if o.BatchBytes > 0 {
		opts = append(opts, kgo.ProducerBatchMaxBytes(o.BatchBytes))
	}
	return opts, nil
}

// buffered is the number of records that a client holds at most.
func (o *ProduceOptions) buffered() int {
	return max(1, min(o.Buffered, bufferBytes/o.RecordSize/o.Clients))
}

// Produce writes numbered records and says how fast they were acknowledged. The
// report is of what was measured, also with an error.
func Produce(ctx context.Context, o ProduceOptions) (rep Report, err error) {
	rep = Report{
		Bench: "produce", Brokers: strings.Join(o.Brokers, ","), Topic: o.Topic, RecordSize: int64(o.RecordSize), Acks: o.Acks,
		Compression: o.Compression, Clients: o.Clients, Idempotent: o.Idempotent, Sync: o.Sync, TargetRate: o.Rate,
	}
	opts, err := o.client()
	if err != nil {
		return rep, err
	}
	p := &producing{o: o, run: rand.Uint64(), watch: newStopwatch()} //nolint:gosec // tells runs apart, not a secret
	for range o.Clients {
		cl, err := o.open(ctx, opts...)
		if err != nil {
			return rep, err
		}
		defer cl.Close()
		p.clients = append(p.clients, cl)
	}
	n, done, err := o.topic(ctx, p.clients[0], o.TopicOptions, true)
	if err != nil {
		return rep, err
	}
	rep.Partitions = n
	defer func() {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()
		err = errors.Join(err, done(bounded))
	}()
	senders := p.senders()
	m, err := begin(ctx, o.Admin)
	if err != nil {
		return rep, err
	}
	runErr := p.all(ctx, senders)
	took := time.Since(m.began)
	rep.Records, rep.Bytes, rep.Latency = p.acked.Load(), p.acked.Load()*int64(o.RecordSize), p.watch.latency()
	if o.Acks == "0" {
		rep.note("acks=0: nothing was acknowledged, a record counts once it was handed to the connection")
	}
	rep.Interrupted = ctx.Err() != nil
	return rep, errors.Join(o.explain(runErr), m.end(context.WithoutCancel(ctx), &rep, took))
}

// producing is one run.
type producing struct {
	o       ProduceOptions
	run     uint64
	clients []*kgo.Client
	watch   *stopwatch
	acked   atomic.Int64
}

// senders makes one sender for each client, payloads included: they are not part
// of what is measured.
func (p *producing) senders() []*sender {
	total, n := p.o.count(), int64(len(p.clients))
	out := make([]*sender, n)
	for i, cl := range p.clients {
		s := &sender{producing: p, client: cl, id: uint32(i), table: castagnoli(), limited: total > 0}
		s.share = total / n
		if int64(i) < total%n {
			s.share++
		}
		if p.o.Rate > 0 {
			s.every = time.Duration(float64(time.Second) * float64(n) / p.o.Rate)
		}
		payloads := int64(p.o.buffered())
		if s.limited {
			payloads = min(payloads, max(1, s.share))
		}
		s.free = make(chan []byte, payloads)
		for k := range payloads {
			b := make([]byte, p.o.RecordSize)
			fill(b[payloadHead:], p.o.Fill, p.run+uint64(k)<<32+uint64(i))
			s.free <- b
		}
		out[i] = s
	}
	return out
}

// all runs every sender to the end. An interrupt is no error.
func (p *producing) all(ctx context.Context, senders []*sender) error {
	if p.o.Duration > 0 {
		timed, cancel := context.WithTimeout(ctx, p.o.Duration)
		defer cancel()
		ctx = timed
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, s := range senders {
		g.Go(func() error { return s.send(ctx) })
	}
	return g.Wait()
}

// sender is one client's part of a run. Its fields belong to the goroutine of
// send; what acknowledgements touch is safe for both.
type sender struct {
	*producing
	client  *kgo.Client
	id      uint32
	table   *crc32.Table
	share   int64 // records to send, if limited
	limited bool
	every   time.Duration // between two records; 0: at once
	free    chan []byte   // payloads that no record uses

	mu     sync.Mutex
	failed error // the first record that was not acknowledged
}

// send sends until the share or ctx is at its end, then waits for what is under
// way.
func (s *sender) send(ctx context.Context) error {
	began := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	// Records outlive the end of ctx: what was sent is waited for.
	life, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	for i := int64(0); (!s.limited || i < s.share) && ctx.Err() == nil && s.failure() == nil; i++ {
		due := time.Now()
		if s.every > 0 {
			due = began.Add(time.Duration(i) * s.every)
			if !wait(ctx, timer, time.Until(due)) {
				break
			}
		}
		buf := s.payload(ctx)
		if buf == nil {
			break
		}
		seal(buf, stamp{run: s.run, producer: s.id, number: uint64(i)}, s.table)
		if s.every == 0 {
			due = time.Now()
		}
		s.one(life, buf, due)
	}
	bounded, cancel := context.WithTimeout(life, patience(ctx))
	defer cancel()
	err := s.client.Flush(bounded)
	if err != nil {
		err = fmt.Errorf("records that were sent were not acknowledged: %w", err)
	}
	return errors.Join(s.failure(), err)
}

// patience is how long what was sent is waited for.
func patience(ctx context.Context) time.Duration {
	if errors.Is(ctx.Err(), context.Canceled) {
		return grace
	}
	return deliveryTime
}

func (s *sender) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// one sends a record. Its latency counts from due on: a record that had to wait
// for its turn has waited.
func (s *sender) one(ctx context.Context, buf []byte, due time.Time) {
	acked := func(r *kgo.Record, err error) {
		defer func() { s.free <- r.Value }() // there is room for all of them
		if err != nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.failed == nil {
				s.failed = fmt.Errorf("produce: %w", err)
			}
			return
		}
		s.watch.record(time.Since(due))
		s.acked.Add(1)
	}
	r := &kgo.Record{Value: buf}
	if s.o.Sync {
		acked(r, s.client.ProduceSync(ctx, r).FirstErr())
		return
	}
	s.client.Produce(ctx, r, acked)
}

// payload returns one that no record uses, or nil if ctx ends first.
func (s *sender) payload(ctx context.Context) []byte {
	select {
	case b := <-s.free:
		return b
	case <-ctx.Done():
		return nil
	}
}

// wait returns false if ctx ends first.
func wait(ctx context.Context, timer *time.Timer, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer.Reset(d)
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

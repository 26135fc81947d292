package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"
)

// stallTime is how long a consumer waits for the next records before it gives up.
const stallTime = 60 * time.Second

const fetchKey = 1 // of a Fetch request

// ConsumeOptions say what to consume: a topic from its earliest offsets up to the
// ends that it has when the run begins.
type ConsumeOptions struct {
	Target
	Limits
	Clients           int // partitions are shared out among them
	MaxBytes          int32
	MaxPartitionBytes int32
	Verify            bool
	Expect            int64 // records of benchmarks that there should be in all; 0: not known. It needs Verify.
	// Cleanup deletes the topic in the end, if its name is one of a benchmark.
	Cleanup bool
}

// Valid returns nil if the options make sense.
func (o *ConsumeOptions) Valid() error {
	if o.Clients < 1 {
		return errors.New("--concurrency is at least 1")
	}
	if o.MaxBytes < 1 || o.MaxPartitionBytes < 1 {
		return errors.New("--fetch-bytes and --partition-bytes are at least 1")
	}
	if o.Expect < 0 || o.Expect > 0 && !o.Verify {
		return errors.New("--expect is a number of records and needs --verify")
	}
	return nil
}

// span is the part of a partition that is to be read.
type span struct{ start, end int64 }

// Consume reads the topic and says how fast it came. The report is of what was
// measured, also with an error.
func Consume(ctx context.Context, o ConsumeOptions) (Report, error) {
	rep := Report{Bench: "consume", Brokers: strings.Join(o.Brokers, ","), Topic: o.Topic, Clients: o.Clients}
	return rep, o.into(ctx, &rep)
}

// into is Consume with a report of the caller's.
func (o *ConsumeOptions) into(ctx context.Context, rep *Report) (err error) {
	cl, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer cl.Close()
	_, done, err := o.topic(ctx, cl, TopicOptions{Cleanup: o.Cleanup}, false)
	if err != nil {
		return err
	}
	defer func() {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()
		err = errors.Join(err, done(bounded))
	}()
	spans, err := o.spans(ctx, cl)
	if err != nil {
		return err
	}
	rep.Partitions = len(spans)
	c, err := o.consuming(ctx, spans)
	if err != nil {
		return err
	}
	defer c.close()
	m, err := begin(ctx, o.Admin)
	if err != nil {
		return err
	}
	runErr := c.all(ctx, m.began)
	took := time.Since(m.began)
	c.fill(rep, spans)
	rep.Interrupted = ctx.Err() != nil
	if err := errors.Join(o.explain(runErr), m.end(context.WithoutCancel(ctx), rep, took)); err != nil {
		return err
	}
	return verdict(rep.Verify)
}

// verdict is the error of records that are not what was produced.
func verdict(v *Verification) error {
	switch {
	case v == nil:
		return nil
	case !v.OK():
		return fmt.Errorf("the records are not those that were produced: %d damaged, %d doubled, %d reordered", v.Damaged, v.Doubled, v.Reordered)
	case v.Missing > 0 && !v.Excused:
		return fmt.Errorf("%d records are missing: they are lost, unless the run that produced them ended with an error or was cut off", v.Lost)
	case v.Records == v.Foreign && v.Records > 0:
		return errors.New("no record was written by strandline bench produce: there is nothing to verify")
	}
	return nil
}

// spans asks what there is to read.
func (o *ConsumeOptions) spans(ctx context.Context, cl *kgo.Client) (map[int32]span, error) {
	admin := kadm.NewClient(cl)
	starts, err := admin.ListStartOffsets(ctx, o.Topic)
	if err != nil {
		return nil, o.explain(err)
	}
	ends, err := admin.ListEndOffsets(ctx, o.Topic)
	if err = errors.Join(err, starts.Error(), ends.Error()); err != nil {
		return nil, o.explain(err)
	}
	out := make(map[int32]span)
	var total int64
	for p, end := range ends[o.Topic] {
		s := span{starts[o.Topic][p].Offset, end.Offset}
		out[p] = s
		total += s.end - s.start
	}
	if total == 0 {
		return nil, fmt.Errorf("topic %s is empty: write to it first, as with `strandline bench produce`", o.Topic)
	}
	return out, nil
}

// consuming is one run.
type consuming struct {
	o       *ConsumeOptions
	readers []*reader
	watch   *stopwatch

	mu    sync.Mutex
	began time.Time
	first time.Duration // until the first record of any partition
}

// reader is one client with its partitions. Its fields belong to the goroutine
// of read.
type reader struct {
	*consuming
	client  *kgo.Client
	left    map[int32]int64 // ends of the partitions that are not read up
	assign  map[string]map[int32]kgo.Offset
	ledger  *ledger
	records int64
	bytes   int64
}

// consuming makes the clients, which have reached the server and not asked for
// records.
func (o *ConsumeOptions) consuming(ctx context.Context, spans map[int32]span) (*consuming, error) {
	c := &consuming{o: o, watch: newStopwatch()}
	for i := range min(o.Clients, len(spans)) {
		cl, err := o.open(ctx, kgo.FetchMaxBytes(o.MaxBytes), kgo.FetchMaxPartitionBytes(o.MaxPartitionBytes),
			kgo.FetchMaxWait(time.Second), kgo.KeepControlRecords(), kgo.WithHooks(fetchTimes{c.watch}))
		if err != nil {
			c.close()
			return nil, err
		}
		r := &reader{consuming: c, client: cl, left: map[int32]int64{}, assign: map[string]map[int32]kgo.Offset{o.Topic: {}}}
		if o.Verify {
			r.ledger = newLedger()
		}
		for p, s := range spans {
			if int(p)%min(o.Clients, len(spans)) == i && s.end > s.start {
				r.left[p] = s.end
				r.assign[o.Topic][p] = kgo.NewOffset().At(s.start)
			}
		}
		c.readers = append(c.readers, r)
	}
	return c, nil
}

func (c *consuming) close() {
	for _, r := range c.readers {
		r.client.Close()
	}
}

// all reads everything. An interrupt and the end of the time are no errors.
func (c *consuming) all(ctx context.Context, began time.Time) error {
	c.began = began
	if c.o.Duration > 0 {
		timed, cancel := context.WithTimeout(ctx, c.o.Duration)
		defer cancel()
		ctx = timed
	}
	g, gctx := errgroup.WithContext(ctx)
	for _, r := range c.readers {
		g.Go(func() error { return r.read(gctx) })
	}
	err := g.Wait()
	if ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		return nil
	}
	return err
}

// share is a reader's part of a limit, which is at least 1 where there is one.
func (c *consuming) share(limit int64) int64 {
	n := int64(len(c.readers))
	return (limit + n - 1) / n
}

func (r *reader) read(ctx context.Context) error {
	r.client.AddConsumePartitions(r.assign)
	records, bytes := r.share(r.o.Records), r.share(r.o.Bytes)
	for len(r.left) > 0 && (records == 0 || r.records < records) && (bytes == 0 || r.bytes < bytes) {
		fetches, err := r.poll(ctx)
		if err != nil {
			return err
		}
		if fetches.NumRecords() > 0 {
			r.started()
		}
		fetches.EachRecord(r.take)
	}
	return nil
}

// poll returns the next records, of which there may be none yet.
func (r *reader) poll(ctx context.Context) (kgo.Fetches, error) {
	bounded, cancel := context.WithTimeout(ctx, stallTime)
	defer cancel()
	fetches := r.client.PollFetches(bounded)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case bounded.Err() != nil && fetches.NumRecords() == 0:
		return nil, fmt.Errorf("no record came for %s: partitions %v are not read up", stallTime, r.unread())
	}
	var errs []error
	fetches.EachError(func(topic string, p int32, err error) {
		if bounded.Err() == nil {
			errs = append(errs, fmt.Errorf("%s-%d: %w", topic, p, err))
		}
	})
	return fetches, errors.Join(errs...)
}

func (r *reader) unread() []int32 {
	var out []int32
	for p := range r.left {
		out = append(out, p)
	}
	slices.Sort(out)
	return out
}

// take counts a record. Control records move the position and count for nothing.
func (r *reader) take(rec *kgo.Record) {
	end, ok := r.left[rec.Partition]
	if !ok || rec.Offset >= end {
		return // written since the run began
	}
	if rec.Offset+1 == end {
		delete(r.left, rec.Partition)
	}
	if rec.Attrs.IsControl() {
		return
	}
	r.records++
	r.bytes += int64(len(rec.Key) + len(rec.Value))
	if r.ledger != nil {
		r.ledger.add(rec.Partition, rec.Offset, rec.Value)
	}
}

// started notes when the first record came.
func (c *consuming) started() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.first == 0 {
		c.first = time.Since(c.began)
	}
}

// fill brings the counts into the report.
func (c *consuming) fill(rep *Report, spans map[int32]span) {
	whole := newLedger()
	unread := 0
	for _, r := range c.readers {
		rep.Records += r.records
		rep.Bytes += r.bytes
		unread += len(r.left)
		if r.ledger != nil {
			whole.merge(r.ledger)
		}
	}
	rep.Latency = c.watch.latency()
	rep.FirstByte = float64(c.first.Nanoseconds()) / 1e6
	if !c.o.Verify {
		return
	}
	starts := make(map[int32]int64, len(spans))
	for p, s := range spans {
		starts[p] = s.start
	}
	rep.Verify = whole.verification(starts, c.o.Expect)
	v := rep.Verify
	switch {
	case v.Missing == 0 && v.Expected == 0 && rep.Bench == "consume":
		rep.note("records that are missing behind the last one of a producer do not show: say --expect with the number that `bench produce` printed")
	case v.Missing == 0:
	case unread > 0:
		rep.note("missing records may be in what was not read")
		v.Excused = true
	case v.Lost == 0:
		rep.note("partitions do not begin at 0: the missing records may have been deleted there")
		v.Excused = true
	case v.Lost < v.Missing:
		rep.note(fmt.Sprintf("partitions do not begin at 0: %d of the missing records may have been deleted there, %d were not", v.Missing-v.Lost, v.Lost))
	}
}

// fetchTimes takes the time of each fetch, from its request's first byte to its
// answer's last.
type fetchTimes struct{ watch *stopwatch }

var _ kgo.HookBrokerE2E = fetchTimes{}

// OnBrokerE2E is kgo.HookBrokerE2E.
func (f fetchTimes) OnBrokerE2E(_ kgo.BrokerMetadata, key int16, e kgo.BrokerE2E) {
	if key == fetchKey && e.Err() == nil {
		f.watch.record(e.DurationE2E())
	}
}

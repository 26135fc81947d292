package workload

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline-io/strandline/testenv"
	"github.com/strandline-io/strandline/tiers/fsys/mem"
	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

const (
	topic      = "log"
	partitions = 3
	// overhead is more than a batch of one record takes besides its value.
	overhead = 160
)

// Life is one life of a node and what is known of it.
type Life struct {
	t      testing.TB
	seed   uint64
	rng    *rand.Rand
	node   *testenv.Node
	cl     *kgo.Client
	ahead  atomic.Int64 // nanoseconds that the node's clock is ahead of the machine's
	parts  [partitions]*partition
	set    map[string]string // settings of the topic
	faulty bool
	values int
	steps  []string
}

// Begin starts a node on an empty disk and an empty bucket.
func Begin(t testing.TB, seed uint64) *Life {
	t.Helper()
	l := &Life{t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 1)), set: map[string]string{}}
	for i := range l.parts {
		l.parts[i] = newPartition()
	}
	n, err := testenv.OpenAt(t, testenv.Config(), mem.New(), memory.New(), l.now)
	if err != nil {
		t.Fatal(err)
	}
	first := map[string]string{"segment.bytes": "2000", "file.delete.delay.ms": "0", "retention.ms": "-1", "message.timestamp.after.max.ms": "9223372036854775807"}
	n.CreateTopic(topic, partitions, first)
	maps.Copy(l.set, first)
	l.take(n)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d, the steps were:\n%s", seed, strings.Join(l.steps, "\n"))
		}
	})
	return l
}

func (l *Life) now() time.Time { return time.Now().Add(time.Duration(l.ahead.Load())) }

// take makes n the node that lives on.
func (l *Life) take(n *testenv.Node) {
	if l.cl != nil {
		l.cl.Close()
	}
	l.node, l.cl = n, l.client(n, kgo.RecordPartitioner(kgo.ManualPartitioner()))
}

func (l *Life) client(n *testenv.Node, opts ...kgo.Opt) *kgo.Client {
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(n.KafkaAddr()), kgo.DefaultProduceTopic(topic), kgo.DisableIdempotentWrite(), kgo.RecordRetries(0),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerLinger(0), kgo.MetadataMinAge(10 * time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 5 * time.Millisecond }),
	}, opts...)...)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(cl.Close)
	return cl
}

// step is one kind of thing that happens.
type step struct {
	name   string
	weight int
	do     func(*Life) error
}

func steps() []step {
	return []step{
		{"produce", 30, (*Life).produce},
		{"roll", 6, (*Life).roll},
		{"copy", 10, (*Life).copy},
		{"retain", 10, (*Life).retain},
		{"trim", 5, (*Life).trim},
		{"settings", 6, (*Life).settings},
		{"switch", 2, (*Life).switchRemote},
		{"time passes", 6, (*Life).wait},
		{"faults", 4, (*Life).faults},
		{"read", 6, (*Life).read},
		{"look up", 4, (*Life).lookUp},
		{"power cut", 3, (*Life).powerCut},
		{"power cut under load", 3, (*Life).powerCutUnderLoad},
		{"kill", 3, (*Life).kill},
		{"restart", 2, (*Life).restart},
		{"lose the disk", 2, (*Life).loseDisk},
	}
}

// Live takes n steps, and then looks at everything.
func (l *Life) Live(n int) {
	l.t.Helper()
	all, total := steps(), 0
	for _, s := range all {
		total += s.weight
	}
	for i := range n {
		at := l.rng.IntN(total)
		for _, s := range all {
			if at -= s.weight; at < 0 {
				l.act(i, s)
				break
			}
		}
	}
	l.must("end", l.finish())
}

func (l *Life) act(i int, s step) {
	l.t.Helper()
	l.steps = append(l.steps, fmt.Sprintf("%3d %s", i, s.name))
	l.allow()
	l.must(s.name, s.do(l))
}

// say adds to the last step what it is about.
func (l *Life) say(format string, args ...any) {
	l.steps[len(l.steps)-1] += " " + fmt.Sprintf(format, args...)
}

func (l *Life) must(what string, err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatalf("seed %d, step %d, %s: %v", l.seed, len(l.steps)-1, what, err)
	}
}

// allow notes how far retention may have gone under the settings of now.
func (l *Life) allow() {
	limit := func(name string) int64 {
		n, err := strconv.ParseInt(l.set[name], 10, 64)
		if err != nil {
			return -1
		}
		return n
	}
	lim := limits{bytes: limit("retention.bytes"), age: -1}
	if ms := limit("retention.ms"); ms >= 0 {
		lim.age = time.Duration(ms) * time.Millisecond
	}
	for _, p := range l.parts {
		p.allow(lim, l.now())
	}
}

func (l *Life) pick() (int32, *partition) {
	i := l.rng.IntN(partitions)
	return int32(i), l.parts[i]
}

// fresh is a record that was never sent before.
func (l *Life) fresh(i int32) *kgo.Record {
	l.values++
	value := fmt.Sprintf("%d/%d %s", i, l.values, strings.Repeat("x", l.rng.IntN(300)))
	ts := l.now()
	switch l.rng.IntN(10) {
	case 0:
		ts = ts.Add(-time.Duration(l.rng.IntN(7200)) * time.Second)
	case 1:
		ts = ts.Add(time.Duration(l.rng.IntN(7200)) * time.Second)
	}
	return &kgo.Record{Partition: i, Value: []byte(value), Timestamp: ts.Truncate(time.Millisecond)}
}

func (l *Life) entry(r *kgo.Record) record {
	return record{string(r.Value), r.Timestamp.UnixMilli(), l.now(), int64(len(r.Value)) + overhead}
}

func (l *Life) produce() error {
	ctx, cancel := l.node.Context()
	defer cancel()
	i, p := l.pick()
	n := 1 + l.rng.IntN(12)
	l.say("%d records to %d", n, i)
	for range n {
		r := l.fresh(i)
		e := l.entry(r)
		if err := l.cl.ProduceSync(ctx, r).FirstErr(); err != nil {
			return err
		}
		if err := p.settle(r.Offset, e); err != nil {
			return err
		}
	}
	return nil
}

func (l *Life) roll() error {
	i, _ := l.pick()
	ctx, cancel := l.node.Context()
	defer cancel()
	return l.node.Admin().Roll(ctx, topic, i)
}

func (l *Life) copy() error {
	i, _ := l.pick()
	ctx, cancel := l.node.Context()
	defer cancel()
	err := errors.Join(l.node.Admin().Roll(ctx, topic, i), l.node.Admin().Copy(ctx, topic, i, true))
	return l.unlessFaulty(err)
}

// unlessFaulty forgives what a fault of the bucket, or a pause of the copies,
// explains.
func (l *Life) unlessFaulty(err error) error {
	if err != nil && (l.faulty || l.set["remote.log.copy.disable"] == "true" || l.set["remote.storage.enable"] == "false") {
		l.say("(%v)", err)
		return nil
	}
	return err
}

func (l *Life) retain() error {
	i, _ := l.pick()
	ctx, cancel := l.node.Context()
	defer cancel()
	return l.unlessFaulty(l.node.Admin().Retain(ctx, topic, i, true))
}

func (l *Life) trim() error {
	i, p := l.pick()
	ctx, cancel := l.node.Context()
	defer cancel()
	to := int64(-1)
	if l.rng.IntN(6) > 0 {
		to = l.rng.Int64N(p.end() + 1)
	}
	start, err := l.deleteRecords(ctx, i, to)
	l.say("%d to %d: %d", i, to, start)
	if err != nil {
		p.may = max(p.may, to) // it may have happened
		if to < 0 {
			p.may = max(p.may, p.end())
		}
		return l.unlessFaulty(err)
	}
	if start < to || to < 0 && start < p.end() {
		return fmt.Errorf("trimmed to %d, the log starts at %d", to, start)
	}
	p.trimmed, p.may = max(p.trimmed, start), max(p.may, to)
	if to < 0 {
		p.may = max(p.may, start)
	}
	if start > p.may {
		return fmt.Errorf("the log starts at %d, at most %d is right", start, p.may)
	}
	return nil
}

func (l *Life) settings() error {
	choices := map[string][]string{
		"segment.bytes":           {"700", "2000", "6000"},
		"retention.ms":            {"-1", "-1", "3600000", "86400000"},
		"retention.bytes":         {"-1", "-1", "5000", "20000"},
		"local.retention.ms":      {"-2", "-2", "600000"},
		"local.retention.bytes":   {"-2", "-2", "0", "3000"},
		"remote.log.copy.disable": {"false", "false", "false", "true"},
	}
	next := map[string]string{}
	for name := range choices {
		next[name] = l.set[name]
	}
	names := []string{"segment.bytes", "retention.ms", "retention.bytes", "local.retention.ms", "local.retention.bytes", "remote.log.copy.disable"}
	for range 1 + l.rng.IntN(3) {
		name := names[l.rng.IntN(len(names))]
		next[name] = choices[name][l.rng.IntN(len(choices[name]))]
	}
	narrow(next)
	changes := map[string]*string{}
	for name, v := range next {
		if v != "" && v != l.set[name] {
			changes[name] = &v
			l.say("%s=%s", name, v)
		}
	}
	if len(changes) == 0 {
		return nil
	}
	ctx, cancel := l.node.Context()
	defer cancel()
	err := l.node.Admin().AlterConfigs(ctx, topic, changes)
	for name, v := range changes {
		if err == nil || strings.HasPrefix(name, "retention.") { // it may hold from now on
			l.set[name] = *v
		}
	}
	l.allow()
	return l.unlessFaulty(err)
}

// switchRemote switches remote storage off, with all that only the bucket holds, or
// on again.
func (l *Life) switchRemote() error {
	on, forget := l.set["remote.storage.enable"] == "false", "true"
	enable := strconv.FormatBool(on)
	l.say("%s", enable)
	ctx, cancel := l.node.Context()
	defer cancel()
	if !on { // the log may start where the disk does from now on
		for i, p := range l.parts {
			local, err := l.offset(ctx, int32(i), -4)
			if err != nil {
				return err
			}
			p.may = max(p.may, local)
		}
	}
	err := l.node.Admin().AlterConfigs(ctx, topic, map[string]*string{"remote.storage.enable": &enable, "remote.log.delete.on.disable": &forget})
	if err == nil {
		l.set["remote.storage.enable"] = enable
	}
	if err == nil && !on {
		for i, p := range l.parts { // a copy may have ended, and its segment left the disk, in between
			local, err := l.offset(ctx, int32(i), -4)
			if err != nil {
				return err
			}
			p.may = max(p.may, local)
		}
	}
	return l.unlessFaulty(err)
}

// narrow keeps the local limits within the total ones, as must be.
func narrow(set map[string]string) {
	for _, name := range []string{"bytes", "ms"} {
		total, terr := strconv.ParseInt(set["retention."+name], 10, 64)
		local, lerr := strconv.ParseInt(set["local.retention."+name], 10, 64)
		if terr == nil && lerr == nil && total >= 0 && local > total {
			set["local.retention."+name] = "-2"
		}
	}
}

func (l *Life) wait() error {
	d := time.Duration(1+l.rng.IntN(3*3600)) * time.Second
	l.say("%s", d)
	l.ahead.Add(int64(d))
	l.allow()
	return nil
}

func (l *Life) faults() error {
	if l.faulty {
		l.node.Bucket.Clear()
		l.faulty = false
		l.say("end")
		return nil
	}
	l.faulty = true
	kinds := []memory.Fault{
		{Err: remote.ErrUnavailable},
		{Err: remote.ErrThrottled},
		{Err: remote.ErrUnknownOutcome, Applied: true, Ops: memory.OpPut},
		{Ops: memory.OpRead, Cut: true, CutAfter: 50},
		{Ops: memory.OpRead, Flip: true, FlipAt: 70},
		{Ops: memory.OpDelete, Err: remote.ErrUnavailable},
		{Ops: memory.OpPut, Err: remote.ErrUnavailable, Applied: true},
	}
	for range 1 + l.rng.IntN(3) {
		f := kinds[l.rng.IntN(len(kinds))]
		f.Key, f.Skip, f.Times = "topics/", l.rng.IntN(4), 1+l.rng.IntN(4)
		l.say("%s %v", f.Ops, f.Err)
		l.node.Bucket.Add(f)
	}
	return nil
}

func (l *Life) powerCut() error {
	l.take(l.node.Reopen(l.rng.Uint64()))
	l.faulty = false
	return nil
}

func (l *Life) kill() error {
	l.take(l.node.Kill())
	l.faulty = false
	return nil
}

func (l *Life) restart() error {
	l.node.Bucket.Clear()
	l.faulty = false
	l.node.Config.CacheBytes = 1 << (20 + l.rng.IntN(4))
	l.node.Config.CopyWorkers = int64(1 + l.rng.IntN(4))
	l.take(l.node.Restart())
	return nil
}

// powerCutUnderLoad cuts the power while producers write.
func (l *Life) powerCutUnderLoad() error {
	ctx, cancel := context.WithCancel(l.t.Context())
	defer cancel()
	cl := l.client(l.node, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	var (
		mu    sync.Mutex
		acked [partitions][]ack
		wg    sync.WaitGroup
	)
	enough := make(chan struct{}, partitions*1000)
	for i := range int32(partitions) {
		var batch []*kgo.Record
		for range 40 {
			r := l.fresh(i)
			batch = append(batch, r)
			l.parts[i].unsure[string(r.Value)] = l.entry(r)
		}
		wg.Go(func() {
			for _, r := range batch {
				if cl.ProduceSync(ctx, r).FirstErr() != nil {
					return
				}
				mu.Lock()
				acked[i] = append(acked[i], ack{r.Offset, string(r.Value)})
				mu.Unlock()
				enough <- struct{}{}
			}
		})
	}
	for range 3 + l.rng.IntN(60) {
		<-enough
	}
	// What is acknowledged now must be on the disk as it is after this moment.
	mu.Lock()
	sure := acked
	mu.Unlock()
	next := l.node.Reopen(l.rng.Uint64())
	cancel()
	wg.Wait()
	cl.Close()
	l.faulty = false
	l.take(next)
	rctx, rcancel := l.node.Context()
	defer rcancel()
	for i := range int32(partitions) {
		if err := l.readRange(rctx, i, l.parts[i], l.parts[i].end(), -1); err != nil {
			return err
		}
		l.parts[i].forget()
		for _, a := range sure[i] {
			if at, ok := l.parts[i].spent[a.value]; (!ok || at != a.offset) && a.offset >= l.parts[i].trimmed {
				return fmt.Errorf("partition %d: %q was acknowledged at %d and is at %d, %v after the power cut", i, a.value, a.offset, at, ok)
			}
		}
	}
	return nil
}

type ack struct {
	offset int64
	value  string
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline-io/strandline/gateway"
	"github.com/strandline-io/strandline/gateway/admin/client"
)

const (
	demoTopic      = "demo"
	demoPartitions = 4
	demoSegment    = 256 << 10 // bytes: small, so that segments roll
)

// demoOptions are the flags of the demo.
type demoOptions struct {
	file    string
	dir     string
	records int
	keep    bool
	verbose bool
}

func demoCommand() *cobra.Command {
	var o demoOptions
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Produce, tier, lose the disk, rebuild from the bucket, and compare every record",
		Long: `The demo starts a node with nothing but a folder as its bucket, produces real
input through a Kafka client, lets segments roll and be copied, deletes the data
directory, rebuilds it from the bucket, consumes everything and compares every
record. It listens on loopback only, on free ports.`,
		Args: exactly(),
		RunE: func(c *cobra.Command, _ []string) error { return demo(c.Context(), c.OutOrStdout(), o) },
	}
	cmd.Flags().StringVar(&o.file, "file", "", "produce the lines of this file instead of made records")
	cmd.Flags().StringVar(&o.dir, "dir", "", "work in this folder, which must not exist, and leave it (default: a temporary one)")
	cmd.Flags().IntVar(&o.records, "records", 40_000, "how many records to make")
	cmd.Flags().BoolVar(&o.keep, "keep", false, "go on serving afterwards, until interrupted")
	cmd.Flags().BoolVarP(&o.verbose, "verbose", "v", false, "show the node's log")
	return cmd
}

// show is one run of the demo.
type show struct {
	demoOptions
	out    io.Writer
	config gateway.Config
	node   *gateway.Node
	began  time.Time
	// produced is when the first record was sent. Segments are copied from then on.
	produced time.Time

	mu    sync.Mutex
	sent  map[digest]int // what was acknowledged, by content and place
	count int64
	bytes int64
	rates map[string]string // by tier: what was written there and how fast
}

func demo(ctx context.Context, out io.Writer, o demoOptions) (err error) {
	if o.records < 1 {
		return usageError{fmt.Errorf("--records %d: want at least 1", o.records)}
	}
	if o.file != "" { // before anything is started
		if st, err := os.Stat(o.file); err != nil {
			return err
		} else if st.Size() == 0 {
			return fmt.Errorf("%s is empty: there is nothing to produce", o.file)
		}
	}
	s := &show{demoOptions: o, out: out, sent: make(map[digest]int), rates: make(map[string]string), began: time.Now()}
	remove, err := s.folder()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop(), remove()) }()
	for _, step := range []func(context.Context) error{s.start, s.create, s.produce, s.tier, s.loseDisk, s.rebuild, s.start, s.compare, s.serve} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// folder makes the folder of the demo and returns what removes it.
func (s *show) folder() (remove func() error, err error) {
	remove = func() error { return nil }
	if s.dir == "" {
		if s.dir, err = os.MkdirTemp("", "strandline-demo-"); err != nil {
			return nil, err
		}
		dir := s.dir
		remove = func() error { return os.RemoveAll(dir) }
	} else {
		if s.dir, err = filepath.Abs(s.dir); err != nil {
			return nil, err
		}
		if err := os.Mkdir(s.dir, 0o750); err != nil {
			return nil, fmt.Errorf("%w: choose a folder that does not exist", err)
		}
	}
	s.config = gateway.DefaultConfig()
	s.config.DataDir = filepath.Join(s.dir, "data")
	s.config.Bucket = "dir:" + filepath.Join(s.dir, "bucket")
	s.config.Kafka.Listen, s.config.Admin.Listen = "127.0.0.1:0", "127.0.0.1:0"
	s.say("data %s, bucket %s", s.config.DataDir, s.config.Bucket)
	return remove, nil
}

func (s *show) say(format string, args ...any) {
	fmt.Fprintf(s.out, "%6.2fs  %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}

func (s *show) log() hclog.Logger {
	level := hclog.Error
	if s.verbose {
		level = hclog.Info
	}
	return hclog.New(&hclog.LoggerOptions{Name: "strandline", Level: level, Output: os.Stderr})
}

func (s *show) start(ctx context.Context) (err error) {
	if s.node, err = gateway.Start(ctx, s.config, gateway.Deps{Log: s.log(), Version: version()}); err != nil {
		return err
	}
	s.say("serving Kafka on %s, admin on %s", s.node.KafkaAddr(), s.node.AdminAddr())
	return nil
}

// stop ends the node, if one runs.
func (s *show) stop() error {
	if s.node == nil {
		return nil
	}
	n := s.node
	s.node = nil
	ctx, cancel := context.WithTimeout(context.Background(), s.config.DrainTimeout)
	defer cancel()
	return n.Stop(ctx)
}

func (s *show) admin() *client.Client { return client.New(s.node.AdminAddr(), nil) }

func (s *show) create(ctx context.Context) error {
	partitions := int32(demoPartitions)
	_, err := s.admin().CreateTopic(ctx, client.NewTopic{Name: demoTopic, Partitions: &partitions, Configs: map[string]string{
		"segment.bytes": fmt.Sprint(demoSegment), "strandline.ack": "fsync",
	}})
	return err
}

func (s *show) kafka(opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(s.node.KafkaAddr())}, opts...)...)
}

// produce sends the input and remembers what was acknowledged.
func (s *show) produce(ctx context.Context) error {
	cl, err := s.kafka(kgo.DefaultProduceTopic(demoTopic), kgo.ProducerBatchMaxBytes(64<<10), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		return err
	}
	defer cl.Close()
	began := time.Now()
	s.produced = began
	var failed error
	err = input(s.file, s.records, func(r *kgo.Record) {
		cl.Produce(ctx, r, func(r *kgo.Record, err error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if err != nil {
				failed = errors.Join(failed, err)
				return
			}
			s.sent[digestOf(r)]++
			s.count++
			s.bytes += int64(len(r.Key) + len(r.Value))
		})
	})
	if err := errors.Join(err, cl.Flush(ctx)); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if failed != nil {
		return fmt.Errorf("produce: %w", failed)
	}
	s.rates["local"] = rate(s.count, s.bytes, time.Since(began))
	s.say("produced %d records, %s, each acknowledged after fsync: %s", s.count, humanBytes(s.bytes), s.rates["local"])
	return nil
}

// tier waits until every segment is in the bucket. The active ones are closed
// first, so that nothing is left behind.
func (s *show) tier(ctx context.Context) error {
	a := s.admin()
	for p := range int32(demoPartitions) {
		if err := a.Roll(ctx, demoTopic, p); err != nil {
			return err
		}
	}
	for p := range int32(demoPartitions) {
		if err := a.Copy(ctx, demoTopic, p, true); err != nil {
			return err
		}
	}
	s.rates["remote"] = rate(s.count, s.bytes, time.Since(s.produced))
	s.say("every segment is closed, in the bucket, and was read back")
	return s.table(ctx, "before the disk is lost; written at")
}

func (s *show) loseDisk(context.Context) error {
	if err := s.stop(); err != nil {
		return err
	}
	if err := os.RemoveAll(s.config.DataDir); err != nil {
		return err
	}
	s.say("stopped, and deleted %s: the disk is lost", s.config.DataDir)
	return nil
}

func (s *show) rebuild(ctx context.Context) error {
	rep, err := gateway.Rebuild(ctx, s.config, gateway.RebuildDeps{Log: s.log()})
	if err != nil {
		return err
	}
	s.say("rebuilt from the bucket alone:")
	if _, err := rep.WriteTo(s.out); err != nil {
		return err
	}
	if !rep.Whole() {
		return errors.New("the rebuild did not find everything")
	}
	return nil
}

// compare consumes the topic from its start and holds every record against what
// was acknowledged.
func (s *show) compare(ctx context.Context) error {
	cl, err := s.kafka(kgo.ConsumeTopics(demoTopic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	began := time.Now()
	var count, bytes int64
	for count < s.count {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return fmt.Errorf("%d of %d records came back: %w", count, s.count, err)
		}
		var bad error
		fetches.EachError(func(topic string, p int32, err error) { bad = errors.Join(bad, fmt.Errorf("%s-%d: %w", topic, p, err)) })
		fetches.EachRecord(func(r *kgo.Record) {
			d := digestOf(r)
			if s.sent[d] == 0 {
				bad = errors.Join(bad, fmt.Errorf("partition %d, offset %d: not a record that was acknowledged there", r.Partition, r.Offset))
			}
			delete(s.sent, d)
			count++
			bytes += int64(len(r.Key) + len(r.Value))
		})
		if bad != nil {
			return bad
		}
	}
	if len(s.sent) > 0 {
		return fmt.Errorf("%d records did not come back", len(s.sent))
	}
	s.rates = map[string]string{"local": "-", "remote": rate(count, bytes, time.Since(began))}
	s.say("consumed %d records from the bucket: %s", count, s.rates["remote"])
	if err := s.table(ctx, "after the rebuild; read at"); err != nil {
		return err
	}
	s.say("all %d records are the same: partition, offset, timestamp, key, value and headers", count)
	return nil
}

// table prints what each tier holds.
func (s *show) table(ctx context.Context, when string) error {
	type tier struct{ segments, records, bytes int64 }
	tiers := map[string]*tier{"local": {}, "remote": {}}
	for p := range int32(demoPartitions) {
		segments, err := s.admin().Segments(ctx, demoTopic, p)
		if err != nil {
			return err
		}
		for _, g := range segments {
			for name, t := range tiers {
				if g.Tier == name || g.Tier == "both" {
					t.segments, t.records, t.bytes = t.segments+1, t.records+g.Next-g.Base, t.bytes+g.Bytes
				}
			}
		}
	}
	tw := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(tw, "%s:\n", when)
	fmt.Fprintln(tw, "tier\tsegments\trecords\tbytes\trate\t")
	for _, name := range []string{"local", "remote"} {
		t := tiers[name]
		fmt.Fprintf(tw, "%s\t%d\t%d\t%d\t%s\t\n", name, t.segments, t.records, t.bytes, s.rates[name])
	}
	return tw.Flush()
}

// serve goes on serving with --keep.
func (s *show) serve(ctx context.Context) error {
	if !s.keep {
		return nil
	}
	addr := s.node.KafkaAddr()
	fmt.Fprintf(s.out, `
still serving; try:
  kcat -b %[1]s -L
  kcat -b %[1]s -C -t %[2]s -o beginning -c 5 -f '%%p/%%o %%k %%s\n'
  echo hello | kcat -b %[1]s -P -t %[2]s -k me
  kcat -b %[1]s -Q -t %[2]s:0:-2
  strandline topic describe %[2]s --admin %[3]s
  strandline segments %[2]s/0 --admin %[3]s
interrupt to end
`, addr, demoTopic, s.node.AdminAddr())
	<-ctx.Done()
	return nil
}

func rate(count, bytes int64, d time.Duration) string {
	sec := max(d.Seconds(), 1e-9)
	return fmt.Sprintf("%.0f records/s, %.1f MiB/s", float64(count)/sec, float64(bytes)/sec/(1<<20))
}

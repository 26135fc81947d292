package main

import (
	"github.com/spf13/cobra"

	"github.com/strandline-io/strandline/cmd/strandline/internal/bench"
)

// consumeFlags are shared by consume and cold.
type consumeFlags struct {
	benchFlags
	fetch, partition byteSize
	clients          int
	verify, cleanup  bool
	expect           int64
}

func (f *consumeFlags) add(c *cobra.Command) {
	f.benchFlags.add(c)
	f.fetch, f.partition = 50<<20, 1<<20 // the defaults of Kafka's own consumer
	fs := c.Flags()
	fs.Var(&f.fetch, "fetch-bytes", "largest answer to a fetch")
	fs.Var(&f.partition, "partition-bytes", "most of one partition in an answer")
	fs.IntVar(&f.clients, "concurrency", 1, "clients, among which the partitions are shared out")
	fs.BoolVar(&f.verify, "verify", false, "check the number and checksum of every record that \"bench produce\" wrote")
	fs.Int64Var(&f.expect, "expect", 0, "with --verify: how many records of \"bench produce\" there are in all; fewer are a failure")
	fs.BoolVar(&f.cleanup, "cleanup", false, "delete the topic in the end, if its name begins with "+bench.TopicPrefix)
}

func (f *consumeFlags) options() (o bench.ConsumeOptions, err error) {
	if o.Target, err = f.target(); err != nil {
		return o, err
	}
	if o.MaxBytes, err = clientBytes("fetch-bytes", f.fetch); err != nil {
		return o, err
	}
	if o.MaxPartitionBytes, err = clientBytes("partition-bytes", f.partition); err != nil {
		return o, err
	}
	o.Limits, o.Clients, o.Verify, o.Expect, o.Cleanup = f.limits(), f.clients, f.verify, f.expect, f.cleanup
	return o, nil
}

func benchConsumeCommand() *cobra.Command {
	var f consumeFlags
	cmd := &cobra.Command{
		Use:   "consume",
		Short: "Read a topic from its earliest offsets and measure how fast it comes",
		Long: `Reads everything from the earliest offset of each partition up to the end that it
has when the run begins. With --verify it checks that every record that "bench
produce" wrote is there once, in order and undamaged, and exits with 1 otherwise.

Records are numbered, so a gap shows by itself. What is missing behind the last
record of a producer does not: say --expect with the number of records that "bench
produce" has printed, of all its runs on this topic together. Records may be
missing without a failure where a partition's log start is above 0, as many as are
below it, and where a limit has ended the reading early.`,
		Example: "  strandline bench consume --verify --expect 1000000\n  strandline bench consume --topic orders --brokers kafka-1:9092,kafka-2:9092 --bytes 1GiB",
		Args:    exactly(),
		RunE: func(c *cobra.Command, _ []string) error {
			o, err := f.options()
			if err != nil {
				return err
			}
			if err := o.Valid(); err != nil {
				return usageError{err}
			}
			rep, err := bench.Consume(c.Context(), o)
			return printReport(c, f.json, rep.Seconds > 0, &rep, err)
		},
	}
	f.add(cmd)
	return cmd
}

package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/strandline-io/strandline/cmd/strandline/internal/bench"
)

func benchProduceCommand() *cobra.Command {
	var f benchFlags
	o := bench.ProduceOptions{}
	size, batch := byteSize(1<<10), byteSize(0)
	var settings []string
	cmd := &cobra.Command{
		Use:   "produce",
		Short: "Write numbered records and measure how fast they are acknowledged",
		Long: `Writes records that carry their number and a checksum ("bench consume --verify"
checks them), for 10 s unless told otherwise.

Without --rate it writes as fast as the server acknowledges; the latency is then
mostly the wait in the client's own buffer. With --rate records are due at fixed
times and the latency counts from then on, so a server that stalls cannot hide it.
With --sync each client waits for one record before it sends the next.

It refuses to write to a topic that was there before, unless its name begins with
"` + bench.TopicPrefix + `" or --yes is given.`,
		Example: `  strandline bench produce --create --partitions 4 --records 1000000 --set strandline.ack=fsync
  strandline bench produce --rate 5000 --duration 30s
  strandline bench produce --sync --concurrency 1 --duration 10s --json`,
		Args: exactly(),
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if o.Target, err = f.target(); err != nil {
				return err
			}
			if o.BatchBytes, err = clientBytes("batch-bytes", batch); err != nil {
				return err
			}
			recordSize, err := clientBytes("record-size", size)
			if err != nil {
				return err
			}
			if o.Settings, err = parseSettings(settings); err != nil {
				return err
			}
			o.RecordSize, o.Limits = int(recordSize), f.limits()
			if o.Limits == (bench.Limits{}) {
				o.Duration = 10 * time.Second
			}
			if err := o.Valid(); err != nil {
				return usageError{err}
			}
			rep, err := bench.Produce(c.Context(), o)
			return printReport(c, f.json, rep.Seconds > 0, &rep, err)
		},
	}
	f.add(cmd)
	fs := cmd.Flags()
	fs.Var(&size, "record-size", "bytes of a record's value")
	fs.StringVar(&o.Fill, "fill", bench.FillRandom, "content: "+bench.FillRandom+" does not compress, "+bench.FillText+" does")
	fs.StringVar(&o.Acks, "acks", "all", "all, 1 or 0")
	fs.StringVar(&o.Compression, "compression", "none", "none, gzip, snappy, lz4 or zstd")
	fs.Var(&batch, "batch-bytes", "largest batch (0: the client's default)")
	fs.DurationVar(&o.Linger, "linger", 0, "how long a batch waits for more records")
	fs.IntVar(&o.Clients, "concurrency", 1, "clients, each with connections of its own")
	fs.IntVar(&o.Buffered, "buffered", 50_000, "records that a client holds at most")
	fs.Float64Var(&o.Rate, "rate", 0, "records per second in all (0: as fast as it goes)")
	fs.BoolVar(&o.Idempotent, "idempotent", true, "idempotent producers")
	fs.BoolVar(&o.Sync, "sync", false, "each client waits for one record before it sends the next")
	fs.BoolVar(&o.Create, "create", false, "make the topic if it is missing")
	fs.Int32VarP(&o.Partitions, "partitions", "p", 4, "partitions of a topic that is made")
	fs.Int16Var(&o.Replicas, "replicas", -1, "replication factor of a topic that is made (-1: the server's default)")
	fs.StringArrayVarP(&settings, "set", "s", nil, "a setting of a topic that is made, as NAME=VALUE; can be given several times")
	fs.BoolVar(&o.Cleanup, "cleanup", false, "delete the topic in the end")
	fs.BoolVar(&o.Yes, "yes", false, "write to an existing topic, whatever its name")
	return cmd
}

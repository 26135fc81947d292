package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/strandline-io/strandline/cmd/strandline/internal/bench"
	"github.com/strandline-io/strandline/gateway"
)

const defaultBrokers = "127.0.0.1:9092"

func benchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure a Kafka server: produce, consume, cold reads, rebuild",
		Long: `Measures any server that speaks the Kafka protocol, with standard requests only.
An interrupt ends a run early and prints what was measured so far.

With --admin the report has the CPU time and memory of the server too, from its
/metrics.`,
		Example: `  strandline bench produce --create --records 1000000
  strandline bench consume --verify
  strandline bench cold --admin 127.0.0.1:8092 --evict --bucket 's3://logs/main?region=eu-central-1'
  strandline bench rebuild --segments 1000`,
	}
	group(cmd)
	cmd.AddCommand(benchProduceCommand(), benchConsumeCommand(), benchColdCommand(), benchRebuildCommand())
	return cmd
}

// benchFlags are shared by the benchmarks that talk to a server.
type benchFlags struct {
	brokers string
	topic   string
	admin   string
	json    bool

	records  int64
	bytes    byteSize
	duration time.Duration
}

func (f *benchFlags) add(c *cobra.Command) {
	fs := c.Flags()
	fs.StringVarP(&f.brokers, "brokers", "b", defaultBrokers, "addresses of the server, with commas in between")
	fs.StringVarP(&f.topic, "topic", "t", bench.TopicPrefix, "topic")
	fs.StringVar(&f.admin, "admin", "", "admin address of a strandline node, such as "+defaultAdmin+": its CPU time and memory are reported")
	fs.BoolVar(&f.json, "json", false, "print JSON")
	fs.Int64Var(&f.records, "records", 0, "end after so many records")
	fs.Var(&f.bytes, "bytes", "end after so many bytes, such as 1GiB")
	fs.DurationVar(&f.duration, "duration", 0, "end after this time, such as 30s")
}

func (f *benchFlags) target() (bench.Target, error) {
	t := bench.Target{Topic: f.topic, Admin: f.admin}
	for b := range strings.SplitSeq(f.brokers, ",") {
		if b = strings.TrimSpace(b); b != "" {
			t.Brokers = append(t.Brokers, b)
		}
	}
	switch {
	case len(t.Brokers) == 0:
		return t, usageError{errors.New("--brokers names no address")}
	case f.topic == "":
		return t, usageError{errors.New("--topic is empty")}
	case f.records < 0 || f.duration < 0:
		return t, usageError{errors.New("--records and --duration are not negative")}
	}
	return t, nil
}

func (f *benchFlags) limits() bench.Limits {
	return bench.Limits{Records: f.records, Bytes: int64(f.bytes), Duration: f.duration}
}

// printReport prints what was measured, whatever came of the run, and returns
// what came of it. A report without any measurement is not printed.
func printReport(c *cobra.Command, asJSON, measured bool, rep io.WriterTo, err error) error {
	if errors.Is(err, bench.ErrRefused) {
		return usageError{err}
	}
	if !measured {
		return err
	}
	if asJSON {
		return errors.Join(err, printJSON(c, rep))
	}
	_, werr := rep.WriteTo(c.OutOrStdout())
	return errors.Join(err, werr)
}

// byteSize is a flag for a number of bytes with a unit.
type byteSize int64

var _ pflag.Value = (*byteSize)(nil)

func (b *byteSize) String() string { return gateway.FormatBytes(int64(*b)) }

func (*byteSize) Type() string { return "bytes" }

func (b *byteSize) Set(s string) error {
	n, err := gateway.ParseBytes(s)
	if err != nil {
		return err
	}
	*b = byteSize(n)
	return nil
}

// clientBytes is a size as Kafka clients take it: 32 bits.
func clientBytes(flag string, b byteSize) (int32, error) {
	if int64(b) > math.MaxInt32 {
		return 0, usageError{fmt.Errorf("--%s %s: at most %d bytes", flag, &b, math.MaxInt32)}
	}
	return int32(b), nil
}

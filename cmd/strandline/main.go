// Command strandline is the whole program: a tiered storage gateway for
// partitioned logs that Kafka clients talk to, and the tools around it. There is
// one file per command.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := root().ExecuteContext(ctx)
	stop()
	os.Exit(exitCode(err))
}

// exitCode prints err and says how the program ends: 0 well, 1 something failed,
// 2 it was not asked properly.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "strandline:", err)
	if _, ok := errors.AsType[usageError](err); ok {
		return 2
	}
	return 1
}

// usageError is a command line that cannot be understood.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// root is the command tree.
func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "strandline",
		Short: "A tiered storage gateway for partitioned logs that Kafka clients talk to",
		Long: `Strandline speaks the Kafka protocol, keeps the recent part of each partition in
segments on local disk and copies every closed segment to an object store, from
where it serves older records.

Begin with:  strandline demo
Then:        strandline serve --data-dir /var/lib/strandline --bucket 's3://BUCKET/PREFIX?region=...'`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version(),
	}
	cmd.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w (see %s --help)", err, c.CommandPath())}
	})
	group(cmd)
	cmd.AddCommand(serveCommand(), demoCommand(), topicCommand(), segmentsCommand(), costCommand(), sweepCommand(), rebuildCommand(), configCommand(), doctorCommand(), benchCommand(), versionCommand())
	return cmd
}

// group makes a command that only holds others refuse what is none of them.
func group(cmd *cobra.Command) {
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return c.Help()
		}
		return usageError{fmt.Errorf("%s: there is no command %q (see %s --help)", c.CommandPath(), args[0], c.CommandPath())}
	}
}

// exactly is cobra.ExactArgs with an error that tells what is missing.
func exactly(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return usageError{fmt.Errorf("%s: %s is missing (see %s --help)", c.CommandPath(), names[len(args)], c.CommandPath())}
		case len(args) > len(names):
			return usageError{fmt.Errorf("%s: %q is too much (see %s --help)", c.CommandPath(), args[len(names)], c.CommandPath())}
		}
		return nil
	}
}

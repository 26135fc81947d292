package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/strandline-io/strandline/gateway"
	"github.com/strandline-io/strandline/tiers"
)

func serveCommand() *cobra.Command {
	var takeOver bool
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a node",
		Long: `Run a node until SIGTERM or an interrupt. It then stops accepting, finishes what is
under way, syncs, writes a snapshot to the bucket and exits with 0; a second
signal ends it at once, which loses nothing that was acknowledged in fsync mode.

Values come from flags, then the environment (STRANDLINE_...), then the file given
with --config, then the defaults. "strandline config print" shows the outcome.`,
		Example: `  strandline serve --data-dir /var/lib/strandline --bucket dir:/srv/bucket
  strandline serve --config /etc/strandline.yaml`,
		Args: exactly(),
		RunE: func(c *cobra.Command, _ []string) error {
			l, err := loadConfig(c)
			if err != nil {
				return usageError{err}
			}
			if err := l.Validate(); err != nil {
				return usageError{err}
			}
			return serve(c, l, takeOver)
		},
	}
	addConfigFlags(cmd.Flags())
	cmd.Flags().BoolVar(&takeOver, "take-over", false, "use the bucket although another data directory used it since, and give up what that one wrote")
	return cmd
}

// serve runs the node. Standard output gets one line, once it serves: "ready
// kafka=HOST:PORT admin=HOST:PORT". The log goes to standard error.
func serve(c *cobra.Command, l *gateway.Loaded, takeOver bool) error {
	log := gateway.NewLogger(l.Config, os.Stderr)
	for _, w := range l.Warnings {
		log.Warn(w)
	}
	node, err := gateway.Start(c.Context(), l.Config, gateway.Deps{Log: log, Version: version(), Config: l.Entries(), TakeOver: takeOver})
	if tiers.KindOf(err) == tiers.InvalidConfig { // what only a try shows: no such bucket, keys, a folder that is gone
		return usageError{err}
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(c.OutOrStdout(), "ready kafka=%s admin=%s\n", node.KafkaAddr(), node.AdminAddr())
	<-c.Context().Done()
	ctx, cancel := context.WithTimeout(context.Background(), l.DrainTimeout)
	defer cancel()
	// From here on a signal ends the process at once.
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	return node.Stop(ctx)
}

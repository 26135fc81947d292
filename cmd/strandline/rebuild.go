package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/strandline-io/strandline/gateway"
)

func rebuildCommand() *cobra.Command {
	var data string
	var dryRun, asJSON bool
	cmd := &cobra.Command{
		Use:   "rebuild",
		Short: "Bring a cluster back on an empty machine from its bucket alone",
		Long: `Reads the newest snapshot of the control plane, the changes after it, and lists the
bucket for segments that came later. Topics, settings, segments and committed
offsets come back; "strandline serve" on the same data directory then serves them.
The node that held the bucket is fenced: if it still runs, it stops acknowledging.

Says what was found, what overlaps and what is missing. Exits with 1 if something
that was acknowledged and copied could not be found; what was found is there all
the same.`,
		Example: "  strandline rebuild --bucket 's3://logs/main?region=eu-central-1' --data /var/lib/strandline --dry-run",
		Args:    exactly(),
		RunE: func(c *cobra.Command, _ []string) error {
			l, err := loadConfig(c)
			if err != nil {
				return usageError{err}
			}
			if data != "" {
				if c.Flags().Changed("data-dir") {
					return usageError{errors.New("--data and --data-dir name the same thing: give one of them")}
				}
				if l.DataDir, err = filepath.Abs(data); err != nil {
					return err
				}
			}
			if l.Bucket == "" || l.DataDir == "" {
				return usageError{errors.New("rebuild needs --bucket URL and --data DIR, or a configuration that has both")}
			}
			if err := l.Validate(); err != nil {
				return usageError{err}
			}
			rep, err := gateway.Rebuild(c.Context(), l.Config, gateway.RebuildDeps{DryRun: dryRun, Log: gateway.NewLogger(l.Config, c.ErrOrStderr())})
			if err != nil {
				return err
			}
			if asJSON {
				err = printJSON(c, rep)
			} else {
				_, err = rep.WriteTo(c.OutOrStdout())
			}
			if err == nil && !rep.Whole() {
				err = fmt.Errorf("not everything was found; the report has the details")
			}
			return err
		},
	}
	addConfigFlags(cmd.Flags())
	// The names of the two that it always needs, next to those of the configuration.
	cmd.Flags().StringVar(&data, "data", "", "data directory to rebuild into: empty or missing")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "change nothing, only report")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the report as JSON")
	return cmd
}

package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/strandline-io/strandline/cmd/strandline/internal/doctor"
)

func doctorCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Examine the machine, the disk and the bucket that a node would run on",
		Long: `Takes the configuration that "serve" takes and examines what a node with it stands
on: the clock, limits on files and memory, the data directory, what an fsync costs,
free space, the addresses, and of the bucket its promises, latency, throughput,
clock, claim and lifecycle rules. Says what to do about what is wrong.

It may run next to the node and before the first start: it takes neither the data
directory's lock nor the bucket's claim, and removes the files and objects that it
tries things with. Next to a busy node its figures share the disk with that.

Exits with 0 if nothing failed (warnings do not count), else with 1.`,
		Example: "  strandline doctor --config /etc/strandline.yaml\n  strandline doctor --data-dir /var/lib/strandline --bucket 's3://logs/main?region=eu-central-1' --json",
		Args:    exactly(),
		RunE: func(c *cobra.Command, _ []string) error {
			l, err := loadConfig(c)
			if err != nil {
				return usageError{err}
			}
			rep := doctor.Run(c.Context(), doctor.Options{Loaded: l})
			if asJSON {
				err = printJSON(c, rep)
			} else {
				_, err = rep.WriteTo(c.OutOrStdout())
			}
			switch n := rep.Count(doctor.Failed); {
			case err != nil:
				return err
			case rep.Interrupted:
				return errors.New("interrupted")
			case n > 0:
				return fmt.Errorf("%d of %d checks failed", n, len(rep.Checks))
			}
			return nil
		},
	}
	addConfigFlags(cmd.Flags())
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/strandline-io/strandline/gateway/admin/client"
)

func sweepCommand() *cobra.Command {
	var a adminFlags
	var dryRun, all, yes bool
	cmd := &cobra.Command{
		Use:   "sweep",
		Short: "Delete objects in the bucket that belong to nothing; --dry-run only shows them",
		Long: `Looks through the bucket of a running node, one partition at a time, for objects
of segments that no row of the control plane names, such as a copy that was cut
off may leave, and deletes those that are at least a day old. A node does this
daily by itself.

Objects from before this node's control plane was made, rebuilt or took the
bucket over are reported and left alone: run "strandline rebuild --dry-run" to
see what they are, then "strandline sweep --all --yes" if nobody needs them.`,
		Example: "  strandline sweep --dry-run",
		Args:    exactly(),
		RunE: func(c *cobra.Command, _ []string) error {
			if all && !dryRun && !yes {
				return usageError{errors.New("--all deletes objects that this node never had in its rows: look at --all --dry-run first, then say --yes")}
			}
			rep, err := a.client().Sweep(c.Context(), dryRun, all)
			if err != nil {
				return err
			}
			if a.json {
				err = printJSON(c, rep)
			} else {
				printSweep(c.OutOrStdout(), rep)
			}
			if err == nil && rep.Error != "" {
				err = errors.New("the sweep is not complete: " + rep.Error)
			}
			return err
		},
	}
	a.add(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "delete nothing")
	cmd.Flags().BoolVar(&all, "all", false, "also what was in the bucket before this control plane kept its rows")
	cmd.Flags().BoolVar(&yes, "yes", false, "yes, delete with --all")
	return cmd
}

func printSweep(w io.Writer, r client.Sweep) {
	fmt.Fprintf(w, "%d objects of %d partitions in %.1f s\n", r.Objects, r.Partitions, r.TookSeconds)
	for _, k := range []struct {
		what string
		keys client.SweepKeys
	}{
		{"that no row names", r.Orphans},
		{"without a row, from before this control plane: left", r.Unknown},
		{"that are not ours: left", r.Foreign},
	} {
		if k.keys.Count == 0 {
			continue
		}
		fmt.Fprintf(w, "%d objects (%s) %s\n", k.keys.Count, humanBytes(k.keys.Bytes), k.what)
		for _, key := range k.keys.First {
			fmt.Fprintln(w, "  "+key)
		}
		if more := k.keys.Count - int64(len(k.keys.First)); more > 0 {
			fmt.Fprintf(w, "  and %d more\n", more)
		}
	}
	if r.Young > 0 {
		fmt.Fprintf(w, "%d objects without a row are not a day old: left\n", r.Young)
	}
	if r.More {
		fmt.Fprintln(w, "there are more than one sweep takes: sweep again")
	}
	if r.DryRun {
		fmt.Fprintln(w, "dry run: nothing was deleted")
		return
	}
	fmt.Fprintf(w, "deleted %d objects\n", r.Deleted)
}

func topicReopenCommand() *cobra.Command {
	var a adminFlags
	var acceptLoss bool
	cmd := &cobra.Command{
		Use:   "reopen TOPIC/PARTITION",
		Short: "Open a partition that is offline again, now",
		Long: `A partition whose disk failed, or that could not be opened, is tried again by the
node, with growing pauses. This does it at once and says what comes of it. A
partition that serves is left alone.

If the log ends below what this run of the node has acknowledged, records are
gone, and the partition stays offline. --accept-loss goes on behind them; their offsets are given to no other records.`,
		Example: "  strandline topic reopen orders/0",
		Args:    exactly("TOPIC/PARTITION"),
		RunE: func(c *cobra.Command, args []string) error {
			topic, partition, err := parsePartition(args[0])
			if err != nil {
				return err
			}
			if err := a.client().Reopen(c.Context(), topic, partition, acceptLoss); err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "partition %s serves\n", args[0])
			return err
		},
	}
	a.add(cmd)
	cmd.Flags().BoolVar(&acceptLoss, "accept-loss", false, "go on although acknowledged records are gone")
	return cmd
}

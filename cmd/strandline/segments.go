package main

import (
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/strandline-io/strandline/gateway/admin/client"
)

func segmentsCommand() *cobra.Command {
	var a adminFlags
	var explain bool
	cmd := &cobra.Command{
		Use:     "segments TOPIC/PARTITION",
		Short:   "List the segments of a partition in both tiers, and say why they are where they are",
		Example: "  strandline segments orders/0\n  strandline segments orders/0 --explain",
		Args:    exactly("TOPIC/PARTITION"),
		RunE: func(c *cobra.Command, args []string) error {
			topic, partition, err := parsePartition(args[0])
			if err != nil {
				return err
			}
			out, err := a.client().Explain(c.Context(), topic, partition)
			switch {
			case err != nil:
				return err
			case a.json && explain:
				return printJSON(c, out)
			case a.json:
				return printJSON(c, out.Segments)
			case explain:
				return printExplained(c, out)
			}
			return printSegments(c, out.Segments)
		},
	}
	a.add(cmd)
	cmd.Flags().BoolVar(&explain, "explain", false, "say why each segment is where it is, and what retention will do next")
	return cmd
}

// printExplained prints one line per segment, then the sums.
func printExplained(c *cobra.Command, x client.Segments) error {
	w := c.OutOrStdout()
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "BASE\tNEXT\tTIER\tSTATE\tSIZE\tNEWEST RECORD\tWHY")
	for _, s := range x.Segments {
		fmt.Fprintf(tw, "%d\t%d\t%s\t%s\t%s\t%s\t%s\n", s.Base, s.Next, s.Tier, s.State, humanBytes(s.Bytes), timeText(s.MaxTimestamp), s.Why)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	m := x.Summary
	fmt.Fprintf(w, "offsets: log start %d, local start %d, remote end %d, high watermark %d, log end %d\n",
		m.LogStart, m.LocalLogStart, m.RemoteEnd, m.HighWatermark, m.LogEnd)
	fmt.Fprintf(w, "bytes: %s on disk, %s in the bucket, %s of them in both; %s to be copied still\n",
		humanBytes(m.LocalBytes), humanBytes(m.RemoteBytes), humanBytes(m.BothBytes), humanBytes(m.CopyLagBytes))
	for _, next := range m.Next {
		fmt.Fprintf(w, "retention: %s\n", next)
	}
	return nil
}

// parsePartition reads TOPIC/PARTITION. Topic names have no slash.
func parsePartition(s string) (topic string, partition int32, err error) {
	topic, index, ok := strings.Cut(s, "/")
	n, err := strconv.ParseInt(index, 10, 32)
	if !ok || topic == "" || err != nil || n < 0 {
		return "", 0, usageError{fmt.Errorf("%q: write it as TOPIC/PARTITION, such as orders/0", s)}
	}
	return topic, int32(n), nil
}

func printSegments(c *cobra.Command, segments []client.Segment) error {
	tw := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "BASE\tNEXT\tTIER\tSTATE\tSIZE\tNEWEST RECORD\tEPOCHS\tOBJECT")
	for _, s := range segments {
		var epochs []string
		for _, e := range s.Epochs {
			epochs = append(epochs, fmt.Sprintf("%d:%d", e.Epoch, e.Start))
		}
		fmt.Fprintf(tw, "%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\n", s.Base, s.Next, s.Tier, s.State, humanBytes(s.Bytes), timeText(s.MaxTimestamp), strings.Join(epochs, " "), s.Key)
	}
	return tw.Flush()
}

// humanBytes prints a size for people.
func humanBytes(n int64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	v, i := float64(n)/1024, 0
	for v >= 1024 && i < len(units)-1 {
		v, i = v/1024, i+1
	}
	return fmt.Sprintf("%.1f %ciB", v, units[i])
}

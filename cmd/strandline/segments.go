package main

import (
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/strandline-io/strandline/gateway/admin/client"
)

func segmentsCommand() *cobra.Command {
	var a adminFlags
	cmd := &cobra.Command{
		Use:     "segments TOPIC/PARTITION",
		Short:   "List the segments of a partition in both tiers",
		Example: "  strandline segments orders/0",
		Args:    exactly("TOPIC/PARTITION"),
		RunE: func(c *cobra.Command, args []string) error {
			topic, partition, err := parsePartition(args[0])
			if err != nil {
				return err
			}
			segments, err := a.client().Segments(c.Context(), topic, partition)
			if err != nil {
				return err
			}
			if a.json {
				return printJSON(c, segments)
			}
			return printSegments(c, segments)
		},
	}
	a.add(cmd)
	return cmd
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
		newest := "-"
		if s.MaxTimestamp >= 0 {
			newest = time.UnixMilli(s.MaxTimestamp).UTC().Format("2006-01-02 15:04:05.000")
		}
		var epochs []string
		for _, e := range s.Epochs {
			epochs = append(epochs, fmt.Sprintf("%d:%d", e.Epoch, e.Start))
		}
		fmt.Fprintf(tw, "%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\n", s.Base, s.Next, s.Tier, s.State, humanBytes(s.Bytes), newest, strings.Join(epochs, " "), s.Key)
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

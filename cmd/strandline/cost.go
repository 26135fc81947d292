package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/strandline-io/strandline/gateway/admin/client"
)

func costCommand() *cobra.Command {
	var a adminFlags
	cmd := &cobra.Command{
		Use:   "cost",
		Short: "Show what a running node asks of its bucket, by topic, and what that costs",
		Long: `Show requests, bytes and money by topic since the node started, by the price table
of its configuration (cost.*). PER 30 DAYS is what a month costs if requests and
reads go on as they did since the start and storage stays as it is: a guess, not a
bill.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cost, err := a.client().Cost(c.Context())
			if err != nil {
				return err
			}
			if a.json {
				return printJSON(c, cost)
			}
			return printCost(c.OutOrStdout(), cost)
		},
	}
	a.add(cmd)
	return cmd
}

func printCost(out io.Writer, cost client.Cost) error {
	p := cost.Prices
	fmt.Fprintf(out, "Since %s (%s). Prices in %s: %g per million writes, %g per million reads, %g per GiB and 30 days, %g per GiB read.\n\n",
		cost.Since.Format(time.DateTime), (time.Duration(cost.Seconds) * time.Second).String(), p.Currency,
		p.PutPerMillion, p.GetPerMillion, p.StorageGiBMonth, p.EgressGiB)
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "TOPIC\tWRITES\tREADS\tDELETES\tREFUSED\tUP\tDOWN\tSTORED\tREQUESTS+READS\tSTORAGE/30D\tPER 30 DAYS\t")
	for _, l := range cost.Topics {
		printCostLine(tw, l.Topic, l)
	}
	printCostLine(tw, "(cluster)", cost.Cluster)
	printCostLine(tw, "(deleted topics)", cost.Deleted)
	printCostLine(tw, "TOTAL", cost.Total)
	if err := tw.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out, "\nPER 30 DAYS is extrapolated from the time since the start. Prices are those of the configuration, not of your store.")
	return err
}

func printCostLine(tw io.Writer, name string, l client.CostLine) {
	month := "-"
	if l.Projected30d != nil {
		month = money(*l.Projected30d)
	}
	fmt.Fprintf(tw, "%s\t%d\t%d\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t\n", name, l.Writes, l.Reads, l.Deletes, l.Refused,
		humanBytes(l.BytesUp), humanBytes(l.BytesDown), humanBytes(l.StoredBytes), money(l.Requests+l.Egress), money(l.Storage), month)
}

// money prints an amount with as many digits as say something.
func money(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 0.01:
		return fmt.Sprintf("%.6f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

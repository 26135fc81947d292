package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/strandline-io/strandline/gateway/admin/client"
)

const defaultAdmin = "127.0.0.1:8092"

// adminFlags are shared by the commands that talk to a running node.
type adminFlags struct {
	address string
	json    bool
}

func (a *adminFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&a.address, "admin", defaultAdmin, "admin address of the node")
	c.Flags().BoolVar(&a.json, "json", false, "print JSON")
}

func (a *adminFlags) client() *client.Client { return client.New(a.address, nil) }

func topicCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "topic", Short: "Create, list, describe, configure, copy, trim and delete topics of a running node"}
	group(cmd)
	cmd.AddCommand(topicCreateCommand(), topicListCommand(), topicDescribeCommand(), topicConfigCommand(), topicRollCommand(), topicCopyCommand(), topicTrimCommand(), topicRetainCommand(), topicDeleteCommand(), topicReopenCommand())
	return cmd
}

func topicCreateCommand() *cobra.Command {
	var a adminFlags
	var partitions int32
	var settings []string
	var check bool
	cmd := &cobra.Command{
		Use:     "create TOPIC",
		Short:   "Create a topic",
		Example: "  strandline topic create orders --partitions 4 --set segment.bytes=67108864 --set strandline.ack=fsync",
		Args:    exactly("the name of the topic"),
		RunE: func(c *cobra.Command, args []string) error {
			configs, err := parseSettings(settings)
			if err != nil {
				return err
			}
			req := client.NewTopic{Name: args[0], Configs: configs, CheckOnly: check}
			if c.Flags().Changed("partitions") {
				req.Partitions = &partitions
			}
			t, err := a.client().CreateTopic(c.Context(), req)
			if err != nil {
				return err
			}
			if a.json {
				return printJSON(c, t)
			}
			if check {
				_, err = fmt.Fprintf(c.OutOrStdout(), "topic %s could be created\n", args[0])
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "created topic %s, partitions: %d, id %s\n", t.Name, t.Partitions, t.ID)
			return err
		},
	}
	a.add(cmd)
	cmd.Flags().Int32VarP(&partitions, "partitions", "p", 0, "number of partitions (default: the node's)")
	cmd.Flags().StringArrayVarP(&settings, "set", "s", nil, "a setting as NAME=VALUE; can be given several times")
	cmd.Flags().BoolVar(&check, "check-only", false, "only say whether the topic could be created")
	return cmd
}

// parseSettings reads NAME=VALUE pairs.
func parseSettings(pairs []string) (map[string]string, error) {
	out := make(map[string]string, len(pairs))
	for _, p := range pairs {
		name, value, ok := strings.Cut(p, "=")
		if !ok || name == "" {
			return nil, usageError{fmt.Errorf("setting %q: write it as NAME=VALUE", p)}
		}
		if _, twice := out[name]; twice {
			return nil, usageError{fmt.Errorf("setting %s is given twice", name)}
		}
		out[name] = value
	}
	return out, nil
}

func topicListCommand() *cobra.Command {
	var a adminFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the topics",
		Args:  exactly(),
		RunE: func(c *cobra.Command, _ []string) error {
			topics, err := a.client().Topics(c.Context())
			if err != nil {
				return err
			}
			if a.json {
				return printJSON(c, topics)
			}
			tw := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(tw, "TOPIC\tPARTITIONS\tID\tSETTINGS")
			for _, t := range topics {
				fmt.Fprintf(tw, "%s\t%d\t%s\t%s\n", t.Name, t.Partitions, t.ID, settingsText(t.Configs))
			}
			return tw.Flush()
		},
	}
	a.add(cmd)
	return cmd
}

func settingsText(configs map[string]string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(configs)) {
		parts = append(parts, name+"="+configs[name])
	}
	return strings.Join(parts, " ")
}

func topicDescribeCommand() *cobra.Command {
	var a adminFlags
	cmd := &cobra.Command{
		Use:   "describe TOPIC",
		Short: "Show the partitions of a topic with their offsets and the bytes in each tier",
		Args:  exactly("the name of the topic"),
		RunE: func(c *cobra.Command, args []string) error {
			t, err := a.client().Topic(c.Context(), args[0])
			if err != nil {
				return err
			}
			if a.json {
				return printJSON(c, t)
			}
			w := c.OutOrStdout()
			fmt.Fprintf(w, "topic %s  id %s  created %s\n", t.Name, t.ID, t.CreatedAt.Format("2006-01-02 15:04:05Z07:00"))
			if len(t.Configs) > 0 {
				fmt.Fprintf(w, "settings %s\n", settingsText(t.Configs))
			}
			tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
			fmt.Fprintln(tw, "PARTITION\tSTATE\tEPOCH\tLOG START\tLOCAL START\tREMOTE END\tHIGH WATERMARK\tLOG END\tLOCAL\tREMOTE")
			for _, p := range t.Detail {
				fmt.Fprintf(tw, "%d\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%s in %d\t%s in %d\n", p.Index, p.State, p.LeaderEpoch, p.LogStart, p.LocalLogStart,
					p.RemoteEnd, p.HighWatermark, p.LogEnd, humanBytes(p.LocalBytes), p.LocalSegments, humanBytes(p.RemoteBytes), p.RemoteSegments)
			}
			if err := tw.Flush(); err != nil {
				return err
			}
			for _, p := range t.Detail {
				if p.Reason != "" {
					fmt.Fprintf(w, "partition %d: %s\n", p.Index, p.Reason)
				}
			}
			return nil
		},
	}
	a.add(cmd)
	return cmd
}

func topicDeleteCommand() *cobra.Command {
	var a adminFlags
	var yes bool
	cmd := &cobra.Command{
		Use:   "delete TOPIC",
		Short: "Delete a topic and its records in both tiers",
		Args:  exactly("the name of the topic"),
		RunE: func(c *cobra.Command, args []string) error {
			if !yes {
				return usageError{errors.New("this deletes every record of the topic on disk and in the bucket: say --yes")}
			}
			if err := a.client().DeleteTopic(c.Context(), args[0]); err != nil {
				return err
			}
			_, err := fmt.Fprintf(c.OutOrStdout(), "deleted topic %s; its objects go in the background\n", args[0])
			return err
		},
	}
	a.add(cmd)
	cmd.Flags().BoolVar(&yes, "yes", false, "yes, delete it")
	return cmd
}

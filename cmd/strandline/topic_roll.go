package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/strandline-io/strandline/gateway/admin/client"
)

func topicRollCommand() *cobra.Command {
	cmd := partitionsCommand("closed", func(ctx context.Context, a *client.Client, topic string, p int32) error {
		return a.Roll(ctx, topic, p)
	})
	cmd.Use = "roll TOPIC/PARTITION | TOPIC"
	cmd.Short = "Close the active segment now, instead of when it is full or old"
	cmd.Long = `Closes the active segment of a partition, or of every partition of a topic, and
begins a new one. Only closed segments are copied to the bucket: "strandline topic
copy" waits for that.`
	cmd.Example = "  strandline topic roll orders && strandline topic copy orders"
	return cmd
}

func topicCopyCommand() *cobra.Command {
	cmd := partitionsCommand("copied", func(ctx context.Context, a *client.Client, topic string, p int32) error {
		return a.Copy(ctx, topic, p, true)
	})
	cmd.Use = "copy TOPIC/PARTITION | TOPIC"
	cmd.Short = "Copy closed segments to the bucket now, and wait until they are there"
	cmd.Long = `Returns once every closed segment of a partition, or of every partition of a topic,
is in the bucket. What is in the active segment is not: "strandline topic roll"
closes it.`
	cmd.Example = "  strandline topic copy orders\n  strandline topic copy orders/0"
	return cmd
}

// partitionsCommand does one thing to a partition, or to all of a topic in turn.
func partitionsCommand(done string, do func(context.Context, *client.Client, string, int32) error) *cobra.Command {
	var a adminFlags
	cmd := &cobra.Command{
		Args: exactly("TOPIC/PARTITION or TOPIC"),
		RunE: func(c *cobra.Command, args []string) error {
			topic, partitions, err := partitionsOf(c, &a, args[0])
			if err != nil {
				return err
			}
			for _, p := range partitions {
				if err := do(c.Context(), a.client(), topic, p); err != nil {
					return fmt.Errorf("%s/%d: %w", topic, p, err)
				}
			}
			if a.json {
				return printJSON(c, map[string]any{"topic": topic, "partitions": partitions})
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "%s: %s, partitions %v\n", topic, done, partitions)
			return err
		},
	}
	a.add(cmd)
	return cmd
}

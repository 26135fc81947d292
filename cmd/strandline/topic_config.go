package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/strandline-io/strandline/gateway/admin/client"
)

func topicConfigCommand() *cobra.Command {
	var a adminFlags
	var set, unset []string
	var yes bool
	cmd := &cobra.Command{
		Use:   "config TOPIC",
		Short: "Show or change the settings of a topic",
		Long: `Shows the settings of a topic, or changes some of them and shows those.

A change that makes retention delete more than it would have, or that switches the
bucket off for the topic, first says what would go, and is made with --yes only.`,
		Example: "  strandline topic config orders\n" +
			"  strandline topic config orders --set segment.ms=60000 --unset strandline.ack\n" +
			"  strandline topic config orders --set retention.ms=3600000 --yes",
		Args: exactly("the name of the topic"),
		RunE: func(c *cobra.Command, args []string) error {
			changes, err := settingChanges(set, unset)
			if err != nil {
				return err
			}
			if len(changes) > 0 {
				if err := checkDeletion(c, &a, args[0], changes, yes); err != nil {
					return err
				}
				if err := a.client().AlterConfigs(c.Context(), args[0], changes); err != nil {
					return err
				}
				if err := warnIdle(c, &a, args[0], changes); err != nil {
					return err
				}
			}
			return showConfigs(c.Context(), c, &a, args[0], changes)
		},
	}
	a.add(cmd)
	cmd.Flags().StringArrayVarP(&set, "set", "s", nil, "a setting as NAME=VALUE; can be given several times")
	cmd.Flags().StringArrayVarP(&unset, "unset", "u", nil, "a setting to put back to its default; can be given several times")
	cmd.Flags().BoolVar(&yes, "yes", false, "yes, also if that deletes records")
	return cmd
}

// checkDeletion says what a change of settings would delete, and refuses it unless
// yes.
func checkDeletion(c *cobra.Command, a *adminFlags, topic string, changes map[string]*string, yes bool) error {
	effects, err := a.client().CheckConfigs(c.Context(), topic, changes)
	if err != nil || len(effects) == 0 {
		return err
	}
	w := c.ErrOrStderr()
	fmt.Fprintln(w, "with these settings, retention deletes:")
	for _, e := range effects {
		if e.Unknown != "" {
			fmt.Fprintf(w, "  %s/%d: not known, the partition could not be asked: %s\n", topic, e.Partition, e.Unknown)
			continue
		}
		fmt.Fprintf(w, "  %s/%d: offsets [%d,%d), segments: %d, %s on disk, %s in the bucket\n",
			topic, e.Partition, e.LogStart, e.NewLogStart, e.Segments, humanBytes(e.LocalBytes), humanBytes(e.RemoteBytes))
	}
	if !yes {
		return usageError{errors.New("nothing was changed: say --yes if that is what you want")}
	}
	return nil
}

func settingChanges(set, unset []string) (map[string]*string, error) {
	values, err := parseSettings(set)
	if err != nil {
		return nil, err
	}
	out := make(map[string]*string, len(values)+len(unset))
	for name, v := range values {
		out[name] = &v
	}
	for _, name := range unset {
		if _, twice := out[name]; twice {
			return nil, usageError{fmt.Errorf("setting %s is set and unset", name)}
		}
		out[name] = nil
	}
	return out, nil
}

// warnIdle says which of the changed settings do nothing in this version.
func warnIdle(c *cobra.Command, a *adminFlags, topic string, changes map[string]*string) error {
	entries, err := a.client().Configs(c.Context(), topic)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if _, changed := changes[e.Name]; changed && strings.Contains(e.Doc, "ithout effect") {
			fmt.Fprintf(c.ErrOrStderr(), "note: %s is stored, but without effect in this version\n", e.Name)
		}
	}
	return nil
}

// showConfigs prints the settings of a topic: those that were changed, all if none
// was.
func showConfigs(ctx context.Context, c *cobra.Command, a *adminFlags, topic string, changes map[string]*string) error {
	entries, err := a.client().Configs(ctx, topic)
	if err != nil {
		return err
	}
	if len(changes) > 0 {
		entries = slices.DeleteFunc(entries, func(e client.ConfigEntry) bool { _, changed := changes[e.Name]; return !changed })
	}
	if a.json {
		return printJSON(c, entries)
	}
	tw := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "SETTING\tVALUE\tSOURCE\tDEFAULT")
	for _, e := range entries {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", e.Name, e.Value, e.Source, e.Default)
	}
	return tw.Flush()
}

package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/strandline-io/strandline/gateway/admin/client"
)

// trimFlags say up to where to trim, and how seriously that is meant.
type trimFlags struct {
	to, before      string
	yes, allowNewer bool
}

func topicTrimCommand() *cobra.Command {
	var a adminFlags
	var f trimFlags
	cmd := &cobra.Command{
		Use:   "trim TOPIC/PARTITION | TOPIC",
		Short: "Delete the oldest records of a partition, or of every partition of a topic, in both tiers",
		Long: `Deletes the records below an offset, on disk and in the bucket. The new log start
is remembered in the bucket before anything goes; a rebuild does not bring the
records back. Without --yes it only says what would go.

--before TIME trims to the first record that is not older than TIME. Times need not
be in order: older records behind that one stay. Where --to is given as well, it
says up to where, and --before that nothing as new as TIME may go; that is refused
unless --allow-newer says otherwise.

TIME is 2026-05-04T03:02:01Z (RFC 3339), 2026-05-04 (UTC) or milliseconds since 1970.`,
		Example: "  strandline topic trim orders/0 --to 1000\n" +
			"  strandline topic trim orders/0 --to 1000 --yes\n" +
			"  strandline topic trim orders --before 2026-05-04 --yes\n" +
			"  strandline topic trim orders --to latest --yes",
		Args: exactly("TOPIC/PARTITION or TOPIC"),
		RunE: func(c *cobra.Command, args []string) error { return trim(c, &a, f, args[0]) },
	}
	a.add(cmd)
	cmd.Flags().StringVar(&f.to, "to", "", "first offset that stays, or latest: everything that consumers can see goes")
	cmd.Flags().StringVar(&f.before, "before", "", "time that no record that goes may have reached")
	cmd.Flags().BoolVar(&f.yes, "yes", false, "yes, delete them")
	cmd.Flags().BoolVar(&f.allowNewer, "allow-newer", false, "yes, also records that are not older than --before")
	return cmd
}

// trim plans every partition before it trims the first one.
func trim(c *cobra.Command, a *adminFlags, f trimFlags, what string) error {
	req, err := f.request()
	if err != nil {
		return err
	}
	topic, partitions, err := partitionsOf(c, a, what)
	if err != nil {
		return err
	}
	if len(partitions) > 1 && req.To != nil && *req.To != client.Latest {
		return usageError{fmt.Errorf("%s has %d partitions, and an offset means something else in each: name one, such as %s/0", topic, len(partitions), topic)}
	}
	plans := []client.Trimmed{}
	req.DryRun = true
	for _, p := range partitions {
		t, err := a.client().Trim(c.Context(), topic, p, req)
		if err != nil {
			return fmt.Errorf("%s/%d: nothing was deleted: %w", topic, p, err)
		}
		plans = append(plans, t)
	}
	if f.yes {
		if err := f.refuseNewer(plans); err != nil {
			return err
		}
		req.DryRun, req.Confirm = false, true
		for i, t := range plans {
			req.To = new(client.Position(t.Offset)) // what was planned, whatever was written since
			if plans[i], err = a.client().Trim(c.Context(), topic, t.Partition, req); err != nil {
				return errors.Join(printTrimmed(c.OutOrStdout(), plans[:i]), fmt.Errorf("%s/%d: %w", topic, t.Partition, err))
			}
		}
	}
	if a.json {
		return printJSON(c, plans)
	}
	if err := printTrimmed(c.OutOrStdout(), plans); err != nil || f.yes {
		return err
	}
	_, err = fmt.Fprintln(c.OutOrStdout(), f.advice(plans))
	return err
}

func (f trimFlags) request() (client.Trim, error) {
	out := client.Trim{AllowNewer: f.allowNewer}
	if f.to == "" && f.before == "" {
		return out, usageError{errors.New("say up to where: --to OFFSET, --to latest or --before TIME")}
	}
	switch n, err := strconv.ParseInt(f.to, 10, 64); {
	case f.to == "":
	case f.to == "latest":
		out.To = new(client.Latest)
	case err != nil || n < 0:
		return out, usageError{fmt.Errorf("--to %s: give an offset or latest", f.to)}
	default:
		out.To = new(client.Position(n))
	}
	if f.before != "" {
		at, err := parseInstant(f.before)
		if err != nil {
			return out, err
		}
		out.Before = &at
	}
	return out, nil
}

func parseInstant(s string) (client.Instant, error) {
	if ms, err := strconv.ParseInt(s, 10, 64); err == nil && ms >= 0 {
		return client.Instant(ms), nil
	}
	for _, layout := range []string{time.RFC3339Nano, time.DateOnly} {
		if at, err := time.Parse(layout, s); err == nil && at.UnixMilli() >= 0 {
			return client.Instant(at.UnixMilli()), nil
		}
	}
	return 0, usageError{fmt.Errorf("--before %s: write 2026-05-04T03:02:01Z, 2026-05-04 or milliseconds since 1970", s)}
}

// refuseNewer refuses the whole command, so that not half of a topic is trimmed.
func (f trimFlags) refuseNewer(plans []client.Trimmed) error {
	if f.allowNewer {
		return nil
	}
	var where []string
	for _, t := range plans {
		if t.Newer {
			where = append(where, fmt.Sprintf("%s/%d up to %s", t.Topic, t.Partition, timeText(t.Newest)))
		}
	}
	if len(where) == 0 {
		return nil
	}
	return usageError{fmt.Errorf("nothing was deleted: records that are not older than %s would go (%s): say --allow-newer if that is what you want", f.before, strings.Join(where, ", "))}
}

func (f trimFlags) advice(plans []client.Trimmed) string {
	for _, t := range plans {
		if t.Newer && !f.allowNewer {
			return "a dry run, nothing was deleted. Records that are not older than " + f.before + " would go: --yes alone does not do that, --allow-newer is needed too"
		}
	}
	return "a dry run, nothing was deleted: say --yes to do it"
}

// partitionsOf reads TOPIC/PARTITION or TOPIC, which stands for all of them.
func partitionsOf(c *cobra.Command, a *adminFlags, what string) (string, []int32, error) {
	if strings.Contains(what, "/") {
		topic, p, err := parsePartition(what)
		return topic, []int32{p}, err
	}
	t, err := a.client().Topic(c.Context(), what)
	if err != nil {
		return "", nil, err
	}
	var out []int32
	for _, p := range t.Detail {
		out = append(out, p.Index)
	}
	return t.Name, out, nil
}

func printTrimmed(w io.Writer, ts []client.Trimmed) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "PARTITION\tLOG START\tNEW LOG START\tOFFSETS\tSEGMENTS\tON DISK\tIN BUCKET\tNEWEST RECORD")
	for _, t := range ts {
		fmt.Fprintf(tw, "%s/%d\t%d\t%d\t%d\t%d\t%s\t%s\t%s\n", t.Topic, t.Partition, t.LogStart, t.Offset, t.Offsets, t.Segments,
			humanBytes(t.LocalBytes), humanBytes(t.RemoteBytes), timeText(t.Newest))
	}
	return tw.Flush()
}

// timeText prints a record's time for people.
func timeText(ms int64) string {
	if ms < 0 {
		return "-"
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02 15:04:05.000")
}

func topicRetainCommand() *cobra.Command {
	var a adminFlags
	cmd := &cobra.Command{
		Use:   "retain TOPIC/PARTITION | TOPIC",
		Short: "Run a retention pass now, instead of within retention_check_interval",
		Long: `Applies the retention settings of the topic now and returns once what was due is gone
(objects stay in the bucket for file.delete.delay.ms). An active segment that is due is
closed, and copied first if segments are.`,
		Example: "  strandline topic retain orders\n  strandline topic retain orders/0",
		Args:    exactly("TOPIC/PARTITION or TOPIC"),
		RunE: func(c *cobra.Command, args []string) error {
			topic, partitions, err := partitionsOf(c, &a, args[0])
			if err != nil {
				return err
			}
			for _, p := range partitions {
				if err := a.client().Retain(c.Context(), topic, p, true); err != nil {
					return fmt.Errorf("%s/%d: %w", topic, p, err)
				}
			}
			if a.json {
				return printJSON(c, map[string]any{"topic": topic, "partitions": partitions})
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "retention of %s: done for partitions %v\n", topic, partitions)
			return err
		},
	}
	a.add(cmd)
	return cmd
}

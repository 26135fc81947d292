package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/strandline-io/strandline/cmd/strandline/internal/bench"
	"github.com/strandline-io/strandline/gateway"
)

func benchColdCommand() *cobra.Command {
	var f consumeFlags
	var o bench.ColdOptions
	ranged := byteSize(1 << 20)
	cmd := &cobra.Command{
		Use:   "cold",
		Short: "Read a topic that is in the object store only, next to plain ranged GETs",
		Long: `Reads a topic as "bench consume" does, after making sure, with --admin, that it is
in the object store only: --evict has the node close, copy and drop everything
that the topic holds on local disk.

A node keeps what it has read in memory, and on disk if it has a disk cache. With
--admin the report says how much came from the bucket; a run of which less than
90 % did is no cold read. --evict does not drop these caches: restart the node
between two runs, and empty the folder of the disk cache before it starts.

With --bucket it then reads the same objects by plain ranged GETs, as many at once
as the topic has partitions, and says how the two compare, if the run was a cold one.`,
		Example: "  strandline bench cold --admin 127.0.0.1:8092 --evict --bucket 's3://logs/main?region=eu-central-1' --verify",
		Args:    exactly(),
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if o.ConsumeOptions, err = f.options(); err != nil {
				return err
			}
			o.RangeBytes = int64(ranged)
			l, err := loadConfig(c)
			if err != nil {
				return usageError{err}
			}
			if c.Flags().Changed("bucket") || c.Flags().Changed("config") {
				if o.Bucket, err = gateway.OpenBucket(c.Context(), l.Config); err != nil {
					return err
				}
			}
			if o.Bucket != nil {
				defer func() { err = errors.Join(err, o.Bucket.Close()) }()
			}
			if err := o.Valid(); err != nil {
				return usageError{err}
			}
			rep, err := bench.Cold(c.Context(), o)
			return printReport(c, f.json, rep.Seconds > 0, &rep, err)
		},
	}
	f.add(cmd)
	addBucketFlags(cmd)
	cmd.Flags().BoolVar(&o.Evict, "evict", false, "have the node drop the topic from its local disk first")
	cmd.Flags().BoolVar(&o.Yes, "yes", false, "evict a topic whatever its name")
	cmd.Flags().Var(&ranged, "range-bytes", "bytes of one plain GET")
	return cmd
}

// addBucketFlags gives a command the flags of the configuration that say where
// the bucket is. Keys come from the environment or the file.
func addBucketFlags(c *cobra.Command) {
	c.Flags().String("config", "", "configuration file (YAML) that has the bucket and its keys")
	for _, f := range gateway.Flags() {
		if f.Name == "bucket" || f.Name == "s3-allow-http" {
			c.Flags().String(f.Name, f.Default, f.Usage)
		}
	}
	c.Flags().Lookup("s3-allow-http").NoOptDefVal = "true"
}

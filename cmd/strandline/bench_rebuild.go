package main

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"
	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/strandline-io/strandline/cmd/strandline/internal/bench"
)

func benchRebuildCommand() *cobra.Command {
	var o bench.RebuildOptions
	var asJSON bool
	companion := byteSize(64 << 10)
	cmd := &cobra.Command{
		Use:   "rebuild",
		Short: "Measure how fast a cluster comes back from a bucket of made segments",
		Long: `Makes a bucket as a node leaves it behind, with the metadata of many small segments,
and measures a dry run of a rebuild from it and a real one. The bucket is a
temporary folder, or a prefix of its own in the one that is given; it is removed
in the end.`,
		Example: "  strandline bench rebuild --segments 1000\n  strandline bench rebuild --segments 10000 --partitions 100 --bucket 's3://scratch?region=eu-central-1'",
		Args:    exactly(),
		RunE: func(c *cobra.Command, _ []string) (err error) {
			l, err := loadConfig(c)
			if err != nil {
				return usageError{err}
			}
			o.CompanionBytes = int(companion)
			if err := o.Valid(); err != nil {
				return usageError{err}
			}
			if o.Work, err = os.MkdirTemp("", "strandline-bench-"); err != nil {
				return err
			}
			defer func() { err = errors.Join(err, os.RemoveAll(o.Work)) }()
			o.Config, o.Log = l.Config, hclog.NewNullLogger()
			if o.Config.Bucket, err = ownPrefix(l.Bucket, o.Work); err != nil {
				return usageError{err}
			}
			if folder, ok := strings.CutPrefix(o.Config.Bucket, "dir:"); ok { // empty folders are no objects, and stay
				defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
			}
			rep, err := bench.Rebuild(c.Context(), o)
			return printReport(c, asJSON, rep.MadeSeconds > 0, &rep, err)
		},
	}
	addBucketFlags(cmd)
	cmd.Flags().IntVar(&o.Segments, "segments", 1000, "segments in the bucket")
	cmd.Flags().IntVarP(&o.Partitions, "partitions", "p", 10, "partitions that they belong to")
	cmd.Flags().IntVar(&o.Known, "known", 50, "percentage of segments that the last snapshot knows; the others are found by listing")
	cmd.Flags().Var(&companion, "companion-bytes", "size of a segment's indexes in the bucket")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// ownPrefix is a bucket URL with a random prefix of its own below the one that
// was given, or a folder in work if none was.
func ownPrefix(bucket, work string) (string, error) {
	own := "strandline-bench-" + uuid.NewString()
	scheme, rest, _ := strings.Cut(bucket, ":")
	switch scheme {
	case "":
		return "dir:" + filepath.Join(work, "bucket"), nil
	case "dir":
		return "dir:" + filepath.Join(rest, own), nil
	case "s3":
		u, err := url.Parse(bucket)
		if err != nil {
			return "", fmt.Errorf("--bucket: %w", err)
		}
		u.Path = strings.TrimSuffix(u.Path, "/") + "/" + own
		return u.String(), nil
	}
	return "", fmt.Errorf("--bucket %s: use a URL such as dir:/path or s3://BUCKET/PREFIX", bucket)
}

package minio

import (
	"context"
	"time"

	"github.com/minio/minio-go/v7/pkg/lifecycle"

	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/s3wire"
)

var _ s3wire.SettingsClient = (*client)(nil)

func (c *client) Versioning(ctx context.Context) (string, error) {
	v, err := c.core.GetBucketVersioning(ctx, c.cfg.Bucket)
	return v.Status, err
}

func (c *client) Lifecycle(ctx context.Context) ([]remote.LifecycleRule, error) {
	l, err := c.core.GetBucketLifecycle(ctx, c.cfg.Bucket)
	if err != nil {
		return nil, err
	}
	rules := make([]remote.LifecycleRule, len(l.Rules))
	for i := range l.Rules {
		rules[i] = lifecycleRule(&l.Rules[i])
	}
	return rules, nil
}

func lifecycleRule(r *lifecycle.Rule) remote.LifecycleRule {
	out := remote.LifecycleRule{ID: r.ID, Enabled: r.Status == "Enabled", Prefix: r.Prefix}
	f := r.RuleFilter
	if f.Prefix != "" {
		out.Prefix = f.Prefix
	}
	out.Filtered = !f.Tag.IsEmpty() || f.ObjectSizeGreaterThan > 0 || f.ObjectSizeLessThan > 0
	if !f.And.IsEmpty() {
		out.Prefix = f.And.Prefix
		out.Filtered = len(f.And.Tags) > 0 || f.And.ObjectSizeGreaterThan > 0 || f.And.ObjectSizeLessThan > 0
	}
	out.ExpireDays = int(r.Expiration.Days)
	out.Expires = out.ExpireDays > 0 || !r.Expiration.Date.IsZero()
	n := r.NoncurrentVersionExpiration
	out.OldVersions = n.NoncurrentDays > 0 || n.NewerNoncurrentVersions > 0
	if class := r.Transition.StorageClass; class != "" {
		out.Moves = []string{class}
	}
	out.AbortAfter = time.Duration(r.AbortIncompleteMultipartUpload.DaysAfterInitiation) * 24 * time.Hour
	return out
}

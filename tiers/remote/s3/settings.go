package s3

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/s3wire"
)

var _ s3wire.SettingsClient = (*client)(nil)

func (c *client) Versioning(ctx context.Context) (string, error) {
	out, err := c.sdk.GetBucketVersioning(ctx, &awss3.GetBucketVersioningInput{Bucket: &c.bucket})
	if err != nil {
		return "", err
	}
	return string(out.Status), nil
}

func (c *client) Lifecycle(ctx context.Context) ([]remote.LifecycleRule, error) {
	out, err := c.sdk.GetBucketLifecycleConfiguration(ctx, &awss3.GetBucketLifecycleConfigurationInput{Bucket: &c.bucket})
	if err != nil {
		return nil, err
	}
	rules := make([]remote.LifecycleRule, len(out.Rules))
	for i, r := range out.Rules {
		rules[i] = lifecycleRule(r)
	}
	return rules, nil
}

func lifecycleRule(r types.LifecycleRule) remote.LifecycleRule {
	//nolint:staticcheck // old rules have their prefix in the deprecated field
	out := remote.LifecycleRule{ID: aws.ToString(r.ID), Enabled: r.Status == types.ExpirationStatusEnabled, Prefix: aws.ToString(r.Prefix)}
	if f := r.Filter; f != nil {
		if f.Prefix != nil {
			out.Prefix = *f.Prefix
		}
		out.Filtered = f.Tag != nil || f.ObjectSizeGreaterThan != nil || f.ObjectSizeLessThan != nil
		if a := f.And; a != nil {
			out.Prefix = aws.ToString(a.Prefix)
			out.Filtered = len(a.Tags) > 0 || a.ObjectSizeGreaterThan != nil || a.ObjectSizeLessThan != nil
		}
	}
	if e := r.Expiration; e != nil {
		out.ExpireDays = int(aws.ToInt32(e.Days))
		out.Expires = out.ExpireDays > 0 || e.Date != nil
	}
	out.OldVersions = r.NoncurrentVersionExpiration != nil
	for _, t := range r.Transitions {
		out.Moves = append(out.Moves, string(t.StorageClass))
	}
	if a := r.AbortIncompleteMultipartUpload; a != nil {
		out.AbortAfter = time.Duration(aws.ToInt32(a.DaysAfterInitiation)) * 24 * time.Hour
	}
	return out
}

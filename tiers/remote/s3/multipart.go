package s3

import (
	"context"
	"math"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/strandline-io/strandline/tiers/remote/s3wire"
)

func (c *client) CreateUpload(ctx context.Context, key, checksum string) (string, error) {
	in := &awss3.CreateMultipartUploadInput{Bucket: &c.bucket, Key: &key, ContentType: aws.String("application/octet-stream")}
	if checksum == s3wire.ChecksumCRC32C {
		in.ChecksumAlgorithm, in.ChecksumType = types.ChecksumAlgorithmCrc32c, types.ChecksumTypeFullObject
	}
	out, err := c.sdk.CreateMultipartUpload(ctx, in)
	if err != nil {
		return "", err
	}
	return aws.ToString(out.UploadId), nil
}

func (c *client) UploadPart(ctx context.Context, key, id string, number int, u s3wire.Upload) (s3wire.Stored, error) {
	out, err := c.sdk.UploadPart(ctx, &awss3.UploadPartInput{
		Bucket: &c.bucket, Key: &key, UploadId: &id, PartNumber: partNumber(number), Body: u.Body, ContentLength: &u.Size,
		ChecksumCRC32C: optional(u.Sum.CRC32C), ContentMD5: optional(u.Sum.MD5),
	}, unsigned())
	if err != nil {
		return s3wire.Stored{}, err
	}
	return s3wire.Stored{ETag: aws.ToString(out.ETag), CRC32C: aws.ToString(out.ChecksumCRC32C)}, nil
}

// partNumber fits: s3wire makes at most 10,000 parts.
func partNumber(n int) *int32 {
	return aws.Int32(int32(min(n, math.MaxInt32)))
}

func (c *client) CompleteUpload(ctx context.Context, key, id string, parts []s3wire.Part, whole s3wire.Sum) (s3wire.Stored, error) {
	done := make([]types.CompletedPart, len(parts))
	for i, p := range parts {
		done[i] = types.CompletedPart{PartNumber: partNumber(p.Number), ETag: aws.String(`"` + p.ETag + `"`), ChecksumCRC32C: optional(p.CRC32C)}
	}
	in := &awss3.CompleteMultipartUploadInput{
		Bucket: &c.bucket, Key: &key, UploadId: &id,
		MultipartUpload: &types.CompletedMultipartUpload{Parts: done},
	}
	if whole.CRC32C != "" {
		in.ChecksumCRC32C, in.ChecksumType = &whole.CRC32C, types.ChecksumTypeFullObject
	}
	out, err := c.sdk.CompleteMultipartUpload(ctx, in)
	if err != nil {
		return s3wire.Stored{}, err
	}
	return s3wire.Stored{ETag: aws.ToString(out.ETag), CRC32C: aws.ToString(out.ChecksumCRC32C)}, nil
}

func (c *client) AbortUpload(ctx context.Context, key, id string) error {
	_, err := c.sdk.AbortMultipartUpload(ctx, &awss3.AbortMultipartUploadInput{Bucket: &c.bucket, Key: &key, UploadId: &id})
	return err
}

func (c *client) ListUploads(ctx context.Context, r s3wire.UploadsRequest) (s3wire.UploadsPage, error) {
	out, err := c.sdk.ListMultipartUploads(ctx, &awss3.ListMultipartUploadsInput{
		Bucket: &c.bucket, Prefix: optional(r.Prefix), KeyMarker: optional(r.KeyMarker), UploadIdMarker: optional(r.IDMarker),
	})
	if err != nil {
		return s3wire.UploadsPage{}, err
	}
	p := s3wire.UploadsPage{
		Truncated:     aws.ToBool(out.IsTruncated),
		NextKeyMarker: aws.ToString(out.NextKeyMarker), NextIDMarker: aws.ToString(out.NextUploadIdMarker),
	}
	for _, u := range out.Uploads {
		p.Uploads = append(p.Uploads, s3wire.UnfinishedUpload{Key: aws.ToString(u.Key), ID: aws.ToString(u.UploadId), Begun: aws.ToTime(u.Initiated)})
	}
	return p, nil
}

package s3

import (
	"context"
	"errors"
	"io"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/s3wire"
)

// client is s3wire.Client on the SDK.
type client struct {
	sdk    *awss3.Client
	bucket string
}

// unsigned keeps the payload out of the signature: the checksum in the signed
// headers covers it, and the SDK would read the body twice more for a SHA-256.
func unsigned() func(*awss3.Options) {
	return awss3.WithAPIOptions(v4.SwapComputePayloadSHA256ForUnsignedPayloadMiddleware)
}

// optional is nil for the empty string.
func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func (c *client) Put(ctx context.Context, key string, u s3wire.Upload) (s3wire.Stored, error) {
	in := &awss3.PutObjectInput{
		Bucket: &c.bucket, Key: &key, Body: u.Body, ContentLength: &u.Size,
		ChecksumCRC32C: optional(u.Sum.CRC32C), ContentMD5: optional(u.Sum.MD5),
		ContentType: aws.String("application/octet-stream"),
	}
	if u.If.Absent {
		in.IfNoneMatch = aws.String("*")
	}
	if u.If.ETag != "" {
		in.IfMatch = aws.String(`"` + u.If.ETag + `"`)
	}
	out, err := c.sdk.PutObject(ctx, in, unsigned())
	if err != nil {
		return s3wire.Stored{}, err
	}
	return s3wire.Stored{ETag: aws.ToString(out.ETag), CRC32C: aws.ToString(out.ChecksumCRC32C)}, nil
}

func (c *client) Get(ctx context.Context, key, byteRange, etag string) (io.ReadCloser, s3wire.Header, error) {
	in := &awss3.GetObjectInput{Bucket: &c.bucket, Key: &key, Range: optional(byteRange)}
	if etag != "" {
		in.IfMatch = aws.String(`"` + etag + `"`)
	}
	out, err := c.sdk.GetObject(ctx, in)
	if err != nil {
		return nil, s3wire.Header{}, err
	}
	return out.Body, s3wire.Header{
		Length:       aws.ToInt64(out.ContentLength),
		ContentRange: aws.ToString(out.ContentRange),
		ETag:         aws.ToString(out.ETag),
		Modified:     aws.ToTime(out.LastModified),
	}, nil
}

func (c *client) Head(ctx context.Context, key, checksum string) (s3wire.Header, error) {
	in := &awss3.HeadObjectInput{Bucket: &c.bucket, Key: &key}
	if checksum == s3wire.ChecksumCRC32C {
		in.ChecksumMode = types.ChecksumModeEnabled
	}
	out, err := c.sdk.HeadObject(ctx, in)
	if err != nil {
		return s3wire.Header{}, err
	}
	return s3wire.Header{
		Length:   aws.ToInt64(out.ContentLength),
		ETag:     aws.ToString(out.ETag),
		CRC32C:   aws.ToString(out.ChecksumCRC32C),
		CRCType:  string(out.ChecksumType),
		Modified: aws.ToTime(out.LastModified),
	}, nil
}

func (c *client) ListPage(ctx context.Context, r s3wire.PageRequest) (s3wire.Page, error) {
	out, err := c.sdk.ListObjectsV2(ctx, &awss3.ListObjectsV2Input{
		Bucket: &c.bucket, Prefix: &r.Prefix,
		StartAfter: optional(r.StartAfter), Delimiter: optional(r.Delimiter), ContinuationToken: optional(r.Token),
	})
	if err != nil {
		return s3wire.Page{}, err
	}
	p := s3wire.Page{Truncated: aws.ToBool(out.IsTruncated), NextToken: aws.ToString(out.NextContinuationToken)}
	for _, o := range out.Contents {
		p.Objects = append(p.Objects, remote.Object{
			Key: aws.ToString(o.Key), Size: aws.ToInt64(o.Size), ETag: aws.ToString(o.ETag), Modified: aws.ToTime(o.LastModified),
		})
	}
	for _, o := range out.CommonPrefixes {
		p.Prefixes = append(p.Prefixes, aws.ToString(o.Prefix))
	}
	return p, nil
}

func (c *client) DeleteMany(ctx context.Context, keys []string) ([]s3wire.Deleted, error) {
	ids := make([]types.ObjectIdentifier, len(keys))
	for i := range keys {
		ids[i].Key = &keys[i]
	}
	out, err := c.sdk.DeleteObjects(ctx, &awss3.DeleteObjectsInput{Bucket: &c.bucket, Delete: &types.Delete{Objects: ids}})
	if err != nil {
		return nil, err
	}
	answers := make([]s3wire.Deleted, 0, len(keys))
	for _, d := range out.Deleted {
		answers = append(answers, s3wire.Deleted{Key: aws.ToString(d.Key)})
	}
	for _, e := range out.Errors {
		answers = append(answers, s3wire.Deleted{Key: aws.ToString(e.Key), Fault: s3wire.Fault{Code: aws.ToString(e.Code), Message: aws.ToString(e.Message)}})
	}
	return answers, nil
}

func (c *client) DeleteOne(ctx context.Context, key string) error {
	_, err := c.sdk.DeleteObject(ctx, &awss3.DeleteObjectInput{Bucket: &c.bucket, Key: &key})
	return err
}

// Fault reads the SDK's two error types: one has the code, the other the status.
func (*client) Fault(err error) s3wire.Fault {
	var f s3wire.Fault
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		f.Code, f.Message = api.ErrorCode(), api.ErrorMessage()
	}
	if answer, ok := errors.AsType[*smithyhttp.ResponseError](err); ok && answer.Response != nil {
		f.Status = answer.HTTPStatusCode()
		f.Region = answer.Response.Header.Get("X-Amz-Bucket-Region")
	}
	if errors.Is(err, errNoKeys) {
		f = s3wire.Fault{Code: s3wire.NoCredentials, Message: err.Error()}
	}
	return f
}

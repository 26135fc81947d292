package minio

import (
	"context"
	"errors"
	"io"
	"net/http"

	miniogo "github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/s3wire"
)

// Headers that minio-go has no field for in the form that we use.
const (
	headerCRC32C    = "X-Amz-Checksum-Crc32c"
	headerCRCType   = "X-Amz-Checksum-Type"
	headerAlgorithm = "X-Amz-Checksum-Algorithm"
)

// client is s3wire.Client on minio-go.
type client struct {
	cfg       Config
	keys      *credentials.Credentials
	transport *s3wire.Transport
	core      *miniogo.Core
}

func (c *client) Put(ctx context.Context, key string, u s3wire.Upload) (s3wire.Stored, error) {
	o := miniogo.PutObjectOptions{DisableContentSha256: true}
	if u.Sum.CRC32C != "" {
		// minio-go sends a "metadata" of an X-Amz- name as that header.
		o.UserMetadata = map[string]string{headerCRC32C: u.Sum.CRC32C}
	}
	if u.If.Absent {
		o.SetMatchETagExcept("*")
	}
	if u.If.ETag != "" {
		o.SetMatchETag(u.If.ETag)
	}
	out, err := c.core.PutObject(ctx, c.cfg.Bucket, key, u.Body, u.Size, u.Sum.MD5, "", o)
	if err != nil {
		return s3wire.Stored{}, err
	}
	return s3wire.Stored{ETag: out.ETag, CRC32C: out.ChecksumCRC32C}, nil
}

func (c *client) Get(ctx context.Context, key, byteRange, etag string) (io.ReadCloser, s3wire.Header, error) {
	var o miniogo.GetObjectOptions
	if byteRange != "" {
		o.Set("Range", byteRange)
	}
	if etag != "" {
		o.Set("If-Match", `"`+etag+`"`)
	}
	body, out, header, err := c.core.GetObject(ctx, c.cfg.Bucket, key, o)
	if err != nil {
		return nil, s3wire.Header{}, err
	}
	return body, s3wire.Header{Length: out.Size, ContentRange: header.Get("Content-Range"), ETag: out.ETag, Modified: out.LastModified}, nil
}

func (c *client) Head(ctx context.Context, key, checksum string) (s3wire.Header, error) {
	out, err := c.core.StatObject(ctx, c.cfg.Bucket, key, miniogo.StatObjectOptions{Checksum: checksum == s3wire.ChecksumCRC32C})
	if err != nil {
		return s3wire.Header{}, err
	}
	return s3wire.Header{Length: out.Size, ETag: out.ETag, CRC32C: out.ChecksumCRC32C, CRCType: out.ChecksumMode, Modified: out.LastModified}, nil
}

// ListPage makes a client of its own, because the one call of minio-go that tells
// the token takes no context: the transport carries it instead.
func (c *client) ListPage(ctx context.Context, r s3wire.PageRequest) (s3wire.Page, error) {
	core, err := c.connect(boundTransport{ctx, c.transport})
	if err != nil {
		return s3wire.Page{}, err
	}
	out, err := core.ListObjectsV2(c.cfg.Bucket, r.Prefix, r.StartAfter, r.Token, r.Delimiter, 0)
	if err != nil {
		return s3wire.Page{}, err
	}
	p := s3wire.Page{Truncated: out.IsTruncated, NextToken: out.NextContinuationToken}
	for _, o := range out.Contents {
		p.Objects = append(p.Objects, remote.Object{Key: o.Key, Size: o.Size, ETag: o.ETag, Modified: o.LastModified})
	}
	for _, o := range out.CommonPrefixes {
		p.Prefixes = append(p.Prefixes, o.Prefix)
	}
	return p, nil
}

// boundTransport sends every request under one context.
type boundTransport struct {
	ctx  context.Context //nolint:containedctx // it lives for one call
	next http.RoundTripper
}

// RoundTrip is of http.RoundTripper.
func (t boundTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	return t.next.RoundTrip(r.WithContext(t.ctx))
}

func (c *client) DeleteMany(ctx context.Context, keys []string) ([]s3wire.Deleted, error) {
	objects := func(yield func(miniogo.ObjectInfo) bool) {
		for _, key := range keys {
			if !yield(miniogo.ObjectInfo{Key: key}) {
				return
			}
		}
	}
	results, err := c.core.RemoveObjectsWithIter(ctx, c.cfg.Bucket, objects, miniogo.RemoveObjectsOptions{})
	if err != nil {
		return nil, err
	}
	answers := make([]s3wire.Deleted, 0, len(keys))
	for r := range results {
		f := c.Fault(r.Err)
		if r.Err != nil && (r.ObjectName == "" || f.Status != 0 || f == s3wire.Fault{}) {
			return nil, r.Err // of the request, which minio-go repeats for every key
		}
		answers = append(answers, s3wire.Deleted{Key: r.ObjectName, Fault: f})
	}
	return answers, ctx.Err() // minio-go ends silently when the context does
}

func (c *client) DeleteOne(ctx context.Context, key string) error {
	return c.core.RemoveObject(ctx, c.cfg.Bucket, key, miniogo.RemoveObjectOptions{})
}

// Fault reads minio-go's error. One without a status was not an answer, but for
// the errors of single keys within DeleteMany.
func (*client) Fault(err error) s3wire.Fault {
	if errors.Is(err, errNoKeys) {
		return s3wire.Fault{Code: s3wire.NoCredentials, Message: errNoKeys.Error()}
	}
	e, ok := errors.AsType[miniogo.ErrorResponse](err)
	if !ok {
		return s3wire.Fault{}
	}
	return s3wire.Fault{Code: e.Code, Status: e.StatusCode, Message: e.Message, Region: e.Region}
}

func (c *client) CreateUpload(ctx context.Context, key, checksum string) (string, error) {
	var o miniogo.PutObjectOptions
	if checksum == s3wire.ChecksumCRC32C {
		o.UserMetadata = map[string]string{headerAlgorithm: "CRC32C", headerCRCType: "FULL_OBJECT"}
	}
	return c.core.NewMultipartUpload(ctx, c.cfg.Bucket, key, o)
}

func (c *client) UploadPart(ctx context.Context, key, id string, number int, u s3wire.Upload) (s3wire.Stored, error) {
	o := miniogo.PutObjectPartOptions{DisableContentSha256: true, Md5Base64: u.Sum.MD5}
	if u.Sum.CRC32C != "" {
		o.CustomHeader = http.Header{headerCRC32C: {u.Sum.CRC32C}}
	}
	out, err := c.core.PutObjectPart(ctx, c.cfg.Bucket, key, id, number, u.Body, u.Size, o)
	if err != nil {
		return s3wire.Stored{}, err
	}
	return s3wire.Stored{ETag: out.ETag, CRC32C: out.ChecksumCRC32C}, nil
}

func (c *client) CompleteUpload(ctx context.Context, key, id string, parts []s3wire.Part, whole s3wire.Sum) (s3wire.Stored, error) {
	done := make([]miniogo.CompletePart, len(parts))
	for i, p := range parts {
		done[i] = miniogo.CompletePart{PartNumber: p.Number, ETag: p.ETag, ChecksumCRC32C: p.CRC32C}
	}
	var o miniogo.PutObjectOptions
	if whole.CRC32C != "" {
		o.UserMetadata = map[string]string{headerCRC32C: whole.CRC32C, headerCRCType: "FULL_OBJECT"}
	}
	out, err := c.core.CompleteMultipartUpload(ctx, c.cfg.Bucket, key, id, done, o)
	if err != nil {
		return s3wire.Stored{}, err
	}
	return s3wire.Stored{ETag: out.ETag, CRC32C: out.ChecksumCRC32C}, nil
}

func (c *client) AbortUpload(ctx context.Context, key, id string) error {
	return c.core.AbortMultipartUpload(ctx, c.cfg.Bucket, key, id)
}

func (c *client) ListUploads(ctx context.Context, r s3wire.UploadsRequest) (s3wire.UploadsPage, error) {
	out, err := c.core.ListMultipartUploads(ctx, c.cfg.Bucket, r.Prefix, r.KeyMarker, r.IDMarker, "", 0)
	if err != nil {
		return s3wire.UploadsPage{}, err
	}
	p := s3wire.UploadsPage{Truncated: out.IsTruncated, NextKeyMarker: out.NextKeyMarker, NextIDMarker: out.NextUploadIDMarker}
	for _, u := range out.Uploads {
		p.Uploads = append(p.Uploads, s3wire.UnfinishedUpload{Key: u.Key, ID: u.UploadID, Begun: u.Initiated})
	}
	return p, nil
}

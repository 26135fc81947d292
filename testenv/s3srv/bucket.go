package s3srv

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/url"
	"testing"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// Bucket is an empty bucket of one test.
type Bucket struct {
	Name      string
	Endpoint  string
	Region    string
	AccessKey string
	SecretKey string
}

// URL is the bucket's URL for a driver, without the keys. The prefix may be
// empty.
func (b Bucket) URL(driver, prefix string) string {
	q := url.Values{"endpoint": {b.Endpoint}, "region": {b.Region}, "driver": {driver}}
	u := url.URL{Scheme: "s3", Host: b.Name, Path: "/" + prefix, RawQuery: q.Encode()}
	return u.String()
}

// Bucket makes an empty bucket for the test. On a server from the environment it
// is emptied and removed at the end; a child's folder is removed with it.
func (s *Server) Bucket(tb testing.TB) Bucket {
	tb.Helper()
	b, err := s.MakeBucket(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	if s.dir == "" {
		tb.Cleanup(func() {
			if err := s.removeBucket(context.WithoutCancel(tb.Context()), b.Name); err != nil {
				tb.Errorf("remove bucket %s: %v", b.Name, err)
			}
		})
	}
	return b
}

// MakeBucket makes an empty bucket of a random name.
func (s *Server) MakeBucket(ctx context.Context) (Bucket, error) {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	name := "strandline-test-" + hex.EncodeToString(id[:])
	client, err := s.client()
	if err == nil {
		err = client.MakeBucket(ctx, name, minio.MakeBucketOptions{Region: s.Region})
	}
	if err != nil {
		return Bucket{}, fmt.Errorf("make bucket %s on %s: %w", name, s.Endpoint, err)
	}
	return Bucket{Name: name, Endpoint: s.Endpoint, Region: s.Region, AccessKey: s.AccessKey, SecretKey: s.SecretKey}, nil
}

// UnfinishedUploads is how many multipart uploads a bucket has.
func (s *Server) UnfinishedUploads(ctx context.Context, bucket string) (int, error) {
	client, err := s.client()
	if err != nil {
		return 0, err
	}
	n := 0
	for u := range client.ListIncompleteUploads(ctx, bucket, "", true) {
		if u.Err != nil {
			return 0, u.Err
		}
		n++
	}
	return n, ctx.Err()
}

func (s *Server) client() (*minio.Client, error) {
	u, err := url.Parse(s.Endpoint)
	if err != nil {
		return nil, err
	}
	return minio.New(u.Host, &minio.Options{
		Creds:        credentials.NewStaticV4(s.AccessKey, s.SecretKey, ""),
		Secure:       u.Scheme == "https",
		Region:       s.Region,
		BucketLookup: minio.BucketLookupPath,
	})
}

func (s *Server) removeBucket(ctx context.Context, name string) error {
	client, err := s.client()
	if err != nil {
		return err
	}
	for u := range client.ListIncompleteUploads(ctx, name, "", true) {
		if u.Err == nil {
			err = client.RemoveIncompleteUpload(ctx, name, u.Key)
		}
		if u.Err != nil || err != nil {
			return fmt.Errorf("unfinished upload %s: %w", u.Key, firstOf(u.Err, err))
		}
	}
	for o := range client.ListObjects(ctx, name, minio.ListObjectsOptions{Recursive: true}) {
		if o.Err == nil {
			err = client.RemoveObject(ctx, name, o.Key, minio.RemoveObjectOptions{})
		}
		if o.Err != nil || err != nil {
			return fmt.Errorf("object %s: %w", o.Key, firstOf(o.Err, err))
		}
	}
	return client.RemoveBucket(ctx, name)
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

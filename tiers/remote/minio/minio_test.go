package minio_test

import (
	"os"
	"slices"
	"testing"

	"github.com/strandline-io/strandline/testenv/s3srv"
	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/buckettest"
	"github.com/strandline-io/strandline/tiers/remote/minio"
)

func TestMain(m *testing.M) { os.Exit(s3srv.Main(m)) }

func open(tb testing.TB, b s3srv.Bucket, change func(*minio.Config)) remote.Bucket {
	tb.Helper()
	c := minio.Config{
		Bucket: b.Name, Prefix: "some/prefix", Endpoint: b.Endpoint, Region: b.Region,
		Credentials: minio.Credentials{AccessKey: b.AccessKey, SecretKey: b.SecretKey},
	}
	if change != nil {
		change(&c)
	}
	bucket, err := minio.Open(c)
	if err != nil {
		tb.Fatal(err)
	}
	return bucket
}

func TestAcceptance(t *testing.T) {
	srv := s3srv.Start(t)
	for name, change := range map[string]func(*minio.Config){
		"crc32c": nil,
		"md5":    func(c *minio.Config) { c.Checksum = "md5" },
	} {
		t.Run(name, func(t *testing.T) {
			buckettest.Run(t, func(t *testing.T) remote.Bucket {
				t.Helper()
				return open(t, srv.Bucket(t), change)
			})
		})
	}
}

// TestNoPrefix: the whole bucket is ours, and a prefix sees only its own part.
func TestNoPrefix(t *testing.T) {
	sb := s3srv.Start(t).Bucket(t)
	whole, part := open(t, sb, func(c *minio.Config) { c.Prefix = "" }), open(t, sb, nil)
	for _, b := range []remote.Bucket{whole, part} {
		if _, err := b.Put(t.Context(), "k", remote.BytesBody([]byte("x")), remote.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for b, want := range map[remote.Bucket][]string{whole: {"k", "some/prefix/k"}, part: {"k"}} {
		var got []string
		for o, err := range b.List(t.Context(), remote.ListOptions{}) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, o.Key)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s lists %q, want %q", b, got, want)
		}
	}
}

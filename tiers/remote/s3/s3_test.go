package s3_test

import (
	"os"
	"testing"

	"github.com/strandline-io/strandline/testenv/s3srv"
	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/buckettest"
	"github.com/strandline-io/strandline/tiers/remote/s3"
)

func TestMain(m *testing.M) { os.Exit(s3srv.Main(m)) }

func open(tb testing.TB, b s3srv.Bucket, change func(*s3.Config)) remote.Bucket {
	tb.Helper()
	c := s3.Config{
		Bucket: b.Name, Prefix: "some/prefix", Endpoint: b.Endpoint, Region: b.Region,
		Credentials: s3.Credentials{AccessKey: b.AccessKey, SecretKey: b.SecretKey},
	}
	if change != nil {
		change(&c)
	}
	bucket, err := s3.Open(tb.Context(), c)
	if err != nil {
		tb.Fatal(err)
	}
	return bucket
}

func TestAcceptance(t *testing.T) {
	srv := s3srv.Start(t)
	for name, change := range map[string]func(*s3.Config){
		"prefix":    nil,
		"no prefix": func(c *s3.Config) { c.Prefix = "" },
		"md5":       func(c *s3.Config) { c.Checksum = "md5" },
	} {
		t.Run(name, func(t *testing.T) {
			buckettest.Run(t, func(t *testing.T) remote.Bucket {
				t.Helper()
				return open(t, srv.Bucket(t), change)
			})
		})
	}
}

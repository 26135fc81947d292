// Package minio is the bucket driver on minio-go: fewer allocations per request
// than the s3 driver, and a second opinion on every store that both talk to.
// What they share is in s3wire; this package turns one call into one request of
// the client and does nothing else. Both put the same bytes under the same keys.
//
// Ownership: a client belongs to the Bucket that Open returns and is immutable.
//
// Invariants: minio-go never retries, never looks for the bucket's region, never
// signs the payload in chunks and never sends a trailer: several stores, versitygw
// among them, refuse its signed trailers or keep the framing as data.
package minio

import (
	"fmt"
	"net/http"
	"net/url"

	miniogo "github.com/minio/minio-go/v7"

	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/s3wire"
)

// awsEndpoint stands for AWS: minio-go finds the region's host from it.
const awsEndpoint = "https://s3.amazonaws.com"

// Config is what Open needs. Bucket alone is enough on AWS.
type Config = s3wire.Config

// Credentials are static keys.
type Credentials = s3wire.Credentials

// Open makes a bucket. Nothing is sent: a bucket that is missing or denied shows
// at the first call.
func Open(c Config) (remote.Bucket, error) {
	c = c.WithDefaults()
	if err := c.Valid(); err != nil {
		return nil, fmt.Errorf("open bucket: %w", err)
	}
	t := s3wire.NewTransport(c.HTTP)
	m := &client{cfg: c, keys: keys(c), transport: t}
	core, err := m.connect(t)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", c.URL(s3wire.DriverMinio), err)
	}
	m.core = core
	return s3wire.NewBucket(s3wire.DriverMinio, c, m, t), nil
}

// connect makes a client that sends over t.
func (c *client) connect(t http.RoundTripper) (*miniogo.Core, error) {
	endpoint := c.cfg.Endpoint
	if endpoint == "" {
		endpoint = awsEndpoint
	}
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil, fmt.Errorf("endpoint: %w", err)
	}
	lookup := miniogo.BucketLookupDNS
	if c.cfg.Addressing == s3wire.AddressPath {
		lookup = miniogo.BucketLookupPath
	}
	return miniogo.NewCore(u.Host, &miniogo.Options{
		Creds:        c.keys,
		Secure:       u.Scheme == "https",
		Transport:    t,
		Region:       c.cfg.Region,
		BucketLookup: lookup,
		MaxRetries:   1, // attempts, not repetitions
	})
}

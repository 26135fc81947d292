// Package s3 is the bucket driver on aws-sdk-go-v2: the default, and the one to
// use on AWS, whose whole chain of credentials and regions it knows. What it
// shares with the minio driver is in s3wire; this package turns one call into one
// request of the SDK and does nothing else.
//
// Ownership: a client belongs to the Bucket that Open returns and is immutable.
//
// Invariants: the SDK never retries, never computes or checks a checksum unless
// S3 demands one (it would add headers and trailers that many stores refuse,
// report 063), and never waits for a 100-continue. transfermanager is not used: it
// buffers whole parts and leaves uploads behind when it is cancelled.
package s3

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/s3wire"
)

// Config is what Open needs. Bucket alone is enough on AWS.
type Config = s3wire.Config

// Credentials are static keys.
type Credentials = s3wire.Credentials

// Open makes a bucket. Nothing is sent: a bucket that is missing or denied shows
// at the first call.
func Open(ctx context.Context, c Config) (remote.Bucket, error) {
	c = c.WithDefaults()
	if err := c.Valid(); err != nil {
		return nil, fmt.Errorf("open bucket: %w", err)
	}
	chain, err := provider(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", c.URL(s3wire.DriverS3), err)
	}
	t := s3wire.NewTransport(c.HTTP)
	o := awss3.Options{
		Region:       c.Region,
		Credentials:  chain,
		UsePathStyle: c.Addressing == s3wire.AddressPath,
		HTTPClient:   &http.Client{Transport: t, CheckRedirect: noRedirect},
		Retryer:      aws.NopRetryer{},

		RequestChecksumCalculation:   aws.RequestChecksumCalculationWhenRequired,
		ResponseChecksumValidation:   aws.ResponseChecksumValidationWhenRequired,
		ContinueHeaderThresholdBytes: -1,
	}
	if c.Endpoint != "" {
		o.BaseEndpoint = aws.String(c.Endpoint)
	}
	return s3wire.NewBucket(s3wire.DriverS3, c, &client{sdk: awss3.New(o), bucket: c.Bucket}, t), nil
}

// provider is the static keys, or the SDK's chain, which renews what expires.
func provider(ctx context.Context, c Config) (aws.CredentialsProvider, error) {
	if k := c.Credentials; !k.IsZero() {
		return credentials.NewStaticCredentialsProvider(k.AccessKey, k.SecretKey, k.SessionToken), nil
	}
	chain, err := config.LoadDefaultConfig(ctx, config.WithRegion(c.Region))
	if err != nil {
		return nil, fmt.Errorf("%w: the default chain of credentials: %w", remote.ErrDenied, err)
	}
	return role{chain.Credentials}, nil
}

// errNoKeys marks that the chain found none, or could not ask for them.
var errNoKeys = errors.New("no keys")

// role marks the errors of a chain, which the SDK would have look like those of
// the store.
type role struct{ chain aws.CredentialsProvider }

// Retrieve is of aws.CredentialsProvider.
func (r role) Retrieve(ctx context.Context) (aws.Credentials, error) {
	keys, err := r.chain.Retrieve(ctx)
	if err != nil {
		err = fmt.Errorf("%w: %w", errNoKeys, err)
	}
	return keys, err
}

// noRedirect hands a redirect to the caller: its signature would not fit where
// it leads, and what it says is that the region is wrong.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

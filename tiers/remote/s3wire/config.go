package s3wire

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Sizes of uploads, in bytes. S3's own limits are 5 MiB for every part but the
// last and 10,000 parts.
const (
	MinPartSize      = 5 << 20
	maxParts         = 10_000
	DefaultPartSize  = 16 << 20
	DefaultSinglePut = 32 << 20

	// MaxConditional bounds the body of a conditional write: a store that
	// refuses one closes the connection with the body unread, and above this
	// size the refusal gets lost in a reset.
	MaxConditional = 256 << 10
)

// Names of what a bucket URL may say.
const (
	ChecksumCRC32C = "crc32c"
	ChecksumMD5    = "md5"

	AddressPath    = "path"
	AddressVirtual = "virtual"

	DriverS3    = "s3"
	DriverMinio = "minio"
)

// Config says which bucket to open and how. Bucket alone is enough on AWS.
type Config struct {
	Bucket string
	Prefix string // keys are below PREFIX/; empty: the whole bucket

	// Endpoint is the URL of the store, http or https, without a path. Empty
	// stands for AWS in Region. AWS_ENDPOINT_URL is not read: the two drivers
	// would differ.
	Endpoint string
	Region   string // default us-east-1
	// Addressing is where the bucket's name stands: AddressPath,
	// AddressVirtual, or empty for path with an Endpoint and virtual without.
	Addressing string
	// Checksum is ChecksumCRC32C (the default) or ChecksumMD5, for stores that
	// refuse x-amz-checksum-* headers. With MD5 the store tells no CRC.
	Checksum string

	// Credentials, if empty, come from the driver's default chain: environment,
	// shared files, the machine's role.
	Credentials Credentials

	PartSize    int64 // of a multipart upload, default 16 MiB
	SinglePut   int64 // bodies up to this size go in one request, default 32 MiB
	Concurrency int   // parts in flight per upload, default 4

	HTTP HTTP
	Now  func() time.Time // for AbortStale, default time.Now
}

// HTTP are the knobs of the transport. The zero value stands for the defaults.
type HTTP struct {
	Dial      time.Duration // connect, default 3 s
	TLS       time.Duration // handshake, default 5 s
	Header    time.Duration // from the last byte sent to the answer's header, default 15 s
	Stall     time.Duration // longest pause within a body, either way, default 10 s
	Attempt   time.Duration // one request in all, plus one second per MiB, default 10 s
	IdleConns int           // kept per host, default 256
	TLSConfig *tls.Config   // extra roots or client certificates
	// Proxy, if nil, is http.ProxyFromEnvironment.
	Proxy func(*http.Request) (*url.URL, error)
}

// Credentials are static keys.
type Credentials struct {
	AccessKey    string
	SecretKey    string
	SessionToken string
}

// IsZero reports whether there are none.
func (c Credentials) IsZero() bool { return c == Credentials{} }

// String is the access key, which is no secret, and nothing else.
func (c Credentials) String() string {
	if c.IsZero() {
		return "default chain"
	}
	return c.AccessKey + ":(secret)"
}

// GoString is String, so that %#v shows no secret either.
func (c Credentials) GoString() string { return c.String() }

// MarshalText is String, for JSON and YAML.
func (c Credentials) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// WithDefaults returns c with the defaults filled in.
func (c Config) WithDefaults() Config {
	c.Prefix = strings.Trim(c.Prefix, "/")
	c.Endpoint = strings.TrimSuffix(c.Endpoint, "/")
	orDefault(&c.Region, "us-east-1")
	orDefault(&c.Checksum, ChecksumCRC32C)
	if c.Addressing == "" {
		c.Addressing = AddressVirtual
		if c.Endpoint != "" {
			c.Addressing = AddressPath
		}
	}
	orDefault(&c.PartSize, DefaultPartSize)
	orDefault(&c.SinglePut, DefaultSinglePut)
	orDefault(&c.Concurrency, 4)
	orDefault(&c.HTTP.Dial, 3*time.Second)
	orDefault(&c.HTTP.TLS, 5*time.Second)
	orDefault(&c.HTTP.Header, 15*time.Second)
	orDefault(&c.HTTP.Stall, 10*time.Second)
	orDefault(&c.HTTP.Attempt, 10*time.Second)
	orDefault(&c.HTTP.IdleConns, 256)
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

func orDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// Valid returns nil if a driver can work with c, whose defaults are filled in,
// else an error that says what to change.
func (c Config) Valid() error {
	switch {
	case len(c.Bucket) < 3 || len(c.Bucket) > 63 || strings.ContainsAny(c.Bucket, "/?#%: "):
		return fmt.Errorf("bucket %q: a bucket's name has 3 to 63 characters of a-z, 0-9, dot and hyphen", c.Bucket)
	case strings.Contains(c.Prefix, "//"):
		return fmt.Errorf("prefix %q: remove the empty segment", c.Prefix)
	case c.Checksum != ChecksumCRC32C && c.Checksum != ChecksumMD5:
		return fmt.Errorf("checksum %q: choose %s or %s", c.Checksum, ChecksumCRC32C, ChecksumMD5)
	case c.Addressing != AddressPath && c.Addressing != AddressVirtual:
		return fmt.Errorf("addressing %q: choose %s or %s", c.Addressing, AddressPath, AddressVirtual)
	case c.PartSize < MinPartSize:
		return fmt.Errorf("part size %d: S3 wants at least %d", c.PartSize, MinPartSize)
	case c.SinglePut < MaxConditional:
		return fmt.Errorf("single put size %d: conditional writes need at least %d", c.SinglePut, MaxConditional)
	case c.Concurrency < 1:
		return fmt.Errorf("concurrency %d: must be positive", c.Concurrency)
	case c.Credentials.AccessKey == "" && !c.Credentials.IsZero(), c.Credentials.SecretKey == "" && !c.Credentials.IsZero():
		return fmt.Errorf("credentials: give both an access key and a secret key, or neither")
	}
	return c.validEndpoint()
}

func (c Config) validEndpoint() error {
	if c.Endpoint == "" {
		return nil
	}
	u, err := url.Parse(c.Endpoint)
	switch {
	case err != nil:
		return fmt.Errorf("endpoint: %w", err)
	case u.User != nil:
		return fmt.Errorf("endpoint: take the user and password out of the URL of host %s", u.Host)
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return fmt.Errorf("endpoint %q: want http://HOST:PORT or https://HOST", c.Endpoint)
	case u.Path != "" || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("endpoint %q: want no path, query or fragment", c.Endpoint)
	}
	return nil
}

// URL is the bucket's URL, which ParseURL reads, without secrets.
func (c Config) URL(driver string) string {
	q := url.Values{"driver": {driver}, "region": {c.Region}}
	if c.Endpoint != "" {
		q.Set("endpoint", c.Endpoint)
	}
	if c.Checksum != ChecksumCRC32C {
		q.Set("checksum", c.Checksum)
	}
	if (c.Addressing == AddressPath) != (c.Endpoint != "") {
		q.Set("addressing", c.Addressing)
	}
	u := url.URL{Scheme: "s3", Host: c.Bucket, Path: "/" + c.Prefix, RawQuery: q.Encode()}
	return u.String()
}

// ParseURL reads s3://BUCKET/PREFIX?endpoint=...&region=...&driver=s3|minio, with
// checksum=md5 and addressing=path|virtual where a store wants them. Keys are
// not part of a URL: it is printed and logged.
func ParseURL(raw string) (c Config, driver string, err error) {
	u, err := url.Parse(raw)
	if err != nil {
		return Config{}, "", fmt.Errorf("bucket URL: %w", err)
	}
	if u.Scheme != "s3" {
		return Config{}, "", fmt.Errorf("bucket URL of scheme %q: want s3://BUCKET/PREFIX", u.Scheme)
	}
	if u.User != nil {
		return Config{}, "", fmt.Errorf("bucket URL of bucket %s: take the keys out of the URL and give them as settings", u.Hostname())
	}
	if u.Host == "" { // s3:/logs, s3:logs
		return Config{}, "", errors.New("bucket URL without the name of a bucket: write s3://BUCKET/PREFIX, with two slashes")
	}
	c = Config{Bucket: u.Host, Prefix: u.Path}
	driver = DriverS3
	for name, values := range u.Query() {
		if len(values) != 1 {
			return Config{}, "", fmt.Errorf("bucket URL: %s is given %d times", name, len(values))
		}
		if err := c.setOption(name, values[0], &driver); err != nil {
			return Config{}, "", err
		}
	}
	c = c.WithDefaults()
	return c, driver, c.Valid()
}

func (c *Config) setOption(name, value string, driver *string) error {
	switch name {
	case "endpoint":
		c.Endpoint = value
	case "region":
		c.Region = value
	case "checksum":
		c.Checksum = value
	case "addressing":
		c.Addressing = value
	case "driver":
		if value != DriverS3 && value != DriverMinio {
			return fmt.Errorf("bucket URL: driver %q: choose %s or %s", value, DriverS3, DriverMinio)
		}
		*driver = value
	default:
		return fmt.Errorf("bucket URL: unknown option %q: endpoint, region, driver, checksum and addressing are known", name)
	}
	return nil
}

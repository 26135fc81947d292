package gateway

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/strandline-io/strandline/gateway/broker"
	"github.com/strandline-io/strandline/tiers/remote/s3wire"
)

// Validate returns nil if a node may run with the configuration, else everything
// that is wrong with it: what, why, and what to do.
func (l *Loaded) Validate() error {
	return errors.Join(l.checkSecretsInFile(), l.Config.Validate())
}

// checkSecretsInFile refuses static keys in a file that other users can read.
func (l *Loaded) checkSecretsInFile() error {
	if l.file == "" || l.fileMode.Perm()&0o007 == 0 {
		return nil
	}
	for _, s := range l.settings() {
		if s.secret && strings.HasPrefix(l.origins[s.key], "file ") {
			return fmt.Errorf("%s is in %s, which every user of this machine can read (mode %04o): "+
				"run chmod 600 on it, or give the key as %s", s.key, l.file, l.fileMode.Perm(), s.envName())
		}
	}
	return nil
}

// Validate is Loaded.Validate for a configuration that was made by hand.
func (c *Config) Validate() error {
	return errors.Join(
		c.checkValues(),
		c.checkDataDir(),
		c.checkBucket(),
		c.checkKafkaListener(),
		c.checkAdminListener(),
		c.checkPorts(),
		broker.CheckTopicDefaults(c.Bucket != "", c.Topics.Defaults),
	)
}

// checkValues checks each value once more, for a Config that no Load has seen.
func (c *Config) checkValues() error {
	var errs []error
	scratch := *c
	scratch.Topics.Defaults = map[string]string{} // set is called below
	for _, s := range scratch.settings() {
		if strings.HasPrefix(s.key, "topics.defaults.") {
			continue
		}
		if err := s.set(s.get()); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.key, err))
		}
	}
	if c.CacheDir != "" && !filepath.IsAbs(c.CacheDir) {
		errs = append(errs, fmt.Errorf("cache.dir %q is relative: it would move with the working directory; give an absolute path", c.CacheDir))
	}
	if c.CacheDir != "" && filepath.Clean(c.CacheDir) == filepath.Clean(c.DataDir) {
		errs = append(errs, fmt.Errorf("cache.dir is data_dir %s: give the cache a folder of its own", c.DataDir))
	}
	if c.Kafka.MaxRequestBytes > c.Kafka.InFlightRequestBytes {
		errs = append(errs, fmt.Errorf("kafka.max_request_bytes = %s does not fit into kafka.in_flight_request_bytes = %s: raise that or lower this",
			FormatBytes(c.Kafka.MaxRequestBytes), FormatBytes(c.Kafka.InFlightRequestBytes)))
	}
	return errors.Join(errs...)
}

func (c *Config) checkDataDir() error {
	switch {
	case c.DataDir == "":
		return errors.New("data_dir is not set: give the absolute path of a folder that this node alone uses, as data_dir, --data-dir or STRANDLINE_DATA_DIR")
	case !filepath.IsAbs(c.DataDir):
		return fmt.Errorf("data_dir %q is relative: it would move with the working directory; give an absolute path", c.DataDir)
	case filepath.Clean(c.DataDir) == "/":
		return errors.New("data_dir is the root of the file system: give a folder of its own")
	}
	return nil
}

func (c *Config) checkBucket() error {
	keys := c.S3.AccessKey != "" || c.S3.SecretKey != "" || c.S3.SessionToken != ""
	scheme, rest, _ := strings.Cut(c.Bucket, ":")
	if keys && scheme != "s3" {
		return errors.New("s3.access_key, s3.secret_key and s3.session_token are for a bucket of the form s3://BUCKET/PREFIX: remove them or set that")
	}
	switch {
	case c.Bucket == "", c.Bucket == "memory:":
		return nil
	case scheme == "dir":
		return c.checkDirBucket(rest)
	case scheme == "s3":
		return c.checkS3Bucket()
	}
	return fmt.Errorf("bucket %q: use s3://BUCKET/PREFIX?endpoint=...&region=... or dir:/absolute/path", redactURL(c.Bucket))
}

// redactURL hides a password that somebody wrote into a URL.
func redactURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "(not a URL)"
	}
	return u.Redacted()
}

func (c *Config) checkDirBucket(path string) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("bucket dir:%s is relative: give an absolute path, as dir:/path", path)
	}
	if c.DataDir == "" {
		return nil
	}
	bucket, local := realPath(path), realPath(c.DataDir)
	switch {
	case bucket == local:
		return fmt.Errorf("bucket and data_dir are the same folder %s: losing it would lose both tiers; give the bucket a folder of its own, on another disk if possible", local)
	case within(bucket, local):
		return fmt.Errorf("bucket %s is inside data_dir %s: removing the data directory would remove the bucket; choose a folder outside of it", path, c.DataDir)
	case within(local, bucket):
		return fmt.Errorf("data_dir %s is inside the bucket %s: choose a folder outside of it", c.DataDir, path)
	}
	return nil
}

// realPath follows the symbolic links of the part of a path that exists.
func realPath(path string) string {
	path = filepath.Clean(path)
	if followed, err := filepath.EvalSymlinks(path); err == nil {
		return followed
	}
	parent := filepath.Dir(path)
	if parent == path {
		return path
	}
	return filepath.Join(realPath(parent), filepath.Base(path))
}

func within(path, folder string) bool {
	rel, err := filepath.Rel(folder, path)
	return err == nil && rel != "." && rel != ".." && !strings.HasPrefix(rel, "../")
}

func (c *Config) checkS3Bucket() error {
	s3, _, err := c.s3Bucket()
	if err != nil {
		return fmt.Errorf("bucket: %w", err)
	}
	u, err := url.Parse(s3.Endpoint)
	if err != nil {
		return fmt.Errorf("bucket: the endpoint: %w", err)
	}
	if u.Scheme != "http" || isLoopback(u.Hostname()) || c.S3.AllowHTTP {
		return nil
	}
	return fmt.Errorf("bucket: the endpoint %s is plain http on another machine: records would cross the network in the clear; use https, or set s3.allow_http", s3.Endpoint)
}

// s3Bucket reads the bucket's URL and adds the keys.
func (c *Config) s3Bucket() (s3wire.Config, string, error) {
	s3, driver, err := s3wire.ParseURL(c.Bucket)
	if err != nil {
		return s3wire.Config{}, "", err
	}
	s3.Credentials = s3wire.Credentials{AccessKey: c.S3.AccessKey, SecretKey: c.S3.SecretKey, SessionToken: c.S3.SessionToken}
	return s3, driver, s3.Valid()
}

func (c *Config) checkKafkaListener() error {
	host, _, err := splitAddress("kafka.listen", c.Kafka.Listen)
	if err != nil {
		return err
	}
	if !isLoopback(host) && !c.Kafka.AllowPlaintext {
		return fmt.Errorf("kafka.listen %s can be reached from other machines, without encryption or authentication: "+
			"listen on 127.0.0.1, or set kafka.allow_plaintext if the network is trusted", c.Kafka.Listen)
	}
	if c.Kafka.Advertised == "" {
		if isWildcard(host) {
			return fmt.Errorf("kafka.listen %s is every address, which clients cannot be told to connect to: "+
				"set kafka.advertised to HOST:PORT as clients reach this node", c.Kafka.Listen)
		}
		return nil
	}
	host, _, err = splitAddress("kafka.advertised", c.Kafka.Advertised)
	if err == nil && isWildcard(host) {
		err = fmt.Errorf("kafka.advertised %s is every address: clients would connect to themselves; give the host name or address by which they reach this node", c.Kafka.Advertised)
	}
	return err
}

func (c *Config) checkAdminListener() error {
	host, _, err := splitAddress("admin.listen", c.Admin.Listen)
	if err == nil && !isLoopback(host) && !c.Admin.AllowRemote {
		err = fmt.Errorf("admin.listen %s can be reached from other machines and has no authentication: anybody there could delete topics; "+
			"listen on 127.0.0.1, or set admin.allow_remote if the network is trusted", c.Admin.Listen)
	}
	return err
}

func (c *Config) checkPorts() error {
	kafkaHost, kafkaPort, _ := splitAddress("", c.Kafka.Listen) // that they parse is checked elsewhere
	adminHost, adminPort, _ := splitAddress("", c.Admin.Listen)
	if kafkaPort == 0 || kafkaPort != adminPort {
		return nil
	}
	if kafkaHost == adminHost || isWildcard(kafkaHost) || isWildcard(adminHost) {
		return fmt.Errorf("kafka.listen %s and admin.listen %s want the same port: change one of them", c.Kafka.Listen, c.Admin.Listen)
	}
	return nil
}

func splitAddress(key, address string) (host string, port int, err error) {
	host, digits, err := net.SplitHostPort(address)
	if err == nil {
		port, err = strconv.Atoi(digits)
	}
	if err != nil || port < 0 || port > 65535 {
		return "", 0, fmt.Errorf("%s %q: want HOST:PORT, as in 127.0.0.1:9092 or [::1]:9092", key, address)
	}
	return host, port, nil
}

// isWildcard reports whether host stands for every address of the machine.
func isWildcard(host string) bool {
	if host == "" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsUnspecified()
}

// isLoopback reports whether host is reached from this machine only. Names other
// than localhost could be anything.
func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

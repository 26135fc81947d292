package gateway

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/strandline-io/strandline/gateway/broker"
	"github.com/strandline-io/strandline/tiers/remote"
)

// Config is what a node is told. Its zero value is not usable: begin with
// DefaultConfig.
type Config struct {
	NodeID   int32
	NodeRack string
	DataDir  string
	Bucket   string // URL; empty: no bucket
	S3       S3Config
	Kafka    KafkaConfig
	Admin    AdminConfig
	Topics   TopicsConfig

	DiskMinFree      int64
	CopyWorkers      int64
	BucketHedge      bool
	Limits           remote.Limits // of what is asked of the bucket, at the start
	Prices           remote.Prices
	CacheBytes       int64
	CacheMetaBytes   int64
	CacheDiskBytes   int64  // 0: no disk cache
	CacheDir         string // empty: in the data directory
	SnapshotInterval time.Duration
	RetentionCheck   time.Duration // between two passes of a partition
	DrainTimeout     time.Duration
	LogLevel         string
	LogFormat        string
}

// S3Config is what a bucket URL must not say or does not.
type S3Config struct {
	AccessKey, SecretKey, SessionToken string // all empty: the default chain
	AllowHTTP                          bool
}

// KafkaConfig is the listener of Kafka clients and its limits.
type KafkaConfig struct {
	Listen, Advertised string
	AllowPlaintext     bool

	MaxRequestBytes       int64
	InFlightRequestBytes  int64
	InFlightResponseBytes int64
	FetchMaxBytes         int64
	FetchSessions         int64
	MaxConnections        int64
	MaxConnectionsPerIP   int64
	MaxFetchWait          time.Duration
	IdleTimeout           time.Duration
}

// AdminConfig is the listener of operators.
type AdminConfig struct {
	Listen      string
	AllowRemote bool
}

// TopicsConfig says how topics are made.
type TopicsConfig struct {
	AutoCreate           bool
	DefaultPartitions    int64
	AcceptAnyReplication bool
	Defaults             map[string]string // topic settings, under Kafka's names
}

// DefaultConfig is what holds where nothing is said.
func DefaultConfig() Config {
	return Config{
		NodeID: 1,
		Kafka: KafkaConfig{
			Listen:                "127.0.0.1:9092",
			MaxRequestBytes:       100 << 20,
			InFlightRequestBytes:  256 << 20,
			InFlightResponseBytes: 256 << 20,
			FetchMaxBytes:         55 << 20,
			FetchSessions:         1000,
			MaxConnections:        10_000,
			MaxConnectionsPerIP:   1000,
			MaxFetchWait:          30 * time.Second,
			IdleTimeout:           10 * time.Minute,
		},
		Admin:            AdminConfig{Listen: "127.0.0.1:8092"},
		Topics:           TopicsConfig{AutoCreate: true, DefaultPartitions: 1, Defaults: map[string]string{}},
		DiskMinFree:      256 << 20,
		CopyWorkers:      4,
		BucketHedge:      true,
		CacheBytes:       192 << 20,
		CacheMetaBytes:   64 << 20,
		SnapshotInterval: 5 * time.Minute,
		RetentionCheck:   5 * time.Minute,
		DrainTimeout:     time.Minute,
		LogLevel:         "info",
		LogFormat:        "json",
		Prices:           defaultPrices(),
	}
}

// setting is one key of the configuration, bound to a Config.
type setting struct {
	key    string
	kind   string // in words, for the reference
	doc    string
	secret bool
	set    func(string) error
	get    func() string
	show   func(string) string // what may be shown of a value; nil: all of it
}

// shown is the value as it may be shown.
func (s setting) shown() string {
	v := s.get()
	switch {
	case s.secret && v != "":
		return redacted
	case s.show != nil:
		return s.show(v)
	}
	return v
}

// redacted stands for a secret that is set.
const redacted = "(secret)"

// settings binds every key to c, in the order of the reference.
func (c *Config) settings() []setting {
	return slices.Concat(c.nodeSettings(), c.costSettings(), c.listenerSettings(), c.topicSettings())
}

func (c *Config) nodeSettings() []setting {
	return []setting{
		number("node.id", &c.NodeID, 0, math.MaxInt32, "Id of this node, Kafka's broker id. Partitions remember it: keep it for the life of a data directory."),
		text("node.rack", &c.NodeRack, "Rack of this node, as clients see it."),
		text("data_dir", &c.DataDir, "Absolute path of the folder for segments and the control plane. One process at a time may use it."),
		size("disk.min_free_bytes", &c.DiskMinFree, 0, "Free bytes of the data directory's disk below which no records are taken, so that there is room for what must go on: "+
			"checkpoints, the control plane, deletions. At most a twentieth of the disk; 0: only writes that fail count."),
		address("bucket", &c.Bucket, "Where closed segments go: s3://BUCKET/PREFIX?endpoint=URL&region=NAME&driver=s3|minio or dir:/absolute/path. "+
			"Empty: everything stays on local disk. memory: is for trying things out and forgets everything at the end."),
		secret("s3.access_key", &c.S3.AccessKey, "Static access key. Empty: the environment (AWS_ACCESS_KEY_ID, ...), shared files or the machine's role."),
		secret("s3.secret_key", &c.S3.SecretKey, "Static secret key. Better given by STRANDLINE_S3_SECRET_KEY or the default chain than in a file."),
		secret("s3.session_token", &c.S3.SessionToken, "Session token that belongs to temporary keys."),
		boolean("s3.allow_http", &c.S3.AllowHTTP, "Allow an http:// endpoint that is not on this machine. Records and signatures then cross the network in the clear."),
		number("copy.workers", &c.CopyWorkers, 1, 1024, "Segments that are copied to the bucket at the same time."),
		boolean("remote.hedge", &c.BucketHedge, "Ask once more for a small range that takes longer than 95 of 100 do (and 250 ms at least), and take the first answer. At most 5 a second and 2 of 100 requests; never for writes."),
		rate("remote.upload_bytes_per_second", &c.Limits.UploadBytes, "Bytes of segments that go to the bucket per second, at most. 0: no limit. Like the three below it can be changed while the node runs (PATCH /v1/limits)."),
		rate("remote.download_bytes_per_second", &c.Limits.DownloadBytes, "Bytes of segments that are read from the bucket per second, at most. 0: no limit."),
		number("remote.write_requests_per_second", &c.Limits.WriteRequests, 0, 1_000_000, "Requests of class A (PUT, POST, LIST) for segments per second, at most. 0: no limit. The claim, the control plane and deletions have none of these limits."),
		number("remote.read_requests_per_second", &c.Limits.ReadRequests, 0, 1_000_000, "Requests of class B (GET, HEAD) for segments per second, at most. 0: no limit."),
		size("cache.bytes", &c.CacheBytes, 1<<20, "Memory for what was read from the bucket, its indexes and what is on its way included."),
		size("cache.meta_bytes", &c.CacheMetaBytes, 256<<10, "How much of cache.bytes is for the indexes of segments, about 700 KiB for one of 1 GiB. At most half."),
		size("cache.disk_bytes", &c.CacheDiskBytes, 0, "Disk for what was read from the bucket and does not fit into cache.bytes. It outlives the process. 0: none; the disk of the data directory is best left to what is not in the bucket yet."),
		text("cache.dir", &c.CacheDir, "Absolute path of the folder for cache.disk_bytes, of this node alone, best on a disk of its own. Empty: the folder cache in the data directory."),
		duration("snapshot_interval", &c.SnapshotInterval, time.Second, 24*time.Hour, "How often the whole control plane is written to the bucket. Changes of topics go there at once."),
		duration("retention_check_interval", &c.RetentionCheck, 100*time.Millisecond, 24*time.Hour, "How often each partition looks for records that retention deletes, Kafka's log.retention.check.interval.ms."),
		duration("drain_timeout", &c.DrainTimeout, time.Second, time.Hour, "How long a stop may take before what is under way is cut off. Nothing acknowledged is lost."),
		choice("log.level", &c.LogLevel, []string{"trace", "debug", "info", "warn", "error"}, "Least level of messages that are logged."),
		choice("log.format", &c.LogFormat, []string{"json", "text"}, "Form of log lines on standard error."),
	}
}

func (c *Config) listenerSettings() []setting {
	k := &c.Kafka
	return []setting{
		text("kafka.listen", &k.Listen, "Address for Kafka clients. Port 0 takes a free one."),
		text("kafka.advertised", &k.Advertised, "Address that clients are told to come back to. Empty: the one that is listened on."),
		boolean("kafka.allow_plaintext", &k.AllowPlaintext, "Allow kafka.listen to be reachable from other machines, without encryption or authentication."),
		size("kafka.max_request_bytes", &k.MaxRequestBytes, 1<<10, "Largest request, Kafka's socket.request.max.bytes."),
		size("kafka.in_flight_request_bytes", &k.InFlightRequestBytes, 1<<10, "Memory for requests that are read or handled. Connections wait beyond it."),
		size("kafka.in_flight_response_bytes", &k.InFlightResponseBytes, 1<<10, "Memory for records on their way to clients."),
		size("kafka.fetch_max_bytes", &k.FetchMaxBytes, 1<<10, "Largest response to a fetch, Kafka's fetch.max.bytes."),
		number("kafka.fetch_sessions", &k.FetchSessions, 1, 1_000_000, "Fetch sessions that are remembered, Kafka's max.incremental.fetch.session.cache.slots."),
		number("kafka.max_connections", &k.MaxConnections, 1, 1_000_000, "Connections in all."),
		number("kafka.max_connections_per_ip", &k.MaxConnectionsPerIP, 1, 1_000_000, "Connections of one address."),
		duration("kafka.max_fetch_wait", &k.MaxFetchWait, time.Millisecond, time.Hour, "Longest time that a fetch waits for records, whatever the client asks."),
		duration("kafka.idle_timeout", &k.IdleTimeout, time.Second, 24*time.Hour, "A connection without a request for this long is closed, Kafka's connections.max.idle.ms."),
		text("admin.listen", &c.Admin.Listen, "Address of the admin interface: health, metrics, /v1. Port 0 takes a free one."),
		boolean("admin.allow_remote", &c.Admin.AllowRemote, "Allow admin.listen to be reachable from other machines. It has no authentication: anybody there may delete topics."),
	}
}

func (c *Config) topicSettings() []setting {
	t := &c.Topics
	out := []setting{
		boolean("topics.auto_create", &t.AutoCreate, "Make a topic when a client asks for one that does not exist."),
		number("topics.default_partitions", &t.DefaultPartitions, 1, 100_000, "Partitions of a topic where the client leaves it open."),
		boolean("topics.accept_any_replication", &t.AcceptAnyReplication, "Accept any replication factor and keep one copy, for tools that insist on more."),
	}
	for _, s := range broker.TopicSettings(c.Bucket != "") {
		out = append(out, t.defaultOf(s))
	}
	return out
}

// defaultOf is the key of the node's default for a topic setting.
func (t *TopicsConfig) defaultOf(s broker.TopicSetting) setting {
	name := s.Name
	return setting{
		key:  "topics.defaults." + strings.ReplaceAll(strings.TrimPrefix(name, "strandline."), ".", "_"),
		kind: s.Valid,
		doc:  "Default of " + name + ".",
		set: func(v string) error {
			t.Defaults[name] = v
			return nil // broker.CheckTopicDefaults looks at all of them together
		},
		get: func() string {
			if v, ok := t.Defaults[name]; ok {
				return v
			}
			return s.Default
		},
	}
}

// flagName is the name of a key as a flag: node.id is --node-id.
func (s setting) flagName() string { return strings.NewReplacer(".", "-", "_", "-").Replace(s.key) }

// envName is the name of a key in the environment: STRANDLINE_NODE_ID.
func (s setting) envName() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(s.key, ".", "_"))
}

const envPrefix = "STRANDLINE_"

func text(key string, v *string, doc string) setting {
	return setting{
		key: key, kind: "text", doc: doc,
		set: func(s string) error { *v = s; return nil },
		get: func() string { return *v },
	}
}

// address is a URL. A password does not belong into it, and is not shown.
func address(key string, v *string, doc string) setting {
	s := text(key, v, doc)
	s.show = redactURL
	return s
}

func secret(key string, v *string, doc string) setting {
	s := text(key, v, doc)
	s.secret = true
	return s
}

func boolean(key string, v *bool, doc string) setting {
	return setting{
		key: key, kind: "true or false", doc: doc,
		set: func(s string) (err error) {
			switch s {
			case "true", "false":
				*v = s == "true"
				return nil
			}
			return fmt.Errorf("%q is neither true nor false", s)
		},
		get: func() string { return strconv.FormatBool(*v) },
	}
}

func number[T int32 | int64](key string, v *T, low, high int64, doc string) setting {
	return setting{
		key: key, kind: fmt.Sprintf("%d to %d", low, high), doc: doc,
		set: func(s string) error {
			n, err := strconv.ParseInt(s, 10, 64)
			if err != nil || n < low || n > high {
				return fmt.Errorf("%q is not a whole number from %d to %d", s, low, high)
			}
			*v = T(n)
			return nil
		},
		get: func() string { return strconv.FormatInt(int64(*v), 10) },
	}
}

func choice(key string, v *string, words []string, doc string) setting {
	s := text(key, v, doc)
	s.kind = strings.Join(words, ", ")
	s.set = func(given string) error {
		for _, w := range words {
			if w == given {
				*v = w
				return nil
			}
		}
		return fmt.Errorf("%q: choose one of %s", given, s.kind)
	}
	return s
}

func duration(key string, v *time.Duration, low, high time.Duration, doc string) setting {
	return setting{
		key: key, kind: fmt.Sprintf("duration, %s to %s", low, high), doc: doc,
		set: func(s string) error {
			d, err := time.ParseDuration(s)
			if err != nil || d < low || d > high {
				return fmt.Errorf("%q is not a duration from %s to %s: write it like 90s or 5m", s, low, high)
			}
			*v = d
			return nil
		},
		get: func() string { return v.String() },
	}
}

func size(key string, v *int64, low int64, doc string) setting {
	return setting{
		key: key, kind: "bytes, at least " + FormatBytes(low), doc: doc,
		set: func(s string) error {
			n, err := ParseBytes(s)
			if err != nil {
				return err
			}
			if n < low {
				return fmt.Errorf("%q is less than %s", s, FormatBytes(low))
			}
			*v = n
			return nil
		},
		get: func() string { return FormatBytes(*v) },
	}
}

type byteUnit struct {
	name string
	size int64
}

func byteUnits() []byteUnit {
	return []byteUnit{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}
}

// ParseBytes reads a number of bytes: 1048576, 1024KiB or 1MiB.
func ParseBytes(s string) (int64, error) {
	unit := int64(1)
	digits := s
	for _, u := range byteUnits() {
		if d, ok := strings.CutSuffix(s, u.name); ok {
			digits, unit = strings.TrimSpace(d), u.size
			break
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/unit {
		return 0, fmt.Errorf("%q is not a number of bytes: write it like 1048576, 512KiB, 64MiB or 2GiB", s)
	}
	return n * unit, nil
}

// FormatBytes writes n with the largest unit that divides it.
func FormatBytes(n int64) string {
	for _, u := range byteUnits() {
		if n >= u.size && n%u.size == 0 {
			return strconv.FormatInt(n/u.size, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

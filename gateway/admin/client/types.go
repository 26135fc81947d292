package client

import "time"

// Health is what the health endpoints answer. Arrays are never null.
type Health struct {
	Status   string   `json:"status"`   // "ok" or "unavailable"
	Reasons  []string `json:"reasons"`  // why it is unavailable
	Warnings []string `json:"warnings"` // what is wrong without stopping the node
}

// Cluster is who a node is and how it does.
type Cluster struct {
	ClusterID  string   `json:"cluster_id"`
	NodeID     int32    `json:"node_id"`
	Rack       string   `json:"rack"`
	Version    string   `json:"version"`
	Kafka      []string `json:"kafka"`  // addresses that clients are told
	Bucket     string   `json:"bucket"` // without secrets; empty: none
	Topics     int      `json:"topics"`
	Partitions int      `json:"partitions"`
	Offline    []string `json:"offline"` // partitions that do not serve, with the reason
	Disk       Disk     `json:"disk"`
	BucketDown string   `json:"bucket_down"` // why the bucket did not answer when it was asked last; empty: it did
	Stalled    int      `json:"stalled"`     // partitions whose copies to the bucket have failed for a while
}

// Topic is a topic in a list.
type Topic struct {
	Name       string            `json:"name"`
	ID         string            `json:"id"`
	Partitions int               `json:"partitions"`
	CreatedAt  time.Time         `json:"created_at"`
	Configs    map[string]string `json:"configs"` // only what was set
}

// TopicDetail is a topic with its partitions.
type TopicDetail struct {
	Topic
	Detail []Partition `json:"partition_detail"`
}

// Partition is the picture of one partition. Offsets follow Kafka: ends are
// exclusive.
type Partition struct {
	Index  int32  `json:"index"`
	State  string `json:"state"`  // "online", or "offline" or "read-only" with a reason
	Reason string `json:"reason"` // empty while online

	LeaderEpoch   int32 `json:"leader_epoch"`
	HistoryGen    int32 `json:"history_gen"`
	LogStart      int64 `json:"log_start"`
	LocalLogStart int64 `json:"local_log_start"`
	RemoteEnd     int64 `json:"remote_end"`
	LastStable    int64 `json:"last_stable"`
	HighWatermark int64 `json:"high_watermark"`
	LogEnd        int64 `json:"log_end"`

	LocalSegments  int     `json:"local_segments"`
	LocalBytes     int64   `json:"local_bytes"`
	RemoteSegments int     `json:"remote_segments"`
	RemoteBytes    int64   `json:"remote_bytes"`
	CopyLagBytes   int64   `json:"copy_lag_bytes"`   // closed segments that are not in the bucket and should be
	CopyLagSeconds float64 `json:"copy_lag_seconds"` // age of the oldest of them
}

// Segment is a segment in one or both tiers.
type Segment struct {
	Base         int64        `json:"base"`
	Next         int64        `json:"next"`
	Tier         string       `json:"tier"` // "local", "remote" or "both"
	State        string       `json:"state"`
	Bytes        int64        `json:"bytes"`
	MaxTimestamp int64        `json:"max_timestamp"` // milliseconds since 1970, -1: none
	Epochs       []EpochStart `json:"epochs"`
	Key          string       `json:"key"` // of the object, empty if there is none
	Why          string       `json:"why"` // it is where it is, or what is about to happen to it
}

// Summary adds the segments of a partition up. Bytes that are in both tiers count
// in local_bytes, in remote_bytes and in both_bytes, and once in total_bytes.
type Summary struct {
	LogStart      int64    `json:"log_start"`
	LocalLogStart int64    `json:"local_log_start"`
	RemoteEnd     int64    `json:"remote_end"`
	HighWatermark int64    `json:"high_watermark"`
	LogEnd        int64    `json:"log_end"`
	LocalBytes    int64    `json:"local_bytes"`
	RemoteBytes   int64    `json:"remote_bytes"`
	BothBytes     int64    `json:"both_bytes"`
	TotalBytes    int64    `json:"total_bytes"`
	CopyLagBytes  int64    `json:"copy_lag_bytes"` // closed segments that are not in the bucket and should be
	Next          []string `json:"next"`           // what retention will do next, in words
}

// Trim asks for records to be deleted from the start of a partition on.
type Trim struct {
	To     *Position `json:"to,omitempty"`     // the first offset that stays
	Before *Instant  `json:"before,omitempty"` // without to: trim to the first record that is not older
	DryRun bool      `json:"dry_run,omitempty"`
	// Confirm has to be true unless dry_run is.
	Confirm bool `json:"confirm,omitempty"`
	// AllowNewer has records go that are not older than before.
	AllowNewer bool `json:"allow_newer,omitempty"`
}

// Trimmed is what a trim deletes.
type Trimmed struct {
	Topic       string `json:"topic"`
	Partition   int32  `json:"partition"`
	Done        bool   `json:"done"`      // false: a dry run
	LogStart    int64  `json:"log_start"` // before it
	Offset      int64  `json:"offset"`    // the log start after it
	Offsets     int64  `json:"offsets"`   // between the two: records, and what is left of aborted or compacted ones
	Segments    int    `json:"segments"`  // that go as a whole
	LocalBytes  int64  `json:"local_bytes"`
	RemoteBytes int64  `json:"remote_bytes"`
	Newest      int64  `json:"newest_timestamp"` // that goes, milliseconds since 1970, -1: none
	Newer       bool   `json:"newer"`            // newest_timestamp is not before the time that was given
}

// Effect is what a change of settings deletes of a partition, at the next passes
// of retention.
type Effect struct {
	Partition   int32  `json:"partition"`
	LogStart    int64  `json:"log_start"`     // now
	NewLogStart int64  `json:"new_log_start"` // then
	Segments    int    `json:"segments"`
	LocalBytes  int64  `json:"local_bytes"`
	RemoteBytes int64  `json:"remote_bytes"`
	Unknown     string `json:"unknown"` // why the partition could not be asked, empty if it was
}

// EpochStart is a leader epoch and where it starts.
type EpochStart struct {
	Epoch int32 `json:"epoch"`
	Start int64 `json:"start"`
}

// NewTopic asks for a topic.
type NewTopic struct {
	Name        string            `json:"name"`
	Partitions  *int32            `json:"partitions,omitempty"`         // nil: the node's default
	Replication *int16            `json:"replication_factor,omitempty"` // nil: the node's default
	Configs     map[string]string `json:"configs,omitempty"`
	CheckOnly   bool              `json:"check_only,omitempty"`
}

// ConfigEntry is a setting of a topic.
type ConfigEntry struct {
	Name    string `json:"name"`
	Value   string `json:"value"`
	Source  string `json:"source"` // "topic", "node" or "default"
	Default string `json:"default"`
	Doc     string `json:"doc"`
}

// ConfigKey is a key of the node's configuration. Secrets are not shown.
type ConfigKey struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Source string `json:"source"`
}

// Wait is the body of the requests that can go on in the background.
type Wait struct {
	Wait bool `json:"wait"`
}

// Problem is an error as RFC 9457 has it.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Kind   string `json:"kind"` // what went wrong, in one of the words that the node knows
}

// Error is the detail, which says what to do.
func (p *Problem) Error() string {
	if p.Detail == "" {
		return p.Title
	}
	return p.Detail
}

// The lists of the interface, each in an object so that more can be added.
type (
	// Topics is the answer of GET /v1/topics.
	Topics struct {
		Topics []Topic `json:"topics"`
	}
	// Segments is the answer of GET .../segments.
	Segments struct {
		Topic     string    `json:"topic"`
		Partition int32     `json:"partition"`
		Segments  []Segment `json:"segments"`
		Summary   Summary   `json:"summary"`
	}
	// ConfigCheck is the answer of PATCH .../configs?check_only=true.
	ConfigCheck struct {
		Effects []Effect `json:"effects"` // of the partitions that would lose something
	}
	// Configs is the answer of GET .../configs.
	Configs struct {
		Configs []ConfigEntry `json:"configs"`
	}
	// NodeConfig is the answer of GET /v1/config.
	NodeConfig struct {
		Config []ConfigKey `json:"config"`
	}
)

// Package control is the control plane: what is true for the whole cluster.
// Topics, configurations, leader epochs, remote segments, producer ids and group
// offsets are rows of a Store; the bucket holds the cluster's claim, every change
// of topics and configurations before it is answered, and snapshots.
//
// Every mutation carries a Fence and is compared with it in the transaction that
// makes the change. State moves are compare-and-set on the old state.
package control

import (
	"context"
	"time"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/partition"
)

// Rev numbers the changes of topics, configurations and log starts, without gaps.
type Rev int64

// Topic is a topic with its partitions.
type Topic struct {
	ID         tiers.TopicID
	Name       string
	Configs    map[string]string // only what was set; never nil
	Partitions []Partition       // by index, dense from 0
	Rev        Rev               // of its last change
	CreatedAt  time.Time
}

// Partition is the control plane's row of a partition.
type Partition struct {
	Index    int32
	Gen      tiers.HistoryGen
	Leader   tiers.NodeID
	Epoch    tiers.LeaderEpoch
	LogStart tiers.Offset // of the whole log, once something raised it; else 0
}

// Session is a node's registration. Its epoch fences everything that an earlier
// incarnation of the node left running.
type Session struct {
	Node  tiers.NodeID
	Epoch int64
}

// NewTopic asks for a topic.
type NewTopic struct {
	ID         tiers.TopicID // zero: the store makes one
	Name       string
	Partitions int32
	Configs    map[string]string
}

// Change is one change of topics, configurations or log starts: what is in the
// bucket before it is answered, and what watchers get.
type Change struct {
	Rev     Rev
	Topic   Topic // after the change; before it if Deleted
	Deleted bool
	Raised  *Raised // not nil: this alone changed, and Topic is empty
}

// Raised is a log start that moved up: what has to be known of a topic that may
// have very many partitions (R8).
type Raised struct {
	Partition tiers.PartitionID
	Gen       tiers.HistoryGen
	LogStart  tiers.Offset
}

// OffsetCommit is the committed offset of a group for one partition (spec H11).
type OffsetCommit struct {
	Group     string
	Partition tiers.PartitionID
	Gen       tiers.HistoryGen
	Offset    tiers.Offset
	Epoch     tiers.LeaderEpoch // leader epoch of the last consumed record, NoEpoch if not given
	Metadata  string
	At        time.Time
}

// State is everything that a Store holds: what a snapshot carries and a rebuild
// loads.
type State struct {
	Cluster      string // cluster id, 22 characters
	Rev          Rev
	NextProducer int64
	Topics       []Topic               // by id
	Segments     []tiers.RemoteSegment // by partition, gen, base, id
	Offsets      []OffsetCommit        // by group, partition, gen
}

// Store is one engine of the control plane. gateway/control/controltest is what
// each must pass. All methods are safe for concurrent use; a mutation is durable
// when it returns nil. Errors are *tiers.Error.
type Store interface {
	// What owners call, through RegistryOf. The mutations compare Fence.Gen and
	// Fence.Epoch with the partition's row and Fence.NodeEpoch with its leader's
	// session.

	// Segments is that of partition.Registry, and so are the four below.
	Segments(ctx context.Context, id tiers.PartitionID, gen tiers.HistoryGen) ([]tiers.RemoteSegment, error)
	CopyStarted(ctx context.Context, f partition.Fence, s tiers.RemoteSegment) error
	CopyFinished(ctx context.Context, f partition.Fence, s tiers.RemoteSegment) error
	DeleteStarted(ctx context.Context, f partition.Fence, id tiers.SegmentID) error
	DeleteFinished(ctx context.Context, f partition.Fence, id tiers.SegmentID) error
	// RaiseLogStart moves a partition's log start up. It is a change with a
	// revision of its own; that of the topic stays. A lower or equal offset changes
	// nothing. It returns the revision up to which changes must be in the bucket
	// for the log start to be known there: an equal one may be on its way still.
	RaiseLogStart(ctx context.Context, f partition.Fence, o tiers.Offset) (Rev, error)

	// Cluster returns the cluster id, made at the first start.
	Cluster(ctx context.Context) (string, error)
	// OpenSession registers the node: its node epoch rises, and so does the
	// leader epoch of every partition that it leads.
	OpenSession(ctx context.Context, node tiers.NodeID) (Session, error)

	// CreateTopic makes the session's node the leader of every partition, with
	// history 1 and leader epoch 0. It fails with TopicExists, also while the name's letters clash
	// with another topic's (a.b and a_b, report row 15).
	CreateTopic(ctx context.Context, s Session, t NewTopic) (Topic, error)
	// AddPartitions raises the count to n; fewer or equal is InvalidPartitions.
	AddPartitions(ctx context.Context, s Session, id tiers.TopicID, n int32) (Topic, error)
	// SetConfigs replaces the configs that are set by those given. ifRev, if not
	// 0, must be the topic's Rev: else Conflict. Settings equal to those that
	// there are change nothing, not even the Rev.
	SetConfigs(ctx context.Context, s Session, id tiers.TopicID, ifRev Rev, configs map[string]string) (Topic, error)
	// DeleteTopic removes the topic; its segments go to DeleteStarted and stay
	// listed by Doomed until DeleteFinished. Its group offsets go.
	DeleteTopic(ctx context.Context, s Session, id tiers.TopicID) (Rev, error)
	// Topics returns all topics by name.
	Topics(ctx context.Context) ([]Topic, error)
	// LastRev returns the revision of the last change, 0 if there was none.
	LastRev(ctx context.Context) (Rev, error)
	// Changes returns the changes after a revision, in order: Conflict if some of
	// them were trimmed, or if after is a revision that the store has not reached.
	Changes(ctx context.Context, after Rev) ([]Change, error)
	// TrimChanges forgets the changes up to a revision, once they are in a
	// snapshot. A lower revision than the last trim's changes nothing.
	TrimChanges(ctx context.Context, upTo Rev) error
	// Doomed returns at most limit segments in DeleteStarted whose topic is gone,
	// by partition, gen, base, id.
	Doomed(ctx context.Context, limit int) ([]tiers.RemoteSegment, error)
	// Buried removes rows that Doomed returned, once their objects are gone. An id
	// without a row is no error; one that is not doomed is Conflict.
	Buried(ctx context.Context, s Session, ids ...tiers.SegmentID) error

	// ProducerIDs reserves n producer ids and returns the first. No id is ever
	// given twice.
	ProducerIDs(ctx context.Context, s Session, n int64) (first int64, err error)

	// CommitOffsets stores offsets, all or none. A commit for a history that is
	// not the partition's is StaleFence.
	CommitOffsets(ctx context.Context, s Session, cs []OffsetCommit) error
	// Offsets returns a group's offsets in current histories, by partition.
	// Nothing is no error.
	Offsets(ctx context.Context, group string) ([]OffsetCommit, error)
	// DeleteOffsets forgets offsets of a group; no partitions means all.
	DeleteOffsets(ctx context.Context, s Session, group string, ps []tiers.PartitionID) error
	// Groups lists the groups that have offsets, by name.
	Groups(ctx context.Context) ([]string, error)

	// Dump returns everything, as of one moment.
	Dump(ctx context.Context) (State, error)
	// Load fills an empty store and adopts the cluster id; a store that knows a
	// topic, a segment or a change is Conflict. Producer ids that were given out
	// already are never given again. Changes then starts after st.Rev.
	Load(ctx context.Context, st State) error
	// Close ends the store.
	Close() error
}

package control

import (
	"context"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/remote"
)

// ClaimOptions say who claims a bucket.
type ClaimOptions struct {
	Cluster  string // the cluster id; a bucket claimed by another cluster is refused
	Node     tiers.NodeID
	Instance string // made at each start, unique
	Now      func() time.Time
	Log      hclog.Logger
}

// Claim is this node's hold on a bucket prefix: the object cluster/claim, changed
// by conditional writes only. One cluster has a prefix; within it the newest
// start wins, so a node that was cloned or replaced finds out.
type Claim struct{}

// AcquireClaim takes the claim, raising its generation. Error kinds: Conflict if
// another cluster holds it (the message says how to rebuild or choose another
// prefix), RemoteUnavailable.
func AcquireClaim(ctx context.Context, b remote.Bucket, o ClaimOptions) (*Claim, error) {
	panic("contract")
}

// Generation rises with every start on this bucket.
func (c *Claim) Generation() int64 { panic("contract") }

// Check reads the claim again: StaleFence if it is somebody else's now.
func (c *Claim) Check(ctx context.Context) error { panic("contract") }

// Release marks the claim as given up by a clean shutdown; it is never deleted and
// its generation never falls.
func (c *Claim) Release(ctx context.Context) error { panic("contract") }

// Journal puts what the control plane knows into the bucket: each change of
// topics and configurations as an object of its own, before it is answered, and
// snapshots of everything.
type Journal struct{}

// NewJournal returns a journal of s in b. Call Snapshot before serving: it makes
// the leader epochs that OpenSession raised durable in the bucket, so that a
// rebuild can never hand one of them out again.
func NewJournal(b remote.Bucket, s Store, c *Claim, log hclog.Logger) *Journal { panic("contract") }

// Publish returns once every change up to rev is in the bucket.
func (j *Journal) Publish(ctx context.Context, rev Rev) error { panic("contract") }

// Snapshot writes a snapshot and drops the snapshots and changes that it makes
// superfluous, keeping the newest three.
func (j *Journal) Snapshot(ctx context.Context) error { panic("contract") }

// ReadJournal returns the newest valid snapshot with the changes after it
// applied, and what it read. A damaged snapshot is reported and the one before it
// is used.
func ReadJournal(ctx context.Context, b remote.Bucket) (State, JournalReport, error) {
	panic("contract")
}

// JournalReport says what ReadJournal found.
type JournalReport struct {
	Snapshot   string // key of the snapshot that was used, empty if none
	At         time.Time
	Changes    int      // changes applied after it
	Damaged    []string // keys that did not decode
	Generation int64    // of the claim, 0 if there is none
}

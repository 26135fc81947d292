package control

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/remote"
)

const (
	changePrefix   = "cluster/change/"
	snapshotPrefix = "cluster/snapshot/"
	// keptSnapshots is how many snapshots stay: a damaged one must not be the end.
	keptSnapshots = 3
)

// Journal puts what the control plane knows into the bucket: each change of
// topics and configurations as an object of its own, before it is answered, and
// snapshots of everything.
//
// A generation of the claim begins with a snapshot. So a reader knows what a node
// that had already been replaced wrote late: a change counts only if its
// generation is that of the snapshot it follows, and never beyond the revision at
// which a later generation began.
type Journal struct {
	bucket     remote.Bucket
	store      Store
	generation int64
	log        hclog.Logger

	turn      chan struct{} // holds one token: who has it writes changes
	published atomic.Int64  // Rev up to which the bucket has every change
	snapshots sync.Mutex    // one snapshot at a time
	seq       int64         // of the next snapshot of this start
}

// NewJournal returns a journal of s in b. Call Snapshot before serving: it makes
// the leader epochs that OpenSession raised durable in the bucket, so that a
// rebuild can never hand one of them out again.
func NewJournal(b remote.Bucket, s Store, c *Claim, log hclog.Logger) *Journal {
	j := &Journal{bucket: b, store: s, generation: c.Generation(), log: log, turn: make(chan struct{}, 1)}
	j.turn <- struct{}{}
	return j
}

// Publish returns once every change up to rev is in the bucket. Calls that wait
// for the same changes share the writes.
func (j *Journal) Publish(ctx context.Context, rev Rev) error {
	if j.published.Load() >= int64(rev) {
		return nil
	}
	select {
	case <-j.turn:
	case <-ctx.Done():
		return tiers.E(tiers.TimedOut, "publish change", j.bucket.String(), "%w", ctx.Err())
	}
	defer func() { j.turn <- struct{}{} }()
	if j.published.Load() >= int64(rev) {
		return nil
	}
	changes, err := j.store.Changes(ctx, Rev(j.published.Load()))
	if err != nil {
		return err
	}
	for _, c := range changes {
		if err := j.putChange(ctx, c); err != nil {
			return claimError("publish change", j.bucket, err)
		}
		j.raisePublished(c.Rev) // a snapshot may have come further meanwhile
	}
	if j.published.Load() < int64(rev) {
		return tiers.E(tiers.InvalidRequest, "publish change", j.bucket.String(), "revision %d does not exist", rev)
	}
	return nil
}

func (j *Journal) putChange(ctx context.Context, c Change) error {
	raw, err := encodeChange(c)
	if err != nil {
		return err
	}
	_, err = j.bucket.Put(ctx, changeKey(c.Rev, j.generation), remote.BytesBody(raw), remote.PutOptions{})
	return err
}

func encodeChange(c Change) ([]byte, error) {
	body, err := json.Marshal(changeDoc{Rev: c.Rev, Deleted: c.Deleted, Topic: topicDocOf(c.Topic)})
	if err != nil {
		return nil, fmt.Errorf("encode change %d: %w", c.Rev, err)
	}
	return kindChange.seal(body, false)
}

func decodeChange(raw []byte) (Change, error) {
	body, err := kindChange.open(raw)
	if err != nil {
		return Change{}, err
	}
	var d changeDoc
	if err := json.Unmarshal(body, &d); err != nil {
		return Change{}, fmt.Errorf("decode change: %w", err)
	}
	c := Change{Rev: d.Rev, Deleted: d.Deleted, Topic: d.Topic.topic()}
	if c.Rev < 1 || c.Topic.ID.IsZero() {
		return Change{}, fmt.Errorf("change %d of topic %s", c.Rev, c.Topic.ID)
	}
	return c, nil
}

func changeKey(rev Rev, generation int64) string {
	return fmt.Sprintf("%s%020d-%010d", changePrefix, rev, generation)
}

func parseChangeKey(key string) (rev Rev, generation int64, ok bool) {
	n, ok := parseNumbers(strings.TrimPrefix(key, changePrefix), 2)
	if !ok {
		return 0, 0, false
	}
	return Rev(n[0]), n[1], true
}

// snapshotName is what a snapshot's key says.
type snapshotName struct {
	generation int64
	rev        Rev
	seq        int64 // within the generation
}

func (n snapshotName) key() string {
	return fmt.Sprintf("%s%010d-%020d-%010d", snapshotPrefix, n.generation, n.rev, n.seq)
}

func parseSnapshotKey(key string) (snapshotName, bool) {
	n, ok := parseNumbers(strings.TrimPrefix(key, snapshotPrefix), 3)
	if !ok {
		return snapshotName{}, false
	}
	return snapshotName{generation: n[0], rev: Rev(n[1]), seq: n[2]}, true
}

// parseNumbers reads want decimal numbers with dashes between them.
func parseNumbers(s string, want int) ([]int64, bool) {
	parts := strings.Split(s, "-")
	if len(parts) != want {
		return nil, false
	}
	out := make([]int64, want)
	for i, p := range parts {
		n, err := strconv.ParseInt(p, 10, 64)
		if err != nil || n < 0 {
			return nil, false
		}
		out[i] = n
	}
	return out, true
}

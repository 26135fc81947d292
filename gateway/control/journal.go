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
	// maxRaised is how many log starts one object carries: a pass of retention over
	// thousands of partitions costs a few requests.
	maxRaised = 1000
)

// Journal puts what the control plane knows into the bucket: each change of
// topics and configurations as an object of its own, log starts that moved up one
// after the other together in one, before they are answered, and snapshots of
// everything.
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
	for _, o := range objects(changes) {
		if err := j.putChanges(ctx, o); err != nil {
			return claimError("publish change", j.bucket, err)
		}
		j.raisePublished(o[len(o)-1].Rev) // a snapshot may have come further meanwhile
	}
	if j.published.Load() < int64(rev) {
		return tiers.E(tiers.InvalidRequest, "publish change", j.bucket.String(), "revision %d does not exist", rev)
	}
	return nil
}

// objects splits changes, which are in order and without gaps, into those that
// share an object: log starts that follow each other, or one other change.
func objects(changes []Change) [][]Change {
	var out [][]Change
	for i, c := range changes {
		n := len(out) - 1
		if i > 0 && c.Raised != nil && changes[i-1].Raised != nil && len(out[n]) < maxRaised {
			out[n] = append(out[n], c)
			continue
		}
		out = append(out, changes[i:i+1:i+1])
	}
	return out
}

// putChanges writes one object, under the revision of the last change in it.
func (j *Journal) putChanges(ctx context.Context, cs []Change) error {
	raw, err := encodeChanges(cs)
	if err != nil {
		return err
	}
	_, err = j.bucket.Put(ctx, changeKey(cs[len(cs)-1].Rev, j.generation), remote.BytesBody(raw), remote.PutOptions{})
	return err
}

func encodeChanges(cs []Change) ([]byte, error) {
	last := cs[len(cs)-1]
	d := changeDoc{Rev: last.Rev, Deleted: last.Deleted}
	if last.Raised == nil {
		d.Topic = new(topicDocOf(last.Topic))
	} else {
		for _, c := range cs {
			r := c.Raised
			d.Raised = append(d.Raised, raisedDoc{r.Partition.Topic, r.Partition.Index, r.Gen, r.LogStart})
		}
	}
	body, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("encode change %d: %w", last.Rev, err)
	}
	return kindChange.seal(body, false)
}

// decodeChanges returns the changes that an object carries, at least one, in order
// and without gaps.
func decodeChanges(raw []byte) ([]Change, error) {
	body, err := kindChange.open(raw)
	if err != nil {
		return nil, err
	}
	var d changeDoc
	if err := json.Unmarshal(body, &d); err != nil {
		return nil, fmt.Errorf("decode change: %w", err)
	}
	if d.Topic != nil {
		c := Change{Rev: d.Rev, Deleted: d.Deleted, Topic: d.Topic.topic()}
		if c.Rev < 1 || c.Topic.ID.IsZero() || len(d.Raised) > 0 {
			return nil, fmt.Errorf("change %d of topic %s with %d log starts", c.Rev, c.Topic.ID, len(d.Raised))
		}
		return []Change{c}, nil
	}
	first := d.Rev - Rev(len(d.Raised)) + 1
	if first < 1 || len(d.Raised) == 0 || d.Deleted {
		return nil, fmt.Errorf("change %d without a topic, with %d log starts", d.Rev, len(d.Raised))
	}
	out := make([]Change, len(d.Raised))
	for i, r := range d.Raised {
		if r.Topic.IsZero() || r.Index < 0 || r.Gen < 1 || r.LogStart < 0 {
			return nil, fmt.Errorf("change %d: log start %d of %s-%d gen %d", first+Rev(i), r.LogStart, r.Topic, r.Index, r.Gen)
		}
		out[i] = Change{Rev: first + Rev(i), Raised: &Raised{tiers.PartitionID{Topic: r.Topic, Index: r.Index}, r.Gen, r.LogStart}}
	}
	return out, nil
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

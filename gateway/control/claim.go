package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/go-hclog"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/remote"
)

const (
	claimKey = "cluster/claim"
	// claimTries bounds the races that one Acquire takes part in: each lost one
	// means that somebody else started.
	claimTries = 100
	// maxClaim is far above what a claim needs and below what every store can
	// refuse with 412 without breaking the connection.
	maxClaim = 64 << 10
)

// ClaimOptions say who claims a bucket.
type ClaimOptions struct {
	Cluster  string // the cluster id; a bucket claimed by another cluster is refused
	Node     tiers.NodeID
	Instance string // made at each start, unique
	// Known tells the starts of this very data directory. A claim that another one
	// left is refused: a directory that was replaced by a rebuild, or cloned, must
	// not take the bucket back and write a second history. Nil takes over from
	// anybody: a rebuild, or an operator who insists.
	Known func(instance string) bool
	Now   func() time.Time
	Log   hclog.Logger
}

// ClaimRecord is the content of the claim object.
type ClaimRecord struct {
	Cluster    string       `json:"cluster"`
	Generation int64        `json:"generation"`
	Node       tiers.NodeID `json:"node"`
	Instance   string       `json:"instance"`
	PutID      string       `json:"put_id"` // of the write, so that its writer knows it again
	Released   bool         `json:"released"`
	At         time.Time    `json:"at"`
}

// Claim is this node's hold on a bucket prefix: the object cluster/claim, changed
// by conditional writes only. One cluster has a prefix; within it the newest
// start wins, so a node that was cloned or replaced finds out.
type Claim struct {
	bucket remote.Bucket
	now    func() time.Time

	mu   sync.Mutex // held over a write, so that the two fields agree
	rec  ClaimRecord
	etag string
}

// ReadClaim returns the claim of a bucket; ok is false if it has none.
func ReadClaim(ctx context.Context, b remote.Bucket) (rec ClaimRecord, ok bool, err error) {
	rec, _, err = readClaim(ctx, b)
	if errors.Is(err, remote.ErrNotFound) {
		return ClaimRecord{}, false, nil
	}
	return rec, err == nil, err
}

// AcquireClaim takes the claim, raising its generation. Error kinds: Conflict if
// another cluster holds it (the message says how to rebuild or choose another
// prefix), RemoteUnavailable.
func AcquireClaim(ctx context.Context, b remote.Bucket, o ClaimOptions) (*Claim, error) {
	for range claimTries {
		old, etag, err := readClaim(ctx, b)
		cond := remote.Cond{ETag: etag}
		switch {
		case errors.Is(err, remote.ErrNotFound):
			cond = remote.Cond{Absent: true}
		case err != nil:
			return nil, claimError("acquire claim", b, err)
		case old.Cluster != o.Cluster:
			return nil, tiers.E(tiers.Conflict, "acquire claim", b.String(),
				"the bucket belongs to cluster %s (node %d, since %s) and this node to cluster %s: choose another bucket or prefix, "+
					"or bring that cluster back with `strandline rebuild` into an empty data directory",
				old.Cluster, old.Node, old.At.Format(time.RFC3339), o.Cluster)
		case o.Known != nil && !o.Known(old.Instance):
			return nil, tiers.E(tiers.Conflict, "acquire claim", b.String(),
				"the bucket was used since by another data directory of cluster %s (node %d, since %s, generation %d): it was rebuilt or copied, "+
					"and this one is out of date. Serve the other one, or `strandline rebuild` into an empty data directory; "+
					"`strandline serve --take-over` insists on this one and gives up what the other one wrote",
				old.Cluster, old.Node, old.At.Format(time.RFC3339), old.Generation)
		case !old.Released && o.Log != nil:
			o.Log.Info("taking over the bucket's claim from a start that did not release it",
				"bucket", b.String(), "generation", old.Generation, "node", old.Node, "since", old.At.Format(time.RFC3339))
		}
		c := &Claim{bucket: b, now: o.Now, rec: ClaimRecord{
			Cluster: o.Cluster, Generation: old.Generation + 1, Node: o.Node, Instance: o.Instance,
		}}
		won, err := c.write(ctx, cond)
		if err != nil {
			return nil, claimError("acquire claim", b, err)
		}
		if won {
			return c, nil
		}
	}
	return nil, tiers.E(tiers.Conflict, "acquire claim", b.String(), "lost %d races: other processes keep starting on this bucket", claimTries)
}

// write puts c.rec under cond, with a put id of its own. won is false if
// somebody else was first. After an error that leaves the outcome open, and
// after a refusal, which may be the answer to a write of ours whose first answer
// was lost, the object says who won.
func (c *Claim) write(ctx context.Context, cond remote.Cond) (won bool, err error) {
	c.rec.PutID, c.rec.At = uuid.NewString(), c.now().UTC()
	body, err := json.Marshal(c.rec)
	if err != nil {
		return false, fmt.Errorf("encode claim: %w", err)
	}
	if body, err = kindClaim.seal(body, false); err != nil {
		return false, err
	}
	obj, err := c.bucket.Put(ctx, claimKey, remote.BytesBody(body), remote.PutOptions{If: cond})
	switch {
	case err == nil:
		c.etag = obj.ETag
		return true, nil
	case errors.Is(err, remote.ErrPrecondition), errors.Is(err, remote.ErrConflict), errors.Is(err, remote.ErrUnknownOutcome):
	case errors.Is(err, remote.ErrNotFound): // If-Match on a claim that somebody removed
		return false, nil
	default:
		return false, err
	}
	now, etag, err := readClaim(ctx, c.bucket)
	switch {
	case errors.Is(err, remote.ErrNotFound):
		return false, nil
	case err != nil:
		return false, err
	}
	c.etag = etag
	return now.PutID == c.rec.PutID, nil
}

// Generation rises with every start on this bucket.
func (c *Claim) Generation() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rec.Generation
}

// Check reads the claim again: StaleFence if it is somebody else's now.
func (c *Claim) Check(ctx context.Context) error {
	rec, _, err := readClaim(ctx, c.bucket)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case errors.Is(err, remote.ErrNotFound):
		return tiers.E(tiers.StaleFence, "check claim", c.bucket.String(), "the object %s is gone", claimKey)
	case err != nil:
		return claimError("check claim", c.bucket, err)
	case rec.Instance != c.rec.Instance || rec.Generation != c.rec.Generation:
		return tiers.E(tiers.StaleFence, "check claim", c.bucket.String(),
			"node %d took it over at %s (generation %d, ours was %d)", rec.Node, rec.At.Format(time.RFC3339), rec.Generation, c.rec.Generation)
	}
	return nil
}

// Release marks the claim as given up by a clean shutdown; it is never deleted and
// its generation never falls.
func (c *Claim) Release(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rec.Released = true
	won, err := c.write(ctx, remote.Cond{ETag: c.etag})
	switch {
	case err != nil:
		return claimError("release claim", c.bucket, err)
	case !won:
		return tiers.E(tiers.StaleFence, "release claim", c.bucket.String(), "another start has taken it over")
	}
	return nil
}

func readClaim(ctx context.Context, b remote.Bucket) (ClaimRecord, string, error) {
	raw, etag, err := readObject(ctx, b, claimKey, maxClaim)
	if err != nil {
		return ClaimRecord{}, "", err
	}
	rec, err := decodeClaim(raw)
	if err != nil {
		return ClaimRecord{}, "", tiers.E(tiers.CorruptMessage, "read claim", b.String(),
			"the object %s is damaged: %w; if no node uses the bucket, delete that object and start again", claimKey, err)
	}
	return rec, etag, nil
}

func decodeClaim(raw []byte) (ClaimRecord, error) {
	body, err := kindClaim.open(raw)
	if err != nil {
		return ClaimRecord{}, err
	}
	var rec ClaimRecord
	if err := json.Unmarshal(body, &rec); err != nil {
		return ClaimRecord{}, fmt.Errorf("decode claim: %w", err)
	}
	if rec.Cluster == "" || rec.Generation < 1 {
		return ClaimRecord{}, fmt.Errorf("claim of cluster %q with generation %d", rec.Cluster, rec.Generation)
	}
	return rec, nil
}

// readObject reads a whole small object, refusing one above limit before it
// reads it.
func readObject(ctx context.Context, b remote.Bucket, key string, limit int64) (raw []byte, etag string, err error) {
	rc, obj, err := b.Get(ctx, key, remote.Range{})
	if err != nil {
		return nil, "", err
	}
	defer func() { err = errors.Join(err, rc.Close()) }()
	if obj.Size > limit {
		return nil, "", fmt.Errorf("%s has %d bytes, more than %d", key, obj.Size, limit)
	}
	var buf bytes.Buffer
	buf.Grow(int(obj.Size))
	if _, err := io.Copy(&buf, io.LimitReader(rc, limit+1)); err != nil {
		return nil, "", err
	}
	if int64(buf.Len()) > limit {
		return nil, "", fmt.Errorf("%s has more than %d bytes", key, limit)
	}
	return buf.Bytes(), obj.ETag, nil
}

// claimError gives an error of a bucket its kind.
func claimError(op string, b remote.Bucket, err error) error {
	if tiers.KindOf(err) != tiers.Other {
		return err
	}
	return tiers.E(tiers.RemoteUnavailable, op, b.String(), "%w", err)
}

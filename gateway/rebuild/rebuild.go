// Package rebuild brings a cluster back on an empty machine from its bucket
// alone: the newest snapshot of the control plane, the changes after it, and what
// a listing of the bucket finds beyond both.
//
// It owns nothing but the store that it fills, in one transaction at its end: a
// run that ends early leaves an empty store and can be repeated. The claim is
// taken first, so the node that had the bucket is fenced before its objects are
// counted. With DryRun nothing changes anywhere.
package rebuild

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"

	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/remote"
)

const (
	// parallel bounds the listings and reads under way at once.
	parallel = 16
	// producerGap is how far producer ids jump: ids that were given out after the
	// snapshot, to clients that may still live, are never given again.
	producerGap = 1 << 32
)

// Options say how to rebuild.
type Options struct {
	DryRun bool
	Node   tiers.NodeID // leads every partition from now on
	// Instance is the start that this rebuild enters into the claim: the rebuilt
	// data directory must know it to take the claim over. Empty: a random one.
	Instance string
	Now      func() time.Time
	Log      hclog.Logger
}

// Run rebuilds into s, which must be empty and is not needed in a dry run, and
// says what it found. The report is
// as complete as the run got, also with an error. Error kinds: Conflict for a
// store that holds something, UnknownTopicOrPartition for a bucket that holds no
// cluster, RemoteUnavailable.
func Run(ctx context.Context, b remote.Bucket, s control.Store, o Options) (Report, error) {
	r := &run{bucket: &counted{Bucket: b}, opts: o, began: o.Now()}
	rep := &r.report
	*rep = Report{
		Bucket: b.String(), DryRun: o.DryRun, Partitions: []PartitionReport{}, Orphans: []Object{}, Offsets: []OffsetReport{}, Notes: []string{},
	}
	err := r.all(ctx, s)
	rep.Seconds = o.Now().Sub(r.began).Seconds()
	rep.Lists, rep.Gets, rep.Stats = r.bucket.lists.Load(), r.bucket.gets.Load(), r.bucket.stats.Load()
	return *rep, err
}

// run is one rebuild under way. Its fields belong to the goroutine of Run.
type run struct {
	bucket *counted
	opts   Options
	began  time.Time
	report Report

	state   control.State
	journal control.JournalReport
	// generation of the claim before this run took it.
	generation int64
}

func (r *run) all(ctx context.Context, s control.Store) error {
	if s != nil {
		if err := CheckEmpty(ctx, s); err != nil {
			return err
		}
	}
	claim, err := r.fence(ctx)
	if err != nil {
		return err
	}
	if err := r.read(ctx); err != nil {
		return err
	}
	if claim == nil && !r.opts.DryRun { // the claim was lost, the journal was not
		if claim, err = r.acquire(ctx, r.state.Cluster); err != nil {
			return err
		}
	}
	if r.opts.DryRun {
		return nil
	}
	if err := s.Load(ctx, r.state); err != nil {
		return err
	}
	j := control.NewJournal(r.bucket, s, claim, r.opts.Log)
	if err := errors.Join(j.Snapshot(ctx), claim.Release(ctx)); err != nil {
		// The store is whole, and the next start does both again.
		r.report.Note("the bucket does not know of the rebuild yet, the next start of the node tells it: %v", err)
	}
	return nil
}

// CheckEmpty returns a Conflict if s holds anything. Run checks it too; whoever
// writes next to the store before a run asks first.
func CheckEmpty(ctx context.Context, s control.Store) error {
	st, err := s.Dump(ctx)
	if err != nil {
		return err
	}
	if len(st.Topics) > 0 || len(st.Segments) > 0 || st.Rev > 0 {
		return tiers.E(tiers.Conflict, "rebuild", "",
			"the data directory holds a cluster with %d topics already: rebuild into an empty directory, or serve this one", len(st.Topics))
	}
	return nil
}

// fence notes who held the bucket and, unless this is a dry run, takes the claim
// over. The claim is nil if there was none or in a dry run.
func (r *run) fence(ctx context.Context) (*control.Claim, error) {
	rec, ok, err := control.ReadClaim(ctx, r.bucket)
	switch {
	case tiers.KindOf(err) == tiers.CorruptMessage:
		return nil, nil // ReadJournal reports it as damaged; the cluster id comes from the snapshot
	case err != nil:
		return nil, unavailable(r.bucket, err)
	case !ok:
		return nil, nil
	}
	r.generation = rec.Generation
	r.report.Holder = &rec
	if r.opts.DryRun {
		return nil, nil
	}
	return r.acquire(ctx, rec.Cluster)
}

func (r *run) acquire(ctx context.Context, cluster string) (*control.Claim, error) {
	return control.AcquireClaim(ctx, r.bucket, control.ClaimOptions{
		Cluster: cluster, Node: r.opts.Node, Instance: cmp.Or(r.opts.Instance, "rebuild-"+uuid.NewString()), Now: r.opts.Now, Log: r.opts.Log,
	})
}

// read brings r.state to what the bucket proves.
func (r *run) read(ctx context.Context) error {
	var err error
	if r.state, r.journal, err = control.ReadJournal(ctx, r.bucket); err != nil {
		return err
	}
	r.report.Cluster, r.report.Journal = r.state.Cluster, r.journal
	listed, err := r.listTopics(ctx)
	if err != nil {
		return err
	}
	if r.state.Cluster == "" && len(listed) == 0 {
		return tiers.E(tiers.UnknownTopicOrPartition, "rebuild", r.bucket.String(),
			"the bucket holds no cluster: check the bucket and the prefix of the URL")
	}
	found, err := r.gather(ctx, listed)
	if err != nil {
		return err
	}
	r.settle(found)
	if r.state.Cluster == "" {
		r.state.Cluster = tiers.TopicID(uuid.New()).String()
		r.report.Note("no object names the cluster: it gets the new id %s", r.state.Cluster)
	}
	r.report.Cluster = r.state.Cluster
	r.state.NextProducer += producerGap
	r.state.Sort()
	return r.state.Valid()
}

// listTopics returns the ids of the topics that have objects, in order.
func (r *run) listTopics(ctx context.Context) ([]tiers.TopicID, error) {
	var out []tiers.TopicID
	for o, err := range r.bucket.List(ctx, remote.ListOptions{Prefix: remote.TopicsPrefix, Delimiter: "/"}) {
		if err != nil {
			return nil, unavailable(r.bucket, err)
		}
		id, err := remote.ParseTopicPrefix(o.Key)
		if !o.IsPrefix || err != nil {
			r.report.orphan(o.Key, o.Size, "not the name of a topic's folder")
			continue
		}
		out = append(out, id)
	}
	return out, nil
}

// gather looks at the objects of every topic, several at a time.
func (r *run) gather(ctx context.Context, listed []tiers.TopicID) ([]*topicFinds, error) {
	rows := make(map[tiers.TopicID][]tiers.RemoteSegment)
	for _, s := range r.state.Segments {
		rows[s.Partition.Topic] = append(rows[s.Partition.Topic], s)
	}
	for id := range rows {
		if !slices.Contains(listed, id) {
			listed = append(listed, id) // every object of it is missing
		}
	}
	finds := make([]*topicFinds, len(listed))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for i, id := range listed {
		g.Go(func() (err error) {
			finds[i], err = findTopic(gctx, r.bucket, id, rows[id])
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, unavailable(r.bucket, err)
	}
	return finds, nil
}

func unavailable(b remote.Bucket, err error) error {
	if tiers.KindOf(err) != tiers.Other {
		return err
	}
	return tiers.E(tiers.RemoteUnavailable, "rebuild from", b.String(), "%w", err)
}

// Package groups keeps the committed offsets of consumer groups. Membership is
// not part of it: a group here is a name under which a consumer that assigns its
// own partitions commits (generation -1, no member id).
//
// The offsets are rows of the control plane, one per group, partition and history
// (H11); nothing is kept in memory. Names become partition ids with the broker's
// catalog, so a topic that was created again starts without offsets.
package groups

import (
	"context"

	"github.com/strandline-io/strandline/gateway/broker"
	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/tiers"
)

// MaxMetadata is the longest metadata of a commit in bytes, Kafka's
// offset.metadata.max.bytes.
const MaxMetadata = 4096

// Coordinator answers for groups. All methods are safe for concurrent use.
type Coordinator struct {
	broker  *broker.Broker
	store   control.Store
	session control.Session
}

// New returns a coordinator over the broker's control plane.
func New(b *broker.Broker, s control.Store, session control.Session) *Coordinator {
	return &Coordinator{broker: b, store: s, session: session}
}

// Commit is one partition of an OffsetCommit request.
type Commit struct {
	Topic    string
	Index    int32
	Offset   tiers.Offset
	Epoch    tiers.LeaderEpoch
	Metadata string
}

// Commit stores offsets for a group. The result has one error, or nil, per
// commit, in order. Commits that are refused keep no other from being stored; of
// several for one partition the last one counts.
func (c *Coordinator) Commit(ctx context.Context, group string, cs []Commit) []error {
	errs := make([]error, len(cs))
	if err := c.broker.Fenced(); err != nil {
		return fill(errs, err)
	}
	catalog := c.broker.Catalog()
	last := map[tiers.PartitionID]int{} // index into rows
	var rows []pending
	for i, commit := range cs {
		row, err := resolve(catalog, group, commit)
		if err != nil {
			errs[i] = err
			continue
		}
		row.At = c.broker.Now()
		at, ok := last[row.Partition]
		if !ok {
			at = len(rows)
			last[row.Partition] = at
			rows = append(rows, pending{})
		}
		rows[at].row = row
		rows[at].asked = append(rows[at].asked, i)
	}
	c.put(ctx, rows, errs)
	return errs
}

// pending is a row to be stored, and the indexes of the commits it answers.
type pending struct {
	row   control.OffsetCommit
	asked []int
}

func (p pending) refuse(errs []error, err error) {
	for _, i := range p.asked {
		errs[i] = err
	}
}

// put stores the rows. The control plane takes all or none, and may know of a
// deletion that the catalog does not show yet: then those rows are refused that
// it would refuse, and the others tried again. Each round has fewer rows.
func (c *Coordinator) put(ctx context.Context, rows []pending, errs []error) {
	for len(rows) > 0 {
		batch := make([]control.OffsetCommit, len(rows))
		for i, p := range rows {
			batch[i] = p.row
		}
		err := c.store.CommitOffsets(ctx, c.session, batch)
		if err == nil {
			return
		}
		rest := rows
		if k := tiers.KindOf(err); k == tiers.UnknownTopicOrPartition || k == tiers.StaleFence {
			rest = c.sift(ctx, rows, errs)
		}
		if len(rest) == len(rows) { // no single row is to blame
			for _, p := range rows {
				p.refuse(errs, err)
			}
			return
		}
		rows = rest
	}
}

// sift refuses the rows that the control plane refuses one by one, and returns
// the others.
func (c *Coordinator) sift(ctx context.Context, rows []pending, errs []error) []pending {
	topics, err := c.store.Topics(ctx)
	if err != nil {
		return rows
	}
	byID := make(map[tiers.TopicID]control.Topic, len(topics))
	for _, t := range topics {
		byID[t.ID] = t
	}
	var rest []pending
	for _, p := range rows {
		var now control.Partition
		id := p.row.Partition
		t, ok := byID[id.Topic]
		if ok = ok && int(id.Index) < len(t.Partitions); ok {
			now = t.Partitions[id.Index]
		}
		if err := control.CheckCommitOf("commit offset", p.row, now, ok); err != nil {
			p.refuse(errs, err)
			continue
		}
		rest = append(rest, p)
	}
	return rest
}

// fill gives err to all who have none.
func fill(errs []error, err error) []error {
	for i := range errs {
		if errs[i] == nil {
			errs[i] = err
		}
	}
	return errs
}

func resolve(catalog *broker.Catalog, group string, c Commit) (control.OffsetCommit, error) {
	const op = "commit offset"
	place := tiers.TopicPartition{Topic: c.Topic, Partition: c.Index}
	t, ok := catalog.Topic(c.Topic)
	switch {
	case !ok || c.Index < 0 || int(c.Index) >= len(t.Partitions):
		return control.OffsetCommit{}, tiers.E(tiers.UnknownTopicOrPartition, op, place.String(), "there is no such partition")
	case len(c.Metadata) > MaxMetadata:
		return control.OffsetCommit{}, tiers.E(tiers.OffsetMetadataTooLarge, op, place.String(),
			"%d bytes of metadata: at most %d", len(c.Metadata), MaxMetadata)
	}
	row := control.OffsetCommit{
		Group:     group,
		Partition: tiers.PartitionID{Topic: t.ID, Index: c.Index},
		Gen:       t.Partitions[c.Index].Gen,
		Offset:    c.Offset,
		Epoch:     c.Epoch,
		Metadata:  c.Metadata,
	}
	return row, control.CheckCommit(op, row)
}

// Fetch returns the group's committed offsets, by topic name and partition. A
// partition without one is absent.
func (c *Coordinator) Fetch(ctx context.Context, group string) (map[tiers.TopicPartition]control.OffsetCommit, error) {
	if err := c.broker.Fenced(); err != nil {
		return nil, err
	}
	rows, err := c.store.Offsets(ctx, group)
	if err != nil {
		return nil, err
	}
	catalog := c.broker.Catalog()
	out := make(map[tiers.TopicPartition]control.OffsetCommit, len(rows))
	for _, row := range rows {
		if t, ok := catalog.TopicByID(row.Partition.Topic); ok {
			out[tiers.TopicPartition{Topic: t.Name, Partition: row.Partition.Index}] = row
		}
	}
	return out, nil
}

package control

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/remote"
)

// Snapshot writes a snapshot and drops the snapshots and changes that it makes
// superfluous, keeping the newest three.
func (j *Journal) Snapshot(ctx context.Context) error {
	j.snapshots.Lock()
	defer j.snapshots.Unlock()
	st, err := j.store.Dump(ctx)
	if err != nil {
		return err
	}
	raw, err := encodeSnapshot(st)
	if err != nil {
		return err
	}
	name := snapshotName{generation: j.generation, rev: st.Rev, seq: j.seq}
	if _, err := j.bucket.Put(ctx, name.key(), remote.BytesBody(raw), remote.PutOptions{}); err != nil {
		return claimError("write snapshot", j.bucket, err)
	}
	j.seq++
	j.raisePublished(st.Rev)
	if err := j.prune(ctx); err != nil {
		j.log.Warn("old snapshots stay in the bucket until the next snapshot", "bucket", j.bucket.String(), "error", err)
	}
	return j.store.TrimChanges(ctx, st.Rev)
}

// raisePublished says that a snapshot holds every change up to rev.
func (j *Journal) raisePublished(rev Rev) {
	for {
		old := j.published.Load()
		if old >= int64(rev) || j.published.CompareAndSwap(old, int64(rev)) {
			return
		}
	}
}

// prune removes what the newest snapshots make superfluous. A listing that breaks
// off removes nothing. Objects of a later generation than ours are somebody
// else's: a node that was replaced removes nothing either.
func (j *Journal) prune(ctx context.Context) error {
	found, err := listSnapshots(ctx, j.bucket)
	if err != nil || len(found) <= keptSnapshots {
		return err
	}
	if found[len(found)-1].generation > j.generation {
		return tiers.E(tiers.StaleFence, "prune snapshots", j.bucket.String(), "generation %d has begun", found[len(found)-1].generation)
	}
	cut := len(found) - keptSnapshots
	oldest := found[cut]
	var doomed []string
	for _, n := range found[:cut] {
		doomed = append(doomed, n.key())
	}
	changes, err := listChanges(ctx, j.bucket)
	if err != nil {
		return err
	}
	for _, c := range changes {
		if c.generation < oldest.generation || c.generation == oldest.generation && c.rev <= oldest.rev {
			doomed = append(doomed, changeKey(c.rev, c.generation))
		}
	}
	return j.bucket.Delete(ctx, doomed...)
}

// listSnapshots returns the names of all snapshots, oldest first. Keys that are
// not a snapshot's are passed over.
func listSnapshots(ctx context.Context, b remote.Bucket) ([]snapshotName, error) {
	var out []snapshotName
	for o, err := range b.List(ctx, remote.ListOptions{Prefix: snapshotPrefix}) {
		if err != nil {
			return nil, err
		}
		if n, ok := parseSnapshotKey(o.Key); ok {
			out = append(out, n)
		}
	}
	return out, nil
}

type changeName struct {
	rev        Rev
	generation int64
}

// listChanges returns the names of all changes by revision, then generation.
func listChanges(ctx context.Context, b remote.Bucket) ([]changeName, error) {
	var out []changeName
	for o, err := range b.List(ctx, remote.ListOptions{Prefix: changePrefix}) {
		if err != nil {
			return nil, err
		}
		if rev, generation, ok := parseChangeKey(o.Key); ok {
			out = append(out, changeName{rev, generation})
		}
	}
	return out, nil
}

func encodeSnapshot(st State) ([]byte, error) {
	d := snapshotDoc{Cluster: st.Cluster, Rev: st.Rev, NextProducer: st.NextProducer}
	for _, t := range st.Topics {
		d.Topics = append(d.Topics, topicDocOf(t))
	}
	for _, s := range st.Segments {
		d.Segments = append(d.Segments, segmentDocOf(s))
	}
	for _, o := range st.Offsets {
		d.Offsets = append(d.Offsets, offsetDoc{
			o.Group, o.Partition.Topic, o.Partition.Index, o.Gen, o.Offset, o.Epoch, o.Metadata, o.At.UnixMilli(),
		})
	}
	body, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("encode snapshot: %w", err)
	}
	return kindSnapshot.seal(body, true)
}

func decodeSnapshot(raw []byte) (State, error) {
	body, err := kindSnapshot.open(raw)
	if err != nil {
		return State{}, err
	}
	var d snapshotDoc
	if err := json.Unmarshal(body, &d); err != nil {
		return State{}, fmt.Errorf("decode snapshot: %w", err)
	}
	st := State{Cluster: d.Cluster, Rev: d.Rev, NextProducer: d.NextProducer}
	for _, t := range d.Topics {
		st.Topics = append(st.Topics, t.topic())
	}
	for _, s := range d.Segments {
		st.Segments = append(st.Segments, s.segment())
	}
	for _, o := range d.Offsets {
		st.Offsets = append(st.Offsets, OffsetCommit{
			Group: o.Group, Partition: tiers.PartitionID{Topic: o.Topic, Index: o.Index}, Gen: o.Gen, Offset: o.Offset,
			Epoch: o.Epoch, Metadata: o.Metadata, At: time.UnixMilli(o.At).UTC(),
		})
	}
	return st, st.Valid()
}

// The documents below are the format in the bucket: names and meaning of fields
// do not change, new ones may come.

type changeDoc struct {
	Rev     Rev         `json:"rev"`
	Deleted bool        `json:"deleted,omitempty"`
	Topic   *topicDoc   `json:"topic,omitempty"`
	Raised  []raisedDoc `json:"log_starts,omitempty"` // instead of a topic
}

type raisedDoc struct {
	Topic    tiers.TopicID    `json:"topic"`
	Index    int32            `json:"partition"`
	Gen      tiers.HistoryGen `json:"gen"`
	LogStart tiers.Offset     `json:"log_start"`
}

type snapshotDoc struct {
	Cluster      string       `json:"cluster"`
	Rev          Rev          `json:"rev"`
	NextProducer int64        `json:"next_producer"`
	Topics       []topicDoc   `json:"topics"`
	Segments     []segmentDoc `json:"segments"`
	Offsets      []offsetDoc  `json:"offsets"`
}

type topicDoc struct {
	ID         tiers.TopicID     `json:"id"`
	Name       string            `json:"name"`
	Configs    map[string]string `json:"configs"`
	Partitions []partitionDoc    `json:"partitions"`
	Rev        Rev               `json:"rev"`
	CreatedAt  int64             `json:"created_at_ms"`
}

type partitionDoc struct {
	Gen      tiers.HistoryGen  `json:"gen"`
	Leader   tiers.NodeID      `json:"leader"`
	Epoch    tiers.LeaderEpoch `json:"epoch"`
	LogStart tiers.Offset      `json:"log_start"`
}

type segmentDoc struct {
	ID           tiers.SegmentID    `json:"id"`
	Topic        tiers.TopicID      `json:"topic"`
	Index        int32              `json:"partition"`
	Gen          tiers.HistoryGen   `json:"gen"`
	Base         tiers.Offset       `json:"base"`
	End          tiers.Offset       `json:"end"`
	Epochs       [][2]int64         `json:"epochs"` // epoch, start
	State        tiers.SegmentState `json:"state"`
	MaxTimestamp int64              `json:"max_timestamp_ms"`
	Size         int64              `json:"size"`
	MetaSize     int64              `json:"meta_size"`
	CRC32C       uint32             `json:"crc32c"`
	HasAborted   bool               `json:"has_aborted,omitempty"`
	CopierEpoch  tiers.LeaderEpoch  `json:"copier_epoch"`
	Copier       tiers.NodeID       `json:"copier"`
	CreatedAt    int64              `json:"created_at_ms"`
}

type offsetDoc struct {
	Group    string            `json:"group"`
	Topic    tiers.TopicID     `json:"topic"`
	Index    int32             `json:"partition"`
	Gen      tiers.HistoryGen  `json:"gen"`
	Offset   tiers.Offset      `json:"offset"`
	Epoch    tiers.LeaderEpoch `json:"epoch"`
	Metadata string            `json:"metadata,omitempty"`
	At       int64             `json:"at_ms"`
}

func topicDocOf(t Topic) topicDoc {
	d := topicDoc{ID: t.ID, Name: t.Name, Configs: t.Configs, Rev: t.Rev, CreatedAt: t.CreatedAt.UnixMilli(), Partitions: []partitionDoc{}}
	for _, p := range t.Partitions {
		d.Partitions = append(d.Partitions, partitionDoc{p.Gen, p.Leader, p.Epoch, p.LogStart})
	}
	return d
}

func (d topicDoc) topic() Topic {
	t := Topic{ID: d.ID, Name: d.Name, Configs: map[string]string{}, Rev: d.Rev, CreatedAt: time.UnixMilli(d.CreatedAt).UTC()}
	maps.Copy(t.Configs, d.Configs)
	for i, p := range d.Partitions {
		t.Partitions = append(t.Partitions, Partition{Index: int32(i), Gen: p.Gen, Leader: p.Leader, Epoch: p.Epoch, LogStart: p.LogStart})
	}
	return t
}

func segmentDocOf(s tiers.RemoteSegment) segmentDoc {
	d := segmentDoc{
		ID: s.ID, Topic: s.Partition.Topic, Index: s.Partition.Index, Gen: s.Gen, Base: s.Base, End: s.End, State: s.State,
		MaxTimestamp: s.MaxTimestamp, Size: s.Size, MetaSize: s.MetaSize, CRC32C: s.CRC32C, HasAborted: s.HasAborted,
		CopierEpoch: s.CopierEpoch, Copier: s.Copier, CreatedAt: s.CreatedAt.UnixMilli(),
	}
	for _, e := range s.Epochs {
		d.Epochs = append(d.Epochs, [2]int64{int64(e.Epoch), int64(e.Start)})
	}
	return d
}

func (d segmentDoc) segment() tiers.RemoteSegment {
	s := tiers.RemoteSegment{
		ID: d.ID, Partition: tiers.PartitionID{Topic: d.Topic, Index: d.Index}, Gen: d.Gen, Base: d.Base, End: d.End, State: d.State,
		MaxTimestamp: d.MaxTimestamp, Size: d.Size, MetaSize: d.MetaSize, CRC32C: d.CRC32C, HasAborted: d.HasAborted,
		CopierEpoch: d.CopierEpoch, Copier: d.Copier, CreatedAt: time.UnixMilli(d.CreatedAt).UTC(),
	}
	for _, e := range d.Epochs {
		s.Epochs = append(s.Epochs, tiers.EpochStart{Epoch: tiers.LeaderEpoch(e[0]), Start: tiers.Offset(e[1])})
	}
	return s
}

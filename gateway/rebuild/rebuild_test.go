package rebuild_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/gateway/control/model"
	"github.com/strandline-io/strandline/gateway/rebuild"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/partition"
	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

func clock() time.Time { return time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC) }

// cluster is a node as far as a rebuild can see it: rows and a bucket.
type cluster struct {
	t       testing.TB
	bucket  *memory.Bucket
	store   control.Store
	session control.Session
	claim   *control.Claim
	journal *control.Journal
	next    uint32
}

func newCluster(t testing.TB) *cluster {
	t.Helper()
	c := &cluster{t: t, bucket: memory.New(), store: model.New(model.Options{Now: clock})}
	c.start()
	return c
}

// start begins a generation, as a start of the node does.
func (c *cluster) start() {
	c.t.Helper()
	ctx := c.t.Context()
	id, err := c.store.Cluster(ctx)
	c.must(err)
	c.claim, err = control.AcquireClaim(ctx, c.bucket, control.ClaimOptions{
		Cluster: id, Node: 1, Instance: fmt.Sprint("start-", c.next), Now: clock, Log: hclog.NewNullLogger(),
	})
	c.must(err)
	c.next++
	c.session, err = c.store.OpenSession(ctx, 1)
	c.must(err)
	c.journal = control.NewJournal(c.bucket, c.store, c.claim, hclog.NewNullLogger())
	c.must(c.journal.Snapshot(ctx))
}

func (c *cluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// orders makes the topic "orders".
func (c *cluster) orders(partitions int32) control.Topic {
	c.t.Helper()
	topic, err := c.store.CreateTopic(c.t.Context(), c.session, control.NewTopic{Name: "orders", Partitions: partitions, Configs: map[string]string{"segment.bytes": "4096"}})
	c.must(err)
	c.must(c.journal.Publish(c.t.Context(), topic.Rev))
	return topic
}

// topic reads the topic's row again.
func (c *cluster) topic(name string) control.Topic {
	c.t.Helper()
	topics, err := c.store.Topics(c.t.Context())
	c.must(err)
	for _, t := range topics {
		if t.Name == name {
			return t
		}
	}
	c.t.Fatal("no topic", name)
	return control.Topic{}
}

// segment makes the facts and objects of one segment. epochs is its lineage.
func (c *cluster) segment(t control.Topic, index int32, base, end tiers.Offset, whole tiers.Lineage) tiers.RemoteSegment {
	c.t.Helper()
	c.next++
	records := bytes.Repeat([]byte{byte(c.next)}, int(end-base)*10)
	var sid tiers.SegmentID
	binary.BigEndian.PutUint32(sid[:], c.next)
	part := t.Partitions[index]
	s := tiers.RemoteSegment{
		ID: sid, Partition: tiers.PartitionID{Topic: t.ID, Index: index}, Gen: part.Gen, Base: base, End: end,
		Epochs: whole.Slice(base, end), MaxTimestamp: int64(end), Size: int64(len(records)), CRC32C: remote.CRC32C(records),
		CopierEpoch: part.Epoch, Copier: 1, CreatedAt: clock(),
	}
	id, err := c.store.Cluster(c.t.Context())
	c.must(err)
	meta, err := remote.EncodeMeta(&remote.SegmentMeta{
		Cluster: id, TopicName: t.Name, Segment: s, ChunkCRC: []uint32{remote.CRC32C(records)}, Lineage: whole.TruncateEnd(end),
	})
	c.must(err)
	s.MetaSize = int64(len(meta))
	for key, b := range map[string][]byte{remote.SegmentKey(s): records, remote.MetaKey(s): meta} {
		_, err := c.bucket.Put(c.t.Context(), key, remote.BytesBody(b), remote.PutOptions{})
		c.must(err)
	}
	return s
}

// copied is segment with its rows.
func (c *cluster) copied(t control.Topic, index int32, base, end tiers.Offset, whole tiers.Lineage) tiers.RemoteSegment {
	c.t.Helper()
	s := c.segment(t, index, base, end, whole)
	reg := control.RegistryOf(c.store, c.session, nil)
	f := partition.Fence{Partition: s.Partition, Gen: s.Gen, Epoch: s.CopierEpoch}
	c.must(reg.CopyStarted(c.t.Context(), f, s))
	c.must(reg.CopyFinished(c.t.Context(), f, s))
	return s
}

func (c *cluster) rebuild(o rebuild.Options) (control.State, rebuild.Report, error) {
	c.t.Helper()
	s := model.New(model.Options{Now: clock})
	o.Node, o.Now, o.Log = 3, clock, hclog.NewNullLogger()
	rep, err := rebuild.Run(c.t.Context(), c.bucket, s, o)
	if err != nil {
		return control.State{}, rep, err
	}
	st, err := s.Dump(c.t.Context())
	c.must(err)
	return st, rep, nil
}

// mustRebuild also holds the report against the state and prints both forms.
func (c *cluster) mustRebuild() (control.State, rebuild.Report) {
	c.t.Helper()
	st, rep, err := c.rebuild(rebuild.Options{})
	c.must(err)
	js, err := json.Marshal(rep)
	c.must(err)
	if strings.Contains(string(js), `:null`) && !strings.Contains(string(js), `"holder":null`) {
		c.t.Errorf("null in %s", js)
	}
	var text strings.Builder
	if _, err := rep.WriteTo(&text); err != nil || !strings.Contains(text.String(), rep.Cluster) {
		c.t.Errorf("%v: %s", err, text.String())
	}
	return st, rep
}

func TestRebuildGoldenPath(t *testing.T) {
	c := newCluster(t)
	c.orders(2)
	c.start() // a restart: epoch 1
	orders := c.topic("orders")
	lin := tiers.Lineage{{Epoch: 0, Start: 0}, {Epoch: 1, Start: 60}}
	c.copied(orders, 0, 0, 40, lin)
	c.copied(orders, 0, 40, 80, lin)
	p := tiers.PartitionID{Topic: orders.ID, Index: 0}
	c.must(c.store.CommitOffsets(t.Context(), c.session, []control.OffsetCommit{
		{Group: "in", Partition: p, Gen: 1, Offset: 70, Epoch: 1, At: clock()},
		{Group: "beyond", Partition: p, Gen: 1, Offset: 95, Epoch: 1, At: clock()},
	}))
	c.must(c.journal.Snapshot(t.Context()))
	late := c.copied(orders, 0, 80, 90, lin) // after the snapshot
	before := c.topic("orders").Partitions[0].Epoch
	was, err := c.store.Dump(t.Context())
	c.must(err)

	st, rep := c.mustRebuild()
	if st.Cluster != was.Cluster || len(st.Topics) != 1 || st.Topics[0].ID != orders.ID || st.Topics[0].Configs["segment.bytes"] != "4096" {
		t.Fatalf("%+v", st)
	}
	if len(st.Segments) != 3 || st.Segments[2].ID != late.ID || st.Segments[2].State != tiers.CopyFinished {
		t.Fatalf("%+v", st.Segments)
	}
	got := rep.Partitions[0]
	if got.LogStart != 0 || got.LogEnd != 90 || got.Segments != 3 || got.Adopted != 1 || len(got.Problems)+len(got.Gaps) != 0 || !rep.Whole() {
		t.Fatalf("%+v", got)
	}
	if part := st.Topics[0].Partitions[0]; part.Epoch <= before || part.Leader != 3 {
		t.Fatalf("epoch %d after %d, leader %d", part.Epoch, before, part.Leader)
	}
	if st.NextProducer <= was.NextProducer {
		t.Fatal("producer ids would be given again")
	}
	for _, o := range st.Offsets {
		if want := map[string]tiers.Offset{"in": 70, "beyond": 90}[o.Group]; o.Offset != want {
			t.Errorf("group %s at %d, want %d", o.Group, o.Offset, want)
		}
	}
	if len(rep.Offsets) != 1 || rep.Offsets[0].Was != 95 {
		t.Errorf("%+v", rep.Offsets)
	}
	if err := c.claim.Check(t.Context()); tiers.KindOf(err) != tiers.StaleFence {
		t.Error("the old node is not fenced:", err)
	}
}

// TestRebuildEpochsNeverComeBack: starts after the last readable snapshot raised
// the epoch; none of those epochs may be given to the rebuilt log.
func TestRebuildEpochsNeverComeBack(t *testing.T) {
	c := newCluster(t)
	c.orders(1)
	c.must(c.journal.Snapshot(t.Context()))
	for range 3 {
		c.start()
	}
	used := c.topic("orders").Partitions[0].Epoch
	for _, key := range c.bucket.Keys("cluster/snapshot/") {
		if !strings.HasPrefix(key, "cluster/snapshot/0000000001-") {
			c.must(c.bucket.FlipBit(key, 40))
		}
	}
	// Three snapshots are kept, so the first generation's are gone by now: nothing
	// but the changes and the claim is left.
	st, rep := c.mustRebuild()
	if len(rep.Journal.Damaged) == 0 {
		t.Fatal("nothing was damaged")
	}
	if len(st.Topics) == 1 && st.Topics[0].Partitions[0].Epoch <= used {
		t.Fatalf("epoch %d was used before, up to %d", st.Topics[0].Partitions[0].Epoch, used)
	}
}

func TestRebuildDryRunChangesNothing(t *testing.T) {
	c := newCluster(t)
	orders := c.orders(1)
	c.copied(orders, 0, 0, 40, tiers.Lineage{{Epoch: 0, Start: 0}})
	before := c.bucket.Keys("")
	st, rep, err := c.rebuild(rebuild.Options{DryRun: true})
	c.must(err)
	if len(st.Topics) != 0 || rep.Partitions[0].LogEnd != 40 || !rep.DryRun {
		t.Fatalf("%+v %+v", st, rep)
	}
	if fmt.Sprint(before) != fmt.Sprint(c.bucket.Keys("")) || c.claim.Check(t.Context()) != nil {
		t.Fatal("a dry run changed the bucket")
	}
}

func TestRebuildIntoAStoreThatHoldsSomething(t *testing.T) {
	c := newCluster(t)
	c.orders(1)
	_, err := rebuild.Run(t.Context(), c.bucket, c.store, rebuild.Options{Now: clock, Log: hclog.NewNullLogger()})
	if tiers.KindOf(err) != tiers.Conflict || c.claim.Check(t.Context()) != nil {
		t.Fatal(err)
	}
}

func TestRebuildOfAnEmptyBucket(t *testing.T) {
	s := model.New(model.Options{Now: clock})
	_, err := rebuild.Run(t.Context(), memory.New(), s, rebuild.Options{Now: clock, Log: hclog.NewNullLogger()})
	if tiers.KindOf(err) != tiers.UnknownTopicOrPartition || !strings.Contains(err.Error(), "prefix") {
		t.Fatal(err)
	}
}

// TestRebuildDamage: each kind of damage to one segment is reported, the others
// come back, and nothing panics (KafScale#112: one bad object blocked all).
func TestRebuildDamage(t *testing.T) {
	lin := tiers.Lineage{{Epoch: 0, Start: 0}}
	for name, c := range map[string]struct {
		damage func(c *cluster, s tiers.RemoteSegment)
		row    bool
		want   string
	}{
		"records missing":   {func(c *cluster, s tiers.RemoteSegment) { c.must(c.bucket.Delete(c.t.Context(), remote.SegmentKey(s))) }, true, "records object is missing"},
		"companion missing": {func(c *cluster, s tiers.RemoteSegment) { c.must(c.bucket.Delete(c.t.Context(), remote.MetaKey(s))) }, true, "companion object is missing"},
		"both missing": {func(c *cluster, s tiers.RemoteSegment) {
			c.must(c.bucket.Delete(c.t.Context(), remote.MetaKey(s), remote.SegmentKey(s)))
		}, true, "both objects are missing"},
		"companion rotten": {func(c *cluster, s tiers.RemoteSegment) { c.must(c.bucket.FlipBit(remote.MetaKey(s), 60)) }, true, "does not decode"},
		"records cut": {func(c *cluster, s tiers.RemoteSegment) {
			_, err := c.bucket.Put(c.t.Context(), remote.SegmentKey(s), remote.BytesBody([]byte("short")), remote.PutOptions{})
			c.must(err)
		}, true, "5 bytes instead of"},
		"records replaced, no row": {func(c *cluster, s tiers.RemoteSegment) {
			_, err := c.bucket.Put(c.t.Context(), remote.SegmentKey(s), remote.BytesBody(make([]byte, s.Size)), remote.PutOptions{})
			c.must(err)
		}, false, "another checksum"},
		"companion of another segment": {func(c *cluster, s tiers.RemoteSegment) {
			b, _ := c.bucket.Bytes(remote.MetaKey(s))
			other := s
			other.ID[5]++
			_, err := c.bucket.Put(c.t.Context(), remote.MetaKey(other), remote.BytesBody(b), remote.PutOptions{})
			c.must(err)
			_, err = c.bucket.Put(c.t.Context(), remote.SegmentKey(other), remote.BytesBody([]byte("x")), remote.PutOptions{})
			c.must(err)
			c.must(c.bucket.Delete(c.t.Context(), remote.MetaKey(s), remote.SegmentKey(s)))
		}, false, "another segment"},
	} {
		t.Run(name, func(t *testing.T) {
			cl := newCluster(t)
			orders := cl.orders(2)
			cl.copied(orders, 0, 0, 40, lin)
			bad := cl.segment(orders, 0, 40, 60, lin)
			if c.row {
				reg := control.RegistryOf(cl.store, cl.session, nil)
				f := partition.Fence{Partition: bad.Partition, Gen: bad.Gen, Epoch: bad.CopierEpoch}
				cl.must(reg.CopyStarted(t.Context(), f, bad))
				cl.must(reg.CopyFinished(t.Context(), f, bad))
				cl.must(cl.journal.Snapshot(t.Context()))
			}
			cl.copied(orders, 1, 0, 30, lin)
			c.damage(cl, bad)
			st, rep := cl.mustRebuild()
			if rep.Partitions[0].LogEnd != 40 || rep.Partitions[1].LogEnd != 30 || rep.Whole() {
				t.Fatalf("%+v", rep.Partitions)
			}
			if p := rep.Partitions[0].Problems; len(p) != 1 || !strings.Contains(p[0].What, c.want) {
				t.Fatalf("%+v", p)
			}
			if c.row && len(rep.Partitions[0].Gaps) != 1 {
				t.Errorf("gaps %+v", rep.Partitions[0].Gaps)
			}
			for _, s := range st.Segments {
				if s.ID == bad.ID && s.State == tiers.CopyFinished {
					t.Error("the bad segment is served")
				}
			}
		})
	}
}

// TestRebuildHole: the longer part comes back. What lies behind the hole is
// reported and stays in the bucket, but no row says that the log reaches there.
func TestRebuildHole(t *testing.T) {
	c := newCluster(t)
	orders := c.orders(1)
	lin := tiers.Lineage{{Epoch: 0, Start: 0}}
	c.copied(orders, 0, 0, 60, lin)
	gone := c.copied(orders, 0, 60, 80, lin)
	behind := c.copied(orders, 0, 80, 90, lin)
	c.must(c.journal.Snapshot(t.Context()))
	c.must(c.bucket.Delete(t.Context(), remote.SegmentKey(gone), remote.MetaKey(gone)))
	st, rep := c.mustRebuild()
	p := rep.Partitions[0]
	if p.LogStart != 0 || p.LogEnd != 60 || len(p.Gaps) == 0 || len(p.Problems) != 2 || len(st.Segments) != 1 || rep.Whole() {
		t.Fatalf("%+v %+v", p, st.Segments)
	}
	if _, there := c.bucket.Bytes(remote.SegmentKey(behind)); !there {
		t.Fatal("the segment behind the hole was deleted")
	}
}

// TestRebuildBucketFailsAtTheEnd: the store is loaded, the last writes to the
// bucket fail: the rebuild counts, and says so.
func TestRebuildBucketFailsAtTheEnd(t *testing.T) {
	c := newCluster(t)
	orders := c.orders(1)
	c.copied(orders, 0, 0, 40, tiers.Lineage{{Epoch: 0, Start: 0}})
	c.bucket.Add(memory.Fault{Ops: memory.OpPut, Key: "cluster/snapshot", Err: remote.ErrUnavailable})
	st, rep := c.mustRebuild()
	if len(st.Topics) != 1 || len(rep.Notes) != 1 {
		t.Fatalf("%+v %+v", st, rep)
	}
}

// TestRebuildDeletedTopicStaysDeleted: objects that a deletion had not reached
// are no reason to bring the topic back (report 050's kind, report 129).
func TestRebuildDeletedTopicStaysDeleted(t *testing.T) {
	c := newCluster(t)
	orders := c.orders(1)
	lin := tiers.Lineage{{Epoch: 0, Start: 0}}
	c.copied(orders, 0, 0, 40, lin)
	c.must(c.journal.Snapshot(t.Context()))
	c.segment(orders, 0, 40, 50, lin) // an upload that the deletion overtook
	rev, err := c.store.DeleteTopic(t.Context(), c.session, orders.ID)
	c.must(err)
	c.must(c.journal.Publish(t.Context(), rev))
	st, rep := c.mustRebuild()
	if len(st.Topics) != 0 || len(rep.Orphans) != 2-1 {
		t.Fatalf("%+v\n%+v", st.Topics, rep.Orphans)
	}
	if len(st.Segments) != 1 || st.Segments[0].State != tiers.DeleteStarted {
		t.Fatalf("the deletion is not carried on: %+v", st.Segments)
	}
}

// TestRebuildWithoutAJournal: topics come back from companions alone, under the
// names that these tell.
func TestRebuildWithoutAJournal(t *testing.T) {
	c := newCluster(t)
	orders := c.orders(3)
	lin := tiers.Lineage{{Epoch: 0, Start: 0}}
	c.copied(orders, 0, 0, 40, lin)
	c.copied(orders, 2, 0, 20, lin)
	id, err := c.store.Cluster(t.Context())
	c.must(err)
	c.must(c.bucket.Delete(t.Context(), append(c.bucket.Keys("cluster/snapshot/"), c.bucket.Keys("cluster/change/")...)...))
	st, rep := c.mustRebuild()
	if st.Cluster != id || len(st.Topics) != 1 || st.Topics[0].Name != "orders" || st.Topics[0].ID != orders.ID || len(st.Topics[0].Partitions) != 3 {
		t.Fatalf("%+v", st)
	}
	if len(rep.Notes) != 1 || rep.Partitions[0].LogEnd != 40 || rep.Partitions[2].LogEnd != 20 {
		t.Fatalf("%+v", rep)
	}
	// The claim is lost as well.
	c.must(c.bucket.Delete(t.Context(), append(c.bucket.Keys("cluster/snapshot/"), "cluster/claim")...))
	st, rep = c.mustRebuild()
	if len(st.Topics) != 1 || rep.Holder != nil || st.Cluster == "" {
		t.Fatalf("%+v", st)
	}
}

// TestRebuildCopyUnderWay: a copy whose CopyFinished was not committed is adopted
// if both objects are whole, and removed if not.
func TestRebuildCopyUnderWay(t *testing.T) {
	for _, whole := range []bool{true, false} {
		c := newCluster(t)
		orders := c.orders(1)
		lin := tiers.Lineage{{Epoch: 0, Start: 0}}
		c.copied(orders, 0, 0, 40, lin)
		s := c.segment(orders, 0, 40, 50, lin)
		c.must(control.RegistryOf(c.store, c.session, nil).CopyStarted(t.Context(), partition.Fence{Partition: s.Partition, Gen: 1, Epoch: s.CopierEpoch}, s))
		c.must(c.journal.Snapshot(t.Context()))
		if !whole {
			c.must(c.bucket.Delete(t.Context(), remote.MetaKey(s)))
		}
		st, rep := c.mustRebuild()
		want, end := tiers.CopyFinished, tiers.Offset(50)
		if !whole {
			want, end = tiers.DeleteStarted, 40
		}
		if st.Segments[1].State != want || rep.Partitions[0].LogEnd != end || !rep.Whole() {
			t.Fatalf("whole %t: %s, end %d", whole, st.Segments[1].State, rep.Partitions[0].LogEnd)
		}
	}
}

// raised moves the log start of a partition up, as far as the bucket.
func (c *cluster) raised(t control.Topic, index int32, o tiers.Offset) {
	c.t.Helper()
	remember := func(ctx context.Context, _ partition.Fence, _ tiers.Offset, rev control.Rev) error {
		return c.journal.Publish(ctx, rev)
	}
	p := t.Partitions[index]
	f := partition.Fence{Partition: tiers.PartitionID{Topic: t.ID, Index: index}, Gen: p.Gen, Epoch: p.Epoch}
	c.must(control.RegistryOf(c.store, c.session, remember).RaiseLogStart(c.t.Context(), f, o))
}

// TestReport049RebuildInTheMiddleOfRetention: the log start was raised, and the
// machine was lost while objects went. The last snapshot still names all of them.
// What is left below the start is deleted, not served, and nobody is alarmed.
func TestReport049RebuildInTheMiddleOfRetention(t *testing.T) {
	c := newCluster(t)
	orders := c.orders(1)
	lin := tiers.Lineage{{Epoch: 0, Start: 0}}
	var rows []tiers.RemoteSegment
	for base := tiers.Offset(0); base < 100; base += 20 {
		rows = append(rows, c.copied(orders, 0, base, base+20, lin))
	}
	c.must(c.journal.Snapshot(t.Context()))
	c.raised(orders, 0, 65)
	c.must(c.bucket.Delete(t.Context(), remote.SegmentKey(rows[0]), remote.MetaKey(rows[0]), remote.SegmentKey(rows[1])))
	st, rep := c.mustRebuild()
	p := rep.Partitions[0]
	if !rep.Whole() || len(p.Gaps)+len(p.Problems)+len(rep.Orphans) != 0 {
		t.Errorf("alarm: %+v, orphans %+v", p, rep.Orphans)
	}
	if p.LogStart != 65 || p.LogEnd != 100 || p.Segments != 2 || p.Doomed != 3 || rep.Journal.LogStarts != 1 || st.Topics[0].Partitions[0].LogStart != 65 {
		t.Errorf("%+v, journal %+v, topic %+v", p, rep.Journal, st.Topics[0])
	}
	for i, s := range st.Segments {
		if want := map[bool]tiers.SegmentState{true: tiers.DeleteStarted, false: tiers.CopyFinished}[i < 3]; s.ID != rows[i].ID || s.State != want {
			t.Errorf("[%d,%d) is %s, want %s", s.Base, s.End, s.State, want)
		}
	}
	var text strings.Builder
	if _, err := rep.WriteTo(&text); err != nil || !strings.Contains(text.String(), "1 log starts") {
		t.Errorf("%v: %s", err, text.String())
	}
}

// TestReport025TrimIsNotUndoneByARebuild, whatever became of the snapshots, even
// for segments that no row names and for a log that was trimmed to its end.
func TestReport025TrimIsNotUndoneByARebuild(t *testing.T) {
	for name, after := range map[string]func(c *cluster){
		"changes alone": func(*cluster) {},
		"in a snapshot": func(c *cluster) { c.must(c.journal.Snapshot(c.t.Context())) },
		"after rotation": func(c *cluster) {
			c.must(errors.Join(c.journal.Snapshot(c.t.Context()), c.journal.Snapshot(c.t.Context()), c.journal.Snapshot(c.t.Context()), c.journal.Snapshot(c.t.Context())))
		},
		"newest snapshot damaged": func(c *cluster) {
			c.must(c.journal.Snapshot(c.t.Context()))
			keys := c.bucket.Keys("cluster/snapshot/")
			c.must(c.bucket.FlipBit(keys[len(keys)-1], 60))
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			orders := c.orders(3)
			lin := tiers.Lineage{{Epoch: 0, Start: 0}}
			for i := range int32(3) {
				c.copied(orders, i, 0, 40, lin)
			}
			c.must(c.journal.Snapshot(t.Context()))
			c.copied(orders, 0, 40, 60, lin) // copied after the snapshot
			c.raised(orders, 0, 50)
			c.raised(orders, 1, 30)
			c.raised(orders, 2, 70) // past what was copied
			after(c)
			for range 2 { // and once more from what the first rebuild wrote
				st, rep := c.mustRebuild()
				for i, want := range []struct{ start, end, segments, doomed int }{{50, 60, 1, 1}, {30, 40, 1, 0}, {70, 70, 0, 1}} {
					p := rep.Partitions[i]
					if int(p.LogStart) != want.start || int(p.LogEnd) != want.end || p.Segments != want.segments || p.Doomed != want.doomed || len(p.Gaps)+len(p.Problems) != 0 {
						t.Errorf("%+v, want %+v", p, want)
					}
					if got := st.Topics[0].Partitions[i].LogStart; int(got) != want.start {
						t.Errorf("the row of partition %d says %d", i, got)
					}
				}
			}
		})
	}
}

// TestReport057RebuildKnowsTheStartOfTheNewestCopies: without a journal, it is what
// these knew.
func TestReport057RebuildKnowsTheStartOfTheNewestCopies(t *testing.T) {
	c := newCluster(t)
	orders := c.orders(1)
	c.copied(orders, 0, 0, 20, tiers.Lineage{{Epoch: 0, Start: 0}})
	c.copied(orders, 0, 20, 40, tiers.Lineage{{Epoch: 0, Start: 0}})
	c.copied(orders, 0, 40, 60, tiers.Lineage{{Epoch: 0, Start: 30}})
	c.must(c.bucket.Delete(t.Context(), append(c.bucket.Keys("cluster/snapshot/"), c.bucket.Keys("cluster/change/")...)...))
	st, rep := c.mustRebuild()
	p := rep.Partitions[0]
	if p.LogStart != 30 || p.LogEnd != 60 || p.Doomed != 1 || len(p.Gaps)+len(p.Problems) != 0 || st.Topics[0].Partitions[0].LogStart != 30 {
		t.Errorf("%+v %+v", p, st.Topics)
	}
}

// TestReport104BrokenListing: a listing that breaks off ends the rebuild with an
// error, and the store stays empty.
func TestReport104BrokenListing(t *testing.T) {
	c := newCluster(t)
	orders := c.orders(1)
	lin := tiers.Lineage{{Epoch: 0, Start: 0}}
	c.copied(orders, 0, 0, 40, lin)
	c.copied(orders, 0, 40, 50, lin)
	c.bucket.Add(memory.Fault{Ops: memory.OpList, Key: "topics/" + orders.ID.Hex(), Cut: true, CutAfter: 1, Err: remote.ErrUnavailable})
	s := model.New(model.Options{Now: clock})
	if _, err := rebuild.Run(t.Context(), c.bucket, s, rebuild.Options{Node: 1, Now: clock, Log: hclog.NewNullLogger()}); tiers.KindOf(err) != tiers.RemoteUnavailable {
		t.Fatal(err)
	}
	if topics, err := s.Topics(t.Context()); err != nil || len(topics) != 0 {
		t.Fatal(topics, err)
	}
	c.bucket.Clear()
	if _, err := rebuild.Run(t.Context(), c.bucket, s, rebuild.Options{Node: 1, Now: clock, Log: hclog.NewNullLogger()}); err != nil {
		t.Fatal("the second try:", err)
	}
}

// TestRebuildStrayObjects: keys that are nobody's are reported and left alone.
func TestRebuildStrayObjects(t *testing.T) {
	c := newCluster(t)
	orders := c.orders(1)
	c.copied(orders, 0, 0, 40, tiers.Lineage{{Epoch: 0, Start: 0}})
	for _, key := range []string{"topics/readme.txt", "topics/" + orders.ID.Hex() + "/note", "topics/zz/x", "cluster/snapshot/what", "else/where"} {
		_, err := c.bucket.Put(t.Context(), key, remote.BytesBody([]byte("x")), remote.PutOptions{})
		c.must(err)
	}
	_, rep := c.mustRebuild()
	if len(rep.Orphans) != 3 || rep.Partitions[0].LogEnd != 40 {
		t.Fatalf("%+v", rep.Orphans)
	}
}

func BenchmarkRebuild1000(b *testing.B) {
	c := newCluster(b)
	orders := c.orders(4)
	lin := tiers.Lineage{{Epoch: 0, Start: 0}}
	for i := range 1000 {
		base := tiers.Offset(i/4) * 10
		c.segment(orders, int32(i%4), base, base+10, lin)
	}
	c.must(c.journal.Snapshot(b.Context()))
	b.ResetTimer()
	for range b.N {
		s := model.New(model.Options{Now: clock})
		rep, err := rebuild.Run(b.Context(), c.bucket, s, rebuild.Options{DryRun: true, Node: 1, Now: clock, Log: hclog.NewNullLogger()})
		if err != nil || rep.Partitions[3].Segments != 250 {
			b.Fatal(err, rep.Partitions)
		}
	}
}

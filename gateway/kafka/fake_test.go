package kafka

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"sync"
	"testing"

	"github.com/strandline-io/strandline/gateway/broker"
	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/gateway/groups"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/batch"
	"github.com/strandline-io/strandline/tiers/local"
	"github.com/strandline-io/strandline/tiers/partition"
)

// fakeLog is a partition in memory.
type fakeLog struct {
	mu       sync.Mutex
	view     *partition.View
	batches  [][]byte
	subs     map[chan<- struct{}]struct{}
	err      error // of every append and read
	aborted  []local.AbortedTxn
	bucket   chan struct{} // reads below LocalLogStart wait until it is closed
	gets     int           // of the bucket
	deaf     bool          // waiting for the bucket goes on after the context ended
	appended []partition.AppendRequest
	reads    int
	onAppend func()
	onWait   func() // before a subscription
	onDelete func(context.Context)
}

func newFakeLog() *fakeLog {
	return &fakeLog{view: &partition.View{History: 1, Epoch: 0, Lineage: tiers.Lineage{{Epoch: 0, Start: 0}}}, subs: map[chan<- struct{}]struct{}{}}
}

func (l *fakeLog) View() *partition.View {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.view
}

// change publishes a new view.
func (l *fakeLog) change(f func(v *partition.View)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.publish(f)
}

func (l *fakeLog) publish(f func(v *partition.View)) {
	v := *l.view
	f(&v)
	l.view = &v
	for c := range l.subs {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

func (l *fakeLog) Subscribe(c chan<- struct{}) func() {
	if l.onWait != nil {
		l.onWait()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.subs[c] = struct{}{}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.subs, c)
	}
}

func (l *fakeLog) subscribed() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.subs)
}

func (l *fakeLog) Append(ctx context.Context, r partition.AppendRequest) (partition.AppendResult, error) {
	if l.onAppend != nil {
		l.onAppend()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.appended = append(l.appended, r)
	if l.err != nil {
		return partition.AppendResult{}, l.err
	}
	if err := ctx.Err(); err != nil {
		return partition.AppendResult{}, tiers.E(tiers.TimedOut, "append", "fake", "%w", err)
	}
	h, err := batch.Check(r.Batch, batch.Limits{})
	if err != nil {
		return partition.AppendResult{}, err
	}
	base := l.view.LogEnd
	batch.Stamp(r.Batch, base, l.view.Epoch)
	l.batches = append(l.batches, slices.Clone(r.Batch))
	l.publish(func(v *partition.View) {
		v.LogEnd = base + tiers.Offset(h.Count)
		v.HighWatermark, v.LastStable = v.LogEnd, v.LogEnd
	})
	return partition.AppendResult{Base: base, AppendTime: -1, LogStart: l.view.LogStart}, nil
}

func (l *fakeLog) Read(ctx context.Context, r partition.ReadRequest) (partition.ReadResult, error) {
	l.mu.Lock()
	v, bucket, err, deaf := l.view, l.bucket, l.err, l.deaf
	l.reads++
	cold := r.From < v.LocalLogStart
	if cold {
		l.gets++
	}
	l.mu.Unlock()
	res := partition.ReadResult{View: v, Remote: cold}
	switch end, ok := epochEndOf(v, r.FetchedEpoch); {
	case err != nil:
		return res, err
	case r.CurrentEpoch != tiers.NoEpoch && r.CurrentEpoch < v.Epoch:
		return res, tiers.E(tiers.FencedLeaderEpoch, "read", "fake", "")
	case r.CurrentEpoch > v.Epoch:
		return res, tiers.E(tiers.UnknownLeaderEpoch, "read", "fake", "")
	case ok && (end.Epoch < r.FetchedEpoch || end.End < r.From):
		res.Diverging = &end
		return res, nil
	case r.From < v.LogStart || r.From > v.LogEnd:
		return res, tiers.E(tiers.OffsetOutOfRange, "read", "fake", "")
	}
	if cold && bucket != nil {
		ended := ctx.Done()
		if deaf {
			ended = nil
		}
		select {
		case <-bucket:
		case <-ended:
			return res, tiers.E(tiers.TimedOut, "read", "fake", "%w", ctx.Err())
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	end := v.HighWatermark
	if r.Isolation == partition.ReadCommitted {
		end = v.LastStable
		res.Aborted = l.aborted
	}
	res.Records = l.collect(r, end)
	return res, nil
}

func epochEndOf(v *partition.View, q tiers.LeaderEpoch) (partition.EpochEnd, bool) {
	if q == tiers.NoEpoch {
		return partition.EpochEnd{}, false
	}
	e, end, ok := v.Lineage.EndFor(q, v.LogEnd)
	return partition.EpochEnd{Epoch: e, End: end}, ok
}

func (l *fakeLog) collect(r partition.ReadRequest, end tiers.Offset) []byte {
	var out []byte
	for _, b := range l.batches {
		h, _ := batch.Parse(b)
		if h.Next() <= r.From || h.Next() > end {
			continue
		}
		if len(out)+len(b) > r.MaxBytes && (!r.MinOne || len(out) > 0) {
			break
		}
		out = append(out, b...)
	}
	if len(out) == 0 || r.Alloc == nil {
		return out
	}
	buf := r.Alloc(len(out))
	return buf[:copy(buf, out)]
}

func (l *fakeLog) ListOffset(_ context.Context, ts int64, iso partition.Isolation, current tiers.LeaderEpoch) (partition.OffsetAt, error) {
	v := l.View()
	if current != tiers.NoEpoch && current != v.Epoch {
		return partition.OffsetAt{}, tiers.E(tiers.FencedLeaderEpoch, "list", "fake", "")
	}
	at := partition.OffsetAt{Timestamp: -1, Epoch: v.Epoch}
	switch ts {
	case partition.Latest:
		at.Offset = v.HighWatermark
		if iso == partition.ReadCommitted {
			at.Offset = v.LastStable
		}
	case partition.Earliest:
		at.Offset = v.LogStart
	case partition.EarliestLocal:
		at.Offset = v.LocalLogStart
	case partition.LatestTiered, partition.EarliestPendingUpload, partition.MaxTimestamp:
		at.Offset = v.RemoteEnd - 1
	default:
		at.Offset, at.Epoch = tiers.NoOffset, tiers.NoEpoch
		if ts <= 1000 && v.HighWatermark > 0 {
			at = partition.OffsetAt{Offset: 0, Timestamp: 1000}
		}
	}
	return at, nil
}

func (l *fakeLog) DeleteRecords(ctx context.Context, upTo tiers.Offset) (tiers.Offset, error) {
	if l.onDelete != nil {
		l.onDelete(ctx)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return tiers.NoOffset, tiers.E(tiers.TimedOut, "delete records", "fake", "%w", err)
	}
	if l.err != nil {
		return tiers.NoOffset, l.err
	}
	if upTo == tiers.NoOffset {
		upTo = l.view.HighWatermark
	}
	if upTo > l.view.HighWatermark {
		return tiers.NoOffset, tiers.E(tiers.OffsetOutOfRange, "delete records", "fake", "")
	}
	l.publish(func(v *partition.View) { v.LogStart = max(v.LogStart, upTo) })
	return l.view.LogStart, nil
}

func (l *fakeLog) EpochEnd(current, q tiers.LeaderEpoch) (partition.EpochEnd, error) {
	v := l.View()
	if current != tiers.NoEpoch && current != v.Epoch {
		return partition.EpochEnd{}, tiers.E(tiers.FencedLeaderEpoch, "epoch end", "fake", "")
	}
	e, ok := epochEndOf(v, q)
	if !ok {
		return partition.EpochEnd{Epoch: tiers.NoEpoch, End: tiers.NoOffset}, nil
	}
	return e, nil
}

// fakeNode is a node in memory: directory and group offsets.
type fakeNode struct {
	mu        sync.Mutex
	topics    map[string]control.Topic
	logs      map[tiers.PartitionID]*fakeLog
	offline   map[tiers.TopicPartition]error
	producer  int64
	committed map[string]map[tiers.TopicPartition]control.OffsetCommit
	autoOff   bool
	nextID    byte
	altered   []broker.ConfigOp
	replaced  bool
	panics    bool
}

func newFakeNode() *fakeNode {
	return &fakeNode{
		topics: map[string]control.Topic{}, logs: map[tiers.PartitionID]*fakeLog{}, offline: map[tiers.TopicPartition]error{},
		committed: map[string]map[tiers.TopicPartition]control.OffsetCommit{},
	}
}

func (n *fakeNode) Node() broker.Node {
	if n.panics {
		panic("on purpose")
	}
	return broker.Node{ID: 1, Cluster: "strandline-test-clustr", Rack: "rack-a"}
}

func (n *fakeNode) Topic(name string) (control.Topic, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	t, ok := n.topics[name]
	return t, ok
}

func (n *fakeNode) TopicByID(id tiers.TopicID) (control.Topic, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, t := range n.topics {
		if t.ID == id {
			return t, true
		}
	}
	return control.Topic{}, false
}

func (n *fakeNode) Topics() []control.Topic {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := make([]control.Topic, 0, len(n.topics))
	for _, t := range n.topics {
		out = append(out, t)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}

func (n *fakeNode) Log(topic string, index int32) (partitionLog, error) {
	t, ok := n.Topic(topic)
	if !ok || index < 0 || int(index) >= len(t.Partitions) {
		return nil, tiers.E(tiers.UnknownTopicOrPartition, "owner", topic, "")
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.offline[tiers.TopicPartition{Topic: topic, Partition: index}]; err != nil {
		return nil, err
	}
	return n.logs[tiers.PartitionID{Topic: t.ID, Index: index}], nil
}

func (n *fakeNode) LogByID(id tiers.TopicID, index int32) (partitionLog, error) {
	t, ok := n.TopicByID(id)
	if !ok {
		return nil, tiers.E(tiers.UnknownTopicID, "owner", id.String(), "")
	}
	return n.Log(t.Name, index)
}

func (n *fakeNode) CreateTopic(_ context.Context, r broker.CreateTopic) (control.Topic, error) {
	if err := broker.CheckTopicName(r.Name); err != nil {
		return control.Topic{}, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, ok := n.topics[r.Name]; ok {
		return control.Topic{}, tiers.E(tiers.TopicExists, "create topic", r.Name, "")
	}
	if r.Partitions == -1 {
		r.Partitions = max(1, int32(len(r.Assignment)))
	}
	if r.Partitions < 1 {
		return control.Topic{}, tiers.E(tiers.InvalidPartitions, "create topic", r.Name, "%d partitions", r.Partitions)
	}
	n.nextID++
	t := control.Topic{ID: tiers.TopicID{n.nextID, 7}, Name: r.Name}
	for i := range r.Partitions {
		t.Partitions = append(t.Partitions, control.Partition{Index: i, Leader: 1})
	}
	if r.CheckOnly {
		t.ID = tiers.TopicID{}
		return t, nil
	}
	n.topics[r.Name] = t
	for i := range r.Partitions {
		n.logs[tiers.PartitionID{Topic: t.ID, Index: i}] = newFakeLog()
	}
	return t, nil
}

func (n *fakeNode) AutoCreate(ctx context.Context, name string) (control.Topic, error) {
	if n.autoOff {
		return control.Topic{}, tiers.E(tiers.UnknownTopicOrPartition, "auto-create", name, "")
	}
	return n.CreateTopic(ctx, broker.CreateTopic{Name: name, Partitions: -1, Replication: -1})
}

func (n *fakeNode) AddPartitions(_ context.Context, topic string, count int32, checkOnly bool) (control.Topic, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	t, ok := n.topics[topic]
	switch {
	case !ok:
		return t, tiers.E(tiers.UnknownTopicOrPartition, "add partitions", topic, "")
	case int(count) <= len(t.Partitions):
		return t, tiers.E(tiers.InvalidPartitions, "add partitions", topic, "")
	case checkOnly:
		return t, nil
	}
	for i := int32(len(t.Partitions)); i < count; i++ {
		t.Partitions = append(t.Partitions, control.Partition{Index: i, Leader: 1})
		n.logs[tiers.PartitionID{Topic: t.ID, Index: i}] = newFakeLog()
	}
	n.topics[topic] = t
	return t, nil
}

func (n *fakeNode) DeleteTopic(_ context.Context, id tiers.TopicID) error {
	t, ok := n.TopicByID(id)
	if !ok {
		return tiers.E(tiers.UnknownTopicID, "delete topic", id.String(), "")
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.topics, t.Name)
	return nil
}

func (n *fakeNode) AlterConfigs(_ context.Context, topic string, ops []broker.ConfigOp, replace, _ bool) error {
	if _, ok := n.Topic(topic); !ok {
		return tiers.E(tiers.UnknownTopicOrPartition, "alter configs", topic, "")
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.altered, n.replaced = ops, replace
	return nil
}

func (n *fakeNode) TopicConfigs(topic string) ([]broker.ConfigEntry, error) {
	if _, ok := n.Topic(topic); !ok {
		return nil, tiers.E(tiers.UnknownTopicOrPartition, "describe configs", topic, "")
	}
	return []broker.ConfigEntry{
		{Name: "retention.ms", Value: "604800000", Source: sourceDefault, Type: 5, Doc: "How long records are kept."},
		{
			Name: "segment.bytes", Value: "1000000", Source: sourceTopic, Type: 3,
			Synonyms: []broker.ConfigSynonym{{Name: "segment.bytes", Value: "1000000", Source: sourceTopic}},
		},
	}, nil
}

func (*fakeNode) NodeConfigs() []broker.ConfigEntry {
	return []broker.ConfigEntry{{Name: "secret", Value: "hidden", Source: sourceStaticBroker, ReadOnly: true, Sensitive: true, Type: 2}}
}

func (n *fakeNode) ProducerID(context.Context) (int64, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.producer++
	return n.producer, nil
}

func (n *fakeNode) Commit(_ context.Context, group string, cs []groups.Commit) []error {
	errs := make([]error, len(cs))
	for i, c := range cs {
		if _, err := n.Log(c.Topic, c.Index); err != nil {
			errs[i] = err
			continue
		}
		n.mu.Lock()
		if n.committed[group] == nil {
			n.committed[group] = map[tiers.TopicPartition]control.OffsetCommit{}
		}
		n.committed[group][tiers.TopicPartition{Topic: c.Topic, Partition: c.Index}] = control.OffsetCommit{
			Offset: c.Offset, Epoch: c.Epoch, Metadata: c.Metadata,
		}
		n.mu.Unlock()
	}
	return errs
}

func (n *fakeNode) Fetch(_ context.Context, group string) (map[tiers.TopicPartition]control.OffsetCommit, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.committed[group], nil
}

// log returns the fake log of a partition.
func (n *fakeNode) log(tb testing.TB, topic string, index int32) *fakeLog {
	tb.Helper()
	l, err := n.Log(topic, index)
	if err != nil {
		tb.Fatal(err)
	}
	return l.(*fakeLog)
}

func (n *fakeNode) create(tb testing.TB, name string, partitions int32) control.Topic {
	tb.Helper()
	topic, err := n.CreateTopic(tb.Context(), broker.CreateTopic{Name: name, Partitions: partitions, Replication: 1})
	if err != nil {
		tb.Fatal(err)
	}
	return topic
}

// makeBatch makes a batch of n records, the values of which take size bytes.
func makeBatch(tb testing.TB, n, size int) []byte {
	tb.Helper()
	recs := make([]batch.Record, n)
	for i := range recs {
		recs[i] = batch.Record{Offset: tiers.Offset(i), Timestamp: 1000, Key: []byte(fmt.Sprint("k", i)), Value: make([]byte, size)}
	}
	b, err := batch.Builder{ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}.Build(recs)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// fill appends batches of one record.
func (l *fakeLog) fill(tb testing.TB, n, size int) {
	tb.Helper()
	for range n {
		if _, err := l.Append(tb.Context(), partition.AppendRequest{Batch: makeBatch(tb, 1, size)}); err != nil {
			tb.Fatal(err)
		}
	}
}

package broker

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"pgregory.net/rapid"

	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/gateway/control/model"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/partition"
	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

// attic is a bucket with rows, and a broker that sweeps it without owners that
// would act on the rows.
type attic struct {
	t       failing
	b       *Broker
	store   *model.Store
	bucket  *memory.Bucket
	session control.Session
	now     time.Time
	n       int
}

// failing is a test or a rapid check.
type failing interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

const long = 30 * 24 * time.Hour

func newAttic(t failing, bucket remote.Bucket) *attic {
	t.Helper()
	a := &attic{t: t, store: model.New(model.Options{}), now: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)}
	a.bucket, _ = bucket.(*memory.Bucket)
	if a.bucket != nil {
		a.bucket.SetClock(func() time.Time { return a.now })
	}
	cache := remote.NewCache(bucket, remote.CacheOptions{})
	a.b = &Broker{o: Options{Store: a.store, Cache: cache, Log: hclog.NewNullLogger(), Now: func() time.Time { return a.now }, RowsSince: a.now.Add(-long)}}
	a.b.sweeps.turn = make(chan struct{}, 1)
	a.b.life = context.Background()
	a.b.catalog.Store(newCatalog(nil))
	var err error
	a.session, err = a.store.OpenSession(context.Background(), 1)
	a.must(err)
	return a
}

func (a *attic) must(err error) {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
}

func (a *attic) topic(name string, partitions int32) control.Topic {
	a.t.Helper()
	t, err := a.store.CreateTopic(context.Background(), a.session, control.NewTopic{Name: name, Partitions: partitions})
	a.must(err)
	return t
}

// segment makes an identity that was not used before.
func (a *attic) segment(topic tiers.TopicID, index int32, gen tiers.HistoryGen) tiers.RemoteSegment {
	a.n++
	return tiers.RemoteSegment{
		ID: tiers.SegmentID{byte(a.n >> 8), byte(a.n), 7}, Partition: tiers.PartitionID{Topic: topic, Index: index}, Gen: gen,
		Base: tiers.Offset(a.n * 10), End: tiers.Offset(a.n*10 + 10), Epochs: tiers.Lineage{{Epoch: 0, Start: tiers.Offset(a.n * 10)}},
		State: tiers.CopyStarted, Size: 7, MetaSize: 7,
	}
}

// row puts a row into the state.
func (a *attic) row(s tiers.RemoteSegment, state tiers.SegmentState) {
	a.t.Helper()
	ctx := context.Background()
	f := partition.Fence{Partition: s.Partition, Gen: 1, Epoch: 0, NodeEpoch: a.session.Epoch}
	a.must(a.store.CopyStarted(ctx, f, s))
	if state >= tiers.CopyFinished {
		a.must(a.store.CopyFinished(ctx, f, s))
	}
	if state >= tiers.DeleteStarted {
		a.must(a.store.DeleteStarted(ctx, f, s.ID))
	}
}

// put stores an object of the given age.
func (a *attic) put(key string, age time.Duration) {
	a.t.Helper()
	was := a.now
	a.now = was.Add(-age)
	_, err := a.bucket.Put(context.Background(), key, remote.BytesBody([]byte("content")), remote.PutOptions{})
	a.now = was
	a.must(err)
}

func (a *attic) sweep(r SweepRequest) SweepReport {
	a.t.Helper()
	rep, err := a.b.Sweep(context.Background(), r)
	a.must(err)
	return rep
}

func (a *attic) left() []string { return a.bucket.Keys("topics/") }

// TestSweepDeletesExactlyWhatIsNobodys: random rows in every state, random keys
// of every age, neighbours and strangers among them.
func TestSweepDeletesExactlyWhatIsNobodys(t *testing.T) {
	ages := []time.Duration{0, time.Hour, orphanAge, orphanAge + time.Second, 20 * 24 * time.Hour, long, 2 * long}
	rapid.Check(t, func(t *rapid.T) {
		a := newAttic(t, memory.New())
		topics := []control.Topic{a.topic("orders-1", 11), a.topic("orders-10", 2), a.topic("gone", 2)}
		all := rapid.Bool().Draw(t, "all")
		var kept, gone []string
		for range rapid.IntRange(0, 20).Draw(t, "segments") {
			topic := rapid.SampledFrom(topics).Draw(t, "topic")
			index := rapid.SampledFrom([]int32{0, 1, 10, 12}).Draw(t, "partition")
			gen := rapid.SampledFrom([]tiers.HistoryGen{1, 1, 1, 2}).Draw(t, "gen")
			s := a.segment(topic.ID, index, gen)
			state := rapid.SampledFrom([]tiers.SegmentState{0, 0, tiers.CopyStarted, tiers.CopyFinished, tiers.DeleteStarted}).Draw(t, "state")
			if gen != 1 || int(index) >= len(topic.Partitions) {
				state = 0 // such a row cannot be
			}
			if state != 0 {
				a.row(s, state)
			}
			for _, key := range []string{remote.SegmentKey(s), remote.MetaKey(s)} {
				if !rapid.Bool().Draw(t, "is there") {
					continue
				}
				age := rapid.SampledFrom(ages).Draw(t, "age")
				a.put(key, age)
				if state == 0 && age > orphanAge && (all || age <= long-clockTrust) {
					gone = append(gone, key)
				} else {
					kept = append(kept, key)
				}
			}
		}
		for i, key := range []string{
			"topics/readme", remote.TopicPrefix(topics[0].ID) + "x", remote.PartitionPrefix(tiers.PartitionID{Topic: topics[0].ID}) + "0000000001/x.log",
			"topics/0123/0000000000/0000000001/00000000000000000000-0000000000-00000000000000000000000000000000.log",
			remote.SegmentKey(a.segment(topics[0].ID, 1, 1)) + ".bak",
		} {
			if rapid.Bool().Draw(t, fmt.Sprint("foreign", i)) {
				a.put(key, 10*24*time.Hour)
				kept = append(kept, key)
			}
		}
		if _, err := a.store.DeleteTopic(context.Background(), a.session, topics[2].ID); err != nil {
			t.Fatal(err)
		}
		before := a.left()
		if rep := a.sweep(SweepRequest{DryRun: true, All: all}); rep.Orphans.Count != int64(len(gone)) || rep.Deleted != 0 || !slices.Equal(a.left(), before) {
			t.Fatalf("dry run: %s, want %d", rep, len(gone))
		}
		rep := a.sweep(SweepRequest{All: all})
		slices.Sort(kept)
		if !slices.Equal(a.left(), kept) || rep.Err != nil || rep.Deleted != int64(len(gone)) {
			t.Fatalf("%s\nleft %q\nwant %q\ngone %q", rep, a.left(), kept, gone)
		}
		if again := a.sweep(SweepRequest{All: all}); again.Orphans.Count != 0 {
			t.Fatalf("second sweep: %s", again)
		}
		a.b.o.Cache.Close()
	})
}

// TestReport126And037FailedCopies: whatever of a copy is left without a row goes
// once it is a day old; the live copy of the same offsets does not.
func TestReport126And037FailedCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.change = quiet
		n := r.start()
		topic := n.create("orders", 1)
		n.fill("orders", 0, 5)
		live := r.bucket.Keys("topics/")
		if len(live) != 2 {
			t.Fatal(live)
		}
		name, err := remote.ParseKey(live[0])
		if err != nil {
			t.Fatal(err)
		}
		dead := name.Segment()
		dead.ID = tiers.SegmentID{1, 2, 3}
		for _, key := range []string{remote.SegmentKey(dead), remote.MetaKey(dead)} {
			if _, err := r.bucket.Put(t.Context(), key, remote.BytesBody([]byte("a copy that was cut off")), remote.PutOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(sweepEvery + time.Minute) // the first daily sweep: they are a day old
		time.Sleep(sweepEvery)
		synctest.Wait()
		if left := r.bucket.Keys("topics/"); !slices.Equal(left, live) {
			t.Errorf("left %q, want %q", left, live)
		}
		if rep := n.Swept(); rep == nil || rep.Err != nil || n.SweepTotals().Deleted != 2 {
			t.Errorf("%+v, %+v", rep, n.SweepTotals())
		}
		if got := n.values("orders"); len(got) != 5 {
			t.Errorf("%d records of %s are left", len(got), topic.Name)
		}
		n.end()
	})
}

// TestReport104PartialListingDeletesNothing: of the partition whose listing broke
// off; the others are swept, and the report names the store.
func TestReport104PartialListingDeletesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := memory.New()
		a := newAttic(t, bucket)
		topic := a.topic("orders", 3)
		for p := range int32(3) {
			for range 3 {
				a.put(remote.SegmentKey(a.segment(topic.ID, p, 1)), 2*orphanAge)
			}
		}
		broken := remote.PartitionPrefix(tiers.PartitionID{Topic: topic.ID, Index: 1})
		why := errors.New("it says that more follows, without a token to ask for it")
		bucket.Add(memory.Fault{Ops: memory.OpList, Key: broken, Cut: true, CutAfter: 2, Err: why})
		rep := a.sweep(SweepRequest{})
		if rep.Deleted != 6 || !errors.Is(rep.Err, why) || !strings.Contains(rep.Err.Error(), bucket.String()) || rep.Partitions != 2 {
			t.Errorf("%s", rep)
		}
		if left := a.left(); len(left) != 3 || !strings.HasPrefix(left[0], broken) {
			t.Errorf("left %q", left)
		}
		if a.b.sweeps.failing == nil {
			t.Error("health does not tell")
		}
		bucket.Add(memory.Fault{Ops: memory.OpList, Key: "topics/", Err: why})
		if rep := a.sweep(SweepRequest{}); rep.Deleted != 0 || !errors.Is(rep.Err, why) {
			t.Errorf("no list of topics: %s", rep)
		}
		if rep := a.sweep(SweepRequest{}); rep.Deleted != 3 || rep.Err != nil || a.b.sweeps.failing != nil {
			t.Errorf("healed: %s", rep)
		}
		a.b.o.Cache.Close()
	})
}

// TestSweepAsksForTheClaimBeforeEachDelete: whoever took the bucket over may have
// rows for what we have not.
func TestSweepAsksForTheClaimBeforeEachDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAttic(t, memory.New())
		claim := &claimTwin{}
		a.b.o.Claim, a.b.o.ClaimEvery = claim, time.Minute
		topic := a.topic("orders", 2)
		for p := range int32(2) {
			for range 2 {
				a.put(remote.SegmentKey(a.segment(topic.ID, p, 1)), 2*orphanAge)
			}
		}
		claim.say(tiers.E(tiers.RemoteUnavailable, "check claim", "bucket", "it is away"))
		if rep := a.sweep(SweepRequest{}); rep.Deleted != 0 || rep.Err == nil || len(a.left()) != 4 {
			t.Errorf("the claim was not read: %s", rep)
		}
		claim.say(tiers.E(tiers.StaleFence, "check claim", "bucket", "node 2 took it over"))
		if rep := a.sweep(SweepRequest{}); rep.Deleted != 0 || rep.Err == nil || len(a.left()) != 4 {
			t.Errorf("the claim was lost: %s", rep)
		}
		_, err := a.b.Sweep(t.Context(), SweepRequest{})
		wantKind(t, "fenced", err, tiers.StaleFence)
		a.b.o.Cache.Close()
	})
}

// TestSweepRefusesAClockThatDisagrees: ages cannot be told then.
func TestSweepRefusesAClockThatDisagrees(t *testing.T) {
	for _, off := range []time.Duration{2 * time.Hour, -2 * time.Hour} {
		bucket := memory.New()
		a := newAttic(t, bucket)
		topic := a.topic("orders", 1)
		a.put(remote.SegmentKey(a.segment(topic.ID, 0, 1)), 2*orphanAge)
		bucket.SetClock(func() time.Time { return a.now.Add(off) })
		if rep := a.sweep(SweepRequest{}); rep.Deleted != 0 || tiers.KindOf(rep.Err) != tiers.Conflict || len(a.left()) != 1 {
			t.Errorf("off by %s: %s", off, rep)
		}
		a.b.o.Cache.Close()
	}
}

// untimed is a store whose listings tell no times.
type untimed struct{ remote.Bucket }

func (u untimed) List(ctx context.Context, o remote.ListOptions) iter.Seq2[remote.Object, error] {
	return func(yield func(remote.Object, error) bool) {
		for o, err := range u.Bucket.List(ctx, o) {
			o.Modified = time.Time{}
			if !yield(o, err) {
				return
			}
		}
	}
}

func TestSweepOfAStoreThatTellsNoTimes(t *testing.T) {
	bucket := memory.New()
	a := newAttic(t, bucket)
	topic := a.topic("orders", 1)
	a.put(remote.SegmentKey(a.segment(topic.ID, 0, 1)), 2*orphanAge)
	a.b.o.Cache.Close()
	a.b.o.Cache = remote.NewCache(untimed{bucket}, remote.CacheOptions{})
	if rep := a.sweep(SweepRequest{All: true}); rep.Deleted != 0 || rep.Young != 1 || len(a.left()) != 1 {
		t.Errorf("%s", rep)
	}
	a.b.o.Cache.Close()
}

// lateRow is a store in which a row comes while the bucket is listed.
type lateRow struct {
	remote.Bucket
	came func()
}

func (l lateRow) List(ctx context.Context, o remote.ListOptions) iter.Seq2[remote.Object, error] {
	return func(yield func(remote.Object, error) bool) {
		for o, err := range l.Bucket.List(ctx, o) {
			if !yield(o, err) {
				return
			}
		}
		if strings.Count(o.Prefix, "/") == 3 {
			l.came()
		}
	}
}

// TestSweepReadsTheRowsAfterTheListing: a row that came meanwhile counts.
func TestSweepReadsTheRowsAfterTheListing(t *testing.T) {
	bucket := memory.New()
	a := newAttic(t, bucket)
	topic := a.topic("orders", 1)
	s := a.segment(topic.ID, 0, 1)
	a.put(remote.SegmentKey(s), 2*orphanAge)
	a.b.o.Cache.Close()
	a.b.o.Cache = remote.NewCache(lateRow{bucket, func() { a.row(s, tiers.CopyStarted) }}, remote.CacheOptions{})
	if rep := a.sweep(SweepRequest{}); rep.Deleted != 0 || rep.Orphans.Count != 0 || len(a.left()) != 1 {
		t.Errorf("%s", rep)
	}
	a.b.o.Cache.Close()
}

// TestSweepRemovesLeftSelfTests and nothing else there.
func TestSweepRemovesLeftSelfTests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := memory.New()
		a := newAttic(t, bucket)
		old := remote.SelfTestPrefix + strings.Repeat("A", 26) + "/crc"
		a.put(old, 2*orphanAge)
		others := []string{remote.SelfTestPrefix + strings.Repeat("B", 26) + "/crc", remote.SelfTestPrefix + "mine/notes", "cluster/claim"}
		a.put(others[0], time.Hour)
		a.put(others[1], 2*orphanAge)
		a.put(others[2], 2*orphanAge)
		a.sweep(SweepRequest{})
		slices.Sort(others)
		if left := bucket.Keys(""); !slices.Equal(left, others) {
			t.Errorf("left %q", left)
		}
		a.b.o.Cache.Close()
	})
}

// TestReport129SweepKnowsDoomedRows: the objects of a deleted topic belong to its
// doomed rows until those are gone.
func TestReport129SweepKnowsDoomedRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAttic(t, memory.New())
		topic := a.topic("orders", 1)
		doomed, nobody := a.segment(topic.ID, 0, 1), a.segment(topic.ID, 0, 1)
		a.row(doomed, tiers.CopyFinished)
		a.put(remote.SegmentKey(doomed), 2*orphanAge)
		a.put(remote.SegmentKey(nobody), 2*orphanAge)
		_, err := a.store.DeleteTopic(t.Context(), a.session, topic.ID)
		a.must(err)
		if rep := a.sweep(SweepRequest{}); rep.Deleted != 1 || !slices.Equal(a.left(), []string{remote.SegmentKey(doomed)}) {
			t.Errorf("%s, left %q", rep, a.left())
		}
		a.must(a.store.Buried(t.Context(), a.session, doomed.ID))
		if rep := a.sweep(SweepRequest{}); rep.Deleted != 1 || len(a.left()) != 0 {
			t.Errorf("%s, left %q", rep, a.left())
		}
		a.b.o.Cache.Close()
	})
}

// TestSweepGivesUpOnABucketThatIsAway, and one sweep runs at a time.
func TestSweepGivesUpOnABucketThatIsAway(t *testing.T) {
	bucket := memory.New()
	a := newAttic(t, bucket)
	topic := a.topic("orders", 30)
	for p := range int32(30) {
		a.put(remote.SegmentKey(a.segment(topic.ID, p, 1)), 2*orphanAge)
	}
	lists := bucket.Add(memory.Fault{Ops: memory.OpList, Key: remote.TopicPrefix(topic.ID) + "0", Sticky: true, Err: remote.ErrUnavailable})
	if rep := a.sweep(SweepRequest{}); lists() != maxSweepErrors || rep.Err == nil || rep.Deleted != 0 {
		t.Errorf("%d listings, %s", lists(), rep)
	}
	for i := range 30 {
		a.put(remote.SegmentKey(a.segment(a.topic(fmt.Sprint("topic", i), 1).ID, 0, 1)), 2*orphanAge)
	}
	bucket.Clear()
	lists = bucket.Add(memory.Fault{Ops: memory.OpList, Key: "topics/", Skip: 1, Sticky: true, Err: remote.ErrUnavailable})
	if rep := a.sweep(SweepRequest{}); lists() != maxSweepErrors || rep.Deleted != 0 {
		t.Errorf("topics: %d listings, %s", lists(), rep)
	}
	bucket.Clear()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if rep, err := a.b.Sweep(gone, SweepRequest{}); err != nil || !errors.Is(rep.Err, context.Canceled) || rep.Deleted != 0 {
		t.Errorf("broken off: %s, %v", rep, err)
	}
	a.b.sweeps.turn <- struct{}{}
	_, err := a.b.Sweep(t.Context(), SweepRequest{})
	wantKind(t, "two sweeps", err, tiers.Conflict, "under way")
	a.b.o.Cache.Close()
	a.b.o.Cache = nil
	_, err = a.b.Sweep(t.Context(), SweepRequest{})
	wantKind(t, "no bucket", err, tiers.InvalidConfig)
}

// TestReport127StubbornOrphans hold up no others, of whichever batch.
func TestReport127StubbornOrphans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAttic(t, memory.New())
		topic := a.topic("orders", 1)
		var keys []string
		for range sweepBatch { // two batches
			s := a.segment(topic.ID, 0, 1)
			keys = append(keys, remote.SegmentKey(s), remote.MetaKey(s))
		}
		slices.Sort(keys)
		for i, key := range keys {
			a.put(key, 48*time.Hour)
			if i < 2*giveUpAfter {
				a.bucket.Add(memory.Fault{Ops: memory.OpDelete, Key: key, Sticky: true, Err: remote.ErrDenied})
			}
		}
		rep, err := a.b.Sweep(t.Context(), SweepRequest{})
		if err != nil || rep.Err == nil || !strings.Contains(rep.Err.Error(), "20 orphans of 500 were refused") {
			t.Errorf("%v, %v", rep, err)
		}
		if left := a.bucket.Keys("topics/"); !slices.Equal(left, keys[:2*giveUpAfter]) || rep.Deleted != int64(len(keys)-2*giveUpAfter) {
			t.Errorf("%d are left, %d deleted", len(left), rep.Deleted)
		}
	})
}

// TestSelfTestKeys: what self-tests leave when they are killed is known as theirs.
func TestSelfTestKeys(t *testing.T) {
	id := strings.Repeat("A", 26)
	for key, ours := range map[string]bool{
		remote.SelfTestPrefix + id + "/crc": true, remote.SelfTestPrefix + "doctor-" + id + "/large": true,
		remote.SelfTestPrefix + "doctor-" + id + "/small-3": true, remote.SelfTestPrefix + "mine/notes": false, "cluster/claim": false,
	} {
		if got := selfTestKey.MatchString(key); got != ours {
			t.Errorf("%s: %v", key, got)
		}
	}
}

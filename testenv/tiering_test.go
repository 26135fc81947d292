package testenv_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline-io/strandline/testenv"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/partition"
	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/memory"
)

// TestReport131NoPartitionIsForgotten: fifty partitions roll all the time, an upload
// fails now and then, and the node is killed in the middle. At every look the disk of
// each of them holds less than its limit, one segment more (R9), the active one, and
// what is not in the bucket yet; no pass of retention runs meanwhile. Nothing is lost.
func TestReport131NoPartitionIsForgotten(t *testing.T) {
	const partitions, rounds, perRound = 50, 10, 6
	n := testenv.Start(t)
	n.CreateTopic("log", partitions, kept("local.retention.bytes", fmt.Sprint(diskLimit)))
	var struck []func() int
	for round := range rounds {
		if round%3 == 1 {
			hits := n.Bucket.Add(memory.Fault{Ops: memory.OpPut, Key: "topics/", Skip: 7 * round, Times: 2, Err: remote.ErrDenied}) // nothing below the owner tries again
			struck = append(struck, hits)
		}
		produceRound(t, n, partitions, perRound, round)
		smallDisks(t, n, partitions)
		if round == rounds/2 {
			n = n.Kill()
			smallDisks(t, n, partitions)
		}
	}
	n.Bucket.Clear()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for p := range int32(partitions) {
		if err := n.Admin().Copy(ctx, "log", p, true); err != nil {
			t.Fatal(err)
		}
	}
	if waiting := smallDisks(t, n, partitions); waiting != 0 {
		t.Errorf("%d bytes are in no bucket although all was copied", waiting)
	}
	for i, hits := range struck {
		if hits() != 2 {
			t.Errorf("the fault of round %d has struck %d times", 3*i+1, hits())
		}
	}
	eachRecord(t, n, partitions, rounds*perRound)
}

// What a partition's disk may hold, and how large a segment is.
const (
	diskLimit   = 4096
	segmentSize = 2048
)

// produceRound writes records to each partition, each in a batch of its own.
func produceRound(t *testing.T, n *testenv.Node, partitions int32, count, round int) {
	t.Helper()
	ctx, cancel := n.Context()
	defer cancel()
	cl := kafka(t, n, kgo.DefaultProduceTopic("log"), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()))
	defer cl.Close()
	for i := range count {
		var rs []*kgo.Record
		for p := range partitions {
			rs = append(rs, &kgo.Record{Partition: p, Key: fmt.Append(nil, round*count+i), Value: bytes.Repeat([]byte{byte(p)}, 500)})
		}
		if err := cl.ProduceSync(ctx, rs...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

// smallDisks looks at what the disk holds of each partition, and returns how much of
// its closed segments is not in the bucket.
func smallDisks(t *testing.T, n *testenv.Node, partitions int32) (waiting int64) {
	t.Helper()
	ctx, cancel := n.Context()
	defer cancel()
	for p := range partitions {
		o, err := n.Broker().Owner("log", p)
		if err != nil {
			t.Fatal(err)
		}
		segments, err := o.Segments(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var disk, active, only int64
		for _, s := range segments {
			if s.Tier != "remote" {
				disk += s.Bytes
			}
			switch {
			case s.State == "active":
				active = s.Bytes
			case s.Tier == "local":
				only += s.Bytes
			}
		}
		if disk >= diskLimit+segmentSize+active+only {
			t.Errorf("partition %d: %d bytes on disk, %d of which are active and %d wait for a copy", p, disk, active, only)
		}
		waiting += only
	}
	return waiting
}

// eachRecord consumes all partitions and wants each record once, in order.
func eachRecord(t *testing.T, n *testenv.Node, partitions int32, count int) {
	t.Helper()
	ctx, cancel := n.Context()
	defer cancel()
	cl := kafka(t, n, kgo.ConsumeTopics("log"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer cl.Close()
	next := make([]int64, partitions)
	for left := int(partitions) * count; left > 0; {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			t.Fatalf("%d records to go: %v", left, err)
		}
		fs.EachRecord(func(r *kgo.Record) {
			if at := next[r.Partition]; r.Offset != at || string(r.Key) != fmt.Sprint(at) || len(r.Value) != 500 || r.Value[0] != byte(r.Partition) {
				t.Fatalf("partition %d has %q at %d, want offset %d", r.Partition, r.Key, r.Offset, at)
			}
			next[r.Partition]++
			left--
		})
	}
}

// TestReport091SlowConsumer: a consumer that takes a few records at a time reads from
// disk; the segment that it is in the middle of, and all behind it, leave the disk,
// twice. It sees no error, is not reset, and misses nothing.
func TestReport091SlowConsumer(t *testing.T) {
	n := testenv.Start(t)
	n.CreateTopic("log", 1, kept())
	writeAt(t, n, 0, steps(100)...)
	rollAndCopy(t, n)
	cl := kafka(t, n, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"log": {0: kgo.NewOffset().At(0)}}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()), kgo.FetchMaxPartitionBytes(500), kgo.MaxConcurrentFetches(1))
	at := int64(0)
	upTo := func(end int64) {
		t.Helper()
		ctx, cancel := n.Context()
		defer cancel()
		for at < end {
			fs := cl.PollRecords(ctx, 2)
			if err := fs.Err(); err != nil {
				t.Fatalf("at %d: %v", at, err)
			}
			fs.EachRecord(func(r *kgo.Record) {
				if r.Offset != at || string(r.Value) != fmt.Sprintf("%090d", at) {
					t.Fatalf("offset %d holds %s, want offset %d", r.Offset, r.Value, at)
				}
				at++
			})
		}
	}
	reads := func() int { return len(n.Bucket.Calls(memory.OpRead, ".log")) }
	upTo(16) // in the middle of the second segment
	copied := reads()
	drop := func(end tiers.Offset) {
		t.Helper()
		alter(t, n, "local.retention.bytes", "0")
		retain(t, n)
		if v := owner(t, n).View(); v.LocalLogStart != end || v.LogStart != 0 {
			t.Fatalf("%+v", v.Watermarks)
		}
	}
	drop(100)
	upTo(60)
	if reads() == copied {
		t.Error("nothing was read from the bucket: the disk had it all the time")
	}
	alter(t, n, "local.retention.bytes", "-2")
	writeAt(t, n, 100, steps(100)...)
	rollAndCopy(t, n)
	upTo(130) // on disk again
	drop(200)
	upTo(200)
}

func owner(t *testing.T, n *testenv.Node) *partition.Owner {
	t.Helper()
	o, err := n.Broker().Owner("log", 0)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestReport082NewestOverTheWire: the record with the greatest timestamp lies in the
// bucket, another one has the same, newer ones have smaller ones. ListOffsets(-3) is
// the first of the two, from both tiers, after a restart and after a rebuild; once a
// trim has passed it, it is the second.
func TestReport082NewestOverTheWire(t *testing.T) {
	n := testenv.Start(t)
	n.CreateTopic("log", 1, kept())
	times := steps(100)
	newest := times[99] + 5000
	times[30], times[70] = newest, newest
	writeAt(t, n, 0, times...)
	rollAndCopy(t, n)
	want := func(when string, n *testenv.Node, offset int64) {
		t.Helper()
		if got := listOffset(t, n, kafka(t, n), -3); got.ErrorCode != 0 || got.Offset != offset || got.Timestamp != newest {
			t.Errorf("%s: offset %d, time %d (%d); want %d, %d", when, got.Offset, got.Timestamp, got.ErrorCode, offset, newest)
		}
	}
	want("in both tiers", n, 30)
	alter(t, n, "local.retention.bytes", "0")
	retain(t, n)
	want("in the bucket only", n, 30)
	n = n.Restart()
	want("restarted", n, 30)
	n = n.Rebuild()
	want("rebuilt", n, 30)
	mustDeleteBelow(t, n, 31, 31)
	want("trimmed", n, 70)
	n = n.Rebuild()
	want("trimmed and rebuilt", n, 70)
}

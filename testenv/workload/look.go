package workload

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// read reads one partition from its start to its end.
func (l *Life) read() error {
	i, p := l.pick()
	return l.readAll(i, p)
}

func (l *Life) readAll(i int32, p *partition) error {
	ctx, cancel := l.node.Context()
	defer cancel()
	start, err := l.start(ctx, i, p)
	if err != nil {
		return err
	}
	l.say("%d from %d", i, start)
	return l.readRange(ctx, i, p, start, -1)
}

// start asks where the log starts, and holds the answer against what may be.
func (l *Life) start(ctx context.Context, i int32, p *partition) (int64, error) {
	start, err := l.offset(ctx, i, -2)
	switch {
	case err != nil:
		return start, err
	case start < p.trimmed:
		return start, fmt.Errorf("partition %d starts at %d, it was trimmed to %d", i, start, p.trimmed)
	case start < p.start:
		return start, fmt.Errorf("partition %d starts at %d, it started at %d before", i, start, p.start)
	case start > p.may:
		return start, fmt.Errorf("partition %d starts at %d, at most %d is right", i, start, p.may)
	}
	p.start = start
	return start, nil
}

// pause waits a moment for the node to go on.
func pause(ctx context.Context) {
	select {
	case <-time.After(5 * time.Millisecond):
	case <-ctx.Done():
	}
}

// offset asks ListOffsets.
func (l *Life) offset(ctx context.Context, i int32, ts int64) (int64, error) {
	for ; ; pause(ctx) {
		req := kmsg.NewPtrListOffsetsRequest()
		rt := kmsg.NewListOffsetsRequestTopic()
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.Partition, rp.Timestamp, rp.CurrentLeaderEpoch = i, ts, -1
		rt.Topic, rt.Partitions = topic, append(rt.Partitions, rp)
		req.ReplicaID, req.Topics = -1, append(req.Topics, rt)
		resp, err := req.RequestWith(ctx, l.cl)
		if err != nil {
			return 0, err
		}
		got := resp.Topics[0].Partitions[0]
		err = kerr.ErrorForCode(got.ErrorCode)
		if err == nil || !kerr.IsRetriable(err) || ctx.Err() != nil {
			return got.Offset, err
		}
	}
}

// readRange consumes [from, upTo) and holds each record against the model. upTo
// -1 is the end of the log, which must not be below the model's. A log start that
// moves meanwhile is right as far as the settings allow it.
func (l *Life) readRange(ctx context.Context, i int32, p *partition, from, upTo int64) error {
	if upTo < 0 {
		end, err := l.offset(ctx, i, -1)
		if err != nil {
			return err
		}
		if end < p.end() {
			return fmt.Errorf("partition %d ends at %d, acknowledged were %d", i, end, p.end())
		}
		upTo = end
	}
	if from >= upTo {
		return nil
	}
	cl := l.client(l.node, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {i: kgo.NewOffset().At(from)}}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()), kgo.FetchMaxWait(50*time.Millisecond))
	defer cl.Close()
	for next := from; next < upTo; {
		fs := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			return fmt.Errorf("partition %d: offset %d of [%d,%d) does not come", i, next, from, upTo)
		}
		for _, e := range fs.Errors() {
			if errors.Is(e.Err, kerr.OffsetOutOfRange) {
				start, err := l.start(ctx, i, p)
				if err != nil || start <= next {
					return fmt.Errorf("partition %d: %d is out of range, the log starts at %d: %w", i, next, start, errors.Join(e.Err, err))
				}
				return l.readRange(ctx, i, p, start, upTo)
			}
			if !kerr.IsRetriable(e.Err) {
				return fmt.Errorf("partition %d at %d: %w", i, next, e.Err)
			}
		}
		for _, r := range fs.Records() {
			if r.Offset != next {
				return fmt.Errorf("partition %d: %d comes after %d", i, r.Offset, next-1)
			}
			if err := p.seen(r.Offset, string(r.Value), r.Timestamp.UnixMilli()); err != nil {
				return fmt.Errorf("partition %d: %w", i, err)
			}
			next++
		}
	}
	return nil
}

// lookUp asks for a time, and for the special offsets.
func (l *Life) lookUp() error {
	ctx, cancel := l.node.Context()
	defer cancel()
	i, p := l.pick()
	if p.end() == 0 {
		return nil
	}
	ts := p.records[l.rng.Int64N(p.end())].ts
	before, err := l.start(ctx, i, p)
	if err != nil {
		return err
	}
	got, err := l.offset(ctx, i, ts)
	if err != nil {
		return err
	}
	after, err := l.start(ctx, i, p)
	if err != nil {
		return err
	}
	if got != p.firstAt(before, ts) && got != p.firstAt(after, ts) {
		return fmt.Errorf("partition %d: the first record at %d or later is at %d, the answer is %d", i, ts, p.firstAt(after, ts), got)
	}
	return l.specials(ctx, i, p)
}

func (l *Life) specials(ctx context.Context, i int32, p *partition) error {
	local, err := l.offset(ctx, i, -4)
	if err != nil {
		return err
	}
	tiered, err := l.offset(ctx, i, -5)
	if err != nil {
		return err
	}
	start, err := l.start(ctx, i, p)
	if err != nil {
		return err
	}
	end, err := l.offset(ctx, i, -1)
	if err != nil {
		return err
	}
	if local < p.trimmed || local > end || tiered >= end || local > max(tiered+1, start) {
		return fmt.Errorf("partition %d: starts at %d, on disk from %d, in the bucket up to %d, ends at %d", i, start, local, tiered, end)
	}
	return nil
}

func (l *Life) deleteRecords(ctx context.Context, i int32, to int64) (start int64, err error) {
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: topic, Partition: i, At: to})
	rs, err := kadm.NewClient(l.cl).DeleteRecords(ctx, offsets)
	if err != nil {
		return -1, err
	}
	r, _ := rs.Lookup(topic, i)
	return r.LowWatermark, r.Err
}

// loseDisk wipes the data directory and rebuilds from the bucket.
func (l *Life) loseDisk() error {
	l.node.Bucket.Clear()
	l.faulty = false
	ctx, cancel := l.node.Context()
	defer cancel()
	var copied [partitions]int64
	for i := range int32(partitions) {
		tiered, err := l.offset(ctx, i, -5)
		if err != nil {
			return err
		}
		copied[i] = tiered + 1
	}
	l.take(l.node.Rebuild())
	rctx, rcancel := l.node.Context()
	defer rcancel()
	for i, p := range l.parts {
		end, err := l.offset(rctx, int32(i), -1)
		if err != nil {
			return err
		}
		if want := max(copied[i], p.trimmed); end < want {
			return fmt.Errorf("partition %d ends at %d after the rebuild, the bucket had it up to %d", i, end, want)
		}
		l.say("%d:%d of %d", i, end, p.end())
		if end > p.end() && end > p.trimmed { // what nobody had seen yet came back
			if err := l.readRange(rctx, int32(i), p, p.end(), end); err != nil {
				return err
			}
		}
		p.cut(end)
		p.may = min(p.may, end)
		if l.set["remote.storage.enable"] == "false" {
			p.may = end // what the bucket still had goes, as was asked
		}
	}
	return nil
}

// finish ends all faults and limits, waits for the work to be done and looks at
// everything.
func (l *Life) finish() error {
	l.steps = append(l.steps, "end:")
	l.node.Bucket.Clear()
	l.faulty = false
	ctx, cancel := l.node.Context()
	defer cancel()
	if err := l.alter(ctx, map[string]string{
		"remote.log.copy.disable": "false", "remote.storage.enable": "true", "retention.ms": "-1", "retention.bytes": "-1", "local.retention.ms": "-2",
		"local.retention.bytes": "-2",
	}); err != nil {
		return err
	}
	if err := l.copyAll(ctx); err != nil {
		return err
	}
	for i, p := range l.parts {
		if err := l.readAll(int32(i), p); err != nil {
			return err
		}
	}
	// What a disk that was lost knew of the bucket is swept, a day later.
	l.ahead.Add(int64(25 * time.Hour))
	if _, err := l.node.Admin().Sweep(ctx, false, true); err != nil {
		return err
	}
	if err := l.objects(ctx); err != nil {
		return err
	}
	return l.empty(ctx)
}

func (l *Life) alter(ctx context.Context, to map[string]string) error {
	changes := map[string]*string{}
	for name, v := range to {
		changes[name] = &v
		l.set[name] = v
	}
	l.allow()
	return l.node.Admin().AlterConfigs(ctx, topic, changes)
}

// copyAll has everything in the bucket that there is, and retention applied.
func (l *Life) copyAll(ctx context.Context) error {
	for i := range int32(partitions) {
		if err := errors.Join(l.node.Admin().Roll(ctx, topic, i), l.node.Admin().Copy(ctx, topic, i, true), l.node.Admin().Retain(ctx, topic, i, true)); err != nil {
			return err
		}
	}
	return nil
}

// empty wants retention to work: first everything leaves the disk and is still read,
// then everything goes.
func (l *Life) empty(ctx context.Context) error {
	if err := errors.Join(l.alter(ctx, map[string]string{"local.retention.bytes": "0"}), l.copyAll(ctx)); err != nil {
		return err
	}
	for i, p := range l.parts {
		if local, err := l.offset(ctx, int32(i), -4); err != nil || local != p.end() {
			return fmt.Errorf("partition %d is on disk from %d of %d, and nothing may be: %w", i, local, p.end(), err)
		}
		if err := l.readAll(int32(i), p); err != nil {
			return err
		}
	}
	if err := errors.Join(l.alter(ctx, map[string]string{"retention.bytes": "0"}), l.copyAll(ctx)); err != nil {
		return err
	}
	for i, p := range l.parts {
		if start, err := l.start(ctx, int32(i), p); err != nil || start != p.end() {
			return fmt.Errorf("partition %d starts at %d of %d, and nothing may be kept: %w", i, start, p.end(), err)
		}
	}
	if keys := l.node.Bucket.Keys("topics/"); len(keys) > 0 {
		return fmt.Errorf("the bucket holds %v of an empty topic", keys)
	}
	return nil
}

// objects compares the bucket's keys with the segments that there are, once all
// deletions have ended.
func (l *Life) objects(ctx context.Context) error {
	for ; ; pause(ctx) {
		var named []string
		busy := false
		for i := range int32(partitions) {
			segments, err := l.node.Admin().Segments(l.t.Context(), topic, i)
			if err != nil {
				return err
			}
			for _, s := range segments {
				busy = busy || s.Tier == "remote" && s.State != "copy-finished"
				if s.Tier != "local" {
					named = append(named, s.Key, strings.TrimSuffix(s.Key, ".log")+".meta")
				}
			}
		}
		keys := l.node.Bucket.Keys("topics/")
		slices.Sort(named)
		if !busy && slices.Equal(keys, named) {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("the bucket holds %d objects, the segments name %d:\n%v\n%v", len(keys), len(named), keys, named)
		}
	}
}

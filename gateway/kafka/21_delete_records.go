package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"github.com/strandline-io/strandline/tiers"
)

// deletions is how many partitions of one request are trimmed at the same time.
// Each waits for its log start to be remembered in the bucket; those that wait
// together share the writes.
const deletions = 64

// DeleteRecords: v0-2 (KIP-107).
//
//   - v1: the same
//   - v2: flexible
//
// Offset -1 is the high watermark. A negative one or one above the high watermark
// is OFFSET_OUT_OF_RANGE, one below the log start is answered with the log start.
// An answer without an error says that the log start is in the control plane, in
// the bucket and on disk, so that neither a restart nor a rebuild takes it back. A
// bucket that cannot be reached is KAFKA_STORAGE_ERROR: clients retry on it as they
// do on REQUEST_TIMED_OUT, and it says where to look. A partition that is named
// twice is INVALID_REQUEST.
func (s *Server) deleteRecords(c *call) answer {
	req, _ := c.req.(*kmsg.DeleteRecordsRequest)
	ctx, cancel := context.WithTimeout(c.ctx, adminTimeout(req.TimeoutMillis))
	defer cancel()
	resp := kmsg.NewPtrDeleteRecordsResponse()
	resp.Version = req.Version
	resp.Topics = make([]kmsg.DeleteRecordsResponseTopic, len(req.Topics))
	named := deletionsOf(req)
	var g errgroup.Group
	g.SetLimit(deletions)
	for i, t := range req.Topics {
		rt := &resp.Topics[i]
		*rt = kmsg.NewDeleteRecordsResponseTopic()
		rt.Topic, rt.Partitions = t.Topic, make([]kmsg.DeleteRecordsResponseTopicPartition, len(t.Partitions))
		for k, p := range t.Partitions {
			g.Go(func() error {
				err := error(tiers.E(tiers.InvalidRequest, "delete records", t.Topic, "partition %d is named twice", p.Partition))
				start := tiers.NoOffset
				if named[tiers.TopicPartition{Topic: t.Topic, Partition: p.Partition}] == 1 {
					start, err = s.deleteBelow(ctx, t.Topic, p)
				}
				rp := kmsg.NewDeleteRecordsResponseTopicPartition()
				rp.Partition, rp.LowWatermark, rp.ErrorCode = p.Partition, int64(start), codeOf(err)
				rt.Partitions[k] = rp
				return nil
			})
		}
	}
	_ = g.Wait() // Each partition carries its own error.
	code := codeNone
	for _, rt := range resp.Topics {
		for _, rp := range rt.Partitions {
			code = worst(code, rp.ErrorCode)
		}
	}
	return answer{resp: resp, code: code}
}

// deletionsOf counts how often each partition is named.
func deletionsOf(req *kmsg.DeleteRecordsRequest) map[tiers.TopicPartition]int {
	out := map[tiers.TopicPartition]int{}
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			out[tiers.TopicPartition{Topic: t.Topic, Partition: p.Partition}]++
		}
	}
	return out
}

// deleteBelow returns the log start that holds then, NoOffset with an error.
func (s *Server) deleteBelow(ctx context.Context, topic string, p kmsg.DeleteRecordsRequestTopicPartition) (tiers.Offset, error) {
	log, err := s.dir.Log(topic, p.Partition)
	if err != nil {
		return tiers.NoOffset, err
	}
	to := tiers.Offset(p.Offset)
	if to < tiers.NoOffset {
		return tiers.NoOffset, tiers.E(tiers.OffsetOutOfRange, "delete records", topic, "offset %d of partition %d is negative", to, p.Partition)
	}
	start, err := log.DeleteRecords(ctx, to)
	if err != nil {
		return tiers.NoOffset, err
	}
	return start, nil
}

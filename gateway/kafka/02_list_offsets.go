package kafka

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/partition"
)

// ListOffsets: v0-11.
//
//   - v0: a list of offsets, newest first; here at most two of them: the answer
//     and, if there is room, the start
//   - v1: one offset and its timestamp
//   - v2: isolation level: Latest is the last stable offset
//   - v4: leader epochs
//   - v6: flexible
//   - v7: MaxTimestamp (-3, KIP-734)
//   - v8: EarliestLocal (-4, KIP-405)
//   - v9: LatestTiered (-5, KIP-1005)
//   - v10: timeout for look-ups in the bucket (KIP-1075)
//   - v11: EarliestPendingUpload (-6, KIP-1023)
//
// Another negative timestamp, or one before its version, is UNSUPPORTED_VERSION
// for its partition; a partition that is named twice is INVALID_REQUEST.
func (s *Server) listOffsets(c *call) answer {
	req, _ := c.req.(*kmsg.ListOffsetsRequest)
	ctx, cancel := context.WithTimeout(c.gone, listTimeout(req))
	defer cancel()
	resp := kmsg.NewPtrListOffsetsResponse()
	resp.Version = req.Version
	resp.Topics = make([]kmsg.ListOffsetsResponseTopic, 0, len(req.Topics))
	twice := namedTwice(req)
	code := codeNone
	for _, t := range req.Topics {
		rt := kmsg.NewListOffsetsResponseTopic()
		rt.Topic = t.Topic
		rt.Partitions = make([]kmsg.ListOffsetsResponseTopicPartition, 0, len(t.Partitions))
		for _, p := range t.Partitions {
			rp := kmsg.NewListOffsetsResponseTopicPartition()
			rp.Partition, rp.OldStyleOffsets = p.Partition, []int64{}
			switch {
			case req.ReplicaID >= 0:
				rp.ErrorCode = codeClusterAuthorization
			case twice[tiers.TopicPartition{Topic: t.Topic, Partition: p.Partition}]:
				rp.ErrorCode = codeInvalidRequest
			default:
				s.listOffset(ctx, req, t.Topic, p, &rp)
			}
			code = worst(code, rp.ErrorCode)
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return answer{resp: resp, code: code}
}

// namedTwice finds the partitions that occur more than once.
func namedTwice(req *kmsg.ListOffsetsRequest) map[tiers.TopicPartition]bool {
	seen := map[tiers.TopicPartition]bool{}
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			tp := tiers.TopicPartition{Topic: t.Topic, Partition: p.Partition}
			_, before := seen[tp]
			seen[tp] = before
		}
	}
	return seen
}

func (s *Server) listOffset(ctx context.Context, req *kmsg.ListOffsetsRequest, topic string,
	p kmsg.ListOffsetsRequestTopicPartition, rp *kmsg.ListOffsetsResponseTopicPartition,
) {
	if p.Timestamp < 0 && req.Version < specialSince(p.Timestamp) {
		rp.ErrorCode = codeUnsupportedVersion
		return
	}
	iso, current := partition.ReadUncommitted, tiers.NoEpoch
	if req.Version >= 2 && req.IsolationLevel == int8(partition.ReadCommitted) {
		iso = partition.ReadCommitted
	}
	if req.Version >= 4 {
		current = tiers.LeaderEpoch(p.CurrentLeaderEpoch)
	}
	log, err := s.dir.Log(topic, p.Partition)
	var at partition.OffsetAt
	if err == nil {
		at, err = log.ListOffset(ctx, p.Timestamp, iso, current)
	}
	if err != nil {
		rp.ErrorCode = codeOf(err)
		return
	}
	rp.Offset, rp.Timestamp, rp.LeaderEpoch = int64(at.Offset), at.Timestamp, int32(at.Epoch)
	if req.Version == 0 {
		rp.OldStyleOffsets = oldStyle(at.Offset, log.View().LogStart, p.MaxNumOffsets)
	}
}

// specialSince is the version in which a special timestamp came; none ever did
// for the others.
func specialSince(ts int64) int16 {
	switch ts {
	case partition.Latest, partition.Earliest:
		return 0
	case partition.MaxTimestamp:
		return 7
	case partition.EarliestLocal:
		return 8
	case partition.LatestTiered:
		return 9
	case partition.EarliestPendingUpload:
		return 11
	}
	return 1<<15 - 1
}

// oldStyle lists offsets at which reading can begin, newest first.
func oldStyle(at, start tiers.Offset, most int32) []int64 {
	out := []int64{}
	if most > 0 && at != tiers.NoOffset {
		out = append(out, int64(at))
	}
	if most > 1 && start < at {
		out = append(out, int64(start))
	}
	return out
}

// The bounds of how long a look-up may take; before v10 the client does not say.
const (
	usualList = 30 * time.Second
	leastList = time.Second
	mostList  = 5 * time.Minute
)

func listTimeout(req *kmsg.ListOffsetsRequest) time.Duration {
	if req.Version < 10 || req.TimeoutMillis <= 0 {
		return usualList
	}
	return min(max(time.Duration(req.TimeoutMillis)*time.Millisecond, leastList), mostList)
}

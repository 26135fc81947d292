package kafka

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/partition"
)

// OffsetForLeaderEpoch: v2-4. Versions 0 and 1 are of brokers only.
//
// The answer is the largest epoch that is not above the one asked for, and where
// it ends; both are -1 if there is none.
//
//   - v3: replica id, refused with CLUSTER_AUTHORIZATION_FAILED if it is one
//   - v4: flexible
func (s *Server) offsetForLeaderEpoch(c *call) answer {
	req, _ := c.req.(*kmsg.OffsetForLeaderEpochRequest)
	resp := kmsg.NewPtrOffsetForLeaderEpochResponse()
	resp.Version = req.Version
	resp.Topics = make([]kmsg.OffsetForLeaderEpochResponseTopic, 0, len(req.Topics))
	code := codeNone
	for _, t := range req.Topics {
		rt := kmsg.NewOffsetForLeaderEpochResponseTopic()
		rt.Topic = t.Topic
		rt.Partitions = make([]kmsg.OffsetForLeaderEpochResponseTopicPartition, 0, len(t.Partitions))
		for _, p := range t.Partitions {
			rp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			rp.Partition, rp.LeaderEpoch, rp.EndOffset = p.Partition, -1, -1
			if req.Version >= 3 && req.ReplicaID >= 0 {
				rp.ErrorCode = codeClusterAuthorization
			} else if end, err := s.epochEnd(t.Topic, p); err != nil {
				rp.ErrorCode = codeOf(err)
			} else {
				rp.LeaderEpoch, rp.EndOffset = int32(end.Epoch), int64(end.End)
			}
			code = worst(code, rp.ErrorCode)
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return answer{resp: resp, code: code}
}

func (s *Server) epochEnd(topic string, p kmsg.OffsetForLeaderEpochRequestTopicPartition) (partition.EpochEnd, error) {
	log, err := s.dir.Log(topic, p.Partition)
	if err != nil {
		return partition.EpochEnd{}, err
	}
	return log.EpochEnd(tiers.LeaderEpoch(p.CurrentLeaderEpoch), tiers.LeaderEpoch(p.LeaderEpoch))
}

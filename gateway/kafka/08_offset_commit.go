package kafka

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/gateway/groups"
	"github.com/strandline-io/strandline/tiers"
)

// OffsetCommit: v0-9, for consumers that assign their own partitions.
//
// Such a consumer commits without a generation (-1) and without a member id. As
// there are no members, a member id is UNKNOWN_MEMBER_ID (25) and a generation
// ILLEGAL_GENERATION (22).
//
//   - v1: generation and member id; a timestamp, in v1 only, not used
//   - v2-v4: retention time, not used: offsets are kept as long as their topic
//   - v6: leader epoch of the last record
//   - v7: static members
//   - v8: flexible
func (s *Server) offsetCommit(c *call) answer {
	req, _ := c.req.(*kmsg.OffsetCommitRequest)
	whole := refuseCommit(req)
	resp := kmsg.NewPtrOffsetCommitResponse()
	resp.Version = req.Version
	resp.Topics = make([]kmsg.OffsetCommitResponseTopic, 0, len(req.Topics))
	var commits []groups.Commit
	var answers []*kmsg.OffsetCommitResponseTopicPartition
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := kmsg.NewOffsetCommitResponseTopic()
		rt.Topic = t.Topic
		rt.Partitions = make([]kmsg.OffsetCommitResponseTopicPartition, len(t.Partitions))
		for j := range t.Partitions {
			p, rp := &t.Partitions[j], &rt.Partitions[j]
			rp.Default()
			rp.Partition, rp.ErrorCode = p.Partition, whole
			if p.Metadata != nil && len(*p.Metadata) > s.lim.OffsetMetadataBytes {
				rp.ErrorCode = worst(whole, codeMetadataTooLarge)
			}
			if rp.ErrorCode == codeNone {
				commits = append(commits, commitOf(req.Version, t.Topic, p))
				answers = append(answers, rp)
			}
		}
		resp.Topics = append(resp.Topics, rt)
	}
	if len(commits) > 0 {
		for i, err := range s.offsets.Commit(c.ctx, req.Group, commits) {
			answers[i].ErrorCode = codeOf(err)
		}
	}
	code := whole
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			code = worst(code, p.ErrorCode)
		}
	}
	return answer{resp: resp, code: code}
}

func refuseCommit(req *kmsg.OffsetCommitRequest) int16 {
	switch {
	case req.Group == "":
		return codeInvalidGroupID
	case req.Version >= 1 && req.MemberID != "", req.Version >= 7 && req.InstanceID != nil:
		return codeUnknownMemberID
	case req.Version >= 1 && req.Generation >= 0:
		return codeIllegalGeneration
	}
	return codeNone
}

func commitOf(version int16, topic string, p *kmsg.OffsetCommitRequestTopicPartition) groups.Commit {
	c := groups.Commit{Topic: topic, Index: p.Partition, Offset: tiers.Offset(p.Offset), Epoch: tiers.NoEpoch}
	if version >= 6 {
		c.Epoch = tiers.LeaderEpoch(p.LeaderEpoch)
	}
	if p.Metadata != nil {
		c.Metadata = *p.Metadata
	}
	return c
}

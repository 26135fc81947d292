package kafka

import (
	"cmp"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/tiers"
)

// OffsetFetch: v0-9.
//
// A partition without a committed offset, a topic or a group that is not known
// are no errors: the offset is -1.
//
//   - v2: null topics: everything that the group committed; an error at the top
//   - v5: leader epochs
//   - v6: flexible
//   - v7: require_stable: without transactions everything is
//   - v8: several groups (KIP-709)
//   - v9: member id and epoch of KIP-848, of which there are none: UNKNOWN_MEMBER_ID
func (s *Server) offsetFetch(c *call) answer {
	req, _ := c.req.(*kmsg.OffsetFetchRequest)
	resp := kmsg.NewPtrOffsetFetchResponse()
	resp.Version = req.Version
	if req.Version < 8 {
		g := kmsg.NewOffsetFetchRequestGroup()
		g.Group = req.Group
		if req.Topics != nil {
			g.Topics = make([]kmsg.OffsetFetchRequestGroupTopic, 0, len(req.Topics))
		}
		for _, t := range req.Topics {
			gt := kmsg.NewOffsetFetchRequestGroupTopic()
			gt.Topic, gt.Partitions = t.Topic, t.Partitions
			g.Topics = append(g.Topics, gt)
		}
		found := s.groupOffsets(c, req.Version, &g)
		resp.ErrorCode, resp.Topics = found.ErrorCode, oldTopics(found, &g, req.Version)
		return answer{resp: resp, code: found.ErrorCode}
	}
	code := codeNone
	resp.Groups = make([]kmsg.OffsetFetchResponseGroup, 0, len(req.Groups))
	for i := range req.Groups {
		g := s.groupOffsets(c, req.Version, &req.Groups[i])
		code = worst(code, g.ErrorCode)
		resp.Groups = append(resp.Groups, g)
	}
	return answer{resp: resp, code: code}
}

// groupOffsets answers for one group.
func (s *Server) groupOffsets(c *call, version int16, g *kmsg.OffsetFetchRequestGroup) kmsg.OffsetFetchResponseGroup {
	out := kmsg.NewOffsetFetchResponseGroup()
	out.Group, out.Topics = g.Group, []kmsg.OffsetFetchResponseGroupTopic{}
	if version >= 9 && g.MemberID != nil && *g.MemberID != "" {
		out.ErrorCode = codeUnknownMemberID
		return out
	}
	if g.Group == "" {
		out.ErrorCode = codeInvalidGroupID
		return out
	}
	have, err := s.offsets.Fetch(c.gone, g.Group)
	if err != nil {
		out.ErrorCode = codeOf(err)
		return out
	}
	asked := g.Topics
	if asked == nil {
		asked = everything(have)
	}
	for _, t := range asked {
		rt := kmsg.NewOffsetFetchResponseGroupTopic()
		rt.Topic = t.Topic
		rt.Partitions = make([]kmsg.OffsetFetchResponseGroupTopicPartition, 0, len(t.Partitions))
		for _, index := range t.Partitions {
			rt.Partitions = append(rt.Partitions, committed(have, t.Topic, index))
		}
		out.Topics = append(out.Topics, rt)
	}
	return out
}

// committed is what a group committed for a partition.
func committed(have map[tiers.TopicPartition]control.OffsetCommit, topic string, index int32) kmsg.OffsetFetchResponseGroupTopicPartition {
	p := kmsg.NewOffsetFetchResponseGroupTopicPartition()
	p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = index, -1, -1, new("")
	if o, ok := have[tiers.TopicPartition{Topic: topic, Partition: index}]; ok {
		p.Offset, p.LeaderEpoch, p.Metadata = int64(o.Offset), int32(o.Epoch), new(o.Metadata)
	}
	return p
}

// everything asks for all that a group has, in order.
func everything(have map[tiers.TopicPartition]control.OffsetCommit) []kmsg.OffsetFetchRequestGroupTopic {
	var out []kmsg.OffsetFetchRequestGroupTopic
	all := slices.SortedFunc(maps.Keys(have), func(a, b tiers.TopicPartition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	for _, tp := range all {
		if n := len(out); n == 0 || out[n-1].Topic != tp.Topic {
			t := kmsg.NewOffsetFetchRequestGroupTopic()
			t.Topic = tp.Topic
			out = append(out, t)
		}
		last := &out[len(out)-1]
		last.Partitions = append(last.Partitions, tp.Partition)
	}
	return out
}

// oldTopics is the answer in the form of v0-v7. Before v2 there is no place for
// an error of the whole, so every partition carries it.
func oldTopics(g kmsg.OffsetFetchResponseGroup, asked *kmsg.OffsetFetchRequestGroup, version int16) []kmsg.OffsetFetchResponseTopic {
	if g.ErrorCode != codeNone && version < 2 {
		for _, t := range asked.Topics {
			rt := kmsg.NewOffsetFetchResponseGroupTopic()
			rt.Topic = t.Topic
			for _, index := range t.Partitions {
				p := committed(nil, t.Topic, index)
				p.ErrorCode = g.ErrorCode
				rt.Partitions = append(rt.Partitions, p)
			}
			g.Topics = append(g.Topics, rt)
		}
	}
	out := make([]kmsg.OffsetFetchResponseTopic, 0, len(g.Topics))
	for _, t := range g.Topics {
		rt := kmsg.NewOffsetFetchResponseTopic()
		rt.Topic = t.Topic
		rt.Partitions = make([]kmsg.OffsetFetchResponseTopicPartition, 0, len(t.Partitions))
		for _, p := range t.Partitions {
			rp := kmsg.NewOffsetFetchResponseTopicPartition()
			rp.Partition, rp.Offset, rp.LeaderEpoch, rp.Metadata, rp.ErrorCode = p.Partition, p.Offset, p.LeaderEpoch, p.Metadata, p.ErrorCode
			rt.Partitions = append(rt.Partitions, rp)
		}
		out = append(out, rt)
	}
	return out
}

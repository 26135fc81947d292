package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/tiers"
)

// DeleteTopics: v0-6.
//
//   - v4: flexible
//   - v5: error messages
//   - v6: by name or by id (KIP-516); both at once is INVALID_REQUEST
func (s *Server) deleteTopics(c *call) answer {
	req, _ := c.req.(*kmsg.DeleteTopicsRequest)
	ctx, cancel := context.WithTimeout(c.ctx, adminTimeout(req.TimeoutMillis))
	defer cancel()
	asked := req.Topics
	if req.Version < 6 {
		asked = nil
		for _, name := range req.TopicNames {
			t := kmsg.NewDeleteTopicsRequestTopic()
			t.Topic = new(name)
			asked = append(asked, t)
		}
	}
	resp := kmsg.NewPtrDeleteTopicsResponse()
	resp.Version = req.Version
	resp.Topics = make([]kmsg.DeleteTopicsResponseTopic, 0, len(asked))
	code := codeNone
	for _, t := range asked {
		rt := kmsg.NewDeleteTopicsResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		if err := s.deleteTopic(ctx, &rt); err != nil {
			rt.ErrorCode, rt.ErrorMessage = codeOf(err), detail(err)
		}
		code = worst(code, rt.ErrorCode)
		resp.Topics = append(resp.Topics, rt)
	}
	return answer{resp: resp, code: code}
}

// deleteTopic deletes the topic that rt names, and completes the naming.
func (s *Server) deleteTopic(ctx context.Context, rt *kmsg.DeleteTopicsResponseTopic) error {
	id := tiers.TopicID(rt.TopicID)
	switch {
	case rt.Topic != nil && !id.IsZero():
		return tiers.E(tiers.InvalidRequest, "delete topic", *rt.Topic, "give a name or an id, not both")
	case rt.Topic != nil:
		t, ok := s.dir.Topic(*rt.Topic)
		if !ok {
			return tiers.E(tiers.UnknownTopicOrPartition, "delete topic", *rt.Topic, "")
		}
		rt.TopicID = t.ID
		return s.dir.DeleteTopic(ctx, t.ID)
	}
	t, ok := s.dir.TopicByID(id)
	if !ok || id.IsZero() {
		return tiers.E(tiers.UnknownTopicID, "delete topic", id.String(), "")
	}
	rt.Topic = new(t.Name)
	return s.dir.DeleteTopic(ctx, id)
}

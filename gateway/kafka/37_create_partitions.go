package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/tiers"
)

// CreatePartitions: v0-3. The count is the new total.
//
//   - v2: flexible
//   - v3: throttling may be refused (KIP-599); nothing is throttled
//
// An assignment must name this node once for each new partition.
func (s *Server) createPartitions(c *call) answer {
	req, _ := c.req.(*kmsg.CreatePartitionsRequest)
	ctx, cancel := context.WithTimeout(c.ctx, adminTimeout(req.TimeoutMillis))
	defer cancel()
	times := map[string]int{}
	for _, t := range req.Topics {
		times[t.Topic]++
	}
	resp := kmsg.NewPtrCreatePartitionsResponse()
	resp.Version = req.Version
	resp.Topics = make([]kmsg.CreatePartitionsResponseTopic, 0, len(req.Topics))
	code := codeNone
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := kmsg.NewCreatePartitionsResponseTopic()
		rt.Topic = t.Topic
		if times[t.Topic] > 1 {
			rt.ErrorCode, rt.ErrorMessage = codeInvalidRequest, new("The request names this topic twice.")
		} else if err := s.addPartitions(ctx, t, req.ValidateOnly); err != nil {
			rt.ErrorCode, rt.ErrorMessage = codeOf(err), detail(err)
		}
		code = worst(code, rt.ErrorCode)
		resp.Topics = append(resp.Topics, rt)
	}
	return answer{resp: resp, code: code}
}

func (s *Server) addPartitions(ctx context.Context, t *kmsg.CreatePartitionsRequestTopic, checkOnly bool) error {
	if t.Assignment != nil {
		if err := s.checkAssignment(t); err != nil {
			return err
		}
	}
	_, err := s.dir.AddPartitions(ctx, t.Topic, t.Count, checkOnly)
	return err
}

func (s *Server) checkAssignment(t *kmsg.CreatePartitionsRequestTopic) error {
	now, ok := s.dir.Topic(t.Topic)
	if !ok {
		return tiers.E(tiers.UnknownTopicOrPartition, "create partitions", t.Topic, "")
	}
	if more := int(t.Count) - len(now.Partitions); more > 0 && more != len(t.Assignment) {
		return tiers.E(tiers.InvalidReplicaAssignment, "create partitions", t.Topic,
			"%d assignments for %d new partitions", len(t.Assignment), more)
	}
	self := int32(s.dir.Node().ID)
	for _, a := range t.Assignment {
		if len(a.Replicas) != 1 || a.Replicas[0] != self {
			return tiers.E(tiers.InvalidReplicaAssignment, "create partitions", t.Topic, "replicas %v: the only node is %d", a.Replicas, self)
		}
	}
	return nil
}

package kafka

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/gateway/broker"
	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/tiers"
)

// CreateTopics: v0-7.
//
//   - v1: validate only, error messages
//   - v4: -1 partitions and replicas stand for the defaults (in every version here)
//   - v5: the topic as created, with its configs; flexible
//   - v7: topic id
//
// An assignment of replicas goes with -1 partitions and replicas. A name that
// occurs twice is INVALID_REQUEST, both times.
func (s *Server) createTopics(c *call) answer {
	req, _ := c.req.(*kmsg.CreateTopicsRequest)
	ctx, cancel := context.WithTimeout(c.ctx, adminTimeout(req.TimeoutMillis))
	defer cancel()
	times := map[string]int{}
	for _, t := range req.Topics {
		times[t.Topic]++
	}
	resp := kmsg.NewPtrCreateTopicsResponse()
	resp.Version = req.Version
	resp.Topics = make([]kmsg.CreateTopicsResponseTopic, 0, len(req.Topics))
	code := codeNone
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := kmsg.NewCreateTopicsResponseTopic()
		rt.Topic, rt.Configs, rt.NumPartitions, rt.ReplicationFactor = t.Topic, []kmsg.CreateTopicsResponseTopicConfig{}, -1, -1
		if times[t.Topic] > 1 {
			rt.ErrorCode, rt.ErrorMessage = codeInvalidRequest, new("The request names this topic twice.")
		} else if made, err := s.createTopic(ctx, t, req.ValidateOnly); err != nil {
			rt.ErrorCode, rt.ErrorMessage = codeOf(err), detail(err)
		} else {
			s.describeCreated(&rt, made, req.ValidateOnly)
		}
		code = worst(code, rt.ErrorCode)
		resp.Topics = append(resp.Topics, rt)
	}
	return answer{resp: resp, code: code}
}

func (s *Server) createTopic(ctx context.Context, t *kmsg.CreateTopicsRequestTopic, checkOnly bool) (control.Topic, error) {
	r := broker.CreateTopic{
		Name: t.Topic, Partitions: t.NumPartitions, Replication: t.ReplicationFactor, Configs: map[string]*string{}, CheckOnly: checkOnly,
	}
	if len(t.ReplicaAssignment) > 0 {
		if t.NumPartitions != -1 || t.ReplicationFactor != -1 {
			return control.Topic{}, tiers.E(tiers.InvalidRequest, "create topic", t.Topic,
				"a replica assignment goes with -1 partitions and -1 replicas, not with %d and %d", t.NumPartitions, t.ReplicationFactor)
		}
		r.Assignment = map[int32][]tiers.NodeID{}
	}
	for _, a := range t.ReplicaAssignment {
		if _, twice := r.Assignment[a.Partition]; twice {
			return control.Topic{}, tiers.E(tiers.InvalidReplicaAssignment, "create topic", t.Topic, "partition %d is assigned twice", a.Partition)
		}
		r.Assignment[a.Partition] = nodeIDs(a.Replicas)
	}
	for _, cfg := range t.Configs {
		if _, twice := r.Configs[cfg.Name]; twice {
			return control.Topic{}, tiers.E(tiers.InvalidConfig, "create topic", t.Topic, "%s is set twice", cfg.Name)
		}
		r.Configs[cfg.Name] = cfg.Value
	}
	return s.dir.CreateTopic(ctx, r)
}

func nodeIDs(replicas []int32) []tiers.NodeID {
	out := make([]tiers.NodeID, 0, len(replicas))
	for _, r := range replicas {
		out = append(out, tiers.NodeID(r))
	}
	return out
}

// describeCreated fills in what came out. A topic that was only checked has
// neither id nor configs yet.
func (s *Server) describeCreated(rt *kmsg.CreateTopicsResponseTopic, t control.Topic, checkOnly bool) {
	rt.NumPartitions, rt.ReplicationFactor, rt.TopicID = int32(len(t.Partitions)), 1, t.ID
	if checkOnly {
		return
	}
	entries, err := s.dir.TopicConfigs(t.Name)
	if err != nil { // it was deleted again already
		rt.ConfigErrorCode = codeOf(err)
		return
	}
	for _, e := range entries {
		cfg := kmsg.NewCreateTopicsResponseTopicConfig()
		cfg.Name, cfg.Value, cfg.ReadOnly, cfg.Source, cfg.IsSensitive = e.Name, shown(e.Value, e.Sensitive), e.ReadOnly, e.Source, e.Sensitive
		rt.Configs = append(rt.Configs, cfg)
	}
}

// shown is a setting's value, or null if nobody may see it.
func shown(value string, sensitive bool) *string {
	if sensitive {
		return nil
	}
	return &value
}

// The bounds of how long a change of topics may take.
const (
	leastAdmin = 5 * time.Second
	mostAdmin  = 5 * time.Minute
)

func adminTimeout(millis int32) time.Duration {
	return min(max(time.Duration(millis)*time.Millisecond, leastAdmin), mostAdmin)
}

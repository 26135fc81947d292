package kafka

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/gateway/broker"
	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/tiers"
)

// Metadata: v0-12.
//
// No topics: all of them in v0 if the list is empty, later if it is null; an
// empty list means none since v1. A topic that does not exist is created if the
// client (always before v4) and the node allow it.
//
//   - v1: controller id, racks
//   - v2: cluster id
//   - v5: offline replicas
//   - v7: leader epochs
//   - v8: authorized operations: all, there are no ACLs
//   - v9: flexible
//   - v10: topic ids
//   - v12: topics asked for by id (KIP-516)
func (s *Server) metadata(c *call) answer {
	req, _ := c.req.(*kmsg.MetadataRequest)
	node := s.dir.Node()
	resp := kmsg.NewPtrMetadataResponse()
	resp.Version = req.Version
	resp.ClusterID, resp.ControllerID = new(node.Cluster), int32(node.ID)
	b := kmsg.NewMetadataResponseBroker()
	b.NodeID, b.Host, b.Port, b.Rack = int32(node.ID), c.conn.listener.host, c.conn.listener.port, rackOf(node.Rack)
	resp.Brokers = []kmsg.MetadataResponseBroker{b}
	if req.IncludeClusterAuthorizedOperations {
		resp.AuthorizedOperations = allClusterOperations
	}
	resp.Topics = []kmsg.MetadataResponseTopic{}
	if req.Topics == nil || req.Version == 0 && len(req.Topics) == 0 {
		for _, t := range s.dir.Topics() {
			resp.Topics = append(resp.Topics, s.describeTopic(t, req.IncludeTopicAuthorizedOperations))
		}
		return answer{resp: resp}
	}
	code := codeNone
	for i := range req.Topics {
		t := s.oneTopic(c, req, &req.Topics[i])
		code = worst(code, t.ErrorCode)
		resp.Topics = append(resp.Topics, t)
	}
	return answer{resp: resp, code: code}
}

// What a client is allowed to do where there are no ACLs, as bits of the
// operations of KIP-430.
const (
	allTopicOperations   = 1<<3 | 1<<4 | 1<<5 | 1<<6 | 1<<7 | 1<<8 | 1<<10 | 1<<11
	allClusterOperations = 1<<5 | 1<<7 | 1<<8 | 1<<9 | 1<<10 | 1<<11 | 1<<12
)

// oneTopic finds or creates a topic that a client named.
func (s *Server) oneTopic(c *call, req *kmsg.MetadataRequest, asked *kmsg.MetadataRequestTopic) kmsg.MetadataResponseTopic {
	id := tiers.TopicID(asked.TopicID)
	if asked.Topic == nil || *asked.Topic == "" && !id.IsZero() {
		t, ok := s.dir.TopicByID(id)
		if !ok || id.IsZero() {
			return unknownTopic(nameFor(req.Version, nil), id, codeUnknownTopicID)
		}
		return s.describeTopic(t, req.IncludeTopicAuthorizedOperations)
	}
	t, ok := s.dir.Topic(*asked.Topic)
	if !ok {
		var err error
		if t, err = s.missingTopic(c, req, *asked.Topic); err != nil {
			return unknownTopic(asked.Topic, id, codeOf(err))
		}
	}
	return s.describeTopic(t, req.IncludeTopicAuthorizedOperations)
}

// nameFor is a name that is not known: null since v12, before that it must be
// there.
func nameFor(version int16, name *string) *string {
	if name == nil && version < 12 {
		return new("")
	}
	return name
}

// missingTopic is a topic's first use.
func (s *Server) missingTopic(c *call, req *kmsg.MetadataRequest, name string) (control.Topic, error) {
	if err := broker.CheckTopicName(name); err != nil {
		return control.Topic{}, err // and not unknown, though it is that, too (T10)
	}
	if req.Version >= 4 && !req.AllowAutoTopicCreation {
		return control.Topic{}, tiers.E(tiers.UnknownTopicOrPartition, "metadata", "topic "+name, "")
	}
	return s.dir.AutoCreate(c.ctx, name)
}

func unknownTopic(name *string, id tiers.TopicID, code int16) kmsg.MetadataResponseTopic {
	t := kmsg.NewMetadataResponseTopic()
	t.Topic, t.TopicID, t.ErrorCode = name, id, code
	t.Partitions = []kmsg.MetadataResponseTopicPartition{}
	return t
}

// describeTopic describes a topic's partitions. One that this node does not lead,
// or whose disk failed, has no leader and LEADER_NOT_AVAILABLE (5): clients come
// back for it. One that is just opening has: clients would only ask more often.
func (s *Server) describeTopic(t control.Topic, operations bool) kmsg.MetadataResponseTopic {
	rt := kmsg.NewMetadataResponseTopic()
	rt.Topic, rt.TopicID = new(t.Name), t.ID
	if operations {
		rt.AuthorizedOperations = allTopicOperations
	}
	node := s.dir.Node().ID
	rt.Partitions = make([]kmsg.MetadataResponseTopicPartition, 0, len(t.Partitions))
	for _, p := range t.Partitions {
		rp := kmsg.NewMetadataResponseTopicPartition()
		rp.Partition, rp.Leader, rp.LeaderEpoch = p.Index, int32(p.Leader), int32(p.Epoch)
		rp.Replicas, rp.ISR, rp.OfflineReplicas = []int32{int32(p.Leader)}, []int32{int32(p.Leader)}, []int32{}
		_, err := s.dir.Log(t.Name, p.Index)
		if p.Leader != node || tiers.KindOf(err) == tiers.StorageFailed {
			rp.ErrorCode, rp.Leader = codeLeaderNotAvailable, -1
			rp.ISR, rp.OfflineReplicas = []int32{}, []int32{int32(p.Leader)}
		}
		rt.Partitions = append(rt.Partitions, rp)
	}
	return rt
}

package kafka

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/partition"
)

// Fetch: v4-17.
//
// Only for consumers: a replica id is refused with CLUSTER_AUTHORIZATION_FAILED
// (31), since no listener is one between nodes.
//
//   - v4: isolation level, last stable offset, aborted transactions. Older
//     versions carry record formats that are not kept here.
//   - v5: log start offset
//   - v7: incremental sessions (KIP-227), see sessions.go
//   - v9: the client's leader epoch (KIP-320)
//   - v11: rack; there is one replica, so there is never a better one
//   - v12: the epoch of the last record fetched, diverging epoch; flexible
//   - v13: topic ids (KIP-516)
//   - v15: the replica's id moves to a tagged field (KIP-903)
//   - v16: addresses of nodes (KIP-951)
//   - v17: directory ids of replicas (KIP-853)
func (s *Server) fetch(c *call) answer {
	req, _ := c.req.(*kmsg.FetchRequest)
	parts, forgotten := s.wanted(req)
	if fromReplica(req) {
		s.warn("replica", "refused a fetch that names a replica", "peer", c.conn.nc.RemoteAddr().String(), "listener", c.conn.listener.Name)
		return refuseFetch(req.Version, parts, codeClusterAuthorization)
	}
	sc, code := s.sessions.begin(req, parts, forgotten, c.arrived)
	if code != codeNone {
		return answer{fetch: &fetchAnswer{version: req.Version, code: code}, code: code}
	}
	f := s.newFetching(c, req, sc.parts)
	answered := false
	defer func() {
		if !answered { // a panic: what is held must not be lost with it
			f.release()
		}
	}()
	f.run(c)
	told := sc.finish(f.pulls)
	a := &fetchAnswer{
		version: req.Version, session: sc.id(), topics: byTopic(told), committed: f.iso == partition.ReadCommitted,
		freed: f.release,
	}
	for _, p := range told {
		code = worst(code, p.code)
		s.pointToLeader(a, p, c.conn.listener)
	}
	answered = true
	return answer{fetch: a, code: code}
}

func fromReplica(req *kmsg.FetchRequest) bool {
	return req.ReplicaID >= 0 || req.Version >= 15 && req.ReplicaState.ID >= 0
}

// refuseFetch answers all with a code: at the top where there is such a place.
func refuseFetch(version int16, parts []wanted, code int16) answer {
	a := &fetchAnswer{version: version, code: code}
	if version < 7 {
		pulls := make([]*pull, 0, len(parts))
		for _, w := range parts {
			pulls = append(pulls, &pull{want: w, code: code})
		}
		a.code, a.topics = codeNone, byTopic(pulls)
	}
	return answer{fetch: a, code: code}
}

// wanted reads the request's two lists.
func (s *Server) wanted(req *kmsg.FetchRequest) (parts []wanted, forgotten []wantedKey) {
	n := 0
	for i := range req.Topics {
		n += len(req.Topics[i].Partitions)
	}
	parts = make([]wanted, 0, n)
	for i := range req.Topics {
		t := &req.Topics[i]
		name, id := t.Topic, tiers.TopicID(t.TopicID)
		if req.Version >= 13 {
			if found, ok := s.dir.TopicByID(id); ok {
				name = found.Name
			}
		}
		for j := range t.Partitions {
			p := &t.Partitions[j]
			w := wanted{
				name: name, id: id, index: p.Partition, offset: tiers.Offset(p.FetchOffset), maxBytes: max(int(p.PartitionMaxBytes), 0),
				current: tiers.NoEpoch, fetched: tiers.NoEpoch,
			}
			if req.Version >= 9 {
				w.current = tiers.LeaderEpoch(p.CurrentLeaderEpoch)
			}
			if req.Version >= 12 {
				w.fetched = tiers.LeaderEpoch(p.LastFetchedEpoch)
			}
			parts = append(parts, w)
		}
	}
	for i := range req.ForgottenTopics {
		t := &req.ForgottenTopics[i]
		for _, index := range t.Partitions {
			forgotten = append(forgotten, wanted{name: t.Topic, id: t.TopicID, index: index}.key())
		}
	}
	return parts, forgotten
}

// locate finds the log of a partition, or says why there is none. An id that no
// topic has is INCONSISTENT_TOPIC_ID if the session knew it by a name that now
// belongs to another topic, else UNKNOWN_TOPIC_ID (report 067).
func (s *Server) locate(w wanted) (partitionLog, int16) {
	if w.id.IsZero() && w.name != "" {
		log, err := s.dir.Log(w.name, w.index)
		return log, codeOf(err)
	}
	log, err := s.dir.LogByID(w.id, w.index)
	code := codeOf(err)
	if code == codeUnknownTopicID && w.name != "" {
		if t, ok := s.dir.Topic(w.name); ok && t.ID != w.id {
			code = codeInconsistentTopicID
		}
	}
	return log, code
}

// pointToLeader says who leads a partition that the client asked the wrong node
// or with an old epoch (KIP-951).
func (s *Server) pointToLeader(a *fetchAnswer, p *pull, l *listener) {
	if p.code != codeNotLeader && p.code != codeFencedEpoch {
		return
	}
	t, ok := s.dir.Topic(p.want.name)
	if !ok || int(p.want.index) >= len(t.Partitions) || p.want.index < 0 {
		return
	}
	row := t.Partitions[p.want.index]
	p.leader, p.leaderEpoch, p.pointed = int32(row.Leader), int32(row.Epoch), true
	node := s.dir.Node()
	if a.node == nil && row.Leader == node.ID {
		b := kmsg.NewFetchResponseBroker()
		b.NodeID, b.Host, b.Port, b.Rack = int32(node.ID), l.host, l.port, rackOf(node.Rack)
		a.node = &b
	}
}

func rackOf(rack string) *string {
	if rack == "" {
		return nil
	}
	return &rack
}

// byTopic groups neighbours of one topic, keeping the order.
func byTopic(pulls []*pull) []topicPulls {
	var out []topicPulls
	for _, p := range pulls {
		n := len(out)
		if n == 0 || out[n-1].name != p.want.name || out[n-1].id != p.want.id {
			out = append(out, topicPulls{name: p.want.name, id: p.want.id})
			n++
		}
		out[n-1].pulls = append(out[n-1].pulls, p)
	}
	return out
}

// fetchWait is how long a fetch may wait.
func (s *Server) fetchWait(millis int32) time.Duration {
	return min(max(time.Duration(millis)*time.Millisecond, 0), s.lim.MaxFetchWait)
}

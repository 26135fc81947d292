package admin

import (
	"maps"
	"net/http"
	"net/url"
	"slices"

	"github.com/strandline-io/strandline/gateway/admin/client"
	"github.com/strandline-io/strandline/gateway/broker"
	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/tiers"
)

func (s *Server) listTopics(w http.ResponseWriter, _ *http.Request) error {
	out := client.Topics{Topics: []client.Topic{}}
	for _, t := range s.o.Broker.Catalog().Topics() {
		out.Topics = append(out.Topics, topicOf(t))
	}
	return writeJSON(w, http.StatusOK, out)
}

func topicOf(t control.Topic) client.Topic {
	out := client.Topic{Name: t.Name, Partitions: len(t.Partitions), CreatedAt: t.CreatedAt, Configs: map[string]string{}}
	if !t.ID.IsZero() { // a topic that was only checked has none
		out.ID = t.ID.String()
	}
	maps.Copy(out.Configs, t.Configs)
	return out
}

func (s *Server) createTopic(w http.ResponseWriter, r *http.Request) error {
	var in client.NewTopic
	if err := readJSON(r, &in, false); err != nil {
		return err
	}
	want := broker.CreateTopic{Name: in.Name, Partitions: -1, Replication: -1, Configs: map[string]*string{}, CheckOnly: in.CheckOnly}
	if in.Partitions != nil {
		want.Partitions = *in.Partitions
	}
	if in.Replication != nil {
		want.Replication = *in.Replication
	}
	for k, v := range in.Configs {
		want.Configs[k] = &v
	}
	t, err := s.o.Broker.CreateTopic(r.Context(), want)
	if err != nil {
		return err
	}
	if in.CheckOnly {
		return writeJSON(w, http.StatusOK, topicOf(t))
	}
	w.Header().Set("Location", "/v1/topics/"+url.PathEscape(t.Name))
	return writeJSON(w, http.StatusCreated, topicOf(t))
}

// topic finds the topic that the path names.
func (s *Server) topic(r *http.Request) (control.Topic, error) {
	name := r.PathValue("topic")
	if err := broker.CheckTopicName(name); err != nil {
		return control.Topic{}, err
	}
	t, ok := s.o.Broker.Catalog().Topic(name)
	if !ok {
		return control.Topic{}, tiers.E(tiers.UnknownTopicOrPartition, "find topic", name, "there is no such topic")
	}
	return t, nil
}

func (s *Server) getTopic(w http.ResponseWriter, r *http.Request) error {
	t, err := s.topic(r)
	if err != nil {
		return err
	}
	out := client.TopicDetail{Topic: topicOf(t), Detail: []client.Partition{}}
	for _, p := range t.Partitions {
		out.Detail = append(out.Detail, s.partition(r.Context(), t, p))
	}
	return writeJSON(w, http.StatusOK, out)
}

func (s *Server) deleteTopic(w http.ResponseWriter, r *http.Request) error {
	t, err := s.topic(r)
	if err != nil {
		return err
	}
	if err := s.o.Broker.DeleteTopic(r.Context(), t.ID); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Server) getConfigs(w http.ResponseWriter, r *http.Request) error {
	t, err := s.topic(r)
	if err != nil {
		return err
	}
	entries, err := s.o.Broker.TopicConfigs(t.Name)
	if err != nil {
		return err
	}
	out := client.Configs{Configs: []client.ConfigEntry{}}
	for _, e := range entries {
		c := client.ConfigEntry{Name: e.Name, Value: e.Value, Source: sourceName(e.Source), Doc: e.Doc}
		if n := len(e.Synonyms); n > 0 {
			c.Default = e.Synonyms[n-1].Value
		}
		out.Configs = append(out.Configs, c)
	}
	return writeJSON(w, http.StatusOK, out)
}

func sourceName(source int8) string {
	switch source {
	case broker.SourceTopic:
		return "topic"
	case broker.SourceStatic:
		return "node"
	}
	return "default"
}

// patchConfigs takes a merge patch: text sets a setting, null drops it.
func (s *Server) patchConfigs(w http.ResponseWriter, r *http.Request) error {
	t, err := s.topic(r)
	if err != nil {
		return err
	}
	var in map[string]*string
	if err := readJSON(r, &in, false); err != nil {
		return err
	}
	var ops []broker.ConfigOp
	for _, name := range slices.Sorted(maps.Keys(in)) {
		op := broker.ConfigOp{Name: name, Op: broker.OpSet, Value: in[name]}
		if op.Value == nil {
			op.Op = broker.OpDelete
		}
		ops = append(ops, op)
	}
	if r.URL.Query().Get("check_only") == "true" {
		return s.checkConfigs(w, r, t.Name, ops)
	}
	if err := s.o.Broker.AlterConfigs(r.Context(), t.Name, ops, false, false); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// checkConfigs changes nothing and says what the change would delete.
func (s *Server) checkConfigs(w http.ResponseWriter, r *http.Request, topic string, ops []broker.ConfigOp) error {
	effects, err := s.o.Broker.AlterEffects(r.Context(), topic, ops, false)
	if err != nil {
		return err
	}
	out := client.ConfigCheck{Effects: []client.Effect{}}
	for _, e := range effects {
		c := client.Effect{
			Partition: e.Partition, LogStart: int64(e.LogStart), NewLogStart: int64(e.NewStart), Segments: e.Segments,
			LocalBytes: e.LocalBytes, RemoteBytes: e.RemoteBytes,
		}
		if e.Unknown != nil {
			c.Unknown = e.Unknown.Error()
		}
		out.Effects = append(out.Effects, c)
	}
	return writeJSON(w, http.StatusOK, out)
}

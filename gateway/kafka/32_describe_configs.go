package kafka

import (
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/gateway/broker"
	"github.com/strandline-io/strandline/tiers"
)

// DescribeConfigs: v0-4, of topics and of this node.
//
//   - v0: whether a value is the default
//   - v1: where it comes from, synonyms
//   - v3: types and documentation
//   - v4: flexible
//
// No names, null or empty: all. A broker's empty name means the dynamic defaults
// of the whole cluster, of which there are none.
func (s *Server) describeConfigs(c *call) answer {
	req, _ := c.req.(*kmsg.DescribeConfigsRequest)
	resp := kmsg.NewPtrDescribeConfigsResponse()
	resp.Version = req.Version
	resp.Resources = make([]kmsg.DescribeConfigsResponseResource, 0, len(req.Resources))
	code := codeNone
	for i := range req.Resources {
		r := &req.Resources[i]
		rr := kmsg.NewDescribeConfigsResponseResource()
		rr.ResourceType, rr.ResourceName, rr.Configs = r.ResourceType, r.ResourceName, []kmsg.DescribeConfigsResponseResourceConfig{}
		entries, err := s.configsOf(r.ResourceType, r.ResourceName)
		if err != nil {
			rr.ErrorCode, rr.ErrorMessage = codeOf(err), detail(err)
		}
		for _, e := range entries {
			if len(r.ConfigNames) == 0 || slices.Contains(r.ConfigNames, e.Name) {
				rr.Configs = append(rr.Configs, describeConfig(req, r.ResourceType, e))
			}
		}
		code = worst(code, rr.ErrorCode)
		resp.Resources = append(resp.Resources, rr)
	}
	return answer{resp: resp, code: code}
}

// configsOf returns the settings of a topic or of the node.
func (s *Server) configsOf(kind kmsg.ConfigResourceType, name string) ([]broker.ConfigEntry, error) {
	switch kind {
	case kmsg.ConfigResourceTypeTopic:
		return s.dir.TopicConfigs(name)
	case kmsg.ConfigResourceTypeBroker:
		if name == "" {
			return nil, nil
		}
		if id, err := strconv.Atoi(name); err != nil || tiers.NodeID(id) != s.dir.Node().ID {
			return nil, tiers.E(tiers.InvalidRequest, "describe configs", "broker "+name, "this is node %d", s.dir.Node().ID)
		}
		return s.dir.NodeConfigs(), nil
	default:
		return nil, tiers.E(tiers.InvalidRequest, "describe configs", name, "resources of type %d have no settings here", kind)
	}
}

// Sources of a setting, as on the wire.
const (
	sourceTopic        = 1
	sourceStaticBroker = 4
	sourceDefault      = 5
)

func describeConfig(req *kmsg.DescribeConfigsRequest, kind kmsg.ConfigResourceType, e broker.ConfigEntry) kmsg.DescribeConfigsResponseResourceConfig {
	c := kmsg.NewDescribeConfigsResponseResourceConfig()
	c.Name, c.Value, c.ReadOnly, c.IsSensitive = e.Name, shown(e.Value, e.Sensitive), e.ReadOnly, e.Sensitive
	c.Source, c.ConfigType = kmsg.ConfigSource(e.Source), kmsg.ConfigType(e.Type)
	c.IsDefault = isDefault(kind, e.Source)
	c.ConfigSynonyms = []kmsg.DescribeConfigsResponseResourceConfigConfigSynonym{}
	if req.IncludeSynonyms {
		for _, y := range e.Synonyms {
			cs := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
			cs.Name, cs.Value, cs.Source = y.Name, shown(y.Value, e.Sensitive), kmsg.ConfigSource(y.Source)
			c.ConfigSynonyms = append(c.ConfigSynonyms, cs)
		}
	}
	if req.IncludeDocumentation {
		c.Documentation = new(e.Doc)
	}
	return c
}

// isDefault is what v0 knows of a source: a topic's value is not its own, a
// broker's not in its file.
func isDefault(kind kmsg.ConfigResourceType, source int8) bool {
	if kind == kmsg.ConfigResourceTypeTopic {
		return source != sourceTopic
	}
	return source == sourceDefault
}

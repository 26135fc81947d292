package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/gateway/broker"
	"github.com/strandline-io/strandline/tiers"
)

// AlterConfigs: v0-2, of topics. What is not named goes back to its default.
//
//   - v2: flexible
//
// A node's settings come from its configuration file and cannot be altered.
func (s *Server) alterConfigs(c *call) answer {
	req, _ := c.req.(*kmsg.AlterConfigsRequest)
	resp := kmsg.NewPtrAlterConfigsResponse()
	resp.Version = req.Version
	resp.Resources = make([]kmsg.AlterConfigsResponseResource, 0, len(req.Resources))
	seen := map[resource]bool{}
	code := codeNone
	for i := range req.Resources {
		r := &req.Resources[i]
		ops := make([]broker.ConfigOp, 0, len(r.Configs))
		for _, cfg := range r.Configs {
			if cfg.Value != nil { // null means the default, which it is by now
				ops = append(ops, broker.ConfigOp{Name: cfg.Name, Value: cfg.Value})
			}
		}
		rr := kmsg.NewAlterConfigsResponseResource()
		rr.ResourceType, rr.ResourceName = r.ResourceType, r.ResourceName
		if err := s.alter(c.ctx, seen, resource{r.ResourceType, r.ResourceName}, ops, true, req.ValidateOnly); err != nil {
			rr.ErrorCode, rr.ErrorMessage = codeOf(err), detail(err)
		}
		code = worst(code, rr.ErrorCode)
		resp.Resources = append(resp.Resources, rr)
	}
	return answer{resp: resp, code: code}
}

// resource is what settings belong to.
type resource struct {
	kind kmsg.ConfigResourceType
	name string
}

// alter changes settings of one resource; seen are those of the request so far.
func (s *Server) alter(ctx context.Context, seen map[resource]bool, r resource, ops []broker.ConfigOp, replace, checkOnly bool) error {
	twice := seen[r]
	seen[r] = true
	names := map[string]bool{}
	for _, op := range ops {
		if names[op.Name] {
			return tiers.E(tiers.InvalidRequest, "alter configs", r.name, "%s is named twice", op.Name)
		}
		names[op.Name] = true
		if op.Op < 0 || op.Op > 3 {
			return tiers.E(tiers.InvalidRequest, "alter configs", r.name, "operation %d of %s is not known", op.Op, op.Name)
		}
	}
	switch {
	case twice:
		return tiers.E(tiers.InvalidRequest, "alter configs", r.name, "the request names this resource twice")
	case r.kind == kmsg.ConfigResourceTypeBroker:
		return tiers.E(tiers.InvalidRequest, "alter configs", "broker "+r.name,
			"settings of a node come from its configuration file: change them there and restart it")
	case r.kind != kmsg.ConfigResourceTypeTopic:
		return tiers.E(tiers.InvalidRequest, "alter configs", r.name, "resources of type %d have no settings here", r.kind)
	}
	ctx, cancel := context.WithTimeout(ctx, mostAdmin)
	defer cancel()
	return s.dir.AlterConfigs(ctx, r.name, ops, replace, checkOnly)
}

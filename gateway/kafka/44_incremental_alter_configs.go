package kafka

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/gateway/broker"
)

// IncrementalAlterConfigs: v0-1 (KIP-339), of topics.
//
//   - v1: flexible
func (s *Server) incrementalAlterConfigs(c *call) answer {
	req, _ := c.req.(*kmsg.IncrementalAlterConfigsRequest)
	resp := kmsg.NewPtrIncrementalAlterConfigsResponse()
	resp.Version = req.Version
	resp.Resources = make([]kmsg.IncrementalAlterConfigsResponseResource, 0, len(req.Resources))
	seen := map[resource]bool{}
	code := codeNone
	for i := range req.Resources {
		r := &req.Resources[i]
		ops := make([]broker.ConfigOp, 0, len(r.Configs))
		for _, cfg := range r.Configs {
			ops = append(ops, broker.ConfigOp{Name: cfg.Name, Op: int8(cfg.Op), Value: cfg.Value})
		}
		rr := kmsg.NewIncrementalAlterConfigsResponseResource()
		rr.ResourceType, rr.ResourceName = r.ResourceType, r.ResourceName
		if err := s.alter(c.ctx, seen, resource{r.ResourceType, r.ResourceName}, ops, false, req.ValidateOnly); err != nil {
			rr.ErrorCode, rr.ErrorMessage = codeOf(err), detail(err)
		}
		code = worst(code, rr.ErrorCode)
		resp.Resources = append(resp.Resources, rr)
	}
	return answer{resp: resp, code: code}
}

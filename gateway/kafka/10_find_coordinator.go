package kafka

import "github.com/twmb/franz-go/pkg/kmsg"

// FindCoordinator: v0-6.
//
// This node coordinates every group. Transactions have no coordinator, see the
// package's comment for why that is TRANSACTIONAL_ID_AUTHORIZATION_FAILED (53)
// and not COORDINATOR_NOT_AVAILABLE, at which clients try for ever. Share groups
// are INVALID_REQUEST.
//
//   - v1: key type, error message
//   - v3: flexible
//   - v4: several keys (KIP-699)
//   - v6: share groups
func (s *Server) findCoordinator(c *call) answer {
	req, _ := c.req.(*kmsg.FindCoordinatorRequest)
	resp := kmsg.NewPtrFindCoordinatorResponse()
	resp.Version = req.Version
	if req.Version < 4 {
		f := s.coordinator(c, req, req.CoordinatorKey)
		resp.ErrorCode, resp.ErrorMessage = f.ErrorCode, f.ErrorMessage
		resp.NodeID, resp.Host, resp.Port = f.NodeID, f.Host, f.Port
		return answer{resp: resp, code: f.ErrorCode}
	}
	code := codeNone
	resp.Coordinators = make([]kmsg.FindCoordinatorResponseCoordinator, 0, len(req.CoordinatorKeys))
	for _, key := range req.CoordinatorKeys {
		f := s.coordinator(c, req, key)
		code = worst(code, f.ErrorCode)
		resp.Coordinators = append(resp.Coordinators, f)
	}
	return answer{resp: resp, code: code}
}

// The kinds of coordinators.
const (
	groupCoordinator       int8 = 0
	transactionCoordinator int8 = 1
)

func (s *Server) coordinator(c *call, req *kmsg.FindCoordinatorRequest, key string) kmsg.FindCoordinatorResponseCoordinator {
	out := kmsg.NewFindCoordinatorResponseCoordinator()
	out.Key, out.NodeID, out.Port, out.ErrorMessage = key, -1, -1, new("")
	kind := groupCoordinator
	if req.Version >= 1 {
		kind = req.CoordinatorType
	}
	switch {
	case kind == transactionCoordinator:
		out.ErrorCode, out.ErrorMessage = codeTransactionalID, new("Transactions are not supported: remove transactional.id.")
	case kind != groupCoordinator:
		out.ErrorCode, out.ErrorMessage = codeInvalidRequest, new("There are coordinators of groups only.")
	case key == "":
		out.ErrorCode, out.ErrorMessage = codeInvalidGroupID, new("The group id is empty.")
	default:
		out.NodeID, out.Host, out.Port = int32(s.dir.Node().ID), c.conn.listener.host, c.conn.listener.port
	}
	return out
}

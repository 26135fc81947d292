package kafka

import "github.com/twmb/franz-go/pkg/kmsg"

// DescribeCluster: v0-1 (KIP-700).
//
//   - v1: endpoint type (KIP-919): brokers, which this is; controllers are
//     MISMATCHED_ENDPOINT_TYPE (114), anything else UNSUPPORTED_ENDPOINT_TYPE (115)
func (s *Server) describeCluster(c *call) answer {
	req, _ := c.req.(*kmsg.DescribeClusterRequest)
	resp := kmsg.NewPtrDescribeClusterResponse()
	resp.Version = req.Version
	node := s.dir.Node()
	resp.ClusterID, resp.ControllerID, resp.Brokers = node.Cluster, int32(node.ID), []kmsg.DescribeClusterResponseBroker{}
	if req.Version >= 1 && req.EndpointType != brokerEndpoint {
		resp.ErrorCode, resp.ErrorMessage = codeMismatchedEndpoint, new("This is a broker's endpoint.")
		if req.EndpointType != controllerEndpoint {
			resp.ErrorCode, resp.ErrorMessage = codeUnsupportedEndpoint, new("Endpoints are of brokers (1) or controllers (2).")
		}
		return answer{resp: resp, code: resp.ErrorCode}
	}
	b := kmsg.NewDescribeClusterResponseBroker()
	b.NodeID, b.Host, b.Port, b.Rack = int32(node.ID), c.conn.listener.host, c.conn.listener.port, rackOf(node.Rack)
	resp.Brokers = append(resp.Brokers, b)
	if req.IncludeClusterAuthorizedOperations {
		resp.ClusterAuthorizedOperations = allClusterOperations
	}
	return answer{resp: resp}
}

// The types of endpoints.
const (
	brokerEndpoint     int8 = 1
	controllerEndpoint int8 = 2
)

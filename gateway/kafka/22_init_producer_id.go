package kafka

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// InitProducerId: v0-4, for idempotent producers.
//
// Without a transactional id the answer is a new producer id with epoch 0, also
// where a producer tells its old ones (v3): a new id is always right (KIP-360).
// A transactional id is refused with TRANSACTIONAL_ID_AUTHORIZATION_FAILED (53),
// an empty one is INVALID_REQUEST (42).
//
//   - v2: flexible
//   - v3: the producer's old id and epoch
//   - v4: PRODUCER_FENCED may be answered; it never is
func (s *Server) initProducerID(c *call) answer {
	req, _ := c.req.(*kmsg.InitProducerIDRequest)
	resp := kmsg.NewPtrInitProducerIDResponse()
	resp.Version = req.Version
	resp.ProducerID, resp.ProducerEpoch = -1, -1
	switch {
	case req.TransactionalID != nil && *req.TransactionalID == "":
		resp.ErrorCode = codeInvalidRequest
	case req.TransactionalID != nil:
		resp.ErrorCode = codeTransactionalID
		s.warn("transactions", "refused a transactional producer: transactions are not supported", "peer", c.conn.nc.RemoteAddr().String())
	default:
		ctx, cancel := context.WithTimeout(c.ctx, producerIDTimeout)
		defer cancel()
		id, err := s.dir.ProducerID(ctx)
		if err != nil {
			resp.ErrorCode = codeOf(err)
			break
		}
		resp.ProducerID, resp.ProducerEpoch = id, 0
	}
	return answer{resp: resp, code: resp.ErrorCode}
}

// producerIDTimeout bounds how long the control plane may take.
const producerIDTimeout = 30 * time.Second

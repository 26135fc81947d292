package kafka

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/partition"
)

// Produce: v0-11, of which v3-11 are served.
//
// Versions 0 to 2 carry message formats that are not kept here and are answered
// with UNSUPPORTED_FOR_MESSAGE_FORMAT (43). They are advertised because librdkafka
// before 2.11.1 takes the least version for a sign of what compression a broker
// knows, and silently sends batches uncompressed otherwise (T1, librdkafka#4956).
//
// acks 1 and -1 are the same: when a batch is acknowledged is the topic's setting
// (strandline.ack). acks 0 gets no response; an error closes its connection,
// which is all that such a producer can notice.
//
//   - v3: record batches, exactly one per partition; transactional id, refused
//   - v5: log start offset in the response
//   - v7: zstd
//   - v8: error message per partition (KIP-467)
//   - v9: flexible
//   - v10: address of the current leader (KIP-951); there is one node
func (s *Server) produce(c *call) answer {
	req, _ := c.req.(*kmsg.ProduceRequest)
	code, msg := refuseProduce(req, s.lim.MaxPartitions)
	resp := req.ResponseKind().(*kmsg.ProduceResponse) //nolint:forcetypeassert // It is what kmsg documents.
	resp.Topics = make([]kmsg.ProduceResponseTopic, 0, len(req.Topics))
	var writes []write
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := kmsg.NewProduceResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		rt.Partitions = make([]kmsg.ProduceResponseTopicPartition, len(t.Partitions))
		for j := range t.Partitions {
			p := &rt.Partitions[j]
			p.Default()
			p.Partition, p.BaseOffset = t.Partitions[j].Partition, -1
			p.ErrorRecords = []kmsg.ProduceResponseTopicPartitionErrorRecord{}
			if code != codeNone {
				p.ErrorCode, p.ErrorMessage = code, new(msg)
				continue
			}
			writes = append(writes, write{topic: t.Topic, batch: t.Partitions[j].Records, answer: p})
		}
		resp.Topics = append(resp.Topics, rt)
	}
	s.writeAll(c, req, writes)
	for _, t := range resp.Topics {
		for i := range t.Partitions {
			code = worst(code, t.Partitions[i].ErrorCode)
		}
	}
	if req.Acks == 0 {
		return answer{hangUp: code != codeNone, code: code}
	}
	return answer{resp: resp, code: code}
}

// refuseProduce decides what is refused as a whole.
func refuseProduce(req *kmsg.ProduceRequest, most int) (code int16, msg string) {
	n := 0
	for i := range req.Topics {
		n += len(req.Topics[i].Partitions)
	}
	switch {
	case req.Version < 3:
		return codeUnsupportedFormat, "Only record batches (message format v2) are kept: use Produce version 3 or later."
	case req.Acks < -1 || req.Acks > 1:
		return codeInvalidRequiredAcks, "acks must be 0, 1 or -1 (all)."
	case req.TransactionID != nil:
		return codeTransactionalID, "Transactions are not supported: remove transactional.id."
	case n > most:
		return codeInvalidRequest, "Too many partitions in one request."
	}
	return codeNone, ""
}

// write is one batch on its way to its log.
type write struct {
	topic  string
	batch  []byte
	answer *kmsg.ProduceResponseTopicPartition
}

// writeAll appends all batches, each partition's beside the others', since each
// waits for its disk.
func (s *Server) writeAll(c *call, req *kmsg.ProduceRequest, writes []write) {
	ctx, cancel := context.WithTimeout(c.ctx, appendTimeout(req.TimeoutMillis))
	defer cancel()
	seen := make(map[tiers.TopicPartition]struct{}, len(writes))
	var beside sync.WaitGroup
	for i, w := range writes {
		tp := tiers.TopicPartition{Topic: w.topic, Partition: w.answer.Partition}
		if _, twice := seen[tp]; twice {
			w.refuse(codeInvalidRequest, "The request names this partition twice.")
			continue
		}
		seen[tp] = struct{}{}
		if i == len(writes)-1 {
			s.writeOne(ctx, req.Version, w)
			continue
		}
		beside.Go(func() {
			defer w.recovered(s)
			s.writeOne(ctx, req.Version, w)
		})
	}
	beside.Wait()
}

// recovered makes a panic the partition's error. What became of the batch is not
// known.
func (w write) recovered(s *Server) {
	if r := recover(); r != nil {
		s.log.Error("append failed, please report this", "topic", w.topic, "partition", w.answer.Partition, "panic", r)
		w.refuse(codeUnknown, "The append failed, see the log of the server.")
	}
}

func (w write) refuse(code int16, msg string) {
	w.answer.ErrorCode, w.answer.ErrorMessage = code, new(msg)
}

func (s *Server) writeOne(ctx context.Context, version int16, w write) {
	if len(w.batch) == 0 {
		w.refuse(codeInvalidRecord, "A produce request must have exactly one record batch per partition.")
		return
	}
	log, err := s.dir.Log(w.topic, w.answer.Partition)
	if err == nil {
		var r partition.AppendResult
		r, err = log.Append(ctx, partition.AppendRequest{Batch: w.batch, AllowZstd: version >= 7})
		w.answer.BaseOffset, w.answer.LogAppendTime, w.answer.LogStartOffset = int64(r.Base), r.AppendTime, int64(r.LogStart)
	}
	if err != nil {
		w.answer.BaseOffset, w.answer.LogAppendTime, w.answer.LogStartOffset = -1, -1, -1
		w.answer.ErrorCode, w.answer.ErrorMessage = codeOf(err), detail(err)
	}
}

// The bounds of how long an append may take. A producer's timeout is about
// replicas, and some send 0, but the disk needs its time.
const (
	leastAppend = time.Second
	mostAppend  = 5 * time.Minute
)

func appendTimeout(millis int32) time.Duration {
	return min(max(time.Duration(millis)*time.Millisecond, leastAppend), mostAppend)
}

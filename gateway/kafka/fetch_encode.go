package kafka

import (
	"encoding/binary"
	"net"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/tiers"
)

// fetchAnswer is a Fetch response. It is not kmsg's, because that one copies all
// records into the message; this one sends them from where they were read to.
type fetchAnswer struct {
	version   int16
	code      int16
	session   int32
	committed bool // list aborted transactions, if only none
	topics    []topicPulls
	node      *kmsg.FetchResponseBroker // where to go instead (v16+)
	freed     func()
}

// topicPulls are neighbouring partitions of one topic.
type topicPulls struct {
	name  string
	id    tiers.TopicID
	pulls []*pull
}

// release gives the records' buffers back, after they were sent.
func (a *fetchAnswer) release() {
	if a.freed != nil {
		a.freed()
	}
}

// fetchEncoder writes a response into out, and notes where records go between.
type fetchEncoder struct {
	out   []byte
	flex  bool
	marks []recordsAt
	size  int // of all records
}

// recordsAt says that records follow what is in out before at.
type recordsAt struct {
	at      int
	records [][]byte
}

// encode appends the body to out, and to vec the pieces of the whole message, of
// which out is the beginning. It returns the size of the message.
func (a *fetchAnswer) encode(out []byte, vec net.Buffers) ([]byte, net.Buffers, int) {
	e := fetchEncoder{out: out, flex: a.version >= 12}
	a.body(&e)
	from := 0
	for _, m := range e.marks {
		vec = append(vec, e.out[from:m.at:m.at])
		vec = append(vec, m.records...)
		from = m.at
	}
	vec = append(vec, e.out[from:])
	return e.out, vec, len(e.out) + e.size
}

func (a *fetchAnswer) body(e *fetchEncoder) {
	e.int32(0) // throttle time
	if a.version >= 7 {
		e.int16(a.code)
		e.int32(a.session)
	}
	e.count(len(a.topics))
	for i := range a.topics {
		t := &a.topics[i]
		if a.version >= 13 {
			e.out = append(e.out, t.id[:]...)
		} else {
			e.string(t.name)
		}
		e.count(len(t.pulls))
		for _, p := range t.pulls {
			a.partition(e, p)
		}
		e.noTags()
	}
	a.nodeTag(e)
}

func (a *fetchAnswer) partition(e *fetchEncoder, p *pull) {
	high, start := p.watermarks()
	stable := tiers.NoOffset
	if p.view != nil {
		stable = p.view.LastStable
	}
	e.int32(p.want.index)
	e.int16(p.code)
	e.int64(int64(high))
	e.int64(int64(stable))
	if a.version >= 5 {
		e.int64(int64(start))
	}
	a.abortedList(e, p)
	if a.version >= 11 {
		e.int32(-1) // preferred read replica
	}
	e.records(p.records, p.size)
	e.partitionTags(p)
}

// abortedList is null for read_uncommitted, for which it means nothing.
func (a *fetchAnswer) abortedList(e *fetchEncoder, p *pull) {
	if !a.committed {
		e.null()
		return
	}
	e.count(len(p.aborted))
	for _, t := range p.aborted {
		e.int64(t.producer)
		e.int64(t.first)
		e.noTags()
	}
}

// partitionTags are the diverging epoch (tag 0) and the leader (tag 1).
func (e *fetchEncoder) partitionTags(p *pull) {
	if !e.flex {
		return
	}
	n := byte(0)
	if p.diverging != nil {
		n++
	}
	if p.pointed {
		n++
	}
	e.out = append(e.out, n)
	if p.diverging != nil {
		e.out = append(e.out, 0, 13)
		e.int32(int32(p.diverging.Epoch))
		e.int64(int64(p.diverging.End))
		e.noTags()
	}
	if p.pointed {
		e.out = append(e.out, 1, 9)
		e.int32(p.leader)
		e.int32(p.leaderEpoch)
		e.noTags()
	}
}

// nodeTag is the list of nodes (tag 0).
func (a *fetchAnswer) nodeTag(e *fetchEncoder) {
	if !e.flex {
		return
	}
	if a.node == nil || a.version < 16 {
		e.noTags()
		return
	}
	inner := fetchEncoder{flex: true}
	inner.count(1)
	inner.int32(a.node.NodeID)
	inner.string(a.node.Host)
	inner.int32(a.node.Port)
	if a.node.Rack == nil {
		inner.null()
	} else {
		inner.string(*a.node.Rack)
	}
	inner.noTags()
	e.out = append(e.out, 1, 0)
	e.out = binary.AppendUvarint(e.out, uint64(len(inner.out)))
	e.out = append(e.out, inner.out...)
}

func (e *fetchEncoder) int16(v int16) { e.out = binary.BigEndian.AppendUint16(e.out, uint16(v)) }
func (e *fetchEncoder) int32(v int32) { e.out = binary.BigEndian.AppendUint32(e.out, uint32(v)) }
func (e *fetchEncoder) int64(v int64) { e.out = binary.BigEndian.AppendUint64(e.out, uint64(v)) }

// count begins an array.
func (e *fetchEncoder) count(n int) {
	if e.flex {
		e.out = binary.AppendUvarint(e.out, uint64(n)+1)
		return
	}
	e.int32(int32(n))
}

// null is an array or, in flexible versions, a string that is not there.
func (e *fetchEncoder) null() {
	if e.flex {
		e.out = append(e.out, 0)
		return
	}
	e.int32(-1)
}

func (e *fetchEncoder) string(s string) {
	if e.flex {
		e.out = binary.AppendUvarint(e.out, uint64(len(s))+1)
	} else {
		e.int16(int16(len(s)))
	}
	e.out = append(e.out, s...)
}

// records begins the records and leaves them to be sent in between. None are an
// empty field and never null, which librdkafka takes for a broken message.
func (e *fetchEncoder) records(rs [][]byte, size int) {
	e.count(size) // a length is written as a count is
	if size > 0 {
		e.marks = append(e.marks, recordsAt{len(e.out), rs})
		e.size += size
	}
}

// noTags ends a structure, in flexible versions.
func (e *fetchEncoder) noTags() {
	if e.flex {
		e.out = append(e.out, 0)
	}
}

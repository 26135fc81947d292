package kafka

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/partition"
)

// randomAnswer makes a response of any shape.
func randomAnswer(r *rand.Rand, version int16) *fetchAnswer {
	a := &fetchAnswer{version: version, committed: r.IntN(2) == 0}
	if version >= 7 {
		a.code, a.session = int16(r.IntN(3)*70), r.Int32()
	}
	if r.IntN(3) == 0 && version >= 16 {
		b := kmsg.NewFetchResponseBroker()
		b.NodeID, b.Host, b.Port, b.Rack = r.Int32(), "host.example", 9092, rackOf([]string{"", "r"}[r.IntN(2)])
		a.node = &b
	}
	for range r.IntN(4) {
		t := topicPulls{name: string(make([]byte, r.IntN(300))), id: tiers.TopicID{byte(r.IntN(256))}}
		for range r.IntN(4) {
			t.pulls = append(t.pulls, randomPull(r, a, version))
		}
		a.topics = append(a.topics, t)
	}
	return a
}

func randomPull(r *rand.Rand, a *fetchAnswer, version int16) *pull {
	p := &pull{want: wanted{index: r.Int32()}, code: int16(r.IntN(2) * 56)}
	if r.IntN(3) > 0 {
		p.view = &partition.View{Watermarks: tiers.Watermarks{
			HighWatermark: tiers.Offset(r.Int64()), LastStable: tiers.Offset(r.Int64()), LogStart: tiers.Offset(r.Int64()),
		}}
	}
	for range r.IntN(3) {
		rec := make([]byte, 1+r.IntN(400))
		for i := range rec {
			rec[i] = byte(r.IntN(256))
		}
		p.records = append(p.records, rec)
		p.size += len(rec)
	}
	if a.committed {
		for range r.IntN(3) {
			p.aborted = append(p.aborted, aborted{r.Int64(), r.Int64()})
		}
	}
	if version >= 12 && r.IntN(3) == 0 {
		p.diverging = &partition.EpochEnd{Epoch: tiers.LeaderEpoch(r.Int32()), End: tiers.Offset(r.Int64())}
	}
	if version >= 12 && r.IntN(3) == 0 {
		p.pointed, p.leader, p.leaderEpoch = true, r.Int32(), r.Int32()
	}
	return p
}

// asKmsg is the same response in kmsg's form.
func asKmsg(a *fetchAnswer) *kmsg.FetchResponse {
	resp := kmsg.NewPtrFetchResponse()
	resp.Version, resp.ErrorCode, resp.SessionID = a.version, a.code, a.session
	if a.node != nil {
		resp.Brokers = []kmsg.FetchResponseBroker{*a.node}
	}
	for _, t := range a.topics {
		rt := kmsg.NewFetchResponseTopic()
		rt.Topic, rt.TopicID = t.name, t.id
		for _, p := range t.pulls {
			rp := kmsg.NewFetchResponseTopicPartition()
			rp.Partition, rp.ErrorCode, rp.HighWatermark, rp.LastStableOffset, rp.LogStartOffset = p.want.index, p.code, -1, -1, -1
			if p.view != nil {
				rp.HighWatermark, rp.LastStableOffset, rp.LogStartOffset = int64(p.view.HighWatermark), int64(p.view.LastStable), int64(p.view.LogStart)
			}
			if a.committed {
				rp.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{}
			}
			for _, tx := range p.aborted {
				at := kmsg.NewFetchResponseTopicPartitionAbortedTransaction()
				at.ProducerID, at.FirstOffset = tx.producer, tx.first
				rp.AbortedTransactions = append(rp.AbortedTransactions, at)
			}
			if p.diverging != nil {
				rp.DivergingEpoch.Epoch, rp.DivergingEpoch.EndOffset = int32(p.diverging.Epoch), int64(p.diverging.End)
			}
			if p.pointed {
				rp.CurrentLeader.LeaderID, rp.CurrentLeader.LeaderEpoch = p.leader, p.leaderEpoch
			}
			rp.RecordBatches = append([]byte{}, bytes.Join(p.records, nil)...)
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

// checkEncoding compares both encodings of a, and that records are sent from
// where they are.
func checkEncoding(t *testing.T, a *fetchAnswer) {
	t.Helper()
	out := appendHeader(nil, 5, keyFetch, a.version >= 12)
	out, vec, size := a.encode(out, nil)
	binary.BigEndian.PutUint32(out, uint32(size-4))
	got := bytes.Join(vec, nil)
	resp := asKmsg(a)
	want := resp.AppendTo(appendHeader(nil, 5, keyFetch, resp.IsFlexible()))
	binary.BigEndian.PutUint32(want, uint32(len(want)-4))
	if !bytes.Equal(got, want) {
		t.Fatalf("v%d: ours\n%x\nkmsg's\n%x", a.version, got, want)
	}
	for _, tp := range a.topics {
		for _, p := range tp.pulls {
			for _, rec := range p.records {
				found := false
				for _, v := range vec {
					found = found || &v[0] == &rec[0]
				}
				if !found {
					t.Fatal("records were copied")
				}
			}
		}
	}
}

// TestFetchEncodingIsKmsgs: byte for byte, in every version.
func TestFetchEncodingIsKmsgs(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for v := int16(4); v <= 17; v++ {
		for range 300 {
			checkEncoding(t, randomAnswer(r, v))
		}
	}
}

func FuzzFetchEncodingIsKmsgs(f *testing.F) {
	f.Add(uint64(1), uint64(2), int16(4))
	f.Add(uint64(3), uint64(4), int16(12))
	f.Add(uint64(5), uint64(6), int16(17))
	f.Fuzz(func(t *testing.T, a, b uint64, v int16) {
		checkEncoding(t, randomAnswer(rand.New(rand.NewPCG(a, b)), 4+(v%14+14)%14))
	})
}

func TestCutTakesAllBytesInOrder(t *testing.T) {
	for n := 1; n < 12; n++ {
		vec := [][]byte{[]byte("ab"), []byte("cdefghij"), {}, []byte("k"), []byte("lmn")}
		var got []byte
		steps := 0
		for rest := vec; len(rest) > 0; steps++ {
			var front [][]byte
			front, rest = cut(rest, n)
			total := 0
			for _, b := range front {
				total += len(b)
				got = append(got, b...)
			}
			if total > n {
				t.Fatalf("step of %d bytes, want at most %d", total, n)
			}
			if steps > 30 {
				t.Fatalf("no end with steps of %d", n)
			}
		}
		if string(got) != "abcdefghijklmn" {
			t.Errorf("steps of %d: %q", n, got)
		}
	}
}

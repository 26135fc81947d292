package kafka

import (
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/tiers"
)

func TestProduceAppendsAndAnswersWithTheOffset(t *testing.T) {
	r := newRig(t, Limits{})
	defer r.stop()
	r.node.create(t, "known", 2)
	c := r.pipe()
	defer c.nc.Close()
	for i, want := range []int64{0, 3, 6} {
		p := ask[*kmsg.ProduceResponse](c, produceOf(-1, "known", 1, makeBatch(t, 3, 10))).Topics[0].Partitions[0]
		if p.ErrorCode != 0 || p.BaseOffset != want || p.LogAppendTime != -1 || p.LogStartOffset != 0 || p.ErrorMessage != nil {
			t.Fatalf("produce %d: %+v", i, p)
		}
	}
}

// TestProduceSaysWhetherZstdIsAllowed: since version 7 only (KIP-110).
func TestProduceSaysWhetherZstdIsAllowed(t *testing.T) {
	r := newRig(t, Limits{})
	defer r.stop()
	r.node.create(t, "known", 1)
	c := r.pipe()
	defer c.nc.Close()
	for _, v := range []int16{6, 7} {
		p := produceOf(-1, "known", 0, makeBatch(t, 1, 1))
		p.Version = v
		c.do(p)
	}
	got := r.node.log(t, "known", 0).appended
	if got[0].AllowZstd || !got[1].AllowZstd {
		t.Errorf("zstd: v6 %v, v7 %v", got[0].AllowZstd, got[1].AllowZstd)
	}
}

func TestProduceRefusals(t *testing.T) {
	r := newRig(t, Limits{MaxPartitions: 2})
	defer r.stop()
	r.node.create(t, "known", 1)
	two := append(makeBatch(t, 1, 1), makeBatch(t, 1, 1)...)
	old := makeBatch(t, 1, 1)
	old[16] = 1
	broken := makeBatch(t, 1, 1)
	broken[len(broken)-1] ^= 1
	txn := produceOf(-1, "known", 0, makeBatch(t, 1, 1))
	txn.TransactionID = new("tx")
	short := make([]byte, 34) // a whole message of format v1, shorter than any batch header
	short[11], short[16] = 22, 1
	many := produceOf(1, "known", 0, makeBatch(t, 1, 1))
	for i := range int32(2) {
		p := kmsg.NewProduceRequestTopicPartition()
		p.Partition, p.Records = 5+i, makeBatch(t, 1, 1)
		many.Topics[0].Partitions = append(many.Topics[0].Partitions, p)
	}
	for name, c := range map[string]struct {
		req  *kmsg.ProduceRequest
		code int16
	}{
		"old message":     {produceOf(1, "known", 0, short), 43},
		"3 partitions":    {many, 42},
		"acks 2":          {produceOf(2, "known", 0, makeBatch(t, 1, 1)), 21},
		"acks -2":         {produceOf(-2, "known", 0, makeBatch(t, 1, 1)), 21},
		"transactional":   {txn, 53},
		"no records":      {produceOf(1, "known", 0, nil), 87},
		"empty records":   {produceOf(1, "known", 0, []byte{}), 87},
		"two batches":     {produceOf(1, "known", 0, two), 2},
		"old magic":       {produceOf(1, "known", 0, old), 43},
		"row 10: bad CRC": {produceOf(1, "known", 0, broken), 2},
		"no such topic":   {produceOf(1, "unknown", 0, makeBatch(t, 1, 1)), 3},
		"no such index":   {produceOf(1, "known", 7, makeBatch(t, 1, 1)), 3},
		"negative index":  {produceOf(1, "known", -1, makeBatch(t, 1, 1)), 3},
		"shorter":         {produceOf(1, "known", 0, makeBatch(t, 1, 1)[:20]), 2},
	} {
		cl := r.pipe()
		p := ask[*kmsg.ProduceResponse](cl, c.req).Topics[0].Partitions[0]
		if p.ErrorCode != c.code || p.BaseOffset != -1 {
			t.Errorf("%s: code %d base %d, want code %d base -1", name, p.ErrorCode, p.BaseOffset, c.code)
		}
		if p.ErrorMessage == nil || *p.ErrorMessage == "" {
			t.Errorf("%s: no message (v8+)", name)
		}
		cl.nc.Close()
	}
	if end := r.node.log(t, "known", 0).View().LogEnd; end != 0 {
		t.Errorf("log ends at %d: something was appended", end)
	}
}

// TestProduceRow10OtherPartitionsStillSucceed: a bad batch is its own problem.
func TestProduceRow10OtherPartitionsStillSucceed(t *testing.T) {
	r := newRig(t, Limits{})
	defer r.stop()
	r.node.create(t, "known", 3)
	c := r.pipe()
	defer c.nc.Close()
	req := produceOf(-1, "known", 0, makeBatch(t, 1, 1))
	broken := makeBatch(t, 1, 1)
	broken[30] ^= 1
	for i, b := range [][]byte{broken, makeBatch(t, 1, 1), makeBatch(t, 1, 1)} {
		p := kmsg.NewProduceRequestTopicPartition()
		p.Partition, p.Records = []int32{1, 2, 0}[i], b
		req.Topics[0].Partitions = append(req.Topics[0].Partitions, p)
	}
	var got []int16
	for _, p := range ask[*kmsg.ProduceResponse](c, req).Topics[0].Partitions {
		got = append(got, p.ErrorCode)
	}
	if want := [4]int16{0, 2, 0, 42}; [4]int16(got) != want {
		t.Errorf("codes %v, want %v: one broken, one named twice", got, want)
	}
}

// TestProducePartitionsAreWrittenBesideEachOther: each would wait for the others'
// disks otherwise.
func TestProducePartitionsAreWrittenBesideEachOther(t *testing.T) {
	r := newRig(t, Limits{})
	defer r.stop()
	r.node.create(t, "known", 3)
	var meet sync.WaitGroup // nobody passes until all have come
	meet.Add(3)
	req := produceOf(-1, "known", 0, makeBatch(t, 1, 1))
	for i := range int32(3) {
		r.node.log(t, "known", i).onAppend = func() { meet.Done(); meet.Wait() }
		if i > 0 {
			p := kmsg.NewProduceRequestTopicPartition()
			p.Partition, p.Records = i, makeBatch(t, 1, 1)
			req.Topics[0].Partitions = append(req.Topics[0].Partitions, p)
		}
	}
	c := r.pipe()
	defer c.nc.Close()
	for _, p := range ask[*kmsg.ProduceResponse](c, req).Topics[0].Partitions {
		if p.ErrorCode != 0 {
			t.Errorf("partition %d: code %d", p.Partition, p.ErrorCode)
		}
	}
}

// TestProduceAcks0 has no response: the next one is that to the next request. An
// error can only be told by closing.
func TestProduceAcks0(t *testing.T) {
	r := newRig(t, Limits{})
	defer r.stop()
	r.node.create(t, "known", 1)
	c := r.pipe()
	c.send(produceOf(0, "known", 0, makeBatch(t, 1, 1)))
	ask[*kmsg.ApiVersionsResponse](c, kmsg.NewPtrApiVersionsRequest())
	if end := r.node.log(t, "known", 0).View().LogEnd; end != 1 {
		t.Errorf("log ends at %d, want 1", end)
	}
	c.send(produceOf(0, "unknown", 0, makeBatch(t, 1, 1)))
	c.closed()
}

// TestProduceErrorsOfTheLog come with their code and message.
func TestProduceErrorsOfTheLog(t *testing.T) {
	r := newRig(t, Limits{})
	defer r.stop()
	r.node.create(t, "known", 1)
	c := r.pipe()
	defer c.nc.Close()
	log := r.node.log(t, "known", 0)
	for kind, code := range map[tiers.Kind]int16{
		tiers.StorageFailed: 56, tiers.NotLeader: 6, tiers.Closed: 6, tiers.OutOfOrderSequence: 45, tiers.MessageTooLarge: 10,
	} {
		log.err = tiers.E(kind, "append", "known-0", "the reason")
		p := ask[*kmsg.ProduceResponse](c, produceOf(1, "known", 0, makeBatch(t, 1, 1))).Topics[0].Partitions[0]
		if p.ErrorCode != code || p.ErrorMessage == nil || *p.ErrorMessage != log.err.Error() || p.BaseOffset != -1 {
			t.Errorf("%v: %+v", kind, p)
		}
	}
}

// TestProducePanicIsOnePartitions: the batch's fate is unknown, the connection
// and the other partitions go on.
func TestProducePanicIsOnePartitions(t *testing.T) {
	r := newRig(t, Limits{})
	defer r.stop()
	r.node.create(t, "known", 2)
	r.node.log(t, "known", 0).onAppend = func() { panic("on purpose") }
	req := produceOf(-1, "known", 0, makeBatch(t, 1, 1))
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = 1, makeBatch(t, 1, 1)
	req.Topics[0].Partitions = append(req.Topics[0].Partitions, p)
	c := r.pipe()
	defer c.nc.Close()
	got := ask[*kmsg.ProduceResponse](c, req).Topics[0].Partitions
	if got[0].ErrorCode != -1 || got[1].ErrorCode != 0 {
		t.Errorf("codes %d and %d, want -1 and 0", got[0].ErrorCode, got[1].ErrorCode)
	}
}

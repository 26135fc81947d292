package batch

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"math"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline-io/strandline/tiers"
)

func codecs() []Codec { return []Codec{None, Gzip, Snappy, LZ4, Zstd} }

func sample(n int) []Record {
	recs := make([]Record, n)
	for i := range recs {
		recs[i] = Record{
			Offset:    100 + tiers.Offset(i),
			Timestamp: 1_700_000_000_000 + int64(i%7)*10,
			Key:       fmt.Appendf(nil, "key-%d", i),
			Value:     bytes.Repeat([]byte{byte(i)}, i%50),
		}
		switch i % 4 {
		case 1:
			recs[i].Key = nil
		case 2:
			recs[i].Value = nil
		case 3:
			recs[i].Headers = []RecordHeader{{"trace", []byte("abc")}, {"", nil}, {"empty", []byte{}}}
		}
	}
	return recs
}

func build(tb testing.TB, b Builder, recs []Record) []byte {
	tb.Helper()
	out, err := b.Build(recs)
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

func records(tb testing.TB, d *Decoder, b []byte) []Record {
	tb.Helper()
	var out []Record
	if err := d.Records(b, func(r Record) bool { out = append(out, r); return true }); err != nil {
		tb.Fatal(err)
	}
	return out
}

func same(a, b []Record) error {
	if len(a) != len(b) {
		return fmt.Errorf("%d records, want %d", len(a), len(b))
	}
	for i := range a {
		if fmt.Sprintf("%#v", a[i]) != fmt.Sprintf("%#v", b[i]) {
			return fmt.Errorf("record %d: %#v, want %#v", i, a[i], b[i])
		}
	}
	return nil
}

func TestBuildDecodeEveryCodec(t *testing.T) {
	d := NewDecoder(1 << 20)
	for _, c := range codecs() {
		for _, n := range []int{1, 2, 300} {
			want := sample(n)
			b := build(t, Builder{Codec: c, ProducerID: -1, LeaderEpoch: 7}, want)
			h, err := Check(b, Limits{})
			if err != nil {
				t.Fatalf("%s: %v", c, err)
			}
			if h.Codec() != c || h.BaseOffset != 100 || h.Next() != 100+tiers.Offset(n) || h.LeaderEpoch != 7 || h.ProducerID != -1 || h.BaseSequence != -1 || h.Size() != int64(len(b)) {
				t.Fatalf("%s: header %+v", c, h)
			}
			if err := same(records(t, d, b), want); err != nil {
				t.Fatalf("%s: %v", c, err)
			}
			if err := d.CheckRecords(b, false); err != nil {
				t.Fatalf("%s: %v", c, err)
			}
		}
	}
}

// The bytes of a batch as Apache Kafka lays them out, made by hand from the
// format's definition (KIP-98).
func TestGoldenBatch(t *testing.T) {
	const golden = "" +
		"0000000000000064" + "00000040" + "00000007" + "02" + "........" + // base 100, length 64, epoch 7, magic, crc
		"0010" + "00000001" + "000000000000000a" + "000000000000000c" + // transactional, last delta 1, times 10, 12
		"0000000000000005" + "0003" + "00000009" + "00000002" + // producer 5 epoch 3 sequence 9, 2 records
		"1600000002" + "6b" + "0276" + "02" + "0268" + "01" + // length 11: k=v with header h=null
		"0c00040201" + "01" + "00" // length 6: delta t 2, delta o 1, null, null, no header
	want, err := hex.DecodeString(strings.ReplaceAll(strings.ReplaceAll(golden, "........", "00000000"), " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	binary.BigEndian.PutUint32(want[8:], uint32(len(want)-12))
	binary.BigEndian.PutUint32(want[17:], crc32.Checksum(want[21:], crc32.MakeTable(crc32.Castagnoli)))
	got := build(t, Builder{LeaderEpoch: 7, ProducerID: 5, ProducerEpoch: 3, BaseSequence: 9, Transactional: true}, []Record{
		{Offset: 100, Timestamp: 10, Key: []byte("k"), Value: []byte("v"), Headers: []RecordHeader{{"h", nil}}},
		{Offset: 101, Timestamp: 12},
	})
	if !bytes.Equal(got, want) {
		t.Fatalf("got  %x\nwant %x", got, want)
	}
}

// kmsg reads our header as we wrote it, and writes it back byte for byte.
func TestHeaderAgreesWithKmsg(t *testing.T) {
	b := build(t, Builder{Codec: Zstd, LeaderEpoch: 3, ProducerID: 1 << 40, ProducerEpoch: 2, BaseSequence: math.MaxInt32, Transactional: true, LogAppendTime: true}, sample(9))
	var k kmsg.RecordBatch
	if err := k.ReadFrom(b); err != nil {
		t.Fatal(err)
	}
	h, err := Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	want := Header{
		tiers.Offset(k.FirstOffset), k.Length, tiers.LeaderEpoch(k.PartitionLeaderEpoch), k.Magic, uint32(k.CRC), k.Attributes, k.LastOffsetDelta,
		k.FirstTimestamp, k.MaxTimestamp, k.ProducerID, k.ProducerEpoch, k.FirstSequence, k.NumRecords,
	}
	if h != want {
		t.Fatalf("got %+v, kmsg %+v", h, want)
	}
	if h.LastSequence() != 7 {
		t.Fatalf("last sequence %d does not wrap at 2^31", h.LastSequence())
	}
	if back := k.AppendTo(nil); !bytes.Equal(back, b) {
		t.Fatalf("kmsg wrote %x, want %x", back, b)
	}
}

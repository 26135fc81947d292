package batch

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"

	"github.com/strandline-io/strandline/tiers"
)

// bent returns a good batch of three records, changed by f, with a CRC that fits.
func bent(tb testing.TB, f func(b []byte)) []byte {
	tb.Helper()
	b := build(tb, Builder{ProducerID: -1}, sample(3))
	f(b)
	sign(b)
	return b
}

func sign(b []byte) { binary.BigEndian.PutUint32(b[atCRC:], checksum(b[atAttributes:])) }

func put32(at int, v int32) func([]byte) {
	return func(b []byte) { binary.BigEndian.PutUint32(b[at:], uint32(v)) }
}

func attributes(v uint16) func([]byte) {
	return func(b []byte) { binary.BigEndian.PutUint16(b[atAttributes:], v) }
}

func put16(at int, v int16) func([]byte) {
	return func(b []byte) { binary.BigEndian.PutUint16(b[at:], uint16(v)) }
}

func put64(at int, v int64) func([]byte) {
	return func(b []byte) { binary.BigEndian.PutUint64(b[at:], uint64(v)) }
}

// bare is a batch that claims count records and has size bytes for them.
func bare(tb testing.TB, count int32, size int) []byte {
	tb.Helper()
	b := append(build(tb, Builder{ProducerID: -1}, sample(3))[:HeaderSize:HeaderSize], make([]byte, size)...)
	put32(atLength, int32(len(b)-12))(b)
	put32(atCount, count)(b)
	put32(atLastOffsetDelta, count-1)(b)
	sign(b)
	return b
}

func TestCheckRefuses(t *testing.T) {
	good := build(t, Builder{ProducerID: -1}, sample(3))
	size := int32(len(good))
	for _, c := range []struct {
		name string
		b    []byte
		max  int64
		want tiers.Kind
	}{
		{"nothing", nil, 0, tiers.CorruptMessage},
		{"half a header", good[:HeaderSize-1], 0, tiers.CorruptMessage},
		{"a byte is missing", good[:len(good)-1], 0, tiers.CorruptMessage},
		{"a byte too many", append(bytes.Clone(good), 0), 0, tiers.CorruptMessage},
		{"a second batch behind it", append(bytes.Clone(good), good...), 0, tiers.CorruptMessage},
		{"length too small", bent(t, put32(atLength, minLength-1)), 0, tiers.CorruptMessage},
		{"length negative", bent(t, put32(atLength, -1)), 0, tiers.CorruptMessage},
		{"length of 2 GiB", bent(t, put32(atLength, math.MaxInt32)), 0, tiers.CorruptMessage},
		{"magic 0", bent(t, func(b []byte) { b[atMagic] = 0 }), 0, tiers.UnsupportedFormat},
		{"magic 1", bent(t, func(b []byte) { b[atMagic] = 1 }), 0, tiers.UnsupportedFormat},
		{"magic 3", bent(t, func(b []byte) { b[atMagic] = 3 }), 0, tiers.UnsupportedFormat},
		{"an old message, smaller than a header", append(make([]byte, 16), 1, 0, 0, 0), 0, tiers.UnsupportedFormat},
		{"too large", good, int64(size) - 1, tiers.MessageTooLarge},
		{"no records", bent(t, put32(atCount, 0)), 0, tiers.InvalidRecord},
		{"a negative number of records", bent(t, put32(atCount, -3)), 0, tiers.InvalidRecord},
		{"record too many", bent(t, put32(atCount, 4)), 0, tiers.InvalidRecord},
		{"offset too many", bent(t, put32(atLastOffsetDelta, 3)), 0, tiers.InvalidRecord},
		{"negative last offset", bent(t, put32(atLastOffsetDelta, -1)), 0, tiers.InvalidRecord},
		{"last offset that wraps", bent(t, func(b []byte) { put32(atLastOffsetDelta, math.MaxInt32)(b); put32(atCount, math.MinInt32)(b) }), 0, tiers.InvalidRecord},
		{"more records than bytes", bare(t, 1, 0), 0, tiers.InvalidRecord},
		{"2^31-1 records in a header", bare(t, math.MaxInt32, 0), 0, tiers.InvalidRecord},
		{"a record of 6 bytes", bare(t, 1, minRecord-1), 0, tiers.InvalidRecord},
		{"two records in 13 bytes", bare(t, 2, 2*minRecord-1), 0, tiers.InvalidRecord},
		{"negative sequence", bent(t, func(b []byte) { put64(atProducerID, 7)(b); put16(atProducerEpoch, 0)(b); put32(atBaseSequence, -1)(b) }), 0, tiers.InvalidRecord},
		{"negative producer epoch", bent(t, func(b []byte) { put64(atProducerID, 7)(b); put16(atProducerEpoch, -1)(b); put32(atBaseSequence, 0)(b) }), 0, tiers.InvalidRecord},
		{"codec 5", bent(t, attributes(5)), 0, tiers.UnsupportedCompression},
		{"codec 7", bent(t, attributes(7)), 0, tiers.UnsupportedCompression},
		{"control", bent(t, attributes(32)), 0, tiers.InvalidRecord},
		{"delete horizon", bent(t, attributes(64)), 0, tiers.InvalidRecord},
		{"unknown attribute", bent(t, attributes(1<<15)), 0, tiers.InvalidRecord},
	} {
		if _, err := Check(c.b, Limits{MaxBytes: c.max}); tiers.KindOf(err) != c.want {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
	for name, b := range map[string][]byte{
		"as many records as fit": bare(t, 2, 2*minRecord),
		"a compressed batch":     func() []byte { b := bare(t, 1000, 20); attributes(uint16(Zstd))(b); sign(b); return b }(),
		"the first batch of a producer": bent(t, func(b []byte) {
			put64(atProducerID, 0)(b)
			put16(atProducerEpoch, 0)(b)
			put32(atBaseSequence, 0)(b)
		}),
	} {
		if _, err := Check(b, Limits{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Check(good, Limits{MaxBytes: int64(size)}); err != nil {
		t.Errorf("a batch of max.message.bytes: %v", err)
	}
}

// A batch with every fault is refused for the first of Kafka's order; mending
// that one shows the next.
func TestCheckOrder(t *testing.T) {
	good := build(t, Builder{ProducerID: -1}, sample(3))
	b := append(bytes.Clone(good), 0)
	b[atMagic] = 1
	attributes(32 | 7)(b)
	put32(atCount, 9)(b)
	limit := Limits{MaxBytes: 70}
	for _, step := range []struct {
		want tiers.Kind
		mend func()
	}{
		{tiers.UnsupportedFormat, func() { b[atMagic] = 2 }},
		{tiers.CorruptMessage, func() { b = b[:len(good)] }}, // Its length.
		{tiers.MessageTooLarge, func() { limit = Limits{} }},
		{tiers.CorruptMessage, func() { sign(b) }},
		{tiers.InvalidRecord, func() { put32(atCount, 3)(b); sign(b) }},
		{tiers.UnsupportedCompression, func() { attributes(32)(b); sign(b) }},
		{tiers.InvalidRecord, func() { attributes(0)(b); sign(b) }},
	} {
		_, err := Check(b, limit)
		if tiers.KindOf(err) != step.want {
			t.Fatalf("%v, want %s", err, step.want)
		}
		step.mend()
	}
	if _, err := Check(b, limit); err != nil {
		t.Fatal(err)
	}
}

// Each bit from the attributes on is under the CRC, none before it but the
// magic's and the length's is checked at all (B6).
func TestCRCCoversFromTheAttributesOn(t *testing.T) {
	good := build(t, Builder{ProducerID: -1, Codec: LZ4}, sample(3))
	for i := range len(good) * 8 {
		b := bytes.Clone(good)
		b[i/8] ^= 1 << (i % 8)
		_, err := Check(b, Limits{})
		free := i/8 < atLength || i/8 >= atLeaderEpoch && i/8 < atMagic
		if free != (err == nil) {
			t.Fatalf("bit %d of byte %d: %v", i%8, i/8, err)
		}
		if i/8 >= atCRC && VerifyCRC(b) {
			t.Fatalf("bit %d of byte %d: the CRC holds", i%8, i/8)
		}
	}
	if !VerifyCRC(good) || !VerifyCRC(append(bytes.Clone(good), 1, 2)) {
		t.Fatal("the CRC of a good batch does not hold")
	}
	if VerifyCRC(good[:len(good)-1]) || VerifyCRC(nil) {
		t.Fatal("the CRC of half a batch holds")
	}
}

func TestB6_StampNeedsNoNewCRC(t *testing.T) {
	b := build(t, Builder{ProducerID: -1}, sample(3))
	Stamp(b, 1<<40, 77)
	h, err := Check(b, Limits{})
	if err != nil || h.BaseOffset != 1<<40 || h.LeaderEpoch != 77 || h.Last() != 1<<40+2 {
		t.Fatalf("%+v, %v", h, err)
	}
	if r := records(t, NewDecoder(0), b); r[2].Offset != 1<<40+2 {
		t.Fatalf("record %+v", r[2])
	}
}

func TestB6_StampAppendTimeMakesANewCRC(t *testing.T) {
	b := build(t, Builder{ProducerID: 9, Codec: Gzip, Transactional: true}, sample(4))
	StampAppendTime(b, 42)
	h, err := Check(b, Limits{})
	if err != nil || !h.LogAppendTime() || !h.Transactional() || h.Codec() != Gzip || h.MaxTimestamp != 42 {
		t.Fatalf("%+v, %v", h, err)
	}
	for _, r := range records(t, NewDecoder(0), b) {
		if r.Timestamp != 42 {
			t.Fatalf("record at %d: timestamp %d", r.Offset, r.Timestamp)
		}
	}
}

func TestCheckStored(t *testing.T) {
	compacted := sample(4)
	compacted = append(compacted[:1], compacted[3])
	for name, b := range map[string][]byte{
		"control":     build(t, Builder{ProducerID: 3, Control: true}, sample(1)),
		"compacted":   build(t, Builder{ProducerID: -1}, compacted),
		"empty":       emptied(t),
		"as produced": build(t, Builder{ProducerID: -1, Codec: Zstd}, sample(3)),
	} {
		if _, err := CheckStored(b); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, b := range map[string][]byte{
		"torn":            build(t, Builder{}, sample(2))[:80],
		"negative delta":  bent(t, put32(atLastOffsetDelta, -1)),
		"too many":        bent(t, put32(atCount, 4)),
		"negative count":  bent(t, put32(atCount, -1)),
		"negative offset": bent(t, func(b []byte) { Stamp(b, -1, 0) }),
		"no next offset":  bent(t, func(b []byte) { Stamp(b, math.MaxInt64-2, 0) }),
		"wrong CRC":       append(build(t, Builder{}, sample(2))[:80], build(t, Builder{}, sample(3))[80:]...),
	} {
		if _, err := CheckStored(b); tiers.KindOf(err) != tiers.CorruptMessage {
			t.Errorf("%s: %v", name, err)
		}
	}
	if h, err := CheckStored(bent(t, func(b []byte) { Stamp(b, math.MaxInt64-3, 0) })); err != nil || h.Next() != math.MaxInt64 {
		t.Errorf("the last offsets there are: %v, next %d", err, h.Next())
	}
}

// emptied is a batch that compaction took all records from.
func emptied(tb testing.TB) []byte {
	tb.Helper()
	b := build(tb, Builder{ProducerID: -1}, sample(3))[:HeaderSize]
	put32(atLength, minLength)(b)
	put32(atCount, 0)(b)
	sign(b)
	return b
}

func TestReport077_EmptyBatchKeepsItsOffsets(t *testing.T) {
	b := emptied(t)
	h, err := CheckStored(b)
	if err != nil || h.Next() != 103 {
		t.Fatalf("%v, next %d", err, h.Next())
	}
	if r := records(t, NewDecoder(0), b); len(r) != 0 {
		t.Fatalf("records %v", r)
	}
}

// A length that would not lead on must not be believed: walking over it would
// never end.
func TestParseRefusesLengthsBelowAHeader(t *testing.T) {
	for length, ok := range map[int32]bool{math.MinInt32: false, -12: false, 0: false, minLength - 1: false, minLength: true, math.MaxInt32: true} {
		b := bent(t, put32(atLength, length))
		if h, err := Parse(b); (err == nil) != ok || ok && h.Size() != int64(length)+12 {
			t.Errorf("length %d: size %d, %v", length, h.Size(), err)
		}
	}
}

func TestSplit(t *testing.T) {
	one, two := build(t, Builder{ProducerID: -1}, sample(1)), build(t, Builder{ProducerID: -1}, sample(5))
	all := append(bytes.Clone(one), two...)
	for cut := range len(all) + 1 {
		var got [][]byte
		var rest []byte
		for b, err := range Split(all[:cut]) {
			if err != nil {
				if tiers.KindOf(err) != tiers.CorruptMessage {
					t.Fatal(err)
				}
				rest = b.Bytes
				continue
			}
			if rest != nil {
				t.Fatal("a step follows the error")
			}
			if b.Size() != int64(len(b.Bytes)) {
				t.Fatalf("size %d, %d bytes", b.Size(), len(b.Bytes))
			}
			got = append(got, b.Bytes)
		}
		if whole := append(bytes.Join(got, nil), rest...); !bytes.Equal(whole, all[:cut]) {
			t.Fatalf("cut at %d: bytes are lost", cut)
		}
		want := 0
		if cut >= len(one) {
			want++
		}
		if cut == len(all) {
			want++
		}
		if len(got) != want || (rest != nil) != (cut != 0 && cut != len(one) && cut != len(all)) {
			t.Fatalf("cut at %d: %d batches, rest %d bytes", cut, len(got), len(rest))
		}
	}
	for range Split(all) {
		break
	}
}

func TestCheckAllocatesNothing(t *testing.T) {
	b := build(t, Builder{ProducerID: -1, Codec: Zstd}, sample(100))
	n := testing.AllocsPerRun(100, func() {
		if _, err := Check(b, Limits{MaxBytes: 1 << 20}); err != nil {
			t.Fatal(err)
		}
		Stamp(b, 7, 3)
		StampAppendTime(b, 9)
		for range Split(b) {
		}
	})
	if n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

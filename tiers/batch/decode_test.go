package batch

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"io"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"pgregory.net/rapid"

	"github.com/strandline-io/strandline/tiers"
)

// packed is a batch that says it has n records and carries payload as it is.
func packed(c Codec, n int32, payload []byte) []byte {
	b := append(make([]byte, HeaderSize), payload...)
	be := binary.BigEndian
	be.PutUint32(b[atLength:], uint32(len(b)-lengthEnd))
	b[atMagic] = 2
	be.PutUint16(b[atAttributes:], uint16(c))
	put32(atLastOffsetDelta, n-1)(b)
	put32(atCount, n)(b)
	sign(b)
	return b
}

// bombs are batches of at most some MiB that would decompress to size bytes, made
// by the real encoders, and by hand where an encoder would not lie.
func bombs(tb testing.TB, size int64) map[string][]byte {
	tb.Helper()
	zeros := func(w io.WriteCloser) {
		tb.Helper()
		if _, err := io.CopyN(w, nothing{}, size); err != nil {
			tb.Fatal(err)
		}
		if err := w.Close(); err != nil {
			tb.Fatal(err)
		}
	}
	var g, l, z bytes.Buffer
	gw, err := gzip.NewWriterLevel(&g, gzip.BestCompression)
	if err != nil {
		tb.Fatal(err)
	}
	zeros(gw)
	lw := lz4.NewWriter(&l)
	if err = lw.Apply(lz4.BlockSizeOption(lz4.Block4Mb), lz4.ConcurrencyOption(1)); err != nil {
		tb.Fatal(err)
	}
	zeros(lw)
	zw, err := zstd.NewWriter(&z, zstd.WithEncoderConcurrency(1))
	if err != nil {
		tb.Fatal(err)
	}
	zeros(zw)
	one := snappy.Encode(nil, make([]byte, 32<<20))
	xerial := append([]byte(xerialMagic), 0, 0, 0, 1, 0, 0, 0, 1)
	for range size / (32 << 20) {
		xerial = append(binary.BigEndian.AppendUint32(xerial, uint32(len(one))), one...)
	}
	manyFrames := bytes.Repeat(mustEncode(tb, make([]byte, 1<<20)), int(size>>20))
	return map[string][]byte{
		"gzip":                         packed(Gzip, 1, g.Bytes()),
		"lz4":                          packed(LZ4, 1, l.Bytes()),
		"zstd":                         packed(Zstd, 1, z.Bytes()),
		"zstd of many frames":          packed(Zstd, 1, manyFrames),
		"snappy, one block":            packed(Snappy, 1, one),
		"snappy of xerial blocks":      packed(Snappy, 1, xerial),
		"snappy that claims 4 GiB - 1": packed(Snappy, 1, []byte{0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0}),
	}
}

func mustEncode(tb testing.TB, b []byte) []byte {
	tb.Helper()
	z, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		tb.Fatal(err)
	}
	defer z.Close()
	return z.EncodeAll(b, nil)
}

type nothing struct{}

func (nothing) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// Report 069: a bomb of each codec ends at the cap, as MESSAGE_TOO_LARGE, and
// costs memory in proportion to the cap, not to what it would become.
func TestReport069_BombsStopAtTheCap(t *testing.T) {
	const limit = 1 << 20
	for name, b := range bombs(t, 64<<20) {
		t.Run(name, func(t *testing.T) {
			if len(b) > 64<<20 {
				t.Fatalf("the bomb itself has %d bytes", len(b))
			}
			if _, err := Check(b, Limits{}); err != nil {
				t.Fatal(err)
			}
			d := NewDecoder(limit)
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			err := d.Records(b, func(Record) bool { t.Error("a record came out of it"); return false })
			runtime.ReadMemStats(&after)
			if tiers.KindOf(err) != tiers.MessageTooLarge {
				t.Fatalf("%v", err)
			}
			// All that was ever allocated, freed or not: the buffer while it grew, and
			// what the codec keeps for a block (lz4: 4 MiB and a reader's pools).
			if n := after.TotalAlloc - before.TotalAlloc; n > 4*limit+16<<20 {
				t.Fatalf("%d bytes were allocated for a cap of %d", n, limit)
			}
			if cap(d.buf) > limit+zstdBlock {
				t.Fatalf("the decoder keeps %d bytes", cap(d.buf))
			}
			// The decoder lives on.
			good := build(t, Builder{Codec: header(b).Codec(), ProducerID: -1}, sample(3))
			if err := same(records(t, d, good), sample(3)); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// What ends exactly at the cap passes, one byte more does not.
func TestReport069_TheCapIsExact(t *testing.T) {
	recs := []Record{{Offset: 1, Timestamp: 5, Value: bytes.Repeat([]byte("abcdefgh"), 20_000)}}
	plain, _ := encode(recs)
	for _, c := range codecs()[1:] {
		b := build(t, Builder{Codec: c, ProducerID: -1}, recs)
		if err := NewDecoder(int64(len(plain))).Records(b, func(Record) bool { return true }); err != nil {
			t.Errorf("%s at the cap: %v", c, err)
		}
		if err := NewDecoder(int64(len(plain)-1)).Records(b, func(Record) bool { return true }); tiers.KindOf(err) != tiers.MessageTooLarge {
			t.Errorf("%s above the cap: %v", c, err)
		}
		if err := NewDecoder(1).Records(b, func(Record) bool { return true }); tiers.KindOf(err) != tiers.MessageTooLarge {
			t.Errorf("%s with a cap of 1: %v", c, err)
		}
	}
}

// A frame whose window is larger than the cap is not a bomb: high levels of zstd
// announce windows of many MiB for small batches.
func TestZstdWindowAboveTheCap(t *testing.T) {
	plain, _ := encode(sample(50))
	var buf bytes.Buffer
	w, err := zstd.NewWriter(&buf, zstd.WithWindowSize(64<<20), zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(plain[:100]); err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(); err != nil { // So that the frame has no single segment.
		t.Fatal(err)
	}
	if _, err := w.Write(plain[100:]); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	b := packed(Zstd, 50, buf.Bytes())
	var h zstd.Header
	if err := h.Decode(buf.Bytes()); err != nil || h.WindowSize <= 1<<20 {
		t.Fatalf("the frame has no large window: %+v, %v", h, err)
	}
	n := 0
	if err := NewDecoder(1<<20).Records(b, func(Record) bool { n++; return true }); err != nil || n != 50 {
		t.Fatalf("%d records, %v", n, err)
	}
}

// Java's clients write snappy in the framing of snappy-java, in blocks of 32 KiB.
func TestSnappyXerial(t *testing.T) {
	want := sample(400)
	plain, _ := encode(want)
	framed := append([]byte(xerialMagic), 0, 0, 0, 1, 0, 0, 0, 1)
	for len(plain) > 0 {
		n := min(len(plain), 3000)
		block := snappy.Encode(nil, plain[:n])
		framed, plain = append(binary.BigEndian.AppendUint32(framed, uint32(len(block))), block...), plain[n:]
	}
	b := packed(Snappy, 400, framed)
	be := binary.BigEndian
	be.PutUint64(b, 100)
	be.PutUint64(b[atFirstTimestamp:], uint64(want[0].Timestamp))
	if err := same(records(t, NewDecoder(1<<20), b), want); err != nil {
		t.Fatal(err)
	}
	for cut := 1; cut < len(framed); cut++ {
		half := packed(Snappy, 400, framed[:cut])
		if err := NewDecoder(1<<20).Records(half, func(Record) bool { return true }); tiers.KindOf(err) != tiers.CorruptMessage {
			t.Fatalf("cut at %d: %v", cut, err)
		}
	}
	lie := binary.BigEndian.AppendUint32(bytes.Clone(framed[:xerialHeader]), math.MaxUint32)
	if err := NewDecoder(1<<20).Records(packed(Snappy, 400, lie), func(Record) bool { return true }); tiers.KindOf(err) != tiers.CorruptMessage {
		t.Fatal(err)
	}
}

// S2's extension of snappy would be refused by other clients: so it is here.
func TestSnappyIsStrict(t *testing.T) {
	// 10 bytes: literal "ab", a copy of 4 from 2 back, a copy of 4 from 0 back, which
	// S2 reads as "from as far as before".
	block := []byte{10, 1 << 2, 'a', 'b', 1, 2, 1, 0}
	if out, err := s2.Decode(nil, block); err != nil || string(out) != "ababababab" {
		t.Fatalf("S2 reads %q, %v", out, err)
	}
	if out, err := NewDecoder(1<<20).decompress(Snappy, block); tiers.KindOf(err) != tiers.CorruptMessage {
		t.Fatalf("%q, %v", out, err)
	}
}

func TestCorruptPayloads(t *testing.T) {
	for _, c := range codecs()[1:] {
		good := build(t, Builder{Codec: c, ProducerID: -1}, sample(50))
		for cut := HeaderSize; cut < len(good)-8; cut += 7 {
			b := packed(c, 50, good[HeaderSize:cut])
			if err := NewDecoder(1<<20).Records(b, func(Record) bool { return true }); tiers.KindOf(err) != tiers.CorruptMessage {
				t.Fatalf("%s cut to %d bytes: %v", c, cut-HeaderSize, err)
			}
		}
		b := packed(c, 1, []byte("no compressed bytes at all"))
		if err := NewDecoder(1<<20).Records(b, func(Record) bool { return true }); err == nil {
			t.Fatalf("%s reads noise", c)
		}
	}
	if err := NewDecoder(0).Records(packed(6, 1, nil), func(Record) bool { return true }); tiers.KindOf(err) != tiers.UnsupportedCompression {
		t.Fatal(err)
	}
}

func zig(v int64) []byte { return binary.AppendVarint(nil, v) }

func rec(body ...[]byte) []byte {
	b := bytes.Join(body, nil)
	return append(zig(int64(len(b))), b...)
}

// Row 5 of the bad inputs, and every length that lies.
func TestRecordsRefuseMalformedRecords(t *testing.T) {
	zero := []byte{0}
	good := rec(zero, zig(0), zig(0), zig(-1), zig(-1), zig(0))
	ten := bytes.Repeat([]byte{0x80}, 10)
	for _, c := range []struct {
		name    string
		n       int32
		payload []byte
	}{
		{"nothing", 1, nil},
		{"length of 10 continuation bytes", 1, append(bytes.Clone(ten), 0)},
		{"length that never ends", 1, ten},
		{"length of 33 bits", 1, []byte{0xff, 0xff, 0xff, 0xff, 0x1f}},
		{"length negative", 1, zig(-1)},
		{"length of 2 GiB", 1, zig(math.MaxInt32)},
		{"empty record", 1, rec()},
		{"timestamp of 11 bytes", 1, rec(zero, ten, []byte{1}, zig(0), zig(-1), zig(-1), zig(0))},
		{"timestamp of 65 bits", 1, rec(zero, bytes.Repeat([]byte{0xff}, 9), []byte{2}, zig(0), zig(-1), zig(-1), zig(0))},
		{"offset delta of 10 bytes", 1, rec(zero, zig(0), ten[:9], zero, zig(-1), zig(-1), zig(0))},
		{"negative offset delta", 1, rec(zero, zig(0), zig(-1), zig(-1), zig(-1), zig(0))},
		{"offset delta behind the last", 1, rec(zero, zig(0), zig(1), zig(-1), zig(-1), zig(0))},
		{"the same offset delta twice", 2, append(bytes.Clone(good), good...)},
		{"key length -2", 1, rec(zero, zig(0), zig(0), zig(-2), zig(-1), zig(0))},
		{"key length of 33 bits", 1, rec(zero, zig(0), zig(0), binary.AppendUvarint(nil, 1<<32|1), zig(-1), zig(0))},
		{"key longer than the record", 1, append(rec(zero, zig(0), zig(0), zig(5), []byte("k")), "behind it"...)},
		{"value longer than the record", 1, rec(zero, zig(0), zig(0), zig(-1), zig(math.MaxInt32), zig(0))},
		{"no header count", 1, rec(zero, zig(0), zig(0), zig(-1), zig(-1))},
		{"negative header count", 1, rec(zero, zig(0), zig(0), zig(-1), zig(-1), zig(-1))},
		{"2^31 headers", 1, rec(zero, zig(0), zig(0), zig(-1), zig(-1), zig(math.MaxInt32))},
		{"more headers than bytes", 1, rec(zero, zig(0), zig(0), zig(-1), zig(-1), zig(2), zig(0), zig(-1))},
		{"null header key", 1, rec(zero, zig(0), zig(0), zig(-1), zig(-1), zig(1), zig(-1), zig(-1))},
		{"bytes behind the record's fields", 1, rec(zero, zig(0), zig(0), zig(-1), zig(-1), zig(0), zero)},
		{"bytes behind the last record", 1, append(bytes.Clone(good), 0)},
		{"a record too few", 2, good},
	} {
		if err := NewDecoder(0).Records(packed(None, c.n, c.payload), func(Record) bool { return true }); tiers.KindOf(err) != tiers.CorruptMessage {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if err := NewDecoder(0).Records(packed(None, 1, good), func(Record) bool { return true }); err != nil {
		t.Error(err)
	}
	huge := packed(None, 1, good)
	put32(atCount, -1)(huge)
	if err := NewDecoder(0).Records(huge, func(Record) bool { return true }); tiers.KindOf(err) != tiers.CorruptMessage {
		t.Errorf("a negative count: %v", err)
	}
	if err := NewDecoder(0).Records(huge[:len(huge)-1], func(Record) bool { return true }); tiers.KindOf(err) != tiers.CorruptMessage {
		t.Errorf("a torn batch: %v", err)
	}
	huge[atMagic] = 1
	if err := NewDecoder(0).Records(huge, func(Record) bool { return true }); tiers.KindOf(err) != tiers.UnsupportedFormat {
		t.Errorf("magic 1: %v", err)
	}
}

func TestRecordsStopsWhenToldTo(t *testing.T) {
	n := 0
	if err := NewDecoder(0).Records(build(t, Builder{}, sample(9)), func(Record) bool { n++; return n < 4 }); err != nil || n != 4 {
		t.Fatalf("%d records, %v", n, err)
	}
}

// Fields stay as they are until the next call, headers too, whose array grows.
func TestRecordsKeepUntilTheNextCall(t *testing.T) {
	d := NewDecoder(1 << 20)
	for _, c := range codecs() {
		want := sample(200)
		if err := same(records(t, d, build(t, Builder{Codec: c, ProducerID: -1}, want)), want); err != nil {
			t.Fatalf("%s: %v", c, err)
		}
	}
	if n := len(d.headers); n != 50*3 {
		t.Fatalf("the decoder keeps %d headers of earlier calls", n-50*3)
	}
}

// KIP-534: with a delete horizon the deltas count from it.
func TestDeleteHorizon(t *testing.T) {
	b := bent(t, func(b []byte) {
		attributes(64)(b)
		binary.BigEndian.PutUint64(b[atFirstTimestamp:], 1000)
	})
	h, err := CheckStored(b)
	if err != nil || !h.DeleteHorizon() {
		t.Fatalf("%+v, %v", h, err)
	}
	if r := records(t, NewDecoder(0), b); r[1].Timestamp != 1010 {
		t.Fatalf("timestamp %d", r[1].Timestamp)
	}
}

func TestCheckRecords(t *testing.T) {
	zero := []byte{0}
	d := NewDecoder(1 << 20)
	keyed := []Record{{Offset: 7, Key: []byte{}}, {Offset: 8, Key: []byte("k")}}
	hole := []Record{{Offset: 7, Key: []byte("a")}, {Offset: 9, Key: []byte("b")}}
	for _, c := range []struct {
		name    string
		b       []byte
		compact bool
		want    tiers.Kind
	}{
		{"keys, one of them empty", build(t, Builder{}, keyed), true, tiers.Other},
		{"no key", build(t, Builder{}, sample(2)), false, tiers.Other},
		{"no key, compacted", build(t, Builder{}, sample(2)), true, tiers.InvalidRecord},
		{"hole", build(t, Builder{}, hole), true, tiers.InvalidRecord},
		{"starts late", packed(None, 2, rec(zero, zig(0), zig(1), zig(-1), zig(-1), zig(0))), false, tiers.InvalidRecord},
		{"torn", build(t, Builder{}, keyed)[:70], true, tiers.CorruptMessage},
		{"no header", nil, true, tiers.CorruptMessage},
		{"unknown codec", packed(6, 1, nil), true, tiers.UnsupportedCompression},
		{"too large", build(t, Builder{Codec: Gzip}, []Record{{Value: make([]byte, 2<<20)}}), false, tiers.MessageTooLarge},
		{"empty batch", emptied(t), false, tiers.Other},
	} {
		err := d.CheckRecords(c.b, c.compact)
		if tiers.KindOf(err) != c.want || c.want == tiers.Other && err != nil {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
}

func TestBuildRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		b    Builder
		recs []Record
		want tiers.Kind
	}{
		"nothing":          {Builder{}, nil, tiers.InvalidRecord},
		"offsets fall":     {Builder{}, []Record{{Offset: 2}, {Offset: 1}}, tiers.InvalidRecord},
		"offsets repeat":   {Builder{}, []Record{{Offset: 2}, {Offset: 2}}, tiers.InvalidRecord},
		"offsets too far":  {Builder{}, []Record{{Offset: 0}, {Offset: 1 << 31}}, tiers.InvalidRecord},
		"an unknown codec": {Builder{Codec: 5}, sample(1), tiers.UnsupportedCompression},
	} {
		if _, err := c.b.Build(c.recs); tiers.KindOf(err) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
	b := build(t, Builder{ProducerID: 0, ProducerEpoch: 4, BaseSequence: 6, Control: true, LeaderEpoch: -1}, []Record{{Offset: 0}, {Offset: math.MaxInt32}})
	h, err := CheckStored(b)
	if err != nil || h.LastOffsetDelta != math.MaxInt32 || !h.Control() || h.ProducerEpoch != 4 || h.BaseSequence != 6 || h.ProducerID != 0 || h.LeaderEpoch != -1 {
		t.Errorf("%+v, %v", h, err)
	}
}

// Report 044 from the batch's side: what Build makes of any records comes back.
func TestBuildDecodeAnyRecords(t *testing.T) {
	bytesOrNull := rapid.OneOf(rapid.Just([]byte(nil)), rapid.SliceOfN(rapid.Byte(), 0, 40))
	rapid.Check(t, func(t *rapid.T) {
		recs := make([]Record, rapid.IntRange(1, 12).Draw(t, "n"))
		at := tiers.Offset(rapid.Int64Range(0, 1<<50).Draw(t, "base"))
		for i := range recs {
			recs[i] = Record{Offset: at, Timestamp: rapid.Int64Range(-1, math.MaxInt64).Draw(t, "ts"), Key: bytesOrNull.Draw(t, "key"), Value: bytesOrNull.Draw(t, "value")}
			for range rapid.IntRange(0, 3).Draw(t, "headers") {
				recs[i].Headers = append(recs[i].Headers, RecordHeader{rapid.String().Draw(t, "hk"), bytesOrNull.Draw(t, "hv")})
			}
			at += tiers.Offset(rapid.Int64Range(1, 1000).Draw(t, "hole"))
		}
		b, err := Builder{Codec: rapid.SampledFrom(codecs()).Draw(t, "codec"), ProducerID: -1}.Build(recs)
		if err != nil {
			t.Fatal(err)
		}
		h, err := CheckStored(b)
		if err != nil {
			t.Fatal(err)
		}
		var newest int64 = math.MinInt64
		var got []Record
		if err := NewDecoder(1<<20).Records(b, func(r Record) bool { got = append(got, r); newest = max(newest, r.Timestamp); return true }); err != nil {
			t.Fatal(err)
		}
		if err := same(got, recs); err != nil {
			t.Fatal(err)
		}
		if h.MaxTimestamp != newest || h.Last() != recs[len(recs)-1].Offset {
			t.Fatalf("header %+v, newest %d", h, newest)
		}
	})
}

func TestLZ4LegacyAndNoiseAreBounded(t *testing.T) {
	noise := strings.Repeat("\x02\x21\x4c\x18\xff\xff\xff\x7f", 100)
	if err := NewDecoder(1<<20).Records(packed(LZ4, 1, []byte(noise)), func(Record) bool { return true }); err == nil {
		t.Fatal("a legacy frame with a block of 2 GiB is read")
	}
}

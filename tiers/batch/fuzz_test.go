package batch

import (
	"bytes"
	"testing"

	"github.com/strandline-io/strandline/tiers"
)

func seeds(f *testing.F) {
	f.Helper()
	for _, c := range codecs() {
		f.Add(build(f, Builder{Codec: c, ProducerID: -1}, sample(5)))
	}
	f.Add(build(f, Builder{Control: true, Transactional: true, LogAppendTime: true}, sample(1)))
	f.Add(emptied(f))
	f.Add([]byte{})
}

func FuzzParse(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := Parse(b)
		if err != nil {
			if tiers.KindOf(err) != tiers.CorruptMessage {
				t.Fatal(err)
			}
			return
		}
		if h.Size() < HeaderSize {
			t.Fatalf("size %d", h.Size())
		}
		n := 0
		for s, err := range Split(b) {
			n += len(s.Bytes)
			if err == nil && s.Size() != int64(len(s.Bytes)) {
				t.Fatalf("size %d, %d bytes", s.Size(), len(s.Bytes))
			}
		}
		if n != len(b) {
			t.Fatalf("%d of %d bytes", n, len(b))
		}
	})
}

func FuzzCheck(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= HeaderSize {
			sign(b) // Otherwise hardly an input gets beyond the CRC.
		}
		h, err := Check(b, Limits{MaxBytes: 1 << 16})
		if err != nil {
			if tiers.KindOf(err) == tiers.Other {
				t.Fatalf("no kind: %v", err)
			}
			return
		}
		if !VerifyCRC(b) || h.Size() != int64(len(b)) || h.Count < 1 || h.Control() || h.Codec() > Zstd {
			t.Fatalf("%+v passes", h)
		}
		Stamp(b, 5, 1)
		StampAppendTime(b, 9)
		if _, err := CheckStored(b); err != nil {
			t.Fatalf("what Check lets in cannot stand in a log: %v", err)
		}
	})
}

func FuzzRecords(f *testing.F) {
	seeds(f)
	const limit = 1 << 16
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= HeaderSize {
			sign(b)
		}
		d := NewDecoder(limit)
		var got []Record
		err := d.Records(b, func(r Record) bool { got = append(got, r); return true })
		if err != nil && tiers.KindOf(err) == tiers.Other {
			t.Fatalf("no kind: %v", err)
		}
		if cap(d.buf) > limit+zstdBlock {
			t.Fatalf("%d bytes are kept", cap(d.buf))
		}
		for i := range got {
			if i > 0 && got[i].Offset <= got[i-1].Offset {
				t.Fatalf("offset %d follows %d", got[i].Offset, got[i-1].Offset)
			}
		}
		if err != nil || len(got) == 0 || header(b).LogAppendTime() || header(b).BaseOffset < 0 {
			return
		}
		again, err := Builder{ProducerID: -1}.Build(got)
		if err != nil {
			return // Offsets wrap around.
		}
		var back []Record
		if err := NewDecoder(1<<30).Records(again, func(r Record) bool { back = append(back, r); return true }); err != nil {
			t.Fatal(err)
		}
		if err := same(back, got); err != nil {
			t.Fatal(err)
		}
	})
}

func BenchmarkCheck(b *testing.B) {
	data := build(b, Builder{ProducerID: -1}, []Record{{Value: bytes.Repeat([]byte("x"), 16<<10)}})
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Check(data, Limits{MaxBytes: 1 << 20}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRecords(b *testing.B) {
	for _, c := range codecs() {
		data := build(b, Builder{Codec: c, ProducerID: -1}, sample(500))
		b.Run(c.String(), func(b *testing.B) {
			d := NewDecoder(1 << 20)
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				if err := d.Records(data, func(Record) bool { n++; return true }); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "records/s")
		})
	}
}

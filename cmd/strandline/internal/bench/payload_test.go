package bench

import (
	"bytes"
	"compress/flate"
	"errors"
	"testing"
)

func TestPayload(t *testing.T) {
	t.Parallel()
	table := castagnoli()
	for _, size := range []int{MinRecordSize, MinRecordSize + 1, 1000} {
		b := make([]byte, size)
		fill(b[payloadHead:], FillRandom, 1)
		want := stamp{run: 1<<63 + 7, producer: 3, number: 1<<40 + 9}
		seal(b, want, table)
		if got, err := open(b, table); got != want || err != nil {
			t.Fatalf("%+v, %v", got, err)
		}
		for bit := range len(b) * 8 {
			b[bit/8] ^= 1 << (bit % 8)
			if _, err := open(b, table); err == nil {
				t.Fatalf("bit %d of %d bytes flips unnoticed", bit, size)
			}
			b[bit/8] ^= 1 << (bit % 8)
		}
		if _, err := open(b[:size-1], table); err == nil {
			t.Error("cut unnoticed")
		}
	}
	for _, b := range [][]byte{nil, []byte("hello"), bytes.Repeat([]byte{1}, 100)} {
		if _, err := open(b, table); !errors.Is(err, errNoStamp) {
			t.Errorf("%q: %v", b, err)
		}
	}
}

func FuzzOpenPayload(f *testing.F) {
	b := make([]byte, 64)
	seal(b, stamp{1, 2, 3}, castagnoli())
	f.Add(b)
	f.Add([]byte(payloadMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := open(b, castagnoli())
		if err != nil {
			return
		}
		again := bytes.Clone(b)
		seal(again, s, castagnoli())
		if !bytes.Equal(again, b) {
			t.Fatal("what was read is not what was written")
		}
	})
}

func TestFill(t *testing.T) {
	t.Parallel()
	packed := func(how string) float64 {
		b := make([]byte, 64<<10)
		fill(b, how, 5)
		again := make([]byte, len(b))
		fill(again, how, 5)
		if !bytes.Equal(b, again) {
			t.Errorf("%s: the same seed makes something else", how)
		}
		fill(again, how, 6)
		if bytes.Equal(b, again) {
			t.Errorf("%s: another seed makes the same", how)
		}
		var out bytes.Buffer
		w, err := flate.NewWriter(&out, flate.DefaultCompression)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(b); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return float64(out.Len()) / float64(len(b))
	}
	if r := packed(FillRandom); r < 0.99 {
		t.Errorf("random content is packed to %.2f", r)
	}
	if r := packed(FillText); r > 0.6 || r < 0.1 {
		t.Errorf("text is packed to %.2f", r)
	}
}

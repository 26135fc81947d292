package dir

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"os"
	"testing"
	"time"

	"github.com/strandline-io/strandline/tiers/remote"
)

var update = flag.Bool("update", false, "write the golden files")

const golden = "testdata/dir-object-1.0.bin"

func sample() (body []byte, t trailer) {
	body = []byte("the body of an object")
	t = trailer{size: int64(len(body)), crc: remote.CRC32C(body), written: time.UnixMilli(1_800_000_000_123).UTC()}
	for i := range t.etag {
		t.etag[i] = byte(0xa0 + i)
	}
	return body, t
}

func TestTrailerGolden(t *testing.T) {
	t.Parallel()
	body, want := sample()
	file := append(body, want.encode()...)
	if *update {
		if err := os.WriteFile(golden, file, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	stored, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(stored, file) {
		t.Fatalf("the encoding differs from %s: a change of the format needs a new version and a new file", golden)
	}
	got, err := decodeTrailer(stored[len(stored)-trailerSize:], int64(len(stored)))
	if err != nil || got != want {
		t.Fatalf("%+v, %v, want %+v", got, err, want)
	}
}

// A newer minor version has fields before the last eight bytes; a newer major
// version and unknown flags are refused, as something else than damage.
func TestTrailerOfANewerVersion(t *testing.T) {
	t.Parallel()
	_, want := sample()
	resum := func(b []byte) []byte {
		binary.BigEndian.PutUint32(b[len(b)-4:], remote.CRC32C(b[:len(b)-4]))
		return b
	}
	b := want.encode()
	longer := append(bytes.Clone(b[:46]), "new field"...)
	longer = binary.BigEndian.AppendUint32(longer, uint32(trailerSize+9))
	longer = resum(append(longer, 0, 0, 0, 0))
	if got, err := decodeTrailer(longer, want.size+int64(len(longer))); err != nil || got != want {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, edit := range []func([]byte){func(b []byte) { b[4]++ }, func(b []byte) { b[9] = 1 }} {
		bad := bytes.Clone(b)
		edit(bad)
		if _, err := decodeTrailer(resum(bad), want.size+trailerSize); err == nil || errors.Is(err, remote.ErrChecksum) {
			t.Fatal(err)
		}
	}
}

func FuzzTrailer(f *testing.F) {
	body, t := sample()
	f.Add(append(body, t.encode()...), false)
	f.Add(append(body, t.encode()...), true)
	f.Add([]byte{}, true)
	f.Fuzz(func(t *testing.T, file []byte, fix bool) {
		end := file[max(0, len(file)-trailerSize):]
		n, err := trailerLen(end)
		if err != nil {
			return
		}
		b := bytes.Clone(file[max(0, len(file)-n):])
		if fix {
			binary.BigEndian.PutUint32(b[len(b)-4:], remote.CRC32C(b[:len(b)-4]))
		}
		got, err := decodeTrailer(b, int64(len(file)))
		if err != nil {
			return
		}
		if got.size != int64(len(file)-len(b)) {
			t.Fatalf("%+v of a file of %d bytes", got, len(file))
		}
		if again, err := decodeTrailer(got.encode(), got.size+trailerSize); err != nil || again != got {
			t.Fatalf("%+v became %+v, %v", got, again, err)
		}
	})
}

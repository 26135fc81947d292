package remote_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/remote"
)

var update = flag.Bool("update", false, "write the golden files")

const goldenMeta = "testdata/segment-meta-1.0.bin"

// decoded is what DecodeMeta makes of m: it knows no state and counts the bytes.
func decoded(m *remote.SegmentMeta, size int) *remote.SegmentMeta {
	out := *m
	out.Segment.State, out.Segment.MetaSize = 0, int64(size)
	out.Segment.HasAborted = len(m.TxnIndex) > 0
	return &out
}

func encode(t *testing.T, m *remote.SegmentMeta) []byte {
	t.Helper()
	b, err := remote.EncodeMeta(m)
	must(t, err)
	return b
}

func TestMetaRoundTrip(t *testing.T) {
	t.Parallel()
	_, m := sample(3*remote.ChunkSize + 1)
	b := encode(t, m)
	got, err := remote.DecodeMeta(b)
	must(t, err)
	if want := decoded(m, len(b)); !reflect.DeepEqual(got, want) {
		t.Fatalf("got  %+v\nwant %+v", got, want)
	}
}

func TestMetaRoundTripOfAnything(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		content := rapid.SliceOfN(rapid.Byte(), 1, 200)
		_, m := sample(rapid.IntRange(1, 2*remote.ChunkSize+1).Draw(t, "size"))
		m.Cluster = rapid.StringN(0, 60, 255).Draw(t, "cluster")
		m.TopicName = rapid.StringN(0, 60, 255).Draw(t, "topic")
		m.OffsetIndex, m.TimeIndex = content.Draw(t, "offsets"), content.Draw(t, "times")
		m.TxnIndex, m.Producers = content.Draw(t, "txns"), content.Draw(t, "producers")
		m.Segment.MaxTimestamp = rapid.Int64().Draw(t, "timestamp")
		m.Segment.CreatedAt = rapid.SampledFrom([]time.Time{{}, time.Unix(1, 1).UTC()}).Draw(t, "created")
		m.Segment.CopierEpoch = tiers.LeaderEpoch(rapid.Int32().Draw(t, "epoch"))
		b, err := remote.EncodeMeta(m)
		if err != nil {
			t.Fatal(err)
		}
		got, err := remote.DecodeMeta(b)
		if err != nil {
			t.Fatal(err)
		}
		if want := decoded(m, len(b)); !reflect.DeepEqual(got, want) {
			t.Fatalf("got  %+v\nwant %+v", got, want)
		}
	})
}

func TestMetaGolden(t *testing.T) {
	t.Parallel()
	_, m := sample(remote.ChunkSize + 77)
	b := encode(t, m)
	if *update {
		must(t, os.WriteFile(goldenMeta, b, 0o644))
	}
	golden, err := os.ReadFile(goldenMeta)
	must(t, err)
	if !bytes.Equal(b, golden) {
		t.Fatalf("the encoding differs from %s: a change of the format needs a new version and a new file", goldenMeta)
	}
	got, err := remote.DecodeMeta(golden)
	must(t, err)
	if want := decoded(m, len(golden)); !reflect.DeepEqual(got, want) {
		t.Fatalf("got  %+v\nwant %+v", got, want)
	}
}

// Any single bit that changes is noticed, and so is any cut.
func TestMetaDamage(t *testing.T) {
	t.Parallel()
	_, m := sample(100)
	b := encode(t, m)
	for i := range len(b) * 8 {
		bad := bytes.Clone(b)
		bad[i/8] ^= 1 << (i % 8)
		if _, err := remote.DecodeMeta(bad); !errors.Is(err, remote.ErrChecksum) || tiers.KindOf(err) != tiers.CorruptMessage {
			t.Fatalf("bit %d: %v", i, err)
		}
	}
	for n := range b {
		if _, err := remote.DecodeMeta(b[:n]); !errors.Is(err, remote.ErrChecksum) {
			t.Fatalf("cut to %d bytes: %v", n, err)
		}
	}
}

// resum makes the checksums of a companion right after edit changed it.
func resum(b []byte, edit func(b []byte)) []byte {
	b = bytes.Clone(b)
	edit(b)
	if end := 14 + int(binary.BigEndian.Uint32(b[10:])); end+4 <= len(b) {
		binary.BigEndian.PutUint32(b[end:], remote.CRC32C(b[:end]))
	}
	binary.BigEndian.PutUint32(b[len(b)-4:], remote.CRC32C(b[:len(b)-4]))
	return b
}

func TestMetaOfANewerVersion(t *testing.T) {
	t.Parallel()
	_, m := sample(100)
	b := encode(t, m)
	for name, edit := range map[string]func([]byte){
		"major":      func(b []byte) { b[4]++ },
		"flag":       func(b []byte) { b[9] |= 1 },
		"chunk size": func(b []byte) { binary.BigEndian.PutUint32(b[14+2+4+16+4+4+16+8*4+4*3+8:], 1<<20) },
	} {
		if _, err := remote.DecodeMeta(resum(b, edit)); tiers.KindOf(err) != tiers.UnsupportedVersion || !strings.Contains(err.Error(), "this program") && !strings.Contains(err.Error(), "newer") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, edit := range map[string]func([]byte){
		"minor":         func(b []byte) { b[5]++ },
		"optional flag": func(b []byte) { b[6] |= 1 },
		"section kind":  func(b []byte) { b[len(b)-4-6-36] = 0xff }, // of the lineage, which is the last
	} {
		if _, err := remote.DecodeMeta(resum(b, edit)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A field at the end of the header and a section are of a newer minor version.
func TestMetaPassesOverWhatIsNew(t *testing.T) {
	t.Parallel()
	_, m := sample(100)
	old := encode(t, m)
	headerEnd := 14 + int(binary.BigEndian.Uint32(old[10:]))
	b := append(bytes.Clone(old[:headerEnd]), "new field"...)
	b = append(b, 0, 0, 0, 0) // CRC of the header
	b = append(b, old[headerEnd+4:len(old)-4]...)
	b = append(b, 0, 99, 0, 0, 0, 3, 'n', 'e', 'w')
	b = append(b, 0, 0, 0, 0) // CRC of all
	b = resum(b, func(b []byte) {
		b[5] = 1
		binary.BigEndian.PutUint32(b[10:], uint32(headerEnd-14+len("new field")))
		b[headerEnd-1]++ // sections
	})
	got, err := remote.DecodeMeta(b)
	must(t, err)
	if want := decoded(m, len(b)); !reflect.DeepEqual(got, want) {
		t.Fatalf("got  %+v\nwant %+v", got, want)
	}
}

// Checksums that are right do not make wrong lengths right.
func TestMetaLies(t *testing.T) {
	t.Parallel()
	_, m := sample(100)
	b := encode(t, m)
	end := 14 + int(binary.BigEndian.Uint32(b[10:]))
	be := binary.BigEndian
	for name, edit := range map[string]func([]byte){
		"header too long":      func(b []byte) { be.PutUint32(b[10:], 1<<31) },
		"header too short":     func(b []byte) { be.PutUint32(b[10:], 20) },
		"cluster id too long":  func(b []byte) { be.PutUint16(b[14:], 0xffff) },
		"cluster id of 250":    func(b []byte) { be.PutUint16(b[14:], 250) },
		"section too long":     func(b []byte) { be.PutUint32(b[end+4+2:], 0xffffffff) },
		"section twice":        func(b []byte) { b[bytes.Index(b, []byte("txns"))+5] = 5 }, // the producers are a second transaction index
		"too many sections":    func(b []byte) { be.PutUint16(b[end-2:], 0xffff) },
		"too few sections":     func(b []byte) { be.PutUint16(b[end-2:], 3) },
		"size negative":        func(b []byte) { b[14+2+4+16+4+4+16+24] = 0x80 },
		"size for more chunks": func(b []byte) { b[14+2+4+16+4+4+16+24+4] = 1 },
		"size beyond all":      func(b []byte) { copy(b[14+2+4+16+4+4+16+24:], "\x7f\xff\xff\xff\xff\xff\xff\xff") },
		"base above end":       func(b []byte) { b[14+2+4+16+4+4+16+4] = 9 },
	} {
		if _, err := remote.DecodeMeta(resum(b, edit)); !errors.Is(err, remote.ErrChecksum) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMetaEncodeRefuses(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*remote.SegmentMeta){
		"no bytes":      func(m *remote.SegmentMeta) { m.Segment.Size = 0; m.ChunkCRC = nil },
		"chunk missing": func(m *remote.SegmentMeta) { m.ChunkCRC = m.ChunkCRC[1:] },
		"empty range":   func(m *remote.SegmentMeta) { m.Segment.End = m.Segment.Base },
		"no epochs":     func(m *remote.SegmentMeta) { m.Segment.Epochs = nil },
		"lineage":       func(m *remote.SegmentMeta) { m.Lineage = tiers.Lineage{{Epoch: 2, Start: 5}, {Epoch: 1, Start: 9}} },
		"topic name":    func(m *remote.SegmentMeta) { m.TopicName = strings.Repeat("x", 256) },
		"cluster":       func(m *remote.SegmentMeta) { m.Cluster = strings.Repeat("x", 256) },
		"partition":     func(m *remote.SegmentMeta) { m.Segment.Partition.Index = -1 },
		"too big":       func(m *remote.SegmentMeta) { m.Producers = make([]byte, remote.MaxMetaSize) },
	} {
		_, m := sample(remote.ChunkSize * 2)
		spoil(m)
		if _, err := remote.EncodeMeta(m); tiers.KindOf(err) != tiers.InvalidRequest {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzDecodeMeta(f *testing.F) {
	golden, err := os.ReadFile(goldenMeta)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(golden, false)
	f.Add(golden, true)
	f.Add([]byte("SLSM"), true)
	f.Fuzz(func(t *testing.T, b []byte, fix bool) {
		if fix && len(b) >= 18 { // past the checksums
			b = resum(b, func([]byte) {})
		}
		m, err := remote.DecodeMeta(b)
		if err != nil {
			if kind := tiers.KindOf(err); kind != tiers.CorruptMessage && kind != tiers.UnsupportedVersion {
				t.Fatalf("%v has the kind %v", err, kind)
			}
			return
		}
		again, err := remote.EncodeMeta(m)
		if err != nil {
			t.Fatalf("what was decoded cannot be encoded: %v", err)
		}
		m2, err := remote.DecodeMeta(again)
		if err != nil {
			t.Fatal(err)
		}
		m.Segment.MetaSize, m2.Segment.MetaSize = 0, 0
		for _, p := range []*[]byte{&m.OffsetIndex, &m.TimeIndex, &m.TxnIndex, &m.Producers, &m2.OffsetIndex, &m2.TimeIndex, &m2.TxnIndex, &m2.Producers} {
			*p = append([]byte{}, *p...) // a section that is missing and one that is empty mean the same
		}
		if m.Lineage == nil {
			m.Lineage = tiers.Lineage{}
		}
		if !reflect.DeepEqual(m, m2) {
			t.Fatalf("%+v became %+v", m, m2)
		}
	})
}

package local

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/strandline-io/strandline/tiers"
)

// The files in testdata were written by another program from Kafka's
// descriptions of its formats, not by this package.
func golden(tb testing.TB, name string) []byte {
	tb.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	must(tb, err)
	return b
}

const (
	goldenIndex    = "00000000000000001000.index"
	goldenTimes    = "00000000000000001000.timeindex"
	goldenTxns     = "00000000000000001000.txnindex"
	goldenProducer = "00000000000000001014.snapshot"
)

var (
	topicB       = tiers.TopicID{0xb, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
	indexEntries = []offsetEntry{{41, 4150}, {83, 8300}, {math.MaxInt32, 1 << 30}}
	timeEntries  = []timeEntry{{1_700_000_000_000, 41}, {1_700_000_000_500, 83}, {1_700_000_000_501, 83}}
	txnEntries   = []AbortedTxn{{7, 1000, 1010, 1005}, {9, 1005, 1020, 1021}}
	snapEntries  = []snapshotEntry{
		{7, 1, 9, 1009, 9, 1_700_000_000_000, -1, -1},
		{7, 1, 12, 1012, 2, 1_700_000_000_100, -1, 1010},
		{9, 0, -1, -1, 0, 1_700_000_000_200, 3, -1},
		{11, 2, math.MaxInt32, 1013, 0, 1_700_000_000_300, -1, -1},
	}
	epochEntries  = tiers.Lineage{{Epoch: 0, Start: 0}, {Epoch: 3, Start: 120}, {Epoch: 4, Start: 1000}}
	offsetEntries = map[tiers.PartitionID]tiers.Offset{
		{Topic: topicA}: 1014, {Topic: topicA, Index: 11}: 0, {Topic: topicB, Index: 2}: math.MaxInt64,
	}
)

// checkGolden compares both ways.
func checkGolden[T any](t *testing.T, name string, want T, encode func(T) []byte, decode func([]byte) (T, error)) {
	t.Helper()
	b := golden(t, name)
	if got := encode(want); !bytes.Equal(got, b) {
		t.Errorf("%s: encoded\n%x, the file has\n%x", name, got, b)
	}
	got, err := decode(b)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%s: decoded %+v (%v), want %+v", name, got, err, want)
	}
}

func TestGoldenFiles(t *testing.T) {
	checkGolden(t, goldenIndex, indexEntries, encodeOffsetIndex, func(b []byte) ([]offsetEntry, error) { return decodeOffsetIndex(b, 1<<31) })
	checkGolden(t, goldenTimes, timeEntries, encodeTimeIndex, decodeTimeIndex)
	checkGolden(t, goldenTxns, txnEntries, encodeTxnIndex, decodeTxnIndex)
	checkGolden(t, goldenProducer, snapEntries, encodeSnapshot, decodeSnapshot)
	checkGolden(t, epochFile, epochEntries, encodeEpochs, decodeEpochs)
	checkGolden(t, recoveryPointFile, offsetEntries, encodeOffsets, decodeOffsets)
	checkGolden(t, metadataFile, metadata{topicA, 2, 5}, metadata.encode, decodeMetadata)
}

// A snapshot goes through the producer state and comes out as it was: also the
// several batches of one producer.
func TestGoldenSnapshotRoundTrip(t *testing.T) {
	p := newProducers("a-0")
	b := golden(t, goldenProducer)
	must(t, p.loadSnapshot(b, time.Time{}))
	if got := p.snapshot(); !bytes.Equal(got, b) {
		t.Errorf("wrote\n%x, read\n%x", got, b)
	}
	if p.firstUndecided(2000) != 1010 || len(p.byID) != 3 || p.byID[7].n != 2 || p.byID[9].n != 0 {
		t.Errorf("state %+v", p.byID)
	}
}

func TestDecodersRefuse(t *testing.T) {
	flip := func(name string, i int) []byte {
		b := bytes.Clone(golden(t, name))
		b[i] ^= 1
		return b
	}
	cases := map[string]error{}
	index := func(b []byte, size int64) error { _, err := decodeOffsetIndex(b, size); return err }
	cases["index: odd size"] = index(golden(t, goldenIndex)[:15], 1<<31)
	cases["index: zeros"] = index(make([]byte, 16), 1<<31)
	cases["index: position behind the log"] = index(golden(t, goldenIndex), 1<<30)
	cases["index: extended by zeros"] = index(append(golden(t, goldenIndex), make([]byte, 8)...), 1<<31)
	times := func(b []byte) error { _, err := decodeTimeIndex(b); return err }
	cases["timeindex: odd size"] = times(golden(t, goldenTimes)[:13])
	cases["timeindex: zeros"] = times(make([]byte, 24))
	cases["timeindex: negative"] = times(bytes.Repeat([]byte{0xff}, 12))
	txns := func(b []byte) error { _, err := decodeTxnIndex(b); return err }
	cases["txnindex: odd size"] = txns(golden(t, goldenTxns)[:35])
	cases["txnindex: version"] = txns(flip(goldenTxns, 1))
	cases["txnindex: zeros"] = txns(append(golden(t, goldenTxns), make([]byte, 34)...))
	snap := func(b []byte) error { _, err := decodeSnapshot(b); return err }
	cases["snapshot: empty"] = snap(nil)
	cases["snapshot: version"] = snap(flip(goldenProducer, 1))
	cases["snapshot: bit"] = snap(flip(goldenProducer, 40))
	cases["snapshot: cut"] = snap(golden(t, goldenProducer)[:60])
	epochs := func(s string) error { _, err := decodeEpochs([]byte(s)); return err }
	for _, s := range []string{"", "0\n", "1\n0\n", "0\n2\n1 0\n", "0\nx\n", "0\n1\n1\n", "0\n2\n2 0\n1 5\n", "0\n1\n-1 0\n", "0\n1\n1 0"} {
		cases["epochs: "+s] = epochs(s)
	}
	offsets := func(s string) error { _, err := decodeOffsets([]byte(s)); return err }
	id := topicA.Hex()
	for _, s := range []string{"", "0\n1\n", "0\n1\n" + id + " 0\n", "0\n1\nzz 0 1\n", "0\n1\n" + id + " -1 1\n", "0\n1\n" + id + " 0 -1\n", "0\n2\n" + id + " 0 1\n" + id + " 0 2\n"} {
		cases["offsets: "+s] = offsets(s)
	}
	meta := func(s string) error { _, err := decodeMetadata([]byte(s)); return err }
	for _, s := range []string{"", "version: 1\ntopic_id: CgECAwQFBgcICQoLDA0ODw\nhistory_gen: 2\n", "version: 0\n", "version: 0\ntopic_id: x\n", "version: 0\ntopic_id: CgECAwQFBgcICQoLDA0ODw\nhistory_gen: x\n"} {
		cases["metadata: "+s] = meta(s)
	}
	for name, err := range cases {
		if err == nil {
			t.Errorf("%q was accepted", name)
		}
	}
}

// A damaged epoch checkpoint still tells what stands before the damage.
func TestReport117EpochPrefix(t *testing.T) {
	l, err := decodeEpochs([]byte("0\n3\n0 0\n3 120\n4 10"))
	if err == nil || l.String() != "{0:0, 3:120}" {
		t.Errorf("%s, %v", l, err)
	}
}

func FuzzOffsetIndex(f *testing.F) {
	f.Add(golden(f, goldenIndex))
	f.Add(make([]byte, 16))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := decodeOffsetIndex(b, 1<<31)
		if err == nil && !bytes.Equal(encodeOffsetIndex(e), b) {
			t.Errorf("%x was read as %v", b, e)
		}
	})
}

func FuzzTimeIndex(f *testing.F) {
	f.Add(golden(f, goldenTimes))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := decodeTimeIndex(b)
		if err == nil && !bytes.Equal(encodeTimeIndex(e), b) {
			t.Errorf("%x was read as %v", b, e)
		}
	})
}

func FuzzTxnIndex(f *testing.F) {
	f.Add(golden(f, goldenTxns))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := decodeTxnIndex(b)
		if err == nil && !bytes.Equal(encodeTxnIndex(e), b) {
			t.Errorf("%x was read as %v", b, e)
		}
	})
}

func FuzzProducerSnapshot(f *testing.F) {
	f.Add(golden(f, goldenProducer))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= snapshotHead { // let it through the CRC
			b = bytes.Clone(b)
			sum := snapshotCRC(b)
			b[2], b[3], b[4], b[5] = byte(sum>>24), byte(sum>>16), byte(sum>>8), byte(sum)
		}
		e, err := decodeSnapshot(b)
		if err == nil && !bytes.Equal(encodeSnapshot(e), b) {
			t.Errorf("%x was read as %v", b, e)
		}
		p := newProducers("f")
		if p.loadSnapshot(b, time.Time{}) == nil {
			again := newProducers("f")
			once := p.snapshot()
			must(t, again.loadSnapshot(once, time.Time{}))
			if !bytes.Equal(again.snapshot(), once) {
				t.Errorf("%x does not settle", b)
			}
		}
	})
}

func FuzzEpochCheckpoint(f *testing.F) {
	f.Add(golden(f, epochFile))
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := decodeEpochs(b)
		if l.Valid() != nil {
			t.Errorf("%q was read as %s", b, l)
		}
		if err != nil {
			return
		}
		if again, err := decodeEpochs(encodeEpochs(l)); err != nil || again.String() != l.String() {
			t.Errorf("%s came back as %s, %v", l, again, err)
		}
	})
}

func FuzzOffsetCheckpoint(f *testing.F) {
	f.Add(golden(f, recoveryPointFile))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeOffsets(b)
		if err != nil {
			return
		}
		if again, err := decodeOffsets(encodeOffsets(m)); err != nil || !reflect.DeepEqual(again, m) {
			t.Errorf("%v came back as %v, %v", m, again, err)
		}
	})
}

func FuzzPartitionMetadata(f *testing.F) {
	f.Add(golden(f, metadataFile))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeMetadata(b)
		if err != nil {
			return
		}
		if again, err := decodeMetadata(m.encode()); err != nil || again != m {
			t.Errorf("%v came back as %v, %v", m, again, err)
		}
	})
}

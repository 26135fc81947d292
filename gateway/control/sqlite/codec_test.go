package sqlite

import (
	"bytes"
	"encoding/hex"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/tiers"
)

// The bytes that docs/format/control-plane.md shows.
const (
	goldenLineage = "03" + "00" + "64" + "02" + "0a" + "01" + "ac02"
	goldenTopic   = "01" + "000102030405060708090a0b0c0d0e0f" + "0174" + "07" + "80a8a8949567" +
		"02" + "0161" + "0131" + "0162" + "00" + "02" + "01010000" + "020105808080808080808040"
	goldenRaised = "02" + "000102030405060708090a0b0c0d0e0f" + "03" + "02" + "808080808080808040"
)

func lineage() tiers.Lineage {
	return tiers.Lineage{{Epoch: 0, Start: 100}, {Epoch: 2, Start: 110}, {Epoch: 3, Start: 410}}
}

func topic() control.Topic {
	return control.Topic{
		ID: tiers.TopicID{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, Name: "t", Rev: 7,
		CreatedAt: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), Configs: map[string]string{"b": "", "a": "1"},
		Partitions: []control.Partition{{Index: 0, Gen: 1, Leader: 1}, {Index: 1, Gen: 2, Leader: 1, Epoch: 5, LogStart: 1 << 62}},
	}
}

func raised() control.Raised {
	return control.Raised{Partition: tiers.PartitionID{Topic: topic().ID, Index: 3}, Gen: 2, LogStart: 1 << 62}
}

func TestGoldenLogStart(t *testing.T) {
	if got := hex.EncodeToString(encodeChange(control.Change{Rev: 7, Raised: new(raised())})); got != goldenRaised {
		t.Errorf("log start %s", got)
	}
	b, err := hex.DecodeString(goldenRaised)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := decodeChange(b); err != nil || !reflect.DeepEqual(got, control.Change{Raised: new(raised())}) {
		t.Errorf("log start %+v, %v", got, err)
	}
	for n := range b {
		if got, err := decodeChange(b[:n]); err == nil {
			t.Errorf("the first %d bytes are %+v", n, got)
		}
	}
	if got, err := decodeChange(append(b, 0)); err == nil {
		t.Errorf("a byte left over: %+v", got)
	}
	if got, err := decodeChange(encodeTopic(topic())); err != nil || !reflect.DeepEqual(got, control.Change{Topic: topic()}) {
		t.Errorf("topic %+v, %v", got, err)
	}
}

func TestGoldenColumns(t *testing.T) {
	if got := hex.EncodeToString(encodeLineage(lineage())); got != goldenLineage {
		t.Errorf("lineage %s", got)
	}
	if got := hex.EncodeToString(encodeTopic(topic())); got != goldenTopic {
		t.Errorf("topic %s", got)
	}
	b, err := hex.DecodeString(goldenLineage)
	if err != nil {
		t.Fatal(err)
	}
	if l, lerr := decodeLineage(b); lerr != nil || !reflect.DeepEqual(l, lineage()) {
		t.Errorf("lineage %s, %v", l, lerr)
	}
	if b, err = hex.DecodeString(goldenTopic); err != nil {
		t.Fatal(err)
	}
	if got, err := decodeTopic(b); err != nil || !reflect.DeepEqual(got, topic()) {
		t.Errorf("topic %+v, %v", got, err)
	}
	for n := range b {
		if got, err := decodeTopic(b[:n]); err == nil {
			t.Errorf("the first %d bytes are %+v", n, got)
		}
	}
	l := encodeLineage(lineage())
	for n := range l {
		if got, err := decodeLineage(l[:n]); err == nil {
			t.Errorf("the first %d bytes are %s", n, got)
		}
	}
}

// TestDecodersRefuse shows that lengths are checked before anything is made for
// them, and that what no encoder writes is refused.
func TestDecodersRefuse(t *testing.T) {
	for name, b := range map[string][]byte{
		"count above the limit": {0xff, 0xff, 0xff, 0x7f}, "count above what follows": {0x80, 0x80, 0x04},
		"bytes left over": {0, 0}, "epoch twice": {2, 1, 1, 0, 1}, "start twice": {2, 1, 1, 1, 0},
		"epoch too large": {2, 0xff, 0xff, 0xff, 0xff, 7, 1, 1, 1}, "endless number": bytes.Repeat([]byte{0xff}, 40),
		"start too large": append([]byte{2, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}, 1, 1),
	} {
		if l, err := decodeLineage(b); err == nil {
			t.Errorf("%s: %s", name, l)
		}
	}
	good := encodeTopic(topic())
	for name, change := range map[string]func(b []byte) []byte{
		"version":    func(b []byte) []byte { b[0] = 2; return b },
		"name":       func(b []byte) []byte { return append(b[:17:17], 0xff, 0x7f) },
		"left over":  func(b []byte) []byte { return append(b, 0) },
		"partitions": func(b []byte) []byte { return append(b[:len(b)-17:len(b)-17], 0xff, 0xff, 0x7f) },
	} {
		if got, err := decodeTopic(change(bytes.Clone(good))); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func FuzzLineage(f *testing.F) {
	f.Add(encodeLineage(lineage()))
	f.Add([]byte{0})
	f.Add(encodeLineage(tiers.Lineage{{Epoch: math.MaxInt32, Start: math.MaxInt64}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := decodeLineage(b)
		if err != nil {
			return
		}
		if err = l.Valid(); err != nil {
			t.Fatal(err)
		}
		again, err := decodeLineage(encodeLineage(l))
		if err != nil || !reflect.DeepEqual(again, l) {
			t.Fatalf("%s became %s, %v", l, again, err)
		}
	})
}

func FuzzTopic(f *testing.F) {
	f.Add(encodeTopic(topic()))
	f.Add(encodeTopic(control.Topic{Name: strings.Repeat("n", 249)}.Clone()))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := decodeTopic(b)
		if err != nil {
			return
		}
		again, err := decodeTopic(encodeTopic(got))
		if err != nil || !reflect.DeepEqual(again, got) {
			t.Fatalf("%+v became %+v, %v", got, again, err)
		}
	})
}

func FuzzChange(f *testing.F) {
	f.Add(encodeTopic(topic()))
	f.Add(encodeChange(control.Change{Raised: new(raised())}))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := decodeChange(b)
		if err != nil {
			return
		}
		again, err := decodeChange(encodeChange(got))
		if err != nil || !reflect.DeepEqual(again, got) {
			t.Fatalf("%+v became %+v, %v", got, again, err)
		}
	})
}

package control

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/strandline-io/strandline/tiers"
)

func sampleTopic() Topic {
	return Topic{
		ID: tiers.TopicID{1, 2, 3}, Name: "orders", Configs: map[string]string{"segment.bytes": "1048576", "strandline.ack": "fsync"},
		Partitions: []Partition{{Index: 0, Gen: 1, Leader: 1, Epoch: 4, LogStart: 0}, {Index: 1, Gen: 2, Leader: 1, Epoch: 5, LogStart: 40}},
		Rev:        7, CreatedAt: time.UnixMilli(1_700_000_000_123).UTC(),
	}
}

func sampleState() State {
	p := tiers.PartitionID{Topic: tiers.TopicID{1, 2, 3}, Index: 1}
	return State{
		Cluster: "AAECAwQFBgcICQoLDA0ODw", Rev: 9, NextProducer: 3000, Topics: []Topic{sampleTopic()},
		Segments: []tiers.RemoteSegment{{
			ID: tiers.SegmentID{9, 8}, Partition: p, Gen: 2, Base: 40, End: 100,
			Epochs: tiers.Lineage{{Epoch: 2, Start: 40}, {Epoch: 5, Start: 80}}, State: tiers.CopyFinished,
			MaxTimestamp: 1_700_000_000_999, Size: 4096, MetaSize: 512, CRC32C: 0xdeadbeef, HasAborted: true,
			CopierEpoch: 5, Copier: 1, CreatedAt: time.UnixMilli(1_700_000_001_000).UTC(),
		}},
		Offsets: []OffsetCommit{{
			Group: "billing", Partition: p, Gen: 2, Offset: 77, Epoch: 5, Metadata: "m", At: time.UnixMilli(1_700_000_002_000).UTC(),
		}},
	}
}

func sampleClaim() []byte {
	body := []byte(`{"cluster":"AAECAwQFBgcICQoLDA0ODw","generation":3,"node":1,"instance":"i","put_id":"p","released":true,"at":"2026-05-04T03:02:01Z"}`)
	raw, err := kindClaim.seal(body, false)
	if err != nil {
		panic(err)
	}
	return raw
}

// TestGoldenControlObjects: what earlier versions wrote is read, and what is
// written is what they wrote. Snapshots are compressed, so there only reading is
// compared byte for byte.
func TestGoldenControlObjects(t *testing.T) {
	change, err := encodeChange(Change{Rev: 7, Topic: sampleTopic()})
	if err != nil {
		t.Fatal(err)
	}
	snapshot, err := encodeSnapshot(sampleState())
	if err != nil {
		t.Fatal(err)
	}
	golden := func(name string, raw []byte) []byte {
		file := filepath.Join("testdata", name)
		if os.Getenv("STRANDLINE_UPDATE_GOLDEN") != "" {
			if err := os.WriteFile(file, raw, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	if got := golden("change-v1", change); !bytes.Equal(got, change) {
		t.Errorf("change: %q, want %q", change, got)
	}
	if got, err := decodeChange(golden("change-v1", change)); err != nil || !reflect.DeepEqual(got, Change{Rev: 7, Topic: sampleTopic()}) {
		t.Errorf("change: %+v, %v", got, err)
	}
	if got, err := decodeSnapshot(golden("snapshot-v1", snapshot)); err != nil || !reflect.DeepEqual(got, sampleState()) {
		t.Errorf("snapshot: %+v, %v", got, err)
	}
	if got, err := decodeClaim(golden("claim-v1", sampleClaim())); err != nil || got.Generation != 3 || !got.Released || got.PutID != "p" {
		t.Errorf("claim: %+v, %v", got, err)
	}
}

func TestEnvelopeRefusesEveryDamage(t *testing.T) {
	raw, err := kindSnapshot.seal([]byte(`{"a":"body that compresses body that compresses"}`), true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kindSnapshot.open(raw); err != nil {
		t.Fatal(err)
	}
	for i := range raw {
		for bit := range 8 {
			bad := bytes.Clone(raw)
			bad[i] ^= 1 << bit
			if _, err := kindSnapshot.open(bad); err == nil {
				t.Fatalf("bit %d of byte %d was flipped and nothing was noticed", bit, i)
			}
		}
	}
	for n := range raw {
		if _, err := kindSnapshot.open(raw[:n]); err == nil {
			t.Fatalf("cut to %d bytes and nothing was noticed", n)
		}
	}
	if _, err := kindClaim.open(raw); err == nil {
		t.Fatal("a snapshot was taken for a claim")
	}
}

func TestEnvelopeVersions(t *testing.T) {
	edit := func(f func(b []byte)) error {
		raw, err := kindChange.seal([]byte("{}"), false)
		if err != nil {
			t.Fatal(err)
		}
		f(raw)
		binary.BigEndian.PutUint32(raw[24:], sum(raw[:24]))
		_, err = kindChange.open(raw)
		return err
	}
	if err := edit(func(b []byte) { b[5] = 9 }); err != nil {
		t.Error("a later minor version is read:", err)
	}
	if err := edit(func(b []byte) { b[4] = 2 }); err == nil {
		t.Error("another major version was read")
	}
	if err := edit(func(b []byte) { b[11] = 2 }); err == nil {
		t.Error("a flag that must be understood was passed over")
	}
	if err := edit(func(b []byte) { b[8] = 2 }); err != nil {
		t.Error("a flag that may be passed over:", err)
	}
}

func FuzzControlObjects(f *testing.F) {
	change, err := encodeChange(Change{Rev: 7, Topic: sampleTopic()})
	if err != nil {
		f.Fatal(err)
	}
	snapshot, err := encodeSnapshot(sampleState())
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range [][]byte{change, snapshot, sampleClaim()} {
		f.Add(seed[envelopeHeader:], seed)
	}
	f.Fuzz(func(t *testing.T, body, whole []byte) {
		raws := [][]byte{whole}
		for _, k := range []envelopeKind{kindChange, kindClaim, kindSnapshot} {
			raw, err := k.seal(body, false)
			if err != nil {
				t.Fatal(err)
			}
			raws = append(raws, raw)
		}
		for _, raw := range raws {
			if c, err := decodeChange(raw); err == nil && c.Rev < 1 {
				t.Fatal("change without a revision")
			}
			if st, err := decodeSnapshot(raw); err == nil && st.Valid() != nil {
				t.Fatal("invalid snapshot")
			}
			if c, err := decodeClaim(raw); err == nil && c.Generation < 1 {
				t.Fatal("claim without a generation")
			}
		}
	})
}

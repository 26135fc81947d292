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

// sampleRaised is what one object carries: the revisions 8 and 9.
func sampleRaised() []Change {
	p := func(i int32) tiers.PartitionID { return tiers.PartitionID{Topic: tiers.TopicID{1, 2, 3}, Index: i} }
	return []Change{
		{Rev: 8, Raised: &Raised{Partition: p(0), Gen: 1, LogStart: 1 << 40}},
		{Rev: 9, Raised: &Raised{Partition: p(1), Gen: 2, LogStart: 41}},
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
	change, err := encodeChanges([]Change{{Rev: 7, Topic: sampleTopic()}})
	if err != nil {
		t.Fatal(err)
	}
	raised, err := encodeChanges(sampleRaised())
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
	if got, err := decodeChanges(golden("change-v1", change)); err != nil || !reflect.DeepEqual(got, []Change{{Rev: 7, Topic: sampleTopic()}}) {
		t.Errorf("change: %+v, %v", got, err)
	}
	if got := golden("change-log-starts-v1", raised); !bytes.Equal(got, raised) {
		t.Errorf("log starts: %q, want %q", raised, got)
	}
	if got, err := decodeChanges(golden("change-log-starts-v1", raised)); err != nil || !reflect.DeepEqual(got, sampleRaised()) {
		t.Errorf("log starts: %+v, %v", got, err)
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
	change, err := encodeChanges([]Change{{Rev: 7, Topic: sampleTopic()}})
	if err != nil {
		f.Fatal(err)
	}
	raised, err := encodeChanges(sampleRaised())
	if err != nil {
		f.Fatal(err)
	}
	snapshot, err := encodeSnapshot(sampleState())
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range [][]byte{change, raised, snapshot, sampleClaim()} {
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
			if cs, err := decodeChanges(raw); err == nil {
				soundChanges(t, cs)
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

// soundChanges checks what replay builds on.
func soundChanges(t *testing.T, cs []Change) {
	t.Helper()
	if len(cs) == 0 {
		t.Fatal("an object without a change")
	}
	for i, c := range cs {
		if c.Rev < 1 || c.Rev != cs[0].Rev+Rev(i) || (c.Raised == nil) == c.Topic.ID.IsZero() || len(cs) > 1 && c.Raised == nil {
			t.Fatalf("change %+v at %d of %d", c, i, len(cs))
		}
		if r := c.Raised; r != nil && (r.Partition.Topic.IsZero() || r.Partition.Index < 0 || r.Gen < 1 || r.LogStart < 0) {
			t.Fatalf("log start %+v", *r)
		}
		st := State{Topics: []Topic{{ID: c.Topic.ID, Partitions: make([]Partition, 1)}}}
		st.apply(c)
	}
}

// TestChangesThatNobodyWrote are refused, not guessed at.
func TestChangesThatNobodyWrote(t *testing.T) {
	const topic, start = `{"id":"01020300000000000000000000000000","name":"t"}`, `{"topic":"01020300000000000000000000000000","partition":0,"gen":1,"log_start":5}`
	for name, body := range map[string]string{
		"nothing in it":             `{"rev":3}`,
		"both":                      `{"rev":3,"topic":` + topic + `,"log_starts":[` + start + `]}`,
		"more log starts than revs": `{"rev":1,"log_starts":[` + start + `,` + start + `]}`,
		"a deleted log start":       `{"rev":3,"deleted":true,"log_starts":[` + start + `]}`,
		"no topic":                  `{"rev":3,"log_starts":[{"topic":"00000000000000000000000000000000","gen":1,"log_start":5}]}`,
		"negative partition":        `{"rev":3,"log_starts":[{"topic":"01020300000000000000000000000000","partition":-1,"gen":1,"log_start":5}]}`,
		"no history":                `{"rev":3,"log_starts":[{"topic":"01020300000000000000000000000000","log_start":5}]}`,
		"negative log start":        `{"rev":3,"log_starts":[{"topic":"01020300000000000000000000000000","gen":1,"log_start":-5}]}`,
	} {
		raw, err := kindChange.seal([]byte(body), false)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := decodeChanges(raw); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

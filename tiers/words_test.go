package tiers

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func ladder() Watermarks {
	return Watermarks{LogStart: 10, LocalLogStart: 20, RemoteEnd: 30, LastStable: 40, HighWatermark: 50, LogEnd: 60}
}

// B1, B2, B8 and B9, each broken alone and named.
func TestWatermarksValid(t *testing.T) {
	if err := ladder().Valid(); err != nil {
		t.Fatal(err)
	}
	if err := (Watermarks{}).Valid(); err != nil {
		t.Fatalf("an empty log: %v", err)
	}
	for _, c := range []struct {
		label string
		bend  func(*Watermarks)
	}{
		{"B1", func(w *Watermarks) { w.LogStart = 21 }},
		{"B1", func(w *Watermarks) { *w = Watermarks{LogStart: -1, RemoteEnd: -1} }},
		{"B1", func(w *Watermarks) { w.LocalLogStart = 61 }},
		{"B2", func(w *Watermarks) { w.LogStart, w.LocalLogStart, w.LastStable = 55, 60, 54 }},
		{"B2", func(w *Watermarks) { w.LogStart, w.LocalLogStart = 45, 45 }}, // Below the high watermark, but not decided.
		{"B2", func(w *Watermarks) { w.LastStable = 51 }},
		{"B2", func(w *Watermarks) { w.HighWatermark = 61 }},
		{"B8", func(w *Watermarks) { w.RemoteEnd = 19 }},
		{"B9", func(w *Watermarks) { w.RemoteEnd = 41 }},
		{"B9", func(w *Watermarks) { *w = Watermarks{RemoteEnd: 1} }},
	} {
		w := ladder()
		c.bend(&w)
		if err := w.Valid(); err == nil || !strings.HasPrefix(err.Error(), c.label) {
			t.Errorf("%+v: %v, want %s", w, err, c.label)
		}
	}
}

func TestWatermarksValidAtTheEdges(t *testing.T) {
	for _, w := range []Watermarks{
		{LogStart: 20, LocalLogStart: 20, RemoteEnd: 20, LastStable: 20, HighWatermark: 20, LogEnd: 20},
		{LogStart: 10, LocalLogStart: 20, RemoteEnd: 20, LastStable: 20, HighWatermark: 20, LogEnd: 20}, // All records are remote.
		{LogStart: 20, LocalLogStart: 20, RemoteEnd: 0, LastStable: 20, HighWatermark: 20, LogEnd: 30},
	} {
		if err := w.Valid(); err != nil {
			t.Errorf("%+v: %v", w, err)
		}
	}
}

func remoteSegment() RemoteSegment {
	return RemoteSegment{Base: 50, End: 100, Epochs: lin(0, 50, 2, 80), State: CopyFinished, Size: 7}
}

func TestRemoteSegmentValid(t *testing.T) {
	if err := remoteSegment().Valid(); err != nil {
		t.Fatal(err)
	}
	started := remoteSegment()
	started.State, started.Size = CopyStarted, 0
	if err := started.Valid(); err != nil {
		t.Fatalf("the size is not known before the copy: %v", err)
	}
	for name, bend := range map[string]func(*RemoteSegment){
		"empty range":           func(s *RemoteSegment) { s.End = 50 },
		"negative base":         func(s *RemoteSegment) { s.Base = -1; s.Epochs = lin(0, -1) },
		"no bytes":              func(s *RemoteSegment) { s.Size = 0 },
		"no lineage":            func(s *RemoteSegment) { s.Epochs = nil },
		"lineage starts late":   func(s *RemoteSegment) { s.Epochs = lin(0, 51) },
		"lineage starts early":  func(s *RemoteSegment) { s.Epochs = lin(0, 49) },
		"epoch behind the end":  func(s *RemoteSegment) { s.Epochs = lin(0, 50, 2, 100) },
		"lineage falls":         func(s *RemoteSegment) { s.Epochs = lin(3, 50, 2, 80) },
		"lineage stands still":  func(s *RemoteSegment) { s.Epochs = lin(0, 50, 2, 50) },
		"negative leader epoch": func(s *RemoteSegment) { s.Epochs = lin(-1, 50) },
	} {
		s := remoteSegment()
		bend(&s)
		if s.Valid() == nil {
			t.Errorf("%s: %+v passes", name, s)
		}
	}
}

// s6.1, all sixteen transitions and the states that do not exist.
func TestSegmentStateMoves(t *testing.T) {
	legal := map[[2]SegmentState]bool{
		{CopyStarted, CopyFinished}: true, {CopyStarted, DeleteStarted}: true, {CopyFinished, DeleteStarted}: true, {DeleteStarted, DeleteFinished}: true,
		{CopyStarted, CopyStarted}: true, {CopyFinished, CopyFinished}: true, {DeleteStarted, DeleteStarted}: true, {DeleteFinished, DeleteFinished}: true,
	}
	for from := SegmentState(0); from <= DeleteFinished+1; from++ {
		for to := SegmentState(0); to <= DeleteFinished+1; to++ {
			if got := from.CanMove(to); got != legal[[2]SegmentState{from, to}] {
				t.Errorf("%s to %s: %v", from, to, got)
			}
		}
	}
}

func TestKindNames(t *testing.T) {
	seen := map[string]Kind{}
	for k := range Kind(len(kindNames)) {
		s := k.String()
		if was, twice := seen[s]; twice || s == "" {
			t.Errorf("kind %d is %q, as kind %d", k, s, was)
		}
		seen[s] = k
	}
	if s, want := Kind(len(kindNames)).String(), fmt.Sprintf("kind(%d)", len(kindNames)); s != want {
		t.Errorf("a kind too many is %q", s)
	}
	for k, want := range map[Kind]string{Closed: "closed", StaleFence: "stale fence", InvalidRecord: "invalid record", OffsetNotAvailable: "offset not available", TopicExists: "topic already exists", OffsetMetadataTooLarge: "offset metadata too large"} {
		if k.String() != want {
			t.Errorf("kind %d is %q, want %q", k, k, want)
		}
	}
}

func TestErrorText(t *testing.T) {
	for _, c := range []struct {
		err  *Error
		want string
	}{
		{E(StorageFailed, "append", "t-0", "sync: %w", io.ErrShortWrite), "append t-0: storage failed: sync: short write"},
		{E(Other, "append", "t-0", "%w", io.EOF), "append t-0: EOF"},
		{E(NotLeader, "append", "", ""), "append: not the leader"},
		{E(NotLeader, "", "", ""), "not the leader"},
		{E(Other, "", "", ""), "error"},
		{E(Other, "", "t-0", ""), "t-0: error"},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

func TestErrorKeepsItsCause(t *testing.T) {
	inner := E(CorruptMessage, "read", "0.log", "%w", io.ErrUnexpectedEOF)
	outer := fmt.Errorf("again: %w", E(Other, "fetch", "t-0", "%w", inner))
	if !errors.Is(outer, io.ErrUnexpectedEOF) {
		t.Error("the cause is lost")
	}
	if k := KindOf(outer); k != CorruptMessage {
		t.Errorf("kind %s: an error that knows no kind must not hide that of its cause", k)
	}
	if k := KindOf(E(NotLeader, "", "", "%w", inner)); k != NotLeader {
		t.Errorf("kind %s, the outermost counts", k)
	}
	for _, err := range []error{nil, io.EOF, E(Other, "", "", "%w", io.EOF)} {
		if k := KindOf(err); k != Other {
			t.Errorf("%v: %s", err, k)
		}
	}
	if k := KindOf(errors.Join(io.EOF, inner)); k != CorruptMessage {
		t.Errorf("joined: %s", k)
	}
}

func TestIDsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var id TopicID
		copy(id[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
		for _, s := range []string{id.String(), id.Hex()} {
			if got, err := ParseTopicID(s); err != nil || got != id {
				t.Fatalf("%q: %v, %v", s, got, err)
			}
		}
		if got, err := ParseSegmentID(SegmentID(id).String()); err != nil || got != SegmentID(id) {
			t.Fatalf("%v, %v", got, err)
		}
	})
}

func TestIDsHaveOneSpelling(t *testing.T) {
	one := TopicID{15: 1}
	if one.String() != "AAAAAAAAAAAAAAAAAAAAAQ" || one.Hex() != "00000000000000000000000000000001" || one.IsZero() || !(TopicID{}).IsZero() {
		t.Fatalf("%s %s", one, one.Hex())
	}
	for _, s := range []string{
		"", "x", "AAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAR", // The last has bits behind the id.
		"AAAAAAAAAAAAAAAAAAAA\r\n", "AAAAAAAAAAAAAAAAAAAAA+", "AAAAAAAAAAAAAAAAAAAAA=",
		"0000000000000000000000000000000A", "0000000000000000000000000000000g", "../../../../../../../../../../etc",
	} {
		if id, err := ParseTopicID(s); err == nil {
			t.Errorf("topic %q is %s", s, id)
		}
		if id, err := ParseSegmentID(s); err == nil {
			t.Errorf("segment %q is %s", s, id)
		}
	}
}

func FuzzParseIDs(f *testing.F) {
	f.Add("AAAAAAAAAAAAAAAAAAAAAQ")
	f.Add("00000000000000000000000000000001")
	f.Fuzz(func(t *testing.T, s string) {
		if id, err := ParseTopicID(s); err == nil && id.String() != s && id.Hex() != s {
			t.Fatalf("%q is read as %s", s, id)
		}
		if id, err := ParseSegmentID(s); err == nil && id.Hex() != s {
			t.Fatalf("%q is read as %s", s, id)
		}
	})
}

func TestPlaceNames(t *testing.T) {
	if s := (TopicPartition{"orders", 3}).String(); s != "orders-3" {
		t.Error(s)
	}
	if s := (PartitionID{TopicID{15: 1}, 3}).String(); s != "AAAAAAAAAAAAAAAAAAAAAQ-3" {
		t.Error(s)
	}
	for s, want := range map[SegmentState]string{CopyStarted: "copy-started", CopyFinished: "copy-finished", DeleteStarted: "delete-started", DeleteFinished: "delete-finished", 9: "state(9)"} {
		if s.String() != want {
			t.Errorf("%d is %q", uint8(s), s)
		}
	}
}

package remote_test

import (
	"bytes"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/remote"
)

func TestSegmentKeys(t *testing.T) {
	t.Parallel()
	_, m := sample(1)
	const stem = "topics/10200000000000000000000000000030/0000000007/0000000002/00000000000000001000-0000000005-aa0102030405060708090a0b0c0d0eff"
	if got := remote.SegmentKey(m.Segment); got != stem+".log" {
		t.Fatal(got)
	}
	if got := remote.MetaKey(m.Segment); got != stem+".meta" {
		t.Fatal(got)
	}
	if got := remote.PartitionPrefix(m.Segment.Partition); !strings.HasPrefix(stem, got) || got != "topics/10200000000000000000000000000030/0000000007/" {
		t.Fatal(got)
	}
}

func drawSegment(t *rapid.T) tiers.RemoteSegment {
	var s tiers.RemoteSegment
	copy(s.ID[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
	copy(s.Partition.Topic[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "topic"))
	s.Partition.Index = rapid.Int32Min(0).Draw(t, "partition")
	s.Gen = tiers.HistoryGen(rapid.Int32Min(0).Draw(t, "gen"))
	s.Base = tiers.Offset(rapid.Int64Min(0).Draw(t, "base"))
	s.CopierEpoch = tiers.LeaderEpoch(rapid.Int32Min(0).Draw(t, "epoch"))
	return s
}

// A key tells all that it was made of, is legal, and sorts as its numbers do.
func TestParseKeyRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := drawSegment(t)
		for _, meta := range []bool{false, true} {
			key := remote.SegmentKey(s)
			if meta {
				key = remote.MetaKey(s)
			}
			if err := remote.CheckKey(key); err != nil {
				t.Fatal(err)
			}
			got, err := remote.ParseKey(key)
			want := remote.SegmentName{Partition: s.Partition, Gen: s.Gen, Base: s.Base, Epoch: s.CopierEpoch, ID: s.ID, Meta: meta}
			if err != nil || got != want {
				t.Fatalf("%s: %+v, %v, want %+v", key, got, err, want)
			}
		}
		other := s
		other.Base = tiers.Offset(rapid.Int64Min(0).Draw(t, "other base"))
		if (s.Base < other.Base) != (remote.SegmentKey(s) < remote.SegmentKey(other)) && s.Base != other.Base {
			t.Fatalf("%s and %s are not in the order of their offsets", remote.SegmentKey(s), remote.SegmentKey(other))
		}
	})
}

func TestParseKeyRefuses(t *testing.T) {
	t.Parallel()
	_, m := sample(1)
	good := remote.SegmentKey(m.Segment)
	for _, key := range []string{
		"", "cluster/claim", good + "x", "x" + good, good[1:], strings.ToUpper(good), strings.Replace(good, "aa01", "AA01", 1),
		strings.Replace(good, "0000000007", "4294967296", 1), strings.Replace(good, "0000000007", "+000000007", 1),
		strings.Replace(good, "00000000000000001000", "9223372036854775808", 1), strings.Replace(good, "00000000000000001000", "99999999999999999999", 1),
		strings.Replace(good, ".log", ".index", 1), strings.Replace(good, "/", "//", 1), good + "\n",
	} {
		if got, err := remote.ParseKey(key); !errors.Is(err, remote.ErrBadKey) {
			t.Errorf("%q: %+v, %v", key, got, err)
		}
	}
}

func FuzzParseKey(f *testing.F) {
	_, m := sample(1)
	f.Add(remote.SegmentKey(m.Segment))
	f.Add(remote.MetaKey(m.Segment))
	f.Fuzz(func(t *testing.T, key string) {
		n, err := remote.ParseKey(key)
		if err != nil {
			return
		}
		again := remote.SegmentKey(n.Segment())
		if n.Meta {
			again = remote.MetaKey(n.Segment())
		}
		if again != key || remote.CheckKey(key) != nil {
			t.Fatalf("%q became %q", key, again)
		}
	})
}

func TestCheckKey(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"a", "a/b", "AZaz09._=-/x", strings.Repeat("x", 200), strings.Repeat("a/", 511) + "ab", "...", ".a"} {
		if err := remote.CheckKey(key); err != nil {
			t.Errorf("%v", err)
		}
	}
	for _, key := range []string{"", "/", "/a", "a/", "a//b", "a b", "ä", "a\x00", ".", "..", "a/../b", "a/./b", "a\\b", "~", "a:b", strings.Repeat("x", 201), strings.Repeat("a/", 512) + "a"} {
		if err := remote.CheckKey(key); !errors.Is(err, remote.ErrBadKey) {
			t.Errorf("%q: %v", key, err)
		}
	}
}

func TestBodies(t *testing.T) {
	t.Parallel()
	all := []byte("0123456789")
	for _, b := range []remote.Body{remote.BytesBody(all[2:8]), remote.ReaderAtBody(bytes.NewReader(all), 2, 6), remote.WithCRC(remote.BytesBody(all[2:8]), 7)} {
		if b.Size() != 6 {
			t.Fatalf("size %d", b.Size())
		}
		for range 2 { // a body can be opened again
			r, err := b.Open(1, 3)
			must(t, err)
			got, err := io.ReadAll(r)
			must(t, err)
			_, err = r.Seek(1, io.SeekStart)
			must(t, err)
			rest, err := io.ReadAll(r)
			must(t, err)
			must(t, r.Close())
			if string(got) != "345" || string(rest) != "45" {
				t.Fatalf("%q, after a seek %q", got, rest)
			}
		}
		for _, bad := range [][2]int64{{-1, 1}, {0, 7}, {6, 1}, {0, -1}} {
			if _, err := b.Open(bad[0], bad[1]); !errors.Is(err, remote.ErrRange) {
				t.Fatalf("open %v: %v", bad, err)
			}
		}
	}
}

func TestBodyCRC(t *testing.T) {
	t.Parallel()
	records, _ := sample(300_000)
	for name, c := range map[string]struct {
		body remote.Body
		want uint32
	}{
		"vector of RFC 3720": {remote.BytesBody([]byte("123456789")), 0xe3069283},
		"empty":              {remote.BytesBody(nil), 0},
		"long":               {remote.BytesBody(records), remote.CRC32C(records)},
		"known":              {remote.WithCRC(remote.BytesBody(records), 42), 42},
	} {
		if got, err := remote.BodyCRC32C(c.body); err != nil || got != c.want {
			t.Errorf("%s: %08x, %v, want %08x", name, got, err, c.want)
		}
	}
	if _, err := remote.BodyCRC32C(remote.ReaderAtBody(bytes.NewReader(records), 299_999, 2)); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatalf("a body that is too short: %v", err)
	}
}

func TestSpan(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		r              remote.Range
		size, off, end int64
		err            error
	}{
		{remote.Range{}, 0, 0, 0, nil},
		{remote.Range{}, 10, 0, 10, nil},
		{remote.Range{Off: 3}, 10, 3, 10, nil},
		{remote.Range{Off: 3, Len: 4}, 10, 3, 7, nil},
		{remote.Range{Off: 9, Len: math.MaxInt64}, 10, 9, 10, nil},
		{remote.Range{Off: 10}, 10, 0, 0, remote.ErrRange},
		{remote.Range{Off: math.MaxInt64, Len: math.MaxInt64}, 10, 0, 0, remote.ErrRange},
		{remote.Range{Len: 1}, 0, 0, 0, remote.ErrRange},
		{remote.Range{Off: -1}, 10, 0, 0, remote.ErrRange},
		{remote.Range{Len: -1}, 10, 0, 0, remote.ErrRange},
	} {
		if off, end, err := c.r.Span(c.size); off != c.off || end != c.end || !errors.Is(err, c.err) {
			t.Errorf("%+v of %d: %d, %d, %v", c.r, c.size, off, end, err)
		}
	}
}

// A common prefix is there if a key below it is asked for, as in S3.
func TestSelect(t *testing.T) {
	t.Parallel()
	all := []remote.Object{{Key: "a"}, {Key: "b/1"}, {Key: "b/2"}, {Key: "c"}}
	for _, c := range []struct {
		o    remote.ListOptions
		want []string
	}{
		{remote.ListOptions{Delimiter: "/", StartAfter: "b/1"}, []string{"b/", "c"}},
		{remote.ListOptions{Delimiter: "/", StartAfter: "b/2"}, []string{"c"}},
		{remote.ListOptions{Delimiter: "/", Prefix: "b/", StartAfter: "b/1"}, []string{"b/2"}},
	} {
		var got []string
		for o := range remote.Select(slices.Values(all), c.o) {
			got = append(got, o.Key)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%+v: %v, want %v", c.o, got, c.want)
		}
	}
}

func TestFail(t *testing.T) {
	t.Parallel()
	if remote.Fail("get", "k", nil) != nil {
		t.Fatal("no error became one")
	}
	err := remote.Fail("read", "k", remote.Fail("get", "k", remote.ErrThrottled))
	if err.Error() != "get k: object store unavailable: the object store asks to slow down" || tiers.KindOf(err) != tiers.RemoteUnavailable {
		t.Fatal(err)
	}
}

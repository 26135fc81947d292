package partition

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/strandline-io/strandline/tiers/remote"
)

// TestCopyRefusesRot: bytes that went bad on disk do not get into the bucket,
// where they would outlive a good copy elsewhere.
func TestCopyRefusesRot(t *testing.T) {
	for _, c := range []struct {
		name string
		at   int64
		told string
	}{
		{"in a record", 70, "CRC"},
		{"in a leader epoch, which no CRC covers", int64(len(one("record 0"))) + 15, "leader epoch"},
		{"in a base offset, which no CRC covers", int64(len(one("record 0"))) + 7, "offsets"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			d := w.drive()
			d.fill(3)
			d.roll()
			f, err := w.fs.OpenFile("/data/orders-0/h1/00000000000000000000.log", 2, 0)
			if err != nil {
				t.Fatal(err)
			}
			b := make([]byte, 1)
			if _, err := f.ReadAt(b, c.at); err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteAt([]byte{b[0] ^ 4}, c.at); err != nil {
				t.Fatal(err)
			}
			f.Close()
			d.runAll()
			if v := d.View(); v.RemoteEnd != 0 || len(w.bucket.Keys("")) != 0 {
				t.Fatalf("remote end %d, keys %v", v.RemoteEnd, w.bucket.Keys(""))
			}
			if !strings.Contains(w.noise.String(), c.told) {
				t.Fatalf("nobody is told what is wrong:\n%s", w.noise)
			}
			d.end()
		})
	}
}

// lyingBucket stores other bytes than it is given and says that all is well.
type lyingBucket struct {
	remote.Bucket
	ending string
	lie    func([]byte) []byte
	sent   map[string]uint32 // nil: Stat tells the truth
}

func (l lyingBucket) Put(ctx context.Context, key string, body remote.Body, o remote.PutOptions) (remote.Object, error) {
	if !strings.HasSuffix(key, l.ending) {
		return l.Bucket.Put(ctx, key, body, o)
	}
	r, err := body.Open(0, body.Size())
	if err != nil {
		return remote.Object{}, err
	}
	b, err := io.ReadAll(r)
	if err != nil {
		return remote.Object{}, err
	}
	if l.sent != nil {
		l.sent[key] = remote.CRC32C(b)
	}
	return l.Bucket.Put(ctx, key, remote.BytesBody(l.lie(b)), o)
}

// Stat answers with the checksum that was sent, as a store does that keeps it
// without looking at what it stored.
func (l lyingBucket) Stat(ctx context.Context, key string) (remote.Object, error) {
	o, err := l.Bucket.Stat(ctx, key)
	if crc, sent := l.sent[key]; sent {
		o.CRC32C = crc
	}
	return o, err
}

// TestR2ReadBack: an upload counts only once the bucket says that it holds the
// bytes that were sent.
func TestR2ReadBack(t *testing.T) {
	flip := func(b []byte) []byte { b = bytes.Clone(b); b[len(b)/2] ^= 4; return b }
	cut := func(b []byte) []byte { return b[:len(b)-1] }
	for _, c := range []struct {
		name   string
		ending string
		lie    func([]byte) []byte
		noCRC  bool
		sent   map[string]uint32
	}{
		{"records flipped", ".log", flip, false, nil},
		{"records flipped, store keeps no CRC", ".log", flip, true, nil},
		{"records cut", ".log", cut, false, nil},
		{"records cut, store echoes the CRC", ".log", cut, false, map[string]uint32{}},
		{"companion flipped", ".meta", flip, false, nil},
		{"companion flipped, store keeps no CRC", ".meta", flip, true, nil},
		{"companion flipped, store echoes the CRC", ".meta", flip, false, map[string]uint32{}},
		{"companion cut", ".meta", cut, true, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			if c.noCRC {
				w.bucket.ForgetCRC()
			}
			w.cache.Close()
			w.cache = remote.NewCache(lyingBucket{w.bucket, c.ending, c.lie, c.sent}, remote.CacheOptions{})
			d := w.drive()
			d.fill(3)
			d.roll()
			d.runAll()
			if v := d.View(); v.RemoteEnd != 0 || len(w.rows.keysOf()) != 0 {
				t.Fatalf("remote end %d, rows %v", v.RemoteEnd, w.rows.list())
			}
			if keys := w.bucket.Keys(""); len(keys) != 0 {
				t.Fatalf("left behind: %v", keys)
			}
			d.end()
		})
	}
}

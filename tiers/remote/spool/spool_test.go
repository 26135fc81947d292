package spool

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/fsys/mem"
	"github.com/strandline-io/strandline/tiers/remote"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const dir = "/cache"

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func open(t *testing.T, f fsys.FS, limit int64) *Spool {
	t.Helper()
	s, err := Open(f, Options{Dir: dir, Bytes: limit})
	must(t, err)
	t.Cleanup(s.Close)
	return s
}

func id(n int) remote.PieceID {
	return remote.PieceID{Segment: tiers.SegmentID{byte(n), byte(n >> 8), 0xaa}, Chunk: int64(n)}
}

// content is what piece n holds.
func content(n int) []byte {
	return bytes.Repeat([]byte{byte(n), byte(n >> 8), 7}, 3000)
}

// put puts pieces and waits until they are written. It runs in a bubble.
func put(s *Spool, ns ...int) {
	for _, n := range ns {
		s.Put(id(n), content(n))
		synctest.Wait()
		time.Sleep(time.Millisecond) // files have times that differ
	}
}

func wantPiece(t *testing.T, s *Spool, n int, there bool) {
	t.Helper()
	got := s.Get(id(n))
	if (got != nil) != there || there && !bytes.Equal(got, content(n)) {
		t.Errorf("piece %d: %d bytes, want them: %v", n, len(got), there)
	}
}

// files is what is in the folder, with its bytes in blocks.
func files(tb testing.TB, f fsys.FS) (names []string, used int64) {
	tb.Helper()
	shards, err := f.ReadDir(dir)
	must(tb, err)
	for _, d := range shards {
		entries, err := f.ReadDir(path.Join(dir, d.Name()))
		must(tb, err)
		for _, e := range entries {
			st, err := e.Info()
			must(tb, err)
			names = append(names, path.Join(dir, d.Name(), e.Name()))
			used += blocks(st.Size())
		}
	}
	return names, used
}

func TestPiecesComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := mem.New()
		s := open(t, f, 1<<20)
		put(s, 1, 2)
		meta := remote.PieceID{Segment: id(1).Segment, Chunk: remote.MetaPiece}
		s.Put(meta, []byte("companion"))
		s.Put(id(3), nil)
		synctest.Wait()
		again := func(s *Spool) {
			t.Helper()
			wantPiece(t, s, 1, true)
			wantPiece(t, s, 2, true)
			wantPiece(t, s, 4, false)
			if string(s.Get(meta)) != "companion" || !s.Has(meta) || s.Has(id(4)) {
				t.Error("the companion is not there")
			}
		}
		again(s)
		s.Close()
		s.Put(id(5), content(5)) // after the end: nothing happens
		if s.Has(id(1)) || s.Get(id(1)) != nil {
			t.Error("a closed spool gives pieces")
		}
		s = open(t, f, 1<<20) // the next process
		again(s)
		s.Drop(id(2))
		wantPiece(t, s, 2, false)
		s.Drop(id(2))
	})
}

// The limit holds at every moment, for all that is in the folder, and the least
// recently used go first.
func TestLimitCountsEveryFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := mem.New()
		one := fileSize(int64(len(content(0))))
		limit := 5*one + 100
		most := int64(0)
		f.OnOp(func(fsys.Op) {
			if _, used := files(t, f.KillCopy()); used > most {
				most = used
			}
		})
		s := open(t, f, limit)
		put(s, 0, 1, 2, 3, 4)
		wantPiece(t, s, 0, true)
		put(s, 5, 6)
		for n, there := range []bool{true, false, false, true, true, true, true} {
			wantPiece(t, s, n, there)
		}
		for n := range 50 {
			put(s, 100+n)
		}
		if most > limit || most < 5*one {
			t.Errorf("there were %d bytes of files, the limit is %d", most, limit)
		}
		names, used := files(t, f)
		if used != s.used || len(names) != len(s.files) || len(names) != s.order.Len() {
			t.Errorf("%d files of %d bytes, the books say %d of %d", len(names), used, len(s.files), s.used)
		}
		s.Close()
		s = open(t, f, 2*one) // the limit was lowered
		if _, used := files(t, f); used != 2*one || s.used != used {
			t.Errorf("%d bytes after a lower limit, the books say %d", used, s.used)
		}
		wantPiece(t, s, 149, true)
		s.Put(id(200), make([]byte, limit))
		synctest.Wait()
		if s.Has(id(200)) || !s.Has(id(149)) {
			t.Error("a piece larger than all of the cache drove out the others")
		}
	})
}

// Files are adopted oldest first.
func TestAdoptionKeepsTheNewest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := mem.New()
		s := open(t, f, 1<<30)
		for _, n := range []int{9, 2, 7, 4, 1} {
			put(s, n)
			time.Sleep(time.Second)
		}
		s.Close()
		s = open(t, f, 2*fileSize(int64(len(content(0)))))
		for n, there := range map[int]bool{9: false, 2: false, 7: false, 4: true, 1: true} {
			wantPiece(t, s, n, there)
		}
	})
}

// What is wrong in a file is seen, and the file goes (reports 030, 087).
func TestReport087DamagedFilesAreRemoved(t *testing.T) {
	for name, damage := range map[string]func([]byte) []byte{
		"flipped in the piece":  func(b []byte) []byte { b[len(b)-5] ^= 1; return b },
		"flipped in the header": func(b []byte) []byte { b[20] ^= 1; return b },
		"garbage":               func(b []byte) []byte { return bytes.Repeat([]byte("garbage"), len(b)/7) },
		"cut":                   func(b []byte) []byte { return b[:len(b)/2] },
		"cut in the header":     func(b []byte) []byte { return b[:20] },
		"empty":                 func([]byte) []byte { return nil },
		"too long":              func(b []byte) []byte { return append(b, 0) },
		"zeros":                 func(b []byte) []byte { clear(b); return b },
		"another piece":         func([]byte) []byte { return encode(id(2), content(2)) },
		"another version":       func(b []byte) []byte { b[4] = 2; return b },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := mem.New()
				s := open(t, f, 1<<20)
				put(s, 1)
				raw, err := fsys.ReadFile(f, s.name(id(1)))
				must(t, err)
				must(t, fsys.WriteFileAtomic(f, s.name(id(1)), damage(raw), 0o600))
				wantPiece(t, s, 1, false)
				if s.Has(id(1)) {
					t.Error("it is still in the table")
				}
				if names, _ := files(t, f); len(names) != 0 {
					t.Errorf("left: %v", names)
				}
				put(s, 1)
				wantPiece(t, s, 1, true)
			})
		})
	}
}

// A disk that fails, at whichever operation, costs the pieces and nothing else. After
// a while it is tried again.
func TestDiskFails(t *testing.T) {
	for _, kind := range []fsys.Kind{fsys.OpCreate, fsys.OpWrite, fsys.OpRename, fsys.OpOpen, fsys.OpRead, fsys.OpRemove, fsys.OpMkdir} {
		for _, cause := range []error{syscall.ENOSPC, syscall.EIO} {
			t.Run(fmt.Sprint(kind, cause), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := fsys.NewFaulty(mem.New())
					s := open(t, f, 3*fileSize(int64(len(content(0)))))
					put(s, 1)
					f.Add(fsys.Fault{Kinds: kind, Err: cause, Sticky: true})
					put(s, 2, 3, 4, 5)
					for n := range 6 {
						if got := s.Get(id(n)); got != nil && !bytes.Equal(got, content(n)) {
							t.Fatalf("piece %d is wrong", n)
						}
					}
					f.Clear()
					time.Sleep(pause)
					put(s, 11, 12)
					wantPiece(t, s, 11, true)
					wantPiece(t, s, 12, true)
					if names, used := files(t, f); used > s.o.Bytes || used > s.used {
						t.Errorf("%d bytes in %v, the books say %d", used, names, s.used)
					}
					s.Close()
					s = open(t, f, 1<<20)
					for n := range 13 {
						if got := s.Get(id(n)); got != nil && !bytes.Equal(got, content(n)) {
							t.Fatalf("after a restart piece %d is wrong", n)
						}
					}
					if names, _ := files(t, f); strings.Contains(fmt.Sprint(names), fsys.TempSuffix) {
						t.Errorf("left after a restart: %v", names)
					}
				})
			})
		}
	}
}

// While the disk is off nobody asks it.
func TestDiskIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fsys.NewFaulty(mem.New())
		s := open(t, f, 1<<20)
		put(s, 1)
		f.Add(fsys.Fault{Kinds: fsys.OpRead, Err: syscall.EIO})
		wantPiece(t, s, 1, false)
		before := len(f.Ops(fsys.OpAny))
		wantPiece(t, s, 1, false)
		put(s, 2)
		if s.Has(id(1)) || len(f.Ops(fsys.OpAny)) != before {
			t.Error("a disk that has just failed is used")
		}
		time.Sleep(pause)
		wantPiece(t, s, 1, true)
	})
}

// A disk that hangs holds up nobody for long.
func TestDiskHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fsys.NewFaulty(mem.New())
		s := open(t, f, 1<<20)
		put(s, 1)
		release := make(chan struct{})
		defer close(release)
		f.Add(fsys.Fault{Kinds: fsys.OpOpen, Hold: release, Sticky: true})
		f.Add(fsys.Fault{Kinds: fsys.OpCreate, Hold: release, Sticky: true})
		start := time.Now()
		s.Put(id(2), content(2))
		wantPiece(t, s, 1, false)
		wantPiece(t, s, 1, false)
		s.Close()
		if took := time.Since(start); took > 2*patience {
			t.Errorf("it took %v", took)
		}
	})
}

// Reads that hang do not add up, however long the disk does, and it is used again
// when they have ended.
func TestHangingReadsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fsys.NewFaulty(mem.New())
		s := open(t, f, 1<<20)
		put(s, 1)
		release := make(chan struct{})
		for range hanging {
			f.Add(fsys.Fault{Kinds: fsys.OpOpen, Hold: release})
		}
		for range hanging {
			wantPiece(t, s, 1, false)
			time.Sleep(pause)
		}
		if s.Has(id(1)) {
			t.Error("a disk with so many hanging reads is used")
		}
		close(release)
		synctest.Wait()
		wantPiece(t, s, 1, true)
	})
}

// A writer that is behind drops what it cannot take.
func TestWriterIsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fsys.NewFaulty(mem.New())
		s := open(t, f, 1<<30)
		release := make(chan struct{})
		f.Add(fsys.Fault{Kinds: fsys.OpWrite, Hold: release})
		b := make([]byte, 1<<20)
		for n := range 100 {
			s.Put(remote.PieceID{Chunk: int64(n)}, b)
		}
		s.mu.Lock()
		if s.queued > waiting {
			t.Errorf("%d bytes wait", s.queued)
		}
		s.mu.Unlock()
		close(release)
		synctest.Wait()
		if n := len(s.files); n < 10 || n > 20 {
			t.Errorf("%d pieces were written", n)
		}
	})
}

// Whatever a power loss leaves, a piece is right or not there.
func TestPowerLossAtEveryOperation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := mem.New()
		var copies []*mem.FS
		f.OnOp(func(op fsys.Op) {
			copies = append(copies, f.CrashCopy(uint64(op.Seq)), f.SyncedCopy(), f.KillCopy())
		})
		s := open(t, f, 3*fileSize(int64(len(content(0)))))
		put(s, 1, 2, 3, 4, 5)
		s.Drop(id(5))
		f.OnOp(nil)
		if len(copies) < 30 {
			t.Fatalf("only %d copies", len(copies))
		}
		for _, c := range copies {
			s := open(t, c, 1<<20)
			for n := range 6 {
				if got := s.Get(id(n)); got != nil && !bytes.Equal(got, content(n)) {
					t.Fatalf("piece %d is wrong", n)
				}
			}
			put(s, 9)
			wantPiece(t, s, 9, true)
			s.Close()
		}
	})
}

// Files of others stay where they are.
func TestStrangersStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := mem.New()
		must(t, f.MkdirAll(dir+"/00", 0o700))
		must(t, f.MkdirAll(dir+"/letters", 0o700))
		for _, name := range []string{"note.txt", "00/note.txt", "00/" + id(1).Segment.Hex() + "-01", "00/" + id(1).Segment.Hex() + "-meta"} {
			must(t, fsys.WriteFileAtomic(f, path.Join(dir, name), []byte("mine"), 0o600))
		}
		s := open(t, f, fileSize(int64(len(content(0)))))
		put(s, 1, 2, 3)
		if s.used != fileSize(int64(len(content(0)))) {
			t.Errorf("%d bytes are used", s.used)
		}
		for _, name := range []string{"note.txt", "00/note.txt"} {
			if b, err := fsys.ReadFile(f, path.Join(dir, name)); err != nil || string(b) != "mine" {
				t.Error(name, err)
			}
		}
	})
}

func TestOpenRefuses(t *testing.T) {
	if _, err := Open(mem.New(), Options{Dir: dir}); tiers.KindOf(err) != tiers.InvalidConfig {
		t.Error(err)
	}
	f := fsys.NewFaulty(mem.New())
	f.Add(fsys.Fault{Kinds: fsys.OpMkdir, Err: fs.ErrPermission})
	if _, err := Open(f, Options{Dir: dir, Bytes: 1}); tiers.KindOf(err) != tiers.StorageFailed || !errors.Is(err, fs.ErrPermission) {
		t.Error(err)
	}
}

var update = flag.Bool("update", false, "write the golden files anew")

// The layout is docs/format/cache-files.md.
func TestGoldenFile(t *testing.T) {
	const name = "testdata/piece-1.0"
	got := encode(remote.PieceID{Segment: tiers.SegmentID{1, 2, 3, 15: 0xff}, Chunk: 258}, []byte("what was read from the bucket"))
	if *update {
		must(t, os.WriteFile(name, got, 0o600))
	}
	want, err := os.ReadFile(name)
	must(t, err)
	if !bytes.Equal(got, want) {
		t.Errorf("the layout has changed: %x, was %x", got, want)
	}
	newer := bytes.Clone(want) // a newer minor version has more fields and flags that may be ignored
	newer[5], newer[7] = 1, 1
	newer = append(newer[:headerSize-4:headerSize-4], append([]byte{1, 2, 3, 4, 0, 0, 0, 0}, want[headerSize:]...)...)
	newer[11] += 4
	newer[6], newer[7] = 0, 1
	crc := remote.UpdateCRC32C(remote.CRC32C(newer[:headerSize]), newer[headerSize+4:])
	copy(newer[headerSize:], []byte{byte(crc >> 24), byte(crc >> 16), byte(crc >> 8), byte(crc)})
	if b, err := decode(remote.PieceID{Segment: tiers.SegmentID{1, 2, 3, 15: 0xff}, Chunk: 258}, newer); err != nil || string(b) != "what was read from the bucket" {
		t.Errorf("%q, %v", b, err)
	}
}

func FuzzDecode(f *testing.F) {
	one := remote.PieceID{Segment: tiers.SegmentID{1}, Chunk: 2}
	f.Add(encode(one, []byte("piece")))
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, raw []byte) {
		b, err := decode(one, raw)
		if err != nil {
			if b != nil || !errors.Is(err, remote.ErrChecksum) {
				t.Fatal(err)
			}
			return
		}
		if again, err := decode(one, encode(one, b)); err != nil || !bytes.Equal(again, b) {
			t.Fatal(err)
		}
	})
}

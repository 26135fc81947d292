package sqlite

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/ncruces/go-sqlite3/vfs"

	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/fsys"
	"github.com/strandline-io/strandline/tiers/fsys/mem"
	"github.com/strandline-io/strandline/tiers/partition"
)

const testPath = "/control.db"

// TestReport003SecondProcess shows that a second opener is refused and that a
// refused Open leaves nothing behind.
func TestReport003SecondProcess(t *testing.T) {
	fs := mem.New()
	s, err := Open(fs, testPath, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err = Open(fs, testPath, Options{}); tiers.KindOf(err) != tiers.Conflict || !errors.Is(err, fsys.ErrLocked) || !strings.Contains(err.Error(), "another process") {
			t.Fatalf("second Open: %v", err)
		}
	}
	if err = s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(fs, testPath, Options{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, fs fsys.FS, name string, b []byte) {
	t.Helper()
	f, err := fs.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// alter opens a control plane and changes it behind its back.
func alter(t *testing.T, fs fsys.FS, sql string) {
	t.Helper()
	s, err := Open(fs, testPath, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.do(t.Context(), "alter", false, func(d *db) error { return d.conn.Exec(sql) }); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestOpenRefuses(t *testing.T) {
	garbage := []byte(strings.Repeat("garbage!", 1000))
	for name, c := range map[string]struct {
		sql  string // what to do to a good file
		file []byte // or the file
		kind tiers.Kind
		says string
	}{
		"a newer format": {
			"UPDATE meta SET value = 99 WHERE key = 'version'; UPDATE meta SET value = 98 WHERE key = 'min_reader'", nil,
			tiers.UnsupportedVersion, "format 99, which needs a binary that knows format 98; this one knows 2",
		},
		"another program's database": {"PRAGMA application_id = 7", nil, tiers.InvalidConfig, "not a control plane"},
		"a file that is no database": {"", garbage, tiers.StorageFailed, "strandline rebuild"},
		"damaged tables":             {"DROP TABLE meta", nil, tiers.StorageFailed, "meta"},
	} {
		t.Run(name, func(t *testing.T) {
			fs := mem.New()
			if c.file != nil {
				write(t, fs, testPath, c.file)
			} else {
				alter(t, fs, c.sql)
			}
			for range 2 { // The lock was given back.
				s, err := Open(fs, testPath, Options{QuickCheck: true})
				if err == nil {
					_ = s.Close() // The test fails anyway.
				}
				if tiers.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.says) {
					t.Fatalf("Open: %v", err)
				}
			}
		})
	}
	if _, err := Open(mem.New(), "/no/folder/control.db", Options{}); tiers.KindOf(err) != tiers.StorageFailed {
		t.Fatalf("without a folder: %v", err)
	}
}

// TestNewerWithOldReader opens what a newer binary wrote for older ones too.
func TestNewerWithOldReader(t *testing.T) {
	fs := mem.New()
	alter(t, fs, "UPDATE meta SET value = 99 WHERE key = 'version'")
	s, err := Open(fs, testPath, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	d := connect(t, fs)
	if v, err := meta(d, keyVersion); err != nil || v != 99 {
		t.Fatalf("version %d, %v", v, err)
	}
}

// TestQuickCheckFindsDamage breaks a page of an index.
func TestQuickCheckFindsDamage(t *testing.T) {
	fs := mem.New()
	alter(t, fs, `INSERT INTO topics SELECT CAST(format('%016d', value) AS BLOB), 'n'||value, 'c'||value, 1, 1 FROM (WITH RECURSIVE c(value) AS (SELECT 1 UNION ALL SELECT value+1 FROM c LIMIT 3000) SELECT value FROM c)`)
	f, err := fs.OpenFile(testPath, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(make([]byte, 4096), st.Size()/4096/2*4096); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(fs, testPath, Options{QuickCheck: true}); tiers.KindOf(err) != tiers.StorageFailed || !strings.Contains(err.Error(), "strandline rebuild") {
		t.Fatalf("Open: %v", err)
	}
}

// connect opens a connection without a loop.
func connect(t *testing.T, fs fsys.FS) *db {
	t.Helper()
	s, err := Open(fs, testPath, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s.db // The loop waits, so this test may use it.
}

// TestMigrations brings an old file up to date, in one transaction.
func TestMigrations(t *testing.T) {
	d := connect(t, mem.New())
	next := append(migrations(),
		migration{3, 2, "CREATE TABLE two (a INTEGER) STRICT"},
		migration{4, 3, "CREATE TABLE three (a INTEGER) STRICT; INSERT INTO two VALUES (7)"},
	)
	broken := append(next[:4:4], migration{5, 5, "CREATE TABLE four (a INTEGER) STRICT; INSERT INTO nowhere VALUES (1)"})
	if err := migrate(d, broken, Options{}); err == nil || !strings.Contains(err.Error(), "migration 5") {
		t.Fatalf("a broken migration: %v", err)
	}
	if v, err := meta(d, keyVersion); err != nil || v != 2 {
		t.Fatalf("version %d, %v after a broken migration", v, err)
	}
	cluster, err := d.text("SELECT value FROM meta WHERE key = ?", keyCluster)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := migrate(d, next, Options{}); err != nil {
			t.Fatal(err)
		}
	}
	for sql, want := range map[string]int64{
		"SELECT value FROM meta WHERE key = 'version'": 4, "SELECT value FROM meta WHERE key = 'min_reader'": 3,
		"SELECT sum(a) FROM two": 7, "SELECT count(*) FROM three": 0,
	} {
		if got, err := d.number(sql); err != nil || got != want {
			t.Errorf("%s: %d, %v", sql, got, err)
		}
	}
	if again, err := d.text("SELECT value FROM meta WHERE key = ?", keyCluster); err != nil || again != cluster {
		t.Fatalf("cluster id %q, %v", again, err)
	}
	// This binary knows version 2 only, the file needs 3.
	if err := migrate(d, migrations(), Options{}); tiers.KindOf(err) != tiers.UnsupportedVersion {
		t.Fatalf("an older binary: %v", err)
	}
	for i, m := range next {
		if m.version != int64(i+1) || m.minReader > m.version {
			t.Fatalf("migration %d has version %d and reader %d", i+1, m.version, m.minReader)
		}
	}
}

// TestVersion1IsBroughtUpToDate: a file that was written before log starts were
// changes keeps everything, and a binary of that time refuses it afterwards, since
// it would take a log start for damage.
func TestVersion1IsBroughtUpToDate(t *testing.T) {
	fs := mem.New()
	v1 := migrations()[:1]
	alter(t, fs, "SELECT 1")
	s, err := Open(fs, testPath, Options{})
	if err != nil {
		t.Fatal(err)
	}
	ses, err := s.OpenSession(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	topic, err := s.CreateTopic(t.Context(), ses, control.NewTopic{Name: "t", Partitions: 2})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// What version 1 raised is in the row alone.
	alter(t, fs, "UPDATE partitions SET log_start = 5 WHERE idx = 1; UPDATE meta SET value = 1 WHERE key IN ('version', 'min_reader')")
	if s, err = Open(fs, testPath, Options{}); err != nil {
		t.Fatal(err)
	}
	f := partition.Fence{Partition: tiers.PartitionID{Topic: topic.ID, Index: 1}, Gen: 1, NodeEpoch: ses.Epoch}
	rev, err := s.RaiseLogStart(t.Context(), f, 5)
	if err != nil || rev != 1 {
		t.Fatalf("revision %d, %v of a log start that was there", rev, err)
	}
	if rev, err = s.RaiseLogStart(t.Context(), f, 6); err != nil || rev != 2 {
		t.Fatalf("revision %d, %v", rev, err)
	}
	if got, err := s.Changes(t.Context(), 0); err != nil || len(got) != 2 || got[0].Topic.Name != "t" || got[1].Raised == nil {
		t.Fatalf("changes %+v, %v", got, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	d := connect(t, fs)
	if err := migrate(d, v1, Options{}); tiers.KindOf(err) != tiers.UnsupportedVersion {
		t.Fatalf("an older binary: %v", err)
	}
}

func TestSQLiteVersion(t *testing.T) {
	for version, ok := range map[string]bool{
		"3.51.2": false, "3.51.3": true, "3.52.0": true, "3.7.17": false, "4.0.0": true, "2.99.9": false, "3.50.9": false, "": false, "x.y.z": false,
	} {
		if err := checkVersion(version); (err == nil) != ok {
			t.Errorf("%q: %v", version, err)
		}
	}
	d := connect(t, mem.New())
	for pragma, want := range map[string]string{"synchronous": "2", "journal_mode": "wal", "locking_mode": "exclusive"} {
		if got, err := d.text("PRAGMA " + pragma); err != nil || got != want {
			t.Errorf("%s is %s, %v", pragma, got, err)
		}
	}
	if err := set(d, "PRAGMA journal_mode = WAL", "delete"); err == nil {
		t.Error("an answer that was not wanted passed")
	}
}

// TestGoldenSchema holds the tables and their description together.
func TestGoldenSchema(t *testing.T) {
	d := connect(t, mem.New())
	text, err := d.text("SELECT group_concat(sql, char(59) || char(10) ORDER BY rowid) FROM sqlite_schema WHERE sql IS NOT NULL")
	if err != nil {
		t.Fatal(err)
	}
	tables := strings.Split(text, ";\n")
	page, err := os.ReadFile("../../../docs/format/control-plane.md")
	if err != nil {
		t.Fatal(err)
	}
	if len(tables) != 11 {
		t.Errorf("%d tables and indexes", len(tables))
	}
	for _, sql := range tables {
		if !strings.Contains(string(page), sql+";\n") {
			t.Errorf("docs/format/control-plane.md does not show\n%s;", sql)
		}
	}
}

// TestVFS shows what the disk does that SQLite seldom asks for.
func TestVFS(t *testing.T) {
	fs := fsys.NewFaulty(mem.New())
	d := &disk{fs: fs, path: testPath, images: map[string]*image{}}
	write(t, fs, testPath+"-journal", []byte("x"))
	if ok, err := d.Access(mainName+"-journal", vfs.ACCESS_EXISTS); !ok || err != nil {
		t.Errorf("the journal is there: %v, %v", ok, err)
	}
	if err := d.Delete(mainName+"-journal", true); err != nil {
		t.Error(err)
	}
	if ops := fs.Ops(fsys.OpSyncDir); len(ops) != 1 || ops[0].Name != "/" {
		t.Errorf("after a durable Delete: %+v", ops)
	}
	if ok, err := d.Access(mainName+"-journal", vfs.ACCESS_EXISTS); ok || err != nil {
		t.Errorf("the journal is there: %v, %v", ok, err)
	}
	if err := d.Delete(mainName+"-journal", false); err == nil {
		t.Error("nothing was deleted")
	}
	if _, _, err := d.Open(imageName+"7", vfs.OPEN_MAIN_DB); err == nil {
		t.Error("an image that is not there was opened")
	}
}

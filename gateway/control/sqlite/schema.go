package sqlite

import (
	"fmt"

	"github.com/ncruces/go-sqlite3"

	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/tiers"
)

// applicationID marks the file as ours for file(1) and for a wrong path: "Strd".
const applicationID = 0x53747264

// migration brings the tables from version-1 to version. Binaries that know
// minReader or later can use the result.
type migration struct {
	version   int64
	minReader int64
	sql       string
}

// migrations lists every migration, oldest first. What was released is never
// changed.
func migrations() []migration {
	return []migration{
		{version: 1, minReader: 1, sql: schema1},
		// The tables stay. Changes may be log starts from now on, which binaries that
		// know version 1 take for damage.
		{version: 2, minReader: 2},
	}
}

const schema1 = `
CREATE TABLE meta (
	key   TEXT PRIMARY KEY,
	value ANY NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE nodes (
	node  INTEGER PRIMARY KEY,
	epoch INTEGER NOT NULL
) STRICT;
CREATE TABLE topics (
	id         BLOB PRIMARY KEY,
	name       TEXT NOT NULL UNIQUE,
	clash      TEXT NOT NULL UNIQUE,
	rev        INTEGER NOT NULL,
	created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE configs (
	topic BLOB NOT NULL,
	key   TEXT NOT NULL,
	value TEXT NOT NULL,
	PRIMARY KEY (topic, key)
) STRICT, WITHOUT ROWID;
CREATE TABLE partitions (
	topic     BLOB NOT NULL,
	idx       INTEGER NOT NULL,
	gen       INTEGER NOT NULL,
	leader    INTEGER NOT NULL,
	epoch     INTEGER NOT NULL,
	log_start INTEGER NOT NULL,
	PRIMARY KEY (topic, idx)
) STRICT, WITHOUT ROWID;
CREATE INDEX partitions_by_leader ON partitions (leader);
CREATE TABLE segments (
	topic         BLOB NOT NULL,
	idx           INTEGER NOT NULL,
	gen           INTEGER NOT NULL,
	base          INTEGER NOT NULL,
	id            BLOB NOT NULL UNIQUE,
	end           INTEGER NOT NULL,
	epochs        BLOB NOT NULL,
	state         INTEGER NOT NULL,
	doomed        INTEGER NOT NULL,
	max_timestamp INTEGER NOT NULL,
	size          INTEGER NOT NULL,
	meta_size     INTEGER NOT NULL,
	crc32c        INTEGER NOT NULL,
	has_aborted   INTEGER NOT NULL,
	copier_epoch  INTEGER NOT NULL,
	copier        INTEGER NOT NULL,
	created_at    INTEGER NOT NULL,
	PRIMARY KEY (topic, idx, gen, base, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX segments_doomed ON segments (topic, idx, gen, base, id) WHERE doomed = 1;
CREATE TABLE offsets (
	group_id TEXT NOT NULL,
	topic    BLOB NOT NULL,
	idx      INTEGER NOT NULL,
	gen      INTEGER NOT NULL,
	offset   INTEGER NOT NULL,
	epoch    INTEGER NOT NULL,
	metadata TEXT NOT NULL,
	at       INTEGER NOT NULL,
	PRIMARY KEY (group_id, topic, idx, gen)
) STRICT, WITHOUT ROWID;
CREATE INDEX offsets_by_topic ON offsets (topic);
CREATE TABLE changes (
	rev     INTEGER PRIMARY KEY,
	deleted INTEGER NOT NULL,
	topic   BLOB NOT NULL
) STRICT;
`

// The keys of meta.
const (
	keyVersion  = "version"       // of the tables
	keyReader   = "min_reader"    // oldest version whose binaries can use them
	keyCluster  = "cluster"       // cluster id
	keyRev      = "rev"           // of the last change
	keyFloor    = "floor"         // changes up to it were trimmed
	keyProducer = "next_producer" // next producer id
)

// migrate brings the tables to the newest version, in one transaction. An empty
// database becomes a control plane with a cluster id.
func migrate(d *db, ms []migration, o Options) (err error) {
	if err = d.exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	defer func() {
		if err != nil && !d.conn.GetAutocommit() {
			_ = d.conn.Exec("ROLLBACK") // The first error is the one to report.
		}
	}()
	version, err := storedVersion(d, ms[len(ms)-1].version)
	if err != nil {
		return err
	}
	for _, m := range ms {
		if m.version <= version {
			continue
		}
		if err := d.conn.Exec(m.sql); err != nil {
			return fmt.Errorf("migration %d: %w", m.version, err)
		}
		if err := setVersion(d, m); err != nil {
			return err
		}
	}
	if version == 0 {
		if err := firstRows(d, o); err != nil {
			return err
		}
	}
	return d.conn.Exec("COMMIT")
}

// storedVersion returns the version of the tables, 0 if the database is empty,
// and refuses what this binary, which knows newest, must not touch.
func storedVersion(d *db, newest int64) (int64, error) {
	app, err := d.number("PRAGMA application_id")
	if err != nil {
		return 0, err
	}
	tables, err := d.number("SELECT count(*) FROM sqlite_schema")
	if err != nil {
		return 0, err
	}
	switch {
	case tables == 0:
		return 0, d.conn.Exec(fmt.Sprintf("PRAGMA application_id = %d", applicationID))
	case app != applicationID:
		return 0, tiers.E(tiers.InvalidConfig, "", "", "this SQLite database is not a control plane of Strandline: choose another data directory")
	}
	version, err := d.number("SELECT value FROM meta WHERE key = ?", keyVersion)
	if err != nil {
		return 0, err
	}
	reader, err := d.number("SELECT value FROM meta WHERE key = ?", keyReader)
	if err != nil {
		return 0, err
	}
	if reader > newest {
		return 0, tiers.E(tiers.UnsupportedVersion, "", "", "the control plane has format %d, which needs a binary that knows format %d; this one knows %d: use the newer binary", version, reader, newest)
	}
	return version, nil
}

func setVersion(d *db, m migration) error {
	for key, v := range map[string]int64{keyVersion: m.version, keyReader: m.minReader} {
		if err := d.exec("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", key, v); err != nil {
			return err
		}
	}
	return nil
}

func firstRows(d *db, o Options) error {
	id, err := control.RandomID(o.Rand)
	if err != nil {
		return err
	}
	if err := d.exec("INSERT INTO meta (key, value) VALUES (?, ?)", keyCluster, id.String()); err != nil {
		return err
	}
	for _, key := range []string{keyRev, keyFloor, keyProducer} {
		if err := d.exec("INSERT INTO meta (key, value) VALUES (?, ?)", key, int64(0)); err != nil {
			return err
		}
	}
	return nil
}

// configure sets and verifies what durability stands on. The locking mode comes
// first: without it SQLite cannot read a file in WAL mode here, since there is no
// shared memory.
func configure(d *db, walPages int64) error {
	if err := set(d, "PRAGMA locking_mode = EXCLUSIVE", "exclusive"); err != nil {
		return err
	}
	version, err := d.text("SELECT sqlite_version()")
	if err != nil {
		return err
	}
	if err = checkVersion(version); err != nil {
		return err
	}
	if err = set(d, "PRAGMA journal_mode = WAL", "wal"); err != nil {
		return err
	}
	if walPages == 0 {
		walPages = 1000
	}
	if _, err = d.number(fmt.Sprintf("PRAGMA wal_autocheckpoint = %d", walPages)); err != nil {
		return err
	}
	const full = 2
	err = d.conn.Exec("PRAGMA synchronous = FULL; PRAGMA journal_size_limit = 67108864; PRAGMA cache_size = -16384; PRAGMA cell_size_check = ON; PRAGMA trusted_schema = OFF")
	if err != nil {
		return err
	}
	got, err := d.number("PRAGMA synchronous")
	if err == nil && got != full {
		err = fmt.Errorf("synchronous is %d, not FULL", got)
	}
	return err
}

// set runs a pragma that answers what is in force.
func set(d *db, pragma, want string) error {
	got, err := d.text(pragma)
	if err != nil {
		return fmt.Errorf("%s: %w", pragma, err)
	}
	if got != want {
		return fmt.Errorf("%s: SQLite answers %q", pragma, got)
	}
	return nil
}

// quickCheck has SQLite check the structure of the file.
func quickCheck(d *db) error {
	return d.each("PRAGMA quick_check(10)", nil, func(st *sqlite3.Stmt) error {
		if s := st.ColumnText(0); s != "ok" {
			return tiers.E(tiers.StorageFailed, "", "", "quick_check: %s: %s", s, wayOut)
		}
		return nil
	})
}

const minSQLite = "3.51.3"

// checkVersion refuses a SQLite with the WAL-reset bug.
func checkVersion(got string) error {
	var a, b [3]int
	if _, err := fmt.Sscanf(got, "%d.%d.%d", &a[0], &a[1], &a[2]); err != nil {
		return fmt.Errorf("SQLite version %q: %w", got, err)
	}
	if _, err := fmt.Sscanf(minSQLite, "%d.%d.%d", &b[0], &b[1], &b[2]); err != nil {
		return err
	}
	for i := range a {
		if a[i] != b[i] {
			if a[i] < b[i] {
				return tiers.E(tiers.UnsupportedVersion, "", "", "this binary holds SQLite %s, which can lose a write-ahead log: build it with %s or later", got, minSQLite)
			}
			return nil
		}
	}
	return nil
}

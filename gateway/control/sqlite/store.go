package sqlite

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/vfs"

	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/fsys"
)

// Options are what a Store is handed. The zero value is ready.
type Options struct {
	Now  func() time.Time // nil: time.Now
	Rand io.Reader        // of ids; nil: the operating system's
	// QuickCheck has SQLite check the file's structure at Open: about 0.8 s per
	// million rows.
	QuickCheck bool

	walPages int64 // a checkpoint follows after so many pages; 0: 1000, that is 4 MB
}

// Store is a control.Store in one file.
type Store struct {
	o      Options
	disk   *disk
	vfs    string // name under which disk is registered
	lock   io.Closer
	queue  chan *request
	quit   chan struct{} // closed by Close
	dead   chan struct{} // closed when the loop has ended
	broken atomic.Bool   // nothing is answered any more: the file is in doubt
	images atomic.Int64  // numbers the images

	end   sync.Once
	ended error
	db    *db // the loop's, and Close's once that has ended
}

var _ control.Store = (*Store)(nil)

// Open opens the control plane in the file at path, whose folder must exist and
// be durable, or makes an empty one. Error kinds: Conflict if another process has
// it open, UnsupportedVersion if it is newer than this binary, InvalidConfig if
// the file is something else, StorageFailed.
func Open(fs fsys.FS, path string, o Options) (*Store, error) {
	const op = "open control plane"
	if o.Now == nil {
		o.Now = time.Now
	}
	lock, err := fs.Lock(path + ".lock")
	if errors.Is(err, fsys.ErrLocked) {
		return nil, tiers.E(tiers.Conflict, op, path, "another process uses it: stop that one or choose another data directory: %w", err)
	}
	if err != nil {
		return nil, tiers.E(tiers.StorageFailed, op, path, "%w", err)
	}
	id, err := control.RandomID(nil)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	s := &Store{
		o: o, lock: lock, vfs: "strandline-" + hex.EncodeToString(id[:]),
		disk:  &disk{fs: fs, path: path, images: map[string]*image{}},
		queue: make(chan *request, batchLimit), quit: make(chan struct{}), dead: make(chan struct{}),
	}
	vfs.Register(s.vfs, s.disk)
	if err := s.open(); err != nil {
		return nil, errors.Join(s.explain(op, err), s.release())
	}
	go s.loop(s.db)
	return s, nil
}

// open opens the connection and brings the file up to date.
func (s *Store) open() (err error) {
	if s.db, err = openDB("file:"+mainName+"?vfs="+s.vfs, sqlite3.OPEN_READWRITE|sqlite3.OPEN_CREATE); err != nil {
		return err
	}
	if err := configure(s.db, s.o.walPages); err != nil {
		return err
	}
	if err := migrate(s.db, migrations(), s.o); err != nil {
		return err
	}
	if s.o.QuickCheck {
		if err := quickCheck(s.db); err != nil {
			return err
		}
	}
	return s.usable()
}

// release gives back what Open took.
func (s *Store) release() error {
	var err error
	if s.db != nil {
		err = s.db.close()
	}
	vfs.Unregister(s.vfs)
	return errors.Join(err, s.lock.Close())
}

// Close refuses new work, lets the transaction that runs end, and closes the
// file. It may be called again.
func (s *Store) Close() error {
	s.end.Do(func() {
		close(s.quit)
		<-s.dead
		if err := s.release(); err != nil {
			s.ended = s.explain("close control plane", err)
		}
	})
	return s.ended
}

// Cluster returns the cluster id.
func (s *Store) Cluster(ctx context.Context) (id string, err error) {
	err = s.do(ctx, "cluster", false, func(d *db) (err error) {
		id, err = d.text("SELECT value FROM meta WHERE key = ?", keyCluster)
		return err
	})
	return id, err
}

// OpenSession registers a node.
func (s *Store) OpenSession(ctx context.Context, node tiers.NodeID) (out control.Session, err error) {
	const op = "open session"
	err = s.do(ctx, op, true, func(d *db) (err error) {
		if node < 0 {
			return tiers.E(tiers.InvalidRequest, op, "", "node id %d is negative", node)
		}
		epoch, err := d.number("INSERT INTO nodes (node, epoch) VALUES (?, 1) ON CONFLICT DO UPDATE SET epoch = epoch + 1 RETURNING epoch", int64(node))
		if err != nil {
			return err
		}
		out = control.Session{Node: node, Epoch: epoch}
		return d.exec("UPDATE partitions SET epoch = epoch + 1 WHERE leader = ?", int64(node))
	})
	if err != nil {
		return control.Session{}, err
	}
	return out, nil
}

// ProducerIDs reserves a block of producer ids.
func (s *Store) ProducerIDs(ctx context.Context, ses control.Session, n int64) (first int64, err error) {
	const op = "reserve producer ids"
	err = s.do(ctx, op, true, func(d *db) (err error) {
		if err = checkSession(d, op, ses); err != nil {
			return err
		}
		if first, err = meta(d, keyProducer); err != nil {
			return err
		}
		if err := control.CheckProducerBlock(first, n); err != nil {
			return err
		}
		return setMeta(d, keyProducer, first+n)
	})
	if err != nil {
		return 0, err
	}
	return first, nil
}

func meta(d *db, key string) (int64, error) {
	return d.number("SELECT value FROM meta WHERE key = ?", key)
}

func setMeta(d *db, key string, v int64) error {
	return d.exec("UPDATE meta SET value = ? WHERE key = ?", v, key)
}

func checkSession(d *db, op string, ses control.Session) error {
	var epoch int64
	_, err := d.one("SELECT epoch FROM nodes WHERE node = ?", []any{int64(ses.Node)}, func(st *sqlite3.Stmt) error {
		epoch = st.ColumnInt64(0)
		return nil
	})
	if err != nil {
		return err
	}
	return control.CheckSession(op, ses, epoch)
}

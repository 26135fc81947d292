package sqlite

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/ncruces/go-sqlite3"

	"github.com/strandline-io/strandline/tiers"
)

// batchLimit is how many mutations one transaction takes.
const batchLimit = 256

// request is one operation on its way to the owner of the connection.
type request struct {
	ctx     context.Context
	op      string
	write   bool
	run     func(d *db) error
	claimed atomic.Bool // by the loop, which then answers, or by a caller that gave up
	done    chan error  // has room for the answer
	err     error       // the loop's: what run returned
}

func (r *request) claim() bool { return r.claimed.CompareAndSwap(false, true) }

// do has the loop run f and returns its answer. A caller whose context ends
// before f began gets TimedOut, and f never runs; afterwards it gets f's answer.
func (s *Store) do(ctx context.Context, op string, write bool, f func(d *db) error) error {
	if err := ctx.Err(); err != nil {
		return tiers.E(tiers.TimedOut, op, "", "nothing was done: %w", err)
	}
	r := &request{ctx: ctx, op: op, write: write, run: f, done: make(chan error, 1)}
	select {
	case s.queue <- r:
	case <-s.quit:
		return errClosed(op)
	case <-ctx.Done():
		return tiers.E(tiers.TimedOut, op, "", "nothing was done: %w", ctx.Err())
	}
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
		if r.claim() {
			return tiers.E(tiers.TimedOut, op, "", "nothing was done: %w", ctx.Err())
		}
	case <-s.dead:
		if r.claim() {
			return errClosed(op)
		}
	}
	return <-r.done
}

func errClosed(op string) error {
	return tiers.E(tiers.Closed, op, "", "the control plane is closed")
}

// loop owns the connection until Close.
func (s *Store) loop(d *db) {
	defer close(s.dead)
	for {
		select {
		case <-s.quit:
			return
		case r := <-s.queue:
			s.turn(d, s.drain(r))
		}
	}
}

// drain takes what is waiting, up to the limit.
func (s *Store) drain(first *request) []*request {
	batch := make([]*request, 0, 16)
	for r := first; ; {
		if r.claim() {
			batch = append(batch, r)
		}
		if len(batch) == batchLimit {
			return batch
		}
		select {
		case r = <-s.queue:
		default:
			return batch
		}
	}
}

// turn runs the mutations in one transaction, answers them, then runs the
// readings, which therefore never see what is not durable.
func (s *Store) turn(d *db, batch []*request) {
	var writes, reads []*request
	for _, r := range batch {
		if r.write {
			writes = append(writes, r)
		} else {
			reads = append(reads, r)
		}
	}
	if len(writes) > 0 {
		s.commit(d, writes)
	}
	for _, r := range reads {
		err := s.usable()
		if err == nil {
			err = r.run(d)
		}
		r.done <- s.explain(r.op, err)
	}
}

// commit runs writes in one transaction and answers them.
func (s *Store) commit(d *db, writes []*request) {
	err := s.usable()
	if err == nil {
		err = s.transact(d, writes)
		s.doubt(err)
	}
	for _, r := range writes {
		if err != nil {
			r.err = err
		}
		r.done <- s.explain(r.op, r.err)
	}
}

// transact returns nil once every write whose err is nil is durable. An error
// means that none is, or that nobody knows.
func (s *Store) transact(d *db, writes []*request) error {
	if err := d.exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	for _, r := range writes {
		if err := mutate(d, r); err != nil {
			return errors.Join(err, rollback(d))
		}
	}
	if err := d.exec("COMMIT"); err != nil {
		return errors.Join(err, rollback(d))
	}
	if s.disk.failed.Load() {
		return errors.New("an fsync failed: what the disk holds is unknown")
	}
	return nil
}

// mutate runs one write in a savepoint. A refusal goes to r.err; the error that
// is returned says that the whole transaction failed.
func mutate(d *db, r *request) error {
	if err := d.exec("SAVEPOINT one"); err != nil {
		return err
	}
	r.err = r.run(d)
	if r.err == nil {
		return d.exec("RELEASE one")
	}
	if refused := (*tiers.Error)(nil); !errors.As(r.err, &refused) {
		return r.err // SQLite failed.
	}
	if err := d.exec("ROLLBACK TO one"); err != nil {
		return err
	}
	return d.exec("RELEASE one")
}

// rollback ends the transaction, if SQLite has not done so by itself.
func rollback(d *db) error {
	if d.conn.GetAutocommit() {
		return nil
	}
	return d.conn.Exec("ROLLBACK")
}

// doubt ends the store after an error of SQLite's that leaves the file in doubt.
// A full disk does not: it kept the commit record from being written, so nothing
// was committed.
func (s *Store) doubt(err error) {
	if refusal := (*tiers.Error)(nil); err == nil || errors.As(err, &refusal) || errors.Is(err, sqlite3.FULL) {
		return
	}
	s.broken.Store(true)
}

// usable returns why everything is refused, if it is: after a failed commit
// nobody knows what is durable, so nothing is answered either.
func (s *Store) usable() error {
	if s.broken.Load() || s.disk.failed.Load() {
		return tiers.E(tiers.StorageFailed, "", s.disk.path, "the disk failed before: restart the node once it is repaired")
	}
	return nil
}

const wayOut = "move the file away and bring its content back with `strandline rebuild`"

// explain turns SQLite's errors into ours.
func (s *Store) explain(op string, err error) error {
	if err == nil {
		return nil
	}
	if e := (*tiers.Error)(nil); errors.As(err, &e) {
		if e.Op == "" {
			return &tiers.Error{Op: op, Place: e.Place, Kind: e.Kind, Err: e.Err}
		}
		return err
	}
	switch {
	case errors.Is(err, sqlite3.FULL):
		return tiers.E(tiers.StorageFailed, op, s.disk.path, "the disk is full, nothing was changed: free space: %w", err)
	case errors.Is(err, sqlite3.CORRUPT), errors.Is(err, sqlite3.NOTADB):
		return tiers.E(tiers.StorageFailed, op, s.disk.path, "the file is damaged: %s: %w", wayOut, err)
	}
	return tiers.E(tiers.StorageFailed, op, s.disk.path, "%w", err)
}

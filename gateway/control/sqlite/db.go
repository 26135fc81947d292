package sqlite

import (
	"fmt"

	"github.com/ncruces/go-sqlite3"
)

// db is a connection with its prepared statements. It belongs to one goroutine.
type db struct {
	conn  *sqlite3.Conn
	stmts map[string]*sqlite3.Stmt
}

func openDB(uri string, flags sqlite3.OpenFlag) (*db, error) {
	conn, err := sqlite3.OpenFlags(uri, flags|sqlite3.OPEN_URI)
	if err != nil {
		return nil, err
	}
	return &db{conn: conn, stmts: map[string]*sqlite3.Stmt{}}, nil
}

func (d *db) close() error {
	for _, st := range d.stmts {
		_ = st.Close() // Repeats the error of its last step, which was handled.
	}
	return d.conn.Close()
}

// bound returns the statement with its parameters set.
func (d *db) bound(sql string, args []any) (*sqlite3.Stmt, error) {
	st := d.stmts[sql]
	if st == nil {
		var err error
		if st, _, err = d.conn.PrepareFlags(sql, sqlite3.PREPARE_PERSISTENT); err != nil {
			return nil, err
		}
		d.stmts[sql] = st
	}
	for i, a := range args {
		if err := bind(st, i+1, a); err != nil {
			return nil, err
		}
	}
	return st, nil
}

func bind(st *sqlite3.Stmt, i int, a any) error {
	switch a := a.(type) {
	case int64:
		return st.BindInt64(i, a)
	case string:
		return st.BindText(i, a)
	case []byte:
		return st.BindBlob(i, a)
	case bool:
		return st.BindBool(i, a)
	}
	return fmt.Errorf("parameter %d of %q has type %T", i, st.SQL(), a)
}

// exec runs a statement that returns no rows.
func (d *db) exec(sql string, args ...any) error {
	st, err := d.bound(sql, args)
	if err != nil {
		return err
	}
	return st.Exec()
}

// each calls f for every row.
func (d *db) each(sql string, args []any, f func(st *sqlite3.Stmt) error) error {
	st, err := d.bound(sql, args)
	if err != nil {
		return err
	}
	for st.Step() {
		if err = f(st); err != nil {
			_ = st.Reset() // The row was read: nothing failed but f.
			return err
		}
	}
	err = st.Err()
	if rerr := st.Reset(); err == nil {
		err = rerr
	}
	return err
}

// one calls f for the first row and reports whether there was one.
func (d *db) one(sql string, args []any, f func(st *sqlite3.Stmt) error) (found bool, err error) {
	err = d.each(sql, args, func(st *sqlite3.Stmt) error {
		if found {
			return nil
		}
		found = true
		return f(st)
	})
	return found, err
}

// number returns the first column of the first row.
func (d *db) number(sql string, args ...any) (n int64, err error) {
	found, err := d.one(sql, args, func(st *sqlite3.Stmt) error {
		n = st.ColumnInt64(0)
		return nil
	})
	if err == nil && !found {
		err = fmt.Errorf("no row for %q", sql)
	}
	return n, err
}

// text returns the first column of the first row, empty if there is none.
func (d *db) text(sql string, args ...any) (s string, err error) {
	_, err = d.one(sql, args, func(st *sqlite3.Stmt) error {
		s = st.ColumnText(0)
		return nil
	})
	return s, err
}

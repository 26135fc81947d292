// Package sqlite is the control plane in one SQLite file: the shipped engine of a
// node that is alone.
//
// One goroutine owns the connection. It takes up to 256 waiting mutations, runs
// each in a savepoint of one BEGIN IMMEDIATE transaction, commits, and only then
// answers all of them, so a mutation that returned nil survives a power cut and
// one that was refused undid nothing but itself. Readings run between two
// transactions on the same goroutine: there is no second connection, so nothing
// pins the write-ahead log (report 119), and SQLite's locks and shared memory
// are not needed (locking_mode=EXCLUSIVE). A Dump is a copy of the pages, read
// away from that goroutine.
//
// All file operations go through tiers/fsys, where the tests crash them. An
// fsync that fails ends the store until it is opened again: what the disk then
// holds is unknown.
//
// Invariants: synchronous=FULL, WAL, one process per file (a lock file beside
// it), SQLite >= 3.51.3 (the WAL-reset bug). The tables are described in
// docs/format/control-plane.md; a golden test holds the two together.
package sqlite

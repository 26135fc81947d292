// Package remoteindex answers which remote segment holds an offset of a leader
// epoch, and how much of a log the bucket holds.
//
// It is pure. An Index is immutable: Apply returns another one, so that the
// owner of a partition keeps the newest and readers keep what they took.
//
// Words: a segment that is CopyFinished is readable. The authoritative lineage
// says which epoch each offset of the log has; a segment may hold records of
// another one, written by a leader whose tail was discarded. What of a segment
// agrees with the lineage, offset by offset, is its safe range (spec R14).
// Coverage is the end of the contiguous run of safe ranges from the start of
// the log on (R5).
//
// Invariants:
//
//   - An index is a function of the rows that were applied, not of their order,
//     but for Highest, which remembers deleted rows (s6.1).
//   - Of the readable segments that hold an offset of an epoch, one is found.
//     Where one of them covers the others in that epoch it is that one, however
//     they came and whichever of them goes (report 037).
//   - Rows of another partition or history are refused.
package remoteindex

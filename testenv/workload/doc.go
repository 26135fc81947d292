// Package workload lives random lives of a whole node (produce, roll, copy, apply
// retention, trim, crash, lose the disk, rebuild, restart with other settings)
// and compares what a client sees with a model of what was acknowledged.
//
// What it holds the node to:
//
//   - an acknowledged record at or above the log start is read back, unchanged,
//     at its offset, until the disk is lost before it was copied;
//   - an offset never names two records, and a record never has two offsets;
//   - the log start is never below what DeleteRecords has answered, and never
//     above what the settings since have allowed;
//   - look-ups by time and the special offsets agree with what can be read;
//   - at the end the bucket holds the objects of the segments that there are, and
//     no others.
//
// The steps of a life follow from its seed; their interleaving with the node's
// own work does not.
package workload

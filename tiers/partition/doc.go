// Package partition is the single owner of a partition: one goroutine per
// partition holds its state; everybody else sends it work or reads its View.
//
// There is one file per verb (append, fetch, copy, ...). A verb's file reads top
// to bottom in time: decide (package plan), say what should be done (a job
// value), do it (a worker), bring it home (the outcome's on method, which
// compares its tokens in the same step that applies it). docs/CONCURRENCY.md has
// the picture.
package partition

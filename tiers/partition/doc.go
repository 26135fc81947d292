// Package partition is the single owner of a partition: one goroutine per
// partition, the loop, holds its state; everybody else sends it work or reads
// its View.
//
// There is one file per verb (append, fetch, copy, ...). A verb's file reads top
// to bottom in time: decide (package plan), say what should be done (a job
// value), do it (a worker), bring it home (the outcome's on method, which
// compares its tokens in the same step that applies it). docs/CONCURRENCY.md has
// the picture.
//
// Who may touch what is in the signatures, and a test reads them:
//
//	func (o *Owner) Append(ctx, ...)      any caller: channels and the View
//	func (s *state) onAppend(...)         the loop: all state, the local disk
//	func (j uploadJob) run(ctx, tools)    a worker: its own value, the bucket, the registry
//	func (r uploadDone) on(s *state)      the loop again
//
// Invariants:
//
//	(P1) A record is acknowledged only after it is as durable as the topic asks,
//	     and a View that shows it was published.
//	(P2) With AckFsync no reader sees a record that is not on disk: the high
//	     watermark is the end of what was synced.
//	(P3) An outcome changes nothing if its tokens are not the state's (spec H2,
//	     F3, F6).
//	(P4) A segment's records object is named by a CopyFinished row only after the
//	     bucket told its size and CRC back (R2); an object that a CopyFinished row
//	     names is never deleted by the copier (R3).
//	(P5) One copy at a time, in offset order, so the remote cover has no hole.
//	(P6) The bucket can delay a copy, a remote read or a move of the log start, and
//	     nothing else.
//	(P7) The log start is remembered, then on disk, then in the View, and only then
//	     does anything below it go (R8). Above it nothing leaves a tier that the
//	     other one does not hold.
//	(P8) There is one way out of the bucket (remove.go), for whatever reason, and
//	     what is on it is derived, never only remembered.
package partition

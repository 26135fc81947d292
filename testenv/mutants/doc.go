// Package mutants shows that the tests can fail. A mutant is a text file that
// breaks one rule of the product (*.mutant); the runner builds the tests that
// guard the rule against it and wants them to fail. The product has no hooks for
// this: a mutant reaches the compiler by `go build -overlay` only.
//
// Nothing is kept between runs but the build cache: each mutant has a temporary
// folder of its own, and no file of the repository is written.
//
// Invariants:
//
//   - A mutant counts as killed only if its tests ran and failed, and pass
//     without it. One that does not build, or names no test, is an error.
//   - The text that a hunk replaces is in its file exactly once. Code that moved
//     on makes the mutant an error, never one that silently changes nothing.
package mutants

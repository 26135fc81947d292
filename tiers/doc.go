// Package tiers holds the words of the field: offsets, leader epochs, lineage,
// watermarks, segment facts and errors, with the invariants that bind them.
//
// It is pure: standard library only, no I/O, no goroutine, no clock. Whoever
// needs the time or a seed is handed it. Nothing in here has an owner, because
// every type is a value.
//
// Ranges are half open: an exclusive bound is called End or Next, an inclusive
// one Last. Kafka's wire format and files use inclusive bounds; they are
// converted where they are read and written.
package tiers

// Package bench measures a Kafka server through standard requests only, so that
// any server can be measured the same way: produce, consume, cold (consume of
// what is in the object store alone, next to plain ranged GETs), and rebuild.
//
// A run owns its clients, its histograms and the topic that it made. Nothing is
// written to a topic that was not made for this unless the caller insists.
//
// Invariants: a record counts once it was acknowledged or consumed, never when it
// was sent; a run that ends early, by an error or a cancelled context, reports
// what it has measured up to then; the payload of each record carries its run,
// its number and a checksum, so a consumer can tell a lost, doubled, reordered
// or damaged record.
package bench

import (
	"errors"
	"fmt"
	"strings"
)

// TopicPrefix begins the names of topics that are taken to be for benchmarks:
// they are written to and deleted without further questions.
const TopicPrefix = "strandline-bench"

// ErrRefused is what a run answers that would touch somebody's records.
var ErrRefused = errors.New("refused")

// ownTopic reports whether the name is one of a topic for benchmarks.
func ownTopic(name string) bool { return strings.HasPrefix(name, TopicPrefix) }

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrRefused, fmt.Sprintf(format, args...))
}

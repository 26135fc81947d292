package broker

import (
	"strings"

	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/tiers"
)

// CheckTopicName returns InvalidTopic with the reason if name is not legal in
// Kafka: 1 to 249 ASCII letters, digits, '.', '_' and '-', and neither "." nor
// "..".
func CheckTopicName(name string) error {
	const op = "check topic name"
	switch {
	case name == "":
		return tiers.E(tiers.InvalidTopic, op, "", "the name is empty")
	case name == "." || name == "..":
		return tiers.E(tiers.InvalidTopic, op, name, "%q is not allowed", name)
	case len(name) > control.MaxTopicName:
		return tiers.E(tiers.InvalidTopic, op, name[:32]+"...", "the name has %d bytes, at most %d are allowed", len(name), control.MaxTopicName)
	}
	if i := strings.IndexFunc(name, func(r rune) bool { return !legalInTopic(r) }); i >= 0 {
		return tiers.E(tiers.InvalidTopic, op, "", "name %q: use ASCII letters, digits, '.', '_' and '-' only", name)
	}
	return nil
}

func legalInTopic(r rune) bool {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
		return true
	}
	return r == '.' || r == '_' || r == '-'
}

// Closest returns the known word that takes the fewest edits to reach from word,
// "" if none is near: more than a third of it would have to change.
func Closest(word string, known []string) string {
	best, distance := "", max(2, len(word)/3)+1
	for _, k := range known {
		if d := edits(word, k); d < distance {
			best, distance = k, d
		}
	}
	return best
}

// edits is the Levenshtein distance of a and b, one row at a time.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

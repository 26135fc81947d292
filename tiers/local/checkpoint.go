package local

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/strandline-io/strandline/tiers"
)

// checkpointLines reads the frame that all of Kafka's checkpoint files share: a
// line with version 0, one with the number of entries, the entries. If the frame
// is broken it returns the lines that are there, and an error.
func checkpointLines(b []byte) ([]string, error) {
	text, whole := strings.CutSuffix(string(b), "\n")
	lines := strings.Split(text, "\n")
	if len(lines) < 2 || lines[0] != "0" {
		return nil, errors.New("no version 0 and count at the start")
	}
	n, err := strconv.Atoi(lines[1])
	lines = lines[2:]
	switch {
	case err != nil || n < 0:
		return lines, errors.New("the count is no number")
	case n != len(lines):
		return lines, fmt.Errorf("%d entries, the count says %d", len(lines), n)
	case !whole:
		return lines, errors.New("the last line does not end")
	}
	return lines, nil
}

// encodeOffsets writes a checkpoint of a disk: Kafka's format, except that a
// partition is named by "topic-id-hex index" because names are reused.
func encodeOffsets(m map[tiers.PartitionID]tiers.Offset) []byte {
	b := fmt.Appendf(nil, "0\n%d\n", len(m))
	for _, id := range slices.SortedFunc(maps.Keys(m), byID) {
		b = appendOffset(b, id, m[id])
	}
	return b
}

func byID(a, b tiers.PartitionID) int {
	return cmp.Or(bytes.Compare(a.Topic[:], b.Topic[:]), cmp.Compare(a.Index, b.Index))
}

// lineRoom is more than a line of a checkpoint takes.
const lineRoom = 80

// appendOffset appends a line. All partitions of a disk have one, in files that
// are written often.
func appendOffset(b []byte, id tiers.PartitionID, o tiers.Offset) []byte {
	b = hex.AppendEncode(b, id.Topic[:])
	b = strconv.AppendInt(append(b, ' '), int64(id.Index), 10)
	b = strconv.AppendInt(append(b, ' '), int64(o), 10)
	return append(b, '\n')
}

// decodeOffsets reads a checkpoint of a disk. It is whole or worth nothing: a
// missing recovery point only means more work, a wrong one means loss (C7).
func decodeOffsets(b []byte) (map[tiers.PartitionID]tiers.Offset, error) {
	lines, err := checkpointLines(b)
	if err != nil {
		return nil, err
	}
	m := make(map[tiers.PartitionID]tiers.Offset, len(lines))
	for i, line := range lines {
		id, o, err := parseOffset(line)
		if err != nil {
			return nil, fmt.Errorf("entry %d: %w", i, err)
		}
		if _, twice := m[id]; twice {
			return nil, fmt.Errorf("entry %d: %s is there twice", i, id)
		}
		m[id] = o
	}
	return m, nil
}

func parseOffset(line string) (id tiers.PartitionID, o tiers.Offset, err error) {
	f := strings.Fields(line)
	if len(f) != 3 {
		return id, 0, fmt.Errorf("%q is no topic id, index and offset", line)
	}
	if id.Topic, err = tiers.ParseTopicID(f[0]); err != nil {
		return id, 0, err
	}
	index, err := strconv.ParseInt(f[1], 10, 32)
	if err != nil {
		return id, 0, err
	}
	n, err := strconv.ParseInt(f[2], 10, 64)
	if err != nil {
		return id, 0, err
	}
	if index < 0 || n < 0 {
		return id, 0, fmt.Errorf("%q has a negative number", line)
	}
	id.Index = int32(index)
	return id, tiers.Offset(n), nil
}

package local

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/strandline-io/strandline/tiers"
)

// encodeEpochs writes Kafka's leader-epoch-checkpoint: version 0, the number of
// entries, one "epoch start" a line.
func encodeEpochs(l tiers.Lineage) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "0\n%d\n", len(l))
	for _, e := range l {
		fmt.Fprintf(&b, "%d %d\n", e.Epoch, e.Start)
	}
	return b.Bytes()
}

// decodeEpochs reads a leader-epoch-checkpoint. With an error it returns the
// entries before the first that is wrong: they may still be of use where the
// batches that would tell are no longer on disk (report 117).
func decodeEpochs(b []byte) (tiers.Lineage, error) {
	lines, err := checkpointLines(b)
	var l tiers.Lineage
	for i, line := range lines {
		e, lerr := parseEpoch(line)
		if lerr == nil {
			lerr = append(slices.Clip(l), e).Valid()
		}
		if lerr != nil {
			return l, fmt.Errorf("entry %d: %w", i, lerr)
		}
		l = append(l, e)
	}
	return l, err
}

func parseEpoch(line string) (tiers.EpochStart, error) {
	f := strings.Fields(line)
	if len(f) != 2 {
		return tiers.EpochStart{}, fmt.Errorf("%q is no epoch and start", line)
	}
	e, err := strconv.ParseInt(f[0], 10, 32)
	if err != nil {
		return tiers.EpochStart{}, err
	}
	s, err := strconv.ParseInt(f[1], 10, 64)
	if err != nil {
		return tiers.EpochStart{}, err
	}
	return tiers.EpochStart{Epoch: tiers.LeaderEpoch(e), Start: tiers.Offset(s)}, nil
}

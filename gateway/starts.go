package gateway

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/fsys"
)

// StartsFile names the starts of a data directory that may hold the bucket's
// claim, one per line: the last one that did, and the one that is asking for it.
// A directory whose starts do not have the claim was replaced by a rebuild, or
// is an old copy. docs/format/checkpoints.md has the format.
const StartsFile = "claim-starts"

const startsVersion = "0"

// readStarts returns the starts of a data directory; one without the file has
// none.
func readStarts(files fsys.FS, dir string) ([]string, error) {
	path := dir + "/" + StartsFile
	raw, err := fsys.ReadFile(files, path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, tiers.E(tiers.StorageFailed, "read starts", path, "%w", err)
	}
	starts, err := decodeStarts(string(raw))
	if err != nil {
		return nil, tiers.E(tiers.StorageFailed, "read starts", path,
			"%w: `strandline serve --take-over` writes it anew, if this data directory was the last to use the bucket", err)
	}
	return starts, nil
}

func decodeStarts(s string) ([]string, error) {
	version, rest, ok := strings.Cut(s, "\n")
	if !ok || version != startsVersion {
		return nil, fmt.Errorf("version %.20q, want %q", version, startsVersion)
	}
	body, ok := strings.CutSuffix(rest, "\nend\n")
	if !ok || body == "" {
		return nil, errors.New("the file is cut short")
	}
	return strings.Split(body, "\n"), nil
}

// writeStarts makes the starts durable. It comes before the claim is asked for:
// whatever becomes of that, the directory knows its own start again.
func writeStarts(files fsys.FS, dir string, starts []string) error {
	path := dir + "/" + StartsFile
	body := startsVersion + "\n" + strings.Join(starts, "\n") + "\nend\n"
	if err := fsys.WriteFileAtomic(files, path, []byte(body), 0o600); err != nil {
		return tiers.E(tiers.StorageFailed, "write starts", path, "%w", err)
	}
	return nil
}

// nextStarts are the starts to remember when start asks for a claim that holder
// has. Only what may be in the claim is of interest.
func nextStarts(known []string, holder, start string) []string {
	if holder != "" && slices.Contains(known, holder) {
		return []string{holder, start}
	}
	return []string{start}
}

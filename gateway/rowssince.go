package gateway

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/fsys"
)

// RowsSinceFile says since when the control plane of a data directory has kept the
// rows of the bucket without a break: since it was made, rebuilt, or took the
// bucket over. An object that was uploaded later and has no row is nobody's; of
// an older one that is not known (the orphan sweep). docs/format/checkpoints.md
// has the format.
const RowsSinceFile = "rows-since"

const rowsSinceVersion = "0"

// rowsSince returns the time in the file, and begins anew where there is none, it
// is damaged, or anew is set: a later time only makes the sweep leave more.
func rowsSince(files fsys.FS, dir string, now time.Time, anew bool, log hclog.Logger) (time.Time, error) {
	path := dir + "/" + RowsSinceFile
	raw, err := fsys.ReadFile(files, path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return time.Time{}, tiers.E(tiers.StorageFailed, "start", path, "%w", err)
	case !anew:
		since, derr := decodeRowsSince(string(raw))
		if derr == nil {
			return since, nil
		}
		log.Warn("it is not known since when the control plane kept its rows: the orphan sweep begins anew", "file", path, "err", derr)
	}
	now = now.UTC().Truncate(time.Second).Add(time.Second)
	body := rowsSinceVersion + "\n" + now.Format(time.RFC3339) + "\nend\n"
	if err := fsys.WriteFileAtomic(files, path, []byte(body), 0o600); err != nil {
		return time.Time{}, tiers.E(tiers.StorageFailed, "start", path, "%w", err)
	}
	return now, nil
}

func decodeRowsSince(s string) (time.Time, error) {
	lines := strings.Split(s, "\n")
	if len(lines) != 4 || lines[0] != rowsSinceVersion || lines[2] != "end" || lines[3] != "" {
		return time.Time{}, fmt.Errorf("%.60q is not version %s of this file", s, rowsSinceVersion)
	}
	return time.Parse(time.RFC3339, lines[1])
}

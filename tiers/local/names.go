package local

import (
	"fmt"
	"path"
	"strconv"
	"strings"
	"syscall"

	"github.com/strandline-io/strandline/tiers"
)

// The files of a segment, named after its base offset in 20 digits.
const (
	logSuffix      = ".log"
	indexSuffix    = ".index"
	timeSuffix     = ".timeindex"
	txnSuffix      = ".txnindex"
	snapshotSuffix = ".snapshot"
	deletedSuffix  = ".deleted" // waits for its readers; of no use after a restart

	baseDigits = 20
)

// The other files.
const (
	epochFile    = "leader-epoch-checkpoint"
	metadataFile = "partition.metadata"

	lockFile          = ".lock"
	cleanFile         = "clean-shutdown"
	recoveryPointFile = "recovery-point-offset-checkpoint"
	logStartFile      = "log-start-offset-checkpoint"
	replicationFile   = "replication-offset-checkpoint"
)

// The flags of package os have these values on every system; only fsys may
// import that package.
const (
	openRead   = syscall.O_RDONLY
	openWrite  = syscall.O_RDWR
	openCreate = syscall.O_RDWR | syscall.O_CREAT | syscall.O_TRUNC

	filePerm = 0o644
	dirPerm  = 0o755
)

func fileName(base tiers.Offset, suffix string) string {
	return fmt.Sprintf("%0*d%s", baseDigits, base, suffix)
}

func genDir(dir string, gen tiers.HistoryGen) string {
	return path.Join(dir, "h"+strconv.Itoa(int(gen)))
}

// parseName is the reverse of fileName. ok is false for any other name.
func parseName(name string) (base tiers.Offset, suffix string, ok bool) {
	if len(name) <= baseDigits || name[baseDigits] != '.' || strings.Trim(name[:baseDigits], "0123456789") != "" {
		return 0, "", false
	}
	n, err := strconv.ParseInt(name[:baseDigits], 10, 64)
	if err != nil {
		return 0, "", false
	}
	return tiers.Offset(n), name[baseDigits:], true
}

package local

import (
	"github.com/hashicorp/go-hclog"

	"github.com/strandline-io/strandline/tiers"
	"github.com/strandline-io/strandline/tiers/fsys"
)

// Disk is the owner of a data directory: its lock, its clean-shutdown marker and
// its checkpoint files (recovery-point-offset-checkpoint,
// log-start-offset-checkpoint, replication-offset-checkpoint). Sampling the logs
// and writing a file is one step under one lock (C2); truncation lowers the
// recovery point in the file first (C4).
type Disk struct{}

// OpenDisk locks the directory and reads its checkpoints. It fails with
// fsys.ErrLocked, naming the directory, if another process has it.
func OpenDisk(fs fsys.FS, dir string, log hclog.Logger) (*Disk, error) { panic("contract") }

// Checkpoint samples every open log of the disk and writes the checkpoint files.
func (d *Disk) Checkpoint() error { panic("contract") }

// Forget removes a partition's entries: they never come back (C6).
func (d *Disk) Forget(id tiers.PartitionID) error { panic("contract") }

// Close writes the checkpoints, then the clean-shutdown marker if every log was
// closed, and unlocks.
func (d *Disk) Close() error { panic("contract") }

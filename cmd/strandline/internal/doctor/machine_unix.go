//go:build unix

package doctor

import (
	"fmt"
	"syscall"
)

// openFileLimit is how many files a process started like this one may have open.
// Programs in Go raise the soft limit to the hard one by themselves.
func openFileLimit() (uint64, error) {
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		return 0, fmt.Errorf("getrlimit: %w", err)
	}
	return uint64(r.Max), nil //nolint:unconvert // signed on some systems
}

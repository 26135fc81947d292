//go:build linux || darwin

package fsys

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

func lockFile(f *os.File) error {
	err := control(f, unix.EINTR, func(fd int) error { return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) })
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrLocked
	}
	return err
}

func diskFree(name string) (free, total int64, err error) {
	var s unix.Statfs_t
	for {
		err = unix.Statfs(name, &s)
		if err == nil {
			return int64(s.Bavail) * blockSize(&s), int64(s.Blocks) * blockSize(&s), nil
		}
		if err != unix.EINTR {
			return 0, 0, err
		}
	}
}

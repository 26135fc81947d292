package fsys

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

func syncData(f *os.File) error { return control(f, unix.EINTR, unix.Fdatasync) }

func preallocate(f *os.File, size int64) error {
	err := control(f, unix.EINTR, func(fd int) error {
		return unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, 0, size)
	})
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return nil
	}
	return err
}

func blockSize(s *unix.Statfs_t) int64 { return s.Bsize }

package fsys

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// syncData is Sync, which asks for F_FULLFSYNC: a plain fsync of macOS leaves the
// data in the disk's own cache.
func syncData(f *os.File) error { return f.Sync() }

func preallocate(f *os.File, size int64) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if st.Size() >= size {
		return nil
	}
	want := unix.Fstore_t{Flags: unix.F_ALLOCATEALL, Posmode: unix.F_PEOFPOSMODE, Length: size - st.Size()}
	err = control(f, unix.EINTR, func(fd int) error {
		return unix.FcntlFstore(uintptr(fd), unix.F_PREALLOCATE, &want)
	})
	if errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) {
		return nil
	}
	return err
}

func blockSize(s *unix.Statfs_t) int64 { return int64(s.Bsize) }

//go:build !linux && !darwin

package fsys

import (
	"errors"
	"os"
)

func lockFile(*os.File) error { return errors.ErrUnsupported }

func diskFree(string) (free, total int64, err error) { return 0, 0, errors.ErrUnsupported }

func syncData(f *os.File) error { return f.Sync() }

func preallocate(*os.File, int64) error { return nil }

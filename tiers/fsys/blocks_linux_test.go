package fsys_test

import (
	"io/fs"
	"syscall"
)

// blocks is the number of 512-byte blocks of a file.
func blocks(st fs.FileInfo) int64 { return st.Sys().(*syscall.Stat_t).Blocks }

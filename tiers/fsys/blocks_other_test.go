//go:build !linux

package fsys_test

import "io/fs"

// blocks is not known here.
func blocks(fs.FileInfo) int64 { return -1 }

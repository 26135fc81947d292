package spool

import "testing"

// A file system gives whole blocks: a cache of many small pieces must not take
// several times its limit.
func TestFilesCountAsTheirBlocks(t *testing.T) {
	for n, want := range map[int64]int64{0: 4096, 1: 4096, 4096 - headerSize: 4096, 4097 - headerSize: 8192, 256 << 10: 256<<10 + 4096} {
		if got := fileSize(n); got != want {
			t.Errorf("a piece of %d bytes counts as %d, want %d", n, got, want)
		}
	}
}

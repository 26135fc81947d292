//go:build !linux

package doctor

func fileSystem(string) string { return "" }

func freeInodes(string) (free uint64, known bool) { return 0, false }

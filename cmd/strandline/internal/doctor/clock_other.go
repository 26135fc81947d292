//go:build !linux

package doctor

// unsynchronized is not known here.
func unsynchronized() bool { return false }

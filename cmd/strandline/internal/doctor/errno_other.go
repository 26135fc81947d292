//go:build !unix

package doctor

func isReadOnly(error) bool { return false }

func isFull(error) bool { return false }

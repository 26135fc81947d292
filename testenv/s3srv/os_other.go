//go:build !linux

package s3srv

import "os/exec"

// dieWithParent is for Linux: elsewhere a killed test binary leaves its child.
func dieWithParent(*exec.Cmd) {}

// checkXattrs leaves it to versitygw to complain.
func checkXattrs(string) error { return nil }

package s3srv

import (
	"fmt"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// dieWithParent has the kernel kill the child when this process dies, however.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// checkXattrs tries what versitygw will do.
func checkXattrs(dir string) error {
	if err := unix.Setxattr(dir, "user.strandline", []byte("1"), 0); err != nil {
		return fmt.Errorf("user xattrs: %w", err)
	}
	return unix.Removexattr(dir, "user.strandline")
}

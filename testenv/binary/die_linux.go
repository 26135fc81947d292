package binary

import (
	"os/exec"
	"syscall"
)

// dieWithParent has the kernel end the child if the test binary dies.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

package chaos

import "syscall"

// dieWithParent makes the kernel kill a client's process when ours ends, however it ends: a stopped
// one would stay.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

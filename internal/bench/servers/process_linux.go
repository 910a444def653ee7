package servers

import "syscall"

// dieWithParent makes a child end when this process does, however it ends.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

package ensemble

import "syscall"

// dieWithParent makes the kernel kill a server when the test process ends, however it ends (a test's timeout panics,
// and then no cleanup runs).
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

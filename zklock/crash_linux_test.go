package zklock_test

import "syscall"

// crashAttributes makes a child end with its test, however the test ends.
func crashAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

package zklock_test

import "syscall"

// crashAttributes has a child end with its test, whatever ends the test.
func crashAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

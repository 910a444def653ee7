package interop_test

import "syscall"

// attributes has a client's process end with its test, whatever ends the test.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

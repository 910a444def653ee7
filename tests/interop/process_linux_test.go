package interop_test

import "syscall"

// attributes makes a client's process end with its test, however the test ends.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

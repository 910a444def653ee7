package main

import "syscall"

// attributes makes an instance end with its parent, however the parent ends.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

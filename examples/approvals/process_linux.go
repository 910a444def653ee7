package main

import "syscall"

// attributes has an instance end with its parent, whatever ends that one.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

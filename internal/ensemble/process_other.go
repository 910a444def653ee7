//go:build !linux

package ensemble

import "syscall"

// dieWithParent has no counterpart here: a server outlives a test process that was killed.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

//go:build !linux

package chaos

import "syscall"

// dieWithParent has no counterpart here: a stopped client outlives a process of ours that was
// killed.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

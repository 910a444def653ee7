//go:build !linux

package ensemble

import "syscall"

// dieWithParent has no counterpart here: a server outlives a test process that was killed.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

// awaitStopped has no counterpart here: a server may answer for a moment after it was paused.
func awaitStopped(int) error { return nil }

//go:build !linux

package zklock_test

import "syscall"

// crashAttributes returns none: a child ends when its standard input is closed.
func crashAttributes() *syscall.SysProcAttr { return nil }

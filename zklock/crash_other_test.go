//go:build !linux

package zklock_test

import "syscall"

// crashAttributes has nothing to add: a child ends when its standard input does.
func crashAttributes() *syscall.SysProcAttr { return nil }

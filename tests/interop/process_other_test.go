//go:build !linux

package interop_test

import "syscall"

// attributes has nothing to add: a client's process ends when its standard input does.
func attributes() *syscall.SysProcAttr { return nil }

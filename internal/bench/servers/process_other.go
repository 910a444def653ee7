//go:build !linux

package servers

import "syscall"

// dieWithParent does nothing here: a child may outlive this process if it is killed.
func dieWithParent() *syscall.SysProcAttr { return nil }

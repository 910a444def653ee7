//go:build !linux

package main

import "syscall"

// attributes has nothing to add: an instance ends when its standard input does.
func attributes() *syscall.SysProcAttr { return nil }

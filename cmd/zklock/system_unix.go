//go:build unix && !linux

package main

import (
	"os"
	"syscall"
	"time"
)

// bootTime is the clock that both processes read. It can be set: a step back delays the guard, not
// zklock.
func bootTime() int64 { return time.Now().UnixNano() }

// dieWithUs does nothing: there is no parent-death signal here. The guard process ends the group.
func dieWithUs(*syscall.SysProcAttr, syscall.Signal) {}

// adopt does nothing: process 1 reaps what the command leaves behind.
func adopt() error { return nil }

// ownProgram is the file that this process was started from, which may have been replaced.
func ownProgram() (string, error) { return os.Executable() }

// noProgram says what to do when that file is missing.
const noProgram = "the file of this zklock was moved or removed: start the new one"

// lastSignal is the greatest signal number there is.
const lastSignal = 31

// parentOf cannot find other processes' parents. A script around zklock then does not stop by
// Ctrl-Z.
func parentOf(int) (parent int, ok bool) { return 0, false }

//go:build unix && !linux

package main

import (
	"os"
	"syscall"
	"time"
)

// bootTime returns the time in nanoseconds by the clock that zklock and its guard read. This clock
// can be set: a step back delays the guard, but not zklock.
func bootTime() int64 { return time.Now().UnixNano() }

// dieWithUs does nothing: there is no parent-death signal here.
func dieWithUs(*syscall.SysProcAttr, syscall.Signal) {}

// adopt does nothing: process 1 adopts and reaps what the command leaves behind.
func adopt() error { return nil }

// haveChildren returns true. Here it can't be known whether processes below this one are left.
func haveChildren() bool { return true }

// ownProgram returns the file that this process was started from, which may have been replaced.
func ownProgram() (string, error) { return os.Executable() }

// noProgram says what to do if that file is missing.
const noProgram = "the file of this zklock was moved or removed: start the new one"

// lastSignal is the greatest signal number there is.
const lastSignal = 31

// parentOf returns false, since it can't find the parents of other processes here. Because of that
// Ctrl-Z does not stop a script around zklock.
func parentOf(int) (parent int, ok bool) { return 0, false }

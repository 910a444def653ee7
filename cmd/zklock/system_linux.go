package main

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// bootTime is the clock that both processes read: it goes on while the machine sleeps.
func bootTime() int64 {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return time.Now().UnixNano()
	}
	return t.Nano()
}

// dieWithUs has the kernel send sig to the command when the thread that starts it ends.
func dieWithUs(attr *syscall.SysProcAttr, sig syscall.Signal) { attr.Pdeathsig = sig }

// adopt makes us the parent of what the command leaves behind, so that it is reaped also where process 1 does not reap.
func adopt() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// lastSignal is the greatest signal number there is.
const lastSignal = 64

package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// bootTime returns the time in nanoseconds by the clock that zklock and its guard read. This clock
// goes on while the machine is suspended.
func bootTime() int64 {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return time.Now().UnixNano()
	}
	return t.Nano()
}

// dieWithUs makes the kernel send sig to the process when the thread that starts it ends.
func dieWithUs(attr *syscall.SysProcAttr, sig syscall.Signal) { attr.Pdeathsig = sig }

// adopt makes this process, from now on, the parent of each process below it whose parent ends.
// zklock does it, so that processes that the command leaves behind are reaped even where process 1
// does not reap. Its guard does it to know them: see haveChildren.
func adopt() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// haveChildren reports whether this process has a child process, perhaps one that has ended and was
// not reaped yet.
func haveChildren() bool {
	for {
		err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return !errors.Is(err, unix.ECHILD)
		}
	}
}

// ownProgram returns a file with the program of this process, even if the file that it was started
// from has been replaced.
func ownProgram() (string, error) { return "/proc/self/exe", nil }

// noProgram says what to do if that file is missing.
const noProgram = "zklock needs /proc: mount it, " +
	"in a chroot or container too (mount -t proc proc /proc)"

// lastSignal is the greatest signal number there is.
const lastSignal = 64

// parentOf returns the parent of a process, or false if it has none or can't be found.
func parentOf(pid int) (parent int, ok bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, false
	}
	// The process's name is in brackets and may contain any character, even a bracket.
	text := string(stat)
	afterName := text[strings.LastIndexByte(text, ')')+1:]
	var state string
	_, err = fmt.Sscan(afterName, &state, &parent)
	return parent, err == nil && parent > 0
}

//go:build unix

package main

import (
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// The command is in a process group of its own, so that zklock can end it with all that it started. A terminal lets
// only one group read, the foreground group. A shell has put us there, so we hand that over and take it back, as shells
// do:
//
//   - with standard input and output on the terminal the command gets it from the start, and Ctrl-C and Ctrl-Z go
//     straight to the command;
//   - in a pipeline or with a redirection the command gets it at its first access (SIGTTIN, SIGTTOU), so that a pager
//     at the other end keeps it until then; until then Ctrl-C and Ctrl-Z come to us and are forwarded;
//   - when the command is stopped, we stop too, so that the shell has its prompt; when the shell continues us, we
//     continue the command, if the lock is still ours.
type terminal struct {
	file *os.File // /dev/tty
	own  int      // our process group
	pgid int      // the command's
	lent bool     // we have put the command's group in the foreground
}

// openTerminal returns nil where there is no controlling terminal.
func openTerminal() *terminal {
	file, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return nil
	}
	return &terminal{file: file, own: unix.Getpgrp()}
}

func (t *terminal) close() error {
	if t == nil {
		return nil
	}
	return t.file.Close()
}

func (t *terminal) fd() int { return int(t.file.Fd()) }

// ours reports whether our group is in the foreground.
func (t *terminal) ours() bool {
	if t == nil {
		return false
	}
	group, err := unix.IoctlGetInt(t.fd(), unix.TIOCGPGRP)
	return err == nil && group == t.own
}

// fromTheStart reports whether the command starts in the foreground.
func (t *terminal) fromTheStart() bool {
	return t.ours() && term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stdout.Fd()))
}

// give puts the command's group in the foreground, if ours is there. SIGTTOU is ignored while a command runs, so that
// this is allowed.
func (t *terminal) give() bool {
	if !t.ours() || unix.IoctlSetPointerInt(t.fd(), unix.TIOCSPGRP, t.pgid) != nil {
		return false
	}
	t.lent = true
	return true
}

// take puts our group in the foreground, if the command's is there.
func (t *terminal) take() {
	if t == nil || !t.lent {
		return
	}
	group, err := unix.IoctlGetInt(t.fd(), unix.TIOCGPGRP)
	if err == nil && (group == t.pgid || errors.Is(unix.Kill(-group, 0), unix.ESRCH)) { // or a command that did not start
		_ = unix.IoctlSetPointerInt(t.fd(), unix.TIOCSPGRP, t.own) // fails only on a terminal that hung up
	}
}

// stopped handles a command that sig has stopped. It returns true when the command is to be continued, false without a
// terminal. While we are stopped, the guard watches the lease.
func (t *terminal) stopped(sig syscall.Signal) bool {
	if t == nil {
		return false
	}
	if (sig == syscall.SIGTTIN || sig == syscall.SIGTTOU) && t.give() {
		return true
	}
	t.take()
	if wakeable() {
		suspend()
	}
	if t.lent {
		t.give()
	}
	return true
}

// suspend stops our process group as the terminal would have, and returns when it is continued. The others get SIGTSTP;
// zklock stops by SIGSTOP, since Go does not restore the default action of SIGTSTP once it has been caught.
func suspend() {
	woken := make(chan os.Signal, 1)
	signal.Notify(woken, syscall.SIGCONT)
	defer signal.Stop(woken)
	signal.Ignore(syscall.SIGTSTP)
	_ = syscall.Kill(0, syscall.SIGTSTP) // we are one of the group, so there is somebody whom we may signal
	if syscall.Kill(os.Getpid(), syscall.SIGSTOP) == nil {
		select {
		case <-woken:
		case <-time.After(time.Second): // the timer runs on while we are stopped
		}
	}
}

// wakeable reports whether there is a shell that could continue us: an ancestor in our session, outside of our process
// group. Without one, a terminal does not stop a process group either.
func wakeable() bool {
	session, err := unix.Getsid(0)
	if err != nil {
		return false
	}
	for pid, ok := os.Getppid(), true; ok; pid, ok = parentOf(pid) {
		group, err := unix.Getpgid(pid)
		if err != nil {
			return false
		}
		if s, err := unix.Getsid(pid); err != nil || s != session {
			return false
		}
		if group != unix.Getpgrp() {
			return true
		}
	}
	return false
}

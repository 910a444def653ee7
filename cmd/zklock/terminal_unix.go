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

// terminal is the controlling terminal, which zklock lends to the command.
//
// The command is in its own process group, so that zklock can end it with all that it started. A
// terminal lets only one group read, the foreground group. A shell has put zklock's group there. So
// zklock puts the command's group in the foreground and takes its place back, as shells do:
//
//   - If standard input and output are the terminal, the command has it from the start. Ctrl-C and
//     Ctrl-Z go straight to the command.
//   - In a pipeline or with a redirection the command gets it at its first access (SIGTTIN,
//     SIGTTOU), so that a pager at the other end keeps it until then. Until then Ctrl-C and Ctrl-Z
//     come to zklock and are forwarded.
//   - When the command is stopped, zklock stops too, so that the shell shows its prompt. When the
//     shell continues zklock, zklock continues the command if it still has the lock.
type terminal struct {
	file *os.File // /dev/tty
	own  int      // our process group
	pgid int      // the command's
	lent bool     // we have put the command's group in the foreground
}

// openTerminal returns nil if there is no controlling terminal. A nil terminal has all methods that
// the supervision of a command needs, and they do nothing.
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

// give puts the command's group in the foreground if ours is there. It reports whether it did. It
// is allowed to, because SIGTTOU is ignored while a command runs.
func (t *terminal) give() bool {
	if !t.ours() {
		return false
	}
	if err := unix.IoctlSetPointerInt(t.fd(), unix.TIOCSPGRP, t.pgid); err != nil {
		return false
	}
	t.lent = true
	return true
}

// take puts our group in the foreground if the command's is there, or a group that is gone. That is
// the command's group if the command could not be started.
func (t *terminal) take() {
	if t == nil || !t.lent {
		return
	}
	group, err := unix.IoctlGetInt(t.fd(), unix.TIOCGPGRP)
	if err != nil {
		return
	}
	if group == t.pgid || errors.Is(unix.Kill(-group, 0), unix.ESRCH) {
		// This fails only on a terminal that has hung up.
		_ = unix.IoctlSetPointerInt(t.fd(), unix.TIOCSPGRP, t.own)
	}
}

// stopped handles a command that sig has stopped. It reports whether the command is to be
// continued, which is false without a terminal. While zklock is stopped, the guard watches the
// lease.
func (t *terminal) stopped(sig syscall.Signal) bool {
	if t == nil {
		return false
	}
	wantsTerminal := sig == syscall.SIGTTIN || sig == syscall.SIGTTOU
	if wantsTerminal && t.give() {
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

// suspend stops our process group as the terminal would have, and returns when it is continued. The
// other processes of the group get SIGTSTP. zklock stops by SIGSTOP, since Go does not restore the
// default action of SIGTSTP once it has been caught.
func suspend() {
	woken := make(chan os.Signal, 1)
	signal.Notify(woken, syscall.SIGCONT)
	defer signal.Stop(woken)
	signal.Ignore(syscall.SIGTSTP)
	_ = syscall.Kill(0, syscall.SIGTSTP) // can't fail: we are in the group and may signal ourselves
	if syscall.Kill(os.Getpid(), syscall.SIGSTOP) == nil {
		select {
		case <-woken:
		case <-time.After(time.Second): // the timer runs on while we are stopped
		}
	}
}

// wakeable reports whether there is a shell that could continue us: an ancestor that is in our
// session and outside of our process group. A terminal does not stop a process group without one
// either.
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

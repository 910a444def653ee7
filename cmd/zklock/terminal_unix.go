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

// The command is in a process group of its own, so that it can be ended with all that it started. A terminal lets only
// one group read, the foreground group; a shell has put us there, so we pass that on and take it back, as shells do:
//
//   - with standard input and output on the terminal the command gets it from the start, and Ctrl-C and Ctrl-Z go
//     straight to it;
//   - in a pipeline or with a redirection it gets it when it first asks (SIGTTIN, SIGTTOU), so that a pager at the
//     other end keeps it until then; until then Ctrl-C and Ctrl-Z come to us and are forwarded;
//   - when the command is stopped, we stop too, so that the shell has its prompt; when the shell continues us, we
//     continue the command, if the lock is still ours.
type terminal struct {
	file *os.File // /dev/tty
	own  int      // our process group
	pgid int      // the command's
	lent bool     // the command's group has been in the foreground by our hand
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

// fromTheStart reports whether the command is to begin in the foreground.
func (t *terminal) fromTheStart() bool {
	return t.ours() && term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stdout.Fd()))
}

// give puts the command's group in the foreground, if ours is there. SIGTTOU is ignored while a command runs, so that we
// may.
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
	if err == nil && (group == t.pgid || errors.Is(unix.Kill(-group, 0), unix.ESRCH)) { // or of a command that did not start
		_ = unix.IoctlSetPointerInt(t.fd(), unix.TIOCSPGRP, t.own) // a terminal that hung up can't be taken
	}
}

// stopped deals with a command that sig has stopped. It returns when the command is to be continued; false: it is not
// our matter. While we are stopped, the guard looks after the lease.
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

// suspend stops our process group as the terminal would have, and returns when we run again. The others get SIGTSTP; we
// stop by SIGSTOP, since Go does not give SIGTSTP its first meaning back once it has been caught.
func suspend() {
	woken := make(chan os.Signal, 1)
	signal.Notify(woken, syscall.SIGCONT)
	defer signal.Stop(woken)
	signal.Ignore(syscall.SIGTSTP)
	_ = syscall.Kill(0, syscall.SIGTSTP)
	if syscall.Kill(os.Getpid(), syscall.SIGSTOP) == nil {
		select {
		case <-woken:
		case <-time.After(time.Second): // it goes on while we are stopped
		}
	}
}

// wakeable reports whether there is a shell that could continue us: a process of our session, outside of our process
// group, above us. Without one, a terminal does not stop a process group either.
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

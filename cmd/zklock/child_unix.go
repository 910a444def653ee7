//go:build unix

package main

import (
	"errors"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// child is the command, which the guard has started. It is the first process of its own process
// group.
type child struct {
	pgid    int
	changes chan change // the first process stopped or ended; closed when the whole group is gone
}

// change is what happened to the first process.
type change struct {
	stopped syscall.Signal     // the signal that stopped it, or 0 if it has ended
	status  syscall.WaitStatus // how it has ended
}

// startChild lets the guard run c, on our standard input, output and error.
func startChild(g *guard, c commandLine, t *terminal) (*child, error) {
	c.Foreground = t.fromTheStart()
	pgid, err := g.run(c)
	if t != nil {
		t.pgid, t.lent = pgid, c.Foreground
		signal.Ignore(syscall.SIGTTOU) // so that we may put a group into the foreground
	}
	if err != nil {
		t.take()
		return nil, err
	}
	command := &child{pgid: pgid, changes: make(chan change)}
	go command.follow(g.events) // ends with the group
	return command, nil
}

// follow passes on what the guard reports of the first process. It returns when no process of the
// group is left.
func (c *child) follow(events <-chan event) {
	defer close(c.changes)
	for e := range events {
		switch e.Kind {
		case commandStopped:
			c.changes <- change{stopped: e.Signal}
		case commandEnded:
			c.changes <- change{status: e.Status}
		case groupGone:
			return
		}
	}
	awaitGroup(c.pgid) // the guard has ended before the group
}

// awaitGroup waits until no process of the group is left. While there is one, the command still
// runs. Both zklock and the guard call it.
func awaitGroup(pgid int) {
	for pause := time.Millisecond; groupExists(pgid); pause = min(2*pause, 50*time.Millisecond) {
		time.Sleep(pause)
	}
}

// groupExists reports whether a process group has a process left, which may be an unreaped one.
func groupExists(pgid int) bool { return !errors.Is(unix.Kill(-pgid, 0), unix.ESRCH) }

// signal sends sig to every process of the group. It has no effect on a group that is gone or that
// we may not signal.
func (c *child) signal(sig syscall.Signal) { _ = unix.Kill(-c.pgid, sig) }

// private are the variables that are for zklock and not for the command:
//   - the credentials, which the command might use or log without the right to;
//   - the variables that systemd sets for the process that it starts, which is zklock.
var private = []string{
	envAuth + "=",
	"LISTEN_PID=",
	"WATCHDOG_PID=",
	"WATCHDOG_USEC=",
	"NOTIFY_SOCKET=",
}

// environment returns our environment with the variables own, which override inherited ones, and
// without the private ones.
func environment(own ...string) []string {
	return append(without(os.Environ(), slices.Concat(own, private)), own...)
}

//go:build unix

package main

import (
	"errors"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// child is the command. It is the first process of its own process group.
type child struct {
	pgid    int
	changes chan change // the first process stopped or ended; closed when the whole group is gone
}

// change is what happened to the first process.
type change struct {
	stopped syscall.Signal     // the signal that stopped it, or 0 if it has ended
	status  syscall.WaitStatus // how it has ended
}

// startChild runs path with args and env, on our standard input, output and error.
//
// The kernel sends the child the signal death when the thread that started it ends. So the
// goroutine that waits for the group starts the child, and keeps its thread until the group is
// gone.
func startChild(
	r *reaper, path string, args, env []string, death syscall.Signal, t *terminal,
) (*child, error) {
	signal.Reset(syscall.SIGTTOU) // ignored signals are inherited
	attr := &syscall.SysProcAttr{Setpgid: true}
	if t.fromTheStart() {
		attr.Foreground, attr.Ctty = true, t.fd()
	}
	dieWithUs(attr, death)
	c := &child{changes: make(chan change)}
	started := make(chan error)
	go func() { // ends with the group
		runtime.LockOSThread() // not unlocked: the thread ends with the goroutine
		defer close(c.changes)
		p, err := r.start(path, args, &syscall.ProcAttr{
			Env:   env,
			Files: []uintptr{0, 1, 2},
			Sys:   attr,
		})
		if err != nil {
			started <- err
			return
		}
		c.pgid = p.pid
		started <- nil
		c.wait(p)
	}()
	err := <-started
	if t != nil {
		t.pgid, t.lent = c.pgid, attr.Foreground
		signal.Ignore(syscall.SIGTTOU)
	}
	if err != nil {
		t.take()
		return nil, startError(args[0], err)
	}
	return c, nil
}

// wait reports what happens to the first process. It returns when no process of the group is left.
func (c *child) wait(p *subprocess) {
	for {
		select {
		case sig := <-p.stops:
			c.changes <- change{stopped: sig}
		case <-p.ended:
			c.changes <- change{status: p.status}
			c.drain()
			return
		}
	}
}

// drain waits until the group is gone. While processes of the group are left, the command still
// runs.
func (c *child) drain() {
	for pause := time.Millisecond; groupExists(c.pgid); pause = min(2*pause, 50*time.Millisecond) {
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
	var env []string
	for _, kv := range os.Environ() {
		if !named(kv, own) && !named(kv, private) {
			env = append(env, kv)
		}
	}
	return append(env, own...)
}

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

// child is the command: the first process of a process group of its own.
type child struct {
	pgid    int
	changes chan change // the first process stopped or ended; closed when the whole group is gone
}

// change is what happened to the first process.
type change struct {
	stopped syscall.Signal // by this signal; else it ended
	status  syscall.WaitStatus
}

// startChild runs path with args and env, on our standard input, output and error. It is killed by death if the thread
// that started it ends: that thread is kept until the group is gone, by the goroutine that waits for it.
func startChild(path string, args, env []string, death syscall.Signal, t *terminal) (*child, error) {
	signal.Reset(syscall.SIGTTOU) // what is ignored is inherited
	attr := &syscall.SysProcAttr{Setpgid: true}
	if t.fromTheStart() {
		attr.Foreground, attr.Ctty = true, t.fd()
	}
	dieWithUs(attr, death)
	c := &child{changes: make(chan change)}
	started := make(chan error)
	go func() { // ends with the group
		runtime.LockOSThread() // and is not unlocked: the thread ends with the goroutine
		pid, err := syscall.ForkExec(path, args, &syscall.ProcAttr{Env: env, Files: []uintptr{0, 1, 2}, Sys: attr})
		c.pgid = pid
		started <- err
		if err == nil {
			c.wait()
		}
		close(c.changes)
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

// wait reports what happens to the first process, and then returns when no process of the group is left.
func (c *child) wait() {
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(c.pgid, &status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil: // somebody else has reaped it, which only we can: there is nothing more to learn
			c.changes <- change{status: syscall.WaitStatus(0xff00)}
			return
		case status.Stopped():
			c.changes <- change{stopped: status.StopSignal()}
		case status.Exited() || status.Signaled():
			c.changes <- change{status: status}
			c.drain()
			return
		}
	}
}

// drain waits until the group is gone: what the first process left behind counts as the command still running.
func (c *child) drain() {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		for { // what has been adopted, see adopt
			var status syscall.WaitStatus
			if pid, err := syscall.Wait4(-c.pgid, &status, syscall.WNOHANG, nil); pid <= 0 && !errors.Is(err, syscall.EINTR) {
				break
			}
		}
		if errors.Is(unix.Kill(-c.pgid, 0), unix.ESRCH) {
			return
		}
		time.Sleep(pause)
	}
}

// signal sends sig to every process of the group. A group that is gone, or out of our rights, does not hear it.
func (c *child) signal(sig syscall.Signal) { _ = unix.Kill(-c.pgid, sig) }

// environment returns ours with the lock's variables, which win over inherited ones.
func environment(own ...string) []string {
	var env []string
	for _, kv := range os.Environ() {
		if !named(kv, own) {
			env = append(env, kv)
		}
	}
	return append(env, own...)
}

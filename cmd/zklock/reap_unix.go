//go:build unix

package main

import (
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// reaper reaps every process whose parent is zklock: those that zklock started, whose ends are awaited, and those that
// the command left behind and zklock has adopted (see adopt), whose ends are not.
type reaper struct {
	sigchld chan os.Signal
	stop    chan struct{}
	stopped chan struct{}

	// mu guards own. It is held from the start of a process until the process is in own, so that one that ends at once
	// is not mistaken for an adopted one.
	mu  sync.Mutex
	own map[int]*subprocess
}

// subprocess is a process that zklock started.
type subprocess struct {
	pid    int
	stops  chan syscall.Signal // the signals that stopped it; dropped if the last ones have not been received
	ended  chan struct{}       // closed when it has ended and was reaped: status is valid then
	status syscall.WaitStatus
	reaper *reaper
}

// newReaper starts reaping; close ends that, and joins.
func newReaper() *reaper {
	r := &reaper{sigchld: make(chan os.Signal, 1), stop: make(chan struct{}), stopped: make(chan struct{}), own: map[int]*subprocess{}}
	signal.Notify(r.sigchld, syscall.SIGCHLD)
	go func() {
		defer close(r.stopped)
		for {
			select {
			case <-r.sigchld:
				r.reap()
			case <-r.stop:
				return
			}
		}
	}()
	return r
}

func (r *reaper) close() {
	signal.Stop(r.sigchld)
	close(r.stop)
	<-r.stopped
}

// start starts a process as syscall.ForkExec does.
func (r *reaper) start(path string, args []string, attr *syscall.ProcAttr) (*subprocess, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, err := syscall.ForkExec(path, args, attr)
	if err != nil {
		return nil, err
	}
	p := &subprocess{pid: pid, stops: make(chan syscall.Signal, 16), ended: make(chan struct{}), reaper: r}
	r.own[pid] = p
	return p, nil
}

// reap reaps all processes that have ended. One signal may stand for several of them.
func (r *reaper) reap() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG|syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case pid <= 0: // none, or none that has ended
			return
		}
		p := r.own[pid]
		switch {
		case p == nil:
		case status.Stopped():
			select {
			case p.stops <- status.StopSignal():
			default:
			}
		default:
			p.status = status
			delete(r.own, pid)
			close(p.ended)
		}
	}
}

// kill ends the process, unless it has been reaped: its id may belong to another process then.
func (p *subprocess) kill() {
	p.reaper.mu.Lock()
	defer p.reaper.mu.Unlock()
	if p.reaper.own[p.pid] == p {
		_ = unix.Kill(p.pid, unix.SIGKILL) // our own child, and not reaped: at worst it has ended already
	}
}

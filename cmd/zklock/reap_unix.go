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

// reaper reaps every process whose parent is this one, which is zklock or its guard. There are two
// sorts:
//   - this process has started it, and waits for its end;
//   - the command has left it behind, and this process has adopted it (see adopt). Nothing waits
//     for it.
type reaper struct {
	sigchld chan os.Signal
	stop    chan struct{}
	stopped chan struct{}

	// mu guards own. It is held from the start of a process until the process is in own. So a
	// process that ends at once is not mistaken for an adopted one.
	mu  sync.Mutex
	own map[int]*subprocess
}

// subprocess is a process that this one has started.
type subprocess struct {
	pid    int
	stops  chan syscall.Signal // the signals that stopped it; one is dropped if the channel is full
	ended  chan struct{}       // closed when it has ended and was reaped
	status syscall.WaitStatus  // valid once ended is closed
	reaper *reaper
}

// newReaper starts reaping. Call close to end that.
func newReaper() *reaper {
	r := &reaper{
		sigchld: make(chan os.Signal, 1),
		stop:    make(chan struct{}),
		stopped: make(chan struct{}),
		own:     map[int]*subprocess{},
	}
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

// close ends the reaping, and waits until it has ended.
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
	p := &subprocess{
		pid:    pid,
		stops:  make(chan syscall.Signal, 16),
		ended:  make(chan struct{}),
		reaper: r,
	}
	r.own[pid] = p
	return p, nil
}

// reap reaps all processes that have ended, and notes those that were stopped. One SIGCHLD may
// stand for several of them.
func (r *reaper) reap() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG|syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case pid <= 0: // there is no child, or none that has ended or was stopped
			return
		}
		if p := r.own[pid]; p != nil {
			r.noteLocked(p, status)
		}
	}
}

// noteLocked tells those that wait for p that it was stopped or has ended.
func (r *reaper) noteLocked(p *subprocess, status syscall.WaitStatus) {
	if status.Stopped() {
		select {
		case p.stops <- status.StopSignal():
		default:
		}
		return
	}
	p.status = status
	delete(r.own, p.pid)
	close(p.ended)
}

// kill ends the process, unless it has ended.
func (p *subprocess) kill() { p.signal(unix.SIGKILL) }

// signal sends sig to the process, unless it has been reaped. Then its id may belong to another
// process.
func (p *subprocess) signal(sig syscall.Signal) {
	p.reaper.mu.Lock()
	defer p.reaper.mu.Unlock()
	if p.reaper.own[p.pid] == p {
		// It is our child, so we may signal it. At worst it has ended and was not reaped yet.
		_ = unix.Kill(p.pid, sig)
	}
}

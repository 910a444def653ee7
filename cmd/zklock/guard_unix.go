//go:build unix

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/zklock/locker/internal/session"
)

// # The guard
//
// The guard is a second process of zklock run, and the parent of the command:
//
//	zklock ─── guard ─── command ─── what the command starts
//
// It does what zklock can't do any more:
//
//   - If zklock is killed, the guard ends the command's process group. When no process is left that
//     the command has started, it closes zklock's ZooKeeper session, so that the next in line has
//     the lock at once. See watchman.
//   - If zklock is stopped, and so does not notice the end of the lease, the guard ends the group
//     at the end of the lease.
//
// If the guard is killed, the kernel ends the command's first process (on Linux), and zklock the
// rest of the group. If it is stopped, zklock continues it.
//
// The guard has a process group of its own, so that neither the terminal nor signals to zklock's
// process group reach it. It is in zklock's terminal session, since a command that reads from the
// terminal must be.
//
// On Linux the guard runs the program of the zklock that starts it, even if an upgrade has replaced
// the program's file. On other systems it runs the new file, which must know the orders of the
// older one.
const guardCommand = "guard-process-group"

// guard is zklock's side of the guard process. One goroutine uses it at a time, except that session
// may be called at any time.
type guard struct {
	reaper *reaper
	death  syscall.Signal // ends the group
	env    []string       // of the guard process

	proc   *subprocess
	events <-chan event // closed when no more come: the guard has ended

	mu     sync.Mutex // guards what follows
	orders *os.File
	key    session.Key // of zklock's session; zero if there is none yet
}

const (
	// startPatience is how long to wait until the guard has started the command.
	startPatience = 10 * time.Second
	// endPatience is how long to wait for a guard to end after it was told to.
	endPatience = 10 * time.Second
)

// startGuard starts a guard that ends the group with the signal death. env is the guard's
// environment, which says how to connect to the ensemble.
func startGuard(r *reaper, death syscall.Signal, env []string) (*guard, error) {
	g := &guard{reaper: r, death: death, env: env}
	return g, g.start()
}

// start starts the process, and tells it the session.
func (g *guard) start() error {
	self, err := ownProgram()
	if err == nil {
		err = g.launch(self)
	}
	if err != nil {
		return fmt.Errorf("can't start the guard process: %w", err)
	}
	return nil
}

// launch starts the file self as the guard.
//
// The guard gets its ends of the pipes under the numbers that they have here. Every other number
// may be that of a file that zklock was given for the command, as make gives its job server.
func (g *guard) launch(self string) error {
	orders, toGuard, err := os.Pipe()
	if err != nil {
		return err
	}
	defer orders.Close()
	fromGuard, reports, err := os.Pipe()
	if err != nil {
		return errors.Join(err, toGuard.Close())
	}
	defer reports.Close()
	for _, f := range []*os.File{orders, reports} {
		if err := keepOnExec(f); err != nil {
			return errors.Join(err, toGuard.Close(), fromGuard.Close())
		}
	}
	args := []string{os.Args[0], guardCommand,
		fmt.Sprint(int(g.death)), fmt.Sprint(orders.Fd()), fmt.Sprint(reports.Fd())}
	attr := &syscall.SysProcAttr{Setpgid: true}
	dieWithUs(attr, syscall.SIGCONT) // so that a guard that was stopped goes on when zklock dies
	proc, err := g.reaper.start(self, args, &syscall.ProcAttr{
		Env:   g.env,
		Files: []uintptr{0, 1, 2},
		Sys:   attr,
	})
	if err != nil {
		err = fmt.Errorf("%s: %w", self, err)
		if errors.Is(err, syscall.ENOENT) {
			err = fmt.Errorf("%w: %s", err, noProgram)
		}
		return errors.Join(err, toGuard.Close(), fromGuard.Close())
	}
	g.proc = proc
	g.events = readEvents(fromGuard)
	g.employ(toGuard)
	return nil
}

// keepOnExec lets the processes that this one starts inherit f. So start none but the guard until f
// is closed.
func keepOnExec(f *os.File) error {
	_, err := unix.FcntlInt(f.Fd(), unix.F_SETFD, 0)
	return err
}

// readEvents returns a channel of the reports that come through the pipe. It is closed with the
// pipe. The reader does not wait for a receiver: the reports of a command are few.
func readEvents(pipe *os.File) <-chan event {
	all := make(chan event, 1000)
	go func() { // ends with the guard
		defer close(all)
		defer pipe.Close()
		in := json.NewDecoder(pipe)
		for {
			var e event
			if in.Decode(&e) != nil { // the guard has ended
				return
			}
			all <- e
		}
	}()
	return all
}

// employ sends orders from now on through the pipe, and first what the guard has to know.
func (g *guard) employ(pipe *os.File) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.orders = pipe
	if g.key.ID != 0 {
		g.sayLocked(order{Session: &g.key})
	}
}

// session tells the guard zklock's ZooKeeper session, as say does.
func (g *guard) session(k session.Key) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.key = k
	g.sayLocked(order{Session: &k})
}

// until orders the guard to end the group at the instant at.
func (g *guard) until(at time.Time) {
	// bootTime is read first: a delay after that makes the order's time earlier, and not later.
	now := bootTime()
	g.say(order{Until: now + int64(time.Until(at))})
}

// say sends a short order. It may fail: a guard that has ended or was stopped does not read. The
// one is noticed by gone, and the other by stops. say does not block, except while run sends a long
// command line, which is for startPatience at most.
func (g *guard) say(o order) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sayLocked(o)
}

func (g *guard) sayLocked(o order) {
	text, err := json.Marshal(o)
	if err != nil {
		panic(err) // an order of zklock's own, without a command, is always JSON
	}
	raw, err := g.orders.SyscallConn()
	if err != nil {
		return // closed: the guard has ended
	}
	// Write fails if the pipe is closed, too.
	_ = raw.Write(func(fd uintptr) bool {
		// An order is short, so it is written whole or not at all.
		_, _ = unix.Write(int(fd), append(text, '\n'))
		return true
	})
}

// gone returns a channel that is closed when the guard has ended.
func (g *guard) gone() <-chan struct{} { return g.proc.ended }

// stops returns a channel of the signals that stop the guard.
func (g *guard) stops() <-chan syscall.Signal { return g.proc.stops }

// resume continues a guard that was stopped.
func (g *guard) resume() { g.proc.signal(unix.SIGCONT) }

// ending says how the guard has ended. Call it when gone is closed.
func (g *guard) ending() string { return "the guard process has " + ending(g.proc.status) }

// ending says how a process has ended.
func ending(status syscall.WaitStatus) string {
	if status.Signaled() {
		return fmt.Sprintf("ended by signal %d (%v)", int(status.Signal()), status.Signal())
	}
	return fmt.Sprintf("ended with %d", status.ExitStatus())
}

// errTooLate is the error of a command that was not started, because its lease would have ended.
var errTooLate = errors.New("nothing heard from the ensemble, the command was not started")

// run orders the guard to start the command, and waits until it has. It returns the process group.
func (g *guard) run(c commandLine) (pgid int, err error) {
	text, err := json.Marshal(order{Command: &c})
	if err != nil {
		return 0, err
	}
	var sending sync.WaitGroup
	defer sending.Wait() // the guard has read the order, or has ended, or is being killed
	sending.Go(func() {
		// A long command line waits for the guard to read. It fails if the guard ends, which the
		// end of the events tells.
		_, _ = g.orders.Write(append(text, '\n'))
	})
	late := time.NewTimer(startPatience)
	defer late.Stop()
	for {
		select {
		case e, more := <-g.events:
			if !more {
				<-g.gone()
				return 0, errors.New(g.ending())
			}
			return e.group()
		case <-g.stops(): // a stopped guard does not read
			g.resume()
		case <-late.C:
			g.proc.kill() // so that it does not start the command now
			return 0, fmt.Errorf("the guard process has not started the command within %v",
				startPatience)
		}
	}
}

// group returns the process group of a command, or why it was not started.
func (e event) group() (pgid int, err error) {
	switch e.Kind {
	case commandStarted:
		return e.PID, nil
	case commandLate:
		return 0, &exitError{exitLost, errTooLate}
	default:
		return 0, e.Errno
	}
}

// discard closes the pipes of a guard that has ended.
func (g *guard) discard() {
	_ = g.orders.Close() // nothing reads them any more
	for range g.events { // until their reader has ended
	}
}

// end ends the guard and waits until it has ended. Call it when no command runs any more, or the
// one that runs can't be killed.
func (g *guard) end() {
	defer g.discard()
	g.say(order{End: true})
	late := time.AfterFunc(endPatience, g.proc.kill)
	defer late.Stop()
	for {
		select {
		case <-g.proc.stops:
			g.proc.kill()
		case <-g.proc.ended:
			return
		}
	}
}

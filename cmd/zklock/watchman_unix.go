//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/internal/unsealed"
	"github.com/zklock/locker/zklock"
)

// guardMain is the main function of the guard process. Its arguments are the signal that ends the
// command, and the descriptors of the pipes for orders and reports. It returns the exit code.
func guardMain(args []string) int {
	var numbers [3]int
	if len(args) != len(numbers) {
		return exitUsage
	}
	for i, arg := range args {
		n, err := strconv.Atoi(arg)
		if err != nil {
			return exitUsage
		}
		numbers[i] = n
	}
	swallowSignals()
	spareThreads()
	orders, reports := inherited(numbers[1], "orders"), inherited(numbers[2], "reports")
	if err := adopt(); err != nil {
		return exitFailed // zklock, whose own adopt has succeeded, reports the guard's end
	}
	r := newReaper()
	defer r.close()
	w := newWatchman(r, syscall.Signal(numbers[0]), reports)
	if !w.serve(readOrders(orders)) {
		w.replaceZklock()
	}
	return 0
}

// spareThreads has Go's runtime start some threads, which it keeps for later. A program in Go that
// gets no thread crashes, and the command may use up what a limit leaves of processes.
func spareThreads() {
	const enough = 8
	var running sync.WaitGroup
	finish := make(chan struct{})
	for range enough {
		running.Add(1)
		go func() {
			runtime.LockOSThread() // so that each goroutine has a thread
			defer runtime.UnlockOSThread()
			running.Done()
			<-finish
		}()
	}
	running.Wait()
	close(finish)
}

// swallowSignals keeps signals from ending the guard. They are caught and not ignored, because the
// command would inherit ignored ones.
func swallowSignals() {
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT,
		syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGPIPE} {
		if !signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
}

// inherited returns the file that zklock has opened for us alone, and not for the command.
func inherited(fd int, name string) *os.File {
	syscall.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), name)
}

// readOrders returns a channel of the orders that come through the pipe. It is closed when the pipe
// ends, or has something else than an order.
func readOrders(pipe *os.File) <-chan order {
	all := make(chan order)
	go func() { // ends with the pipe, or with the process
		defer close(all)
		in := json.NewDecoder(pipe)
		for {
			var o order
			if in.Decode(&o) != nil {
				return
			}
			all <- o
		}
	}()
	return all
}

// watchman is the guard process's state.
type watchman struct {
	fork   func(commandLine) (*subprocess, error)
	exists func(pgid int) bool

	// kill ends a group. It may fail without a consequence: if the guard may not signal the group,
	// neither may zklock.
	kill func(pgid int)

	events  *json.Encoder
	command *subprocess // nil if none was started

	// group is 0 if there is none. A group is only signalled if it is above 1: a signal to group 1
	// would be kill(-1), which reaches every process.
	group int
	empty chan struct{} // closed when the group has no process left
	until int64         // the deadline by bootTime; 0 if there is none
	key   session.Key   // of zklock's session; zero if there is none yet
}

func newWatchman(r *reaper, death syscall.Signal, reports *os.File) *watchman {
	return &watchman{
		fork:   func(c commandLine) (*subprocess, error) { return fork(r, c, death) },
		exists: groupExists,
		kill: func(pgid int) {
			_ = unix.Kill(-pgid, death)
			_ = unix.Kill(-pgid, unix.SIGCONT) // a stopped process gets no SIGTERM before that
		},
		events: json.NewEncoder(reports),
	}
}

// fork starts a command in its own process group. The kernel sends it the signal death when the
// thread that has started it ends, which is the calling one: keep it.
func fork(r *reaper, c commandLine, death syscall.Signal) (*subprocess, error) {
	attr := &syscall.SysProcAttr{Setpgid: true}
	dieWithUs(attr, death)
	if c.Foreground {
		tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		defer tty.Close()
		attr.Foreground, attr.Ctty = true, int(tty.Fd())
	}
	return r.start(c.File, c.Args, &syscall.ProcAttr{
		Env:   c.Env,
		Files: []uintptr{0, 1, 2},
		Sys:   attr,
	})
}

// serve carries out orders. It returns true after an "end", and false if zklock has died.
func (w *watchman) serve(orders <-chan order) (ended bool) {
	for {
		o, more := w.next(orders)
		switch {
		case !more:
			return false
		case o.End:
			return true
		}
		w.obey(o)
		w.check(bootTime())
	}
}

// next waits for an order. It returns an empty one if a check is due before one comes, and false if
// no more orders come.
func (w *watchman) next(orders <-chan order) (o order, more bool) {
	select {
	case o, more = <-orders:
		return o, more
	case <-w.empty:
		w.group, w.empty = 0, nil
	case <-w.untilCheck():
	}
	select {
	case o, more = <-orders: // orders that have come are carried out before the check
		return o, more
	default:
		return order{}, true
	}
}

// untilCheck returns a channel that receives when the next check is due. It is nil if there is
// nothing to check.
func (w *watchman) untilCheck() <-chan time.Time {
	if w.group == 0 || w.until == 0 {
		return nil
	}
	// A timer does not run while the machine is suspended, so bootTime is checked periodically.
	return time.After(min(time.Duration(w.until-bootTime()), 250*time.Millisecond))
}

// obey carries out an order. An empty one has no effect.
func (w *watchman) obey(o order) {
	switch {
	case o.Session != nil:
		w.key = *o.Session
	case o.Until != 0:
		w.until = o.Until
	case o.Command != nil:
		w.start(*o.Command)
	}
}

// check ends a group whose deadline has passed.
func (w *watchman) check(now int64) {
	if w.group != 0 && w.until != 0 && now >= w.until {
		w.end()
		w.until = 0 // once; zklock's death, or its own order, may still follow
	}
}

// end ends the group.
func (w *watchman) end() {
	if w.group > 1 && w.exists(w.group) {
		w.kill(w.group)
	}
}

// start starts a command, unless its deadline has passed. A goroutine of the command's own starts
// it, keeps the thread, and reports on it.
func (w *watchman) start(c commandLine) {
	if w.until != 0 && bootTime() >= w.until {
		w.report(event{Kind: commandLate})
		return
	}
	command := make(chan *subprocess)
	empty := make(chan struct{})
	go func() { // ends with the group, or with the process
		runtime.LockOSThread() // not unlocked: the thread has to last as long as the command
		p, err := w.fork(c)
		if err != nil {
			w.report(event{Kind: commandRefused, Errno: errnoOf(err)})
			close(command)
			return
		}
		w.report(event{Kind: commandStarted, PID: p.pid})
		command <- p
		w.follow(p)
		close(empty)
	}()
	if p, ok := <-command; ok {
		w.command, w.group, w.empty = p, p.pid, empty
	}
}

// errnoOf returns the error number of a system call's error.
func errnoOf(err error) syscall.Errno {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return syscall.EINVAL // os and syscall return no other errors here
}

// follow reports what happens to the first process. It returns when no process of the group is
// left.
func (w *watchman) follow(p *subprocess) {
	for isOver := false; !isOver; {
		select {
		case sig := <-p.stops:
			w.report(event{Kind: commandStopped, Signal: sig})
		case <-p.ended:
			w.report(event{Kind: commandEnded, Status: p.status})
			isOver = true
		}
	}
	awaitGroup(p.pid)
	w.report(event{Kind: groupGone})
}

// report reports to zklock. It fails when zklock has died, which the end of the orders tells.
func (w *watchman) report(e event) { _ = w.events.Encode(e) }

// # After zklock's death
//
// zklock's locks are free when its session ends. The servers end it when they have not heard from
// zklock for a session timeout. Until then the next in line waits, though nobody works any more:
// the guard ends the command at once.
//
// So the guard closes the session, as soon as it has no child process left. Then none of the
// command's descendants is left either, whatever groups and sessions they have put themselves
// into: a process whose parent has ended becomes the child of the guard, which has adopted it (see
// adopt). A guard that can't know this closes nothing. Nor does it, of course, if it is killed
// together with zklock.
//
// What the command has asked other programs to do, such as a database or a container runtime, may
// still run, as it may when a command ends by itself.

// closePatience is how long the guard tries to close the session.
const closePatience = 10 * time.Second

// longSession is longer than the timeouts that servers grant by default: with ticks of 2 s, 40 s.
const longSession = time.Minute

// replaceZklock ends the command, and then closes the session.
func (w *watchman) replaceZklock() {
	w.end()
	if w.key.ID == 0 {
		return
	}
	conn, err := connectionOfEnvironment()
	if err == nil && awaitNoChildren(max(conn.timeout, longSession)) {
		w.tellClosed(closeSession(conn, w.key))
		return
	}
	if err != nil {
		w.tellClosed(err)
	}
	// The servers have ended most sessions by now. But at the end of this process the kernel would
	// send the command the signal once more. So this waits, without a limit, for the command, as
	// the parent of a process does.
	if w.command != nil {
		<-w.command.ended
	}
}

// awaitNoChildren waits until this process has no child any more. It returns false if it still has
// one after that time.
func awaitNoChildren(limit time.Duration) bool {
	end := time.Now().Add(limit)
	for pause := time.Millisecond; haveChildren(); pause = min(2*pause, 50*time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
		time.Sleep(pause)
	}
	return true
}

// connectionOfEnvironment returns what the environment says of the ensemble: see guardEnvironment.
func connectionOfEnvironment() (*connFlags, error) {
	c := new(connFlags)
	f := pflag.NewFlagSet(guardCommand, pflag.ContinueOnError)
	c.register(f)
	return c, c.environment(f)
}

// tellClosed says on standard error what has become of zklock's session. err is why it was not
// closed.
func (w *watchman) tellClosed(err error) {
	stderr := newMessages(os.Stderr)
	defer stderr.flush()
	switch {
	case err != nil:
		notice(stderr, "zklock was killed; its session could not be closed, and ends by its "+
			"timeout: %v", err)
	case w.command != nil:
		notice(stderr,
			"zklock was killed; the command has ended, and zklock's session is closed")
	}
}

// closeSession closes the session that key names, within closePatience.
func closeSession(conn *connFlags, key session.Key) error {
	ctx, cancel := context.WithTimeout(context.Background(), closePatience)
	defer cancel()
	options, err := conn.options(func(error) {})
	if err != nil {
		return err
	}
	conf, err := unsealed.SessionConfig(append(options, zklock.WithoutLog()))
	if err != nil {
		return fmt.Errorf("the flags of the ensemble: %w", err)
	}
	return session.CloseByKey(ctx, conn.zk, conf, key, "")
}

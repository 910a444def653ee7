//go:build unix

package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The guard is a second process of zklock run. It ends the command's process group when zklock
// can't:
//
//   - zklock is killed. The parent-death signal reaches only the first process of the group.
//   - zklock is stopped, and so does not notice the end of the lease.
//
// The guard reads its orders from a pipe:
//
//	group 4711          guard this process group
//	group 0             the group is gone, and another group may get its id
//	until 123456789     kill the group at this time, in nanoseconds by bootTime
//	end                 nothing is left to do
//
// If the pipe ends without an "end", zklock has died. The guard is in its own session, so that
// neither the terminal nor signals to zklock's process group reach it. zklock replaces a guard that
// is killed or stopped.
//
// On Linux the guard runs the program of the zklock that starts it, even if an upgrade has replaced
// the program's file. On other systems it runs the new file, which must know the orders of the
// older one.
const guardCommand = "guard-process-group"

// guard is zklock's side of the guard process. One goroutine uses it at a time.
type guard struct {
	reaper *reaper
	death  syscall.Signal // ends the group
	born   time.Time      // when the last start was attempted
	failed int            // guards in a row that could not be started, or ended within minGuardLife

	// err says why there is no guard process. It is nil while there is one.
	err  error
	proc *subprocess
	pipe *os.File

	// The orders in force.
	pgid     int   // 0 if there is no group
	deadline int64 // by bootTime
}

const (
	// minGuardLife is how long a guard has to live. One that ends sooner has failed, and the next
	// one is not started at once.
	minGuardLife = time.Second
	// maxGuardFailures is the number of failures in a row after which reguard ends the command.
	maxGuardFailures = 3
	// endPatience is how long to wait for a guard to end after it was told to.
	endPatience = 10 * time.Second
)

// startGuard starts a guard that ends the group with the signal death.
func startGuard(r *reaper, death syscall.Signal) (*guard, error) {
	g := &guard{reaper: r, death: death}
	return g, g.start()
}

// running reports whether there is a guard process, as far as this process has noticed.
func (g *guard) running() bool { return g.err == nil }

// start starts the process and gives it the orders in force.
func (g *guard) start() error {
	g.born = time.Now()
	self, err := ownProgram()
	if err == nil {
		g.proc, g.pipe, err = launchGuard(g.reaper, self, g.death)
	}
	if err != nil {
		g.failed++
		g.err = fmt.Errorf("can't start the guard process: %w", err)
		return g.err
	}
	g.err = nil
	if g.pgid != 0 {
		g.say("group %d", g.pgid)
		g.say("until %d", g.deadline)
	}
	return nil
}

// launchGuard starts the file self as the guard. It returns the process and the pipe for orders.
func launchGuard(r *reaper, self string, death syscall.Signal) (*subprocess, *os.File, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, nil, err
	}
	defer null.Close()
	in, out, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer in.Close()
	args := []string{os.Args[0], guardCommand, fmt.Sprint(int(death))}
	proc, err := r.start(self, args, &syscall.ProcAttr{
		Dir:   "/",
		Env:   environment(),
		Files: []uintptr{in.Fd(), null.Fd(), null.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		err = fmt.Errorf("%s: %w", self, err)
		if errors.Is(err, syscall.ENOENT) {
			err = fmt.Errorf("%w: %s", err, noProgram)
		}
		return nil, nil, errors.Join(err, out.Close())
	}
	return proc, out, nil
}

// gone returns a channel that is closed when the guard has ended. It is nil if there is no guard.
func (g *guard) gone() <-chan struct{} {
	if !g.running() {
		return nil
	}
	return g.proc.ended
}

// stops returns a channel of the signals that stop the guard. It is nil if there is no guard.
func (g *guard) stops() <-chan syscall.Signal {
	if !g.running() {
		return nil
	}
	return g.proc.stops
}

// replace starts a guard in place of one that has ended. It returns why there is no guard now, if
// the start fails or the last guard ended within minGuardLife. Then call it again after
// minGuardLife.
func (g *guard) replace() error {
	if !g.running() {
		return g.start()
	}
	_ = g.pipe.Close() // nothing reads it any more
	if time.Since(g.born) < minGuardLife {
		g.failed++
		g.err = fmt.Errorf("the guard process keeps ending: %s", ending(g.proc.status))
		return g.err
	}
	g.failed = 0
	return g.start()
}

// say sends an order. It does not block, and it may fail: a guard that has ended or was stopped
// does not read, and is replaced.
func (g *guard) say(format string, args ...any) {
	if !g.running() {
		return
	}
	raw, err := g.pipe.SyscallConn()
	if err != nil {
		return
	}
	order := fmt.Appendf(nil, format+"\n", args...)
	// Write fails if the pipe is closed, which means that there is no guard any more.
	_ = raw.Write(func(fd uintptr) bool {
		// An order is short, so it is written whole or not at all.
		_, _ = unix.Write(int(fd), order)
		return true
	})
}

// group orders the guard to guard a process group, or none if pgid is 0.
func (g *guard) group(pgid int) {
	g.pgid = pgid
	g.say("group %d", pgid)
}

// until orders the guard to end the group at the instant at.
func (g *guard) until(at time.Time) {
	// bootTime is read first: a delay after that makes the order's time earlier, and not later.
	now := bootTime()
	g.deadline = now + int64(time.Until(at))
	g.say("until %d", g.deadline)
}

// end ends the guard and waits until it has ended.
func (g *guard) end() {
	if !g.running() {
		return
	}
	g.say("end")
	_ = g.pipe.Close() // says the same as "end", now that there is no group
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

// ending says how a process has ended.
func ending(status syscall.WaitStatus) string {
	if status.Signaled() {
		return fmt.Sprintf("ended by signal %d (%v)", int(status.Signal()), status.Signal())
	}
	return fmt.Sprintf("ended with %d", status.ExitStatus())
}

// guardMain is the main function of the guard process. It returns the exit code.
func guardMain(args []string) int {
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM,
		syscall.SIGUSR1, syscall.SIGUSR2)
	if len(args) != 1 {
		return exitUsage
	}
	var death int
	if _, err := fmt.Sscan(args[0], &death); err != nil {
		return exitUsage
	}
	orders := make(chan string)
	go func() { // ends with the pipe, or with the process
		defer close(orders)
		in := bufio.NewScanner(os.Stdin)
		for in.Scan() {
			orders <- in.Text()
		}
	}()
	w := watchman{
		exists: groupExists,
		kill:   func(pgid int) { _ = unix.Kill(-pgid, syscall.Signal(death)) },
	}
	w.run(orders)
	return 0
}

// watchman is the guard process's state.
type watchman struct {
	// group is 0 if there is none. A group is only signalled if it is above 1: a signal to group 1
	// would be kill(-1), which reaches every process.
	group  int
	until  int64 // the deadline by bootTime; 0 if there is none
	exists func(pgid int) bool

	// kill ends a group. It may fail without a consequence: if the guard may not signal the group,
	// neither may zklock.
	kill func(pgid int)
}

// run carries out orders until the last one. At the end of the orders without an "end" it ends the
// group, since zklock has died.
func (w *watchman) run(orders <-chan string) {
	for {
		order, more := w.next(orders)
		if !more {
			w.end()
			return
		}
		if order == "end" {
			return
		}
		w.obey(order)
		w.check(bootTime())
	}
}

// next waits for an order. It returns "" if a check is due before one comes, and false if no more
// orders come.
func (w *watchman) next(orders <-chan string) (order string, more bool) {
	select {
	case order, more = <-orders:
		return order, more
	case <-w.untilCheck():
	}
	select {
	case order, more = <-orders: // orders that have come are carried out before the check
		return order, more
	default:
		return "", true
	}
}

// untilCheck returns a channel that receives when the next check is due. It is nil if there is no
// group to check.
func (w *watchman) untilCheck() <-chan time.Time {
	if w.group == 0 {
		return nil
	}
	// A timer does not run while the machine is suspended, so bootTime is checked periodically.
	pause := 250 * time.Millisecond
	if w.until != 0 {
		pause = min(time.Duration(w.until-bootTime()), pause)
	}
	return time.After(pause)
}

// obey carries out an order for a group or a time, and ignores all others.
func (w *watchman) obey(order string) {
	word, number, _ := strings.Cut(order, " ")
	n, _ := strconv.ParseInt(number, 10, 64)
	switch word {
	case "group":
		w.group = int(n)
	case "until":
		w.until = n
	}
}

// check forgets a group that is gone, and ends one whose deadline has passed. It is called so often
// that the id cannot have been given to another group in between: the kernel assigns ids in turn.
func (w *watchman) check(now int64) {
	if w.group > 1 && !w.exists(w.group) {
		w.group = 0
	}
	if w.until != 0 && now >= w.until {
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

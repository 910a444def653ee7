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
// can't: when zklock is killed (the parent-death signal reaches only the first process of the
// group), and when zklock is stopped and so does not notice the end of the lease. It reads its
// orders from a pipe,
//
//	group 4711          the process group to guard; 0 when that is gone, and its id may become another group's
//	until 123456789     kill it at this time, nanoseconds of the clock that counts suspended time too
//	end                 nothing is left to do
//
// and treats the end of the pipe without an "end" as zklock's death. It is in a session of its own,
// so that neither the terminal nor signals to zklock's process group reach it. zklock replaces a
// guard that is killed or stopped. Both are one program, also when an upgrade has replaced its file
// (on Linux; elsewhere it must know the orders of the older one).
const guardCommand = "guard-process-group"

// guard is zklock's side of it. One goroutine uses it at a time.
type guard struct {
	reaper *reaper
	death  syscall.Signal
	proc   *subprocess
	pipe   *os.File
	born   time.Time // when the last start was attempted
	err    error     // why there is no guard process
	failed int       // guards in a row that could not be started, or ended within quick

	// The orders in force.
	pgid     int
	deadline int64 // by bootTime
}

const (
	quick    = time.Second // a guard that ends sooner has failed, and the next one is not started at once
	enough   = 3           // failures in a row after which zklock runs without a guard
	farewell = 10 * time.Second
)

// startGuard starts a guard that ends the group with the signal death.
func startGuard(r *reaper, death syscall.Signal) (*guard, error) {
	g := &guard{reaper: r, death: death}
	return g, g.start()
}

// start starts the process and gives it the orders in force.
func (g *guard) start() error {
	g.born = time.Now()
	var self string
	if self, g.err = ownProgram(); g.err == nil {
		g.proc, g.pipe, g.err = launchGuard(g.reaper, self, g.death)
	}
	if g.err != nil {
		g.err = fmt.Errorf("can't start the guard process: %w", g.err)
		g.failed++
	}
	if g.pgid != 0 {
		g.say("group %d", g.pgid)
		g.say("until %d", g.deadline)
	}
	return g.err
}

// launchGuard starts the file self as the guard.
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
	proc, err := r.start(self, []string{os.Args[0], guardCommand, fmt.Sprint(int(death))}, &syscall.ProcAttr{Dir: "/",
		Env: environment(), Files: []uintptr{in.Fd(), null.Fd(), null.Fd()}, Sys: &syscall.SysProcAttr{Setsid: true}})
	if err != nil {
		err = fmt.Errorf("%s: %w", self, err)
		if errors.Is(err, syscall.ENOENT) {
			err = fmt.Errorf("%w: %s", err, noProgram)
		}
		return nil, nil, errors.Join(err, out.Close())
	}
	return proc, out, nil
}

// gone is closed when the guard has ended, and stops reports that it was stopped. Without a guard
// neither reports anything.
func (g *guard) gone() <-chan struct{} {
	if g.err != nil {
		return nil
	}
	return g.proc.ended
}

func (g *guard) stops() <-chan syscall.Signal {
	if g.err != nil {
		return nil
	}
	return g.proc.stops
}

// replace starts a guard in place of one that has ended. When that fails, or the last one ended
// within quick, it returns why there is no guard now, and must be called again after quick.
func (g *guard) replace() error {
	if g.err == nil {
		_ = g.pipe.Close() // nothing reads it any more
		if time.Since(g.born) < quick {
			g.failed++
			g.err = fmt.Errorf("the guard process keeps ending: %s", ending(g.proc.status))
			return g.err
		}
		g.failed = 0
	}
	return g.start()
}

// say sends an order. It does not block, and it may fail: a guard that has ended or was stopped
// does not read, and is replaced.
func (g *guard) say(format string, args ...any) {
	if g.err != nil {
		return
	}
	order := fmt.Appendf(nil, format+"\n", args...)
	if raw, err := g.pipe.SyscallConn(); err == nil {
		_ = raw.Write(func(fd uintptr) bool { // it fails when the pipe is closed: there is no guard any more
			_, _ = unix.Write(int(fd), order) // written whole or not at all, since it is short; see above for what fails
			return true
		})
	}
}

// group orders the process group to guard; 0: none any more.
func (g *guard) group(pgid int) {
	g.pgid = pgid
	g.say("group %d", pgid)
}

// until orders the group's end at the instant at. The clock is read first: a delay after that makes
// the order earlier, not later.
func (g *guard) until(at time.Time) {
	now := bootTime()
	g.deadline = now + int64(time.Until(at))
	g.say("until %d", g.deadline)
}

// end ends the guard and joins it.
func (g *guard) end() {
	if g.err != nil {
		return
	}
	g.say("end")
	_ = g.pipe.Close() // the end of the pipe says the same, now that there is no group
	late := time.AfterFunc(farewell, g.proc.kill)
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

// ending describes how a process has ended.
func ending(status syscall.WaitStatus) string {
	if status.Signaled() {
		return fmt.Sprintf("ended by signal %d (%v)", int(status.Signal()), status.Signal())
	}
	return fmt.Sprintf("ended with %d", status.ExitStatus())
}

// guardMain is the guard process.
func guardMain(args []string) int {
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2)
	var sig int
	if len(args) != 1 {
		return exitUsage
	}
	if _, err := fmt.Sscan(args[0], &sig); err != nil {
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
	w := watchman{exists: groupExists, kill: func(pgid int) { _ = unix.Kill(-pgid, syscall.Signal(sig)) }}
	w.run(orders)
	return 0
}

// watchman is the guard process's state.
type watchman struct {
	group  int   // 0: none
	until  int64 // by bootTime; 0: no time is set
	exists func(pgid int) bool
	kill   func(pgid int) // its failure has no consequence: if the guard may not signal the group, zklock may not either
}

// run carries out orders until the last one.
func (w *watchman) run(orders <-chan string) {
	for {
		var timer <-chan time.Time
		if w.group != 0 {
			// A timer does not run while the machine is suspended: check bootTime periodically.
			next := 250 * time.Millisecond
			if w.until != 0 {
				next = min(time.Duration(w.until-bootTime()), next)
			}
			timer = time.After(next)
		}
		var order string
		more := true
		select {
		case order, more = <-orders:
		case <-timer:
			select {
			case order, more = <-orders: // earlier orders come first
			default:
			}
		}
		if !more {
			w.end()
			return
		}
		if order == "end" {
			return
		}
		w.obey(order)
		w.look(bootTime())
	}
}

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

// look forgets a group that is gone, and ends one whose deadline has passed. It is called so often
// that the id cannot have been given to another group in between: the kernel assigns ids in turn.
func (w *watchman) look(now int64) {
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

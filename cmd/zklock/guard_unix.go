//go:build unix

package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The guard is a second process of zklock run. It ends the command's process group when zklock can't: when zklock is
// killed, which the parent-death signal tells only to the first process of the group, and when zklock is stopped, so
// that it does not see that the lease runs out. It reads its orders from a pipe,
//
//	group 4711          the process group to guard
//	until 123456789     kill it at this time, nanoseconds of the clock that counts suspended time too
//	end                 the group is gone: nothing to do
//
// and takes the end of the pipe without the last for zklock's death. It is in a session of its own, out of the reach of
// the terminal and of signals to zklock's process group.
const guardCommand = "guard-process-group"

// guard is zklock's end of it.
type guard struct {
	cmd  *exec.Cmd
	pipe *os.File
	err  error // of the first write that failed
}

// startGuard starts a guard that ends the group with sig.
func startGuard(sig syscall.Signal) (*guard, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd := &exec.Cmd{Path: self, Args: []string{os.Args[0], guardCommand, fmt.Sprint(int(sig))}, Stdin: r,
		Dir: "/", SysProcAttr: &syscall.SysProcAttr{Setsid: true}}
	err = cmd.Start()
	if err := errors.Join(err, r.Close()); err != nil {
		return nil, errors.Join(fmt.Errorf("can't start the guard process: %w", err), w.Close())
	}
	return &guard{cmd: cmd, pipe: w}, nil
}

// say gives an order. It does not block: the pipe of a guard that was stopped may be full after some hours, and then the
// guard is of no use anyway.
func (g *guard) say(format string, args ...any) {
	order := fmt.Appendf(nil, format+"\n", args...)
	var written error
	raw, err := g.pipe.SyscallConn()
	if err == nil {
		err = raw.Write(func(fd uintptr) bool {
			_, written = unix.Write(int(fd), order) // all or nothing, since it is short
			return true
		})
	}
	if g.err == nil {
		g.err = errors.Join(err, written)
	}
}

func (g *guard) group(pgid int) { g.say("group %d", pgid) }

// until orders the group's end for the time at which at will be. The clock is read first: what then holds us up makes
// the order earlier and not later.
func (g *guard) until(at time.Time) {
	now := bootTime()
	g.say("until %d", now+int64(time.Until(at)))
}

// end lets the guard go and joins it.
func (g *guard) end() {
	g.say("end")
	late := time.AfterFunc(10*time.Second, func() { _ = g.cmd.Process.Kill() }) // it was stopped, and has nothing to do any more
	err := errors.Join(g.pipe.Close(), g.cmd.Wait())
	if late.Stop() && g.err == nil {
		g.err = err
	}
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
	watch(orders, syscall.Signal(sig))
	return 0
}

// watch carries out orders until the last one.
func watch(orders <-chan string, sig syscall.Signal) {
	group, until := 0, int64(0)
	for {
		var timer <-chan time.Time
		if group != 0 && until != 0 {
			// A timer does not run while the machine sleeps: look at the clock that does, every now and then.
			timer = time.After(min(time.Duration(until-bootTime()), 250*time.Millisecond))
		}
		select {
		case order, more := <-orders:
			word, number, _ := strings.Cut(order, " ")
			var n int64
			if _, err := fmt.Sscan(number, &n); err != nil {
				n = 0
			}
			switch {
			case !more:
				endGroup(group, sig)
				return
			case word == "end":
				return
			case word == "group":
				group = int(n)
			case word == "until":
				until = n
			}
		case <-timer:
			if bootTime() >= until {
				endGroup(group, sig)
				until = 0 // once; zklock's death, or its own word, is still to come
			}
		}
	}
}

func endGroup(group int, sig syscall.Signal) {
	if group > 1 { // nobody to tell when it fails: the group is gone, or out of our rights as it was out of zklock's
		_ = unix.Kill(-group, sig)
	}
}

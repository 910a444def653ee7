//go:build unix

package main

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"
)

// kept are the signals that are not forwarded: those that are about us and our children, and SIGURG, which Go's
// scheduler sends to itself all the time.
var kept = []os.Signal{syscall.SIGCHLD, syscall.SIGURG, syscall.SIGPIPE, syscall.SIGTTIN, syscall.SIGTTOU}

// harmless are the signals that don't end a process; while waiting they do what they always do.
var harmless = []os.Signal{syscall.SIGCONT, syscall.SIGTSTP, syscall.SIGWINCH}

// signals catches what is to be forwarded. A signal that was ignored when we began (nohup, or a job in the background
// of a script) stays ignored, by us and by the command.
type signals struct {
	c       chan os.Signal
	waiting []os.Signal // that end a wait
	running []os.Signal // that only a running command gets
}

func catchSignals() *signals {
	s := &signals{c: make(chan os.Signal, 64)}
	for n := 1; n <= lastSignal; n++ {
		sig := syscall.Signal(n)
		switch {
		case sig == syscall.SIGKILL, sig == syscall.SIGSTOP, signal.Ignored(sig), slices.Contains(kept, os.Signal(sig)):
		case slices.Contains(harmless, os.Signal(sig)):
			s.running = append(s.running, sig)
		default:
			s.waiting = append(s.waiting, sig)
		}
	}
	signal.Notify(s.c, s.waiting...)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // a write to a closed pipe is an error, and not our end
	return s
}

// whileWaiting returns a context that ends with the first signal; done stops that, joins, and returns the signal if
// there was one.
func (s *signals) whileWaiting(parent context.Context) (ctx context.Context, done func() (syscall.Signal, bool)) {
	ctx, cancel := context.WithCancel(parent)
	got := make(chan syscall.Signal, 1)
	go func() {
		defer close(got)
		for {
			select {
			case sig := <-s.c:
				if slices.Contains(harmless, sig) { // caught since a command ran
					continue
				}
				got <- sig.(syscall.Signal)
				cancel()
			case <-ctx.Done():
			}
			return
		}
	}()
	return ctx, func() (syscall.Signal, bool) {
		cancel()
		sig, ok := <-got
		return sig, ok
	}
}

// whileRunning catches the other signals too, from now on.
func (s *signals) whileRunning() { signal.Notify(s.c, s.running...) }

// dieOf ends this process by sig, if that still ends processes: for a shell it is the same exit code, and tells it that a
// person at the terminal wanted the end.
func dieOf(sig syscall.Signal) {
	if signal.Ignored(sig) {
		return
	}
	signal.Reset(sig)
	if syscall.Kill(os.Getpid(), sig) == nil {
		time.Sleep(time.Second) // it arrives before that
	}
}

// resize are the signals that tell of a new size of the terminal.
var resize = []os.Signal{syscall.SIGWINCH}

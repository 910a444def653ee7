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

// kept are the signals that are not forwarded: those that concern zklock and its children, and
// SIGURG, which Go's scheduler sends to itself all the time.
var kept = []os.Signal{
	syscall.SIGCHLD,
	syscall.SIGURG,
	syscall.SIGPIPE,
	syscall.SIGTTIN,
	syscall.SIGTTOU,
}

// harmless are the signals that don't end a process. Until a command has run they have their
// default effect.
var harmless = []os.Signal{syscall.SIGCONT, syscall.SIGTSTP, syscall.SIGWINCH}

// forServices are the signals that tell a service, for example, to reopen its logs. They are sent
// on all hosts, even where the service only waits to lead.
var forServices = []os.Signal{syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2}

// signals catches the signals that are forwarded. A signal that was ignored when zklock started
// stays ignored by zklock and by the command. nohup and a script's background jobs have such
// signals.
type signals struct {
	c       chan os.Signal
	waiting []os.Signal // signals that end a wait
	running []os.Signal // signals that only a running command gets
	idle    []os.Signal // signals that have no effect on a wait
}

func catchSignals() *signals {
	s := &signals{c: make(chan os.Signal, 64), idle: harmless}
	for n := 1; n <= lastSignal; n++ {
		sig := syscall.Signal(n)
		switch {
		case sig == syscall.SIGKILL, sig == syscall.SIGSTOP: // can't be caught
		case signal.Ignored(sig), slices.Contains(kept, os.Signal(sig)):
		case slices.Contains(harmless, os.Signal(sig)):
			s.running = append(s.running, sig)
		default:
			s.waiting = append(s.waiting, sig)
		}
	}
	signal.Notify(s.c, s.waiting...)
	// With SIGPIPE caught, a write to a closed pipe is an error and does not end zklock.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return s
}

// standBy keeps the signals for services from ending a wait. It does nothing if there is a
// terminal, where SIGHUP means that the terminal has hung up.
func (s *signals) standBy() {
	if t := openTerminal(); t != nil {
		_ = t.close() // can't lose anything, because nothing was written
		return
	}
	s.idle = slices.Concat(harmless, forServices)
}

// whileWaiting returns a context that ends with the first signal that is not idle. Call done to end
// the wait: it returns the signal if there was one.
func (s *signals) whileWaiting(
	parent context.Context,
) (ctx context.Context, done func() (syscall.Signal, bool)) {
	ctx, cancel := context.WithCancel(parent)
	got := make(chan syscall.Signal, 1)
	go func() { // done waits for its end
		defer close(got)
		for {
			select {
			case sig := <-s.c:
				if !slices.Contains(s.idle, sig) {
					got <- sig.(syscall.Signal)
					cancel()
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, func() (syscall.Signal, bool) {
		cancel()
		sig, ok := <-got
		return sig, ok
	}
}

// whileRunning catches from now on also the signals that only a running command gets.
func (s *signals) whileRunning() { signal.Notify(s.c, s.running...) }

// dieOf ends this process by sig, if sig still ends processes. A shell sees the same exit code, and
// learns that the user at the terminal has interrupted it.
func dieOf(sig syscall.Signal) {
	if signal.Ignored(sig) {
		return
	}
	signal.Reset(sig)
	if syscall.Kill(os.Getpid(), sig) == nil {
		time.Sleep(time.Second) // the signal arrives before that
	}
}

//go:build unix

package main

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/zklock/locker/zklock"
)

// job is a command to run under a lock.
type job struct {
	a       *app
	file    string // the file to execute
	args    []string
	onLoss  string
	grace   time.Duration
	maxHold time.Duration // 0 if there is no limit
	sigs    *signals
	reaper  *reaper
	guard   *guard

	started bool // the command was started
	stuck   bool // a process of the command was killed and lives, so no other command is started
	asked   bool // zklock passed on SIGTERM or SIGINT, so the command is not started again
	lent    bool // the command had the terminal, so Ctrl-C went to the command alone
	done    bool // the command has ended, and not because of the lock: the exit code is its own
}

// death is the signal that ends the command's group. The guard sends it when zklock dies, and the
// kernel, to the first process, when the guard dies.
func (j *job) death() syscall.Signal {
	if j.onLoss == lossKill {
		return syscall.SIGKILL
	}
	return syscall.SIGTERM
}

const (
	// killPatience is how long to wait for a group to end after SIGKILL. A process that is blocked
	// in the kernel may never end.
	killPatience = 10 * time.Second
	// maxCheckInterval is the longest time between two checks.
	maxCheckInterval = time.Minute
)

// supervisor supervises one running command, its lock and its terminal. One goroutine uses it.
type supervisor struct {
	*job
	hold  *zklock.Hold
	lease lease
	child *child
	tty   *terminal
	began time.Time
	until time.Time // SafeUntil as the guard last got it

	status syscall.WaitStatus // of the first process, once it has ended
	told   bool               // the command got SIGTERM because of the lock
	lost   bool               // the loss of the lock was reported
	killed time.Time          // the time of the first SIGKILL
}

// run runs the command under h. It returns when the command's process group is gone, or was killed
// and does not end (see watch), with the exit code as an error. If a signal at the terminal ended
// the command and must end zklock too, run returns that signal, otherwise 0.
func (j *job) run(
	h *zklock.Hold, timeout, tick time.Duration, env []string,
) (dieBy syscall.Signal, err error) {
	s := &supervisor{
		job:   j,
		hold:  h,
		lease: newLease(timeout, j.grace, tick),
		tty:   openTerminal(),
		began: time.Now(),
	}
	defer func() { err = errors.Join(err, s.tty.close()) }()
	if err := s.settle(); err != nil {
		return 0, err
	}
	if err := s.ensureGuard(); err != nil {
		return 0, err
	}
	j.sigs.whileRunning()
	s.child, err = s.start(env)
	if err != nil {
		return 0, err
	}
	j.started = true
	err = s.watch()
	s.tty.take()
	j.lent = s.tty != nil && s.tty.lent
	if err != nil {
		return 0, err
	}
	return s.result()
}

// settle waits until the lease of a new hold has been confirmed. After a long wait the lease may be
// so short that a command started at once would get SIGTERM at once.
func (s *supervisor) settle() error {
	t := s.lease.timeout
	for end := time.Now().Add(t / 4); ; time.Sleep(5 * time.Millisecond) {
		now := time.Now()
		left := s.hold.SafeUntil().Sub(now)
		switch {
		case s.hold.Err() != nil:
			return s.hold.Err()
		case s.onLoss == lossIgnore, left > s.lease.doubt+t/checkPart:
			return nil
		case !now.After(end):
			// The confirmation may still come.
		case left > s.lease.doubt:
			return nil
		default:
			return &exitError{exitLost, errTooLate}
		}
	}
}

// ensureGuard starts another guard if it has ended while zklock waited for the lock.
func (s *supervisor) ensureGuard() error {
	select {
	case <-s.guard.gone():
		s.guard.discard()
		return s.guard.start()
	default:
		return nil
	}
}

// start starts the command, if the guard gets its order before the lease has to be left.
func (s *supervisor) start(env []string) (*child, error) {
	if s.onLoss == lossKill {
		s.tellUntil(s.hold.SafeUntil())
	}
	c, err := startChild(s.guard, commandLine{
		File: s.file,
		Args: s.args,
		Env:  environment(env...),
	}, s.tty)
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return nil, startError(s.args[0], err)
	}
	return c, err
}

// tellUntil lets the guard end the command before the lease ends, or this process if it is sooner.
func (s *supervisor) tellUntil(safeUntil time.Time) {
	s.until = safeUntil
	s.guard.until(s.lease.deadline(safeUntil))
}

// watch supervises the command until its group is gone. It returns an error if the group was killed
// and is still there killPatience later.
func (s *supervisor) watch() error {
	next := time.NewTimer(0)
	defer next.Stop()
	lost := s.hold.Context().Done()
	guardGone := s.guard.gone()
	for {
		select {
		case c, more := <-s.child.changes:
			if !more {
				return nil
			}
			s.changed(c)
		case <-guardGone:
			guardGone = nil
			s.unguarded()
		case <-s.guard.stops():
			s.guard.resume()
		case sig := <-s.sigs.c:
			s.forward(sig.(syscall.Signal))
		case <-lost:
			lost = nil
		case <-next.C:
		}
		next.Reset(s.check())
		if !s.killed.IsZero() && time.Since(s.killed) > killPatience {
			s.stuck = true
			return &exitError{exitLost, fmt.Errorf("%s was killed, but has not ended", s.args[0])}
		}
	}
}

// forward passes a signal that zklock got on to the command.
func (s *supervisor) forward(sig syscall.Signal) {
	s.child.signal(sig)
	if sig == syscall.SIGTERM || sig == syscall.SIGHUP {
		s.resume() // a stopped command would not get the signal
	}
	if sig == syscall.SIGTERM || sig == syscall.SIGINT {
		s.asked = true
	}
}

// changed is called when the first process was stopped or has ended.
func (s *supervisor) changed(c change) {
	if c.stopped == 0 {
		s.status = c.status
		s.tty.take()
		return
	}
	if s.tty.stopped(c.stopped) {
		s.sigs.whileRunning()
		s.resume()
	}
}

// resume continues a stopped command, but not if the lock is lost.
func (s *supervisor) resume() {
	s.check()
	if s.killed.IsZero() {
		s.child.signal(syscall.SIGCONT)
	}
}

// unguarded ends the command, whose guard has ended. Without a guard the command could outlive
// zklock, and go on after the lock is lost. On Linux its first process gets a signal from the
// kernel, the same as by kill or term here.
func (s *supervisor) unguarded() {
	if s.onLoss == lossKill {
		s.kill(s.guard.ending())
	} else {
		s.term(s.guard.ending())
	}
}

// check does what is due and returns the time until the next check.
func (s *supervisor) check() time.Duration {
	now := time.Now()
	next := s.checkMaxHold(now)
	if err := s.hold.Err(); err != nil {
		s.onLost(err)
		return min(next, s.lease.timeout/checkPart)
	}
	if s.onLoss == lossIgnore {
		return next
	}
	return min(next, s.checkLease(now))
}

// onLost does what --on-loss says, now that the lock is lost.
func (s *supervisor) onLost(err error) {
	switch {
	case s.onLoss == lossKill:
		s.kill(fmt.Sprintf("lock lost: %v", bare{err}))
	case s.lost:
		// The user and the command know it already.
	case s.onLoss == lossTerm:
		s.term(fmt.Sprintf("lock lost: %v", bare{err}))
	default:
		s.say("lock lost, and the command goes on: %v", bare{err})
	}
	s.lost = true
}

// checkLease ends the command if the lease is about to end, by the rule in lease.go.
func (s *supervisor) checkLease(now time.Time) time.Duration {
	until := s.hold.SafeUntil()
	if s.onLoss == lossKill && until.Sub(s.until).Abs() > time.Millisecond {
		s.tellUntil(until)
	}
	verdict, wait := s.lease.judge(now, until)
	if verdict == leaseGood {
		return wait
	}
	why := fmt.Sprintf("nothing heard from the ensemble, the lease ends in %v",
		until.Sub(now).Round(time.Millisecond))
	if verdict == leaseEnding && s.onLoss == lossKill {
		s.kill(why)
	} else {
		s.term(why)
	}
	return wait
}

// checkMaxHold ends the command if --max-hold has passed.
func (s *supervisor) checkMaxHold(now time.Time) time.Duration {
	if s.maxHold == 0 {
		return maxCheckInterval
	}
	why := fmt.Sprintf("held for longer than --max-hold %v", s.maxHold)
	end := s.began.Add(s.maxHold)
	kill := end.Add(s.lease.grace)
	switch {
	case now.Before(end):
		return end.Sub(now)
	case s.onLoss != lossKill:
		s.term(why)
		return maxCheckInterval
	case now.Before(kill):
		s.term(why)
		return kill.Sub(now)
	}
	s.kill(why)
	return s.lease.timeout / checkPart
}

// term asks the command to end, once.
func (s *supervisor) term(why string) {
	if s.told {
		return
	}
	s.told = true
	s.child.signal(syscall.SIGTERM)
	s.child.signal(syscall.SIGCONT) // a stopped process gets no SIGTERM before it is continued
	s.say("%s: SIGTERM to the command", why)
}

// kill ends the group.
func (s *supervisor) kill(why string) {
	s.child.signal(syscall.SIGKILL)
	s.told = true
	if s.killed.IsZero() {
		s.killed = time.Now()
		s.say("%s: SIGKILL to the command", why)
	}
}

func (s *supervisor) say(format string, args ...any) { notice(s.a.err, format, args...) }

// result returns the exit code as an error, and the signal by which zklock has to end, or 0.
func (s *supervisor) result() (dieBy syscall.Signal, err error) {
	// The lock may have been lost between the last check and the end of the group.
	if cause := s.hold.Err(); cause != nil && !s.lost {
		s.say("lock lost before the command had ended: %v", bare{cause})
		s.lost = true
	}
	if s.told || s.lost && s.onLoss != lossIgnore {
		return 0, &exitError{exitLost, nil}
	}
	s.done = true
	switch {
	case s.status.Signaled():
		sig := s.status.Signal()
		if sig == syscall.SIGINT && (s.job.lent || s.tty.ours()) {
			dieBy = sig
		}
		return dieBy, &exitError{exitSignal + int(sig), nil}
	case s.status.ExitStatus() != 0:
		return 0, &exitError{s.status.ExitStatus(), nil}
	}
	return 0, nil
}

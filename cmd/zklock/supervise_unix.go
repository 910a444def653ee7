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
	maxHold time.Duration // 0: no limit
	sigs    *signals
	reaper  *reaper
	guard   *guard
	started bool // the command was started
	asked   bool // it got SIGTERM or SIGINT from us: whatever ends it, it is not started again
	lent    bool // the command had the terminal, so Ctrl-C went to it alone
	done    bool // the command has ended, and not because of the lock: the exit code is its own
}

// death is the signal that the kernel sends the command when zklock dies.
func (j *job) death() syscall.Signal {
	if j.onLoss == lossKill {
		return syscall.SIGKILL
	}
	return syscall.SIGTERM
}

const (
	// stubborn is how long to wait for a group to end after SIGKILL: a process blocked in the kernel never does.
	stubborn = 10 * time.Second
	// idle is the longest time between two checks.
	idle = time.Minute
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

	status syscall.WaitStatus
	ended  bool      // the first process has ended, and status is valid
	told   bool      // the command got SIGTERM because of the lock
	lost   bool      // the loss of the lock was reported
	killed time.Time // the time of the first SIGKILL
}

// run runs the command under hold and returns when its process group is gone: with its exit code, and, on a terminal,
// the signal that ended the command and must end us too.
func (j *job) run(h *zklock.Hold, timeout, tick time.Duration, env []string) (like syscall.Signal, err error) {
	s := &supervisor{job: j, hold: h, lease: newLease(timeout, j.grace, tick), tty: openTerminal(), began: time.Now()}
	defer func() { err = errors.Join(err, s.tty.close()) }()
	if err := s.settle(); err != nil {
		return 0, err
	}
	select {
	case <-j.guard.gone():
		if err := j.guard.replace(); err != nil {
			return 0, err
		}
	default:
	}
	j.sigs.whileRunning()
	if s.child, err = startChild(j.reaper, j.file, j.args, environment(env...), j.death(), s.tty); err != nil {
		return 0, err
	}
	j.started = true
	j.guard.group(s.child.pgid)
	err = s.watch()
	s.tty.take()
	j.lent = s.tty != nil && s.tty.lent
	if err != nil {
		return 0, err
	}
	return s.result()
}

// settle waits until the lease of a new hold has been confirmed. After a long wait the lease may be so short that a
// command started at once would get SIGTERM at once.
func (s *supervisor) settle() error {
	t := s.lease.timeout
	for end := time.Now().Add(t / 4); ; time.Sleep(5 * time.Millisecond) {
		now := time.Now()
		switch left := s.hold.SafeUntil().Sub(now); {
		case s.hold.Err() != nil:
			return s.hold.Err()
		case left > s.lease.doubt+t/lookPart, s.onLoss == lossIgnore:
			return nil
		case now.After(end) && left > s.lease.doubt:
			return nil
		case now.After(end):
			return &exitError{exitLost, errors.New("nothing heard from the ensemble, the command was not started")}
		}
	}
}

// watch returns when the group is gone.
func (s *supervisor) watch() error {
	look := time.NewTimer(0)
	defer look.Stop()
	lost := s.hold.Context().Done()
	for {
		select {
		case c, more := <-s.child.changes:
			if !more {
				s.guard.group(0) // first: the kernel may reuse its id for another group
				return nil
			}
			s.changed(c)
		case <-s.guard.gone():
			s.reguard()
		case <-s.guard.stops():
			s.guard.proc.kill() // a stopped guard does not guard
		case sig := <-s.sigs.c:
			s.child.signal(sig.(syscall.Signal))
			if sig == syscall.SIGTERM || sig == syscall.SIGHUP { // a stopped command would not hear it
				s.resume()
			}
			s.asked = s.asked || sig == syscall.SIGTERM || sig == syscall.SIGINT
		case <-lost:
			lost = nil
		case <-look.C:
		}
		look.Reset(s.look())
		if !s.killed.IsZero() && time.Since(s.killed) > stubborn {
			return &exitError{exitLost, fmt.Errorf("%s was killed, but has not ended", s.args[0])}
		}
	}
}

// changed is called when the first process was stopped or has ended.
func (s *supervisor) changed(c change) {
	if c.stopped != 0 {
		if s.tty.stopped(c.stopped) {
			s.sigs.whileRunning()
			s.resume()
		}
		return
	}
	s.ended, s.status = true, c.status
	s.tty.take()
}

// resume continues a stopped command, but not without the lock.
func (s *supervisor) resume() {
	if s.look(); s.killed.IsZero() {
		s.child.signal(syscall.SIGCONT)
	}
}

// reguard replaces a guard that has ended. Without a guard the command could outlive zklock; so when no other can be
// started, the command gets SIGTERM while the lock is still held, unless --on-loss says that a loss does not end it.
func (s *supervisor) reguard() {
	had := s.guard.err == nil
	switch err := s.guard.replace(); {
	case err == nil:
		s.say("the guard process had ended, and has been started again")
	case s.guard.failed >= enough && s.onLoss == lossKill:
		s.term(err.Error())
	case had:
		s.say("%v; trying again", err)
	}
}

// look does what is due and returns the time until the next check.
func (s *supervisor) look() time.Duration {
	now := time.Now()
	next := s.overtime(now)
	if s.guard.err != nil {
		if now.Sub(s.guard.born) >= quick {
			s.reguard()
		}
		next = min(next, quick)
	}
	if err := s.hold.Err(); err != nil {
		switch {
		case s.onLoss == lossKill:
			s.kill(fmt.Sprintf("lock lost: %v", bare{err}))
		case !s.lost && s.onLoss == lossTerm:
			s.term(fmt.Sprintf("lock lost: %v", bare{err}))
		case !s.lost:
			s.say("lock lost, and the command goes on: %v", bare{err})
		}
		s.lost = true
		return min(next, s.lease.timeout/lookPart)
	}
	if s.onLoss == lossIgnore {
		return next
	}
	until := s.hold.SafeUntil()
	if s.onLoss == lossKill && until.Sub(s.until).Abs() > time.Millisecond {
		s.until = until
		s.guard.until(s.lease.deadline(until)) // the guard or this process kills, whichever is first
	}
	verdict, wait := s.lease.judge(now, until)
	left := until.Sub(now).Round(time.Millisecond)
	switch {
	case verdict == leaseEnding && s.onLoss == lossKill:
		s.kill(fmt.Sprintf("nothing heard from the ensemble, the lease ends in %v", left))
	case verdict != leaseGood:
		s.term(fmt.Sprintf("nothing heard from the ensemble, the lease ends in %v", left))
	}
	return min(next, wait)
}

// overtime ends the command when --max-hold has passed.
func (s *supervisor) overtime(now time.Time) time.Duration {
	if s.maxHold == 0 {
		return idle
	}
	why := fmt.Sprintf("held for longer than --max-hold %v", s.maxHold)
	end := s.began.Add(s.maxHold)
	kill := end.Add(s.lease.grace)
	switch {
	case now.Before(end):
		return end.Sub(now)
	case s.onLoss != lossKill:
		s.term(why)
		return idle
	case now.Before(kill):
		s.term(why)
		return kill.Sub(now)
	}
	s.kill(why)
	return s.lease.timeout / lookPart
}

// term asks the command to end, once.
func (s *supervisor) term(why string) {
	if s.told {
		return
	}
	s.told = true
	s.child.signal(syscall.SIGTERM)
	s.child.signal(syscall.SIGCONT) // a stopped process gets no SIGTERM before it continues
	s.say("%s: SIGTERM to the command", why)
}

// kill ends the group.
func (s *supervisor) kill(why string) {
	s.child.signal(syscall.SIGKILL)
	if s.told = true; s.killed.IsZero() {
		s.killed = time.Now()
		s.say("%s: SIGKILL to the command", why)
	}
}

func (s *supervisor) say(format string, args ...any) { notice(s.a.err, format, args...) }

// result is the exit code as an error, and the signal to die of.
func (s *supervisor) result() (like syscall.Signal, err error) {
	if cause := s.hold.Err(); cause != nil && !s.lost { // between the last look and the end of the group
		s.say("lock lost before the command had ended: %v", bare{cause})
		s.lost = true
	}
	if s.told || s.lost && s.onLoss != lossIgnore {
		return 0, &exitError{exitLost, nil}
	}
	s.done = true
	switch {
	case s.status.Signaled():
		if sig := s.status.Signal(); sig == syscall.SIGINT && (s.job.lent || s.tty.ours()) {
			like = sig
		}
		return like, &exitError{exitSignal + int(s.status.Signal()), nil}
	case s.status.ExitStatus() != 0:
		return 0, &exitError{s.status.ExitStatus(), nil}
	}
	return 0, nil
}

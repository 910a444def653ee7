//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/zklock/locker/internal/unsealed"
	"github.com/zklock/locker/zklock"
)

// run is zklock run.
func (a *app) run(l *lockFlags, path string, argv []string) error {
	if l.once() {
		return a.underLock(l, path, argv, a.onlyOnce(l, path))
	}
	take := func(
		ctx context.Context, c *zklock.Client, left time.Duration,
	) (*zklock.Hold, error) {
		return l.take(ctx, a, c, path, left)
	}
	return a.underLock(l, path, argv, a.holding(l.onLoss, take))
}

// elect is zklock elect.
func (a *app) elect(l *lockFlags, path string, argv []string, value string) error {
	return a.underLock(l, path, argv, a.holding(l.onLoss, campaign(path, value, l)))
}

// underLock takes the lock and runs the command. With --again it repeats that until the command has
// ended while the lock was held, or zklock was asked to end it.
func (a *app) underLock(l *lockFlags, path string, argv []string, under section) error {
	file, err := lookup(argv[0])
	if err != nil {
		return err
	}
	j := &job{a: a, file: file, args: argv, onLoss: l.onLoss, maxHold: l.maxHold}
	if err := adopt(); err != nil {
		return fmt.Errorf("can't reap the processes that the command leaves behind: %w", err)
	}
	j.reaper = newReaper()
	defer j.reaper.close()
	j.sigs = catchSignals()
	if l.elect {
		j.sigs.standBy()
	}
	dieBy, err := a.newAttempt(j, l, path).run(under)
	for attempts := 1; l.again && j.goesOn(err, attempts); attempts++ {
		if codeOf(err) == exitUnreachable {
			notice(a.err, "%v; trying again", err)
		}
		time.Sleep(time.Second) // keeps repeated immediate losses from loading the ensemble
		dieBy, err = a.newAttempt(j, l, path).run(under)
	}
	if dieBy != 0 {
		j.dieBySignal(dieBy)
	}
	return err
}

// goesOn reports whether --again stands for election again after that many attempts, of which the
// last one returned err: the leadership was lost, or, except at the first attempt, no server could
// be reached.
func (j *job) goesOn(err error, attempts int) bool {
	if j.done || j.asked || j.stuck {
		return false
	}
	switch codeOf(err) {
	case exitLost:
		return true
	case exitUnreachable:
		return attempts > 1
	}
	return false
}

// dieBySignal ends zklock by the signal that has ended the command. If the terminal was lent to the
// command, Ctrl-C did not reach our process group, and a script around zklock must be interrupted
// as well.
func (j *job) dieBySignal(sig syscall.Signal) {
	if j.lent {
		_ = syscall.Kill(0, sig) // can't fail: we are in the group and may signal ourselves
	}
	dieOf(sig)
}

// attempt is one attempt to take the lock and to run the command. First it waits for the lock, and
// a signal ends the wait. Then the command runs and gets the signals itself.
type attempt struct {
	*app
	job   *job
	flags *lockFlags
	path  string
	dieBy syscall.Signal // the signal by which zklock has to end, once the command has, or 0

	// Of the wait.
	ctx     context.Context // ends with the wait
	began   time.Time
	line    *statusLine
	endWait func() error // ends the wait; returns an error if a signal had ended it
}

func (a *app) newAttempt(j *job, l *lockFlags, path string) *attempt {
	return &attempt{app: a, job: j, flags: l, path: path}
}

// run takes the lock once and runs the command under it. It returns the signal by which zklock has
// to end, or 0, and the failure, or the command's exit code as an error.
//
// The guard is started before the wait. So nobody waits in vain if it can't be started, and when
// the lock is held the command can start at once. If the guard ends during the wait, ensureGuard
// replaces it.
func (t *attempt) run(under section) (dieBy syscall.Signal, err error) {
	j := t.job
	j.guard, err = startGuard(j.reaper, j.death(), t.conn.guardEnvironment())
	if err != nil {
		return 0, err
	}
	defer j.guard.end()
	t.beginWait()
	c, err := t.dialWithin(t.ctx, t.flags, zklock.WithHooks(t.line.hooks()),
		unsealed.OnSession(j.guard.session).(zklock.Option))
	if err == nil {
		defer func() { err = errors.Join(err, c.Close()) }()
		err = t.takeAndRun(c, under)
	}
	if interrupted := t.endWait(); interrupted != nil {
		return 0, interrupted
	}
	if errors.Is(err, zklock.ErrLost) {
		j.done = false // the command has ended, but perhaps not under the lock
	}
	return t.dieBy, err
}

func (t *attempt) beginWait() {
	ctx, heard := t.job.sigs.whileWaiting(context.Background())
	t.ctx = ctx
	t.line = t.newStatusLine(t.path)
	t.line.follow(ctx)
	t.began = time.Now()
	t.endWait = sync.OnceValue(func() error {
		sig, interrupted := heard()
		t.line.end()
		if interrupted {
			return &exitError{exitSignal + int(sig), nil}
		}
		return nil
	})
}

// takeAndRun takes the lock by the section under, and runs the command there.
func (t *attempt) takeAndRun(c *zklock.Client, under section) error {
	t.line.connected(c)
	l := t.flags
	if !l.try {
		if err := nested(t.ctx, c, t.path, l.permits, l.size); err != nil {
			return err
		}
	}
	left := l.wait - time.Since(t.began)
	return under(t.ctx, c, left, func(h *zklock.Hold) (started bool, err error) {
		err = t.runCommand(c, h)
		return t.job.started, err
	})
}

// runCommand ends the wait and runs the command under h. It sets t.dieBy.
func (t *attempt) runCommand(c *zklock.Client, h *zklock.Hold) error {
	if err := t.endWait(); err != nil {
		return err
	}
	s, err := c.Session(context.Background())
	if err != nil {
		return err
	}
	if err := h.Err(); err != nil {
		return err // lost before the command was started
	}
	j := t.job
	j.grace = t.flags.graceOf(s.Timeout())
	env := append(lockEnvironment(t.path, h, s.ID()), t.conn.handed...)
	t.dieBy, err = j.run(h, s.Timeout(), c.SessionStatus().TickTime, env)
	if t.flags.elect && err != nil && !j.asked {
		unsealed.TermFailed(h)
	}
	return err
}

// dialWithin connects like dial, and gives up after --wait at the latest.
func (a *app) dialWithin(
	ctx context.Context, l *lockFlags, more ...zklock.Option,
) (*zklock.Client, error) {
	if l.waitSet {
		a.conn.patience = min(a.conn.patience, l.wait)
	}
	return a.dial(ctx, more...)
}

// interruptible calls fn with a context that ends with the first signal that ends programs. If
// there was one, interruptible returns its exit code as the error.
func (a *app) interruptible(fn func(ctx context.Context) error) error {
	ctx, heard := catchSignals().whileWaiting(context.Background())
	err := fn(ctx)
	if sig, ok := heard(); ok {
		return &exitError{exitSignal + int(sig), nil}
	}
	return err
}

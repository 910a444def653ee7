//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/go-zookeeper/zk"

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

// holding returns the section of an ordinary lock, which is taken and released. The section reports
// a loss that only the release finds.
func (a *app) holding(onLoss string, take taker) section {
	return func(ctx context.Context, c *zklock.Client, left time.Duration, do work) error {
		h, err := take(ctx, c, left)
		if err != nil {
			return err
		}
		_, err = do(h)
		alreadyReported := codeOf(err) == exitLost || h.Err() != nil && onLoss == lossIgnore
		// If the release takes too long, the end of the session, which is closed next, releases the
		// lock.
		lost := h.Unlock()
		switch {
		case errors.Is(lost, zk.ErrNoAuth): // the lock was ours until now
			notice(a.err, "%v", bare{lost})
		case lost == nil, alreadyReported:
		case onLoss == lossIgnore:
			notice(a.err, "lock lost before the command had ended: %v", bare{lost})
		default:
			return lostError(lost)
		}
		return err
	}
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
	like, err := a.newAttempt(j, l, path).run(under)
	for attempts := 1; l.again && j.goesOn(err, attempts); attempts++ {
		if codeOf(err) == exitUnreachable {
			notice(a.err, "%v; trying again", err)
		}
		time.Sleep(time.Second) // keeps repeated immediate losses from loading the ensemble
		like, err = a.newAttempt(j, l, path).run(under)
	}
	if like != 0 {
		j.dieLike(like)
	}
	return err
}

// goesOn reports whether --again stands for election again after that many attempts, of which the
// last one returned err: the leadership was lost, or, except at the first attempt, no server could
// be reached.
func (j *job) goesOn(err error, attempts int) bool {
	if j.done || j.asked {
		return false
	}
	code := codeOf(err)
	return code == exitLost || code == exitUnreachable && attempts > 1
}

// dieLike ends zklock by the signal that has ended the command. Ctrl-C went to the command only,
// and a script around zklock must be interrupted as well.
func (j *job) dieLike(sig syscall.Signal) {
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

	// Of the wait.
	ctx     context.Context // ends with the wait
	began   time.Time
	line    *line
	endWait func() error // ends the wait; returns an error if a signal had ended it
}

func (a *app) newAttempt(j *job, l *lockFlags, path string) *attempt {
	return &attempt{app: a, job: j, flags: l, path: path}
}

// run takes the lock once and runs the command under it. It returns the signal by which zklock has
// to end, or 0, and the failure, or the command's exit code as an error.
func (t *attempt) run(under section) (like syscall.Signal, err error) {
	j := t.job
	if j.guard, err = startGuard(j.reaper, j.death()); err != nil {
		return 0, err
	}
	defer j.guard.end()
	t.beginWait()
	c, err := t.dialWithin(t.ctx, t.flags, zklock.WithHooks(t.line.hooks()))
	if err == nil {
		defer func() { err = errors.Join(err, c.Close()) }()
		like, err = t.takeAndRun(c, under)
	}
	if interrupted := t.endWait(); interrupted != nil {
		return 0, interrupted
	}
	if errors.Is(err, zklock.ErrLost) {
		j.done = false // the command has ended, but perhaps not under the lock
	}
	return like, err
}

func (t *attempt) beginWait() {
	ctx, heard := t.job.sigs.whileWaiting(context.Background())
	t.ctx = ctx
	t.line = t.newLine(t.path)
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
func (t *attempt) takeAndRun(c *zklock.Client, under section) (like syscall.Signal, err error) {
	t.line.connected(c)
	l := t.flags
	if !l.try {
		if err := nested(t.ctx, c, t.path, l.permits, l.size); err != nil {
			return 0, err
		}
	}
	err = under(t.ctx, c, l.wait-time.Since(t.began), func(h *zklock.Hold) (bool, error) {
		if err := t.endWait(); err != nil {
			return false, err
		}
		s, err := c.Session(context.Background())
		if err != nil {
			return false, err
		}
		if err := h.Err(); err != nil {
			return false, err // lost before the command was started
		}
		t.job.grace = l.graceOf(s.Timeout())
		env := append(lockEnvironment(t.path, h, s.ID()), t.conn.handed...)
		like, err = t.job.run(h, s.Timeout(), c.SessionStatus().TickTime, env)
		if l.elect && err != nil && !t.job.asked {
			unsealed.TermFailed(h)
		}
		return t.job.started, err
	})
	return like, err
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
